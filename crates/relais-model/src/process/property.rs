//! Properties that must always hold, and states that must be reachable.

use relais_core::process::ProcessStatus;
use stateright::Property;

use super::{Saga, SagaEffect, SagaState};

/// When nothing is in flight, the services have done all of a process that succeeded, and nothing of one
/// that failed or was undone.
pub const OUTCOME: &str = "outcome";
/// When nothing is in flight, the process has ended, or visibly waits for an operator.
pub const ENDS: &str = "ends";
/// No service is asked to undo what was never done.
pub const UNDO_AFTER_DO: &str = "undo after do";

pub(super) fn all() -> Vec<Property<Saga>> {
    vec![
        Property::always(OUTCOME, |_, state: &SagaState| !state.is_quiet() || outcome(state)),
        Property::always(ENDS, |_, state: &SagaState| !state.is_quiet() || ended(state)),
        Property::always(UNDO_AFTER_DO, |_, state: &SagaState| !state.undone_before),
        Property::sometimes("succeeds", |_, state: &SagaState| is(state, ProcessStatus::Succeeded)),
        Property::sometimes("fails", |_, state: &SagaState| is(state, ProcessStatus::Failed)),
        Property::sometimes("is undone", |_, state: &SagaState| {
            is(state, ProcessStatus::Compensated)
        }),
        Property::sometimes("is stuck", |_, state: &SagaState| state.is_quiet() && is_stuck(state)),
        Property::sometimes("a late reply sets it going again", |_, state: &SagaState| {
            state.revived
        }),
        Property::sometimes("a decision comes too late", |_, state: &SagaState| state.refused),
        Property::sometimes("both steps are undone", |_, state: &SagaState| {
            state.effects.iter().all(|effect| effect.undone)
        }),
    ]
}

fn is(state: &SagaState, status: ProcessStatus) -> bool {
    state.row.as_ref().is_some_and(|row| row.status == status)
}

/// Undoing has failed for good: its dead letter is open.
fn is_stuck(state: &SagaState) -> bool {
    is(state, ProcessStatus::Compensating)
        && state.row.as_ref().is_some_and(|row| row.progress.contains("\"raised\":true"))
}

fn ended(state: &SagaState) -> bool {
    let row = state.row.as_ref();
    // The operator who paused it can resume it.
    row.is_some_and(|row| row.status.is_final() || row.status == ProcessStatus::Paused)
        || is_stuck(state)
}

fn outcome(state: &SagaState) -> bool {
    let stands = |effect: &SagaEffect| effect.done && !effect.undone;
    if is(state, ProcessStatus::Succeeded) {
        return state.effects.iter().all(stands);
    }
    if is(state, ProcessStatus::Failed) || is(state, ProcessStatus::Compensated) {
        return !state.effects.iter().any(stands);
    }
    true
}
