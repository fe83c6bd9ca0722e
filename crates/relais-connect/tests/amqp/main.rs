//! Both sides of the AMQP 1.0 connector with real brokers: the contract of all connectors, and what only
//! AMQP has.
#![cfg(feature = "amqp")]
#![allow(clippy::unwrap_used)]

mod fixture;
mod publisher;
mod replies;
mod secure;
mod source;

mod artemis {
    mod publisher {
        relais_testkit::publisher_contract!(crate::fixture::artemis);
    }
    mod source {
        relais_testkit::source_contract!(crate::fixture::artemis);
    }
}

mod qpid {
    mod publisher {
        relais_testkit::publisher_contract!(crate::fixture::qpid);
    }
    mod source {
        relais_testkit::source_contract!(crate::fixture::qpid);
    }
}
