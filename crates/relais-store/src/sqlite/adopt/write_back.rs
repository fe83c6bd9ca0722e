//! Writes results into the application's own rows, in the transaction that settles their copies.
//!
//! A table that refuses the UPDATE must not stop a destination: the copy is settled, and the result is written later
//! ([`super::follow`]).

use relais_core::store::StoreError;
use rusqlite::{ErrorCode, Transaction, ffi};

use super::super::{
    error,
    row::{all, change, first, json_array},
};
use super::script::AdoptScript;
use crate::adopt::{AdoptedTable, SettledCopies};

/// Writes back the results of copies of these ids, as they are now, into the tables that they may be of.
pub(in super::super) fn write_back(
    tx: &Transaction<'_>,
    tables: &[AdoptedTable<AdoptScript>],
    copies: SettledCopies<'_>,
    ids: &[i64],
) -> Result<(), StoreError> {
    let asked: Vec<&AdoptedTable<AdoptScript>> =
        tables.iter().filter(|table| table.concerns(copies)).collect();
    if asked.is_empty() || ids.is_empty() {
        return Ok(());
    }
    for script in asked.iter().filter_map(|table| table.script.as_deref()) {
        let left = write_all(tx, script, ids)?;
        postpone(tx, copies, &left, (&[], Some(&script.name)))?;
    }
    if asked.iter().any(|table| table.script.is_none()) {
        let scripts = tables.iter().filter_map(|table| table.script.as_deref());
        let written: Vec<&str> = scripts.map(|script| script.name.as_str()).collect();
        postpone(tx, copies, ids, (&written, None))?;
    }
    Ok(())
}

/// Writes a batch, or each of its rows if the batch is refused. Returns the rows that could not be written.
fn write_all(
    tx: &Transaction<'_>,
    script: &AdoptScript,
    ids: &[i64],
) -> Result<Vec<i64>, StoreError> {
    let mut left = Vec::new();
    if write(tx, script, ids)? == WriteBackResult::Yes {
        return Ok(left);
    }
    for id in ids {
        if write(tx, script, &[*id])? == WriteBackResult::No {
            left.push(*id);
        }
    }
    Ok(left)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteBackResult {
    Yes,
    /// At least one statement was refused. A failed row that cannot be moved shows its error all the same.
    No,
}

/// Writes the results of these copies, and removes the changes that the triggers note about it.
pub(super) fn write(
    tx: &Transaction<'_>,
    script: &AdoptScript,
    ids: &[i64],
) -> Result<WriteBackResult, StoreError> {
    let before = first(tx, adopt_sql!("last_change"), [], |c| c.integer(0))?.unwrap_or(0);
    let mut result = WriteBackResult::Yes;
    if let Some(bury) = &script.bury {
        let failed = adopt_sql!("failed");
        let failed = all(tx, failed, (json_array(ids), &script.name), |c| c.integer(0))?;
        if !failed.is_empty() {
            result = apply(tx, script, &bury.each_ref().map(String::as_str), &failed)?;
        }
    }
    if let Some(write_back) = &script.write_back
        && apply(tx, script, &[write_back], ids)? == WriteBackResult::No
    {
        result = WriteBackResult::No;
    }
    change(tx, adopt_sql!("forget_own"), [before])?;
    Ok(result)
}

/// Runs statements of a table behind a savepoint.
fn apply(
    tx: &Transaction<'_>,
    script: &AdoptScript,
    statements: &[&str],
    ids: &[i64],
) -> Result<WriteBackResult, StoreError> {
    let control = |sql| tx.execute_batch(sql).map_err(|e| error::store(&e));
    control("SAVEPOINT relais_write_back")?;
    let run = || {
        for sql in statements {
            tx.prepare_cached(sql)?.execute((json_array(ids), &script.name))?;
        }
        Ok(())
    };
    let result = match run() {
        Ok(()) => WriteBackResult::Yes,
        Err(error) if is_about_rows(&error) => {
            control("ROLLBACK TO relais_write_back")?;
            WriteBackResult::No
        }
        Err(error) => return Err(error::store(&error)),
    };
    control("RELEASE relais_write_back")?;
    Ok(result)
}

/// Returns whether only the rows or the table of the application are the reason: a full disk or a lock is not.
pub(super) fn is_about_rows(error: &rusqlite::Error) -> bool {
    match error.sqlite_error() {
        Some(ffi::Error {
            code: ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch, ..
        }) => true,
        // A column that was renamed since.
        Some(ffi::Error { extended_code, .. }) => *extended_code == ffi::SQLITE_ERROR,
        None => false,
    }
}

/// Leaves results for later: of one table, or of all but those that are written.
fn postpone(
    tx: &Transaction<'_>,
    copies: SettledCopies<'_>,
    ids: &[i64],
    (written, table): (&[&str], Option<&str>),
) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    let sql = match copies {
        SettledCopies::Outbox(_) => adopt_sql!("unwritten"),
        SettledCopies::Inbox => adopt_sql!("inbox_unwritten"),
    };
    change(tx, sql, (json_array(ids), json_array(written), table)).map(drop)
}
