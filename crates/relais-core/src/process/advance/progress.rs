//! What relais keeps of a process beside the user's data: where it stands, and what became of each step.
//!
//! Invariant: the columns `status`, `current_step` and `retries` follow from this; where `status` does
//! not, the row was changed by hand, and it is not read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    delivery::Problem,
    process::{PROCESS_STATE, Process, ProcessStatus},
};

/// The `progress` column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    pub(super) at: Position,
    pub(super) paused: bool,
    /// A dead letter was opened, and nothing has set it going again since.
    pub(super) raised: bool,
    /// Steps that have been begun, or taken for done.
    pub(super) steps: BTreeMap<String, StepProgress>,
}

/// The position of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Position {
    New,
    At(At),
    Succeeded,
    /// `step`: the one that an operator may retry or skip. Of a process that was cancelled, what it has
    /// done stands, late successes too.
    Failed {
        step: Option<String>,
        failed: u32,
        cancelled: bool,
    },
    Compensated,
}

/// The current step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct At {
    pub(super) way: Way,
    pub(super) step: String,
    pub(super) now: Now,
    /// Attempts that did not succeed, since it came here or an operator retried it.
    pub(super) failed: u32,
}

impl At {
    pub(super) fn due(way: Way, step: &str) -> Self {
        Self { way, step: step.to_owned(), now: Now::Due, failed: 0 }
    }
}

/// The direction of a command: it does a step or compensates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    Forward,
    Undo,
}

/// The event that the current step waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Now {
    /// Its command is to be sent.
    Due,
    /// Its last command is out.
    Sent,
    /// The next attempt waits for its timer.
    Resting,
    /// It is done; what follows is to begin.
    Done,
    /// Its last command failed; what follows is to begin.
    Failed(StepFailure),
    /// Its compensation failed for good: an operator decides.
    Stuck,
}

/// Why an attempt did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepFailure {
    pub(super) kind: StepFailureKind,
    pub(super) error: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepFailureKind {
    Permanent,
    Retryable,
    /// Retryable, with unknown effects.
    TimedOut,
}

/// The state of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepProgress {
    pub(super) state: StepState,
    /// Commands sent to do it.
    pub(super) sent: u32,
    /// Commands sent to undo it.
    pub(super) undo_sent: u32,
}

impl StepProgress {
    pub(super) fn sent(&self, way: Way) -> u32 {
        match way {
            Way::Forward => self.sent,
            Way::Undo => self.undo_sent,
        }
    }

    pub(super) fn count(&mut self, way: Way) -> u32 {
        let sent = match way {
            Way::Forward => &mut self.sent,
            Way::Undo => &mut self.undo_sent,
        };
        *sent = sent.saturating_add(1);
        *sent
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepState {
    /// Not known to be done. If a command is out all the same, it may still turn out to be.
    #[default]
    Open,
    Completed,
    /// Skipped by an operator: it is compensated like a completed one.
    Skipped,
    /// Compensated, or its compensation skipped by an operator.
    Undone,
}

impl StepState {
    /// Returns true if there is something to compensate.
    pub(super) fn stands(self) -> bool {
        matches!(self, Self::Completed | Self::Skipped)
    }
}

impl Progress {
    pub(super) fn at(at: Position) -> Self {
        Self { at, paused: false, raised: false, steps: BTreeMap::new() }
    }

    pub(in crate::process) fn read(process: &Process) -> Result<Self, Problem> {
        let unreadable = |why: String| {
            let text = format!("the progress of process {} {why}", process.process_id);
            Problem::new(PROCESS_STATE, &text)
        };
        let progress: Self = serde_json::from_str(&process.progress)
            .map_err(|error| unreadable(format!("is not valid: {error}")))?;
        if progress.status() != process.status {
            let (is, expected) = (process.status.as_str(), progress.status().as_str());
            return Err(unreadable(format!(
                "is that of a process that is {expected}, but its status is {is}; check whether the row was changed by hand"
            )));
        }
        Ok(progress)
    }

    /// Returns whether a dead letter was opened and nothing has set the process going again since.
    pub(in crate::process) fn is_raised(&self) -> bool {
        self.raised
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("progress is plain JSON")
    }

    pub(super) fn status(&self) -> ProcessStatus {
        match &self.at {
            _ if self.paused => ProcessStatus::Paused,
            Position::New => ProcessStatus::New,
            Position::At(At { way: Way::Forward, .. }) => ProcessStatus::Running,
            Position::At(At { way: Way::Undo, .. }) => ProcessStatus::Compensating,
            Position::Succeeded => ProcessStatus::Succeeded,
            Position::Failed { .. } => ProcessStatus::Failed,
            Position::Compensated => ProcessStatus::Compensated,
        }
    }

    pub(super) fn current_step(&self) -> Option<&str> {
        match &self.at {
            Position::At(at) => Some(&at.step),
            Position::Failed { step, .. } => step.as_deref(),
            Position::New | Position::Succeeded | Position::Compensated => None,
        }
    }

    /// The step it stands on, if that is not done.
    pub(super) fn open_step(&self) -> Option<String> {
        let Position::At(At { way: Way::Forward, step, .. }) = &self.at else { return None };
        (self.step(step).state == StepState::Open).then(|| step.clone())
    }

    pub(super) fn failed(&self) -> u32 {
        match &self.at {
            Position::At(At { failed, .. }) | Position::Failed { failed, .. } => *failed,
            Position::New | Position::Succeeded | Position::Compensated => 0,
        }
    }

    /// Returns true if a timer may be running for it.
    pub(super) fn waits(&self) -> bool {
        matches!(&self.at, Position::At(At { now: Now::Sent | Now::Resting, .. }))
    }

    pub(super) fn step(&self, name: &str) -> StepProgress {
        self.steps.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn step_mut(&mut self, name: &str) -> &mut StepProgress {
        self.steps.entry(name.to_owned()).or_default()
    }
}
