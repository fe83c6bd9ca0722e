//! Both sides of the Kafka connector: against a real broker, and against librdkafka's mock cluster
//! for what a broker does not do on request.
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
