//! Rows that wait in a table of their own, and the position from which a fetch walks along fresh rows.
//!
//! One key of one destination: rows whose ids are drawn in order and committed in any order, one row in flight, a
//! fetch that passes blocked rows, settlements that release them, an operator, and take-overs. Pass and settlement
//! are transactions of several steps.
//!
//! Invariant: the correct machine breaks no `always` property; each [`WaitingBug`] breaks the one that names
//! its harm.

use stateright::{Model, Property};

use super::{ModelGoal, ModelReport, explore};

/// Rows of the key.
pub const WAITING_ROWS: usize = 4;

/// A fetch finds every pending row: it is behind the position, or it waits.
pub const FOUND: &str = "every pending row is behind the position or waits";
/// A row that waits behind another becomes due when that one is settled.
pub const RELEASED: &str = "a row behind has something in its way";
/// No row waits that was settled.
pub const WAITS: &str = "a waiting row is pending";

/// A planted mistake. Each must break a named property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingBug {
    /// The position moves past ids whose transactions are open.
    PositionPastWriter,
    /// A pass does not lock the row in the way.
    PassWithoutLock,
    /// A release is part of the statement that settles, and has its snapshot.
    ReleaseInSameStatement,
    /// A row that an operator sends again is fresh.
    ReopenedFresh,
    /// A pass does not prove the epoch, nor that the row is still fresh.
    PassWithoutFence,
}

/// The bounds of one model.
#[derive(Clone, Copy, Debug)]
pub struct WaitingConfig {
    /// Deliveries that fail for now.
    pub failures: u8,
    /// Delivered rows that an operator sends again.
    pub reopened: u8,
    pub takeovers: u8,
    pub bug: Option<WaitingBug>,
}

/// The state of a row in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RowPlace {
    #[default]
    NotDrawn,
    /// Its id is drawn, its transaction is open.
    Open,
    /// Pending, and in no other table.
    Fresh,
    /// Waiting: until its time, because of a failure.
    Backoff,
    /// Waiting: its time has come.
    Due,
    /// Waiting: behind another waiting row.
    Behind,
    Settled,
}

impl RowPlace {
    fn waits(self) -> bool {
        matches!(self, Self::Backoff | Self::Due | Self::Behind)
    }
}

/// A blocked row that a fetch met, with the row in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockedRead {
    pub epoch: u8,
    pub row: usize,
    pub holder: usize,
}

/// A settlement on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenSettlement {
    pub row: usize,
    /// The rows behind it in the snapshot of its first statement, one bit each.
    pub seen: u8,
    /// It has locked the row.
    pub locked: bool,
}

/// One state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitingModelState {
    pub rows: [RowPlace; WAITING_ROWS],
    /// Rows below are not fresh.
    pub position: usize,
    pub epoch: u8,
    pub in_flight: Option<usize>,
    pub read: Option<BlockedRead>,
    pub pass: Option<BlockedRead>,
    pub settlement: Option<OpenSettlement>,
    /// The end of the rows that a fetch has returned.
    pub highest: usize,
    /// The end of the rows that are decided once these writers have ended, one bit each.
    pub note: Option<(usize, u8)>,
    pub left: [u8; 3],
    /// A row that was not fresh was passed (proof).
    pub is_stale: bool,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingAction {
    Draw,
    Commit(usize),
    /// The time of a row in backoff comes, or an operator sends it now.
    ComesDue(usize),
    Fetch,
    BeginPass,
    CommitPass,
    /// The settlement of the row in flight takes its snapshot.
    BeginSettlement,
    /// It locks the row and marks it.
    Mark,
    /// It releases and commits.
    CommitSettlement,
    Fail,
    NoteWriters,
    MovePosition,
    Reopen(usize),
    TakeOver,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct WaitingModel(pub WaitingConfig);

const FAILURES: usize = 0;
const REOPENED: usize = 1;
const TAKEOVERS: usize = 2;

impl WaitingModelState {
    fn holder_of(&self, row: usize) -> Option<usize> {
        (0..row).find(|earlier| self.rows[*earlier].waits())
    }

    fn bits(&self, is: impl Fn(RowPlace) -> bool) -> u8 {
        let rows = self.rows.iter().enumerate().filter(|(_, place)| is(**place));
        rows.fold(0, |bits, (row, _)| bits | 1 << row)
    }

    /// The first row that may go, and the first one that is blocked behind a waiting row.
    fn fetched(&self) -> (Option<usize>, Option<BlockedRead>) {
        let is_fresh = |row: &usize| self.rows[*row] == RowPlace::Fresh && *row >= self.position;
        let held = |row: usize| {
            (0..row).any(|e| matches!(self.rows[e], RowPlace::Backoff | RowPlace::Behind))
        };
        let may_go = |row: &usize| match self.rows[*row] {
            RowPlace::Due => !held(*row),
            _ => is_fresh(row) && self.holder_of(*row).is_none(),
        };
        let blocked = (0..WAITING_ROWS).filter(is_fresh).find_map(|row| {
            self.holder_of(row).map(|holder| BlockedRead { epoch: self.epoch, row, holder })
        });
        ((0..WAITING_ROWS).find(may_go), blocked)
    }
}

impl WaitingModel {
    fn has(&self, bug: WaitingBug) -> bool {
        self.0.bug == Some(bug)
    }

    /// Returns whether the pass of a read may begin now; otherwise its row is left to the next fetch.
    fn may_pass(&self, state: &WaitingModelState, read: BlockedRead) -> bool {
        let is_locked = state.settlement.is_some_and(|s| s.locked && s.row == read.holder);
        self.has(WaitingBug::PassWithoutFence)
            || read.epoch == state.epoch
                && state.rows[read.row] == RowPlace::Fresh
                && state.in_flight != Some(read.row)
                && state.rows[read.holder].waits()
                && (!is_locked || self.has(WaitingBug::PassWithoutLock))
    }

    fn settle(&self, state: &mut WaitingModelState, settlement: OpenSettlement) {
        let behind = state.bits(|place| place == RowPlace::Behind);
        let released = match self.has(WaitingBug::ReleaseInSameStatement) {
            true => settlement.seen & behind,
            false => behind,
        };
        let waited = state.rows[settlement.row].waits();
        state.rows[settlement.row] = RowPlace::Settled;
        for row in 0..WAITING_ROWS {
            if waited && released & 1 << row != 0 {
                state.rows[row] = RowPlace::Due;
            }
        }
        (state.settlement, state.in_flight) = (None, None);
    }
}

impl Model for WaitingModel {
    type State = WaitingModelState;
    type Action = WaitingAction;

    fn init_states(&self) -> Vec<WaitingModelState> {
        let WaitingConfig { failures, reopened, takeovers, .. } = self.0;
        vec![WaitingModelState {
            rows: [RowPlace::NotDrawn; WAITING_ROWS],
            position: 0,
            epoch: 1,
            in_flight: None,
            read: None,
            pass: None,
            settlement: None,
            highest: 0,
            note: None,
            left: [failures, reopened, takeovers],
            is_stale: false,
        }]
    }

    fn actions(&self, state: &WaitingModelState, actions: &mut Vec<WaitingAction>) {
        let (sendable, blocked) = state.fetched();
        if state.rows.contains(&RowPlace::NotDrawn) {
            actions.push(WaitingAction::Draw);
        }
        for (row, place) in state.rows.iter().enumerate() {
            match place {
                RowPlace::Open => actions.push(WaitingAction::Commit(row)),
                RowPlace::Backoff => actions.push(WaitingAction::ComesDue(row)),
                RowPlace::Settled if state.left[REOPENED] > 0 => {
                    actions.push(WaitingAction::Reopen(row));
                }
                _ => {}
            }
        }
        if state.in_flight.is_none()
            && state.read.is_none()
            && sendable.or(blocked.map(|b| b.row)).is_some()
        {
            actions.push(WaitingAction::Fetch);
        }
        if state.pass.is_some() {
            actions.push(WaitingAction::CommitPass);
        } else if state.read.is_some() {
            actions.push(WaitingAction::BeginPass);
        }
        match state.settlement {
            Some(settlement) if settlement.locked => actions.push(WaitingAction::CommitSettlement),
            Some(settlement) => {
                // It waits for a pass that holds the row.
                let waits = state.pass.is_some_and(|pass| pass.holder == settlement.row);
                if !waits || self.has(WaitingBug::PassWithoutLock) {
                    actions.push(WaitingAction::Mark);
                }
            }
            None if state.in_flight.is_some() => {
                actions.push(WaitingAction::BeginSettlement);
                if state.left[FAILURES] > 0 {
                    actions.push(WaitingAction::Fail);
                }
            }
            None => {}
        }
        match state.note {
            None if state.highest > state.position => actions.push(WaitingAction::NoteWriters),
            Some((_, writers)) if writers & state.bits(|place| place == RowPlace::Open) == 0 => {
                actions.push(WaitingAction::MovePosition);
            }
            _ => {}
        }
        // A lane is taken over only between its transactions: they lock it.
        if state.left[TAKEOVERS] > 0 && state.pass.is_none() && state.settlement.is_none() {
            actions.push(WaitingAction::TakeOver);
        }
    }

    fn next_state(
        &self,
        state: &WaitingModelState,
        action: WaitingAction,
    ) -> Option<WaitingModelState> {
        let mut next = state.clone();
        match action {
            WaitingAction::Draw => {
                let row = state.rows.iter().position(|place| *place == RowPlace::NotDrawn)?;
                next.rows[row] = RowPlace::Open;
            }
            WaitingAction::Commit(row) => next.rows[row] = RowPlace::Fresh,
            WaitingAction::ComesDue(row) => next.rows[row] = RowPlace::Due,
            WaitingAction::Fetch => {
                (next.in_flight, next.read) = state.fetched();
                let seen = [next.in_flight, next.read.map(|read| read.row)];
                let end = seen.into_iter().flatten().max().map_or(0, |row| row + 1);
                next.highest = state.highest.max(end);
            }
            WaitingAction::BeginPass => {
                next.pass = state.read.filter(|read| self.may_pass(state, *read));
                next.read = None;
            }
            WaitingAction::CommitPass => {
                let pass = state.pass?;
                next.is_stale |= state.rows[pass.row] != RowPlace::Fresh;
                next.rows[pass.row] = RowPlace::Behind;
                next.pass = None;
            }
            WaitingAction::BeginSettlement => {
                let seen = state.bits(|place| place == RowPlace::Behind);
                next.settlement =
                    Some(OpenSettlement { row: state.in_flight?, seen, locked: false });
            }
            WaitingAction::Mark => {
                next.settlement = state.settlement.map(|s| OpenSettlement { locked: true, ..s });
            }
            WaitingAction::CommitSettlement => self.settle(&mut next, state.settlement?),
            WaitingAction::Fail => {
                next.left[FAILURES] -= 1;
                next.rows[state.in_flight?] = RowPlace::Backoff;
                next.in_flight = None;
            }
            WaitingAction::NoteWriters => {
                let open = state.bits(|place| place == RowPlace::Open);
                let is_blind = self.has(WaitingBug::PositionPastWriter);
                next.note = Some((state.highest, if is_blind { 0 } else { open }));
            }
            WaitingAction::MovePosition => {
                let lowest = state.rows.iter().enumerate().skip(state.position);
                let lowest =
                    lowest.filter(|(_, place)| **place == RowPlace::Fresh).map(|(row, _)| row);
                let (decided, _) = state.note?;
                next.position = state.position.max(decided.min(lowest.min().unwrap_or(decided)));
                // What is returned later is noted later.
                (next.note, next.highest) = (None, next.position);
            }
            WaitingAction::Reopen(row) => {
                next.left[REOPENED] -= 1;
                let is_fresh = self.has(WaitingBug::ReopenedFresh);
                next.rows[row] = if is_fresh { RowPlace::Fresh } else { RowPlace::Due };
            }
            WaitingAction::TakeOver => {
                next.left[TAKEOVERS] -= 1;
                (next.epoch, next.in_flight) = (state.epoch + 1, None);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FOUND, |_, state: &WaitingModelState| {
                !state.rows[..state.position].contains(&RowPlace::Fresh)
            }),
            Property::always(RELEASED, |_, state: &WaitingModelState| {
                let is_behind = |row: &usize| state.rows[*row] == RowPlace::Behind;
                state.settlement.is_some()
                    || (0..WAITING_ROWS).filter(is_behind).all(|row| state.holder_of(row).is_some())
            }),
            Property::always(WAITS, |_, state: &WaitingModelState| !state.is_stale),
            Property::sometimes("all rows are settled", |_, state: &WaitingModelState| {
                state.rows.iter().all(|place| *place == RowPlace::Settled)
            }),
            Property::sometimes("a row is passed and released", |_, state: &WaitingModelState| {
                state.rows.contains(&RowPlace::Behind) && state.rows.contains(&RowPlace::Settled)
            }),
            Property::sometimes("a commit behind the position", |_, state: &WaitingModelState| {
                state.position > 0 && state.rows.contains(&RowPlace::Open)
            }),
        ]
    }
}

/// Visits every state of the machine.
pub fn exhaust(name: &str, config: WaitingConfig) -> ModelReport {
    explore(name, WaitingModel(config), ModelGoal::Exhausted)
}

/// Runs a machine with a planted bug until `property` breaks.
pub fn hunt(config: WaitingConfig, property: &'static str) -> ModelReport {
    explore(&format!("{:?}", config.bug), WaitingModel(config), ModelGoal::Broken(property))
}
