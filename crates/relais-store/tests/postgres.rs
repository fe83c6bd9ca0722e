//! What only the PostgreSQL store does; what every store does is in the conformance suite.

#![cfg(feature = "postgres")]
// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used)]

mod support;

#[path = "postgres/bed.rs"]
mod bed;
#[path = "postgres/bulk.rs"]
mod bulk;
#[path = "postgres/golden.rs"]
mod golden;
#[path = "postgres/handlers.rs"]
mod handlers;
#[path = "postgres/hydrate.rs"]
mod hydrate;
#[path = "postgres/mark.rs"]
mod mark;
#[path = "postgres/migration.rs"]
mod migration;
#[path = "postgres/processes.rs"]
mod processes;
#[path = "postgres/server.rs"]
mod server;
#[path = "postgres/transactions.rs"]
mod transactions;
