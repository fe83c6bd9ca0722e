//! The lease of a worker over lanes of all its scopes: who may take a lane from whom, and when.
//!
//! A transaction that asks for lanes has two steps, so that everything else may happen between them: it locks
//! the leases of lost workers, and later takes their lanes. Time has no numbers: a lease may expire at any
//! moment. The worker's own measure never ends after the database's.
//!
//! Invariant: the correct machine breaks no `always` property; each [`LeaseBug`] breaks the one that names
//! its harm.

use stateright::{Model, Property};

use super::{ModelGoal, ModelReport, explore};

/// Names of workers; a worker that crashes does not come back under its name.
pub const WORKERS: usize = 2;
/// Lanes, e.g. of two scopes.
pub const LANES: usize = 2;

/// At most one worker uses a lane.
pub const EXCLUSIVE: &str = "one worker uses a lane";
/// A lane that its last owner did not release is granted as unclean.
pub const UNCLEAN: &str = "what was not released is unclean";
/// Each owner of a lane has an epoch of its own, which is what the fence compares.
pub const EPOCH: &str = "each owner has its own epoch";

/// A planted mistake. Each must break a named property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseBug {
    /// A lease that had expired is renewed in the same term: its owner does not ask for its lanes again.
    TermKept,
    /// The leases of lost workers are read and not locked.
    NoLock,
    /// Lanes of a worker that was forgotten are free and clean.
    ForgottenIsClean,
    /// An owner without a lease is lost by its name: there is nothing to lock.
    OrphanByName,
    /// A lane that is taken over keeps its epoch.
    EpochKept,
}

/// The bounds of one model.
#[derive(Clone, Copy, Debug)]
pub struct LeaseConfig {
    /// Leases that expire under a live worker.
    pub expiries: u8,
    /// Crashes and releases.
    pub moves: u8,
    pub bug: Option<LeaseBug>,
}

/// The row of a worker's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseRow {
    Absent,
    Valid { term: u8 },
    Expired { term: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeasedLane {
    pub owner: Option<u8>,
    pub epoch: u8,
    pub unclean: bool,
    /// Its last owner released it (proof).
    pub released: bool,
    /// Epochs of owners so far, one bit each (proof).
    pub used: u16,
}

/// The memory of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseHolder {
    pub crashed: bool,
    /// By its own measure the lease has not expired.
    pub believes: bool,
    /// The term of the last answer, and the one in which its lanes were granted.
    pub term: u8,
    pub granted: u8,
    /// Its lanes, one bit each.
    pub lanes: u8,
    /// The lost workers of its open transaction, one bit each.
    pub lost: Option<u8>,
    /// Those whose lease it holds a lock on.
    pub locked: u8,
}

impl LeaseHolder {
    fn uses(&self, lane: usize) -> bool {
        self.believes && self.term == self.granted && self.lanes & 1 << lane != 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseModelState {
    pub rows: [LeaseRow; WORKERS],
    pub lanes: [LeasedLane; LANES],
    pub workers: [LeaseHolder; WORKERS],
    /// The last term.
    pub clock: u8,
    pub expiries: u8,
    pub moves: u8,
    /// An unclean lane was granted as clean (proof).
    pub hidden: bool,
    /// An epoch was used twice (proof).
    pub reused: bool,
    /// A lane of a forgotten worker was taken.
    pub inherited: bool,
}

/// One step. Workers are numbers; lanes are bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Time passes the end of the lease.
    Expire(usize),
    Renew(usize),
    /// The database renews the lease, and its answer is lost.
    RenewUnanswered(usize),
    /// A transaction begins: renews its own lease and looks for lost workers.
    Ask(usize),
    /// It takes these lanes and commits.
    Take(usize, u8),
    /// Releases all lanes, and leaves.
    Leave(usize),
    Crash(usize),
    /// A lease that expired long ago is removed.
    Forget(usize),
    /// The same by an operator, who does not look at the lanes.
    Remove(usize),
}

/// The machine.
#[derive(Clone, Debug)]
pub struct LeaseModel(pub LeaseConfig);

impl LeaseModel {
    fn has(&self, bug: LeaseBug) -> bool {
        self.0.bug == Some(bug)
    }

    /// Returns whether an open transaction of another worker holds a lock on the lease.
    fn is_locked(state: &LeaseModelState, worker: usize) -> bool {
        state.workers.iter().any(|other| other.locked & 1 << worker != 0)
    }

    fn renew(&self, state: &mut LeaseModelState, worker: usize) -> u8 {
        let term = match state.rows[worker] {
            LeaseRow::Valid { term } => term,
            LeaseRow::Expired { term } if self.has(LeaseBug::TermKept) => term,
            LeaseRow::Expired { .. } | LeaseRow::Absent => {
                state.clock += 1;
                state.clock
            }
        };
        state.rows[worker] = LeaseRow::Valid { term };
        term
    }

    fn ask(&self, state: &mut LeaseModelState, worker: usize) {
        let term = self.renew(state, worker);
        state.workers[worker].term = term;
        state.workers[worker].believes = true;
        let (mut lost, mut locked) = (0, 0);
        for owner in state.lanes.iter().filter_map(|lane| lane.owner).map(usize::from) {
            let by_name = self.has(LeaseBug::OrphanByName);
            if state.rows[owner] == LeaseRow::Absent && !by_name {
                // It gets an expired lease, which can be locked.
                state.rows[owner] = LeaseRow::Expired { term: 0 };
            }
            let is_loose = !matches!(state.rows[owner], LeaseRow::Valid { .. });
            // A worker in a transaction of its own holds its lease itself.
            if owner != worker && is_loose && state.workers[owner].lost.is_none() {
                lost |= 1 << owner;
                if state.rows[owner] != LeaseRow::Absent && !self.has(LeaseBug::NoLock) {
                    locked |= 1 << owner;
                }
            }
        }
        let holder = &mut state.workers[worker];
        (holder.lost, holder.locked) = (Some(lost), locked);
    }

    fn take(&self, state: &mut LeaseModelState, worker: usize, taken: u8) {
        (state.workers[worker].lost, state.workers[worker].locked) = (None, 0);
        let me = u8::try_from(worker).expect("few workers");
        for number in 0..LANES {
            let lane = &mut state.lanes[number];
            if taken & 1 << number != 0 {
                let is_unclean = lane.owner.is_some() || lane.unclean;
                state.hidden |= !lane.released && !is_unclean;
                state.inherited |= lane.owner.is_none() && lane.unclean;
                if !self.has(LeaseBug::EpochKept) || lane.owner.is_none() {
                    lane.epoch += 1;
                }
                state.reused |= lane.used & 1 << lane.epoch != 0;
                lane.used |= 1 << lane.epoch;
                (lane.owner, lane.unclean, lane.released) = (Some(me), false, false);
            }
        }
        let owned = |lane: &LeasedLane| lane.owner == Some(me);
        let lanes = (0..LANES).filter(|lane| owned(&state.lanes[*lane]));
        let holder = &mut state.workers[worker];
        holder.lanes = lanes.fold(0, |bits, lane| bits | 1 << lane);
        // The row is locked since it was renewed, so the term is the same.
        holder.granted = holder.term;
    }

    fn free(state: &mut LeaseModelState, worker: usize, unclean: bool, released: bool) {
        for lane in &mut state.lanes {
            if lane.owner.is_some_and(|owner| usize::from(owner) == worker) {
                (lane.owner, lane.unclean, lane.released) = (None, unclean, released);
            }
        }
        state.rows[worker] = LeaseRow::Absent;
    }
}

impl Model for LeaseModel {
    type State = LeaseModelState;
    type Action = LeaseAction;

    fn init_states(&self) -> Vec<LeaseModelState> {
        let lane = LeasedLane { owner: None, epoch: 0, unclean: false, released: true, used: 1 };
        vec![LeaseModelState {
            rows: [LeaseRow::Absent; WORKERS],
            lanes: [lane; LANES],
            workers: [LeaseHolder::default(); WORKERS],
            clock: 0,
            expiries: self.0.expiries,
            moves: self.0.moves,
            hidden: false,
            reused: false,
            inherited: false,
        }]
    }

    fn actions(&self, state: &LeaseModelState, actions: &mut Vec<LeaseAction>) {
        for worker in 0..WORKERS {
            let holder = &state.workers[worker];
            let is_locked = Self::is_locked(state, worker);
            let may_expire = holder.crashed || state.expiries > 0;
            if matches!(state.rows[worker], LeaseRow::Valid { .. }) && may_expire {
                actions.push(LeaseAction::Expire(worker));
            }
            if matches!(state.rows[worker], LeaseRow::Expired { .. }) && !is_locked {
                actions.push(LeaseAction::Forget(worker));
                if state.expiries > 0 {
                    actions.push(LeaseAction::Remove(worker));
                }
            }
            if holder.crashed {
                continue;
            }
            if let Some(lost) = holder.lost {
                let is_loose = |lane: &usize| match state.lanes[*lane].owner {
                    None => true,
                    Some(owner) => lost & 1 << owner != 0,
                };
                let loose = (0..LANES).filter(is_loose).fold(0_u8, |bits, lane| bits | 1 << lane);
                let subsets = (0..=loose).filter(|taken| taken & !loose == 0);
                actions.extend(subsets.map(|taken| LeaseAction::Take(worker, taken)));
                continue;
            }
            if !is_locked {
                let holds = holder.lanes != 0;
                if holds && !matches!(state.rows[worker], LeaseRow::Valid { .. }) {
                    actions.push(LeaseAction::Renew(worker));
                    actions.push(LeaseAction::RenewUnanswered(worker));
                }
                if !holds || holder.granted != holder.term {
                    actions.push(LeaseAction::Ask(worker));
                }
            }
            if holder.lanes != 0 && state.moves > 0 {
                actions.push(LeaseAction::Crash(worker));
                if !is_locked && holder.uses(0) | holder.uses(1) {
                    actions.push(LeaseAction::Leave(worker));
                }
            }
        }
    }

    fn next_state(&self, state: &LeaseModelState, action: LeaseAction) -> Option<LeaseModelState> {
        let mut next = state.clone();
        match action {
            LeaseAction::Expire(worker) => {
                if let LeaseRow::Valid { term } = next.rows[worker] {
                    next.rows[worker] = LeaseRow::Expired { term };
                }
                if !next.workers[worker].crashed {
                    next.expiries -= 1;
                }
                next.workers[worker].believes = false;
            }
            LeaseAction::Renew(worker) => {
                let term = self.renew(&mut next, worker);
                next.workers[worker].term = term;
                next.workers[worker].believes = true;
            }
            LeaseAction::RenewUnanswered(worker) => {
                self.renew(&mut next, worker);
            }
            LeaseAction::Ask(worker) => self.ask(&mut next, worker),
            LeaseAction::Take(worker, lanes) => self.take(&mut next, worker, lanes),
            LeaseAction::Leave(worker) => {
                next.moves -= 1;
                Self::free(&mut next, worker, false, true);
                next.workers[worker] = LeaseHolder::default();
            }
            LeaseAction::Crash(worker) => {
                next.moves -= 1;
                next.workers[worker] = LeaseHolder { crashed: true, ..LeaseHolder::default() };
            }
            LeaseAction::Forget(worker) => {
                let is_unclean = !self.has(LeaseBug::ForgottenIsClean);
                Self::free(&mut next, worker, is_unclean, false);
            }
            LeaseAction::Remove(worker) => {
                next.expiries -= 1;
                next.rows[worker] = LeaseRow::Absent;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSIVE, |_, state: &LeaseModelState| {
                let users = |lane| state.workers.iter().filter(|holder| holder.uses(lane)).count();
                (0..LANES).all(|lane| users(lane) <= 1)
            }),
            Property::always(UNCLEAN, |_, state: &LeaseModelState| !state.hidden),
            Property::always(EPOCH, |_, state: &LeaseModelState| !state.reused),
            Property::sometimes("two workers use lanes", |_, state: &LeaseModelState| {
                let uses = |holder: &&LeaseHolder| holder.uses(0) || holder.uses(1);
                state.workers.iter().filter(uses).count() > 1
            }),
            Property::sometimes("a take-over from a live worker", |_, state: &LeaseModelState| {
                state.workers.iter().enumerate().any(|(number, holder)| {
                    let lost = |lane: usize| {
                        let owner = state.lanes[lane].owner;
                        holder.lanes & 1 << lane != 0 && owner.map(usize::from) != Some(number)
                    };
                    !holder.crashed && (0..LANES).any(lost)
                })
            }),
            Property::sometimes("a lane of a forgotten worker", |_, state: &LeaseModelState| {
                state.inherited
            }),
        ]
    }
}

/// Visits every state of the machine.
pub fn exhaust(name: &str, config: LeaseConfig) -> ModelReport {
    explore(name, LeaseModel(config), ModelGoal::Exhausted)
}

/// Runs a machine with a planted bug until `property` breaks.
pub fn hunt(config: LeaseConfig, property: &'static str) -> ModelReport {
    explore(&format!("{:?}", config.bug), LeaseModel(config), ModelGoal::Broken(property))
}
