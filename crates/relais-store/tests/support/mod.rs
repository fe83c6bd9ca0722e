//! Databases for this crate's tests, each test its own: a file, or a schema of the server that
//! `RELAIS_TEST_POSTGRES` names.

// Each test program uses its own part of this.
#![allow(dead_code, unreachable_pub)]

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
