//! Salesforce as a destination: rows become records, upserted by external id.
//!
//! Read in this order: a destination is described by `settings`; calls go through `client`, which
//! holds a token (`token`, `jwt`), keeps to the `budget`, and sorts refusals (`answer`, `classify`).
//! Rows become values by `columns`, `record` and `key`. Many of them go through [`SalesforceBulk`]
//! (`csv` out; `job`, `reconcile` and `results` back), few through [`SalesforceCollections`],
//! messages of several records through [`SalesforceGraph`] (both in `parts`).

mod settings;

mod answer;
mod budget;
mod classify;
mod client;
mod jwt;
mod token;
mod vault;

mod columns;
mod key;
mod record;

mod bulk;
mod csv;
mod job;
mod reconcile;
mod results;

mod collections;
mod graph;
mod parts;
mod probe;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use budget::{Budget, Usage};
pub use bulk::SalesforceBulk;
pub use collections::SalesforceCollections;
pub use graph::SalesforceGraph;
pub use probe::{Probed, probe};
pub use settings::{API_VERSION, Api, Auth, OnMissing, SalesforceSettings};
pub use token::Session;
pub use vault::{TokenKey, TokenVault};
