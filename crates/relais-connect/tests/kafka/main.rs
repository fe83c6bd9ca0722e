//! Both sides of the Kafka connector: with a real broker, and with librdkafka's mock cluster for
//! errors that a broker does not produce on request.
#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used)]

mod bad_input;
mod incoming;
mod outgoing;
mod publisher;
mod publisher_mock;
mod raw;
mod rebalance;
mod recreated;
mod secure;
mod source;
mod source_mock;
#[path = "../../src/testing.rs"]
mod testing;
