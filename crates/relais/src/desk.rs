//! The dead-letter desk: what people do about messages that failed for good.
//!
//! Invariant: every decision is one transaction of the store, which says whether somebody was faster.
//! So two people, or one who presses twice, carry it out once; and of many, each is done whole or not
//! at all, so that a replay that stops half-way can be run again.
//!
//! - here: one dead letter
//! - [`many`]: by filter and by key, in order and at a pace
//! - `pending`: rows that are given up before they failed
//! - `rehearse`: what would become of a message, with nothing changed

pub mod many;
mod pending;
mod rehearse;

use std::{collections::HashSet, sync::Arc};

use relais_core::{
    BoxFuture,
    dead_letter::{DeadLetter, Origin, Resolution, STATUS_CONFLICT, Verdict},
    decode::Decoder,
    delivery::Problem,
    desk::{Attempt, Decided, Edit},
    handler::Outcome,
    inbox::{InboxRow, InboxStatus},
    query::{Filter, PAGE_MAX, ParkedKey},
    repair::Mode,
    store::{Store, StoreError},
    time::Timestamp,
};
use serde::Serialize;
use uuid::Uuid;

use crate::process::{ActError, Operator};

pub use self::many::{HeldKey, Pace, Picked, Report, Summary};

/// What would become of a message, with nothing changed.
pub trait Rehearse: Send + Sync {
    /// What whoever handles such rows would say of this one.
    fn rehearse(&self, row: InboxRow) -> BoxFuture<'_, Result<Outcome, StoreError>>;
}

/// Who decides and why, for the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// The operator who acts.
    pub actor: String,
    /// The reason for it.
    pub reason: String,
}

impl By {
    /// Returns an actor with a reason.
    pub fn new(actor: &str, reason: &str) -> Self {
        Self { actor: actor.to_owned(), reason: reason.to_owned() }
    }

    fn verdict(&self, resolution: Resolution) -> Verdict {
        Verdict { resolution, actor: self.actor.clone(), reason: self.reason.clone() }
    }
}

/// What became of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Answer {
    /// It is done.
    Done,
    /// It does not exist.
    NotFound,
    /// Somebody was faster.
    ResolvedBefore {
        /// The earlier decision.
        resolution: String,
        /// The operator who decided.
        by: String,
        /// The time, by the database clock.
        at: Timestamp,
    },
    /// Somebody else gave it another payload since the one that was looked at.
    EditedMeanwhile {
        /// The operator who decided.
        by: String,
        /// The time, by the database clock.
        at: Timestamp,
    },
    /// The rehearsal would not take the new payload, and why.
    WouldFail {
        /// The problem.
        problem: Problem,
    },
    /// It cannot be, and why.
    Refused {
        /// The problem.
        problem: Problem,
    },
}

/// Another payload for a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// The new payload.
    pub payload: String,
    /// The payload that the operator saw.
    pub basis: Basis,
    /// Whether a payload that would fail is saved.
    pub insist: Insist,
    /// Whether anything is written.
    pub mode: Mode,
}

impl Rewrite {
    /// Must pass the rehearsal, and is written then.
    pub fn new(payload: &str) -> Self {
        Self {
            payload: payload.to_owned(),
            basis: Basis::AsItIs,
            insist: Insist::Rehearsed,
            mode: Mode::Write,
        }
    }
}

/// From what a payload was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// Whatever it is now.
    #[default]
    AsItIs,
    /// The dead letter with this `edited_at`: refused if somebody has edited it since.
    Seen(Option<Timestamp>),
}

/// What a payload has to pass. Valid JSON it must be in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Insist {
    /// The rehearsal must take it.
    #[default]
    Rehearsed,
    /// A person knows better.
    Forced,
}

/// One dead letter with what there is to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The dead letter.
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// What was tried, oldest first.
    pub history: Vec<Attempt>,
    /// Its key, if that is held back and among the [`PAGE_MAX`] held longest, and how much waits.
    pub parked_key: Option<ParkedKey>,
}

/// The desk. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    store: Arc<dyn Store>,
    rehearsal: Arc<dyn Rehearse>,
    operator: Operator,
    /// Destinations whose dead letters park no key.
    skipping: HashSet<String>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl Desk {
    /// A desk that knows no process; see [`Desk::operator`] and [`App::desk`](crate::App::desk).
    pub fn new(store: Arc<dyn Store>, rehearsal: Arc<dyn Rehearse>) -> Self {
        let operator = Operator::new(Arc::clone(&store), Vec::new());
        Self { store, rehearsal, operator, skipping: HashSet::new() }
    }

    /// Dead letters of these destinations park no key (`on_dead_letter = "skip"`).
    #[must_use]
    pub fn skipping(mut self, destinations: impl IntoIterator<Item = String>) -> Self {
        self.skipping.extend(destinations);
        self
    }

    /// Replays dead letters of processes through this operator.
    #[must_use]
    pub fn operator(mut self, operator: Operator) -> Self {
        self.operator = operator;
        self
    }

    /// Dead letters, newest first.
    pub async fn list(&self, filter: Filter) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.list_dead_letters(filter).await
    }

    /// Keys held back, longest first.
    pub async fn parked_keys(&self, limit: usize) -> Result<Vec<ParkedKey>, StoreError> {
        self.store.parked_keys(limit).await
    }

    /// Returns a dead letter with its context.
    pub async fn show(&self, id: Uuid) -> Result<Option<Shown>, StoreError> {
        let Some(letter) = self.store.find_dead_letter(id).await? else { return Ok(None) };
        let history = match letter.origin_id {
            Some(row) => self.store.attempts(letter.origin, row).await?,
            None => Vec::new(),
        };
        let parked = self.store.parked_keys(PAGE_MAX).await?;
        let parked_key = parked.into_iter().find(|parked| holds(parked, &letter));
        Ok(Some(Shown { letter, history, parked_key }))
    }

    /// Gives an open dead letter and its row another payload, if the rehearsal takes it. It stays a
    /// dead letter until it is replayed; its first payload is kept.
    pub async fn edit(&self, id: Uuid, rewrite: Rewrite, by: &By) -> Result<Answer, StoreError> {
        let Some(letter) = self.store.find_dead_letter(id).await? else {
            return Ok(Answer::NotFound);
        };
        if let Some(answer) = standing(&letter, rewrite.basis) {
            return Ok(answer);
        }
        if let Some(objection) = self.objection(&letter, &rewrite).await? {
            return Ok(objection);
        }
        if rewrite.mode == Mode::Try {
            return Ok(Answer::Done);
        }
        let By { actor, reason } = by.clone();
        let edit = Edit { payload: rewrite.payload, actor, reason };
        let decided = self.store.edit_dead_letter(id, edit).await?;
        crate::fail_point!("desk.after_edit");
        match decided {
            Decided::Done => Ok(Answer::Done),
            Decided::NotFound => Ok(Answer::NotFound),
            Decided::ResolvedBefore => self.who_was_faster(id).await,
        }
    }

    /// Tries it again: first in its key, attempts from zero.
    pub async fn replay(&self, id: Uuid, by: &By) -> Result<Answer, StoreError> {
        let Some(letter) = self.store.find_dead_letter(id).await? else {
            return Ok(Answer::NotFound);
        };
        self.decide(&Picked::from(&letter), Resolution::Retried, by).await
    }

    /// Leaves it failed and lets its key go on.
    pub async fn discard(&self, id: Uuid, by: &By) -> Result<Answer, StoreError> {
        if self.store.resolve(id, by.verdict(Resolution::Discarded)).await? {
            return Ok(Answer::Done);
        }
        self.who_was_faster(id).await
    }

    /// Closes a `SERDE_ERROR` row that nobody can repair: it is `FAILED`, with a dead letter that is
    /// resolved.
    pub async fn discard_unreadable(&self, row: i64, by: &By) -> Result<Answer, StoreError> {
        let verdict = by.verdict(Resolution::Discarded);
        let decided = self.store.discard_serde_error(row, verdict).await?;
        crate::fail_point!("desk.after_discard");
        match decided {
            Decided::Done => Ok(Answer::Done),
            Decided::NotFound => Ok(Answer::NotFound),
            Decided::ResolvedBefore => self.what_became_of(row).await,
        }
    }

    async fn decide(
        &self,
        picked: &Picked,
        resolution: Resolution,
        by: &By,
    ) -> Result<Answer, StoreError> {
        if (picked.origin, resolution) == (Origin::Process, Resolution::Retried) {
            return self.replay_process(picked.id, by).await;
        }
        if self.store.resolve(picked.id, by.verdict(resolution)).await? {
            return Ok(Answer::Done);
        }
        self.who_was_faster(picked.id).await
    }

    async fn replay_process(&self, id: Uuid, by: &By) -> Result<Answer, StoreError> {
        let refused = match self.operator.retry(id, &by.actor, &by.reason).await {
            Ok(_) => return Ok(Answer::Done),
            Err(ActError::Store(error)) => return Err(error),
            Err(ActError::Refused(problem)) => problem,
            Err(error @ (ActError::NotFound(_) | ActError::Busy)) => {
                Problem::new("PROCESS", &error.to_string())
            }
        };
        Ok(match self.who_was_faster(id).await? {
            Answer::NotFound => Answer::Refused { problem: refused },
            faster => faster,
        })
    }

    /// Also `NotFound` while it is still open.
    async fn who_was_faster(&self, id: Uuid) -> Result<Answer, StoreError> {
        let letter = self.store.find_dead_letter(id).await?;
        Ok(letter.as_ref().and_then(resolved).unwrap_or(Answer::NotFound))
    }

    /// Why a row is no `SERDE_ERROR` any more.
    async fn what_became_of(&self, id: i64) -> Result<Answer, StoreError> {
        let found = self.store.find_inbox(id.to_string()).await?;
        let Some(row) = found.filter(|row| row.id == id) else { return Ok(Answer::NotFound) };
        let letters = self.store.dead_letters_of(row.message_id.clone()).await?;
        let own = letters.iter().rfind(|l| (l.origin, l.origin_id) == (Origin::Inbox, Some(id)));
        Ok(own.and_then(resolved).unwrap_or_else(|| {
            let text =
                format!("is {}; only a SERDE_ERROR row is discarded so", row.status.as_str());
            refused("NO_SERDE_ERROR", &text)
        }))
    }

    /// What speaks against a payload.
    async fn objection(
        &self,
        letter: &DeadLetter,
        rewrite: &Rewrite,
    ) -> Result<Option<Answer>, StoreError> {
        if let Err(problem) = Decoder::Json.decode(rewrite.payload.as_bytes()) {
            return Ok(Some(Answer::Refused { problem }));
        }
        match (letter.origin, rewrite.insist) {
            (Origin::Process, _) => Ok(Some(refused(
                "PROCESS_DATA",
                "the data of a process is not edited; mend its definition or the other system, then \
                 replay it",
            ))),
            (Origin::Inbox, Insist::Rehearsed) => {
                let Some(row) = self.row_as_it_would_be(letter, &rewrite.payload).await? else {
                    return Ok(Some(refused("ROW_GONE", "its inbox row is no longer there")));
                };
                let outcome = self.rehearsal.rehearse(row).await?;
                Ok(outcome.problem().cloned().map(|problem| Answer::WouldFail { problem }))
            }
            (Origin::Inbox, Insist::Forced) | (Origin::Outbox, _) => Ok(None),
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

/// Why it cannot be edited any more, or not from what was looked at.
fn standing(letter: &DeadLetter, basis: Basis) -> Option<Answer> {
    let edited = match (basis, letter.edited_at) {
        (Basis::Seen(seen), Some(at)) if seen != Some(at) => {
            Some(Answer::EditedMeanwhile { by: letter.edited_by.clone().unwrap_or_default(), at })
        }
        _ => None,
    };
    resolved(letter).or(edited)
}

fn refused(code: &str, message: &str) -> Answer {
    Answer::Refused { problem: Problem::new(code, message) }
}

fn resolved(letter: &DeadLetter) -> Option<Answer> {
    letter.resolved_at.map(|at| Answer::ResolvedBefore {
        resolution: letter.resolution.clone().unwrap_or_default(),
        by: letter.resolved_by.clone().unwrap_or_default(),
        at,
    })
}

/// Whether the key of the letter is this one. A conflict holds nothing.
fn holds(parked: &ParkedKey, letter: &DeadLetter) -> bool {
    parked.origin == letter.origin
        && parked.destination == letter.destination
        && parked.msg_key == letter.msg_key
        && letter.failed_status != STATUS_CONFLICT
}
