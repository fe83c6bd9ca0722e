//! What a timer that has fired means: no reply came in time, a pause is over, or nothing any more.

use uuid::Uuid;

use super::{
    command::rest_id,
    progress::{At, Now, Position, StepFailure, StepFailureKind, Way},
    reply::{fail_attempt, failed_event},
    work::Work,
};

pub(super) fn record(work: &mut Work<'_>, step: &str, id: Uuid) {
    match meaning(work, step, id) {
        Some(TimerEffect::TimedOut { error }) => {
            fail_attempt(work, Some(id), StepFailure { kind: StepFailureKind::TimedOut, error });
        }
        Some(TimerEffect::Rested) => {
            if let Some(at) = work.at_mut() {
                at.now = Now::Due;
            }
        }
        None => {
            let way = work.command_of(id).map_or(Way::Forward, |(_, way, _)| way);
            let error = "no reply in time".to_owned();
            let failure = StepFailure { kind: StepFailureKind::TimedOut, error };
            let event = failed_event(step, way, Some(id), &failure);
            work.record_with(event, "ignored: nothing waits for this timer any more");
        }
    }
}

enum TimerEffect {
    TimedOut { error: String },
    Rested,
}

fn meaning(work: &Work<'_>, step: &str, id: Uuid) -> Option<TimerEffect> {
    let Position::At(at) = &work.progress.at else { return None };
    if at.step != step {
        return None;
    }
    match at.now {
        Now::Sent if id == work.last_command(step, at.way) => {
            Some(TimerEffect::TimedOut { error: error(work, at) })
        }
        Now::Resting if !work.progress.paused && id == rest_of(work, at) => {
            Some(TimerEffect::Rested)
        }
        _ => None,
    }
}

fn rest_of(work: &Work<'_>, at: &At) -> Uuid {
    let next = work.progress.step(&at.step).sent(at.way).saturating_add(1);
    rest_id(work.process.process_id, &at.step, at.way, next)
}

fn error(work: &Work<'_>, at: &At) -> String {
    match work.call(&at.step, at.way).and_then(|call| call.timeout) {
        Some(timeout) => format!("no reply within {timeout:?}"),
        None => "no reply in time".to_owned(),
    }
}
