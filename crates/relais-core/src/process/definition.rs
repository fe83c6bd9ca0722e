//! Which steps a process has, without knowing what its data is: data and payloads are JSON text here.

use std::{fmt, sync::Arc, time::Duration};

use uuid::Uuid;

use super::ProcessRef;
use crate::{delivery::Problem, extract::Pick, inbox::InboxRow, retry::RetryPolicy};

/// A kind of process: what starts it, and its steps in order. Cheap to clone.
#[derive(Clone)]
pub struct Definition(pub(super) Arc<Parts>);

pub(super) struct Parts {
    pub(super) process_type: String,
    /// Processes finish with the version they were started with.
    pub(super) version: i32,
    pub(super) starts: Vec<Start>,
    pub(super) steps: Vec<Step>,
}

/// An event that starts a process.
pub(super) struct Start {
    pub(super) event_type: String,
    pub(super) begin: BeginFn,
}

/// Reads a starting event: the business key and the first data.
pub(super) type BeginFn = Box<dyn Fn(&InboxRow) -> Result<Begun, Problem> + Send + Sync>;

/// What a starting event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    pub business_key: Option<String>,
    /// JSON.
    pub data: String,
}

/// One step: the command it sends, the replies it waits for, and how it is undone.
pub(super) struct Step {
    pub(super) name: String,
    pub(super) call: Call,
    pub(super) compensation: Option<Call>,
}

/// A command and what is known of its answers.
pub(super) struct Call {
    pub(super) destination: String,
    /// The event type of the command.
    pub(super) command: String,
    pub(super) payload: PayloadFn,
    pub(super) replies: Vec<Reply>,
    /// Without a reply for so long it counts as failed, retryably.
    pub(super) timeout: Option<Duration>,
    pub(super) retry: RetryPolicy,
}

/// The payload of a command, from the data of the process.
pub(super) type PayloadFn = Box<dyn Fn(&str) -> Result<String, Problem> + Send + Sync>;

/// A reply a step waits for.
pub(super) struct Reply {
    pub(super) event_type: String,
    pub(super) correlate: Correlate,
    pub(super) judge: JudgeFn,
}

/// The data afterwards and what the reply means; `(data, reply payload)`.
pub(super) type JudgeFn =
    Box<dyn Fn(&str, &str) -> Result<(String, Meaning), Problem> + Send + Sync>;

/// What a reply says about its step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    Completed,
    /// `retryable`: the step may be tried again; otherwise what was done is undone.
    Failed {
        error: String,
        retryable: bool,
    },
}

/// How a reply finds its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Correlate {
    /// The process id is there; commands carry it as `correlation-id`.
    ProcessId(Pick),
    BusinessKey(Pick),
}

impl Default for Correlate {
    fn default() -> Self {
        Self::ProcessId(Pick::Header("correlation-id".into()))
    }
}

/// What an inbox row means to a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// It starts the process with this id.
    Start { process_id: Uuid },
    /// It is a reply for this one.
    Reply(ProcessRef),
}

impl Definition {
    pub fn process_type(&self) -> &str {
        &self.0.process_type
    }

    pub fn version(&self) -> i32 {
        self.0.version
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("process_type", &self.0.process_type)
            .field("version", &self.0.version)
            .field("steps", &self.0.steps.iter().map(|step| &step.name).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
