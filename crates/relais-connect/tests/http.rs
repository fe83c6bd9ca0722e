//! Both sides of the HTTP connector against real sockets.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

#[path = "http/common.rs"]
mod common;
#[path = "http/publisher.rs"]
mod publisher;
#[path = "http/source.rs"]
mod source;
#[path = "http/stalled.rs"]
mod stalled;
#[path = "../src/testing.rs"]
mod testing;
