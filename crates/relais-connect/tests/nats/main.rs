//! Both sides of the NATS connector with real servers: the contract of all connectors, and what only
//! NATS has. Everything runs on two versions of the server.
#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used)]
// The same checks for each server.
#![allow(clippy::duplicate_mod)]

/// The server of Debian.
#[path = "all.rs"]
mod debian;

/// A current server, built where Go is installed.
#[path = "all.rs"]
mod current;
