//! The steps: what may happen in a state, and what it does.

use relais_core::process;

use super::{
    Bug, Command, Held, Saga, Says, State, Waiting,
    decide::{self, Decided, TimerNext},
};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Start,
    /// The relay delivers a command; `again` keeps it, as after a lost acknowledgement.
    Deliver {
        command: Command,
        says: Says,
        again: bool,
        reply: Replies,
    },
    /// The timer is due: it becomes an inbox row.
    Fire,
    /// A worker decides about an inbox row and commits at once.
    Handle(Waiting),
    /// A worker decides about an inbox row, and takes its time.
    Decide(Waiting),
    /// That worker commits.
    Commit,
    /// That worker dies.
    Crash,
    Person(process::Action),
}

/// How often the answer to one delivery arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    Once,
    Twice,
}

pub(super) fn enabled(state: &State, actions: &mut Vec<Action>) {
    let Some(row) = &state.row else {
        actions.push(Action::Start);
        return;
    };
    for command in &state.outbox {
        of_service(state, *command, actions);
    }
    if state.timer.is_some() {
        actions.push(Action::Fire);
    }
    for waiting in &state.inbox {
        actions.push(Action::Handle(*waiting));
        if state.held.is_none() && state.left.slow > 0 {
            actions.push(Action::Decide(*waiting));
        }
    }
    if state.held.is_some() {
        actions.extend([Action::Commit, Action::Crash]);
    }
    let paused = row.status == process::ProcessStatus::Paused;
    if paused {
        actions.push(Action::Person(process::Action::Resume));
    } else if state.left.decisions > 0 && !row.status.is_final() {
        actions.push(Action::Person(process::Action::Pause));
        actions.push(Action::Person(process::Action::Compensate));
    }
}

fn of_service(state: &State, command: Command, actions: &mut Vec<Action>) {
    let deliver = |says, again, reply| Action::Deliver { command, says, again, reply };
    actions.push(deliver(Says::Done, false, Replies::Once));
    if state.left.channel > 0 {
        actions.push(deliver(Says::Done, false, Replies::Twice));
        actions.push(deliver(Says::Done, true, Replies::Once));
    }
    let effect = state.effects[command.step];
    let acted = if command.undo { effect.undone } else { effect.done };
    if state.left.failures > 0 && !acted {
        actions.push(deliver(Says::Refused, false, Replies::Once));
        actions.push(deliver(Says::Busy, false, Replies::Once));
    }
}

pub(super) fn apply(saga: &Saga, state: &mut State, action: Action) {
    let (config, definition) = (&saga.config, &saga.definition);
    match action {
        Action::Start => {
            let decided = decide::begin(definition);
            commit(state, decided);
        }
        Action::Deliver { command, says, again, reply } => {
            deliver(state, command, says, again, reply);
        }
        Action::Fire => {
            if let Some((step, id)) = state.timer.take() {
                state.inbox.insert(Waiting::Timer { step, id });
            }
        }
        Action::Handle(waiting) => {
            if let Some(decided) = decide_about(saga, state, waiting) {
                publish(state, &decided.commands);
                commit(state, decided);
            }
            state.inbox.remove(&waiting);
        }
        Action::Decide(waiting) => {
            state.left.slow -= 1;
            match decide_about(saga, state, waiting) {
                Some(decided) => {
                    if config.has(Bug::CommandsApart) {
                        publish(state, &decided.commands);
                    }
                    if config.has(Bug::AckBeforeCommit) {
                        state.inbox.remove(&waiting);
                    }
                    state.held = Some(Held { cause: waiting, decided, stale: false });
                }
                None => {
                    state.inbox.remove(&waiting);
                }
            }
        }
        Action::Commit => {
            let Some(held) = state.held.take() else { return };
            if held.stale && !config.has(Bug::NoVersionCheck) {
                state.refused = true;
                return;
            }
            publish(state, &held.decided.commands);
            commit(state, held.decided);
            state.inbox.remove(&held.cause);
        }
        Action::Crash => state.held = None,
        Action::Person(action) => person(saga, state, action),
    }
}

fn person(saga: &Saga, state: &mut State, action: process::Action) {
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
fn decide_about(saga: &Saga, state: &State, waiting: Waiting) -> Option<Decided> {
    let row = state.row.as_ref()?;
    let is_reply = matches!(waiting, Waiting::Reply { .. });
    let dropped = (saga.config.has(Bug::LateIgnored) && row.status.is_final())
        || (saga.config.has(Bug::PauseDrops)
            && is_reply
            && row.status == process::ProcessStatus::Paused)
        || (saga.config.has(Bug::TimerLost) && !is_reply);
    (!dropped).then(|| decide::handle(&saga.definition, row, waiting))
}

/// One transaction: the process, its timer and its log.
fn commit(state: &mut State, decided: Decided) {
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
fn publish(state: &mut State, commands: &[Command]) {
    state.outbox.extend(commands);
}

/// The service acts once for each idempotency key, and answers what it has done.
fn deliver(state: &mut State, command: Command, says: Says, again: bool, reply: Replies) {
    if again || reply != Replies::Once {
        state.left.channel -= 1;
    }
    if says != Says::Done {
        state.left.failures -= 1;
    }
    if !again {
        state.outbox.remove(&command);
    }
    let effect = &mut state.effects[command.step];
    if says == Says::Done {
        if command.undo {
            state.undone_before |= !effect.done;
            effect.undone = true;
        } else {
            effect.done = true;
        }
    }
    let copies = match reply {
        Replies::Once => 1,
        Replies::Twice => 2,
    };
    let first = u8::from(again);
    for copy in first..first + copies {
        state.inbox.insert(Waiting::Reply { command, says, copy });
    }
}
