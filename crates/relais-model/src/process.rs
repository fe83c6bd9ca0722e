//! A process of two steps, the services that do and undo them, an operator, and workers that may die between
//! a decision and its commit.
//!
//! The decisions are the real ones: every step of the machine calls [`relais_core::process::advance()`].
//! Invariant: when nothing is in flight any more, a process has ended, and what the services have done is
//! what its end says; each [`SagaBug`] breaks that.
//!
//! Time has no numbers: a timer may fire at any moment, so every reply may be late, and a reply and a
//! timer may meet in any order. Services get an idempotency key and act once for each.

mod decide;
mod handler;
mod property;
mod step;

pub use handler::HandlerState;
pub use property::{ENDS, OUTCOME, UNDO_AFTER_DO};
pub use step::SagaAction;

use std::collections::BTreeSet;

use relais_core::process::{Definition, ProcessStatus};
use stateright::{Model, Property};
use uuid::Uuid;

use super::{ModelGoal, ModelReport, explore};

/// Steps of the process.
pub const STEPS: usize = 2;

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SagaBug {
    /// The inbox row is taken for done when the decision is made, not when it is committed.
    AckBeforeCommit,
    /// A decision is committed although the process has moved on since.
    NoVersionCheck,
    /// Commands leave when the decision is made, not when it is committed.
    CommandsApart,
    /// A process that has ended takes no reply any more.
    LateIgnored,
    /// A process that is paused takes no reply.
    PauseDrops,
    /// A timer that has fired is forgotten.
    TimerLost,
    /// A message to an inbox is taken for delivered before its row is committed.
    MarkedBeforeStored,
    /// The answer of a handler is committed after its row is marked as handled, not with it.
    AnswerApart,
    /// A call of a handler without an answer counts as an answer that the step failed.
    NoAnswerFails,
}

/// The receiver of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SagaTarget {
    /// A service that answers by messages of its own.
    Destination,
    /// A handler in another process: relais calls it, and its answer is the reply.
    Handler,
}

/// Number of faults of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SagaBudget {
    /// Workers that die between a decision and its commit, or commit late.
    pub slow: u8,
    /// Refusals and failures of services.
    pub failures: u8,
    /// Commands and replies that come twice. None is lost: a service that has acted answers, however
    /// late; one that never does cannot be known.
    pub channel: u8,
    /// Pauses, and one compensation by force.
    pub decisions: u8,
}

/// The bounds of one model.
#[derive(Clone, Copy, Debug)]
pub struct SagaConfig {
    pub attempts_max: u32,
    pub target: SagaTarget,
    pub budget: SagaBudget,
    pub bug: Option<SagaBug>,
}

impl SagaConfig {
    pub fn has(&self, bug: SagaBug) -> bool {
        self.bug == Some(bug)
    }
}

/// A process in the store; its version only shows whether it changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SagaRow {
    pub status: ProcessStatus,
    pub current_step: Option<String>,
    pub data: String,
    pub retries: u32,
    pub progress: String,
}

/// A command on its way to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SagaCommand {
    pub id: Uuid,
    pub step: usize,
    pub undo: bool,
}

/// The reply of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SagaAnswer {
    Done,
    Refused,
    Busy,
}

/// An inbox row that waits: a reply, or a timer that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SagaInput {
    /// `copy` distinguishes two answers to one command.
    Reply {
        command: SagaCommand,
        says: SagaAnswer,
        copy: u8,
    },
    Timer {
        step: usize,
        id: Uuid,
    },
}

/// A decision of a worker that is not committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UncommittedSagaDecision {
    pub cause: SagaInput,
    pub decided: decide::SagaDecision,
    /// The process has moved on since.
    pub stale: bool,
}

/// The effect of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SagaEffect {
    pub done: bool,
    pub undone: bool,
}

/// One state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SagaState {
    pub row: Option<SagaRow>,
    pub outbox: BTreeSet<SagaCommand>,
    pub inbox: BTreeSet<SagaInput>,
    /// The inbox and the answers of a handler.
    pub handler: handler::HandlerState,
    /// Step and id of the timer that runs.
    pub timer: Option<(usize, Uuid)>,
    pub held: Option<UncommittedSagaDecision>,
    pub effects: [SagaEffect; STEPS],
    pub left: SagaBudget,
    /// A step was undone before it was done (proof).
    pub undone_before: bool,
    /// A reply came after the end and set the process going again (proof).
    pub revived: bool,
    /// A decision came too late (proof).
    pub refused: bool,
}

impl SagaState {
    /// Returns true if nothing more can happen without an operator.
    pub fn is_quiet(&self) -> bool {
        self.row.is_some()
            && self.outbox.is_empty()
            && self.inbox.is_empty()
            && self.handler.is_empty()
            && self.timer.is_none()
            && self.held.is_none()
    }
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Saga {
    pub config: SagaConfig,
    pub definition: Definition,
}

impl Saga {
    pub fn new(config: SagaConfig) -> Self {
        Self { config, definition: decide::definition(config.attempts_max) }
    }
}

impl Model for Saga {
    type State = SagaState;
    type Action = SagaAction;

    fn init_states(&self) -> Vec<SagaState> {
        vec![SagaState {
            row: None,
            outbox: BTreeSet::new(),
            inbox: BTreeSet::new(),
            handler: handler::HandlerState::default(),
            timer: None,
            held: None,
            effects: [SagaEffect::default(); STEPS],
            left: self.config.budget,
            undone_before: false,
            revived: false,
            refused: false,
        }]
    }

    fn actions(&self, state: &SagaState, actions: &mut Vec<SagaAction>) {
        step::enabled(self.config.target, state, actions);
    }

    fn next_state(&self, state: &SagaState, action: SagaAction) -> Option<SagaState> {
        let mut next = state.clone();
        step::apply(self, &mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all()
    }
}

/// Visits every state of the machine.
pub fn exhaust(name: &str, config: SagaConfig) -> ModelReport {
    explore(name, Saga::new(config), ModelGoal::Exhausted)
}

/// Runs a machine with a planted bug until `property` breaks.
pub fn hunt(config: SagaConfig, property: &'static str) -> ModelReport {
    explore(&format!("process {:?}", config.bug), Saga::new(config), ModelGoal::Broken(property))
}
