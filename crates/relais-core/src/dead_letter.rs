//! Dead letters: messages that need an operator's decision, and the decisions.
//!
//! Unstable: drivers implement [`DeadLetterStore`]; it is not public API and changes with any release.

use serde::Serialize;
use uuid::Uuid;

use crate::{
    async_trait,
    control::ControlOrder,
    message::Headers,
    outbox::OnDeadLetter,
    process::{Change, ChangeOutcome},
    query::SerdeErrors,
    repair::{Mode, Repair, ReprocessOutcome},
    store::StoreResult,
    text::sha256_hex,
    time::Timestamp,
};

/// The table of the failed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The inbox.
    Inbox,
    /// The outbox.
    Outbox,
    /// A process.
    Process,
}

impl Origin {
    /// All origins.
    pub const ALL: [Self; 3] = [Self::Inbox, Self::Outbox, Self::Process];

    /// Returns the origin as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Outbox => "outbox",
            Self::Process => "process",
        }
    }

    /// Parses a stored origin; `None` if this program does not know it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.as_str() == text)
    }
}

/// `failed_status` of a message whose id came before with another payload.
pub const STATUS_CONFLICT: &str = "CONFLICT";

/// Returns the id under which the other payload is handled when an operator retries the conflict.
pub fn retried_conflict_id(message_id: &str, payload: &str) -> String {
    format!("{message_id}#{}", &sha256_hex(payload.as_bytes())[..8])
}

/// `failed_status` of a row that failed for good.
pub const STATUS_FAILED: &str = "FAILED";

/// One row of `relais_dead_letter`: a self-contained copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    /// The id of the dead letter.
    pub id: Uuid,
    /// The kind of row that it is a copy of.
    pub origin: Origin,
    /// `id` of the inbox or outbox row it is about. A process has none: `message_id` is its id.
    pub origin_id: Option<i64>,
    /// The id of the message; of a process, its id.
    pub message_id: String,
    /// Source system of an inbox row.
    pub source_system: Option<String>,
    /// Destination of an outbox row.
    pub destination: Option<String>,
    /// The event type of the message; of a process, its type.
    pub event_type: Option<String>,
    /// The key: what the spec calls the business key.
    pub msg_key: String,
    /// The payload, JSON; the data of a process.
    pub payload: Option<String>,
    /// The headers of the message.
    pub headers: Headers,
    /// The status in which the row failed, or `CONFLICT`.
    pub failed_status: String,
    /// The error code.
    pub error_class: Option<String>,
    /// The error text.
    pub error_message: Option<String>,
    /// The number of used attempts.
    pub attempts: u32,
    /// The worker that gave up.
    pub parked_by: String,
    /// The time at which the row became a dead letter.
    pub parked_at: Timestamp,
    /// The payload before an operator edited it.
    pub original_payload: Option<String>,
    /// The operator who edited the payload last.
    pub edited_by: Option<String>,
    /// The time of the last edit.
    pub edited_at: Option<Timestamp>,
    /// The decision: `retried` or `discarded`; absent while it is open.
    pub resolution: Option<String>,
    /// The operator who decided.
    pub resolved_by: Option<String>,
    /// The time of the decision.
    pub resolved_at: Option<Timestamp>,
    /// The reason of the decision.
    pub reason: Option<String>,
}

/// A decision about a dead letter. The text is in the `resolution` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resolution {
    /// Sends the row again, first in its key; attempts start at zero.
    Retried,
    /// Leaves the row failed and frees its key.
    Discarded,
}

impl Resolution {
    /// Returns the decision as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retried => "retried",
            Self::Discarded => "discarded",
        }
    }
}

/// The code of a dead letter that an operator made of a pending row.
pub const CODE_OPERATOR_FAILED: &str = "OPERATOR_FAILED";

/// An operator's decision, as the audit log records it.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorDecision {
    /// The decision.
    pub action: DecisionAction,
    /// The operator who decided.
    pub actor: String,
    /// The operator's reason.
    pub reason: String,
}

/// An action on a dead letter, or on a row that becomes one by it.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionAction {
    /// Retries or discards an open dead letter. Frees the key unless another open dead letter parks it.
    Resolve { dead_letter: Uuid, resolution: Resolution },
    /// Gives an open dead letter and its row another payload, which must be valid JSON. The first original
    /// is kept, and the row stays failed until it is retried.
    Edit { dead_letter: Uuid, payload: String },
    /// Closes an undecodable (`SERDE_ERROR`) inbox row: `FAILED`, with a dead letter that is resolved.
    DiscardUndecodable { row: i64 },
    /// Makes a dead letter ([`CODE_OPERATOR_FAILED`]) of a pending outbox row.
    ///
    /// A worker may have the row in flight: this is decided by its state alone, without the lane. Of this
    /// and the worker's settlement the first one to commit stands, because both require `PENDING`; the
    /// other one is refused and changes nothing. So the target may have the message although it is a dead
    /// letter; a retry sends it again under the same id.
    FailPending { row: i64, on_dead_letter: OnDeadLetter },
    /// Makes a pending outbox row due that waits in backoff. It keeps its attempts and its place in its key.
    ///
    /// Only time changes: a row that is not due is in flight at no worker, and the owner of its lane sends it
    /// under its fence as ever. A row that is due already, waits behind another row, is in a bulk job or in
    /// quarantine, was sent with a delay, or has a parked key is left as it is.
    SendNow { row: i64 },
}

/// The result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionResult {
    /// It was carried out.
    Done,
    /// There is no such row or dead letter.
    NotFound,
    /// Another decision came first, or the row is in another state than the action requires.
    ResolvedBefore,
}

/// Decisions of operators, each carried out and recorded in the audit log in one transaction.
#[async_trait]
pub trait DeadLetterStore: Send + Sync {
    /// Carries out a decision of an operator in one transaction, with its entry in the audit log.
    async fn decide(&self, decision: OperatorDecision) -> StoreResult<DecisionResult>;

    /// Returns ids of the undecodable rows that match, lowest first. Only ids: the rows may be large.
    async fn undecodable_rows(&self, filter: SerdeErrors) -> StoreResult<Vec<i64>>;

    /// Writes an undecodable row as it was decoded again, promotes it to `RECEIVED` and keeps its raw bytes.
    /// If another row has its message already, it is settled as a duplicate of that row, or left as it is
    /// where the contents differ.
    async fn reprocess(
        &self,
        row: i64,
        repair: Repair,
        mode: Mode,
    ) -> StoreResult<ReprocessOutcome>;

    /// Carries out an operator's change of a process, or a start, without an inbox row.
    async fn change_process(&self, change: Change) -> StoreResult<ChangeOutcome>;

    /// Changes what runs: pauses, limits, breakers. Returns `false`, and records nothing, for a pause of what
    /// is paused already, or a resume of what is not.
    ///
    /// A resume of a process type also wakes its inbox rows
    /// ([`PROCESS_TYPE_PAUSED`](crate::control::PROCESS_TYPE_PAUSED)).
    async fn control(&self, order: ControlOrder) -> StoreResult<bool>;
}
