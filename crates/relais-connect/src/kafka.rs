//! Kafka in both directions.
//!
//! Read in this order: `config` says how a cluster is reached and which options are refused;
//! `client_log` brings the lines of librdkafka into ours. A message goes out through `publisher` and
//! `call`, made a record by `record`, on a `line` (one producer of librdkafka); `classify` judges what
//! comes back. Records come in through `source`.

mod client_log;
mod config;

mod call;
mod classify;
mod line;
mod publisher;
mod record;

mod source;

mod probe;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use config::{KafkaConnection, check_destination_option, check_source_option};
pub use publisher::{KafkaPublisher, KafkaPublisherSettings};
pub use source::{KafkaSource, KafkaSourceCounters, KafkaSourceSettings, Start};
