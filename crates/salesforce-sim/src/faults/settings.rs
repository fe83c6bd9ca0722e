//! How the org behaves where Salesforce leaves a choice, has changed, or is slow.

use serde::{Deserialize, Serialize};

/// How bulk jobs run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BulkSettings {
    /// Jobs move only by `POST /sim/tick`.
    pub manual: bool,
    /// How long a closed job waits before it is `InProgress`.
    pub queued_ms: u64,
    /// How long each round takes, in which every batch saves one chunk.
    pub round_ms: u64,
    pub batch_rows: usize,
    pub chunk_rows: usize,
    pub second_put: SecondPut,
    pub id_on_upsert: IdOnUpsert,
    /// Chunks that run at the same time and touch the same record or parent lock each other out.
    pub contention: bool,
    /// So many locked rows of a batch are borne before the rest of it goes back to the queue.
    pub lock_failures_max: u32,
    pub lock_retries_max: u32,
    pub timeout_retries_max: u32,
    pub retention_days: u32,
    /// The largest upload, counted after base64.
    pub upload_max_bytes: u64,
    /// The answer to a larger one.
    pub too_large_status: u16,
}

impl Default for BulkSettings {
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

/// Who tells that a job got two uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecondPut {
    /// The second upload.
    Put,
    /// The close, as in 2018.
    Close,
}

/// A row with an `Id` in an upsert by external id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdOnUpsert {
    Reject,
    Ignore,
}

/// How results look.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResultSettings {
    pub shuffle_rows: bool,
    pub shuffle_columns: bool,
    pub empty: EmptyResults,
    pub early: EarlyResults,
    /// Rows with such keys are there twice.
    pub repeat: Option<super::Pattern>,
}

/// The answer where there are no rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyResults {
    #[default]
    Header,
    /// 204.
    NoContent,
    /// 200 with nothing in it.
    Body,
}

/// The answer before the job has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlyResults {
    /// 400 `INVALIDJOBSTATE`.
    #[default]
    Error,
    /// As if there were no rows.
    Empty,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectionSettings {
    pub unknown_field: UnknownField,
}

/// What a field that the org does not know spoils in a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownField {
    /// The whole call: 400.
    #[default]
    Call,
    /// Its record.
    Record,
}

/// The allocations of the last 24 hours.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSettings {
    pub api_max: u64,
    /// Calls that others have already made.
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
