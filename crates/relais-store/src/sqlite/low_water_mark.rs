//! Where a fetch of a scope with parked keys starts: behind the rows that wait for a decision.
//!
//! Without it each fetch walks over all rows behind a parked key, and there may be a million of them.
//!
//! Invariant: no row of the scope's lanes with an id up to the mark is fresh (open, without a time to wait
//! for), unless its key is parked, and none becomes so unnoticed. One writer at a time draws ids, so they
//! are committed in their order, and one snapshot shows rows, parked keys and decisions together. A row
//! below the mark becomes fresh, or its key is set free, only by a decision of an operator or a bulk job, and
//! both are counted. What is changed by hand is found because the walk starts at zero again when the
//! lanes change and every [`LOOK_BELOW_EVERY`].

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use relais_core::store::{Fetch, StoreError};
use rusqlite::Connection;

use super::{
    error,
    row::{first, lane_bits},
};

/// The interval at which a fetch reads below the mark.
const LOOK_BELOW_EVERY: Duration = Duration::from_secs(30);
/// The interval at which a scope without parked keys is checked for them: a fetch without a mark is right too, only
/// slower behind many rows of parked keys.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Most scopes with a mark; more do without.
const SCOPES_MAX: usize = 1_024;

/// The marks of all scopes of a store.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<HashMap<String, FetchStart>>);

/// The start of the next fetch of a scope.
#[derive(Debug)]
enum FetchStart {
    /// At zero: the scope had no parked keys then.
    Zero(Instant),
    Behind(Mark),
}

#[derive(Debug)]
struct Mark {
    lanes: Vec<(i16, i64)>,
    decisions: i64,
    at: i64,
    walked_at: Instant,
}

/// Which rows a scope has.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// As in `relais_parked_key`.
    pub(super) origin: &'static str,
    pub(super) destination: &'a str,
    /// Gives the mark that the rows allow now, from one that holds.
    pub(super) advance: &'static str,
}

impl Marks {
    /// Runs `rows` in one snapshot, with the id behind which it has to read.
    pub(super) fn fetch<T>(
        &self,
        db: &Connection,
        fetch: &Fetch,
        place: Place<'_>,
        rows: impl FnOnce(i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Place { origin, destination, advance } = place;
        let scope = fetch.scope.to_string();
        if self.has_no_parked_keys(&scope) {
            return rows(0);
        }
        // It only reads; dropped, it ends.
        let snapshot = db.unchecked_transaction().map_err(|e| error::store(&e))?;
        let seen =
            first(&snapshot, include_str!("sql/decisions.sql"), (origin, destination), |c| {
                (c.integer(0) != 0, c.integer(1))
            })?;
        let Some((true, decisions)) = seen else {
            self.set(scope, FetchStart::Zero(Instant::now()));
            return rows(0);
        };
        let lanes: Vec<_> = fetch.lanes.iter().map(|lane| (lane.lane, lane.epoch)).collect();
        let known = self.known(&scope, &lanes, decisions);
        let from = known.map_or(0, |(at, _)| at);
        let found = rows(from)?;
        let params = (destination, lane_bits(&fetch.lanes), from);
        let at = first(&snapshot, advance, params, |c| c.integer(0))?.unwrap_or(from);
        let walked_at = known.map_or_else(Instant::now, |(_, walked_at)| walked_at);
        self.set(scope, FetchStart::Behind(Mark { lanes, decisions, at, walked_at }));
        Ok(found)
    }

    fn set(&self, scope: String, start: FetchStart) {
        let mut marks = self.marks();
        if marks.len() < SCOPES_MAX || marks.contains_key(&scope) {
            marks.insert(scope, start);
        }
    }

    /// Returns whether the scope had no parked keys a moment ago.
    fn has_no_parked_keys(&self, scope: &str) -> bool {
        matches!(self.marks().get(scope), Some(FetchStart::Zero(at)) if at.elapsed() < CHECK_EVERY)
    }

    /// The mark, and when the walk last started at zero; none if it must do so now.
    fn known(&self, scope: &str, lanes: &[(i16, i64)], decisions: i64) -> Option<(i64, Instant)> {
        let marks = self.marks();
        let Some(FetchStart::Behind(mark)) = marks.get(scope) else { return None };
        let holds = mark.lanes == lanes
            && mark.decisions == decisions
            && mark.walked_at.elapsed() < LOOK_BELOW_EVERY;
        holds.then_some((mark.at, mark.walked_at))
    }

    /// Returns the id behind which the next fetch of the scope starts.
    pub(super) fn at(&self, scope: &str) -> i64 {
        match self.marks().get(scope) {
            Some(FetchStart::Behind(mark)) => mark.at,
            Some(FetchStart::Zero(_)) | None => 0,
        }
    }

    fn marks(&self) -> std::sync::MutexGuard<'_, HashMap<String, FetchStart>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
