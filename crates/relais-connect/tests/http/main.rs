//! Both sides of the HTTP connector with real sockets.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

mod common;
mod handler;
mod publisher;
mod source;
mod stalled;
#[path = "../../src/testing.rs"]
mod testing;
