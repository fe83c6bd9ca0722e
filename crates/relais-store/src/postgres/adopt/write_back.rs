//! Writes results into the application's own rows, in the transaction that settles their copies.
//!
//! A row that the application holds locked, or a table that refuses the UPDATE, must not stop a destination: the
//! copy is settled, and the result is written later ([`super::follow`]).

use std::time::Duration;

use deadpool_postgres::Transaction;
use tokio_postgres::{Error, error::SqlState};

use super::super::error::Failure;
use super::{AdoptedTable, script::AdoptScript};

/// The longest wait for rows of the application: for a batch, then for each of its rows.
const BATCH_WAIT: Duration = Duration::from_millis(200);
const ROW_WAIT: Duration = Duration::from_millis(50);
/// After this many rows that could not be written one by one, the others of the batch wait too.
const FAILURES_MAX: usize = 3;

/// Writes back the results of copies of these ids, as they are now; with a destination, only into tables whose rows
/// may have it.
pub(in super::super) async fn write_back(
    transaction: &mut Transaction<'_>,
    tables: &[AdoptedTable],
    destination: Option<&str>,
    ids: &[i64],
) -> Result<(), Failure> {
    let is_asked =
        |table: &&AdoptedTable| destination.is_none_or(|name| table.adoption.may_have(name));
    for script in tables.iter().filter(is_asked).filter_map(|table| table.script.as_deref()) {
        if !script.writes()
            || apply(transaction, script, ids, BATCH_WAIT).await? == WriteBackResult::Yes
        {
            continue;
        }
        let mut left = Vec::new();
        for id in ids {
            let is_hopeless = left.len() >= FAILURES_MAX;
            if is_hopeless
                || apply(transaction, script, &[*id], ROW_WAIT).await? == WriteBackResult::No
            {
                left.push(*id);
            }
        }
        postpone(transaction, &left, &[], Some(&script.name)).await?;
    }
    if tables.iter().filter(is_asked).any(|table| table.script.is_none()) {
        let scripts = tables.iter().filter_map(|table| table.script.as_deref());
        let written: Vec<&str> = scripts.map(|script| script.name.as_str()).collect();
        postpone(transaction, ids, &written, None).await?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteBackResult {
    Yes,
    /// The rows are as they were.
    No,
}

/// Runs the statements of one table behind a savepoint.
pub(super) async fn apply(
    transaction: &mut Transaction<'_>,
    script: &AdoptScript,
    ids: &[i64],
    wait: Duration,
) -> Result<WriteBackResult, Failure> {
    let attempt = transaction.transaction().await?;
    let wait = wait.as_millis().to_string();
    let run = async {
        attempt.query_one(adopt_sql!("limits"), &[&wait]).await?;
        for sql in script.bury.iter().chain(&script.write_back) {
            let statement = attempt.prepare_cached(sql).await?;
            attempt.execute(&statement, &[&ids, &script.name]).await?;
        }
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
    ids: &[i64],
    written: &[&str],
    table: Option<&str>,
) -> Result<(), Failure> {
    if !ids.is_empty() {
        transaction.execute(adopt_sql!("unwritten"), &[&ids, &written, &table]).await?;
    }
    Ok(())
}
