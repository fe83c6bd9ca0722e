//! Removes finished rows past their retention, a bounded number at a time.
//!
//! Invariant: only `PROCESSED`, `DISPATCHED`, handled and resolved rows, ended jobs and ended processes
//! without an open dead letter are ever removed.

use relais_core::{
    dead_letter::Origin,
    query::{Cleaned, Retention},
    store::StoreError,
};
use rusqlite::{Connection, Transaction};

use super::{
    attempt,
    row::{all, change, first, limit},
};

pub(super) fn cleanup(
    tx: &Transaction<'_>,
    retention: &Retention,
    rows_max: usize,
) -> Result<Cleaned, StoreError> {
    let age = |seconds: i64| (seconds.max(0), limit(rows_max));
    let remove = |sql, seconds: i64| change(tx, sql, age(seconds));
    // These take the attempts of their rows along.
    let remove_rows = |origin, sql, seconds: i64| {
        let removed = all(tx, sql, age(seconds), |c| c.integer(0))?;
        attempt::forget(tx, origin, &removed)?;
        crate::fail_point!("cleanup.mid_batch");
        Ok::<_, StoreError>(removed.len() as u64)
    };
    let Retention { processed_seconds, dispatched_seconds, .. } = *retention;
    let (inbox, outbox) =
        (include_str!("sql/cleanup_inbox.sql"), include_str!("sql/cleanup_outbox.sql"));
    // Few, so they are not counted.
    remove(include_str!("sql/cleanup_bulk.sql"), dispatched_seconds)?;
    Ok(Cleaned {
        inbox: remove_rows(Origin::Inbox, inbox, processed_seconds)?,
        outbox: remove_rows(Origin::Outbox, outbox, dispatched_seconds)?,
        handled: remove(include_str!("sql/cleanup_handled.sql"), retention.handled_seconds)?,
        dead_letters: remove(
            include_str!("sql/cleanup_dead_letters.sql"),
            retention.resolved_seconds,
        )?,
        processes: remove(include_str!("sql/cleanup_processes.sql"), retention.processes_seconds)?,
    })
}

/// How many rows all passes together would remove.
pub(super) fn expired(db: &Connection, retention: &Retention) -> Result<Cleaned, StoreError> {
    let Retention {
        processed_seconds,
        dispatched_seconds,
        handled_seconds,
        resolved_seconds,
        processes_seconds,
    } = *retention;
    let ages = [
        processed_seconds,
        dispatched_seconds,
        handled_seconds,
        resolved_seconds,
        processes_seconds,
    ];
    let ages = ages.map(|seconds| seconds.max(0));
    let counted = first(db, include_str!("sql/count_expired.sql"), ages, |c| Cleaned {
        inbox: c.count(0),
        outbox: c.count(1),
        handled: c.count(2),
        dead_letters: c.count(3),
        processes: c.count(4),
    })?;
    Ok(counted.expect("a SELECT without FROM gives one row"))
}
