//! Both sides of the RabbitMQ connector with a real broker: the contract of all connectors, and what
//! only RabbitMQ has.
#![cfg(feature = "rabbitmq")]
#![allow(clippy::unwrap_used)]

mod fixture;
mod publisher;
mod replies;
mod secure;
mod source;

mod contract {
    mod publisher {
        relais_testkit::publisher_contract!(crate::fixture::classic);
    }
    mod classic_queue {
        relais_testkit::source_contract!(crate::fixture::classic);
    }
    mod quorum_queue {
        relais_testkit::source_contract!(crate::fixture::quorum);
    }
}
