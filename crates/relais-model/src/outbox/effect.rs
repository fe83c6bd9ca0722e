//! The effect of each step on the state.

use relais_core::{
    outbox::{OutboxFate, OutboxStatus},
    quarantine::{CLEARED, HOLD_AFTER, Treatment},
};

use super::{
    state::{Owner, RelayAnswer, RelayBug, RelayConfig, RelayItem, RelayState, RowStage, Sweep},
    step::{RelayAction, fetched},
};

pub(super) fn apply(config: &RelayConfig, state: &mut RelayState, action: RelayAction) {
    match action {
        RelayAction::Take(worker) => take(config, state, worker),
        RelayAction::Release(worker) => {
            state.left.moves -= 1;
            state.lane.owner = Owner::Free;
            let me = &mut state.workers[worker];
            me.drop_queue(config);
            (me.held, me.caution, me.asked) = (0, false, 0);
        }
        RelayAction::Expire(worker) => {
            state.left.moves -= 1;
            let me = &mut state.workers[worker];
            let is_suspect = |item: &RelayItem| item.stage == RowStage::Queued && item.cautious;
            let suspects = me.items.iter().any(is_suspect);
            me.drop_queue(config);
            me.caution |= suspects && !config.has(RelayBug::DroppedSuspectForgotten);
        }
        RelayAction::Fetch { worker, due } => {
            let rows = fetched(config, state, worker, due);
            if config.counts_kills() {
                enter(config, state, worker, rows);
            } else {
                state.workers[worker].asked = rows;
            }
        }
        RelayAction::FetchArrives(worker) => {
            let rows = std::mem::take(&mut state.workers[worker].asked);
            enter(config, state, worker, rows);
        }
        RelayAction::Note(worker, row) => note(config, state, worker, row),
        RelayAction::Publish(worker, row) => publish(config, state, worker, row),
        RelayAction::Answered(worker, row, answer) => answered(config, state, worker, row, answer),
        RelayAction::TimesOut(worker, row) => {
            state.limbo[row] += 1;
            answered(config, state, worker, row, RelayAnswer::Failed);
        }
        RelayAction::Settle(worker) => {
            for item in &mut state.workers[worker].items {
                if let RowStage::Answered(answer) = item.stage {
                    item.stage = RowStage::Settling(answer);
                }
            }
            if config.counts_kills() {
                commit(config, state, worker);
            }
        }
        RelayAction::Commit(worker) => commit(config, state, worker),
        RelayAction::CommitLost { worker, applied } => commit_lost(config, state, worker, applied),
        RelayAction::Crash(worker) => crash(config, state, worker),
        RelayAction::Land(row) => {
            state.limbo[row] -= 1;
            state.rows[row].delivered = true;
        }
        RelayAction::Retry(row) => retry(state, row),
        RelayAction::Skip(row) => {
            state.left.decisions -= 1;
            (state.rows[row].parks, state.rows[row].skipped) = (false, true);
        }
        RelayAction::Fail(row) => fail(config, state, row),
        RelayAction::SweepReads => {
            let pending = |row: &usize| state.rows[*row].status == OutboxStatus::Pending;
            state.sweep =
                Sweep::Read(config.rows().filter(pending).fold(0, |bits, row| bits | 1 << row));
        }
        RelayAction::SweepWrites => sweep(config, state),
    }
}

fn take(config: &RelayConfig, state: &mut RelayState, worker: usize) {
    let unclean = state.lane.owner != Owner::Free;
    if matches!(state.lane.owner, Owner::Run(_)) {
        state.left.moves -= 1;
    }
    let before = 1_u8 << state.lane.epoch;
    state.lane.epoch += 1;
    state.lane.owner = Owner::Run(u8::try_from(worker).expect("few workers"));
    // A clean hand-over is no reason to publish a row again.
    for row in &mut state.rows {
        if !unclean && row.started & before != 0 {
            row.started |= before << 1;
        }
    }
    let me = &mut state.workers[worker];
    me.drop_queue(config);
    // Rows of an old read carry the old epoch: the worker drops them when they arrive.
    (me.held, me.asked, me.refused) = (state.lane.epoch, 0, 0);
    me.caution = unclean && !config.has(RelayBug::NoCaution);
    if unclean {
        lose_worker(config, state);
    }
}

/// Rows that were held when a worker was lost were not the reason, and go again; of the others each may
/// have been.
fn lose_worker(config: &RelayConfig, state: &mut RelayState) {
    let held = small(HOLD_AFTER);
    for row in state.rows.iter_mut().filter(|row| row.status == OutboxStatus::Pending) {
        if row.lost == held && !config.has(RelayBug::HeldRowsAreBlamed) {
            row.lost = small(CLEARED);
            row.acquitted += 1;
            row.deaths = 0;
        } else if config.counts_kills() && row.lost != held {
            row.deaths += 1;
        }
    }
}

fn enter(config: &RelayConfig, state: &mut RelayState, worker: usize, rows: u8) {
    let me = &mut state.workers[worker];
    let idle = |row: &usize| me.items[*row].stage == RowStage::Idle;
    let free = |row: &usize| rows & (1 << row) != 0 && idle(row) && me.held != 0;
    let rows: Vec<usize> = config.rows().filter(free).collect();
    let cautious = std::mem::take(&mut me.caution);
    for row in rows {
        if cautious && config.has(RelayBug::AttemptAtRead) {
            state.rows[row].attempts += 1;
        }
        let (attempts, lost) = (state.rows[row].attempts, state.rows[row].lost);
        let (stage, epoch) = (RowStage::Queued, me.held);
        me.items[row] = RelayItem { stage, epoch, attempts, lost, cautious, settled: false };
    }
}

/// Applies the rule about rows that may have killed their worker, before a row is published.
fn note(config: &RelayConfig, state: &mut RelayState, worker: usize, row: usize) {
    let item = state.workers[worker].items[row];
    let treatment = match config.treatment(item) {
        Treatment::SendAlone if config.has(RelayBug::HeldRowsAreBlamed) && item.cautious => {
            Treatment::Bury
        }
        treatment => treatment,
    };
    match treatment {
        Treatment::Bury => {
            state.workers[worker].items[row].stage = RowStage::Answered(RelayAnswer::Buried);
            drop_key(config, state, worker, row);
        }
        _ if !writes(config, state, worker, row) => {
            let epoch = item.epoch;
            state.workers[worker].items[row] = RelayItem::default();
            refuse(config, state, worker, epoch);
        }
        Treatment::Hold => {
            let it = &mut state.rows[row];
            (it.lost, it.waiting) = (small(HOLD_AFTER), true);
            state.workers[worker].items[row] = RelayItem::default();
            drop_key(config, state, worker, row);
        }
        Treatment::NoteAndSend | Treatment::SendAlone | Treatment::Send => {
            state.rows[row].lost += 1;
            state.workers[worker].items[row].stage = RowStage::Noted;
        }
    }
}

fn publish(config: &RelayConfig, state: &mut RelayState, worker: usize, row: usize) {
    if config.has(RelayBug::MarkBeforePublish) && writes(config, state, worker, row) {
        state.rows[row].status = OutboxStatus::Dispatched;
    }
    let item = &mut state.workers[worker].items[row];
    item.stage = RowStage::Publishing;
    let (bit, epoch) = (1_u8 << item.epoch, item.epoch);
    state.continued |= state.workers[worker].refused == epoch;
    state.uncaused |= state.rows[row].started & bit != 0;
    state.rows[row].started |= bit;
}

fn answered(
    config: &RelayConfig,
    state: &mut RelayState,
    worker: usize,
    row: usize,
    answer: RelayAnswer,
) {
    state.workers[worker].items[row].stage = RowStage::Answered(answer);
    if answer.is_bad() {
        state.left.answers -= 1;
        state.rows[row].started &= !(1 << state.workers[worker].items[row].epoch);
        drop_key(config, state, worker, row);
    } else {
        state.rows[row].delivered = true;
    }
}

/// Behind a failed row the rest of the key leaves the worker's queue, and the read on its way.
fn drop_key(config: &RelayConfig, state: &mut RelayState, worker: usize, row: usize) {
    if config.has(RelayBug::BatchGoesOn) {
        return;
    }
    for other in config.same_key(row) {
        state.workers[worker].drop_queued(config, other);
    }
}

/// The fence and the row's own state: whether a settlement takes effect.
fn writes(config: &RelayConfig, state: &mut RelayState, worker: usize, row: usize) -> bool {
    let holds = state.owns(worker, state.workers[worker].items[row].epoch);
    let passes = match config.bug {
        Some(RelayBug::NoFence) => true,
        Some(RelayBug::FenceByName) => state.lane.owner != Owner::Free,
        Some(RelayBug::FenceAcceptsNull) => holds || state.lane.owner == Owner::Free,
        _ => holds,
    };
    let is_open = state.rows[row].status == OutboxStatus::Pending;
    let takes_effect = passes && (is_open || config.has(RelayBug::SettlesWhatWasFailed));
    state.stale_write |= takes_effect && !holds;
    state.reopened |= takes_effect && !is_open;
    takes_effect
}

fn settle(config: &RelayConfig, state: &mut RelayState, worker: usize, row: usize) {
    let item = state.workers[worker].items[row];
    let RowStage::Settling(answer) = item.stage else { return };
    if !writes(config, state, worker, row) {
        return;
    }
    let is_refused = config.refused == Some(row);
    let it = &mut state.rows[row];
    match answer {
        // Settled before, without an answer: nothing new has failed since.
        _ if item.settled => {}
        // The dead letter names the reason.
        _ if is_refused => it.blame = config.attempts_max,
        RelayAnswer::Failed => it.blame += 1,
        RelayAnswer::Rejected => it.blame = config.attempts_max,
        // As many workers as it takes were lost since it last came back, or was acquitted.
        RelayAnswer::Buried if it.deaths >= deaths_of_a_killer(it.acquitted) && !it.accompanied => {
            it.blame = config.attempts_max;
        }
        RelayAnswer::Buried | RelayAnswer::Accepted | RelayAnswer::Outage => {}
    }
    if answer != RelayAnswer::Buried {
        (it.deaths, it.kills, it.acquitted, it.accompanied) = (0, 0, 0, false);
        if !config.has(RelayBug::NoteKept) {
            it.lost = 0;
        }
    }
    match config.fate(item, answer) {
        // Settled singly, with the reason.
        _ if is_refused => {
            (it.status, it.waiting, it.parks) = (OutboxStatus::Failed, false, true);
        }
        // How many attempts a finished row had changes nothing any more: fewer states.
        OutboxFate::Dispatched => {
            (it.status, it.waiting, it.attempts, it.blame) =
                (OutboxStatus::Dispatched, false, 0, 0);
            it.lost = 0;
        }
        OutboxFate::Retry { attempts, pause, .. } => {
            (it.attempts, it.waiting) = (small(attempts), !pause.is_zero());
        }
        OutboxFate::Dead { attempts, park, .. } => {
            (it.status, it.attempts) = (OutboxStatus::Failed, small(attempts));
            (it.waiting, it.parks) = (false, park);
        }
        OutboxFate::Wait { .. } => it.waiting = true,
        OutboxFate::Untouched => {}
    }
}

/// Lost workers before a row may be buried; the note that an acquitted row keeps stands for two of them.
fn deaths_of_a_killer(acquitted: u8) -> u8 {
    small(HOLD_AFTER) + 1 - if acquitted > 0 { 1 + small(CLEARED) } else { 0 }
}

/// One transaction settles the rows of several calls. A refusal stops the worker.
fn commit(config: &RelayConfig, state: &mut RelayState, worker: usize) {
    let mut refused = None;
    for row in settling(config, state, worker) {
        let epoch = state.workers[worker].items[row].epoch;
        if !state.owns(worker, epoch) {
            refused = Some(epoch);
        }
        settle(config, state, worker, row);
        state.workers[worker].items[row] = RelayItem::default();
    }
    if let Some(epoch) = refused {
        refuse(config, state, worker, epoch);
    }
}

/// A settlement without an answer is repeated, which changes nothing the second time. Not so a dead
/// letter: an operator may have acted in between. It is dropped, and fetched again if it is still open.
fn commit_lost(config: &RelayConfig, state: &mut RelayState, worker: usize, applied: bool) {
    state.left.lost -= 1;
    for row in settling(config, state, worker) {
        if applied {
            settle(config, state, worker, row);
        }
        let item = &mut state.workers[worker].items[row];
        let RowStage::Settling(answer) = item.stage else { continue };
        let is_dead = matches!(config.fate(*item, answer), OutboxFate::Dead { .. });
        if is_dead && !config.has(RelayBug::DeadLetterRepeated) {
            *item = RelayItem::default();
        } else {
            (item.stage, item.settled) = (RowStage::Answered(answer), item.settled || applied);
        }
    }
}

fn settling(config: &RelayConfig, state: &RelayState, worker: usize) -> Vec<usize> {
    let items = &state.workers[worker].items;
    config.rows().filter(|row| matches!(items[*row].stage, RowStage::Settling(_))).collect()
}

/// A worker that was refused asks who owns the lane before it starts anything else. Its queue is void. It still
/// owns the lane if only a row was not open any more.
fn refuse(config: &RelayConfig, state: &mut RelayState, worker: usize, epoch: u8) {
    let by_fence = !state.owns(worker, epoch);
    let owns = state.owns(worker, state.workers[worker].held);
    let me = &mut state.workers[worker];
    if by_fence {
        me.refused = epoch;
    }
    if config.has(RelayBug::ContinuesAfterRefusal) {
        return;
    }
    let unsent = |item: &RelayItem| matches!(item.stage, RowStage::Queued | RowStage::Noted);
    me.caution |= me.items.iter().any(|item| unsent(item) && item.cautious);
    me.drop_queue(config);
    // Losses are noted in one statement: if a row of it is refused, none of its rows is sent.
    for item in me.items.iter_mut().filter(|item| item.stage == RowStage::Noted) {
        *item = RelayItem::default();
    }
    if !owns {
        (me.held, me.caution, me.asked) = (0, false, 0);
    }
}

fn crash(config: &RelayConfig, state: &mut RelayState, worker: usize) {
    state.left.moves -= 1;
    let me = std::mem::take(&mut state.workers[worker]);
    let after_quarantine = |row: &usize| {
        let flies = matches!(me.items[*row].stage, RowStage::Noted | RowStage::Publishing);
        flies && u32::from(state.rows[*row].lost) > HOLD_AFTER
    };
    let suspects: Vec<usize> = config.rows().filter(after_quarantine).collect();
    for row in &suspects {
        state.rows[*row].accompanied = suspects.len() > 1;
    }
    for row in config.rows() {
        if me.items[row].stage == RowStage::Publishing {
            state.limbo[row] += 1;
            state.rows[row].kills += u8::from(config.counts_kills());
        }
    }
    if state.is_owner(worker) {
        state.lane.owner = Owner::Lost;
    }
}

fn retry(state: &mut RelayState, row: usize) {
    state.left.decisions -= 1;
    let it = &mut state.rows[row];
    it.status = OutboxStatus::Pending;
    (it.attempts, it.blame, it.kills, it.started) = (0, 0, 0, 0);
    (it.lost, it.deaths, it.acquitted, it.accompanied) = (0, 0, 0, false);
    it.parks = false;
}

fn fail(config: &RelayConfig, state: &mut RelayState, row: usize) {
    state.left.given_up -= 1;
    let it = &mut state.rows[row];
    (it.status, it.waiting) = (OutboxStatus::Failed, false);
    it.parks = !config.has(RelayBug::FailedByOperatorHoldsNoKey);
    // The operator names the reason.
    it.blame = config.attempts_max;
}

fn sweep(config: &RelayConfig, state: &mut RelayState) {
    let Sweep::Read(rows) = state.sweep else { return };
    for row in config.rows().filter(|row| rows & (1 << row) != 0) {
        state.reopened |= state.rows[row].status.is_terminal();
        state.rows[row].status = OutboxStatus::Pending;
        state.rows[row].parks = false;
    }
    state.sweep = Sweep::Done;
}

fn small(number: u32) -> u8 {
    u8::try_from(number).expect("few of everything")
}
