//! The log of a process: one entry for each change, never changed afterwards.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::time::Timestamp;

/// An event in the log of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
#[allow(missing_docs, reason = "the fields have the names of the stored log")]
pub enum ProcessEvent {
    /// The process began.
    ProcessStarted { process_type: String, business_key: Option<String>, initial_data: Value },
    /// The command of a step was sent.
    StepStarted { step: String, command_id: Uuid },
    /// A reply completed a step.
    StepCompleted { step: String, command_id: Option<Uuid>, result_data: Value },
    /// A step failed.
    StepFailed { step: String, command_id: Option<Uuid>, error: String, retryable: bool },
    /// The command of a step got no reply in time.
    StepTimedOut { step: String, command_id: Uuid, error: String },
    /// The command that compensates a step was sent.
    CompensationStarted { step: String, command_id: Uuid },
    /// A step is compensated.
    CompensationCompleted { step: String, command_id: Option<Uuid> },
    /// The compensation of a step failed.
    CompensationFailed { step: String, command_id: Option<Uuid>, error: String },
    /// The process ended.
    ProcessCompleted { reason: String },
    /// The process failed.
    ProcessFailed { reason: String },
    /// An operator paused the process.
    ProcessPaused { reason: String, paused_by: String },
    /// An operator resumed the process.
    ProcessResumed { reason: String, resumed_by: String },
}

impl ProcessEvent {
    /// The `event_type` column: the name of the variant.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ProcessStarted { .. } => "ProcessStarted",
            Self::StepStarted { .. } => "StepStarted",
            Self::StepCompleted { .. } => "StepCompleted",
            Self::StepFailed { .. } => "StepFailed",
            Self::StepTimedOut { .. } => "StepTimedOut",
            Self::CompensationStarted { .. } => "CompensationStarted",
            Self::CompensationCompleted { .. } => "CompensationCompleted",
            Self::CompensationFailed { .. } => "CompensationFailed",
            Self::ProcessCompleted { .. } => "ProcessCompleted",
            Self::ProcessFailed { .. } => "ProcessFailed",
            Self::ProcessPaused { .. } => "ProcessPaused",
            Self::ProcessResumed { .. } => "ProcessResumed",
        }
    }
}

/// One entry of a log, as it is written: the `event` column is its JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The event.
    #[serde(flatten)]
    pub event: ProcessEvent,
    /// The reason why it changed nothing, or another remark: `late: the step was completed before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The operator who asked for it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The operator's reason. Some events have a `reason` of their own, so this one is stored as `because`.
    #[serde(rename = "because", default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Entry {
    /// Returns an entry without note, actor and reason.
    pub fn of(event: ProcessEvent) -> Self {
        Self { event, note: None, actor: None, reason: None }
    }
}

/// One row of `relais_process_log`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogEntry {
    /// The process.
    pub process_id: Uuid,
    /// 1 for the first of its process, without gaps.
    pub seq: i64,
    /// The time of the entry.
    pub at: Timestamp,
    /// The inbox message that caused it.
    pub message_id: Option<String>,
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
}
