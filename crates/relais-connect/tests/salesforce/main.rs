//! The Salesforce connector with the simulator.
#![cfg(feature = "salesforce")]
#![allow(clippy::unwrap_used)]

mod auth;
mod budget;
mod bulk;
mod bulk_faults;
mod collections;
mod common;
mod graph;
mod results;
#[path = "../../src/testing.rs"]
mod testing;
