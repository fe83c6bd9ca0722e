//! Failed attempts: written with their settlement, removed with their row.

use relais_core::{
    dead_letter::Origin, delivery::Problem, inbox::InboxFate, inspect::Attempt, outbox::OutboxFate,
    query::PAGE_MAX, store::StoreError,
};
use rusqlite::{Connection, Transaction};

use super::row::{all, change, json_array, limit};

/// Records the attempt of an inbox row that was settled just before, if it failed or was ignored.
pub(super) fn record_inbox(
    tx: &Transaction<'_>,
    id: i64,
    fate: &InboxFate,
    worker: &str,
) -> Result<(), StoreError> {
    match fate {
        InboxFate::Processed { .. } | InboxFate::Wait { .. } => Ok(()),
        InboxFate::Ignored { problem } => record_ignored(tx, id, problem, worker),
        InboxFate::Retry { attempts, problem, .. } => {
            record(tx, (Origin::Inbox, id), *attempts, "retry", problem, worker)
        }
        InboxFate::Dead { attempts, problem, .. } => {
            record(tx, (Origin::Inbox, id), *attempts, "failed", problem, worker)
        }
    }
}

/// The same for an outbox row. What was no attempt is not recorded.
pub(super) fn record_outbox(
    tx: &Transaction<'_>,
    id: i64,
    fate: &OutboxFate,
    worker: &str,
) -> Result<(), StoreError> {
    match fate {
        OutboxFate::Dispatched | OutboxFate::Untouched | OutboxFate::Wait { .. } => Ok(()),
        OutboxFate::Retry { attempts, problem, .. } => {
            record(tx, (Origin::Outbox, id), *attempts, "retry", problem, worker)
        }
        OutboxFate::Dead { attempts, problem, .. } => {
            record(tx, (Origin::Outbox, id), *attempts, "failed", problem, worker)
        }
    }
}

/// Records that messages of a row, or the row itself, were ignored. The row was settled just before.
pub(super) fn record_ignored(
    tx: &Transaction<'_>,
    id: i64,
    problem: &Problem,
    worker: &str,
) -> Result<(), StoreError> {
    let params = (id, &problem.code, &problem.message, worker);
    change(tx, include_str!("sql/record_ignored.sql"), params).map(drop)
}

fn record(
    tx: &Transaction<'_>,
    (origin, id): (Origin, i64),
    attempts: u32,
    outcome: &str,
    problem: &Problem,
    worker: &str,
) -> Result<(), StoreError> {
    let Problem { code, message } = problem;
    let params = (origin.as_str(), id, attempts, outcome, code, message, worker);
    change(tx, include_str!("sql/record_attempts.sql"), params).map(drop)
}

/// Returns the failed attempts of rows, oldest first.
pub(super) fn list(
    db: &Connection,
    origin: Origin,
    rows: &[i64],
) -> Result<Vec<Attempt>, StoreError> {
    let params = (origin.as_str(), json_array(rows), limit(PAGE_MAX));
    all(db, include_str!("sql/attempts.sql"), params, |c| Attempt {
        origin: c.origin("origin"),
        origin_id: c.integer("origin_id"),
        attempt: c.attempts("attempt"),
        at: c.some_time("at"),
        outcome: c.string("outcome"),
        error_code: c.text("error_code"),
        error_message: c.text("error_message"),
        worker: c.string("worker"),
    })
}

/// Removes the attempts of rows that were just removed.
pub(super) fn forget(
    tx: &Transaction<'_>,
    origin: Origin,
    removed: &[i64],
) -> Result<(), StoreError> {
    let params = (origin.as_str(), json_array(removed));
    change(tx, include_str!("sql/cleanup_attempts.sql"), params).map(drop)
}
