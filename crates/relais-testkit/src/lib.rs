//! What relais proves itself with, and what users may prove their own parts with: only ever a
//! dev-dependency.
//!
//! [`store_conformance!`] runs the whole contract of [`relais_core::store::Store`] against a real
//! database, given as a [`fixture::Fixture`]. [`build`] makes the messages.

pub mod build;
pub mod conformance;
pub mod fixture;
pub mod model;
