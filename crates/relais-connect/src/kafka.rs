//! Kafka in both directions.
//!
//! Read in this order: `config` defines how a cluster is reached and which options are refused;
//! `client_log` passes the log of librdkafka to ours. A message is sent by `publisher` and `call`:
//! `record` builds the record, `producer` is one producer of librdkafka, and `classify` classifies
//! the result. Records are received by `source`. With a schema `registry`, `encoder` and `source` write and
//! read `avro`.

mod client_log;
mod config;

mod avro;
mod registry;

mod call;
mod classify;
mod closed_topics;
mod encoder;
mod producer;
mod publisher;
mod record;

mod source;

mod probe;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use crate::kafka_settings::{KafkaEncoder, KafkaStartOffset};
pub use config::{KafkaConnection, check_destination_option, check_source_option};
pub use encoder::KafkaEncoding;
pub use publisher::{KafkaPublisher, KafkaPublisherSettings};
pub use registry::{SchemaRegistry, SchemaRegistrySettings};
pub use source::{KafkaSource, KafkaSourceCounters, KafkaSourceSettings};
