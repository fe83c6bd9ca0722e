//! Test helpers for services that use relais; only ever a dev-dependency.
//!
//! With the feature of your database:
//! - [`assert_idempotent!`]: a handler under repeated delivery and a crash at every point
//! - [`assert_outbox!`]: what is in the outbox
//! - [`VirtualClock`]: time passes when the test says so
//! - [`scratch`]: databases of a test's own
//! - [`Rehearsal`]: a process without a database
//! - [`proxy::FaultProxy`]: a network that delays, withholds, cuts, or loses only the reply
//! - [`build`]: messages

pub mod build;
pub mod clock;
pub mod database;
pub mod idempotent;
pub mod outbox_assert;
pub mod proxy;
pub mod rehearsal;

pub use clock::VirtualClock;
pub use database::{Database, scratch};
pub use idempotent::arrived;
pub use outbox_assert::sent;
pub use rehearsal::Rehearsal;

#[cfg(all(any(doc, doctest), feature = "sqlite", feature = "postgres"))]
pub mod guide;
