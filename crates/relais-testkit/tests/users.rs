//! The testkit as users have it: their handlers, their tables, relais as a dependency.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

#[path = "users/clock.rs"]
mod clock;
#[path = "users/idempotent_postgres.rs"]
mod idempotent_postgres;
#[path = "users/idempotent_sqlite.rs"]
mod idempotent_sqlite;
#[path = "users/outbox.rs"]
mod outbox;
#[path = "users/proxy.rs"]
mod proxy;
#[path = "users/rehearsal.rs"]
mod rehearsal;
#[path = "users/shop.rs"]
mod shop;
