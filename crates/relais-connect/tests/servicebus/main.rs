//! Both sides of the Service Bus connector with the simulator, which Microsoft's own client vouches for:
//! the contract of all connectors, and what only Service Bus has.
#![cfg(feature = "amqp")]
#![allow(clippy::unwrap_used)]

mod fixture;
mod publisher;
mod source;

mod contract {
    mod publisher {
        relais_testkit::publisher_contract!(crate::fixture::queue);
    }
    mod source {
        relais_testkit::source_contract!(crate::fixture::queue);
    }
    mod subscription {
        relais_testkit::source_contract!(crate::fixture::subscription);
    }
    mod sessions {
        relais_testkit::source_contract!(crate::fixture::sessions);
    }
}
