//! Aggregates: the state and the events of one save exist together or not at all, on each store.

#![cfg(all(feature = "sqlx-sqlite", feature = "sqlx-postgres"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
// The same scenarios are compiled once for each driver's connection.
#![allow(clippy::duplicate_mod)]

mod drivers;
mod order;
mod postgres;
mod sqlite;
