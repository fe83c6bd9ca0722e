//! The id behind which a fetch of a destination starts to read.
//!
//! Invariant: no row of the destination with an id up to its position is fresh, that is pending and not in
//! `relais_waiting`, and none becomes fresh again: a pending row never leaves that table. One writer at a time
//! draws ids, so they are committed in their order. The positions in memory are ahead of
//! `relais_outbox_position`, which a restart begins with.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use relais_core::store::StoreError;
use rusqlite::Connection;

use super::row::first;

/// The shortest time between two writes of a position.
const STORE_EVERY: Duration = Duration::from_secs(1);
/// Most destinations with a position in memory; more begin at the stored one.
const DESTINATIONS_MAX: usize = 10_000;

/// The positions of all destinations of a store.
#[derive(Debug, Default)]
pub(super) struct OutboxPositions(Mutex<HashMap<String, MemoryPosition>>);

#[derive(Clone, Copy, Debug, Default)]
struct MemoryPosition {
    /// Of rows of all lanes.
    at: i64,
    /// Of rows of these lanes only, as the bits of an integer.
    of_lanes: (i64, i64),
    stored: i64,
    stored_at: Option<Instant>,
}

/// The state of a destination in one snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutboxObstacles {
    /// As it is stored.
    pub(super) position: i64,
    pub(super) has_waiting: bool,
    pub(super) has_parked: bool,
    /// The highest id drawn.
    pub(super) highest: i64,
}

impl OutboxObstacles {
    pub(super) fn read(db: &Connection, destination: &str) -> Result<Self, StoreError> {
        let sql = include_str!("sql/outbox_position.sql");
        let found = first(db, sql, [destination], |c| Self {
            position: c.integer(0),
            has_waiting: c.flag(1),
            has_parked: c.flag(2),
            highest: c.integer(3),
        })?;
        Ok(found.expect("a SELECT without FROM gives one row"))
    }
}

impl OutboxPositions {
    /// Returns the id up to which the lanes have no fresh row.
    pub(super) fn start(&self, destination: &str, lanes: i64, stored: i64) -> i64 {
        match self.positions().get(destination) {
            Some(MemoryPosition { at, of_lanes: (bits, of_lanes), .. }) if *bits == lanes => {
                stored.max(*at).max(*of_lanes)
            }
            Some(MemoryPosition { at, .. }) => stored.max(*at),
            None => stored,
        }
    }

    fn of_all_lanes(&self, destination: &str) -> i64 {
        self.positions().get(destination).map_or(0, |position| position.at)
    }

    /// Notes that the lanes have no fresh row up to an id.
    pub(super) fn note_lanes(&self, destination: &str, lanes: i64, at: i64) {
        self.change(destination, |position| position.of_lanes = (lanes, at));
    }

    /// Advances the position of a destination in a snapshot; returns whether it has fresh rows to send.
    pub(super) fn advance(
        &self,
        db: &Connection,
        destination: &str,
        state: OutboxObstacles,
    ) -> Result<bool, StoreError> {
        let from = self.of_all_lanes(destination).max(state.position);
        let first_fresh = |without_delay: bool| {
            let params = (destination, from, state.has_waiting, without_delay);
            first(db, include_str!("sql/first_fresh.sql"), params, |c| c.integer(0))
        };
        let fresh = first_fresh(false)?;
        let at = fresh.map_or(state.highest, |id| id - 1).max(from);
        self.change(destination, |position| position.at = position.at.max(at));
        Ok(fresh.is_some() && first_fresh(true)?.is_some())
    }

    /// Returns the id up to which the lanes of the last fetch have no fresh row.
    pub(super) fn of_lanes(&self, destination: &str) -> i64 {
        let positions = self.positions();
        positions.get(destination).map_or(0, |position| position.at.max(position.of_lanes.1))
    }

    /// Returns whether a second has passed since the position was last stored.
    pub(super) fn is_storing_due(&self, destination: &str) -> bool {
        let positions = self.positions();
        let stored_at = positions.get(destination).and_then(|position| position.stored_at);
        stored_at.is_none_or(|at| at.elapsed() >= STORE_EVERY)
    }

    /// Returns the position to store now, if it has moved.
    pub(super) fn to_store(&self, destination: &str, stored: i64) -> Option<i64> {
        let mut found = None;
        self.change(destination, |position| {
            position.stored_at = Some(Instant::now());
            position.stored = position.stored.max(stored);
            if position.at > position.stored {
                position.stored = position.at;
                found = Some(position.at);
            }
        });
        found
    }

    fn change(&self, destination: &str, change: impl FnOnce(&mut MemoryPosition)) {
        let mut positions = self.positions();
        if let Some(position) = positions.get_mut(destination) {
            change(position);
        } else if positions.len() < DESTINATIONS_MAX {
            change(positions.entry(destination.to_owned()).or_default());
        }
    }

    fn positions(&self) -> MutexGuard<'_, HashMap<String, MemoryPosition>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
