//! Both sides of the NATS connector with a real server: the contract of all connectors, and what only
//! NATS has.
#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used)]

mod fixture;
mod login;
mod publisher;
mod replies;
mod restart;
mod server;
mod source;

mod contract {
    mod publisher {
        relais_testkit::publisher_contract!(crate::fixture::stream);
    }
    mod source {
        relais_testkit::source_contract!(crate::fixture::stream);
    }
    mod work_queue {
        relais_testkit::source_contract!(crate::fixture::work_queue);
    }
}
