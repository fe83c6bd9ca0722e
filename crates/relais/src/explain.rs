//! What became of a message, and where it came from: one timeline over inbox, handler, process, outbox
//! and acknowledgement, from what the tables keep.
//!
//! Invariant: only reads, and bounded ones. Everything told is stored; what is missing (removed by
//! clean-up, or never here) is said, not guessed.
//!
//! - here: what is told
//! - `subject`: which thing an id means
//! - `walk`: from a thing to its causes and its effects
//! - `events`: what a row says happened
//! - `order`: events by time, and at one time causes before effects

mod events;
mod order;
mod subject;
mod walk;

use std::fmt;

use relais_core::{
    delivery::Problem,
    process::ProcessEvent,
    store::{Store, StoreError},
    time::Timestamp,
};
use serde::{Serialize, Serializer};
use uuid::Uuid;

/// Most rows, processes and jobs one explanation is about.
pub const THINGS_MAX: usize = 500;
/// Most events of one timeline.
pub const EVENTS_MAX: usize = 2_000;

/// What an id stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    Nothing,
    /// Several things have this id; their full names have not.
    Ambiguous(Vec<Thing>),
    One(Box<Explanation>),
}

/// The story of one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    pub subject: Name,
    /// What the story is about: causes first, then the subject, then what it led to.
    pub things: Vec<Thing>,
    /// By time.
    pub events: Vec<Event>,
    /// What could not be told.
    pub notes: Vec<String>,
    /// Whether there is more than [`THINGS_MAX`] and [`EVENTS_MAX`] allow.
    pub cut: bool,
}

/// The full name of a thing, e.g. `inbox:17`; [`explain`] takes it too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pub kind: Kind,
    pub id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A row of the inbox, by its number.
    Inbox,
    /// A row of the outbox, by its number.
    Outbox,
    Process,
    DeadLetter,
    /// A message by its id, whose own row is gone.
    Message,
    /// A bulk job.
    Job,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Inbox, Self::Outbox, Self::Process, Self::DeadLetter, Self::Message, Self::Job];

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

impl Name {
    pub fn new(kind: Kind, id: impl ToString) -> Self {
        Self { kind, id: id.to_string() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.as_str(), self.id)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A row, process or job of the story, as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Thing {
    pub name: Name,
    pub role: Role,
    pub message_id: Option<String>,
    /// The event type, or the type of a process.
    pub event_type: Option<String>,
    pub key: Option<String>,
    /// The source system it came from, or the destination it goes to.
    pub place: Option<String>,
    pub status: String,
    pub next_attempt_at: Option<Timestamp>,
    /// The last problem it had; of a process that stands still, why it does.
    pub problem: Option<Problem>,
    /// The dead letter its key waits behind, if it is not done and waits.
    pub held_by: Option<Uuid>,
    /// Why it waits otherwise: behind an earlier row, or for a worker that knows it.
    pub waits_for: Option<String>,
}

/// What a thing is to the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Cause,
    Subject,
    Effect,
}

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    pub at: Timestamp,
    pub about: Name,
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// Stored in the inbox; only after that it was acknowledged to its source.
    Received {
        source_system: String,
        topic: String,
        /// Where a broker kept it; other sources have no such place.
        partition: Option<i32>,
        offset: Option<i64>,
        /// When it happened, by the sender's clock.
        event_ts: Option<Timestamp>,
        event_type: Option<String>,
        message_id: String,
        key: String,
    },
    /// One attempt that did not succeed.
    Attempt {
        attempt: u32,
        outcome: String,
        code: Option<String>,
        message: Option<String>,
        worker: String,
    },
    /// Its handling was committed.
    Processed,
    /// One entry of a process's log.
    Step {
        process_type: String,
        seq: i64,
        entry: ProcessEvent,
        message_id: Option<String>,
        note: Option<String>,
        actor: Option<String>,
        reason: Option<String>,
    },
    /// Written to the outbox.
    Created {
        destination: String,
        event_type: String,
        message_id: Uuid,
        key: String,
        causation_id: Option<String>,
        correlation_id: Option<String>,
    },
    /// Many rows were put together in one upload.
    JobPlanned {
        destination: String,
        rows: u64,
    },
    JobEnded {
        phase: &'static str,
        remote_id: Option<String>,
        message: Option<String>,
    },
    /// The destination acknowledged it.
    Dispatched {
        destination: String,
        job: Option<String>,
    },
    /// It needs a person.
    DeadLetter {
        dead_letter: Uuid,
        failed_status: String,
        code: Option<String>,
        message: Option<String>,
        attempts: u32,
        worker: String,
    },
    /// Somebody decided.
    Action {
        dead_letter: Option<Uuid>,
        action: String,
        actor: String,
        reason: String,
    },
}

/// What became of the thing with this id: a message id, the number of an inbox or outbox row, the id
/// of a process or its `TYPE/BUSINESS-KEY`, the id of a dead letter, or a full name such as `inbox:17`.
pub async fn explain(store: &dyn Store, id: &str) -> Result<Found, StoreError> {
    let mut rows = subject::find(store, id).await?;
    Ok(match rows.len() {
        0 => Found::Nothing,
        1 => Found::One(Box::new(walk::explain(store, rows.remove(0)).await?)),
        _ => Found::Ambiguous(rows.iter().map(|row| events::thing(row, Role::Subject)).collect()),
    })
}

impl fmt::Display for What {
    /// For people, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        events::text(self, f)
    }
}
