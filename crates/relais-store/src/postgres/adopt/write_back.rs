//! Writes results into the application's own rows, in the transaction that settles their copies.
//!
//! A row that the application holds locked, or a table that refuses the UPDATE, must not stop a destination: the
//! copy is settled, and the result is written later ([`super::follow`]).

use std::time::Duration;

use deadpool_postgres::Transaction;
use futures_util::future::try_join3;
use tokio_postgres::{Error, error::SqlState, types::ToSql};

use super::super::error::Failure;
use super::script::AdoptScript;
use crate::adopt::{AdoptedTable, SettledCopies};

/// The longest wait for rows of the application: for a batch, then for each of its rows.
const BATCH_WAIT: Duration = Duration::from_millis(200);
const ROW_WAIT: Duration = Duration::from_millis(50);
/// After this many rows that could not be written one by one, the others of the batch wait too.
const FAILURES_MAX: usize = 3;

/// Writes back the results of copies of these ids, as they are now, into the tables that they may be of.
pub(in super::super) async fn write_back(
    transaction: &mut Transaction<'_>,
    tables: &[AdoptedTable<AdoptScript>],
    copies: SettledCopies<'_>,
    ids: &[i64],
) -> Result<(), Failure> {
    let is_asked = |table: &&AdoptedTable<AdoptScript>| table.concerns(copies);
    for script in tables.iter().filter(is_asked).filter_map(|table| table.script.as_deref()) {
        let mut left = Vec::new();
        if let Some(bury) = &script.bury {
            let failed = failed(transaction, script, ids).await?;
            write_all(transaction, script, bury, &failed, &mut left).await?;
        }
        if let Some(write_back) = &script.write_back {
            write_all(transaction, script, write_back, ids, &mut left).await?;
        }
        left.sort_unstable();
        left.dedup();
        postpone(transaction, copies, &left, (&[], Some(&script.name))).await?;
    }
    if tables.iter().filter(is_asked).any(|table| table.script.is_none()) {
        let scripts = tables.iter().filter_map(|table| table.script.as_deref());
        let written: Vec<&str> = scripts.map(|script| script.name.as_str()).collect();
        postpone(transaction, copies, ids, (&written, None)).await?;
    }
    Ok(())
}

/// Returns the copies that failed: only these concern the table of dead letters.
async fn failed(
    transaction: &Transaction<'_>,
    script: &AdoptScript,
    ids: &[i64],
) -> Result<Vec<i64>, Failure> {
    let statement = transaction.prepare_cached(adopt_sql!("failed")).await?;
    let rows = transaction.query(&statement, &[&ids, &script.name]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Runs a statement for a batch, or for each of its rows if the batch is refused. `left` gets the rows that could
/// not be written.
async fn write_all(
    transaction: &mut Transaction<'_>,
    script: &AdoptScript,
    sql: &str,
    ids: &[i64],
    left: &mut Vec<i64>,
) -> Result<(), Failure> {
    if ids.is_empty()
        || apply(transaction, script, sql, ids, BATCH_WAIT).await? == WriteBackResult::Yes
    {
        return Ok(());
    }
    let mut failures = 0;
    for id in ids {
        if failures >= FAILURES_MAX
            || apply(transaction, script, sql, &[*id], ROW_WAIT).await? == WriteBackResult::No
        {
            left.push(*id);
            failures += 1;
        }
    }
    Ok(())
}

/// Writes the result of one copy; for a result that could not be written before.
pub(super) async fn write_one(
    transaction: &mut Transaction<'_>,
    script: &AdoptScript,
    id: i64,
    wait: Duration,
) -> Result<WriteBackResult, Failure> {
    let failed = failed(transaction, script, &[id]).await?;
    let bury = script.bury.as_deref().filter(|_| !failed.is_empty());
    for sql in bury.into_iter().chain(script.write_back.as_deref()) {
        if apply(transaction, script, sql, &[id], wait).await? == WriteBackResult::No {
            return Ok(WriteBackResult::No);
        }
    }
    Ok(WriteBackResult::Yes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteBackResult {
    Yes,
    /// The rows are as they were.
    No,
}

/// Runs one statement of a table behind a savepoint.
async fn apply(
    transaction: &mut Transaction<'_>,
    script: &AdoptScript,
    sql: &str,
    ids: &[i64],
    wait: Duration,
) -> Result<WriteBackResult, Failure> {
    let attempt = transaction.transaction().await?;
    let wait = wait.as_millis().to_string();
    let run = async {
        let limits = attempt.prepare_cached(adopt_sql!("limits")).await?;
        let lock = attempt.prepare_cached(&script.lock_rows).await?;
        let statement = attempt.prepare_cached(sql).await?;
        let values: [&(dyn ToSql + Sync); 2] = [&ids, &script.name];
        // One round trip: they are prepared, so they run in this order.
        try_join3(
            attempt.query_one(&limits, &[&wait]),
            attempt.execute(&lock, &values),
            attempt.execute(&statement, &values),
        )
        .await?;
        Ok::<(), Error>(())
    };
    match run.await {
        Ok(()) => {
            attempt.commit().await?;
            Ok(WriteBackResult::Yes)
        }
        Err(error) if is_about_rows(&error) => {
            attempt.rollback().await?;
            Ok(WriteBackResult::No)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns whether only the rows or the table of the application are the reason. A cancelled statement, a server
/// that shuts down or a lost session is not.
fn is_about_rows(error: &Error) -> bool {
    let Some(code) = error.code() else { return false };
    let sessions = [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT];
    let class = code.code().get(..2).unwrap_or_default();
    !sessions.contains(code) && !matches!(class, "57" | "58" | "08" | "53" | "XX")
}

/// Leaves results for later: of one table, or of all but those that are written.
async fn postpone(
    transaction: &Transaction<'_>,
    copies: SettledCopies<'_>,
    ids: &[i64],
    (written, table): (&[&str], Option<&str>),
) -> Result<(), Failure> {
    if !ids.is_empty() {
        let sql = match copies {
            SettledCopies::Outbox(_) => adopt_sql!("unwritten"),
            SettledCopies::Inbox => adopt_sql!("inbox_unwritten"),
        };
        transaction.execute(sql, &[&ids, &written, &table]).await?;
    }
    Ok(())
}
