//! What Salesforce documents or was seen to do, and the simulator must do: one test for each.

mod admin;
mod auth;
mod bulk;
mod bulk_csv;
mod bulk_processing;
mod collections;
mod composite;
mod faults;
mod results;
mod rows;
mod soql;
mod support;
