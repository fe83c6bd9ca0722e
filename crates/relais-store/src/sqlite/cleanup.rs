//! Removes finished rows past their retention, a bounded number at a time.
//!
//! Invariant: only `PROCESSED`, `DISPATCHED`, handled and resolved rows and ended jobs are ever removed.

use relais_core::{
    query::{Cleaned, Retention},
    store::StoreError,
};
use rusqlite::Transaction;

use super::row::{change, limit};

pub(super) fn cleanup(
    tx: &Transaction<'_>,
    retention: &Retention,
    rows_max: usize,
) -> Result<Cleaned, StoreError> {
    let remove = |sql, seconds: i64| change(tx, sql, (seconds.max(0), limit(rows_max)));
    // Few, so they are not counted.
    remove(include_str!("sql/cleanup_bulk.sql"), retention.dispatched_seconds)?;
    Ok(Cleaned {
        processes: 0,
        inbox: remove(include_str!("sql/cleanup_inbox.sql"), retention.processed_seconds)?,
        outbox: remove(include_str!("sql/cleanup_outbox.sql"), retention.dispatched_seconds)?,
        handled: remove(include_str!("sql/cleanup_handled.sql"), retention.handled_seconds)?,
        dead_letters: remove(
            include_str!("sql/cleanup_dead_letters.sql"),
            retention.resolved_seconds,
        )?,
    })
}
