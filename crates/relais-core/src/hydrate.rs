//! The seam to fresh data: events carry ids, and just before sending one query per batch reads what
//! they stand for.

use std::collections::HashMap;

use crate::{BoxFuture, store::StoreError};

/// One row of fresh data: a JSON object, its fields named by column. NULL is JSON's `null`.
pub type Record = serde_json::Map<String, serde_json::Value>;

/// Reads fresh data by id.
pub trait Hydrator: Send + Sync {
    /// The record of each id that has one; an id without a record is simply not there.
    fn hydrate(
        &self,
        ids: Vec<String>,
    ) -> BoxFuture<'_, Result<HashMap<String, Record>, StoreError>>;
}
