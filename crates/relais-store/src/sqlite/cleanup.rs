//! Removes finished rows past their retention, a bounded number at a time.
//!
//! Invariant: only `PROCESSED`, `DISPATCHED`, handled and resolved rows, ended jobs, ended processes
//! without an open dead letter, and `FAILED` rows whose dead letter was discarded are ever removed.

use relais_core::{
    dead_letter::Origin,
    query::{CleanupCounts, Retention},
    store::StoreError,
};
use rusqlite::{Connection, Transaction};

use super::{
    attempt,
    row::{all, change, first, json_array, limit},
};

pub(super) fn cleanup(
    tx: &Transaction<'_>,
    retention: &Retention,
    rows_max: usize,
) -> Result<CleanupCounts, StoreError> {
    let age = |seconds: i64| (seconds.max(0), limit(rows_max));
    let remove = |sql, seconds: i64| change(tx, sql, age(seconds));
    // These take the attempts of their rows along. The first rows are read first: that is enough while many are old.
    let remove_rows = |origin, sql, seconds: i64| {
        let (seconds, most) = age(seconds);
        let mut removed = all(tx, sql, (seconds, most, true), |c| c.integer(0))?;
        if removed.len() < rows_max {
            let left = limit(rows_max - removed.len());
            removed.extend(all(tx, sql, (seconds, left, false), |c| c.integer(0))?);
        }
        attempt::forget(tx, origin, &removed)?;
        crate::fail_point!("cleanup.mid_batch");
        Ok::<_, StoreError>(removed.len() as u64)
    };
    let Retention { processed_seconds, dispatched_seconds, .. } = *retention;
    let (inbox, outbox) =
        (include_str!("sql/cleanup_inbox.sql"), include_str!("sql/cleanup_outbox.sql"));
    // Few, so they are not counted.
    remove(include_str!("sql/cleanup_bulk.sql"), dispatched_seconds)?;
    Ok(CleanupCounts {
        inbox: remove_rows(Origin::Inbox, inbox, processed_seconds)?,
        outbox: remove_rows(Origin::Outbox, outbox, dispatched_seconds)?,
        handled: remove(include_str!("sql/cleanup_handled.sql"), retention.handled_seconds)?,
        dead_letters: dead_letters(tx, age(retention.resolved_seconds))?,
        processes: remove(include_str!("sql/cleanup_processes.sql"), retention.processes_seconds)?,
        versions: remove(include_str!("sql/cleanup_versions.sql"), retention.versions_seconds)?,
    })
}

/// The failed row of a discarded one goes with it, and with its attempts.
fn dead_letters(tx: &Transaction<'_>, age: (i64, i64)) -> Result<u64, StoreError> {
    let sql = include_str!("sql/cleanup_dead_letters.sql");
    let removed = all(tx, sql, age, |c| {
        c.flag(2).then(|| Some((Origin::parse(&c.string(0))?, c.integer(1)))).flatten()
    })?;
    let statements = [
        (Origin::Inbox, include_str!("sql/cleanup_discarded_inbox.sql")),
        (Origin::Outbox, include_str!("sql/cleanup_discarded_outbox.sql")),
    ];
    for (origin, sql) in statements {
        let discarded = removed.iter().flatten().filter(|(of, _)| *of == origin);
        let discarded: Vec<i64> = discarded.map(|(_, id)| *id).collect();
        let gone = all(tx, sql, [json_array(&discarded)], |c| c.integer(0))?;
        attempt::forget(tx, origin, &gone)?;
    }
    Ok(removed.len() as u64)
}

/// Counts the rows that all passes together would remove.
pub(super) fn count(db: &Connection, retention: &Retention) -> Result<CleanupCounts, StoreError> {
    let Retention {
        processed_seconds,
        dispatched_seconds,
        handled_seconds,
        resolved_seconds,
        processes_seconds,
        versions_seconds,
        ..
    } = *retention;
    let ages = [
        processed_seconds,
        dispatched_seconds,
        handled_seconds,
        resolved_seconds,
        processes_seconds,
        versions_seconds,
    ];
    let ages = ages.map(|seconds| seconds.max(0));
    let counted = first(db, include_str!("sql/count_expired.sql"), ages, |c| CleanupCounts {
        inbox: c.count(0),
        outbox: c.count(1),
        handled: c.count(2),
        dead_letters: c.count(3),
        processes: c.count(4),
        versions: c.count(5),
    })?;
    Ok(counted.expect("a SELECT without FROM gives one row"))
}
