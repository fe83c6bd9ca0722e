//! The steps: what may happen in a state, and what it does.

use relais_core::{
    handler::Outcome,
    inbox::{InboxFate, InboxStatus, decide},
    retry::RetryPolicy,
};

use super::{
    HandlerRun, ReceiverBug, ReceiverConfig, ReceiverPhase, ReceiverState, SourceReading, WORKERS,
};

/// The result of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerAnswer {
    Retry,
    Fail,
    Park,
    /// Tried later without an attempt used, as a message of a process that is busy.
    PutOff,
}

impl HandlerAnswer {
    const BAD: [Self; 4] = [Self::Retry, Self::Fail, Self::Park, Self::PutOff];
}

/// One step. Workers and messages are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverAction {
    /// The source gives a message: the next, one not acknowledged, or a needless repetition.
    Receive {
        message: usize,
        needless: bool,
    },
    /// The source gives the next message while one is stored.
    ReadAhead(usize),
    /// The receiver's next transaction.
    Store,
    /// The receiver's transaction is rolled back: what it has is given again.
    StoreFails,
    Acknowledge,
    ReceiverCrashes,
    Take(usize),
    WorkerCrashes(usize),
    /// The owner gives the lane to a worker that knows the type of the message.
    HandOver(usize, usize),
    /// A worker makes a dead letter of a type that it does not know ([`ReceiverBug::UnknownFails`] only).
    FailUnknown(usize, usize),
    /// The handler of a message starts; its changes are not visible yet.
    Begin(usize, usize),
    /// The handler is done: its changes and the row's mark commit, or roll back.
    Commit(usize, usize),
    /// The handler rolled back; the worker settles the row.
    Settle(usize, usize, HandlerAnswer),
    Purge(usize),
    Retry(usize),
    Skip(usize),
}

pub(super) fn enabled(
    config: &ReceiverConfig,
    state: &ReceiverState,
    actions: &mut Vec<ReceiverAction>,
) {
    of_receiver(config, state, actions);
    for worker in 0..WORKERS {
        of_worker(config, state, worker, actions);
    }
    for message in config.messages() {
        let it = &state.messages[message];
        if it.status == Some(InboxStatus::Processed) && may_purge(config, state, message) {
            actions.push(ReceiverAction::Purge(message));
        }
        let open = it.status == Some(InboxStatus::Failed) && !it.skipped;
        if open && state.left.decisions > 0 {
            actions.extend([ReceiverAction::Retry(message), ReceiverAction::Skip(message)]);
        }
    }
}

fn of_receiver(config: &ReceiverConfig, state: &ReceiverState, actions: &mut Vec<ReceiverAction>) {
    match state.hand {
        ReceiverPhase::Empty => {
            for message in config.messages() {
                let acknowledged = state.messages[message].acknowledged;
                let read = message < usize::from(state.reading);
                if (message == usize::from(state.reading) || read) && !acknowledged {
                    actions.push(ReceiverAction::Receive { message, needless: false });
                } else if read && state.left.repeats > 0 {
                    actions.push(ReceiverAction::Receive { message, needless: true });
                }
            }
        }
        ReceiverPhase::Got(_) | ReceiverPhase::Half(_) => actions.push(ReceiverAction::Store),
        ReceiverPhase::Stored(_) => actions.push(ReceiverAction::Acknowledge),
    }
    if config.reading == SourceReading::Ahead {
        let next = usize::from(state.reading);
        let is_storing = state.hand != ReceiverPhase::Empty;
        if is_storing && state.ahead.is_none() && next < config.messages().end {
            actions.push(ReceiverAction::ReadAhead(next));
        }
        if matches!(state.hand, ReceiverPhase::Got(_)) && state.left.moves > 0 {
            actions.push(ReceiverAction::StoreFails);
        }
    }
    if state.left.moves > 0 && state.hand != ReceiverPhase::Empty {
        actions.push(ReceiverAction::ReceiverCrashes);
    }
}

fn of_worker(
    config: &ReceiverConfig,
    state: &ReceiverState,
    worker: usize,
    actions: &mut Vec<ReceiverAction>,
) {
    let me = &state.workers[worker];
    let is_owner = state.owns(worker, state.epoch);
    let wanted = state.wanted.is_none_or(|message| config.knows(worker, message.into()));
    let is_free = state.owner.is_none() && (wanted || config.has(ReceiverBug::WantedByAny));
    if is_free || (state.owner.is_some() && !is_owner && state.left.moves > 0) {
        actions.push(ReceiverAction::Take(worker));
    }
    let busy = me.runs.iter().any(Option::is_some);
    if state.left.moves > 0 && (is_owner || busy) {
        actions.push(ReceiverAction::WorkerCrashes(worker));
    }
    if state.owns(worker, me.held) && !busy {
        hand_over(config, state, worker, actions);
    }
    for message in config.messages() {
        match me.runs[message] {
            None if me.held > 0
                && config.knows(worker, message)
                && may_begin(config, state, worker, message) =>
            {
                actions.push(ReceiverAction::Begin(worker, message));
            }
            None => {}
            Some(_) => {
                actions.push(ReceiverAction::Commit(worker, message));
                if state.left.outcomes > 0 {
                    for says in HandlerAnswer::BAD {
                        actions.push(ReceiverAction::Settle(worker, message, says));
                    }
                }
            }
        }
    }
}

/// An owner with nothing in flight handles messages that it does not know: it gives the lane
/// away once there is nothing in it that it can do.
fn hand_over(
    config: &ReceiverConfig,
    state: &ReceiverState,
    worker: usize,
    actions: &mut Vec<ReceiverAction>,
) {
    let (known, unknown): (Vec<usize>, Vec<usize>) = config
        .messages()
        .filter(|message| may_begin(config, state, worker, *message))
        .partition(|message| config.knows(worker, *message));
    let may_leave = known.is_empty() || config.has(ReceiverBug::HandedOverEarly);
    if may_leave && state.hand_overs < config.hand_overs_max {
        actions.extend(unknown.iter().map(|message| ReceiverAction::HandOver(worker, *message)));
    }
    if config.has(ReceiverBug::UnknownFails) {
        actions.extend(unknown.iter().map(|message| ReceiverAction::FailUnknown(worker, *message)));
    }
}

/// The first open message of a key that is not parked and not in the worker's hands.
fn may_begin(
    config: &ReceiverConfig,
    state: &ReceiverState,
    worker: usize,
    message: usize,
) -> bool {
    let alike = |other: &usize| config.keys[*other] == config.keys[message];
    let runs = &state.workers[worker].runs;
    let passed = |earlier: usize| {
        let it = &state.messages[earlier];
        let put_off = it.status == Some(InboxStatus::Retry) && it.attempts == 0;
        (config.has(ReceiverBug::UnknownPassed) && !config.knows(worker, earlier))
            || (config.has(ReceiverBug::PutOffHoldsNoKey) && put_off)
    };
    let mut before = config.before(message).filter(|earlier| !passed(*earlier));
    let guarded = before.any(|earlier| state.messages[earlier].is_open())
        || config.messages().filter(alike).any(|other| runs[other].is_some());
    state.messages[message].is_open()
        && !state.is_parked(config, message)
        && (!guarded || config.has(ReceiverBug::NoKeyGuard))
}

/// Retention is longer than a source can repeat a message: it goes when none can come.
fn may_purge(config: &ReceiverConfig, state: &ReceiverState, message: usize) -> bool {
    let in_flight = match state.hand {
        ReceiverPhase::Empty => false,
        ReceiverPhase::Got(hand) | ReceiverPhase::Half(hand) | ReceiverPhase::Stored(hand) => {
            usize::from(hand) == message
        }
    };
    let in_flight = in_flight || state.ahead.is_some_and(|ahead| usize::from(ahead) == message);
    let over = state.messages[message].acknowledged
        && state.left.repeats == 0
        && usize::from(state.reading) > message
        && usize::from(state.position) > message
        && !in_flight;
    over || config.has(ReceiverBug::PurgedEarly)
}

pub(super) fn apply(config: &ReceiverConfig, state: &mut ReceiverState, action: ReceiverAction) {
    match action {
        ReceiverAction::Receive { message, needless } => {
            state.left.repeats -= u8::from(needless);
            state.hand = ReceiverPhase::Got(small(message));
            state.reading = state.reading.max(small(message + 1));
        }
        ReceiverAction::ReadAhead(message) => {
            (state.ahead, state.reading) = (Some(small(message)), small(message + 1));
        }
        ReceiverAction::Store => store(config, state),
        ReceiverAction::StoreFails if config.has(ReceiverBug::AheadPastAFailure) => {
            state.left.moves -= 1;
            state.hand = state.ahead.take().map_or(ReceiverPhase::Empty, ReceiverPhase::Got);
        }
        ReceiverAction::Acknowledge => acknowledge(config, state),
        ReceiverAction::StoreFails | ReceiverAction::ReceiverCrashes => {
            state.left.moves -= 1;
            (state.hand, state.ahead) = (ReceiverPhase::Empty, None);
            state.reading = state.position;
        }
        ReceiverAction::Take(worker) => {
            state.left.moves -= u8::from(state.owner.is_some());
            state.epoch += 1;
            (state.owner, state.wanted) = (Some(small(worker)), None);
            state.workers[worker].held = state.epoch;
        }
        ReceiverAction::WorkerCrashes(worker) => {
            state.left.moves -= 1;
            state.workers[worker] = super::ReceiverWorker::default();
            if state.owns(worker, state.epoch) {
                state.owner = None;
            }
        }
        ReceiverAction::HandOver(worker, message) => {
            state.hand_overs += 1;
            (state.owner, state.wanted) = (None, Some(small(message)));
            state.workers[worker].held = 0;
        }
        ReceiverAction::FailUnknown(_, message) => {
            let it = &mut state.messages[message];
            (it.status, it.passed) = (Some(InboxStatus::Failed), true);
        }
        ReceiverAction::Begin(worker, message) => {
            let me = &mut state.workers[worker];
            let attempts = state.messages[message].attempts;
            me.runs[message] = Some(HandlerRun { epoch: me.held, attempts, half: false });
        }
        ReceiverAction::Commit(worker, message) => commit(config, state, worker, message),
        ReceiverAction::Settle(worker, message, says) => {
            settle(config, state, worker, message, says)
        }
        ReceiverAction::Purge(message) => {
            let it = &mut state.messages[message];
            (it.status, it.purged) = (None, true);
        }
        ReceiverAction::Retry(message) => {
            state.left.decisions -= 1;
            let it = &mut state.messages[message];
            (it.status, it.attempts, it.parks) = (Some(InboxStatus::Received), 0, false);
        }
        ReceiverAction::Skip(message) => {
            state.left.decisions -= 1;
            let it = &mut state.messages[message];
            (it.parks, it.skipped, it.passed) = (false, true, true);
        }
    }
}

/// Row and position in one transaction; two of the planted bugs make two steps of it.
fn store(config: &ReceiverConfig, state: &mut ReceiverState) {
    let (ReceiverPhase::Got(hand) | ReceiverPhase::Half(hand)) = state.hand else { return };
    if let ReceiverPhase::Got(_) = state.hand {
        match config.bug {
            Some(ReceiverBug::AckBeforeCommit) => {
                state.messages[usize::from(hand)].acknowledged = true;
                state.hand = ReceiverPhase::Half(hand);
                return;
            }
            Some(ReceiverBug::PositionApart) => {
                state.position = state.position.max(hand + 1);
                state.hand = ReceiverPhase::Half(hand);
                return;
            }
            _ => {}
        }
    }
    let it = &mut state.messages[usize::from(hand)];
    if it.status.is_none() || config.has(ReceiverBug::NoDedupe) {
        (it.status, it.attempts, it.purged) = (Some(InboxStatus::Received), 0, false);
    }
    state.position = state.position.max(hand + 1);
    state.hand = ReceiverPhase::Stored(hand);
}

/// Acknowledges the stored message; the one that was read ahead is the next to be stored.
fn acknowledge(config: &ReceiverConfig, state: &mut ReceiverState) {
    if let ReceiverPhase::Stored(hand) = state.hand {
        state.messages[usize::from(hand)].acknowledged = true;
        let ahead = state.ahead.take();
        if config.has(ReceiverBug::AheadAcknowledged)
            && let Some(ahead) = ahead
        {
            state.messages[usize::from(ahead)].acknowledged = true;
        }
        state.hand = ahead.map_or(ReceiverPhase::Empty, ReceiverPhase::Got);
    }
}

/// Effect and mark in one commit, with the fence; nothing of it without.
fn commit(config: &ReceiverConfig, state: &mut ReceiverState, worker: usize, message: usize) {
    let Some(run) = state.workers[worker].runs[message] else { return };
    let holds = state.owns(worker, run.epoch);
    let open = state.messages[message].is_open();
    let passes = match config.bug {
        Some(ReceiverBug::BlindMark) => true,
        Some(ReceiverBug::NoFence) => open,
        _ => holds && open,
    };
    if config.has(ReceiverBug::EffectApartFromMark) && !run.half {
        state.messages[message].effects += 1;
        state.workers[worker].runs[message] = Some(HandlerRun { half: true, ..run });
        return;
    }
    if passes {
        state.stale_write |= !holds;
        let it = &mut state.messages[message];
        it.effects += u8::from(!run.half);
        (it.status, it.attempts) = (Some(InboxStatus::Processed), 0);
    }
    forget(state, worker, message);
}

fn settle(
    config: &ReceiverConfig,
    state: &mut ReceiverState,
    worker: usize,
    message: usize,
    says: HandlerAnswer,
) {
    state.left.outcomes -= 1;
    let Some(run) = state.workers[worker].runs[message] else { return };
    let holds = state.owns(worker, run.epoch);
    let passes = (holds || config.has(ReceiverBug::NoFence)) && state.messages[message].is_open();
    if passes {
        state.stale_write |= !holds;
        let policy = RetryPolicy::default().attempts_max(config.attempts_max.into()).jitter(false);
        let outcome = match says {
            HandlerAnswer::PutOff => {
                state.messages[message].status = Some(InboxStatus::Retry);
                return forget(state, worker, message);
            }
            HandlerAnswer::Retry => Outcome::retry("FAILED", ""),
            HandlerAnswer::Fail => Outcome::fail("FAILED", ""),
            HandlerAnswer::Park => Outcome::park("FAILED", ""),
        };
        let it = &mut state.messages[message];
        match decide(&policy, run.attempts.into(), outcome, 0.0) {
            Some(InboxFate::Retry { attempts, .. }) => {
                it.status = Some(InboxStatus::Retry);
                it.attempts = u8::try_from(attempts).expect("few attempts");
            }
            Some(InboxFate::Dead { attempts, park, .. }) => {
                it.status = Some(InboxStatus::Failed);
                it.attempts = u8::try_from(attempts).expect("few attempts");
                (it.parks, it.passed) = (park, it.passed || !park);
            }
            // No outcome of these answers leads to another fate.
            _ => state.reopened = true,
        }
    }
    forget(state, worker, message);
}

/// A worker that was refused asks who owns the lane before it does anything else.
fn forget(state: &mut ReceiverState, worker: usize, message: usize) {
    let owns = state.owns(worker, state.workers[worker].held);
    let me = &mut state.workers[worker];
    me.runs[message] = None;
    if !owns {
        me.held = 0;
    }
}

fn small(number: usize) -> u8 {
    u8::try_from(number).expect("few of everything")
}
