//! What an operator passes to a decision about a dead letter, and what the decision returns.

use relais_core::{
    dead_letter::{DeadLetter, DecisionAction, OperatorDecision},
    delivery::Problem,
    inspect::Attempt,
    query::ParkedKey,
    repair::Mode,
    time::Timestamp,
};
use serde::Serialize;

/// The operator who decides, and the reason, for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionAuthor {
    /// The operator who acts.
    pub actor: String,
    /// The reason for it.
    pub reason: String,
}

impl DecisionAuthor {
    /// Returns an actor with a reason.
    pub fn new(actor: &str, reason: &str) -> Self {
        Self { actor: actor.to_owned(), reason: reason.to_owned() }
    }

    pub(super) fn decision(&self, action: DecisionAction) -> OperatorDecision {
        OperatorDecision { action, actor: self.actor.clone(), reason: self.reason.clone() }
    }
}

/// The outcome of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum DecisionOutcome {
    /// It is done.
    Done,
    /// It does not exist.
    NotFound,
    /// Another decision came first.
    ResolvedBefore {
        /// The earlier decision.
        resolution: String,
        /// The operator who decided.
        by: String,
        /// The time, by the database clock.
        at: Timestamp,
    },
    /// Another operator has edited the payload since the one that the edit is based on.
    EditedMeanwhile {
        /// The operator who edited it.
        by: String,
        /// The time, by the database clock.
        at: Timestamp,
    },
    /// The new payload failed the validation.
    WouldFail {
        /// The problem.
        problem: Problem,
    },
    /// The decision is not possible.
    Refused {
        /// The problem.
        problem: Problem,
    },
}

/// Another payload for a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadEdit {
    /// The new payload.
    pub payload: String,
    /// The payload that the operator saw.
    pub basis: Basis,
    /// The validation that it has to pass.
    pub insist: EditValidation,
    /// Write, or only try.
    pub mode: Mode,
}

impl PayloadEdit {
    /// An edit that is written if the payload passes the validation.
    pub fn new(payload: &str) -> Self {
        Self {
            payload: payload.to_owned(),
            basis: Basis::AsItIs,
            insist: EditValidation::Required,
            mode: Mode::Write,
        }
    }
}

/// The version of the dead letter that an edit is based on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// The current one.
    #[default]
    AsItIs,
    /// The dead letter with this `edited_at`: refused if it was edited since.
    Seen(Option<Timestamp>),
}

/// The validation of an edit. The payload must be valid JSON in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EditValidation {
    /// The handler, routes or process must accept the payload.
    #[default]
    Required,
    /// The operator takes the responsibility.
    Skipped,
}

/// One dead letter with its history and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetterDetail {
    /// The dead letter.
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// Failed attempts, oldest first.
    pub history: Vec<Attempt>,
    /// Its key, if that is parked and among the [`PAGE_MAX`](relais_core::query::PAGE_MAX) parked longest, with the rows that wait.
    pub parked_key: Option<ParkedKey>,
}
