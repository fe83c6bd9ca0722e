//! Which steps a process has, without knowing what its data is: data and payloads are JSON text here.
//!
//! Invariant: a [`Definition`] has passed every check of [`check`](super::check); code that has one need
//! not ask whether it makes sense.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{KeyHold, ProcessRef, check};
use crate::{
    delivery::Problem,
    extract::Pick,
    inbox::InboxRow,
    retry::RetryPolicy,
    text::{self, MESSAGE_ID_MAX},
};

/// A kind of process: what starts it, and its steps in order. Cheap to clone.
#[derive(Clone)]
pub struct Definition(pub(super) Arc<DefinitionParts>);

pub(super) struct DefinitionParts {
    pub(super) process_type: String,
    /// Processes finish with the version they were started with.
    pub(super) version: i32,
    pub(super) starts: Vec<StartEvent>,
    pub(super) key_use: KeyUse,
    /// Makes the first data from the input of an operator.
    pub(super) adopt: AdoptFn,
    pub(super) steps: Vec<Step>,
    /// Makes the data from the log, if that has all of it.
    pub(super) replay_data: Option<ReplayData>,
}

/// The data of a declared process as JSON values, from its log and as it is stored.
#[derive(Clone, Copy)]
pub(super) struct ReplayData {
    pub(super) initial: fn(&Value) -> Value,
    pub(super) stored: fn(&str) -> Value,
}

impl ReplayData {
    pub(super) fn initial(self, data: &Value) -> Value {
        (self.initial)(data)
    }

    pub(super) fn stored(self, data: &str) -> Value {
        (self.stored)(data)
    }
}

/// An event that starts a process.
pub(super) struct StartEvent {
    pub(super) event_type: String,
    pub(super) begin: BeginFn,
}

/// Reads a starting event: the business key and the first data.
pub(super) type BeginFn = Box<dyn Fn(&InboxRow) -> Result<ProcessStart, Problem> + Send + Sync>;
pub(super) type AdoptFn = Box<dyn Fn(&str) -> Result<String, Problem> + Send + Sync>;

/// The business key and first data of a process, read from its starting event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStart {
    /// The business key, unique among processes of the type that hold theirs.
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

/// The time after which a business key can be used for another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyUse {
    /// One process for each key, until that one is cleaned up.
    #[default]
    Once,
    /// One process at a time: the key is free when its process has succeeded, failed or been compensated.
    WhileOpen,
}

impl KeyUse {
    pub(super) fn hold(self) -> KeyHold {
        match self {
            Self::Once => KeyHold::Once,
            Self::WhileOpen => KeyHold::Open,
        }
    }
}

/// The receiver of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallTarget {
    /// A destination; the reply arrives through a source.
    Destination(String),
    /// A handler in another process; its answer is the reply.
    Handler(String),
}

impl CallTarget {
    /// Returns the name of the destination or handler.
    pub fn name(&self) -> &str {
        match self {
            Self::Destination(name) | Self::Handler(name) => name,
        }
    }
}

/// A command and what is known of its answers.
pub(super) struct Call {
    pub(super) target: CallTarget,
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

/// The data afterwards and what the reply means, from the data before.
pub(super) type JudgeFn =
    Box<dyn Fn(&str, &InboxRow) -> Result<(String, Meaning), Problem> + Send + Sync>;

/// The result of a step, read from a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The step is completed.
    Completed,
    /// `retryable`: the step may be tried again; otherwise what was done is undone.
    Failed {
        /// The reason.
        error: String,
        /// True if the step may be tried again.
        retryable: bool,
    },
}

impl Meaning {
    /// Failed, and trying again will not help.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Failed { error: error.into(), retryable: false }
    }

    /// Failed for now.
    pub fn retryable(error: impl Into<String>) -> Self {
        Self::Failed { error: error.into(), retryable: true }
    }
}

/// A function that returns nothing means success.
impl From<()> for Meaning {
    fn from((): ()) -> Self {
        Self::Completed
    }
}

/// The rule by which a reply finds its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Correlate {
    /// The process id is there; commands carry it as `correlation-id`.
    ProcessId(Pick),
    /// The business key is there.
    BusinessKey(Pick),
}

impl Default for Correlate {
    fn default() -> Self {
        Self::ProcessId(Pick::Header("correlation-id".into()))
    }
}

/// The meaning of an inbox row to a definition.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// It starts the process with this id.
    Start { process_id: Uuid },
    /// It is a reply for this one.
    Reply(ProcessRef),
}

impl Definition {
    /// Refuses parts that do not fit together, with every reason.
    pub(super) fn new(parts: DefinitionParts) -> Result<Self, Vec<String>> {
        let errors = check::check(&parts);
        if errors.is_empty() { Ok(Self(Arc::new(parts))) } else { Err(errors) }
    }

    /// Returns the name of the type of process.
    pub fn process_type(&self) -> &str {
        &self.0.process_type
    }

    /// Returns the version of the definition.
    pub fn version(&self) -> i32 {
        self.0.version
    }

    /// Every event type that means something to it: starts and replies.
    pub fn event_types(&self) -> BTreeSet<&str> {
        let starts = self.0.starts.iter().map(|start| start.event_type.as_str());
        let replies = self.0.calls().flat_map(|call| &call.replies);
        starts.chain(replies.map(|reply| reply.event_type.as_str())).collect()
    }

    /// Every destination its commands go to; handlers are not among them.
    pub fn destinations(&self) -> BTreeSet<&str> {
        let names = self.0.calls().filter_map(|call| match &call.target {
            CallTarget::Destination(name) => Some(name.as_str()),
            CallTarget::Handler(_) => None,
        });
        names.collect()
    }

    /// The handlers in other processes that carry out its steps, each with a command that it gets.
    pub fn handler_commands(&self) -> BTreeSet<(&str, &str)> {
        let commands = self.0.calls().filter_map(|call| match &call.target {
            CallTarget::Handler(name) => Some((name.as_str(), call.command.as_str())),
            CallTarget::Destination(_) => None,
        });
        commands.collect()
    }

    /// The names of its steps, first to last.
    pub fn step_names(&self) -> Vec<&str> {
        self.0.steps.iter().map(|step| step.name.as_str()).collect()
    }

    /// Returns the meaning of a row: none, the start of a process, a reply for one, or a reply that does
    /// not say for which.
    pub fn concern(&self, row: &InboxRow) -> Option<Result<Concern, Problem>> {
        let event_type = row.event_type.as_deref()?;
        if self.0.starts.iter().any(|start| start.event_type == event_type) {
            return Some(Ok(Concern::Start { process_id: self.process_id(row) }));
        }
        let mut replies = self.0.calls().flat_map(|call| &call.replies);
        let reply = replies.find(|reply| reply.event_type == event_type)?;
        Some(self.correlate(&reply.correlate, row).map(Concern::Reply))
    }

    /// The beginning of a process that an operator or a program starts, without an event.
    pub fn begun(&self, business_key: Option<&str>, data: &str) -> Result<ProcessStart, Problem> {
        Ok(ProcessStart {
            business_key: business_key.map(|key| text::identity(key, MESSAGE_ID_MAX)),
            data: (self.0.adopt)(data)?,
        })
    }

    /// The id of the process a row starts: always the same for the same message.
    pub(super) fn process_id(&self, row: &InboxRow) -> Uuid {
        text::stable_uuid(&["process", &self.0.process_type, &row.source_system, &row.message_id])
    }

    fn correlate(&self, by: &Correlate, row: &InboxRow) -> Result<ProcessRef, Problem> {
        let event_type = row.event_type.as_deref().unwrap_or_default();
        let unknown = |why: String| {
            let text = format!("`{event_type}` does not say which process it is for: {why}");
            Problem::new(super::PROCESS_UNKNOWN, &text)
        };
        let (Correlate::ProcessId(pick) | Correlate::BusinessKey(pick)) = by;
        let found = pick.of(row).ok_or_else(|| unknown(pick.absent()))?;
        match by {
            Correlate::BusinessKey(_) => Ok(ProcessRef::Key {
                process_type: self.0.process_type.clone(),
                business_key: text::identity(&found, MESSAGE_ID_MAX),
            }),
            Correlate::ProcessId(_) => Uuid::parse_str(&found)
                .map(ProcessRef::Id)
                .map_err(|_| unknown(format!("`{found}` is not a process id"))),
        }
    }
}

impl DefinitionParts {
    /// The commands of all steps and of their compensations.
    fn calls(&self) -> impl Iterator<Item = &Call> {
        self.steps.iter().flat_map(|step| std::iter::once(&step.call).chain(&step.compensation))
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("process_type", &self.0.process_type)
            .field("version", &self.0.version)
            .field("steps", &self.step_names())
            .finish_non_exhaustive()
    }
}
