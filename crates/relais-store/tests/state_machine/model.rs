//! The store's contract in plain Rust: rows, lanes, dead letters, and what each call must answer.
//!
//! Invariant: nothing here asks a database. Rows have numbers in the order they were written, which
//! is the order of their ids.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use relais_core::{
    dead_letter::Resolution,
    inbox::AcceptOutcome,
    lane::{LANES, LaneGrant, OwnedLane, share},
    store::SettleOutcome,
};

pub(crate) const DESTINATIONS: [&str; 2] = ["orders", "billing"];
pub(crate) const WORKERS: [&str; 2] = ["worker-a", "worker-b"];
/// Few, so that they meet; of different lanes, so that workers share them.
pub(crate) const KEYS: [&str; 4] = ["k-1", "k-30", "z", "other"];
/// The inbox, then each destination.
pub(crate) const SCOPES: usize = 1 + DESTINATIONS.len();
pub(crate) const INBOX: usize = 0;
/// The variant of a received message that cannot be decoded.
pub(crate) const UNDECODABLE: u8 = 2;

/// In what the drivers differ, and may.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The lane of each key.
    pub(crate) lanes: [i16; KEYS.len()],
    /// A due row is fetched together with an earlier due row of its key.
    pub(crate) due_behind_due: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ident {
    /// An outbox message, by the number of its id.
    Sent(u128),
    /// A received message.
    Received(u8),
    /// A conflicting content that an operator accepted.
    LetIn { message: u8, variant: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Fresh,
    Retry,
    Failed,
    Done,
    Undecodable,
    /// Removed by cleanup.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    None,
    Later,
    Due,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) scope: usize,
    pub(crate) key: usize,
    pub(crate) ident: Ident,
    pub(crate) variant: u8,
    pub(crate) state: State,
    pub(crate) attempts: u32,
    /// Losses noted.
    pub(crate) lost: u32,
    pub(crate) time: Time,
    /// It was sent with a delay: it has no place behind the earlier rows of its key.
    pub(crate) delayed: bool,
    /// An outbox row that may be in `relais_waiting`: its key had a waiting row or was parked meanwhile.
    pub(crate) may_wait: bool,
}

impl Row {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Fresh | State::Retry)
    }

    /// The text in the `status` column; `None` for a removed row.
    pub(crate) fn status(&self) -> Option<&'static str> {
        let inbox = self.scope == INBOX;
        Some(match self.state {
            State::Fresh if inbox => "RECEIVED",
            State::Retry if inbox => "RETRY",
            State::Fresh | State::Retry => "PENDING",
            State::Failed => "FAILED",
            State::Done if inbox => "PROCESSED",
            State::Done => "DISPATCHED",
            State::Undecodable => "SERDE_ERROR",
            State::Gone => return None,
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Dead {
    pub(crate) row: usize,
    /// The contradicting variant of a conflict; `None` for a failed row.
    pub(crate) conflict: Option<u8>,
    pub(crate) attempts: u32,
    /// True if it parks its key until it is resolved.
    pub(crate) parks: bool,
    pub(crate) resolved: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lane {
    pub(crate) owner: Option<usize>,
    pub(crate) epoch: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Done,
    Retry { attempts: u32, due: bool },
    Wait { lost: u32, due: bool },
    Dead { attempts: u32, park: bool },
    Untouched,
}

/// One row of a settlement: with which epoch, to what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settle {
    pub(crate) row: usize,
    pub(crate) epoch: i64,
    pub(crate) fate: Fate,
    /// The message (number of its id, key) that a processed row sends, written or not.
    pub(crate) sends: Option<(u128, usize)>,
}

/// A call of the store with its right answer; numbers are rows of the model.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Nothing,
    /// Which rows, and whether their time is later.
    Enqueue(Vec<(usize, bool)>),
    Accept(Vec<(u8, u8, AcceptOutcome)>),
    Lease {
        scope: usize,
        worker: usize,
        grant: LaneGrant,
    },
    Expire {
        scope: usize,
        worker: usize,
    },
    Release {
        scope: usize,
        worker: usize,
        lanes: Vec<i16>,
        leaving: bool,
    },
    Settle {
        scope: usize,
        worker: usize,
        rows: Vec<Settle>,
        answer: SettleOutcome,
    },
    NoteLoss {
        scope: usize,
        worker: usize,
        rows: Vec<(usize, i64)>,
        answer: SettleOutcome,
    },
    MakeDue(usize),
    Resolve {
        dead: usize,
        resolution: Resolution,
        answer: bool,
        lets_in: Option<usize>,
    },
    Cleanup {
        removed: u64,
    },
}

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) rules: Rules,
    pub(crate) rows: Vec<Row>,
    pub(crate) dead: Vec<Dead>,
    pub(crate) parked: BTreeSet<(usize, usize)>,
    pub(crate) lanes: [Vec<Lane>; SCOPES],
    /// True if a worker has announced the scope and has not left it.
    pub(crate) announced: [[bool; WORKERS.len()]; SCOPES],
    /// Workers whose lease has expired.
    pub(crate) expired: [bool; WORKERS.len()],
    /// The epochs a worker remembers, right or not any more.
    pub(crate) memory: [[BTreeMap<i16, i64>; WORKERS.len()]; SCOPES],
    /// The last call.
    pub(crate) call: Call,
}

/// In a failure the steps show all; this is printed before them.
impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({} rows)", self.rows.len())
    }
}

impl Model {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            rows: Vec::new(),
            dead: Vec::new(),
            parked: BTreeSet::new(),
            lanes: std::array::from_fn(|_| vec![Lane::default(); usize::from(LANES)]),
            announced: Default::default(),
            expired: Default::default(),
            memory: Default::default(),
            call: Call::Nothing,
        }
    }

    pub(crate) fn lane(&self, row: usize) -> i16 {
        self.rules.lanes[self.rows[row].key]
    }

    fn lane_state(&self, row: usize) -> Lane {
        self.lanes[self.rows[row].scope][usize::try_from(self.lane(row)).expect("a lane")]
    }

    /// The owner of the row's lane.
    pub(crate) fn owner(&self, row: usize) -> Option<usize> {
        self.lane_state(row).owner
    }

    /// Returns the rows that a fetch of the scope gives, in order; `lanes` of `None` means all.
    pub(crate) fn fetch(&self, scope: usize, lanes: Option<&BTreeMap<i16, i64>>) -> Vec<usize> {
        let wanted = |row: &usize| {
            let it = &self.rows[*row];
            it.scope == scope
                && it.is_open()
                && lanes.is_none_or(|lanes| lanes.contains_key(&self.lane(*row)))
                && !self.parked.contains(&(scope, it.key))
                && !self.is_behind(*row)
        };
        (0..self.rows.len()).filter(wanted).collect()
    }

    /// Returns true if the row must wait for its time, or for an earlier row of its key.
    fn is_behind(&self, row: usize) -> bool {
        let it = &self.rows[row];
        let fresh = it.time == Time::None;
        let mut earlier = (0..row).filter(|e| {
            let e = &self.rows[*e];
            e.scope == it.scope && e.key == it.key && e.is_open()
        });
        it.time == Time::Later
            || earlier.any(|earlier| {
                let due = self.rows[earlier].time != Time::Later;
                self.holds(earlier) && (fresh || !due || !self.rules.due_behind_due)
            })
    }

    /// A row with a time holds its key, unless it is only sent with a delay.
    pub(crate) fn holds(&self, row: usize) -> bool {
        self.rows[row].time != Time::None && self.rows[row].state == State::Retry
    }

    /// Returns the rows that a fetch of a destination must give, and those that it may give: a row behind a
    /// waiting row of its key may come together with it, or after it is settled.
    pub(crate) fn fetch_outbox(
        &self,
        scope: usize,
        lanes: Option<&BTreeMap<i16, i64>>,
    ) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let may_go = |row: &usize| {
            let it = &self.rows[*row];
            it.scope == scope
                && it.is_open()
                && it.time != Time::Later
                && lanes.is_none_or(|lanes| lanes.contains_key(&self.lane(*row)))
                && !self.parked.contains(&(scope, it.key))
                && (it.delayed
                    || !self
                        .earlier(*row)
                        .any(|e| self.holds(e) && self.rows[e].time == Time::Later))
        };
        let may: BTreeSet<usize> = (0..self.rows.len()).filter(may_go).collect();
        let is_first = |row: &usize| !self.earlier(*row).any(|e| self.rows[e].may_wait);
        (may.iter().copied().filter(is_first).collect(), may)
    }

    /// Returns the earlier open rows of the key that have a place in its order: not those sent with a delay.
    pub(crate) fn earlier(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        let it = &self.rows[row];
        (0..row).filter(|e| {
            let e = &self.rows[*e];
            let is_delayed = e.state == State::Fresh && e.time != Time::None;
            e.scope == it.scope && e.key == it.key && e.is_open() && !is_delayed
        })
    }

    /// Returns true if a worker may not have sent the row yet: it sends the rows of a key one after the other, so
    /// it settles an earlier one first.
    pub(crate) fn is_unsent(&self, row: usize) -> bool {
        let it = &self.rows[row];
        let is_fresh = |e: usize| self.rows[e].state == State::Fresh;
        it.scope != INBOX && !it.delayed && self.earlier(row).any(is_fresh)
    }

    /// A row of the key waits, or the key is parked or freed: its open rows may wait too.
    fn trouble(&mut self, place: (usize, usize)) {
        let of_key = |row: &&mut Row| (row.scope, row.key) == place && row.is_open();
        self.rows.iter_mut().filter(of_key).for_each(|row| row.may_wait = row.scope != INBOX);
    }

    pub(crate) fn write(&mut self, mut row: Row) -> usize {
        let place = (row.scope, row.key);
        let waits = |e: &Row| (e.scope, e.key) == place && e.is_open() && e.may_wait;
        row.may_wait =
            row.scope != INBOX && (self.parked.contains(&place) || self.rows.iter().any(waits));
        self.rows.push(row);
        self.rows.len() - 1
    }

    pub(crate) fn find(&self, ident: Ident) -> Option<usize> {
        self.rows.iter().position(|row| row.ident == ident && row.state != State::Gone)
    }

    pub(crate) fn lease(&mut self, scope: usize, worker: usize) -> LaneGrant {
        (self.announced[scope][worker], self.expired[worker]) = (true, false);
        let expired = self.expired;
        let is_live = |worker: &usize| self.announced[scope][*worker] && !expired[*worker];
        let share = share((0..WORKERS.len()).filter(is_live).count());
        let lanes = &mut self.lanes[scope];
        let mut owned: Vec<usize> =
            (0..lanes.len()).filter(|lane| lanes[*lane].owner == Some(worker)).collect();
        let loose = |lane: &usize| lanes[*lane].owner.is_none_or(|owner| expired[owner]);
        let wanted = share.saturating_sub(owned.len());
        let taken: Vec<usize> = (0..lanes.len()).filter(loose).take(wanted).collect();
        let unclean: BTreeSet<usize> =
            taken.iter().copied().filter(|lane| lanes[*lane].owner.is_some()).collect();
        for lane in &taken {
            lanes[*lane] = Lane { owner: Some(worker), epoch: lanes[*lane].epoch + 1 };
        }
        owned.extend(taken);
        owned.sort_unstable();
        let lanes: Vec<OwnedLane> = owned
            .into_iter()
            .map(|lane| OwnedLane {
                lane: i16::try_from(lane).expect("a lane"),
                epoch: lanes[lane].epoch,
                unclean: unclean.contains(&lane),
            })
            .collect();
        self.memory[scope][worker].extend(lanes.iter().map(|lane| (lane.lane, lane.epoch)));
        let surplus = lanes.len().saturating_sub(share);
        let of = |other: usize| self.lanes[scope].iter().filter(|l| l.owner == Some(other)).count();
        let has_more = (0..WORKERS.len()).any(|other| other != worker && of(other) > share);
        let unsettled = lanes.len() < share && has_more;
        LaneGrant { surplus, lanes, unsettled, ..LaneGrant::default() }
    }

    pub(crate) fn release(&mut self, scope: usize, worker: usize, given: &[i16], leaving: bool) {
        for (number, lane) in (0_i16..).zip(&mut self.lanes[scope]) {
            if lane.owner == Some(worker) && (leaving || given.contains(&number)) {
                lane.owner = None;
            }
        }
        if leaving {
            self.announced[scope][worker] = false;
        }
    }

    /// The fence, and that the row is open.
    pub(crate) fn may_change(&self, row: usize, worker: usize, epoch: i64) -> bool {
        let lane = self.lane_state(row);
        lane.owner == Some(worker) && lane.epoch == epoch && self.rows[row].is_open()
    }

    /// Carries out one row of a settlement that may.
    pub(crate) fn settle(&mut self, row: usize, fate: Fate) {
        let it = &mut self.rows[row];
        let place = (it.scope, it.key);
        match fate {
            Fate::Done => {
                (it.state, it.time) = (State::Done, Time::None);
                it.attempts += 1;
            }
            Fate::Retry { attempts, due } => {
                (it.state, it.attempts, it.lost) = (State::Retry, attempts, 0);
                it.time = if due { Time::Due } else { Time::Later };
            }
            Fate::Wait { lost, due } => {
                (it.state, it.lost) = (State::Retry, lost);
                it.time = if due { Time::Due } else { Time::Later };
            }
            Fate::Dead { attempts, park } => {
                (it.state, it.attempts, it.time) = (State::Failed, attempts, Time::None);
                let parks = park;
                self.dead.push(Dead { row, conflict: None, attempts, parks, resolved: false });
                if park {
                    self.parked.insert(place);
                }
            }
            Fate::Untouched => {}
        }
        if !matches!(fate, Fate::Done | Fate::Untouched) {
            self.trouble(place);
        }
    }

    /// Takes a received message in.
    pub(crate) fn accept(&mut self, message: u8, variant: u8) -> AcceptOutcome {
        let key = usize::from(message) % KEYS.len();
        let ident = Ident::Received(message);
        let Some(row) = self.find(ident) else {
            let state = if variant == UNDECODABLE { State::Undecodable } else { State::Fresh };
            let (attempts, lost, time) = (0, 0, Time::None);
            let (delayed, may_wait) = (false, false);
            self.write(Row {
                scope: INBOX,
                key,
                ident,
                variant,
                state,
                attempts,
                lost,
                time,
                delayed,
                may_wait,
            });
            return AcceptOutcome::Stored;
        };
        if self.rows[row].variant == variant {
            return AcceptOutcome::Duplicate;
        }
        let known = |dead: &Dead| dead.row == row && dead.conflict == Some(variant);
        if !self.dead.iter().any(known) {
            let conflict = Some(variant);
            let (attempts, parks, resolved) = (0, false, false);
            self.dead.push(Dead { row, conflict, attempts, parks, resolved });
        }
        AcceptOutcome::Conflict
    }

    /// Carries out an operator's decision. Returns the row it accepts, if it is about a conflict.
    pub(crate) fn resolve(&mut self, dead: usize, resolution: Resolution) -> Option<usize> {
        self.dead[dead].resolved = true;
        let Dead { row, conflict, .. } = self.dead[dead];
        let place = (self.rows[row].scope, self.rows[row].key);
        let another = self.dead.iter().any(|other| {
            let it = &self.rows[other.row];
            !other.resolved && other.parks && (it.scope, it.key) == place
        });
        if !another && conflict.is_none() {
            self.parked.remove(&place);
        }
        if resolution == Resolution::Discarded {
            return None;
        }
        if let (Some(variant), Ident::Received(message)) = (conflict, self.rows[row].ident) {
            let ident = Ident::LetIn { message, variant };
            let (state, attempts, lost, time) = (State::Fresh, 0, 0, Time::None);
            let (scope, key) = place;
            let (delayed, may_wait) = (false, false);
            let row =
                Row { scope, key, ident, variant, state, attempts, lost, time, delayed, may_wait };
            return Some(self.write(row));
        }
        let it = &mut self.rows[row];
        if it.state == State::Failed {
            (it.state, it.attempts, it.lost, it.time) = (State::Fresh, 0, 0, Time::None);
            self.trouble(place);
        }
        None
    }
}
