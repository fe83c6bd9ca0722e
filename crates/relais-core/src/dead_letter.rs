//! A row that needs a person: what is kept of it, and what the person may do.

use serde::Serialize;
use uuid::Uuid;

use crate::{message::Headers, time::Timestamp};

/// Where the failed row lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    Inbox,
    Outbox,
    Process,
}

impl Origin {
    pub const ALL: [Self; 3] = [Self::Inbox, Self::Outbox, Self::Process];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Outbox => "outbox",
            Self::Process => "process",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.as_str() == text)
    }
}

/// `failed_status` of a message whose id came before with another payload.
pub const STATUS_CONFLICT: &str = "CONFLICT";
/// `failed_status` of a row that failed for good.
pub const STATUS_FAILED: &str = "FAILED";

/// One row of `relais_dead_letter`: a self-contained copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    pub id: Uuid,
    pub origin: Origin,
    /// `id` of the inbox or outbox row it is about. A process has none: `message_id` is its id.
    pub origin_id: Option<i64>,
    pub message_id: String,
    /// Source system of an inbox row.
    pub source_system: Option<String>,
    /// Destination of an outbox row.
    pub destination: Option<String>,
    pub event_type: Option<String>,
    /// The key: what the spec calls the business key.
    pub msg_key: String,
    pub payload: Option<String>,
    pub headers: Headers,
    pub failed_status: String,
    pub error_class: Option<String>,
    pub error_message: Option<String>,
    pub attempts: u32,
    /// The worker that gave up.
    pub parked_by: String,
    pub parked_at: Timestamp,
    /// The payload before somebody edited it.
    pub original_payload: Option<String>,
    pub edited_by: Option<String>,
    pub edited_at: Option<Timestamp>,
    pub resolution: Option<String>,
    pub resolved_by: Option<String>,
    pub resolved_at: Option<Timestamp>,
    pub reason: Option<String>,
}

/// What a person decides about a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resolution {
    /// Try the row again, first in its key; attempts start at zero.
    Retried,
    /// Leave the row failed and let its key go on.
    Discarded,
}

impl Resolution {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retried => "retried",
            Self::Discarded => "discarded",
        }
    }
}

/// A person's decision, as it goes into the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub resolution: Resolution,
    pub actor: String,
    pub reason: String,
}
