//! The testkit as users have it: their handlers, their tables, relais as a dependency.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod clock;
mod idempotent_postgres;
mod idempotent_sqlite;
mod outbox;
mod process_run;
mod proxy;
mod shop;
