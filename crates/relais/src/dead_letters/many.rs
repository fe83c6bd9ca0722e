//! Many dead letters at once: by filter, and all of one key.
//!
//! Invariant: of one key, the message that came first is decided first, whatever was tried since. A
//! key that is held stays held until the last of its dead letters is decided, so that nothing later
//! slips between two of them.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use relais_core::{
    dead_letter::{DeadLetter, Origin, Resolution, STATUS_CONFLICT, STATUS_FAILED},
    inspect::{InspectExt, PayloadPart},
    limits::RateLimit,
    query::{Filter, PAGE_MAX},
    store::StoreError,
    time::Timestamp,
};
use serde::Serialize;
use uuid::Uuid;

use super::{DeadLetters, DecisionAuthor, DecisionOutcome};

/// Most dead letters one selection takes; run it again for more.
pub const PICKED_MAX: usize = 100_000;

/// A dead letter that was chosen: what a decision needs of it, without its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelectedLetter {
    /// The id.
    pub id: Uuid,
    /// The table it comes from.
    pub origin: Origin,
    /// The id of its row in that table.
    pub origin_id: Option<i64>,
    /// The message id.
    pub message_id: String,
    /// The destination; none for an inbox message.
    pub destination: Option<String>,
    /// The ordering key.
    pub msg_key: String,
    /// The status in which it failed.
    pub failed_status: String,
    /// The time at which it became a dead letter.
    pub parked_at: Timestamp,
}

impl From<&DeadLetter> for SelectedLetter {
    fn from(letter: &DeadLetter) -> Self {
        Self {
            id: letter.id,
            origin: letter.origin,
            origin_id: letter.origin_id,
            message_id: letter.message_id.clone(),
            destination: letter.destination.clone(),
            msg_key: letter.msg_key.clone(),
            failed_status: letter.failed_status.clone(),
            parked_at: letter.parked_at,
        }
    }
}

impl SelectedLetter {
    /// Rows by the order they came in, whenever they failed; processes by when they did.
    fn order(&self) -> (u8, Option<i64>, Timestamp, Uuid) {
        (self.origin as u8, self.origin_id, self.parked_at, self.id)
    }
}

/// Puts them in the order in which they are to be decided.
pub fn in_order(picked: &mut [SelectedLetter]) {
    picked.sort_by_key(SelectedLetter::order);
}

/// The open dead letters of a key, at the place where it is ordered: the inbox, or one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyLetters {
    /// The table it comes from.
    pub origin: Origin,
    /// The destination; none for an inbox message.
    pub destination: Option<String>,
    /// The ordering key.
    pub msg_key: String,
    /// In the order they came.
    pub letters: Vec<SelectedLetter>,
}

/// The pace of decisions about many dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Without a pause.
    #[default]
    AtOnce,
    /// This number in that time, with a burst of as many.
    Rate(u32, Duration),
}

/// The result of a decision about one of many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DecisionReport {
    /// The id.
    pub id: Uuid,
    /// The result.
    #[serde(flatten)]
    pub answer: DecisionOutcome,
}

/// The number of dead letters by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DecisionSummary {
    /// The number that is done.
    pub done: u64,
    /// Another decision came first, or they were deleted.
    pub unchanged: u64,
    /// The number that was refused.
    pub refused: u64,
}

impl DecisionSummary {
    /// Counts one result.
    pub fn add(&mut self, answer: &DecisionOutcome) {
        *match answer {
            DecisionOutcome::Done => &mut self.done,
            DecisionOutcome::NotFound
            | DecisionOutcome::ResolvedBefore { .. }
            | DecisionOutcome::EditedMeanwhile { .. } => &mut self.unchanged,
            DecisionOutcome::WouldFail { .. } | DecisionOutcome::Refused { .. } => {
                &mut self.refused
            }
        } += 1;
    }
}

impl DeadLetters {
    /// The open dead letters that match, in the order they are to be decided; of more than
    /// [`PICKED_MAX`] those that failed last. The filter's `status`, `before` and `limit` are not used.
    pub async fn pick(&self, filter: &Filter) -> Result<Vec<SelectedLetter>, StoreError> {
        let open = Some("open".to_owned());
        let mut filter = Filter { status: open, before: None, limit: PAGE_MAX, ..filter.clone() };
        let mut picked: Vec<SelectedLetter> = Vec::new();
        while picked.len() < PICKED_MAX {
            filter.limit = PAGE_MAX.min(PICKED_MAX - picked.len());
            let page =
                self.store.dead_letter_page(filter.clone(), PayloadPart::Preview).await?.rows;
            picked.extend(page.iter().map(|listed| SelectedLetter::from(&listed.row)));
            if page.len() < filter.limit {
                break;
            }
            filter.before = page.last().map(|listed| listed.row.id.to_string());
        }
        in_order(&mut picked);
        Ok(picked)
    }

    /// The open dead letter of a row that failed, by the row's key. A conflict is about another message
    /// with the row's id.
    pub async fn letter_of(
        &self,
        origin: Origin,
        row: i64,
        key: &str,
    ) -> Result<Option<SelectedLetter>, StoreError> {
        let filter = Filter { key: Some(key.to_owned()), ..Filter::default() };
        let mut picked = self.pick(&filter).await?.into_iter();
        Ok(picked.find(|one| {
            (one.origin, one.origin_id) == (origin, Some(row)) && one.failed_status == STATUS_FAILED
        }))
    }

    /// Returns the open dead letters of a key, by the place where it is ordered. Conflicts park nothing and are left out.
    pub async fn of_key(&self, key: &str) -> Result<Vec<KeyLetters>, StoreError> {
        let filter = Filter { key: Some(key.to_owned()), ..Filter::default() };
        let mut keys: Vec<KeyLetters> = Vec::new();
        for picked in self.pick(&filter).await? {
            if picked.origin == Origin::Process || picked.failed_status == STATUS_CONFLICT {
                continue;
            }
            let same = |k: &&mut KeyLetters| {
                (k.origin, &k.destination) == (picked.origin, &picked.destination)
            };
            match keys.iter_mut().find(same) {
                Some(held) => held.letters.push(picked),
                None => keys.push(KeyLetters {
                    origin: picked.origin,
                    destination: picked.destination.clone(),
                    msg_key: picked.msg_key.clone(),
                    letters: vec![picked],
                }),
            }
        }
        Ok(keys)
    }

    /// Retries what matches, the oldest message first. `each` is called for every one and may stop the rest.
    pub async fn retry_all(
        &self,
        filter: &Filter,
        pace: Pace,
        by: &DecisionAuthor,
        each: impl FnMut(DecisionReport) -> ControlFlow<()>,
    ) -> Result<DecisionSummary, StoreError> {
        let picked = self.pick(filter).await?;
        self.decide_all(&picked, Resolution::Retried, pace, by, each).await
    }

    /// Retries all dead letters of a key in order; then the key continues.
    pub async fn release_key(
        &self,
        key: &KeyLetters,
        by: &DecisionAuthor,
    ) -> Result<DecisionSummary, StoreError> {
        self.decide_all(&key.letters, Resolution::Retried, Pace::AtOnce, by, continue_all).await
    }

    /// Discards all dead letters of a key; then the key continues.
    pub async fn skip_key(
        &self,
        key: &KeyLetters,
        by: &DecisionAuthor,
    ) -> Result<DecisionSummary, StoreError> {
        self.decide_all(&key.letters, Resolution::Discarded, Pace::AtOnce, by, continue_all).await
    }

    /// Decides each in turn, as given. `each` is called for every one and may stop the rest.
    pub async fn decide_all(
        &self,
        picked: &[SelectedLetter],
        resolution: Resolution,
        pace: Pace,
        by: &DecisionAuthor,
        mut each: impl FnMut(DecisionReport) -> ControlFlow<()>,
    ) -> Result<DecisionSummary, StoreError> {
        let (mut summary, mut pacer) = (DecisionSummary::default(), Pacer::new(pace));
        for one in picked {
            pacer.wait().await;
            let answer = self.decide(one, resolution, by).await?;
            crate::fail_point!("dead_letters.after_decision");
            summary.add(&answer);
            if each(DecisionReport { id: one.id, answer }).is_break() {
                break;
            }
        }
        Ok(summary)
    }
}

fn continue_all(_: DecisionReport) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Keeps the pace.
struct Pacer {
    limit: Option<RateLimit>,
    started: Instant,
}

impl Pacer {
    fn new(pace: Pace) -> Self {
        let limit = match pace {
            Pace::AtOnce => None,
            Pace::Rate(count, period) => Some(RateLimit::new(count, period)),
        };
        Self { limit, started: Instant::now() }
    }

    async fn wait(&mut self) {
        let Some(limit) = &mut self.limit else { return };
        let now_ns =
            |started: Instant| u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        while let Err(pause) = limit.take(now_ns(self.started)) {
            tokio::time::sleep(pause).await;
        }
    }
}
