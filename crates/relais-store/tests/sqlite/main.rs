//! What only the SQLite store does; what every store does is in the conformance suite.

#![cfg(feature = "sqlite")]
// Everything here is a test; clippy sees only the functions marked as one.
#![allow(clippy::unwrap_used)]

mod bed;
#[path = "../support/edition.rs"]
mod edition;
mod file;
mod handlers;
mod hydrate;
mod mark;
mod other_writers;
mod plans;
mod transactions;
mod upgrade;
mod writer;
