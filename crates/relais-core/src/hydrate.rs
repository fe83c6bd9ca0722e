//! The seam to fresh data: events carry ids, and one query per batch reads their rows just before
//! sending.

use std::collections::HashMap;

use crate::{async_trait, store::StoreError};

/// One row of fresh data: a JSON object, its fields named by column. NULL is JSON's `null`.
pub type Record = serde_json::Map<String, serde_json::Value>;

/// The outcome of one query for many ids. An id that is in neither map has no row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HydratedRecords {
    /// The records that were found, by id.
    pub records: HashMap<String, Record>,
    /// Ids whose own row is invalid, with the reason, which names the id. The other ids of the
    /// batch are not affected.
    pub failed: HashMap<String, String>,
}

/// Reads fresh data by id.
#[async_trait]
pub trait Hydrator: Send + Sync {
    /// Reads the record of each id. An error concerns the query or the database, never a single row.
    async fn hydrate(&self, ids: Vec<String>) -> Result<HydratedRecords, StoreError>;
}
