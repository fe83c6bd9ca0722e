//! Actions of operators on a process, and which are allowed.

use super::{
    Action,
    progress::{At, Now, Position, Progress, StepState, Way},
    work::{ChangeCause, Work, change, closed},
};
use crate::{
    delivery::Problem,
    process::{
        Change, Closure, Definition, Entry, PROCESS_ACTION, Process, ProcessEvent, TimerChange,
    },
};

/// Returns the actions that an operator may do with a process as it is.
pub fn actions(definition: &Definition, process: &Process) -> Result<Vec<Action>, Problem> {
    let work = Work::load(definition, process, ChangeCause::default())?;
    Ok(Action::ALL.into_iter().filter(|action| fits(&work, *action)).collect())
}

/// Ends a process as failed, with what it has done standing. Possible without its definition, and for a
/// invalid progress: it is the last resort.
pub fn cancel(process: &Process, actor: &str, reason: &str) -> Result<Change, Problem> {
    if process.status.is_final() {
        return Err(unfit(process, Action::Cancel, "it has ended"));
    }
    let mut progress = Progress::read(process).unwrap_or_else(|_| Progress::at(Position::New));
    let (step, failed) = (progress.open_step(), progress.failed());
    progress.at = Position::Failed { step, failed, cancelled: true };
    progress.paused = false;
    progress.raised = false;
    let entry = Entry {
        actor: Some(actor.to_owned()),
        reason: Some(reason.to_owned()),
        ..Entry::of(ProcessEvent::ProcessFailed { reason: "cancelled".to_owned() })
    };
    Ok(Change {
        timer: TimerChange::Clear,
        dead_letter: closed(Closure::Action(Action::Cancel), actor, reason),
        ..change(process.clone(), &progress, vec![entry])
    })
}

pub(super) fn record(
    work: &mut Work<'_>,
    action: Action,
    actor: &str,
    reason: &str,
) -> Result<(), Problem> {
    if !fits(work, action) {
        let fitting = Action::ALL.into_iter().filter(|action| fits(work, *action));
        let fitting: Vec<&str> = fitting.map(Action::as_str).collect();
        let hint = match fitting.as_slice() {
            [] => "nothing can be done with it any more".to_owned(),
            fitting => format!("possible now: {}", fitting.join(", ")),
        };
        return Err(unfit(&work.process, action, &hint));
    }
    match action {
        Action::Pause => pause(work, actor, reason),
        Action::Resume => resume(work, actor, reason),
        Action::RetryStep => retry_step(work),
        Action::SkipStep => skip_step(work),
        Action::Compensate => compensate(work),
        Action::Cancel => {}
    }
    // What is stuck stays stuck until an operator decides about it. A pause decides nothing.
    if !work.is_stuck() && action != Action::Pause {
        work.settle(Closure::Action(action), actor, reason);
    }
    Ok(())
}

fn fits(work: &Work<'_>, action: Action) -> bool {
    let paused = work.progress.paused;
    let at = &work.progress.at;
    let ended = matches!(at, Position::Succeeded | Position::Failed { .. } | Position::Compensated);
    match action {
        Action::Pause => !paused && !ended,
        Action::Resume => paused || *at == Position::New,
        Action::Cancel => !ended,
        Action::RetryStep => {
            !paused && matches!(at, Position::At(_) | Position::Failed { step: Some(_), .. })
        }
        Action::SkipStep => match at {
            Position::At(at) => at.now != Now::Done,
            Position::Failed { step, .. } => step.is_some(),
            _ => false,
        },
        Action::Compensate => match at {
            Position::New | Position::At(At { way: Way::Forward, .. }) => true,
            Position::Succeeded | Position::Failed { .. } => work.next_undo().is_some(),
            Position::At(_) | Position::Compensated => false,
        },
    }
}

fn unfit(process: &Process, action: Action, hint: &str) -> Problem {
    let (action, id, status) = (action.as_str(), process.process_id, process.status.as_str());
    Problem::new(
        PROCESS_ACTION,
        &format!("`{action}` does not fit process {id}, which is {status}; {hint}"),
    )
}

fn pause(work: &mut Work<'_>, actor: &str, reason: &str) {
    let (reason, paused_by) = (reason.to_owned(), actor.to_owned());
    work.record(ProcessEvent::ProcessPaused { reason, paused_by });
    work.progress.paused = true;
    // A pause before an attempt is over when the process is resumed; a time-out continues.
    if let Some(at) = work.at_mut().filter(|at| at.now == Now::Resting) {
        at.now = Now::Due;
    }
}

fn resume(work: &mut Work<'_>, actor: &str, reason: &str) {
    let (reason, resumed_by) = (reason.to_owned(), actor.to_owned());
    work.record(ProcessEvent::ProcessResumed { reason, resumed_by });
    work.progress.paused = false;
    if work.progress.at == Position::New {
        work.stand_on_first_step();
    }
}

fn retry_step(work: &mut Work<'_>) {
    if let Some(at) = in_flight(work) {
        work.progress.at = Position::At(At::due(at.way, &at.step));
    }
}

fn skip_step(work: &mut Work<'_>) {
    let Some(at) = in_flight(work) else { return };
    let step = at.step.clone();
    let (state, event) = match at.way {
        Way::Forward => (
            StepState::Skipped,
            ProcessEvent::StepCompleted {
                step,
                command_id: None,
                result_data: serde_json::Value::Null,
            },
        ),
        Way::Undo => {
            (StepState::Undone, ProcessEvent::CompensationCompleted { step, command_id: None })
        }
    };
    work.set_state(&at.step, state);
    work.record_with(event, "skipped");
    work.progress.at = Position::At(At { now: Now::Done, ..at });
}

/// The step that an operator decides about.
fn in_flight(work: &Work<'_>) -> Option<At> {
    match &work.progress.at {
        Position::At(at) => Some(at.clone()),
        Position::Failed { step: Some(step), .. } => Some(At::due(Way::Forward, step)),
        _ => None,
    }
}

fn compensate(work: &mut Work<'_>) {
    work.progress.paused = false;
    work.progress.at = match work.next_undo() {
        Some(step) => Position::At(At::due(Way::Undo, step)),
        None => {
            let reason =
                "compensation was asked for, and there is nothing to compensate".to_owned();
            work.record(ProcessEvent::ProcessFailed { reason });
            let (step, failed) = (work.progress.open_step(), work.progress.failed());
            Position::Failed { step, failed, cancelled: false }
        }
    };
}
