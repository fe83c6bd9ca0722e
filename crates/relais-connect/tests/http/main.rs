//! Both sides of the HTTP connector with real sockets: the contract of all connectors, and what only HTTP
//! has.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

mod common;
mod fixture;
mod handler;
mod publisher;
mod source;
mod stalled;
#[path = "../../src/testing.rs"]
mod testing;

mod contract {
    mod publisher {
        relais_testkit::publisher_contract!(crate::fixture::target);
    }
    mod source {
        relais_testkit::source_contract!(crate::fixture::webhooks);
    }
}
