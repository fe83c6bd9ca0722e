//! What follows from where a process stands: the next command, the next attempt, the way back, the end.

use super::{
    command::{command, command_id, rest_id},
    progress::{At, Now, Position, StepFailure, StepFailureKind, Way},
    work::Work,
};
use crate::{
    delivery::Problem,
    process::{ProcessEvent, SOURCE_SYSTEM, Timer, definition::Call},
};

/// Continues until the process waits for an event, or ends. Each turn leaves a state it never comes back to,
/// so there are few.
pub(super) fn continue_process(work: &mut Work<'_>, random: f64) {
    while !work.progress.paused {
        let Position::At(at) = work.progress.at.clone() else { return };
        match (at.way, &at.now) {
            (_, Now::Sent | Now::Resting | Now::Stuck) => return,
            (_, Now::Due) => send(work, &at),
            (Way::Forward, Now::Done) => next_step(work, &at.step),
            (Way::Undo, Now::Done) => next_undo(work),
            (_, Now::Failed(failure)) if may_try_again(work, &at, failure.kind) => {
                rest(work, &at, random);
            }
            (Way::Forward, Now::Failed(failure)) => turn_back(work, &at, failure),
            (Way::Undo, Now::Failed(failure)) => get_stuck(work, &at, failure),
        }
    }
}

/// Returns true if a failed attempt is followed by another.
pub(super) fn may_try_again(work: &Work<'_>, at: &At, kind: StepFailureKind) -> bool {
    let call = work.call(&at.step, at.way);
    kind != StepFailureKind::Permanent && call.is_some_and(|call| !call.retry.exhausted(at.failed))
}

fn send(work: &mut Work<'_>, at: &At) {
    let made = match work.call(&at.step, at.way) {
        Some(call) => (call.payload)(&work.process.data).map(|payload| (call, payload)),
        // The definition lost it while its command was in flight.
        None => {
            Err(Problem::new(crate::process::PROCESS_DEFINITION, "has no compensation any more"))
        }
    };
    match made {
        Ok((call, payload)) => send_command(work, at, call, payload),
        Err(problem) => hold(work, at, problem),
    }
}

fn send_command(work: &mut Work<'_>, at: &At, call: &Call, payload: String) {
    let attempt = work.progress.step_mut(&at.step).count(at.way);
    let id = command_id(work.process.process_id, &at.step, at.way, attempt);
    let message = command(&work.process, call, (&at.step, at.way), id, payload, &work.cause);
    work.messages.push(message);
    let step = at.step.clone();
    work.record(match at.way {
        Way::Forward => ProcessEvent::StepStarted { step, command_id: id },
        Way::Undo => ProcessEvent::CompensationStarted { step, command_id: id },
    });
    let step = at.step.clone();
    work.set_timer(call.timeout.map(|after| Timer { step, command_id: id, after }));
    stand(work, at, Now::Sent);
}

/// Pauses the process: only an operator can fix a command that cannot be made. Nothing is lost until then.
fn hold(work: &mut Work<'_>, at: &At, problem: Problem) {
    let reason = format!("the command of {} cannot be made: {}", place(at), problem.message);
    let paused_by = SOURCE_SYSTEM.to_owned();
    work.record(ProcessEvent::ProcessPaused { reason: reason.clone(), paused_by });
    work.progress.paused = true;
    work.raise("PAUSED", Problem::new(&problem.code, &reason));
}

fn rest(work: &mut Work<'_>, at: &At, random: f64) {
    let Some(call) = work.call(&at.step, at.way) else { return };
    let next = work.progress.step(&at.step).sent(at.way).saturating_add(1);
    let timer = Timer {
        step: at.step.clone(),
        command_id: rest_id(work.process.process_id, &at.step, at.way, next),
        after: call.retry.pause(at.failed, None, random),
    };
    work.set_timer(Some(timer));
    stand(work, at, Now::Resting);
}

fn next_step(work: &mut Work<'_>, done: &str) {
    let mut steps = work.steps().iter().skip_while(|step| step.name != done).skip(1);
    work.progress.at = match steps.next() {
        Some(next) => Position::At(At::due(Way::Forward, &next.name)),
        None => {
            let reason = "every step is done".to_owned();
            work.record(ProcessEvent::ProcessCompleted { reason });
            Position::Succeeded
        }
    };
}

fn next_undo(work: &mut Work<'_>) {
    work.progress.at = match work.next_undo() {
        Some(step) => Position::At(At::due(Way::Undo, step)),
        None => {
            if let Some(last) = work.log.last_mut() {
                last.note.get_or_insert_with(|| "every completed step is compensated".to_owned());
            }
            Position::Compensated
        }
    };
}

/// Gives the step up: completed steps before it are compensated.
fn turn_back(work: &mut Work<'_>, at: &At, failure: &StepFailure) {
    if let Some(step) = work.next_undo() {
        work.progress.at = Position::At(At::due(Way::Undo, step));
        return;
    }
    let reason =
        format!("{} failed, and there is nothing to compensate: {}", place(at), failure.error);
    let (failed_status, code) = match failure.kind {
        StepFailureKind::TimedOut => ("TIMED_OUT", "STEP_TIMED_OUT"),
        StepFailureKind::Permanent | StepFailureKind::Retryable => ("FAILED", "STEP_FAILED"),
    };
    work.record(ProcessEvent::ProcessFailed { reason: reason.clone() });
    work.progress.at =
        Position::Failed { step: Some(at.step.clone()), failed: at.failed, cancelled: false };
    work.raise(failed_status, Problem::new(code, &reason));
}

fn get_stuck(work: &mut Work<'_>, at: &At, failure: &StepFailure) {
    stand(work, at, Now::Stuck);
    let text = format!("{} failed: {}", place(at), failure.error);
    work.raise("COMPENSATION_FAILED", Problem::new("COMPENSATION_FAILED", &text));
}

fn stand(work: &mut Work<'_>, at: &At, now: Now) {
    work.progress.at = Position::At(At { now, ..at.clone() });
}

fn place(at: &At) -> String {
    match at.way {
        Way::Forward => format!("step `{}`", at.step),
        Way::Undo => format!("the compensation of step `{}`", at.step),
    }
}
