//! Kafka in both directions.
//!
//! Read in this order: `config` defines how a cluster is reached and which options are refused;
//! `client_log` passes the log of librdkafka to ours. A message is sent by `publisher` and `call`:
//! `record` builds the record, `producer` is one producer of librdkafka, and `classify` classifies
//! the result. Records are received by `source`.

mod client_log;
mod config;

mod call;
mod classify;
mod producer;
mod publisher;
mod record;

mod source;

mod probe;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use crate::kafka_settings::KafkaStartOffset;
pub use config::{KafkaConnection, check_destination_option, check_source_option};
pub use publisher::{KafkaPublisher, KafkaPublisherSettings};
pub use source::{KafkaSource, KafkaSourceCounters, KafkaSourceSettings};
