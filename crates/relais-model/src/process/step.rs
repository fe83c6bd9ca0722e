//! The steps: what may happen in a state, and what it does.

use relais_core::process;

use super::{
    Saga, SagaAnswer, SagaBug, SagaCommand, SagaInput, SagaState, SagaTarget,
    UncommittedSagaDecision,
    decide::{self, SagaDecision, TimerNext},
    handler::{self, HandlerAction},
};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SagaAction {
    Start,
    /// The relay delivers a command; `again` keeps it, as after a lost acknowledgement.
    Deliver {
        command: SagaCommand,
        says: SagaAnswer,
        again: bool,
        reply: Replies,
    },
    /// The timer is due: it becomes an inbox row.
    Fire,
    /// A worker decides about an inbox row and commits at once.
    Handle(SagaInput),
    /// A worker decides about an inbox row, and takes its time.
    Decide(SagaInput),
    /// That worker commits.
    Commit,
    /// That worker dies.
    Crash,
    Operator(process::Action),
    /// A step of the handler's protocol.
    Handler(HandlerAction),
}

/// Number of answers to one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    Once,
    Twice,
}

pub(super) fn enabled(target: SagaTarget, state: &SagaState, actions: &mut Vec<SagaAction>) {
    let Some(row) = &state.row else {
        actions.push(SagaAction::Start);
        return;
    };
    match target {
        SagaTarget::Destination => {
            state.outbox.iter().for_each(|command| of_service(state, *command, actions));
        }
        SagaTarget::Handler => handler::enabled(state, actions),
    }
    if state.timer.is_some() {
        actions.push(SagaAction::Fire);
    }
    for waiting in &state.inbox {
        actions.push(SagaAction::Handle(*waiting));
        if state.held.is_none() && state.left.slow > 0 {
            actions.push(SagaAction::Decide(*waiting));
        }
    }
    if state.held.is_some() {
        actions.extend([SagaAction::Commit, SagaAction::Crash]);
    }
    let paused = row.status == process::ProcessStatus::Paused;
    if paused {
        actions.push(SagaAction::Operator(process::Action::Resume));
    } else if state.left.decisions > 0 && !row.status.is_final() {
        actions.push(SagaAction::Operator(process::Action::Pause));
        actions.push(SagaAction::Operator(process::Action::Compensate));
    }
}

fn of_service(state: &SagaState, command: SagaCommand, actions: &mut Vec<SagaAction>) {
    let deliver = |says, again, reply| SagaAction::Deliver { command, says, again, reply };
    actions.push(deliver(SagaAnswer::Done, false, Replies::Once));
    if state.left.channel > 0 {
        actions.push(deliver(SagaAnswer::Done, false, Replies::Twice));
        actions.push(deliver(SagaAnswer::Done, true, Replies::Once));
    }
    if state.left.failures > 0 && !has_acted(state, command) {
        actions.push(deliver(SagaAnswer::Refused, false, Replies::Once));
        actions.push(deliver(SagaAnswer::Busy, false, Replies::Once));
    }
}

pub(super) fn apply(saga: &Saga, state: &mut SagaState, action: SagaAction) {
    let (config, definition) = (&saga.config, &saga.definition);
    match action {
        SagaAction::Start => {
            let decided = decide::begin(definition);
            commit(state, decided);
        }
        SagaAction::Deliver { command, says, again, reply } => {
            deliver(state, command, says, again, reply);
        }
        SagaAction::Fire => {
            if let Some((step, id)) = state.timer.take() {
                state.inbox.insert(SagaInput::Timer { step, id });
            }
        }
        SagaAction::Handle(waiting) => {
            if let Some(decided) = decide_about(saga, state, waiting) {
                publish(state, &decided.commands);
                commit(state, decided);
            }
            state.inbox.remove(&waiting);
        }
        SagaAction::Decide(waiting) => {
            state.left.slow -= 1;
            match decide_about(saga, state, waiting) {
                Some(decided) => {
                    if config.has(SagaBug::CommandsApart) {
                        publish(state, &decided.commands);
                    }
                    if config.has(SagaBug::AckBeforeCommit) {
                        state.inbox.remove(&waiting);
                    }
                    state.held =
                        Some(UncommittedSagaDecision { cause: waiting, decided, stale: false });
                }
                None => {
                    state.inbox.remove(&waiting);
                }
            }
        }
        SagaAction::Commit => {
            let Some(held) = state.held.take() else { return };
            if held.stale && !config.has(SagaBug::NoVersionCheck) {
                state.refused = true;
                return;
            }
            publish(state, &held.decided.commands);
            commit(state, held.decided);
            state.inbox.remove(&held.cause);
        }
        SagaAction::Crash => state.held = None,
        SagaAction::Operator(action) => operate(saga, state, action),
        SagaAction::Handler(action) => handler::apply(config, state, action),
    }
}

fn operate(saga: &Saga, state: &mut SagaState, action: process::Action) {
    if action != process::Action::Resume {
        state.left.decisions -= 1;
    }
    let Some(row) = &state.row else { return };
    if let Some(decided) = decide::act(&saga.definition, row, action) {
        publish(state, &decided.commands);
        commit(state, decided);
    }
}

/// `None`: the planted bug drops it.
fn decide_about(saga: &Saga, state: &SagaState, waiting: SagaInput) -> Option<SagaDecision> {
    let row = state.row.as_ref()?;
    let is_reply = matches!(waiting, SagaInput::Reply { .. });
    let dropped = (saga.config.has(SagaBug::LateIgnored) && row.status.is_final())
        || (saga.config.has(SagaBug::PauseDrops)
            && is_reply
            && row.status == process::ProcessStatus::Paused)
        || (saga.config.has(SagaBug::TimerLost) && !is_reply);
    (!dropped).then(|| decide::handle(&saga.definition, row, waiting))
}

/// One transaction: the process, its timer and its log.
fn commit(state: &mut SagaState, decided: SagaDecision) {
    if let Some(held) = &mut state.held {
        held.stale = true;
    }
    let ended = state.row.as_ref().is_some_and(|row| row.status.is_final());
    if ended && !decided.row.status.is_final() {
        state.revived = true;
    }
    if state.row.is_none() {
        publish(state, &decided.commands);
    }
    match decided.timer {
        TimerNext::Keep => {}
        TimerNext::Clear => state.timer = None,
        TimerNext::Set(step, id) => state.timer = Some((step, id)),
    }
    state.row = Some(decided.row);
}

/// A command that is there already is not written again.
fn publish(state: &mut SagaState, commands: &[SagaCommand]) {
    state.outbox.extend(commands);
}

/// The service does or undoes a step; a second time changes nothing.
pub(super) fn act(state: &mut SagaState, command: SagaCommand) {
    let effect = &mut state.effects[command.step];
    if command.undo {
        state.undone_before |= !effect.done;
        effect.undone = true;
    } else {
        effect.done = true;
    }
}

/// Returns true if the service has done what the command asks for.
pub(super) fn has_acted(state: &SagaState, command: SagaCommand) -> bool {
    let effect = state.effects[command.step];
    if command.undo { effect.undone } else { effect.done }
}

/// The service acts once for each idempotency key, and answers what it has done.
fn deliver(
    state: &mut SagaState,
    command: SagaCommand,
    says: SagaAnswer,
    again: bool,
    reply: Replies,
) {
    if again || reply != Replies::Once {
        state.left.channel -= 1;
    }
    if says != SagaAnswer::Done {
        state.left.failures -= 1;
    }
    if !again {
        state.outbox.remove(&command);
    }
    if says == SagaAnswer::Done {
        act(state, command);
    }
    let copies = match reply {
        Replies::Once => 1,
        Replies::Twice => 2,
    };
    let first = u8::from(again);
    for copy in first..first + copies {
        state.inbox.insert(SagaInput::Reply { command, says, copy });
    }
}
