//! The state of each step of a process, derived from its log. Pure.

use std::collections::BTreeMap;

use relais_core::{
    process::{Definition, LogEntry, ProcessEvent},
    time::Timestamp,
};
use serde::Serialize;

/// One step of a process, for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepLine {
    /// The name of the step.
    pub name: String,
    /// The state.
    pub state: StepLineState,
    /// The time at which it started.
    pub started_at: Option<Timestamp>,
    /// The time at which it was completed, failed or compensated.
    pub ended_at: Option<Timestamp>,
    /// Commands sent for the step.
    pub attempts: u32,
    /// `true` if the step was completed and then compensated.
    pub undone: bool,
    /// The error of its last command.
    pub error: Option<String>,
}

/// The state of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepLineState {
    /// Not started.
    #[default]
    Waiting,
    /// It waits for a reply.
    Running,
    /// Its last command failed; it is retried, or the process compensates.
    Failed,
    /// It is complete.
    Completed,
    /// It is being compensated.
    Undoing,
    /// Its compensation failed: an operator decides.
    Stuck,
    /// It is compensated.
    Undone,
}

/// Returns the steps in the order of the definition; without one in the order they started. `log` is
/// oldest first.
pub fn steps(definition: Option<&Definition>, log: &[LogEntry]) -> Vec<StepLine> {
    let names = definition.map(Definition::step_names).unwrap_or_default();
    let mut lines: Vec<StepLine> = names.into_iter().map(waiting).collect();
    let mut places: BTreeMap<String, usize> =
        lines.iter().enumerate().map(|(place, line)| (line.name.clone(), place)).collect();
    for entry in log {
        let Some((step, what)) = read(&entry.entry.event) else { continue };
        if changed_nothing(&what, entry.entry.note.as_deref()) {
            continue;
        }
        let place = *places.entry(step.to_owned()).or_insert_with(|| {
            lines.push(waiting(step));
            lines.len() - 1
        });
        apply(&mut lines[place], &what, entry.at);
    }
    lines
}

fn waiting(name: &str) -> StepLine {
    StepLine {
        name: name.to_owned(),
        state: StepLineState::default(),
        started_at: None,
        ended_at: None,
        attempts: 0,
        undone: false,
        error: None,
    }
}

enum StepEvent<'a> {
    Started,
    Done,
    Failed(&'a str),
    UndoStarted,
    Undone,
    UndoFailed(&'a str),
}

fn read(event: &ProcessEvent) -> Option<(&str, StepEvent<'_>)> {
    use ProcessEvent as E;
    Some(match event {
        E::StepStarted { step, .. } => (step, StepEvent::Started),
        E::StepCompleted { step, .. } => (step, StepEvent::Done),
        E::StepFailed { step, error, .. } | E::StepTimedOut { step, error, .. } => {
            (step, StepEvent::Failed(error))
        }
        E::CompensationStarted { step, .. } => (step, StepEvent::UndoStarted),
        E::CompensationCompleted { step, .. } => (step, StepEvent::Undone),
        E::CompensationFailed { step, error, .. } => (step, StepEvent::UndoFailed(error)),
        E::ProcessStarted { .. }
        | E::ProcessCompleted { .. }
        | E::ProcessFailed { .. }
        | E::ProcessPaused { .. }
        | E::ProcessResumed { .. } => return None,
    })
}

/// Returns whether the entry is a late reply that changed nothing. A late success counts.
fn changed_nothing(what: &StepEvent<'_>, note: Option<&str>) -> bool {
    let note = note.unwrap_or_default();
    let failed = matches!(what, StepEvent::Failed(_) | StepEvent::UndoFailed(_));
    note.starts_with("ignored") || (failed && note.starts_with("late"))
}

fn apply(line: &mut StepLine, what: &StepEvent<'_>, at: Timestamp) {
    line.state = match what {
        StepEvent::Started => {
            line.attempts = line.attempts.saturating_add(1);
            line.started_at.get_or_insert(at);
            StepLineState::Running
        }
        StepEvent::Done => StepLineState::Completed,
        StepEvent::Failed(_) => StepLineState::Failed,
        StepEvent::UndoStarted => StepLineState::Undoing,
        StepEvent::Undone => StepLineState::Undone,
        StepEvent::UndoFailed(_) => StepLineState::Stuck,
    };
    line.undone = line.state == StepLineState::Undone;
    line.ended_at =
        (!matches!(line.state, StepLineState::Running | StepLineState::Undoing)).then_some(at);
    line.error = match what {
        StepEvent::Failed(error) | StepEvent::UndoFailed(error) => Some((*error).to_owned()),
        _ => None,
    };
}

#[cfg(test)]
mod tests {
    use relais_core::process::Entry;
    use uuid::Uuid;

    use super::*;

    fn entry(seq: i64, event: ProcessEvent) -> LogEntry {
        let entry = Entry::of(event);
        LogEntry { process_id: Uuid::nil(), seq, at: Timestamp(seq), message_id: None, entry }
    }

    #[test]
    fn a_step_is_tried_completed_and_compensated() {
        let (step, command_id) = ("pay".to_owned(), Uuid::nil());
        let log = [
            entry(1, ProcessEvent::StepStarted { step: step.clone(), command_id }),
            entry(
                2,
                ProcessEvent::StepTimedOut { step: step.clone(), command_id, error: "late".into() },
            ),
            entry(3, ProcessEvent::StepStarted { step: step.clone(), command_id }),
            entry(
                4,
                ProcessEvent::StepCompleted {
                    step: step.clone(),
                    command_id: None,
                    result_data: serde_json::Value::Null,
                },
            ),
            entry(5, ProcessEvent::CompensationStarted { step: step.clone(), command_id }),
            entry(6, ProcessEvent::CompensationCompleted { step, command_id: None }),
        ];
        let at = |entries: usize| steps(None, &log[..entries]).remove(0);
        assert_eq!((at(2).state, at(2).error.as_deref()), (StepLineState::Failed, Some("late")));
        let done = at(4);
        assert_eq!((done.state, done.attempts, done.error), (StepLineState::Completed, 2, None));
        assert_eq!((done.started_at, done.ended_at), (Some(Timestamp(1)), Some(Timestamp(4))));
        assert_eq!((at(5).state, at(5).ended_at), (StepLineState::Undoing, None));
        assert_eq!((at(6).state, at(6).undone), (StepLineState::Undone, true));
        assert!(steps(None, &[]).is_empty());
    }
}
