//! Finds the rows of a destination that can be sent: due rows, and fresh ones behind its position.
//!
//! Invariant: rows of a key come in the order of their ids. A fresh row behind an obstacle is passed into
//! `relais_waiting` once, and only if no earlier row of its key stays fresh; no later fetch meets it there before
//! the obstacle is removed.

use std::collections::{BTreeMap, HashMap, HashSet};

use relais_core::{
    outbox::OutboxRow,
    store::{Fetch, StoreError},
};
use rusqlite::{Connection, Transaction, params, types::ValueRef};

use super::{
    error,
    lane::ascii_lane,
    outbox::destination,
    outbox_position::{OutboxObstacles, OutboxPositions},
    row::{Cells, change, first, json_array, lane_bits, read},
};

/// Most rows that one write passes into `relais_waiting`.
const PASSED_MAX: usize = 2_000;

/// The largest payload, in bytes, that the walk reads at once. Of a larger one it may need no byte.
const INLINE_MAX: i64 = 2_000;

/// Rows that were found so far, and the place of the walk.
#[derive(Debug, Default)]
pub(super) struct FetchProgress {
    /// The rows to return, by their ids.
    found: BTreeMap<i64, FoundRow>,
    /// The first fresh row of the lanes.
    first_fresh: Option<i64>,
    /// Keys of fresh rows that the worker holds.
    held_keys: HashSet<String>,
    walked_to: Option<i64>,
    fresh: usize,
    bytes: usize,
}

/// A row to return.
#[derive(Debug)]
struct FoundRow {
    lane: i16,
    /// The size of its payload.
    bytes: usize,
    /// The row, if the walk has read it. A due row and one with a large payload are read at the end.
    row: Option<OutboxRow>,
}

/// The result of one read.
pub(super) enum FetchedPart {
    /// All rows. A position is to be stored.
    All { rows: Vec<OutboxRow>, passed: Vec<i64>, position: Option<i64> },
    /// There are many rows to pass: the walk continues when these are.
    Cut { progress: FetchProgress, passed: Vec<i64> },
}

/// Reads in one snapshot. Changes nothing.
pub(super) fn fetch(
    db: &Connection,
    positions: &OutboxPositions,
    fetch: &Fetch,
    progress: FetchProgress,
) -> Result<FetchedPart, StoreError> {
    // It only reads; dropped, it ends.
    let snapshot = db.unchecked_transaction().map_err(|e| error::store(&e))?;
    let destination = destination(&fetch.scope)?;
    let state = OutboxObstacles::read(&snapshot, destination)?;
    let lanes = lane_bits(&fetch.lanes);
    if lanes == 0 || fetch.limit == 0 {
        return Ok(FetchedPart::All { rows: Vec::new(), passed: Vec::new(), position: None });
    }
    let from = positions.start(destination, lanes, state.position);
    let mut search = OutboxSearch {
        db: &snapshot,
        destination,
        state,
        lanes,
        skip_keys: fetch.skip_keys.iter().map(String::as_str).collect(),
        skip_ids: fetch.skip_ids.iter().copied().collect(),
        limit: fetch.limit,
        bytes_max: fetch.payloads.bytes(),
        progress,
        keys: HashMap::new(),
        passed: Vec::new(),
    };
    if state.has_waiting && search.progress.walked_to.is_none() {
        search.find_due()?;
    }
    let walk_end = search.walk(search.progress.walked_to.unwrap_or(from))?;
    let OutboxSearch { progress, .. } = &search;
    let end = if walk_end == WalkEnd::NoMoreRows { state.highest } else { from };
    let lanes_at = progress.first_fresh.map_or(end, |id| id - 1);
    positions.note_lanes(destination, lanes, lanes_at.max(from));
    if walk_end == WalkEnd::ManyToPass {
        let OutboxSearch { mut progress, passed, .. } = search;
        // The next snapshot may have other contents.
        progress.found.values_mut().for_each(|found| found.row = None);
        return Ok(FetchedPart::Cut { progress, passed });
    }
    let rows = search.rows()?;
    let position = if positions.is_storing_due(destination) {
        positions.advance(&snapshot, destination, state)?;
        positions.to_store(destination, state.position)
    } else {
        None
    };
    Ok(FetchedPart::All { rows, passed: search.passed, position })
}

/// Lets rows that a read found wait from now on, and stores a position; returns whether all rows wait. No fence
/// is needed: each row enters `relais_waiting` only if its obstacle is there in this transaction.
pub(super) fn pass(
    tx: &Transaction<'_>,
    destination: &str,
    passed: &[i64],
    position: Option<i64>,
) -> Result<bool, StoreError> {
    let mut waiting = 0;
    if !passed.is_empty() {
        let params = (destination, json_array(passed));
        waiting = change(tx, include_str!("sql/pass_outbox.sql"), params)?;
    }
    if let Some(position) = position {
        change(tx, include_str!("sql/advance_position.sql"), (destination, position))?;
    }
    Ok(waiting == passed.len() as u64)
}

/// A search for rows in one snapshot.
struct OutboxSearch<'a> {
    db: &'a Connection,
    destination: &'a str,
    state: OutboxObstacles,
    lanes: i64,
    skip_keys: HashSet<&'a str>,
    skip_ids: HashSet<i64>,
    limit: usize,
    bytes_max: Option<usize>,
    progress: FetchProgress,
    /// The obstacles of keys that were met.
    keys: HashMap<String, KeyObstacles>,
    passed: Vec<i64>,
}

/// The reason why a walk ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkEnd {
    NoMoreRows,
    ManyToPass,
    Limit,
}

#[derive(Clone, Copy)]
struct KeyObstacles {
    first_holder: Option<i64>,
    is_parked: bool,
}

impl OutboxSearch<'_> {
    fn find_due(&mut self) -> Result<(), StoreError> {
        let db = self.db;
        let mut statement = db.prepare_cached(include_str!("sql/fetch_due.sql")).map_err(failed)?;
        let params = params![self.destination, self.state.has_parked];
        let mut rows = statement.query(params).map_err(failed)?;
        // The first row of a key that an earlier one holds. That one may come later in the order of times, and a
        // row behind both may be free of each: it must not overtake the row between them.
        let mut held: HashMap<String, i64> = HashMap::new();
        while self.progress.found.len() < self.limit
            && let Some(row) = rows.next().map_err(failed)?
        {
            let cells = Cells::new(row);
            let (id, key, bytes) = (cells.integer(0), cells.text_ref(1), cells.size(2));
            if cells.flag(3) {
                let first = held.entry(key.into_owned()).or_insert(id);
                *first = id.min(*first);
                continue;
            }
            if held.get(&*key).is_some_and(|first| *first < id) {
                continue;
            }
            if let Some(lane) = self.usable_lane(id, &key)? {
                self.progress.found.insert(id, FoundRow { lane, bytes, row: None });
            }
        }
        Ok(())
    }

    /// Walks over fresh rows.
    fn walk(&mut self, from: i64) -> Result<WalkEnd, StoreError> {
        let db = self.db;
        let sql = include_str!("sql/fetch_outbox.sql");
        let mut statement = db.prepare_cached(sql).map_err(failed)?;
        let inline_max = self.bytes_max.map_or(-1, |_| INLINE_MAX);
        let params = params![self.destination, from, self.state.has_waiting, inline_max];
        let mut rows = statement.query(params).map_err(failed)?;
        while self.progress.fresh < self.limit
            && self.bytes_max.is_none_or(|max| self.progress.bytes < max)
        {
            let Some(row) = rows.next().map_err(failed)? else { return Ok(WalkEnd::NoMoreRows) };
            let cells = Cells::new(row);
            let (id, key) = (cells.integer(0), cells.text_ref(10));
            let lane = self.lane(id, &key)?;
            if !self.owns(lane) {
                continue;
            }
            self.progress.first_fresh.get_or_insert(id);
            if self.skip_ids.contains(&id) {
                self.progress.held_keys.insert(key.into_owned());
                continue;
            }
            if self.skip_keys.contains(&*key) {
                continue;
            }
            let delay = cells.integer(24);
            if delay > 1 {
                self.hold(id, &key)?;
            }
            if delay > 0 || self.is_blocked(id, &key)? {
                // Behind a row that the worker holds it stays fresh: that row has to be passed first.
                if self.progress.held_keys.contains(&*key) {
                    continue;
                }
                self.passed.push(id);
                if self.passed.len() == PASSED_MAX {
                    self.progress.walked_to = Some(id);
                    return Ok(WalkEnd::ManyToPass);
                }
                continue;
            }
            let bytes = cells.size(23);
            let row = match matches!(row.get_ref(7), Ok(ValueRef::Null)) {
                true => None,
                false => Some(OutboxRow { lane, ..read(row, |c| c.outbox()).map_err(failed)? }),
            };
            self.progress.found.insert(id, FoundRow { lane, bytes, row });
            self.progress.fresh += 1;
            self.progress.bytes = self.progress.bytes.saturating_add(bytes);
        }
        Ok(WalkEnd::Limit)
    }

    fn owns(&self, lane: i16) -> bool {
        (self.lanes >> lane) & 1 == 1
    }

    /// Returns the lane of a row that the worker owns and does not hold.
    fn usable_lane(&self, id: i64, key: &str) -> Result<Option<i16>, StoreError> {
        if self.skip_ids.contains(&id) || self.skip_keys.contains(key) {
            return Ok(None);
        }
        let lane = self.lane(id, key)?;
        Ok(self.owns(lane).then_some(lane))
    }

    /// Returns the lane as the column `lane` has it.
    fn lane(&self, id: i64, key: &str) -> Result<i16, StoreError> {
        if let Some(lane) = ascii_lane(key) {
            return Ok(lane);
        }
        let lane = first(self.db, include_str!("sql/lane_of_row.sql"), [id], |c| c.lane(0))?;
        Ok(lane.unwrap_or_default())
    }

    fn is_blocked(&mut self, id: i64, key: &str) -> Result<bool, StoreError> {
        if !self.state.has_waiting && !self.state.has_parked && self.keys.is_empty() {
            return Ok(false);
        }
        let KeyObstacles { first_holder, is_parked } = self.obstacles(key)?;
        Ok(is_parked || first_holder.is_some_and(|holder| holder < id))
    }

    /// Blocks later rows of a key behind a row that is passed.
    fn hold(&mut self, id: i64, key: &str) -> Result<(), StoreError> {
        let mut obstacles = self.obstacles(key)?;
        obstacles.first_holder = Some(obstacles.first_holder.map_or(id, |holder| holder.min(id)));
        self.keys.insert(key.to_owned(), obstacles);
        Ok(())
    }

    fn obstacles(&mut self, key: &str) -> Result<KeyObstacles, StoreError> {
        Ok(match self.keys.get(key) {
            Some(obstacles) => *obstacles,
            None => {
                let sql = include_str!("sql/key_obstacles.sql");
                let found = first(self.db, sql, (self.destination, key), |c| KeyObstacles {
                    first_holder: c.number(0),
                    is_parked: c.flag(1),
                })?;
                let found = found.expect("a SELECT without FROM gives one row");
                self.keys.insert(key.to_owned(), found);
                found
            }
        })
    }

    /// Reads the rows that were found: the first ones, up to the limit of rows and bytes.
    fn rows(&mut self) -> Result<Vec<OutboxRow>, StoreError> {
        let sql = include_str!("sql/read_outbox.sql");
        let mut statement = self.db.prepare_cached(sql).map_err(failed)?;
        let mut found = Vec::with_capacity(self.progress.found.len().min(self.limit));
        let mut bytes_before = 0_usize;
        let all = std::mem::take(&mut self.progress.found);
        for (id, FoundRow { lane, bytes, row }) in all.into_iter().take(self.limit) {
            if self.bytes_max.is_some_and(|max| bytes_before >= max) {
                break;
            }
            bytes_before = bytes_before.saturating_add(bytes);
            if let Some(row) = row {
                found.push(row);
                continue;
            }
            let params = params![id, self.bytes_max.is_some(), lane];
            let mut rows = statement.query(params).map_err(failed)?;
            if let Some(row) = rows.next().map_err(failed)? {
                found.push(read(row, |c| c.outbox()).map_err(failed)?);
            }
        }
        Ok(found)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as an argument of `map_err`")]
fn failed(error: rusqlite::Error) -> StoreError {
    error::store(&error)
}
