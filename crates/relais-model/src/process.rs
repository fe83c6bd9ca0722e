//! A process of two steps, the services that do and undo them, a person, and workers that may die between
//! a decision and its commit.
//!
//! The decisions are the real ones: every step of the machine calls [`relais_core::process::advance()`].
//! Invariant: when nothing is under way any more, a process has ended, and what the services have done is
//! what its end says; each [`Bug`] breaks that.
//!
//! Time has no numbers: a timer may fire at any moment, so every reply may be late, and a reply and a
//! timer may meet in any order. Services are told an idempotency key and act once for each.

mod decide;
mod property;
mod step;

pub use property::{ENDS, OUTCOME, UNDO_AFTER_DO};
pub use step::Action;

use std::collections::BTreeSet;

use relais_core::process::{Definition, ProcessStatus};
use stateright::{Model, Property};
use uuid::Uuid;

use super::{Report, Until, explore};

/// Steps of the process.
pub const STEPS: usize = 2;

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
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
}

/// How many faults one run may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Workers that die between a decision and its commit, or commit late.
    pub slow: u8,
    /// Refusals and failures of services.
    pub failures: u8,
    /// Commands and replies that come twice. None is lost: a service that has acted answers, however
    /// late; of one that never does, nobody can know.
    pub channel: u8,
    /// Pauses, and one compensation by force.
    pub decisions: u8,
}

/// The bounds of one model.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub attempts_max: u32,
    pub budget: Budget,
    pub bug: Option<Bug>,
}

impl Config {
    pub fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// What the store has of a process; its version only says whether it moved on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub status: ProcessStatus,
    pub current_step: Option<String>,
    pub data: String,
    pub retries: u32,
    pub progress: String,
}

/// A command on its way to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    pub id: Uuid,
    pub step: usize,
    pub undo: bool,
}

/// What a service says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Says {
    Done,
    Refused,
    Busy,
}

/// An inbox row that waits: a reply, or a timer that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Waiting {
    /// `copy` tells two answers to one command apart.
    Reply {
        command: Command,
        says: Says,
        copy: u8,
    },
    Timer {
        step: usize,
        id: Uuid,
    },
}

/// What a worker decided and has not committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub cause: Waiting,
    pub decided: decide::Decided,
    /// The process has moved on since.
    pub stale: bool,
}

/// What a service has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effect {
    pub done: bool,
    pub undone: bool,
}

/// One state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub row: Option<Row>,
    pub outbox: BTreeSet<Command>,
    pub inbox: BTreeSet<Waiting>,
    /// Step and id of the timer that runs.
    pub timer: Option<(usize, Uuid)>,
    pub held: Option<Held>,
    pub effects: [Effect; STEPS],
    pub left: Budget,
    /// A step was undone before it was done (proof).
    pub undone_before: bool,
    /// A reply came after the end and set the process going again (proof).
    pub revived: bool,
    /// A decision came too late (proof).
    pub refused: bool,
}

impl State {
    /// Whether nothing can happen any more by itself.
    pub fn is_quiet(&self) -> bool {
        self.row.is_some()
            && self.outbox.is_empty()
            && self.inbox.is_empty()
            && self.timer.is_none()
            && self.held.is_none()
    }
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Saga {
    pub config: Config,
    pub definition: Definition,
}

impl Saga {
    pub fn new(config: Config) -> Self {
        Self { config, definition: decide::definition(config.attempts_max) }
    }
}

impl Model for Saga {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            row: None,
            outbox: BTreeSet::new(),
            inbox: BTreeSet::new(),
            timer: None,
            held: None,
            effects: [Effect::default(); STEPS],
            left: self.config.budget,
            undone_before: false,
            revived: false,
            refused: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        step::enabled(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        step::apply(self, &mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all()
    }
}

/// Visits every state of the machine.
pub fn exhaust(name: &str, config: Config) -> Report {
    explore(name, Saga::new(config), Until::Exhausted)
}

/// Runs a machine with a planted bug until `property` breaks.
pub fn hunt(config: Config, property: &'static str) -> Report {
    explore(&format!("process {:?}", config.bug), Saga::new(config), Until::Broken(property))
}
