//! Changes of a process by a start, a reply, a timer or an operator. Pure.
//!
//! Every input is first recorded: what happened goes into the log, the data and the progress. Only then,
//! and unless it is paused, the process continues: to the next step, the next attempt, back, or to its end.
//!
//! Invariant: the same process and the same input give the same change, ids included; only the length of
//! a pause depends on chance. Nothing that is stored makes this panic.

mod action;
pub(crate) mod command;
mod next_step;
mod progress;
mod replay;
mod reply;
mod timer;
mod work;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub(super) use self::work::value;
pub use self::{
    action::{actions, cancel},
    progress::Progress,
    replay::{ReplayDifference, ReplayedProcess, ReplayedStep, replay},
};
use self::{next_step::continue_process, work::Work};
use super::{Change, Definition, PROCESS_DEFINITION, Process, definition::ProcessStart};
use crate::{delivery::Problem, inbox::InboxRow};

/// An event that changes a process.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A message it may wait for.
    Reply(&'a InboxRow),
    /// Its timer has fired.
    Timer { step: &'a str, command_id: Uuid, message_id: &'a str },
    /// An operator decides.
    Action { action: Action, actor: &'a str, reason: &'a str },
}

/// An action of an operator on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Replies are taken in, nothing new begins.
    Pause,
    /// Continues where it stood; begins a process that is `NEW`.
    Resume,
    /// Sends the command of the current step (or compensation) again, with all its attempts.
    #[serde(rename = "retry")]
    RetryStep,
    /// Takes the current step (or compensation) for done.
    #[serde(rename = "skip")]
    SkipStep,
    /// Undoes the completed steps, last first.
    Compensate,
    /// Ends it as failed, with what it has done standing.
    Cancel,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 6] = [
        Self::Pause,
        Self::Resume,
        Self::RetryStep,
        Self::SkipStep,
        Self::Compensate,
        Self::Cancel,
    ];

    /// Returns the action as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::RetryStep => "retry",
            Self::SkipStep => "skip",
            Self::Compensate => "compensate",
            Self::Cancel => "cancel",
        }
    }

    /// Returns the action as something that was done, as the audit log has it.
    pub fn done(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::RetryStep => "retried",
            Self::SkipStep => "skipped",
            Self::Compensate => "compensated",
            Self::Cancel => "cancelled",
        }
    }

    /// Parses a stored action; `None` if this program does not know it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == text)
    }
}

/// A new process that waits to be begun ([`Action::Resume`]): status `NEW`.
pub fn create(
    definition: &Definition,
    process_id: Uuid,
    begun: ProcessStart,
    message_id: Option<&str>,
) -> Change {
    let cause = work::ChangeCause { message_id, ..work::ChangeCause::default() };
    Work::create(definition, process_id, begun, cause).finish()
}

/// A new process with its first step begun, asked for without an event.
pub fn begin(
    definition: &Definition,
    process_id: Uuid,
    begun: ProcessStart,
    message_id: Option<&str>,
) -> Change {
    let cause = work::ChangeCause { message_id, ..work::ChangeCause::default() };
    begin_with(definition, process_id, begun, cause)
}

/// The process that an event starts, with its first step begun. If the command of that step cannot be
/// made, the process is there all the same, paused.
pub fn start(definition: &Definition, row: &InboxRow) -> Result<Change, Problem> {
    let event_type = row.event_type.as_deref().unwrap_or_default();
    let starts = &definition.0.starts;
    let start = starts.iter().find(|start| start.event_type == event_type).ok_or_else(|| {
        let text = format!("`{event_type}` does not start `{}`", definition.process_type());
        Problem::new(PROCESS_DEFINITION, &text)
    })?;
    let begun = (start.begin)(row)?;
    let cause = work::ChangeCause::of(row);
    Ok(begin_with(definition, definition.process_id(row), begun, cause))
}

/// The process after `input`; an error is why it cannot take it. `random` spreads pauses.
pub fn advance(
    definition: &Definition,
    process: &Process,
    input: &Input<'_>,
    random: f64,
) -> Result<Change, Problem> {
    if let Input::Action { action: Action::Cancel, actor, reason } = input {
        return cancel(process, actor, reason);
    }
    let cause = match input {
        Input::Reply(row) => work::ChangeCause::of(row),
        Input::Timer { message_id, .. } => {
            work::ChangeCause { message_id: Some(message_id), ..work::ChangeCause::default() }
        }
        Input::Action { .. } => work::ChangeCause::default(),
    };
    let mut work = Work::load(definition, process, cause)?;
    match input {
        Input::Reply(row) => reply::record(&mut work, row)?,
        Input::Timer { step, command_id, .. } => timer::record(&mut work, step, *command_id),
        Input::Action { action, actor, reason } => {
            action::record(&mut work, *action, actor, reason)?;
        }
    }
    continue_process(&mut work, random);
    if let Input::Action { action, actor, reason } = input {
        work.sign(*action, actor, reason);
    }
    Ok(work.finish())
}

fn begin_with(
    definition: &Definition,
    process_id: Uuid,
    begun: ProcessStart,
    cause: work::ChangeCause<'_>,
) -> Change {
    let mut work = Work::create(definition, process_id, begun, cause);
    work.stand_on_first_step();
    // The first attempt follows no pause, so chance has no part in it.
    continue_process(&mut work, 0.0);
    work.finish()
}
