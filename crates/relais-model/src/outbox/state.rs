//! The state of the database, the workers, the network and the proof's own marks.

use relais_core::{
    delivery::Delivery,
    fault::{FailureKind, Judgement, judge},
    outbox::{OnDeadLetter, OutboxFate, OutboxStatus, settle},
    quarantine::{HOLD_AFTER, ReadContext, Treatment, lost, treatment},
    retry::RetryPolicy,
};

use super::evidence::OtherKeys;

/// Most rows of a model.
pub const ROWS_MAX: usize = 5;
/// Most workers of a model.
pub const WORKERS_MAX: usize = 3;

/// A planted mistake. Each must break a named property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayBug {
    /// A settlement does not look at the lane.
    NoFence,
    /// The fence compares the owner's name alone, and all workers share it (a host name).
    FenceByName,
    /// The fence also lets through when the lane has no owner.
    FenceAcceptsNull,
    /// A sweeper sets rows back to pending by an old snapshot.
    StaleSweeper,
    /// `DISPATCHED` is written before the message is published.
    MarkBeforePublish,
    /// The key continues behind a dead letter.
    DeadLetterSkipsKey,
    /// Two rows of one key may be in flight together.
    NoKeyGuard,
    /// A worker continues with its batch's next row of a key after one failed.
    BatchGoesOn,
    /// An outage is counted as the message's failure.
    OutageCounts,
    /// The loss noted before a call is kept although the call came back.
    NoteKept,
    /// A row that waits without a used attempt does not hold its key.
    UncountedHoldsNoKey,
    /// A loss is noted on rows in quarantine too, though they were not in flight.
    HeldRowsAreBlamed,
    /// A worker gives its lane back while it still publishes.
    ReleaseInFlight,
    /// A worker gives back a lane it took over uncleanly before it has worked its caution off.
    ReleaseBeforeCaution,
    /// A suspect whose deadline passed while it was queued is none when it is read again.
    DroppedSuspectForgotten,
    /// Fetch gives rows behind a row in backoff.
    FetchPastBackoff,
    /// Fetch gives rows of parked keys.
    FetchPastParked,
    /// A read also returns rows that the worker holds; they arrive after it settled them.
    StaleFetch,
    /// A read returns rows of a key whose earlier row failed and is not settled yet.
    ReadPastFailure,
    /// A read on its way is kept although the worker dropped queued rows of its keys meanwhile.
    LateReadKept,
    /// A worker continues with its queue after the fence refused a settlement.
    ContinuesAfterRefusal,
    /// No loss is noted after an unclean take-over.
    NoCaution,
    /// A settlement without an answer is repeated, even when it makes a dead letter.
    DeadLetterRepeated,
    /// A lane whose owner is lost is never taken over.
    NoTakeOver,
    /// An attempt is counted when a suspect is read, not when its call fails.
    AttemptAtRead,
    /// Rows that are sent after their quarantine are in flight together.
    SuspectsTogether,
    /// A settlement that the database refuses is repeated with all of its rows.
    RefusedTogether,
    /// The key continues behind a row that an operator failed.
    FailedByOperatorHoldsNoKey,
    /// A settlement does not look at the status of its row, which an operator may have failed meanwhile.
    SettlesWhatWasFailed,
}

/// Number of faults of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RelayBudget {
    /// Crashes, leases that run out under a live worker, and releases, together.
    pub moves: u8,
    /// Answers other than `Accepted`: failed, rejected, outage, unknown, together.
    pub answers: u8,
    /// Settlements whose answer from the database is lost.
    pub lost: u8,
    /// Decisions of an operator about dead letters.
    pub decisions: u8,
    /// Pending rows that an operator makes dead letters.
    pub given_up: u8,
}

/// The bounds of one model.
#[derive(Clone, Copy, Debug)]
pub struct RelayConfig {
    pub workers: usize,
    /// The key of each row, in order of id.
    pub keys: &'static [u8],
    pub attempts_max: u8,
    /// Most rows of one fetch.
    pub batch: usize,
    pub budget: RelayBudget,
    /// A row whose settlement the database refuses, unless it makes a dead letter.
    pub refused: Option<usize>,
    pub bug: Option<RelayBug>,
}

impl RelayConfig {
    pub fn has(&self, bug: RelayBug) -> bool {
        self.bug == Some(bug)
    }

    pub fn rows(&self) -> std::ops::Range<usize> {
        0..self.keys.len()
    }

    /// All rows of the key of `row`.
    pub fn same_key(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        self.rows().filter(move |other| self.keys[*other] == self.keys[row])
    }

    /// More crashes than a message that kills its worker may cause. Such a model is about losses alone: its
    /// reads and settlements are answered at once.
    pub fn counts_kills(&self) -> bool {
        u32::from(self.budget.moves) > HOLD_AFTER
    }

    pub fn policy(&self) -> RetryPolicy {
        RetryPolicy::default().attempts_max(u32::from(self.attempts_max)).jitter(false)
    }

    /// The real decision for an item.
    pub fn fate(&self, item: RelayItem, answer: RelayAnswer) -> OutboxFate {
        let unclear = |code, evidence: OtherKeys| {
            let fault = judge(FailureKind::Unclear, &evidence.facts());
            (Delivery::retry(code, ""), Judgement { fault, failures: 1 })
        };
        let (delivery, judgement) = match answer {
            RelayAnswer::Accepted => (Delivery::Accepted, Judgement::MESSAGE),
            RelayAnswer::Failed => unclear("FAILED", OtherKeys::Succeed),
            RelayAnswer::Rejected => (Delivery::reject("REJECTED", ""), Judgement::MESSAGE),
            RelayAnswer::Outage if self.has(RelayBug::OutageCounts) => {
                unclear("OUTAGE", OtherKeys::Succeed)
            }
            RelayAnswer::Outage => unclear("OUTAGE", OtherKeys::Fail),
            // Nothing was published now.
            RelayAnswer::Buried => {
                let attempts = item.attempts.into();
                return OutboxFate::Dead { attempts, problem: lost(), park: true };
            }
        };
        let on_dead = match self.bug {
            Some(RelayBug::DeadLetterSkipsKey) => OnDeadLetter::Skip,
            _ => OnDeadLetter::Park,
        };
        settle(&self.policy(), on_dead, item.attempts.into(), delivery, judgement, 0.0)
    }

    /// The real rule about rows that may have killed their worker.
    pub fn treatment(&self, item: RelayItem) -> Treatment {
        let read = if item.cautious { ReadContext::AfterLoss } else { ReadContext::Usual };
        treatment(item.lost.into(), read)
    }
}

/// One row of the outbox, and what the proof remembers of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RelayRow {
    pub status: OutboxStatus,
    pub attempts: u8,
    /// In backoff; it may be due at any moment.
    pub waiting: bool,
    /// It is a dead letter that holds its key.
    pub parks: bool,
    /// An operator let the key continue without it.
    pub skipped: bool,
    /// The target has it (proof).
    pub delivered: bool,
    /// Epochs under which it was published without a failure since (proof; one bit each).
    pub started: u8,
    /// Losses noted.
    pub lost: u8,
    /// Failures of its own (proof).
    pub blame: u8,
    /// Lost workers since it last came back from a call, while it was not held (proof).
    pub deaths: u8,
    /// Crashes while it was in flight, and how often another loss acquitted it, since it last came back
    /// (proof).
    pub kills: u8,
    pub acquitted: u8,
    /// At the last loss after its quarantine another such row was in flight too (proof).
    pub accompanied: bool,
}

/// The owner of a lane in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    Free,
    Run(u8),
    /// A run of a worker that has crashed.
    Lost,
}

/// The one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    pub owner: Owner,
    pub epoch: u8,
}

/// The answer to a delivery, as its worker knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RelayAnswer {
    Accepted,
    /// Failed for now, or no answer in time.
    Failed,
    Rejected,
    Outage,
    /// Not published: too many workers were lost with it.
    Buried,
}

impl RelayAnswer {
    pub fn is_bad(self) -> bool {
        self != Self::Accepted
    }
}

/// The progress of a worker with a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowStage {
    #[default]
    Idle,
    Queued,
    /// A loss is noted, not yet published.
    Noted,
    Publishing,
    /// The call returned; later rows of the key may start if it was accepted.
    Answered(RelayAnswer),
    /// Its settlement is on its way to the database, together with those of other calls.
    Settling(RelayAnswer),
}

impl RowStage {
    /// The answer of a row that came back and whose settlement is not known to be committed.
    pub fn unsettled(self) -> Option<RelayAnswer> {
        match self {
            Self::Answered(answer) | Self::Settling(answer) => Some(answer),
            Self::Idle | Self::Queued | Self::Noted | Self::Publishing => None,
        }
    }
}

/// A row in a worker's memory, as it was when fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelayItem {
    pub stage: RowStage,
    pub epoch: u8,
    pub attempts: u8,
    pub lost: u8,
    /// Read after the loss of another worker.
    pub cautious: bool,
    /// It was settled, but the worker does not know (proof).
    pub settled: bool,
}

/// The memory of one run of a worker; a crash makes it empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelayWorker {
    /// The epoch it believes to hold the lane with; 0: it knows it does not.
    pub held: u8,
    /// The lane came from an unclean take-over and nothing was fetched since.
    pub caution: bool,
    pub items: [RelayItem; ROWS_MAX],
    /// Rows of a read that is still on its way (one bit each).
    pub asked: u8,
    /// The last epoch under which the fence refused it (proof).
    pub refused: u8,
}

impl RelayWorker {
    /// Returns whether a row of the key failed and its settlement is not committed: the database does not
    /// hold the key back yet.
    pub fn has_unsettled_failure(&self, config: &RelayConfig, row: usize) -> bool {
        config
            .same_key(row)
            .any(|other| self.items[other].stage.unsettled().is_some_and(RelayAnswer::is_bad))
    }

    /// Drops every queued row. A read on its way left those rows out, so what it returns is void.
    pub fn drop_queue(&mut self, config: &RelayConfig) {
        for row in config.rows() {
            self.drop_queued(config, row);
        }
    }

    /// Drops a row from the queue, or from the read on its way.
    pub fn drop_queued(&mut self, config: &RelayConfig, row: usize) {
        if self.items[row].stage == RowStage::Queued {
            self.items[row] = RelayItem::default();
        }
        if !config.has(RelayBug::LateReadKept) {
            self.asked &= !(1 << row);
        }
    }
}

/// The sweeper of [`RelayBug::StaleSweeper`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sweep {
    NotYet,
    /// Rows it saw pending, one bit each.
    Read(u8),
    Done,
}

/// One state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RelayState {
    pub rows: [RelayRow; ROWS_MAX],
    pub lane: Lane,
    pub workers: [RelayWorker; WORKERS_MAX],
    /// Copies of each row that may still arrive.
    pub limbo: [u8; ROWS_MAX],
    pub left: RelayBudget,
    pub sweep: Sweep,
    /// A settlement took effect that the fence should have refused (proof).
    pub stale_write: bool,
    /// A finished row was changed, and not by an operator (proof).
    pub reopened: bool,
    /// A row was published again without a reason (proof).
    pub uncaused: bool,
    /// A worker started a call under an epoch for which the fence had refused it (proof).
    pub continued: bool,
}

impl RelayState {
    pub fn start(config: &RelayConfig) -> Self {
        let row = RelayRow {
            status: OutboxStatus::Pending,
            attempts: 0,
            waiting: false,
            parks: false,
            skipped: false,
            delivered: false,
            started: 0,
            lost: 0,
            blame: 0,
            deaths: 0,
            kills: 0,
            acquitted: 0,
            accompanied: false,
        };
        Self {
            rows: [row; ROWS_MAX],
            lane: Lane { owner: Owner::Free, epoch: 0 },
            workers: [RelayWorker::default(); WORKERS_MAX],
            limbo: [0; ROWS_MAX],
            left: config.budget,
            sweep: Sweep::NotYet,
            stale_write: false,
            reopened: false,
            uncaused: false,
            continued: false,
        }
    }

    pub fn owns(&self, worker: usize, epoch: u8) -> bool {
        usize::from(self.lane.epoch) == usize::from(epoch) && self.is_owner(worker)
    }

    pub fn is_owner(&self, worker: usize) -> bool {
        matches!(self.lane.owner, Owner::Run(owner) if usize::from(owner) == worker)
    }

    pub fn is_parked(&self, config: &RelayConfig, row: usize) -> bool {
        config.same_key(row).any(|other| self.rows[other].parks)
    }

    /// Workers are alike: one numbering stands for all.
    pub fn sort_workers(&mut self) {
        for end in (1..WORKERS_MAX).rev() {
            for left in 0..end {
                if self.workers[left] < self.workers[left + 1] {
                    self.workers.swap(left, left + 1);
                    self.lane.owner = match self.lane.owner {
                        Owner::Run(w) if usize::from(w) == left => Owner::Run(w + 1),
                        Owner::Run(w) if usize::from(w) == left + 1 => Owner::Run(w - 1),
                        other => other,
                    };
                }
            }
        }
    }
}
