//! What only the SQLite store does; what every store does is in the conformance suite.

#![cfg(feature = "sqlite")]
// Everything here is a test; clippy sees only the functions marked as one.
#![allow(clippy::unwrap_used)]

#[path = "sqlite/bed.rs"]
mod bed;
#[path = "support/edition.rs"]
mod edition;
#[path = "sqlite/file.rs"]
mod file;
#[path = "sqlite/handlers.rs"]
mod handlers;
#[path = "sqlite/hydrate.rs"]
mod hydrate;
#[path = "sqlite/mark.rs"]
mod mark;
#[path = "sqlite/other_writers.rs"]
mod other_writers;
#[path = "sqlite/plans.rs"]
mod plans;
#[path = "sqlite/transactions.rs"]
mod transactions;
#[path = "sqlite/upgrade.rs"]
mod upgrade;
#[path = "sqlite/writer.rs"]
mod writer;
