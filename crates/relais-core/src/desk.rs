//! What the people at the desk ask of the store: edit a dead letter, look at attempts, parked keys, the
//! audit, and at what followed from a message.

use serde::Serialize;
use uuid::Uuid;

use crate::{
    dead_letter::{DeadLetter, Origin, Verdict},
    inbox::InboxRow,
    outbox::{OnDeadLetter, OutboxRow},
    query::ParkedKey,
    store::StoreFuture,
    time::Timestamp,
};

/// Another payload for a dead letter and the row it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Valid JSON.
    pub payload: String,
    pub actor: String,
    pub reason: String,
}

/// The code of a dead letter that an operator made of a pending row.
pub const CODE_OPERATOR_FAILED: &str = "OPERATOR_FAILED";

/// An operator's decision to stop trying a pending outbox row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailRow {
    /// Whether later rows of its key wait for a decision about the dead letter.
    pub on_dead_letter: OnDeadLetter,
    pub actor: String,
    pub reason: String,
}

/// What became of an edit or a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decided {
    Done,
    NotFound,
    /// Somebody was faster.
    ResolvedBefore,
}

/// The ids that [`Desk::ids_between`] looks among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    DeadLetter,
    Process,
    /// The message ids of outbox rows.
    Message,
}

/// Most ids of one [`Desk::ids_between`].
pub const IDS_MAX: usize = 10;

/// One attempt that did not succeed. Those that do leave nothing but the row's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    pub origin: Origin,
    pub origin_id: i64,
    /// 1 for the first since the row came, or since it was last replayed.
    pub attempt: u32,
    pub at: Timestamp,
    /// `retry`, `failed`, `ignored` if messages of the row were not sent because they were out of order, or
    /// `delivered` if the target accepted it after an operator had failed it.
    pub outcome: String,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    pub worker: String,
}

/// One line of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    pub id: i64,
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub target: String,
    pub reason: String,
}

/// Which lines of the audit. Every set field must match; newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub actor: Option<String>,
    pub target: Option<String>,
    /// Only lines with a smaller id: the next page.
    pub before: Option<i64>,
    /// At most [`crate::query::PAGE_MAX`].
    pub limit: usize,
}

/// The store's side of the desk. Every method is one transaction or one bounded read; a list has at
/// most [`crate::query::PAGE_MAX`] entries.
pub trait Desk: Send + Sync {
    /// Gives an open dead letter and its row another payload; the first original is kept. Recorded in
    /// the audit. The row stays failed until it is replayed.
    fn edit_dead_letter(&self, id: Uuid, edit: Edit) -> StoreFuture<'_, Decided>;

    /// Closes a `SERDE_ERROR` row nobody can repair: `FAILED`, with a dead letter that is resolved.
    fn discard_serde_error(&self, id: i64, verdict: Verdict) -> StoreFuture<'_, Decided>;

    /// Makes a dead letter (`OPERATOR_FAILED`) of a pending outbox row, and records it in the audit.
    /// `ResolvedBefore` if the row is not pending.
    ///
    /// A worker may have the row in flight: this is decided by its state alone, without the lane. Of this
    /// and the worker's settlement the first one to commit stands, because both ask for `PENDING`; the
    /// other one is refused and changes nothing. So the target may have the message although it is a dead
    /// letter; a retry sends it again under the same id.
    fn fail_outbox(&self, id: i64, fail: FailRow) -> StoreFuture<'_, Decided>;

    /// Records that a target accepted rows whose settlement was refused because an operator had failed them
    /// (`OPERATOR_FAILED`) meanwhile. Other rows are left alone. Returns how many were recorded.
    fn note_delivered(&self, rows: Vec<i64>, worker: String) -> StoreFuture<'_, u64>;

    /// Returns ids from `low` to `high`, in order: at most [`IDS_MAX`]. For ids that are given as prefixes.
    fn ids_between(&self, kind: IdKind, low: Uuid, high: Uuid) -> StoreFuture<'_, Vec<Uuid>>;

    /// The failed attempts of one row, oldest first.
    fn attempts(&self, origin: Origin, origin_id: i64) -> StoreFuture<'_, Vec<Attempt>>;

    /// Keys held back, longest first, with what waits behind them.
    fn parked_keys(&self, limit: usize) -> StoreFuture<'_, Vec<ParkedKey>>;

    /// Every dead letter, open or resolved, of one message id or process id, oldest first.
    fn dead_letters_of(&self, message_id: String) -> StoreFuture<'_, Vec<DeadLetter>>;

    /// Inbox rows of this message id, one for each source system that has it, oldest first.
    fn received_as(&self, message_id: String) -> StoreFuture<'_, Vec<InboxRow>>;

    /// Outbox rows of this message id, one for each destination that has it, oldest first.
    fn sent_as(&self, message_id: Uuid) -> StoreFuture<'_, Vec<OutboxRow>>;

    /// Outbox rows that one message caused (`causation_id`), oldest first.
    fn caused_by(&self, message_id: String) -> StoreFuture<'_, Vec<OutboxRow>>;

    fn list_audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>>;
}
