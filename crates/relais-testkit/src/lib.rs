//! What relais proves itself with, and what users may prove their own parts with: only ever a
//! dev-dependency.
//!
//! For users, with the feature of their database:
//! - [`assert_idempotent!`]: a handler under repeated delivery and a crash at every point
//! - [`assert_outbox!`]: what is in the outbox
//! - [`VirtualClock`]: time passes when the test says so
//! - [`scratch`]: databases of a test's own
//! - [`Rehearsal`]: a process without a database
//! - [`proxy::FaultProxy`]: a network that delays, withholds, cuts, or loses only the reply
//!
//! For those who write a store: [`store_conformance!`] runs the whole contract of
//! [`relais_core::store::Store`] against a real database, given as a [`fixture::Fixture`]. [`build`]
//! makes the messages.

pub mod build;
pub mod clock;
pub mod conformance;
pub mod database;
pub mod fixture;
pub mod idempotent;
pub mod model;
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
