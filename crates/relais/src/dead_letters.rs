//! Decisions of operators about dead letters.
//!
//! Invariant: every decision is one transaction of the store, which reports whether another decision came
//! first. So two operators, or one who presses twice, carry it out once. Of many, each is done whole or not at
//! all, so that a retry of many that stops half-way can be run again.
//!
//! - here: one dead letter
//! - `decision`: the arguments and results of a decision
//! - [`many`]: by filter and by key, in order and at a pace
//! - `pending`: rows that an operator fails or sends now
//! - `validate`: validates a payload, with nothing changed

mod decision;
pub mod many;
mod pending;
mod validate;

use std::{collections::HashSet, sync::Arc};

use relais_core::{
    BoxFuture,
    dead_letter::{
        DeadLetter, DecisionAction, DecisionResult, Origin, Resolution, STATUS_CONFLICT,
    },
    decode::Decoder,
    delivery::Problem,
    handler::Outcome,
    inbox::{InboxRow, InboxStatus},
    inspect::InspectExt,
    query::{Filter, PAGE_MAX, ParkedKey},
    repair::Mode,
    store::{StoreDriver, StoreError},
};
use uuid::Uuid;

use crate::process::{ActError, Operator};

pub use self::{
    decision::{
        Basis, DeadLetterDetail, DecisionAuthor, DecisionOutcome, EditValidation, PayloadEdit,
    },
    many::{DecisionReport, DecisionSummary, KeyLetters, Pace, SelectedLetter},
};

/// Validates messages, with nothing changed.
pub trait PayloadValidator: Send + Sync {
    /// Returns the result that the handler, routes or process of such rows would have for this one.
    fn validate(&self, row: InboxRow) -> BoxFuture<'_, Result<Outcome, StoreError>>;
}

/// Decides about dead letters. Cheap to clone.
#[derive(Clone)]
pub struct DeadLetters {
    store: Arc<dyn StoreDriver>,
    validator: Arc<dyn PayloadValidator>,
    operator: Operator,
    /// Destinations whose dead letters park no key.
    skipping: HashSet<String>,
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetters").finish_non_exhaustive()
    }
}

impl DeadLetters {
    /// Knows no process; see [`DeadLetters::operator`] and [`App::dead_letters`](crate::App::dead_letters).
    pub fn new(store: Arc<dyn StoreDriver>, validator: Arc<dyn PayloadValidator>) -> Self {
        let operator = Operator::new(Arc::clone(&store), Vec::new());
        Self { store, validator, operator, skipping: HashSet::new() }
    }

    /// Dead letters of these destinations park no key (`on_dead_letter = "skip"`).
    #[must_use]
    pub fn skipping(mut self, destinations: impl IntoIterator<Item = String>) -> Self {
        self.skipping.extend(destinations);
        self
    }

    /// Retries dead letters of processes through this operator.
    #[must_use]
    pub fn operator(mut self, operator: Operator) -> Self {
        self.operator = operator;
        self
    }

    /// Returns dead letters, newest first.
    pub async fn list(&self, filter: Filter) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.list_dead_letters(filter).await
    }

    /// Returns parked keys, those parked longest first.
    pub async fn parked_keys(&self, limit: usize) -> Result<Vec<ParkedKey>, StoreError> {
        self.store.parked_keys(limit).await
    }

    /// Returns a dead letter with its context.
    pub async fn show(&self, id: Uuid) -> Result<Option<DeadLetterDetail>, StoreError> {
        let Some(letter) = self.store.find_dead_letter(id).await? else { return Ok(None) };
        let history = match letter.origin_id {
            Some(row) => {
                let trail = self.store.trail(letter.message_id.clone()).await?;
                trail.attempts_of(letter.origin, row)
            }
            None => Vec::new(),
        };
        let parked = self.store.parked_keys(PAGE_MAX).await?;
        let parked_key = parked.into_iter().find(|parked| holds(parked, &letter));
        Ok(Some(DeadLetterDetail { letter, history, parked_key }))
    }

    /// Gives an open dead letter and its row another payload, if that passes the validation. It stays a dead
    /// letter until it is retried; its first payload is kept.
    pub async fn edit(
        &self,
        id: Uuid,
        rewrite: PayloadEdit,
        by: &DecisionAuthor,
    ) -> Result<DecisionOutcome, StoreError> {
        let Some(letter) = self.store.find_dead_letter(id).await? else {
            return Ok(DecisionOutcome::NotFound);
        };
        if let Some(answer) = standing(&letter, rewrite.basis) {
            return Ok(answer);
        }
        if let Some(objection) = self.objection(&letter, &rewrite).await? {
            return Ok(objection);
        }
        if rewrite.mode == Mode::Try {
            return Ok(DecisionOutcome::Done);
        }
        let edit = DecisionAction::Edit { dead_letter: id, payload: rewrite.payload };
        let decided = self.store.decide(by.decision(edit)).await?;
        crate::fail_point!("dead_letters.after_edit");
        match decided {
            DecisionResult::Done => Ok(DecisionOutcome::Done),
            DecisionResult::NotFound => Ok(DecisionOutcome::NotFound),
            DecisionResult::ResolvedBefore => self.who_was_faster(id).await,
        }
    }

    /// Sends it again: first in its key, attempts from zero.
    pub async fn retry(
        &self,
        id: Uuid,
        by: &DecisionAuthor,
    ) -> Result<DecisionOutcome, StoreError> {
        let Some(letter) = self.store.find_dead_letter(id).await? else {
            return Ok(DecisionOutcome::NotFound);
        };
        self.decide(&SelectedLetter::from(&letter), Resolution::Retried, by).await
    }

    /// Leaves it failed and frees its key.
    pub async fn discard(
        &self,
        id: Uuid,
        by: &DecisionAuthor,
    ) -> Result<DecisionOutcome, StoreError> {
        self.resolve(id, Resolution::Discarded, by).await
    }

    async fn resolve(
        &self,
        dead_letter: Uuid,
        resolution: Resolution,
        by: &DecisionAuthor,
    ) -> Result<DecisionOutcome, StoreError> {
        let action = DecisionAction::Resolve { dead_letter, resolution };
        match self.store.decide(by.decision(action)).await? {
            DecisionResult::Done => Ok(DecisionOutcome::Done),
            DecisionResult::NotFound | DecisionResult::ResolvedBefore => {
                self.who_was_faster(dead_letter).await
            }
        }
    }

    /// Closes an undecodable (`SERDE_ERROR`) row: it is `FAILED`, with a dead letter that is resolved.
    pub async fn discard_undecodable(
        &self,
        row: i64,
        by: &DecisionAuthor,
    ) -> Result<DecisionOutcome, StoreError> {
        let discard = by.decision(DecisionAction::DiscardUndecodable { row });
        let decided = self.store.decide(discard).await?;
        crate::fail_point!("dead_letters.after_discard");
        match decided {
            DecisionResult::Done => Ok(DecisionOutcome::Done),
            DecisionResult::NotFound => Ok(DecisionOutcome::NotFound),
            DecisionResult::ResolvedBefore => self.what_became_of(row).await,
        }
    }

    async fn decide(
        &self,
        picked: &SelectedLetter,
        resolution: Resolution,
        by: &DecisionAuthor,
    ) -> Result<DecisionOutcome, StoreError> {
        if (picked.origin, resolution) == (Origin::Process, Resolution::Retried) {
            return self.replay_process(picked.id, by).await;
        }
        self.resolve(picked.id, resolution, by).await
    }

    async fn replay_process(
        &self,
        id: Uuid,
        by: &DecisionAuthor,
    ) -> Result<DecisionOutcome, StoreError> {
        let refused = match self.operator.retry(id, &by.actor, &by.reason).await {
            Ok(_) => return Ok(DecisionOutcome::Done),
            Err(ActError::Store(error)) => return Err(error),
            Err(ActError::Refused(problem)) => problem,
            Err(error @ (ActError::NotFound(_) | ActError::Busy)) => {
                Problem::new("PROCESS", &error.to_string())
            }
        };
        Ok(match self.who_was_faster(id).await? {
            DecisionOutcome::NotFound => DecisionOutcome::Refused { problem: refused },
            faster => faster,
        })
    }

    /// Also `NotFound` while it is still open.
    async fn who_was_faster(&self, id: Uuid) -> Result<DecisionOutcome, StoreError> {
        let letter = self.store.find_dead_letter(id).await?;
        Ok(letter.as_ref().and_then(resolved).unwrap_or(DecisionOutcome::NotFound))
    }

    /// Returns why a row is no longer undecodable.
    async fn what_became_of(&self, id: i64) -> Result<DecisionOutcome, StoreError> {
        let found = self.store.find_inbox(id.to_string()).await?;
        let Some(row) = found.filter(|row| row.id == id) else {
            return Ok(DecisionOutcome::NotFound);
        };
        let letters = self.store.trail(row.message_id.clone()).await?.dead_letters;
        let own = letters.iter().rfind(|l| (l.origin, l.origin_id) == (Origin::Inbox, Some(id)));
        Ok(own.and_then(resolved).unwrap_or_else(|| {
            let text =
                format!("cannot discard the row: it is {}, not SERDE_ERROR", row.status.as_str());
            refused("NO_SERDE_ERROR", &text)
        }))
    }

    /// Returns why a payload is not accepted.
    async fn objection(
        &self,
        letter: &DeadLetter,
        rewrite: &PayloadEdit,
    ) -> Result<Option<DecisionOutcome>, StoreError> {
        if let Err(problem) = Decoder::Json.decode(rewrite.payload.as_bytes()) {
            return Ok(Some(DecisionOutcome::Refused { problem }));
        }
        match (letter.origin, rewrite.insist) {
            (Origin::Process, _) => Ok(Some(refused(
                "PROCESS_DATA",
                "cannot edit the data of a process; fix its definition or the other system, then retry it",
            ))),
            (Origin::Inbox, EditValidation::Required) => {
                let Some(row) = self.row_as_it_would_be(letter, &rewrite.payload).await? else {
                    return Ok(Some(refused(
                        "ROW_GONE",
                        "cannot validate the payload: its inbox row is no longer there",
                    )));
                };
                let outcome = self.validator.validate(row).await?;
                Ok(outcome.problem().cloned().map(|problem| DecisionOutcome::WouldFail { problem }))
            }
            (Origin::Inbox, EditValidation::Skipped) | (Origin::Outbox, _) => Ok(None),
        }
    }

    async fn row_as_it_would_be(
        &self,
        letter: &DeadLetter,
        payload: &str,
    ) -> Result<Option<InboxRow>, StoreError> {
        let Some(id) = letter.origin_id else { return Ok(None) };
        let found = self.store.find_inbox(id.to_string()).await?;
        Ok(found.filter(|row| row.id == id).map(|row| InboxRow {
            payload: Some(payload.to_owned()),
            // A conflict came with headers of its own; of any other letter they are the row's.
            headers: letter.headers.clone(),
            status: InboxStatus::Received,
            attempts: 0,
            ..row
        }))
    }
}

/// Returns why it cannot be edited any more, or not from this basis.
fn standing(letter: &DeadLetter, basis: Basis) -> Option<DecisionOutcome> {
    let edited = match (basis, letter.edited_at) {
        (Basis::Seen(seen), Some(at)) if seen != Some(at) => {
            Some(DecisionOutcome::EditedMeanwhile {
                by: letter.edited_by.clone().unwrap_or_default(),
                at,
            })
        }
        _ => None,
    };
    resolved(letter).or(edited)
}

fn refused(code: &str, message: &str) -> DecisionOutcome {
    DecisionOutcome::Refused { problem: Problem::new(code, message) }
}

fn resolved(letter: &DeadLetter) -> Option<DecisionOutcome> {
    letter.resolved_at.map(|at| DecisionOutcome::ResolvedBefore {
        resolution: letter.resolution.clone().unwrap_or_default(),
        by: letter.resolved_by.clone().unwrap_or_default(),
        at,
    })
}

/// Returns whether the key of the letter is this one. A conflict parks nothing.
fn holds(parked: &ParkedKey, letter: &DeadLetter) -> bool {
    parked.origin == letter.origin
        && parked.destination == letter.destination
        && parked.msg_key == letter.msg_key
        && letter.failed_status != STATUS_CONFLICT
}
