//! The databases that keep relais's rows, one feature each.
//!
//! Invariant: nothing here knows a broker, emits metrics or decides about retries of messages. A driver may
//! repeat a transaction that failed because of a concurrent one. SQL lives in `.sql` files with the same names
//! in every driver.

#![warn(missing_docs)]

#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[macro_use]
mod application;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod adopt;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod hydrate;
mod migration;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod release;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod sqlx_function;
mod transaction;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod unknown_value;
#[cfg(any(feature = "postgres", feature = "sqlx-sqlite"))]
mod with_state;

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use relais_fail_points::fail_point;

pub use migration::{SCHEMA_VERSION, Script};
pub use transaction::{BlockingTransaction, Transaction};
