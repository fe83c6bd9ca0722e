//! The steps that may happen in a state.

use relais_core::{outbox::OutboxStatus, quarantine::Treatment};

use super::state::{
    Owner, RelayAnswer, RelayBug, RelayConfig, RelayItem, RelayState, RelayWorker, RowStage, Sweep,
};

/// One step. Workers and rows are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayAction {
    /// The worker gets the lane: free, of a crashed run, or because a live owner's lease ran out.
    Take(usize),
    Release(usize),
    /// The monotonic deadline of the worker's lease passes before a renewal is answered: it starts nothing.
    Expire(usize),
    /// The database reads rows for the worker; `due` says which rows in backoff are due (one bit each).
    Fetch {
        worker: usize,
        due: u8,
    },
    /// The rows of a read arrive; calls may have started and returned meanwhile.
    FetchArrives(usize),
    /// Notes a loss before the delivery, holds the row, or buries it.
    Note(usize, usize),
    Publish(usize, usize),
    Answered(usize, usize, RelayAnswer),
    /// The publisher's time limit passes; the copy may arrive later.
    TimesOut(usize, usize),
    /// The worker sends one settlement for all calls that returned, and continues with others.
    Settle(usize),
    /// The database carries the settlement out, in one transaction, and answers.
    Commit(usize),
    /// The database does not answer; it may have carried the settlement out.
    CommitLost {
        worker: usize,
        applied: bool,
    },
    /// The worker's process ends; it starts again with an empty memory and a new name.
    Crash(usize),
    /// A copy sent long ago arrives.
    Land(usize),
    Retry(usize),
    Skip(usize),
    /// An operator makes a pending row a dead letter, in whatever hands it is.
    Fail(usize),
    SweepReads,
    SweepWrites,
}

pub(super) fn enabled(config: &RelayConfig, state: &RelayState, actions: &mut Vec<RelayAction>) {
    for worker in 0..config.workers {
        of_lane(config, state, worker, actions);
        of_fetch(config, state, worker, actions);
        of_settlement(config, state, worker, actions);
        for row in config.rows() {
            of_item(config, state, worker, row, actions);
        }
    }
    for row in config.rows() {
        if state.limbo[row] > 0 {
            actions.push(RelayAction::Land(row));
        }
        let open = state.rows[row].status == OutboxStatus::Failed && !state.rows[row].skipped;
        if open && state.left.decisions > 0 {
            actions.extend([RelayAction::Retry(row), RelayAction::Skip(row)]);
        }
        if state.rows[row].status == OutboxStatus::Pending && state.left.given_up > 0 {
            actions.push(RelayAction::Fail(row));
        }
    }
    if config.has(RelayBug::StaleSweeper) {
        match state.sweep {
            Sweep::NotYet => actions.push(RelayAction::SweepReads),
            Sweep::Read(_) => actions.push(RelayAction::SweepWrites),
            Sweep::Done => {}
        }
    }
}

fn of_lane(
    config: &RelayConfig,
    state: &RelayState,
    worker: usize,
    actions: &mut Vec<RelayAction>,
) {
    let me = &state.workers[worker];
    let may_take = match state.lane.owner {
        Owner::Free => true,
        Owner::Lost => !config.has(RelayBug::NoTakeOver),
        Owner::Run(owner) => usize::from(owner) != worker && state.left.moves > 0,
    };
    if may_take {
        actions.push(RelayAction::Take(worker));
    }
    if state.left.moves == 0 {
        return;
    }
    let at_rest = |item: &RelayItem| matches!(item.stage, RowStage::Idle | RowStage::Queued);
    let done = me.items.iter().all(at_rest) || config.has(RelayBug::ReleaseInFlight);
    // The next owner would not know: caution is worked off, or the lease must run out.
    let careful = me.caution || me.items.iter().any(|item| item.cautious);
    let calm = !careful || config.has(RelayBug::ReleaseBeforeCaution);
    if state.is_owner(worker) && done && calm {
        actions.push(RelayAction::Release(worker));
    }
    let queued = me.asked != 0 || me.items.iter().any(|item| item.stage == RowStage::Queued);
    if me.held != 0 && queued {
        actions.push(RelayAction::Expire(worker));
    }
    if state.is_owner(worker) || me.items.iter().any(|item| item.stage != RowStage::Idle) {
        actions.push(RelayAction::Crash(worker));
    }
}

fn of_fetch(
    config: &RelayConfig,
    state: &RelayState,
    worker: usize,
    actions: &mut Vec<RelayAction>,
) {
    let me = &state.workers[worker];
    if me.asked != 0 {
        actions.push(RelayAction::FetchArrives(worker));
        return;
    }
    if me.held == 0 || me.items.iter().any(|item| item.cautious) {
        return;
    }
    let waiting = config
        .rows()
        .filter(|row| state.rows[*row].waiting)
        .fold(0_u8, |bits, row| bits | 1 << row);
    // Every subset of the rows in backoff may be the due one.
    let mut due = waiting;
    loop {
        if fetched(config, state, worker, due) != 0 {
            actions.push(RelayAction::Fetch { worker, due });
        }
        if due == 0 {
            break;
        }
        due = (due - 1) & waiting;
    }
}

/// The rows a fetch gives, one bit each: by id, none behind a row in backoff, none of a parked key,
/// none that the worker holds, none of a key whose failure it has not settled.
pub(super) fn fetched(config: &RelayConfig, state: &RelayState, worker: usize, due: u8) -> u8 {
    let is_due = |row: usize| due & (1 << row) != 0;
    let comes = |row: &usize| {
        let it = &state.rows[*row];
        let ready = it.status == OutboxStatus::Pending && (!it.waiting || is_due(*row));
        let me = &state.workers[worker];
        let free = me.items[*row].stage == RowStage::Idle;
        let failed = me.has_unsettled_failure(config, *row);
        let holds = |earlier: usize| {
            let due_too = it.waiting && is_due(earlier);
            let blind =
                config.has(RelayBug::UncountedHoldsNoKey) && state.rows[earlier].attempts == 0;
            state.rows[earlier].waiting && !due_too && !blind
        };
        let held = config.same_key(*row).take_while(|earlier| earlier < row).any(holds);
        ready
            && (free || config.has(RelayBug::StaleFetch))
            && (!failed || config.has(RelayBug::ReadPastFailure))
            && (!state.is_parked(config, *row) || config.has(RelayBug::FetchPastParked))
            && (!held || config.has(RelayBug::FetchPastBackoff))
    };
    config.rows().filter(comes).take(config.batch).fold(0, |bits, row| bits | 1 << row)
}

fn of_item(
    config: &RelayConfig,
    state: &RelayState,
    worker: usize,
    row: usize,
    actions: &mut Vec<RelayAction>,
) {
    let me = &state.workers[worker];
    let item = me.items[row];
    match item.stage {
        RowStage::Idle => {}
        RowStage::Queued if config.treatment(item) != Treatment::Send => {
            if alone(config, me, row) && first_of_key(config, me, row) {
                actions.push(RelayAction::Note(worker, row));
            }
        }
        RowStage::Queued | RowStage::Noted => {
            if first_of_key(config, me, row) {
                actions.push(RelayAction::Publish(worker, row));
            }
        }
        RowStage::Publishing => {
            actions.push(RelayAction::Answered(worker, row, RelayAnswer::Accepted));
            if state.left.answers > 0 {
                for bad in [RelayAnswer::Failed, RelayAnswer::Rejected, RelayAnswer::Outage] {
                    actions.push(RelayAction::Answered(worker, row, bad));
                }
                actions.push(RelayAction::TimesOut(worker, row));
            }
        }
        RowStage::Answered(_) | RowStage::Settling(_) => {}
    }
}

/// One settlement of a worker is on its way at a time; its answer is not read while losses are noted.
fn of_settlement(
    config: &RelayConfig,
    state: &RelayState,
    worker: usize,
    actions: &mut Vec<RelayAction>,
) {
    let me = &state.workers[worker];
    let any = |is: fn(RowStage) -> bool| me.items.iter().any(|item| is(item.stage));
    if !any(|stage| matches!(stage, RowStage::Settling(_))) {
        if any(|stage| matches!(stage, RowStage::Answered(_))) {
            actions.push(RelayAction::Settle(worker));
        }
        return;
    }
    let refused = config.refused.map(|row| me.items[row].stage);
    let is_refused = refused.is_some_and(|stage| matches!(stage, RowStage::Settling(_)));
    if is_refused && config.has(RelayBug::RefusedTogether) {
        return;
    }
    if any(|stage| stage == RowStage::Noted) {
        return;
    }
    actions.push(RelayAction::Commit(worker));
    if state.left.lost > 0 && state.is_owner(worker) {
        for applied in [false, true] {
            actions.push(RelayAction::CommitLost { worker, applied });
        }
    }
}

/// Suspects go one at a time.
fn alone(config: &RelayConfig, me: &RelayWorker, row: usize) -> bool {
    let suspect = |item: &RelayItem| config.treatment(*item) == Treatment::SendAlone;
    let flies = |item: &RelayItem| !matches!(item.stage, RowStage::Idle | RowStage::Queued);
    let busy = |(other, item): (usize, &RelayItem)| other != row && flies(item) && suspect(item);
    let together = config.has(RelayBug::SuspectsTogether);
    together || !suspect(&me.items[row]) || !me.items.iter().enumerate().any(busy)
}

/// The key guard: nothing of the key before this row, in flight or failed. An accepted row need not be
/// settled.
fn first_of_key(config: &RelayConfig, me: &RelayWorker, row: usize) -> bool {
    if config.has(RelayBug::NoKeyGuard) {
        return true;
    }
    config.same_key(row).filter(|other| *other != row).all(|other| match me.items[other].stage {
        RowStage::Idle
        | RowStage::Answered(RelayAnswer::Accepted)
        | RowStage::Settling(RelayAnswer::Accepted) => true,
        RowStage::Queued | RowStage::Noted => other > row,
        RowStage::Answered(_) | RowStage::Settling(_) => config.has(RelayBug::BatchGoesOn),
        RowStage::Publishing => false,
    })
}
