//! Documented and observed behaviour of Salesforce that the simulator must have: one test each.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod admin;
mod auth;
mod bulk;
mod bulk_csv;
mod bulk_processing;
mod bulk_query;
mod collections;
mod composite;
mod faults;
mod fidelity;
mod readme;
mod results;
mod rows;
mod soql;
mod support;
