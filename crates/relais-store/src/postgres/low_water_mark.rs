//! The low-water mark of a scope: the id from which a fetch starts its walk along the index.
//!
//! Without it every fetch walks over the entries of all rows settled since the oldest snapshot in
//! the database; a report that runs for an hour would make the relay slower and slower.
//!
//! Invariant: no row of the scope's lanes with an id up to the mark is fresh, and none can become so unnoticed. In
//! the outbox a row is fresh if it is pending and not in `relais_waiting`; in the inbox if it is open, without a time
//! to wait for, and its key is not parked. Never a bare cursor: a lower id may commit later.
//!
//! Why it holds. An INSERT locks the table (`RowExclusiveLock`) *before* it draws its id and keeps
//! the lock until its transaction ends, and PostgreSQL makes a commit visible before it releases the
//! transaction's locks. So:
//!
//! 1. Let `highest` be an id some fetch has returned, or the highest fresh row of an inbox with parked
//!    keys, whose rows no fetch returns: all ids up to it have been drawn.
//! 2. Ask for the holders of that lock *afterwards*. A transaction that drew an id up to `highest`
//!    is among them, or has ended.
//! 3. Once each of those holders has ended, all ids up to `highest` are *decided*, and every
//!    later snapshot shows what became of them. A transaction that rolls back to a savepoint may
//!    lose the lock earlier; the ids it drew until then are decided too.
//! 4. Take, in a snapshot later than that, the lowest fresh row above the old mark, whether it may go out now or
//!    is held. The mark may move right below it, at most to the decided id.
//! 5. An outbox row that is not fresh never becomes so again: it becomes due in `relais_waiting` instead.
//!    An inbox row becomes fresh again only when an operator decides so; a key is freed only when an operator
//!    decides so, also by a discard that changes no row. That transaction locks the table likewise, then draws a
//!    number (an id of the audit), and then commits. Each fetch reads how many such numbers have been drawn
//!    *after* it has read its rows: if it has moved, its rows do not count, and it starts from zero.
//!    If it has not, no such commit came before the fetch's snapshot. And a decision that was seen by
//!    its number before its commit is still among the holders of 2., so the mark, now at zero, does
//!    not pass its rows.
//!
//! The outbox has a *position* for each destination in the database: a mark that holds for all lanes, because 4. was
//! done for all lanes. There the walk starts where it otherwise starts at zero. It moves once a second.
//!
//! A worker that keeps all rows it is given need not walk over them again. So the walk may start *ahead* of
//! the mark: behind a decided id up to which a later snapshot has returned every fresh row, or passed it.
//!
//! A prepared transaction (two-phase commit) changes its name while it holds the lock, so nothing is
//! decided while there is one. What is outside these rules (rows changed by hand, ids given by hand
//! or drawn ahead) is found in the inbox because the walk starts at zero again after an error, on a new connection,
//! when the lanes change, and every [`LOOK_BELOW_EVERY`]; in the outbox by a sweep beside clean-up.
//!
//! The clock is used for pacing only; nothing above depends on it.

mod mark;

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use relais_core::{
    lane::{OwnedLane, Scope},
    store::KeptRows,
};
use tokio_postgres::Row;

use self::mark::{LOOK_BELOW_EVERY, Mark};
use super::row::{Micros, Read};

/// Most scopes with a mark; more do without.
const SCOPES_MAX: usize = 1_024;

/// Most rows that were fetched from `relais_waiting` and whose settlement is not known, for each scope.
const WAITING_MAX: usize = 10_000;

/// The number of times that one fetch starts over because operators put rows back.
pub(super) const FETCHES_MAX: usize = 3;

/// The marks of all scopes of a store.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<HashMap<String, Mark>>, Mutex<Option<Instant>>);

/// The start of one fetch, and the questions it asks beside its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Fresh rows with a higher id.
    pub(super) from: i64,
    /// Ask also for the lock's holders; this is the highest id that a fetch has returned.
    pub(super) ask: Option<i64>,
    /// Ask then for the lowest fresh row above this id, the mark.
    pub(super) lowest: Option<i64>,
    /// Ask then for the lowest fresh row of all lanes above this id, the position.
    pub(super) position: Option<i64>,
    /// The worker keeps the rows.
    is_kept: bool,
    /// The number of times that the worker had given rows back.
    kept_since: u64,
    generation: u64,
}

impl Plan {
    /// Returns the plan of the next part of a walk, behind a row.
    pub(super) fn behind(self, row: i64) -> Self {
        Self { from: row, ask: None, ..self }
    }
}

/// The start of the walk of a scope without a mark.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WalkStart {
    /// The position of the destination; `None` for an inbox.
    pub(super) position: Option<i64>,
    pub(super) kept: KeptRows,
}

/// The answers to the questions of a [`Plan`].
#[derive(Debug)]
pub(super) struct MarkAnswer {
    /// Keys of the scope are parked.
    pub(super) parked: bool,
    /// Then the highest fresh row above [`Plan::from`], seen before the writers.
    pub(super) highest: Option<i64>,
    /// Transactions that hold the lock.
    pub(super) writers: HashSet<String>,
    /// The lowest fresh row above [`Plan::lowest`], seen after the writers.
    pub(super) lowest: Option<i64>,
    /// The lowest fresh row of all lanes above [`Plan::position`], seen after the writers.
    pub(super) lowest_of_all: Option<i64>,
}

impl MarkAnswer {
    pub(super) fn of(highest: &Row, writers: &[Row], lowest: Option<&Row>) -> Self {
        Self {
            parked: highest.get(0),
            highest: highest.get(1),
            writers: writers.iter().map(|row| row.get(0)).collect(),
            lowest: lowest.map(|row| row.get(0)),
            lowest_of_all: None,
        }
    }

    /// Of a destination; `lowest` has the lowest fresh rows of these lanes and of all.
    pub(super) fn of_outbox(writers: &[Row], lowest: Option<&Row>) -> Self {
        Self {
            parked: false,
            highest: None,
            writers: writers.iter().map(|row| row.get(0)).collect(),
            lowest: lowest.and_then(|row| row.get(0)),
            lowest_of_all: lowest.and_then(|row| row.get(1)),
        }
    }
}

/// The result of a fetch.
#[derive(Debug)]
pub(super) struct FetchFindings {
    pub(super) rows: Vec<SeenRow>,
    /// Decisions of operators so far, read after the rows; 0 in the outbox.
    pub(super) decisions: i64,
    /// The position of the destination; `None` for an inbox.
    pub(super) position: Option<i64>,
    /// The id up to which every fresh row was returned or passed; `None` if that is not known.
    pub(super) complete_to: Option<i64>,
    pub(super) answer: Option<MarkAnswer>,
}

/// The decision whether the rows of a fetch may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchVerdict {
    Sound,
    /// Rows were put back, perhaps below the mark: fetch again.
    Again,
}

/// One returned row, as far as the mark is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenRow {
    pub(super) id: i64,
    /// True if it was found by the walk.
    pub(super) fresh: bool,
}

impl SeenRow {
    /// Of the inbox.
    pub(super) fn of(row: &Row) -> Read<Self> {
        let time: Option<Micros> = row.try_get("next_attempt_at")?;
        Ok(Self { id: row.try_get("id")?, fresh: time.is_none() })
    }
}

impl Marks {
    pub(super) fn begin(&self, scope: &str, lanes: &[OwnedLane], start: WalkStart) -> Plan {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = start.position.unwrap_or(0);
        if marks.len() >= SCOPES_MAX && !marks.contains_key(scope) {
            return Plan {
                from,
                ask: None,
                lowest: None,
                position: None,
                is_kept: false,
                kept_since: 0,
                generation: 0,
            };
        }
        let now = Instant::now();
        let new = || Mark::new(now, start.position);
        let mark = marks.entry(scope.to_owned()).or_insert_with(new);
        mark.begin(lanes, now, start.kept)
    }

    /// Returns the position of a destination as last read; `None` if it has no mark.
    pub(super) fn position(&self, scope: &str) -> Option<i64> {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get(scope).map(|mark| mark.base)
    }

    /// Returns the id to which the position of the destination may move now.
    pub(super) fn next_position(&self, scope: &str) -> Option<i64> {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get_mut(scope)?.next_position.take()
    }

    /// Remembers rows that were fetched from `relais_waiting`.
    pub(super) fn note_waiting(&self, scope: &str, rows: impl Iterator<Item = i64>) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mark) = marks.get_mut(scope) else { return };
        mark.waiting.extend(rows);
        if mark.waiting.len() > WAITING_MAX {
            mark.waiting.clear();
            mark.any_waits = true;
        }
    }

    /// Returns whether rows that are settled now may be in `relais_waiting`, and forgets them.
    pub(super) fn take_waiting(&self, scope: &str, rows: &[i64]) -> bool {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mark) = marks.get_mut(scope) else { return true };
        let known = mark.waiting.len();
        if known > 0 {
            rows.iter().for_each(|id| {
                mark.waiting.remove(id);
            });
        }
        mark.any_waits || mark.waiting.len() < known
    }

    pub(super) fn end(&self, scope: &str, plan: Plan, found: FetchFindings) -> FetchVerdict {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get_mut(scope).map_or(FetchVerdict::Sound, |mark| mark.end(plan, found))
    }

    /// Returns the id behind which the next fetch of the scope starts.
    pub(super) fn at(&self, scope: &str) -> i64 {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get(scope).map_or(0, |mark| mark.at)
    }

    /// Returns where a search for work starts, for each destination. Now and then it starts below the
    /// marks, as fetches do: a destination that is not woken does not fetch.
    pub(super) fn for_search(&self, destinations: &[String]) -> Vec<i64> {
        let mut searched = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if searched.is_none_or(|at| at.elapsed() >= LOOK_BELOW_EVERY) {
            *searched = Some(Instant::now());
            return vec![0; destinations.len()];
        }
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = |name: &String| {
            let scope = Scope::Outbox(name.clone()).to_string();
            marks.get(&scope).map_or(0, |mark| mark.at)
        };
        destinations.iter().map(mark).collect()
    }

    /// After a new connection nothing is known of the server behind it.
    pub(super) fn forget_all(&self) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.values_mut().for_each(Mark::reset);
    }

    /// After an error nothing is known.
    pub(super) fn forget(&self, scope: &str) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mark) = marks.get_mut(scope) {
            mark.reset();
        }
    }
}
