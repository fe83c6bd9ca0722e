//! What only the PostgreSQL store does; what every store does is in the conformance suite.

#![cfg(feature = "postgres")]
// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used)]

mod support;

#[path = "postgres/bed.rs"]
mod bed;
#[path = "postgres/bulk.rs"]
mod bulk;
#[path = "support/edition.rs"]
mod edition;
#[path = "postgres/golden.rs"]
mod golden;
#[path = "postgres/handlers.rs"]
mod handlers;
#[path = "postgres/hydrate.rs"]
mod hydrate;
#[path = "postgres/isolation.rs"]
mod isolation;
#[path = "postgres/lost_reply.rs"]
mod lost_reply;
#[path = "postgres/mark.rs"]
mod mark;
#[path = "postgres/memory.rs"]
mod memory;
#[path = "postgres/processes.rs"]
mod processes;
#[path = "postgres/rights.rs"]
mod rights;
#[path = "postgres/roles.rs"]
mod roles;
#[path = "postgres/server.rs"]
mod server;
#[path = "postgres/sessions.rs"]
mod sessions;
#[path = "postgres/transactions.rs"]
mod transactions;
#[path = "postgres/upgrade.rs"]
mod upgrade;
#[path = "postgres/versions.rs"]
mod versions;
