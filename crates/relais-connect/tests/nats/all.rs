//! All checks, on the server that the name of this module stands for.

mod fixture;
mod login;
mod poison;
mod publisher;
mod replies;
mod restart;
mod server;
mod source;

mod contract {
    mod publisher {
        relais_testkit::publisher_contract!(super::super::fixture::stream);
    }
    mod source {
        relais_testkit::source_contract!(super::super::fixture::stream);
    }
    mod work_queue {
        relais_testkit::source_contract!(super::super::fixture::work_queue);
    }
}
