//! What a start, a reply, a timer or a person makes of a process. Pure.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Change, Definition, Process};
use crate::{delivery::Problem, inbox::InboxRow};

/// What happens to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A message it may wait for.
    Reply(&'a InboxRow),
    /// Its timer has fired.
    Timer { step: &'a str, command_id: Uuid, message_id: &'a str },
    /// Somebody decides.
    Action { action: Action, actor: &'a str, reason: &'a str },
}

/// What a person may do with a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Replies are taken in, nothing new begins.
    Pause,
    /// Goes on where it stood.
    Resume,
    /// Sends the command of the current step (or compensation) again.
    RetryStep,
    /// Takes the current step (or compensation) for done.
    SkipStep,
    /// Undoes the completed steps, last first.
    Compensate,
    /// Ends it as failed, with what it has done standing.
    Cancel,
}

/// What relais keeps of a process beside the user's data; the `progress` column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {}

/// A new process, with its first step begun. Deterministic: the same row gives the same ids.
pub fn start(definition: &Definition, row: &InboxRow) -> Result<Change, Problem> {
    let _ = (definition, row);
    Err(Problem::new("PROCESS", "not built yet"))
}

/// The process after `input`; an error is why it cannot take it. `random` spreads pauses.
pub fn advance(
    definition: &Definition,
    process: &Process,
    input: &Input<'_>,
    random: f64,
) -> Result<Change, Problem> {
    let _ = (definition, process, input, random);
    Err(Problem::new("PROCESS", "not built yet"))
}
