//! The timeline of a message over inbox, handler, process, outbox and acknowledgement, with its causes and
//! effects, from what the tables keep.
//!
//! Invariant: only bounded reads. Every event is stored data; missing data (removed by the clean-up, or
//! never stored here) is reported, not guessed.
//!
//! - here: the public types
//! - `subject`: finds the thing with an id
//! - `walk`: from a thing to its causes and its effects
//! - `events`: the events of one row
//! - `order`: sorts events by time, and at one time causes before effects

mod events;
mod order;
mod subject;
mod walk;

use std::fmt;

use relais_core::{
    delivery::Problem,
    process::ProcessEvent,
    store::{StoreDriver, StoreError},
    time::Timestamp,
};
use serde::{Serialize, Serializer};
use uuid::Uuid;

/// Maximum number of rows, processes and jobs of one explanation.
pub const THINGS_MAX: usize = 500;
/// Maximum number of events of one timeline.
pub const EVENTS_MAX: usize = 2_000;

/// The result of [`explain`].
#[derive(Clone, Debug, PartialEq)]
pub enum ExplainOutcome {
    /// Nothing has this id.
    Nothing,
    /// Several things have this id or begin with it, or one that may not be meant; their full names are unique.
    Ambiguous(Vec<Thing>),
    /// The timeline.
    One(Box<Explanation>),
}

/// The explanation of one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The thing that was asked about.
    pub subject: ThingName,
    /// Causes first, then the subject, then its effects.
    pub things: Vec<Thing>,
    /// By time.
    pub events: Vec<TimelineEvent>,
    /// Notes, e.g. about data that is missing.
    pub notes: Vec<String>,
    /// `true` if there is more than [`THINGS_MAX`] and [`EVENTS_MAX`] allow.
    pub cut: bool,
}

/// The full name of a thing, e.g. `inbox:17`; [`explain`] accepts it too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ThingName {
    /// The kind.
    pub kind: ThingKind,
    /// The id.
    pub id: String,
}

/// The kind of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThingKind {
    /// A row of the inbox, by its number.
    Inbox,
    /// A row of the outbox, by its number.
    Outbox,
    /// A process.
    Process,
    /// A dead letter.
    DeadLetter,
    /// A message by its id, whose row was removed.
    Message,
    /// A bulk job.
    Job,
}

impl ThingKind {
    /// All values.
    pub const ALL: [Self; 6] =
        [Self::Inbox, Self::Outbox, Self::Process, Self::DeadLetter, Self::Message, Self::Job];

    /// Returns the name, as it is stored and printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Outbox => "outbox",
            Self::Process => "process",
            Self::DeadLetter => "dead-letter",
            Self::Message => "message",
            Self::Job => "job",
        }
    }
}

impl ThingName {
    /// Returns a name.
    pub fn new(kind: ThingKind, id: impl ToString) -> Self {
        Self { kind, id: id.to_string() }
    }
}

impl fmt::Display for ThingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.as_str(), self.id)
    }
}

impl Serialize for ThingName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A row, process or job of an explanation, as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Thing {
    /// The name.
    pub name: ThingName,
    /// Its part in the timeline.
    pub role: ThingRole,
    /// The message id.
    pub message_id: Option<String>,
    /// The event type, or the type of a process.
    pub event_type: Option<String>,
    /// The ordering key.
    pub key: Option<String>,
    /// The source system it came from, or the destination it goes to.
    pub place: Option<String>,
    /// The status.
    pub status: String,
    /// The time of the next attempt; absent if it has passed and the thing waits for something else.
    pub next_attempt_at: Option<Timestamp>,
    /// Its last problem; of a stopped process, why it stopped.
    pub problem: Option<Problem>,
    /// The dead letter that parks its key, if it waits behind one.
    pub held_by: Option<Uuid>,
    /// The other reason why it waits: an earlier row of its key, a paused destination, no worker that can
    /// handle it, or, of a process, an operator.
    pub waits_for: Option<String>,
}

/// The relation of a thing to the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThingRole {
    /// It caused the subject.
    Cause,
    /// The subject itself.
    Subject,
    /// The subject caused it.
    Effect,
}

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineEvent {
    /// The time, by the database clock.
    pub at: Timestamp,
    /// The thing that it is about.
    pub about: ThingName,
    /// The event.
    #[serde(flatten)]
    pub what: EventDetail,
}

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventDetail {
    /// Stored in the inbox; acknowledged to its source only after that.
    Received {
        /// The source system.
        source_system: String,
        /// The topic.
        topic: String,
        /// Its position in a broker; other sources have none.
        partition: Option<i32>,
        /// The offset at the broker.
        offset: Option<i64>,
        /// The time of the event, by the sender's clock.
        event_ts: Option<Timestamp>,
        /// The event type.
        event_type: Option<String>,
        /// The message id.
        message_id: String,
        /// The ordering key.
        key: String,
    },
    /// One attempt that did not succeed.
    Attempt {
        /// The number of the attempt.
        attempt: u32,
        /// The result.
        outcome: String,
        /// The stable error code.
        code: Option<String>,
        /// The error message.
        message: Option<String>,
        /// The worker.
        worker: String,
    },
    /// Its handling was committed.
    Processed,
    /// One entry of a process's log.
    Step {
        /// The process type.
        process_type: String,
        /// The number of the log entry.
        seq: i64,
        /// The log entry.
        entry: ProcessEvent,
        /// The message id.
        message_id: Option<String>,
        /// More about it.
        note: Option<String>,
        /// The operator who acts.
        actor: Option<String>,
        /// The reason.
        reason: Option<String>,
    },
    /// Written to the outbox.
    Created {
        /// The destination.
        destination: String,
        /// The event type.
        event_type: String,
        /// The message id.
        message_id: Uuid,
        /// The ordering key.
        key: String,
        /// The id of the message that caused it.
        causation_id: Option<String>,
        /// The id of the conversation.
        correlation_id: Option<String>,
    },
    /// Many rows were planned as one bulk job.
    JobPlanned {
        /// The destination.
        destination: String,
        /// The number of rows.
        rows: u64,
    },
    /// A bulk job ended.
    JobEnded {
        /// The last phase of the job.
        phase: &'static str,
        /// The id of the job at the target.
        remote_id: Option<String>,
        /// The error message.
        message: Option<String>,
    },
    /// The destination acknowledged it.
    Dispatched {
        /// The destination.
        destination: String,
        /// The bulk job that delivered it.
        job: Option<String>,
    },
    /// It became a dead letter.
    DeadLetter {
        /// The id of the dead letter.
        dead_letter: Uuid,
        /// The status of its row.
        failed_status: String,
        /// The stable error code.
        code: Option<String>,
        /// The error message.
        message: Option<String>,
        /// The number of used attempts.
        attempts: u32,
        /// The worker.
        worker: String,
    },
    /// An operator decided.
    Action {
        /// The id of the dead letter.
        dead_letter: Option<Uuid>,
        /// The action.
        action: String,
        /// The operator who acts.
        actor: String,
        /// The reason.
        reason: String,
    },
}

/// Explains the thing with this id: a message id, the number of an inbox or outbox row, the id of a process
/// or its `TYPE/BUSINESS-KEY`, the id of a dead letter, or a full name such as `inbox:17`. The first characters
/// of an id are enough if nothing has exactly this id; of an id that is not a UUID with `*` at the end.
pub async fn explain(store: &dyn StoreDriver, id: &str) -> Result<ExplainOutcome, StoreError> {
    let mut rows = subject::find(store, id).await?;
    let mut is_doubtful = false;
    if rows.is_empty() {
        let found = subject::find_by_prefix(store, id).await?;
        (rows, is_doubtful) = (found.rows, found.is_doubtful);
    }
    Ok(match rows.len() {
        0 => ExplainOutcome::Nothing,
        1 if !is_doubtful => {
            ExplainOutcome::One(Box::new(walk::explain(store, rows.remove(0)).await?))
        }
        _ => ExplainOutcome::Ambiguous(
            rows.iter().map(|row| events::thing(row, ThingRole::Subject)).collect(),
        ),
    })
}

impl fmt::Display for EventDetail {
    /// Writes the event in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        events::text(self, f)
    }
}
