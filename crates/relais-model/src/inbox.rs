//! Receiving and handling: a source that repeats itself, a receiver, and workers whose handlers
//! commit their effect and the row's `PROCESSED` together.
//!
//! Invariant: the correct machine loses no message and has each effect once; each [`ReceiverBug`] breaks the
//! property that names its harm. Messages are numbered by their position in the source; the source
//! gives again whatever is not acknowledged, and a few that are.

mod property;
mod step;

pub use property::{FENCE, NO_LOSS, ONE_EFFECT, ORDER, PROGRESS, TERMINAL, VERDICT};
pub use step::ReceiverAction;

use relais_core::inbox::InboxStatus;
use stateright::{Model, Property};

use super::{ModelGoal, ModelReport, explore};

/// Most messages of a model.
pub const MESSAGES_MAX: usize = 3;
/// Workers of a model.
pub const WORKERS: usize = 2;

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverBug {
    /// The source gets "done" before the row is stored.
    AckBeforeCommit,
    /// The position is stored in a transaction of its own, before the rows.
    PositionApart,
    /// A message that was read ahead is stored although the one before it was not.
    AheadPastAFailure,
    /// A message that was read ahead is acknowledged with the one before it.
    AheadAcknowledged,
    /// The handler's effect and the row's mark are two commits.
    EffectApartFromMark,
    /// The mark looks neither at the lane nor at the row.
    BlindMark,
    /// The mark looks at the row but not at the lane.
    NoFence,
    /// A finished row is removed while its source may still repeat it.
    PurgedEarly,
    /// A repeated message is stored again.
    NoDedupe,
    /// A message's handler starts although an earlier one of its key is open.
    NoKeyGuard,
    /// A message that is put off without an attempt used does not hold its key.
    PutOffHoldsNoKey,
    /// A message of a type that its worker does not know is a dead letter at once.
    UnknownFails,
    /// A message of a type that its worker does not know is left out, and its key continues.
    UnknownPassed,
    /// A lane that was handed over for a type is taken by a worker that does not know it.
    WantedByAny,
    /// A lane is handed over although its owner has work in it that it knows.
    HandedOverEarly,
}

/// Number of faults of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiverBudget {
    /// Crashes, transactions of the receiver that fail, and leases that run out under a live worker, together.
    pub moves: u8,
    /// Outcomes other than `Done`.
    pub outcomes: u8,
    /// Repetitions of acknowledged messages.
    pub repeats: u8,
    /// Decisions of an operator about dead letters.
    pub decisions: u8,
}

/// When the receiver reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceReading {
    /// One message after the other.
    InTurn,
    /// The next message while one is stored; storing may fail.
    Ahead,
}

/// The bounds of one model.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// The key of each message, in order of position.
    pub keys: &'static [u8],
    /// The workers that know the type of each message, as bits; empty: all workers know all.
    pub known_by: &'static [u8],
    /// Most times a lane is handed over; more would be lanes that go back and forth without work.
    pub hand_overs_max: u8,
    pub attempts_max: u8,
    pub reading: SourceReading,
    pub budget: ReceiverBudget,
    pub bug: Option<ReceiverBug>,
}

impl ReceiverConfig {
    pub fn has(&self, bug: ReceiverBug) -> bool {
        self.bug == Some(bug)
    }

    pub fn messages(&self) -> std::ops::Range<usize> {
        0..self.keys.len()
    }

    /// Returns true if the worker can handle the message.
    pub fn knows(&self, worker: usize, message: usize) -> bool {
        self.known_by.get(message).is_none_or(|workers| workers & (1 << worker) != 0)
    }

    /// Earlier messages of the same key.
    pub fn before(&self, message: usize) -> impl Iterator<Item = usize> + '_ {
        (0..message).filter(move |other| self.keys[*other] == self.keys[message])
    }
}

/// A message as the database and the proof know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelMessage {
    /// `None`: no row, not yet or not any more.
    pub status: Option<InboxStatus>,
    pub purged: bool,
    pub attempts: u8,
    pub parks: bool,
    pub skipped: bool,
    /// The source will not give it again by itself.
    pub acknowledged: bool,
    /// Its key continued without it (proof).
    pub passed: bool,
    /// Committed effects (proof).
    pub effects: u8,
}

impl ModelMessage {
    pub fn is_open(&self) -> bool {
        self.status.is_some_and(InboxStatus::is_open)
    }
}

/// The progress of the receiver with its current message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiverPhase {
    Empty,
    Got(u8),
    /// One of the two writes of a planted bug is done.
    Half(u8),
    Stored(u8),
}

/// A handler's run in a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandlerRun {
    pub epoch: u8,
    pub attempts: u8,
    /// The effect is committed, the mark is not ([`ReceiverBug::EffectApartFromMark`] only).
    pub half: bool,
}

/// The memory of one run of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReceiverWorker {
    /// The epoch it believes to hold the lane with; 0: none.
    pub held: u8,
    pub runs: [Option<HandlerRun>; MESSAGES_MAX],
}

/// One state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReceiverState {
    pub messages: [ModelMessage; MESSAGES_MAX],
    /// Position of the source in the database.
    pub position: u8,
    /// Position of the receiver in its memory.
    pub reading: u8,
    pub hand: ReceiverPhase,
    /// The message that was read while the previous one is stored.
    pub ahead: Option<u8>,
    /// The lane's owner: a live worker, or `None` if none is alive.
    pub owner: Option<u8>,
    pub epoch: u8,
    /// The message that a free lane was handed over for.
    pub wanted: Option<u8>,
    pub hand_overs: u8,
    pub workers: [ReceiverWorker; WORKERS],
    pub left: ReceiverBudget,
    pub stale_write: bool,
    pub reopened: bool,
}

impl ReceiverState {
    pub fn owns(&self, worker: usize, epoch: u8) -> bool {
        self.epoch == epoch && self.owner.is_some_and(|owner| usize::from(owner) == worker)
    }

    pub fn is_parked(&self, config: &ReceiverConfig, message: usize) -> bool {
        config
            .messages()
            .any(|other| config.keys[other] == config.keys[message] && self.messages[other].parks)
    }

    fn sort_workers(&mut self) {
        if self.workers[0] < self.workers[1] {
            self.workers.swap(0, 1);
            self.owner = self.owner.map(|owner| 1 - owner);
        }
    }
}

/// The machine.
#[derive(Clone, Debug)]
pub struct ReceiverModel(pub ReceiverConfig);

impl Model for ReceiverModel {
    type State = ReceiverState;
    type Action = ReceiverAction;

    fn init_states(&self) -> Vec<ReceiverState> {
        let message = ModelMessage {
            status: None,
            purged: false,
            attempts: 0,
            parks: false,
            skipped: false,
            acknowledged: false,
            passed: false,
            effects: 0,
        };
        vec![ReceiverState {
            messages: [message; MESSAGES_MAX],
            position: 0,
            reading: 0,
            hand: ReceiverPhase::Empty,
            ahead: None,
            owner: None,
            epoch: 0,
            wanted: None,
            hand_overs: 0,
            workers: [ReceiverWorker::default(); WORKERS],
            left: self.0.budget,
            stale_write: false,
            reopened: false,
        }]
    }

    fn actions(&self, state: &ReceiverState, actions: &mut Vec<ReceiverAction>) {
        step::enabled(&self.0, state, actions);
    }

    fn next_state(&self, state: &ReceiverState, action: ReceiverAction) -> Option<ReceiverState> {
        let mut next = state.clone();
        step::apply(&self.0, &mut next, action);
        // Workers that know different types are not alike.
        if self.0.known_by.is_empty() {
            next.sort_workers();
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all()
    }
}

/// Visits every state of the machine.
pub fn exhaust(name: &str, config: ReceiverConfig) -> ModelReport {
    explore(name, ReceiverModel(config), ModelGoal::Exhausted)
}

/// Runs a machine with a planted bug until `property` breaks.
pub fn hunt(config: ReceiverConfig, property: &'static str) -> ModelReport {
    explore(&format!("inbox {:?}", config.bug), ReceiverModel(config), ModelGoal::Broken(property))
}
