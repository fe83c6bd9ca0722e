//! Test helpers for services that use relais; only ever a dev-dependency.
//!
//! With the feature of your database:
//! - [`assert_idempotent!`]: a handler under repeated delivery and a crash at every point
//! - [`assert_outbox!`]: the messages in the outbox
//! - [`VirtualClock`]: a clock that the test advances
//! - [`scratch`]: databases of a test's own
//! - [`ProcessRun`]: a process without a database
//! - [`proxy::FaultProxy`]: a network that delays, withholds, cuts, or loses only the reply
//! - [`mod@connector`]: the contract of sources and publishers, for authors of a connector
//! - [`mod@build`]: messages for tests

#![warn(missing_docs)]

pub mod build;
pub mod clock;
pub mod connector;
pub mod database;
pub mod idempotent;
pub mod outbox_assert;
pub mod process_run;
pub mod proxy;

pub use clock::VirtualClock;
pub use database::{Database, TestDatabaseError, scratch};
pub use idempotent::arrived;
pub use outbox_assert::sent;
pub use process_run::ProcessRun;

#[cfg(all(any(doc, doctest), feature = "sqlite", feature = "postgres"))]
pub mod guide;
