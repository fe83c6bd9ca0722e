//! Both sides of the Kafka connector: the contract of all connectors, what only Kafka has, and errors that a
//! broker does not produce on request, with librdkafka's mock cluster.
#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used)]

mod bad_input;
mod fixture;
mod incoming;
mod outgoing;
mod publisher;
mod publisher_mock;
mod raw;
mod rebalance;
mod recreated;
mod registry;
mod registry_access;
mod registry_publisher;
mod registry_server;
mod secure;
mod source;
mod source_mock;
#[path = "../../src/testing.rs"]
mod testing;

mod contract {
    mod publisher {
        relais_testkit::publisher_contract!(crate::fixture::place);
    }
    mod source {
        relais_testkit::source_contract!(crate::fixture::place);
    }
}
