//! Replies, and their meaning for the step they answer.
//!
//! A success is never overlooked: whichever attempt it answers, and however late it comes, the step is
//! done from then on, and is compensated if its process has turned back. A failure counts only while the very
//! attempt it answers is waited for. Everything is logged; an entry that changes nothing has a note.

use uuid::Uuid;

use super::{
    next_step::may_try_again,
    progress::{At, Now, Position, StepFailure, StepFailureKind, StepState, Way},
    work::{Work, value},
};
use crate::{
    delivery::Problem,
    inbox::InboxRow,
    process::{
        PROCESS_REPLY, ProcessEvent,
        definition::{Meaning, Reply},
    },
    text::{self, ERROR_MESSAGE_MAX},
};

/// The command that a reply answers, as far as it names one.
struct AnsweredCommand<'a> {
    step: &'a str,
    way: Way,
    command: Option<(Uuid, u32)>,
}

impl AnsweredCommand<'_> {
    fn command_id(&self) -> Option<Uuid> {
        self.command.map(|(id, _)| id)
    }
}

pub(super) fn record(work: &mut Work<'_>, row: &InboxRow) -> Result<(), Problem> {
    let (answer, reply) = find(work, row)?;
    let (data, meaning) = (reply.judge)(&work.process.data, row)?;
    match (answer.way, meaning) {
        (Way::Forward, Meaning::Completed) => {
            let result = value(row.payload.as_deref().unwrap_or("null"));
            completed(work, &answer, data, result);
        }
        (Way::Undo, Meaning::Completed) => undone(work, &answer, data),
        (_, Meaning::Failed { error, retryable }) => {
            let kind =
                if retryable { StepFailureKind::Retryable } else { StepFailureKind::Permanent };
            let error = text::fit(&error, ERROR_MESSAGE_MAX);
            failed(work, &answer, data, StepFailure { kind, error });
        }
    }
    Ok(())
}

/// Which step a reply is for: by the command it names, else by its type.
fn find<'a>(work: &Work<'a>, row: &InboxRow) -> Result<(AnsweredCommand<'a>, &'a Reply), Problem> {
    let event_type = row.event_type.as_deref().unwrap_or_default();
    let refuse = |why: String| {
        let name = work.definition.process_type();
        let version = work.definition.version();
        let text = format!("`{event_type}` for `{name}` version {version}: {why}");
        Err(Problem::new(PROCESS_REPLY, &text))
    };
    let mut found = Vec::new();
    for step in work.steps() {
        for way in [Way::Forward, Way::Undo] {
            let call = work.call(&step.name, way);
            let mut replies = call.into_iter().flat_map(|call| &call.replies);
            if let Some(reply) = replies.find(|reply| reply.event_type == event_type) {
                found.push((step.name.as_str(), way, reply));
            }
        }
    }
    if found.is_empty() {
        return refuse("no step of it waits for that".to_owned());
    }
    let named = row.headers.get("causation-id").and_then(|id| Uuid::parse_str(id).ok());
    let named = named.and_then(|id| work.command_of(id).map(|command| (id, command)));
    match (named, found.as_slice()) {
        (Some((id, (step, way, attempt))), _) => {
            match found.iter().find(|(s, w, _)| (*s, *w) == (step, way)) {
                Some((.., reply)) => {
                    Ok((AnsweredCommand { step, way, command: Some((id, attempt)) }, *reply))
                }
                None => refuse(format!(
                    "it answers a command of step `{step}`, which has no such reply"
                )),
            }
        }
        (None, [(step, way, reply)]) => {
            Ok((AnsweredCommand { step, way: *way, command: None }, *reply))
        }
        (None, _) => refuse(
            "several commands may be answered by it; the header `causation-id` must name the \
             message id of the command"
                .to_owned(),
        ),
    }
}

/// A step is done.
fn completed(
    work: &mut Work<'_>,
    answer: &AnsweredCommand<'_>,
    data: String,
    result: serde_json::Value,
) {
    let step = answer.step;
    let event = ProcessEvent::StepCompleted {
        step: step.to_owned(),
        command_id: answer.command_id(),
        result_data: result,
    };
    let progress = work.progress.step(step);
    let ignored = match progress.state {
        StepState::Completed => Some("ignored: the step was completed before"),
        StepState::Undone => Some("ignored: the step was compensated before"),
        StepState::Open if progress.sent == 0 => Some("ignored: the step has not been begun"),
        StepState::Open | StepState::Skipped => None,
    };
    if let Some(note) = ignored {
        return work.record_with(event, note);
    }
    work.process.data = data;
    work.set_state(step, StepState::Completed);
    if progress.state == StepState::Skipped {
        return work.record_with(event, "the step was skipped before; only its data is taken in");
    }
    if work.is_at(step, Way::Forward) {
        if let Some(at) = work.at_mut() {
            at.now = Now::Done;
        }
        return work.record(event);
    }
    let note = completed_late(work, step);
    work.record_with(event, note);
}

/// A step that was given up is done after all.
fn completed_late(work: &mut Work<'_>, step: &str) -> &'static str {
    let can_be_undone = work.call(step, Way::Undo).is_some();
    match &work.progress.at {
        Position::Failed { cancelled: true, .. } => "late: the process was cancelled, so it stands",
        _ if !can_be_undone => "late: the step has no compensation, so it stands",
        Position::Failed { .. } | Position::Compensated => {
            work.progress.at = Position::At(At::due(Way::Undo, step));
            work.settle_by_late_reply();
            "late: the process had ended, so the step is compensated now"
        }
        Position::At(_) | Position::New | Position::Succeeded => {
            "late: the step was given up, so it is compensated too"
        }
    }
}

/// Records that a step is compensated.
fn undone(work: &mut Work<'_>, answer: &AnsweredCommand<'_>, data: String) {
    let step = answer.step;
    let event = ProcessEvent::CompensationCompleted {
        step: step.to_owned(),
        command_id: answer.command_id(),
    };
    let progress = work.progress.step(step);
    if progress.state == StepState::Undone {
        return work.record_with(event, "ignored: the step was compensated before");
    }
    if progress.undo_sent == 0 || !progress.state.stands() {
        return work.record_with(event, "ignored: no compensation of the step was sent");
    }
    work.process.data = data;
    work.set_state(step, StepState::Undone);
    if !work.is_at(step, Way::Undo) {
        return work.record_with(event, "late: the process was cancelled");
    }
    if work.is_stuck() {
        work.settle_by_late_reply();
    }
    if let Some(at) = work.at_mut() {
        at.now = Now::Done;
    }
    work.record(event);
}

/// An attempt failed.
fn failed(work: &mut Work<'_>, answer: &AnsweredCommand<'_>, data: String, failure: StepFailure) {
    match why_late(work, answer) {
        Some(note) => {
            let event = failed_event(answer.step, answer.way, answer.command_id(), &failure);
            work.record_with(event, note);
        }
        None => {
            work.process.data = data;
            fail_attempt(work, answer.command_id(), failure);
        }
    }
}

/// Why a failure of this command changes nothing, if so.
fn why_late(work: &Work<'_>, answer: &AnsweredCommand<'_>) -> Option<&'static str> {
    let progress = work.progress.step(answer.step);
    let sent = progress.sent(answer.way);
    match &work.progress.at {
        _ if sent == 0 => Some("ignored: no command was sent for it"),
        Position::At(at) if at.step == answer.step && at.way == answer.way => match at.now {
            Now::Sent if answer.command.is_none_or(|(_, attempt)| attempt == sent) => None,
            Now::Done => Some("ignored: the step was done before"),
            _ => Some("ignored: the attempt was given up before"),
        },
        _ if progress.state == StepState::Open => Some("ignored: the step was given up before"),
        _ => Some("ignored: the step was done before"),
    }
}

/// Records and counts a failure of the current attempt.
pub(super) fn fail_attempt(work: &mut Work<'_>, command_id: Option<Uuid>, failure: StepFailure) {
    let Some(at) = work.at_mut() else { return };
    at.failed = at.failed.saturating_add(1);
    at.now = Now::Failed(failure.clone());
    let at = at.clone();
    let event = failed_event(&at.step, at.way, command_id, &failure);
    match at.way {
        Way::Undo if may_try_again(work, &at, failure.kind) => {
            work.record_with(event, "it will be tried again");
        }
        Way::Undo => work.record_with(event, "an operator must retry or skip it"),
        Way::Forward => work.record(event),
    }
}

/// Returns the event for the failure of a command. A compensation has none of its own for a time-out.
pub(super) fn failed_event(
    step: &str,
    way: Way,
    command_id: Option<Uuid>,
    failure: &StepFailure,
) -> ProcessEvent {
    let (step, error) = (step.to_owned(), failure.error.clone());
    match (way, failure.kind, command_id) {
        (Way::Undo, ..) => ProcessEvent::CompensationFailed { step, command_id, error },
        (Way::Forward, StepFailureKind::TimedOut, Some(command_id)) => {
            ProcessEvent::StepTimedOut { step, command_id, error }
        }
        (Way::Forward, kind, command_id) => {
            let retryable = kind != StepFailureKind::Permanent;
            ProcessEvent::StepFailed { step, command_id, error, retryable }
        }
    }
}
