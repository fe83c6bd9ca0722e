//! Settings for behaviour that differs between orgs, has changed over time, or takes time.

use serde::{Deserialize, Serialize};

/// The behaviour of bulk jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BulkJobSettings {
    /// Jobs advance only by `POST /sim/tick`.
    pub manual: bool,
    /// Time that a closed job waits before it is `InProgress`.
    pub queued_ms: u64,
    /// Duration of a round, in which every batch saves one chunk.
    pub round_ms: u64,
    pub batch_rows: usize,
    pub chunk_rows: usize,
    pub second_put: SecondPut,
    pub id_on_upsert: IdOnUpsert,
    /// Chunks that run in the same round and touch the same record or parent lock each other.
    pub contention: bool,
    /// This many locked rows of a batch are tolerated before the rest of it returns to the queue.
    pub lock_failures_max: u32,
    pub lock_retries_max: u32,
    pub timeout_retries_max: u32,
    pub retention_days: u32,
    /// Maximum size of an upload, counted after base64.
    pub upload_max_bytes: u64,
    /// The status for a larger upload.
    pub too_large_status: u16,
}

impl Default for BulkJobSettings {
    fn default() -> Self {
        Self {
            manual: false,
            queued_ms: 0,
            round_ms: 0,
            batch_rows: 10_000,
            chunk_rows: 200,
            second_put: SecondPut::Put,
            id_on_upsert: IdOnUpsert::Reject,
            contention: false,
            lock_failures_max: 100,
            lock_retries_max: 10,
            timeout_retries_max: 20,
            retention_days: 7,
            upload_max_bytes: 150 * 1024 * 1024,
            too_large_status: 413,
        }
    }
}

/// The call that detects a second upload of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecondPut {
    /// The second upload.
    Put,
    /// The close, as in 2018.
    Close,
}

/// The treatment of a row with an `Id` in an upsert by external id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdOnUpsert {
    Reject,
    Ignore,
}

/// The format of results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResultSettings {
    pub shuffle_rows: bool,
    pub shuffle_columns: bool,
    pub empty: EmptyResults,
    pub early: EarlyResults,
    /// Rows with matching keys appear twice.
    pub repeat: Option<super::Pattern>,
}

/// The response without rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyResults {
    #[default]
    Header,
    /// 204.
    NoContent,
    /// 200 with an empty body.
    Body,
}

/// The response before the job has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlyResults {
    /// 400 `INVALIDJOBSTATE`.
    #[default]
    Error,
    /// The same as without rows.
    Empty,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectionSettings {
    pub unknown_field: UnknownField,
}

/// The scope of the error for an unknown field in a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownField {
    /// The whole call: 400.
    #[default]
    Call,
    /// The record.
    Record,
}

/// The limits of the last 24 hours.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSettings {
    pub api_max: u64,
    /// Calls of other clients.
    pub api_spent: u64,
    pub bulk_batches_max: u64,
    pub bulk_batches_spent: u64,
    pub bulk_records_max: u64,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            api_max: 100_000,
            api_spent: 0,
            bulk_batches_max: 15_000,
            bulk_batches_spent: 0,
            bulk_records_max: 150_000_000,
        }
    }
}
