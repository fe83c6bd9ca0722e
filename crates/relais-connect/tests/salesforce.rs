//! The Salesforce connector against the simulator.
#![cfg(feature = "salesforce")]
#![allow(clippy::unwrap_used)]

#[path = "salesforce/auth.rs"]
mod auth;
#[path = "salesforce/budget.rs"]
mod budget;
#[path = "salesforce/bulk.rs"]
mod bulk;
#[path = "salesforce/bulk_faults.rs"]
mod bulk_faults;
#[path = "salesforce/collections.rs"]
mod collections;
#[path = "salesforce/common.rs"]
mod common;
#[path = "salesforce/graph.rs"]
mod graph;
#[path = "salesforce/results.rs"]
mod results;
#[path = "../src/testing.rs"]
mod testing;
