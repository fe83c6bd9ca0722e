//! What only the PostgreSQL store does; what every store does is in the conformance suite.

#![cfg(feature = "postgres")]
// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod adopted;
mod bed;
mod bulk;
#[path = "../support/edition.rs"]
mod edition;
mod external;
mod fetch_cost;
mod golden;
mod handlers;
mod hydrate;
mod isolation;
mod lists;
mod lost_reply;
mod mark;
mod memory;
mod prepared;
mod processes;
mod rights;
mod roles;
mod server;
mod sessions;
mod transactions;
mod upgrade;
mod versions;
