//! Tests for authors of a store; never part of a program.
//!
//! - [`store_conformance!`] runs the contract of [`relais_core::store::Store`] against a real database,
//!   given as a [`fixture::Fixture`].
//! - [`faulty`] is a store that breaks one rule of the contract, to prove that crash tests find it.

pub mod conformance;
pub mod faulty;
pub mod fixture;

use relais_testkit::build;
