//! What became of each step of a process, read off its log. Pure.

use std::collections::BTreeMap;

use relais_core::{
    process::{Definition, LogEntry, ProcessEvent},
    time::Timestamp,
};
use serde::Serialize;

/// One step, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepLine {
    pub name: String,
    pub state: StepState,
    pub started_at: Option<Timestamp>,
    /// When it was done, given up or undone.
    pub ended_at: Option<Timestamp>,
    /// Commands sent to do it.
    pub attempts: u32,
    /// Whether it was done and undone again.
    pub undone: bool,
    /// Why its last command did not succeed.
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// Not begun.
    #[default]
    Waiting,
    Running,
    /// Its last command failed; it is tried again, or the process goes back.
    Failed,
    Completed,
    Undoing,
    /// Undoing it failed for good: a person decides.
    Stuck,
    Undone,
}

/// The steps in the order of the definition; without one in the order they were begun. `log` is oldest
/// first.
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
        state: StepState::default(),
        started_at: None,
        ended_at: None,
        attempts: 0,
        undone: false,
        error: None,
    }
}

enum What<'a> {
    Started,
    Done,
    Failed(&'a str),
    UndoStarted,
    Undone,
    UndoFailed(&'a str),
}

fn read(event: &ProcessEvent) -> Option<(&str, What<'_>)> {
    use ProcessEvent as E;
    Some(match event {
        E::StepStarted { step, .. } => (step, What::Started),
        E::StepCompleted { step, .. } => (step, What::Done),
        E::StepFailed { step, error, .. } | E::StepTimedOut { step, error, .. } => {
            (step, What::Failed(error))
        }
        E::CompensationStarted { step, .. } => (step, What::UndoStarted),
        E::CompensationCompleted { step, .. } => (step, What::Undone),
        E::CompensationFailed { step, error, .. } => (step, What::UndoFailed(error)),
        E::ProcessStarted { .. }
        | E::ProcessCompleted { .. }
        | E::ProcessFailed { .. }
        | E::ProcessPaused { .. }
        | E::ProcessResumed { .. } => return None,
    })
}

/// What came too late is logged too. A late success counts all the same.
fn changed_nothing(what: &What<'_>, note: Option<&str>) -> bool {
    let note = note.unwrap_or_default();
    let failed = matches!(what, What::Failed(_) | What::UndoFailed(_));
    note.starts_with("ignored") || (failed && note.starts_with("late"))
}

fn apply(line: &mut StepLine, what: &What<'_>, at: Timestamp) {
    line.state = match what {
        What::Started => {
            line.attempts = line.attempts.saturating_add(1);
            line.started_at.get_or_insert(at);
            StepState::Running
        }
        What::Done => StepState::Completed,
        What::Failed(_) => StepState::Failed,
        What::UndoStarted => StepState::Undoing,
        What::Undone => StepState::Undone,
        What::UndoFailed(_) => StepState::Stuck,
    };
    line.undone = line.state == StepState::Undone;
    line.ended_at = (!matches!(line.state, StepState::Running | StepState::Undoing)).then_some(at);
    line.error = match what {
        What::Failed(error) | What::UndoFailed(error) => Some((*error).to_owned()),
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
    fn a_step_is_tried_done_and_undone() {
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
        assert_eq!((at(2).state, at(2).error.as_deref()), (StepState::Failed, Some("late")));
        let done = at(4);
        assert_eq!((done.state, done.attempts, done.error), (StepState::Completed, 2, None));
        assert_eq!((done.started_at, done.ended_at), (Some(Timestamp(1)), Some(Timestamp(4))));
        assert_eq!((at(5).state, at(5).ended_at), (StepState::Undoing, None));
        assert_eq!((at(6).state, at(6).undone), (StepState::Undone, true));
        assert!(steps(None, &[]).is_empty());
    }
}
