//! Steps by a handler in another process: the command is stored in the handler's inbox, the handler is called,
//! and its answer is stored in the inbox of the process.
//!
//! A crash may come between any two commits. A call may have an effect without an answer; then it is repeated.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{
    SagaAnswer, SagaBug, SagaCommand, SagaConfig, SagaInput, SagaState,
    step::{SagaAction, act, has_acted},
};

/// The rows between a process and the handler of its steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HandlerState {
    /// Commands in the handler's inbox.
    pub inbox: BTreeSet<SagaCommand>,
    /// Ids of commands that were stored there.
    pub known: BTreeSet<Uuid>,
    /// Answers in the outbox.
    pub answers: BTreeSet<(SagaCommand, SagaAnswer)>,
    /// Commands whose answer was stored in the inbox of the process.
    pub answered: BTreeSet<Uuid>,
}

impl HandlerState {
    pub(super) fn is_empty(&self) -> bool {
        self.inbox.is_empty() && self.answers.is_empty()
    }
}

/// One step of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerAction {
    /// The relay stores a command in the handler's inbox, then settles its outbox row.
    Store(SagaCommand, Crash),
    /// The handler is called.
    Call(SagaCommand, CallEnd),
    /// The relay stores an answer in the inbox of the process, then settles its outbox row.
    Return(SagaCommand, SagaAnswer, Crash),
}

/// A loss of the worker between two commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    None,
    Between,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The service answers, and the answer is committed.
    Answered(SagaAnswer),
    /// The service acts, and its answer is lost.
    Lost,
    /// The service acts and answers, and the worker is lost at the commit.
    Crashed,
}

pub(super) fn enabled(state: &SagaState, actions: &mut Vec<SagaAction>) {
    let mut push = |action| actions.push(SagaAction::Handler(action));
    let crashes: &[Crash] = match state.left.channel {
        0 => &[Crash::None],
        _ => &[Crash::None, Crash::Between],
    };
    for command in &state.outbox {
        crashes.iter().for_each(|crash| push(HandlerAction::Store(*command, *crash)));
    }
    for (command, says) in &state.handler.answers {
        crashes.iter().for_each(|crash| push(HandlerAction::Return(*command, *says, *crash)));
    }
    for command in &state.handler.inbox {
        push(HandlerAction::Call(*command, CallEnd::Answered(SagaAnswer::Done)));
        if state.left.channel > 0 {
            push(HandlerAction::Call(*command, CallEnd::Lost));
            push(HandlerAction::Call(*command, CallEnd::Crashed));
        }
        if state.left.failures > 0 && !has_acted(state, *command) {
            for says in [SagaAnswer::Refused, SagaAnswer::Busy] {
                push(HandlerAction::Call(*command, CallEnd::Answered(says)));
            }
        }
    }
}

pub(super) fn apply(config: &SagaConfig, state: &mut SagaState, action: HandlerAction) {
    match action {
        HandlerAction::Store(command, crash) => {
            if delivered(config, state, crash) {
                state.outbox.remove(&command);
            }
            if !lost(config, crash) && state.handler.known.insert(command.id) {
                state.handler.inbox.insert(command);
            }
        }
        HandlerAction::Call(command, end) => call(config, state, command, end),
        HandlerAction::Return(command, says, crash) => {
            if delivered(config, state, crash) {
                state.handler.answers.remove(&(command, says));
            }
            if !lost(config, crash) && state.handler.answered.insert(command.id) {
                state.inbox.insert(SagaInput::Reply { command, says, copy: 0 });
            }
        }
    }
}

/// Returns true if the outbox row is settled.
fn delivered(config: &SagaConfig, state: &mut SagaState, crash: Crash) -> bool {
    if crash == Crash::Between {
        state.left.channel -= 1;
    }
    crash == Crash::None || config.has(SagaBug::MarkedBeforeStored)
}

/// Returns true if the row is settled and never stored: the planted bug.
fn lost(config: &SagaConfig, crash: Crash) -> bool {
    crash == Crash::Between && config.has(SagaBug::MarkedBeforeStored)
}

fn call(config: &SagaConfig, state: &mut SagaState, command: SagaCommand, end: CallEnd) {
    let says = match end {
        CallEnd::Answered(says) => {
            if says != SagaAnswer::Done {
                state.left.failures -= 1;
            }
            says
        }
        CallEnd::Lost | CallEnd::Crashed => {
            state.left.channel -= 1;
            SagaAnswer::Done
        }
    };
    if says == SagaAnswer::Done {
        act(state, command);
    }
    let handler = &mut state.handler;
    match (end, says) {
        // The row waits for its next attempt.
        (CallEnd::Answered(_), SagaAnswer::Busy) => {}
        (CallEnd::Answered(_), _) => {
            handler.inbox.remove(&command);
            handler.answers.insert((command, says));
        }
        (CallEnd::Lost, _) if config.has(SagaBug::NoAnswerFails) => {
            handler.inbox.remove(&command);
            handler.answers.insert((command, SagaAnswer::Refused));
        }
        (CallEnd::Crashed, _) if config.has(SagaBug::AnswerApart) => {
            handler.inbox.remove(&command);
        }
        (CallEnd::Lost | CallEnd::Crashed, _) => {}
    }
}
