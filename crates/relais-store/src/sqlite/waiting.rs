//! Rows in `relais_waiting`: they enter it with what makes them wait, and leave it with their settlement.
//!
//! Invariant: of each key, the rows behind an obstacle become due in the transaction that removes it. SQLite has
//! one writer, so no row is passed behind an obstacle that is already removed.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use relais_core::store::StoreError;
use rusqlite::Transaction;

use super::row::{all, change, first};
use crate::release::RELEASED_ROWS;

/// The number of rows of each table that one sweep reads.
const SWEPT_ROWS: i64 = 1_000;

/// Keys of which a row has left `relais_waiting`.
#[derive(Debug, Default)]
pub(super) struct LeftKeys(BTreeSet<(String, String)>);

impl LeftKeys {
    /// Removes a row that was settled just before, if it waits.
    pub(super) fn leave(&mut self, tx: &Transaction<'_>, id: i64) -> Result<(), StoreError> {
        let sql = include_str!("sql/leave_waiting.sql");
        self.0.extend(first(tx, sql, [id], |c| (c.string(0), c.string(1)))?);
        Ok(())
    }

    /// Makes the next rows of these keys due, at most `rows` of each.
    pub(super) fn release(&self, tx: &Transaction<'_>, rows: i64) -> Result<(), StoreError> {
        self.0.iter().try_for_each(|(destination, key)| release(tx, destination, key, rows))
    }
}

/// Makes the next rows of a key due, at most `rows`, if nothing is in their way.
pub(super) fn release(
    tx: &Transaction<'_>,
    destination: &str,
    key: &str,
    rows: i64,
) -> Result<(), StoreError> {
    let params = (destination, key, rows);
    change(tx, include_str!("sql/release_waiting.sql"), params).map(drop)
}

/// Lets a pending row wait as its columns show.
pub(super) fn enter(tx: &Transaction<'_>, id: i64) -> Result<(), StoreError> {
    change(tx, include_str!("sql/enter_waiting.sql"), [id]).map(drop)
}

/// Lets a row that failed wait, and the due rows of its key behind it.
pub(super) fn back_off(tx: &Transaction<'_>, id: i64) -> Result<(), StoreError> {
    enter(tx, id)?;
    // Twice as many: some were released before those in front of them were settled.
    let params = (id, 2 * RELEASED_ROWS);
    change(tx, include_str!("sql/hold_waiting.sql"), params).map(drop)
}

/// The place of the sweep for rows that were changed by hand: the last outbox row and the last waiting row.
#[derive(Debug, Default)]
pub(super) struct SweepPlace(Mutex<(i64, i64)>);

impl SweepPlace {
    /// Repairs the next rows: pending rows below the position that do not wait, waiting rows that are not pending
    /// any more, whose time was changed, or with nothing in their way.
    pub(super) fn sweep(&self, tx: &Transaction<'_>) -> Result<(), StoreError> {
        let (outbox, waiting) = *self.place();
        let end = |sql, from| first(tx, sql, (from, SWEPT_ROWS), |c| c.number(0));
        let outbox_end = end(include_str!("sql/sweep_outbox_end.sql"), outbox)?.flatten();
        if let Some(end) = outbox_end {
            change(tx, include_str!("sql/sweep_outbox.sql"), (outbox, end))?;
        }
        let waiting_end = end(include_str!("sql/sweep_waiting_end.sql"), waiting)?.flatten();
        if let Some(end) = waiting_end {
            let range = (waiting, end);
            let keys = |sql| all(tx, sql, range, |c| (c.string(0), c.string(1)));
            let mut left = keys(include_str!("sql/sweep_waiting.sql"))?;
            change(tx, include_str!("sql/sweep_times.sql"), range)?;
            left.extend(keys(include_str!("sql/sweep_keys.sql"))?);
            LeftKeys(left.into_iter().collect()).release(tx, RELEASED_ROWS)?;
        }
        // Behind the last row it begins again.
        *self.place() = (outbox_end.unwrap_or(0), waiting_end.unwrap_or(0));
        Ok(())
    }

    fn place(&self) -> MutexGuard<'_, (i64, i64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
