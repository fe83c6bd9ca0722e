//! A process (saga): several steps in several systems. Each step sends a command and waits for a reply; when
//! one fails, completed steps are compensated, last first.
//!
//! Invariant: everything that happens to a process is a pure function from what it was and what
//! happened to what it is now and what follows ([`advance()`]); the store commits all of that together
//! with the inbox row that caused it, or none of it.
//!
//! - [`definition`]: which steps there are, with a picture of them ([`Definition::diagram`]);
//!   [`typed`]: written in Rust; [`declared`]: written in TOML
//! - [`advance`](mod@advance): changes by a start, a reply, a timer or an operator
//! - [`handler_step`]: steps that a handler in another process carries out
//! - `log`: the entries of its log; here: the other rows

pub mod advance;
mod check;
pub mod declared;
pub mod definition;
mod diagram;
pub mod handler_step;
mod log;
pub mod typed;

#[cfg(test)]
mod tests;

use std::{str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::{
    advance::{
        Action, Input, Progress, ReplayDifference, ReplayedProcess, ReplayedStep, actions, advance,
        begin, cancel, create, replay, start,
    },
    check::STEPS_MAX,
    definition::Definition,
    log::{Entry, LogEntry, ProcessEvent},
};
use crate::{
    delivery::Problem,
    message::NewMessage,
    text::{self, ERROR_MESSAGE_MAX, MESSAGE_ID_MAX},
    time::Timestamp,
};

/// The state in the `status` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ProcessStatus {
    /// Made, not begun.
    New,
    /// A step is in flight, or the next one is due.
    Running,
    /// Every step is done.
    Succeeded,
    /// Ended with what it has done standing.
    Failed,
    /// Completed steps are being compensated, last first.
    Compensating,
    /// Every completed step is compensated.
    Compensated,
    /// Paused by an operator (or by relais, when only an operator can help): replies are accepted, no new
    /// step begins.
    Paused,
}

impl ProcessStatus {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::New,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Compensating,
        Self::Compensated,
        Self::Paused,
    ];

    /// Returns the state as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Compensating => "COMPENSATING",
            Self::Compensated => "COMPENSATED",
            Self::Paused => "PAUSED",
        }
    }

    /// Parses a stored state; `None` if this program does not know it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Returns whether it has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Compensated)
    }
}

/// The time for which a process holds its business key; no second process of its type has it meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum KeyHold {
    /// Until the process is cleaned up.
    #[default]
    Once,
    /// Until the process ends for the first time.
    Open,
    /// No longer: the process has ended. It does not get the key back, whatever happens to it.
    Released,
}

impl KeyHold {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Once, Self::Open, Self::Released];

    /// Returns the value as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "ONCE",
            Self::Open => "OPEN",
            Self::Released => "RELEASED",
        }
    }

    /// Parses a stored value; `None` if this program does not know it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hold| hold.as_str() == text)
    }

    /// Returns the value after a change to this state.
    pub(crate) fn after(self, status: ProcessStatus) -> Self {
        if self == Self::Open && status.is_final() { Self::Released } else { self }
    }
}

/// One row of `relais_process`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// The id of the process.
    pub process_id: Uuid,
    /// The name of its type.
    pub process_type: String,
    /// The version of the definition it was started with, and finishes with.
    pub definition: i32,
    /// Unique among the processes of its type that hold theirs.
    pub business_key: Option<String>,
    /// The time for which it holds its business key.
    pub key_hold: KeyHold,
    /// The state.
    pub status: ProcessStatus,
    /// The step that is in flight.
    pub current_step: Option<String>,
    /// The data of the process: JSON of the application.
    pub data: String,
    /// Attempts of the current step, or of its compensation, that did not succeed.
    pub retries: u32,
    /// The progress that relais keeps: the JSON of [`advance::Progress`].
    pub progress: String,
    /// The sequence number of its last log entry; each change proves the one it was made from.
    pub version: i64,
    /// The time at which it began.
    pub created_at: Timestamp,
    /// The time of its last change.
    pub updated_at: Timestamp,
}

impl Process {
    /// Returns whether it waits for a decision of an operator: relais opened a dead letter for it, and it has
    /// not continued since.
    pub fn needs_operator(&self) -> bool {
        let unfinished =
            !matches!(self.status, ProcessStatus::Succeeded | ProcessStatus::Compensated);
        unfinished && Progress::read(self).is_ok_and(|progress| progress.is_raised())
    }
}

/// A change of a process, carried out in one commit. Made by [`start`] and [`advance()`].
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// As it is afterwards; the store sets the times. Its `version` is that of the last of `log`.
    pub process: Process,
    /// The version it was made from; 0 for a new process.
    pub from: i64,
    /// At least one entry, numbered from `from + 1` on.
    pub log: Vec<Entry>,
    /// The inbox message that caused it.
    pub message_id: Option<String>,
    pub timer: TimerChange,
    /// Commands to send.
    pub messages: Vec<NewMessage>,
    pub dead_letter: DeadLetterChange,
    /// The operator's action that caused it, for the audit log.
    pub audit: Option<ActionRecord>,
}

/// An operator's action on a process, as the audit log records it.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionRecord {
    /// `process.skipped`
    pub action: String,
    pub actor: String,
    pub reason: String,
}

impl ActionRecord {
    /// `done` is a past participle: see [`Action::done`].
    pub fn new(done: &str, actor: &str, reason: &str) -> Self {
        Self {
            action: format!("process.{done}"),
            actor: text::fit(actor, MESSAGE_ID_MAX),
            reason: text::fit(reason, ERROR_MESSAGE_MAX),
        }
    }
}

/// A change of the one timer that a process may have.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimerChange {
    Keep,
    Clear,
    /// Due this long after the database's now; replaces the existing one.
    Set(Timer),
}

/// A time-out or a pause before the next attempt.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    pub step: String,
    /// The command it watches, or, for a pause, an id of its own. Never used for a second timer, so that a
    /// stale timer is recognised.
    pub command_id: Uuid,
    pub after: Duration,
}

/// A change of the dead letter of a process; at most one is open.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadLetterChange {
    Keep,
    /// An operator must decide. `failed_status` is `FAILED`, `TIMED_OUT`, `COMPENSATION_FAILED` or `PAUSED`.
    Open {
        failed_status: &'static str,
        problem: Problem,
        attempts: u32,
    },
    /// An operator, or a late reply, has decided about the process: the open one is resolved by that.
    Close {
        closure: Closure,
        actor: String,
        reason: String,
    },
}

/// The cause that closed the dead letter of a process; its `resolution`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closure {
    Action(Action),
    LateReply,
}

impl Closure {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Action(action) => action.done(),
            Self::LateReply => "answered",
        }
    }
}

/// The name of a process: its id, or its type and business key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProcessRef {
    /// By its id.
    Id(Uuid),
    /// By its business key.
    Key {
        /// The name of the type of process.
        process_type: String,
        /// The business key.
        business_key: String,
    },
}

impl ProcessRef {
    /// The process of this type with this business key.
    pub fn key(process_type: &str, business_key: &str) -> Self {
        let (process_type, business_key) = (process_type.to_owned(), business_key.to_owned());
        Self::Key { process_type, business_key }
    }
}

/// A text that is neither the id of a process nor `TYPE/BUSINESS-KEY`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a process id nor TYPE/BUSINESS-KEY")]
pub struct InvalidProcessRef(String);

impl FromStr for ProcessRef {
    type Err = InvalidProcessRef;

    /// Parses an id or `TYPE/BUSINESS-KEY`.
    fn from_str(text: &str) -> Result<Self, InvalidProcessRef> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        match text.split_once('/') {
            Some((process_type, key)) if !process_type.is_empty() && !key.is_empty() => {
                Ok(Self::key(process_type, key))
            }
            _ => Err(InvalidProcessRef(text.to_owned())),
        }
    }
}

/// A filter of processes. Every set field must match; newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFilter {
    /// Only this state.
    pub status: Option<ProcessStatus>,
    /// Only this type.
    pub process_type: Option<String>,
    /// Only this business key.
    pub business_key: Option<String>,
    /// Not created longer ago than this, in seconds of the database's clock.
    pub since_seconds: Option<i64>,
    /// Only processes created before this one: the next page.
    pub before: Option<Uuid>,
    /// At most [`crate::query::PAGE_MAX`].
    pub limit: usize,
}

/// The result of a change in a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It was carried out.
    Done,
    /// The process has moved on since, or its business key is taken: read it again.
    Stale,
}

/// The process types whose timers are fired, and the inbox for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimerOwner {
    /// `None`: of all types.
    pub process_types: Option<Vec<String>>,
    /// Its name; '' is the inbox without a name.
    pub inbox: String,
}

/// The result of [`Store::fire_timers`](crate::store::Store::fire_timers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FiredTimers {
    /// The number of timers that became inbox rows.
    pub fired: u64,
    /// Until the next one is due, if there is one.
    pub next: Option<Duration>,
}

/// Source system of the inbox rows that relais writes to itself.
pub const SOURCE_SYSTEM: &str = "relais";
/// Event type of a timer that has fired; its payload is [`TimerFired`].
pub const TIMER_FIRED: &str = "relais.TimerFired";

/// Code of a message that is for no process that is known.
pub const PROCESS_UNKNOWN: &str = "PROCESS_UNKNOWN";
/// Code of a process whose definition, or the step it stands on, is missing.
pub const PROCESS_DEFINITION: &str = "PROCESS_DEFINITION";
/// Code of a process whose stored data or progress is invalid.
pub const PROCESS_STATE: &str = "PROCESS_STATE";
/// Code of an action that does not fit the state of a process.
pub const PROCESS_ACTION: &str = "PROCESS_ACTION";
/// Code of a message that is no reply its process can wait for, or does not say of which command.
pub const PROCESS_REPLY: &str = "PROCESS_REPLY";

/// The payload of an inbox row made by [`Store::fire_timers`](crate::store::Store::fire_timers).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimerFired {
    /// The process.
    pub process_id: Uuid,
    /// The step.
    pub step: String,
    /// The command that the timer belongs to.
    pub command_id: Uuid,
}
