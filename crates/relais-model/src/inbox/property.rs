//! Properties that must always hold, and states that must be reachable.

use relais_core::inbox::InboxStatus;
use stateright::Property;

use super::{ReceiverModel, ReceiverPhase, ReceiverState, SourceReading, step};

/// A message that was acknowledged, or passed by the stored position, is in the database.
pub const NO_LOSS: &str = "no loss";
/// A handler's changes are committed at most once a message.
pub const ONE_EFFECT: &str = "one effect";
/// Only the lane's owner of the current epoch changes a row.
pub const FENCE: &str = "fence";
/// `PROCESSED` and `FAILED` change only by an operator.
pub const TERMINAL: &str = "terminal";
/// Effects of a key come in order, except past messages that failed and let their key continue.
pub const ORDER: &str = "order";
/// A dead letter comes from a handler's verdict: a type that some worker knows is no reason.
pub const VERDICT: &str = "verdict";
/// In a state without steps, everything is finished or stands behind its dead letter.
pub const PROGRESS: &str = "progress";

pub(super) fn all() -> Vec<Property<ReceiverModel>> {
    vec![
        Property::always(NO_LOSS, no_loss),
        Property::always(ONE_EFFECT, |model: &ReceiverModel, state: &ReceiverState| {
            model.0.messages().all(|message| state.messages[message].effects <= 1)
        }),
        Property::always(FENCE, |_, state: &ReceiverState| !state.stale_write),
        Property::always(TERMINAL, |_, state: &ReceiverState| !state.reopened),
        Property::always(ORDER, order),
        Property::always(PROGRESS, progress),
        Property::always(VERDICT, |model: &ReceiverModel, state: &ReceiverState| {
            let failed = |it: &super::ModelMessage| it.status == Some(InboxStatus::Failed);
            let failed = state.messages.iter().filter(|it| failed(it)).count();
            failed <= usize::from(model.0.budget.outcomes - state.left.outcomes)
        }),
        Property::sometimes(
            "everything has its effect",
            |model: &ReceiverModel, state: &ReceiverState| {
                model.0.messages().all(|message| state.messages[message].effects == 1)
            },
        ),
        Property::sometimes("a repeated message of a finished row", |_, state: &ReceiverState| {
            matches!(state.hand, ReceiverPhase::Got(message)
                if state.messages[usize::from(message)].status == Some(InboxStatus::Processed))
        }),
        Property::sometimes(
            "a handler that comes too late",
            |model: &ReceiverModel, state: &ReceiverState| {
                model.0.messages().any(|message| {
                    !state.messages[message].is_open()
                        && state.workers.iter().any(|worker| worker.runs[message].is_some())
                })
            },
        ),
        Property::sometimes(
            "a dead letter that holds its key",
            |model: &ReceiverModel, state: &ReceiverState| {
                model.0.messages().any(|message| {
                    state.messages[message].is_open() && state.is_parked(&model.0, message)
                })
            },
        ),
        Property::sometimes(
            "a lane that was handed over",
            |model: &ReceiverModel, state: &ReceiverState| {
                model.0.known_by.is_empty() || state.wanted.is_some()
            },
        ),
        Property::sometimes(
            "a message that was read ahead of a failure",
            |model: &ReceiverModel, state: &ReceiverState| {
                model.0.reading == SourceReading::InTurn
                    || (state.ahead.is_some() && state.left.moves < model.0.budget.moves)
            },
        ),
        Property::sometimes("a removed row", |model: &ReceiverModel, state: &ReceiverState| {
            model.0.messages().any(|message| state.messages[message].purged)
        }),
    ]
}

fn no_loss(model: &ReceiverModel, state: &ReceiverState) -> bool {
    model.0.messages().all(|number| {
        let message = &state.messages[number];
        let will_come = !message.acknowledged && usize::from(state.position) <= number;
        message.status.is_some() || message.purged || will_come
    })
}

fn order(model: &ReceiverModel, state: &ReceiverState) -> bool {
    model.0.messages().filter(|message| state.messages[*message].effects > 0).all(|message| {
        model.0.before(message).all(|earlier| {
            let earlier = &state.messages[earlier];
            earlier.effects > 0 || earlier.passed
        })
    })
}

fn progress(model: &ReceiverModel, state: &ReceiverState) -> bool {
    let waits = |message: &usize| {
        let it = &state.messages[*message];
        (it.status.is_none() && !it.purged)
            || (it.is_open() && !state.is_parked(&model.0, *message))
    };
    if !model.0.messages().any(|message| waits(&message)) {
        return true;
    }
    let mut actions = Vec::new();
    step::enabled(&model.0, state, &mut actions);
    !actions.is_empty()
}
