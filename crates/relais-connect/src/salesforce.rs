//! Salesforce as a destination: rows become records, upserted by external id.
//!
//! Read in this order: `settings` describe a destination. Calls use `client`, which holds a
//! token (`token`, `jwt`, `vault`), keeps to the `budget` and classifies errors (`response`,
//! `classify`). Rows become values by `columns`, `row_values` and `external_id`. Many rows go
//! through [`SalesforceBulk`] (`csv` for the upload; `job_info`, `reconcile` and `results` for the
//! results), few through [`SalesforceCollections`], and messages with several records through
//! [`SalesforceGraph`] (the last two use `batch_split`).

mod settings;

mod budget;
mod classify;
mod client;
mod jwt;
mod response;
mod token;
mod vault;

mod columns;
mod external_id;
mod row_values;

mod bulk;
mod csv;
mod job_info;
mod reconcile;
mod results;

mod batch_split;
mod collections;
mod graph;
mod probe;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use budget::{ApiCallBudget, ApiCallUsage};
pub use bulk::SalesforceBulk;
pub use collections::SalesforceCollections;
pub use graph::SalesforceGraph;
pub use probe::{ProbeResult, probe};
pub use settings::{API_VERSION, Api, Auth, OnMissing, SalesforceSettings};
#[doc(hidden)]
pub use settings::{ORPHAN_AGE, ROWS_DEFAULT, SalesforceKeys};
pub use token::SalesforceSession;
pub use vault::{TokenKey, TokenVault};
