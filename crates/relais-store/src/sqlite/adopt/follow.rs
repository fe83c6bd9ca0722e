//! Handles what applications changed in their adopted tables, and results that could not be written before.
//!
//! Each change is one transaction, which also removes the change: after a crash it is handled again. A change that
//! fails stays, and the next pass continues behind it.

use std::sync::Arc;

use relais_core::{
    dead_letter::Resolution,
    outbox::OnDeadLetter,
    store::{SettleOutcome, StoreError, StoreResult},
};
use rusqlite::{Transaction, ffi};
use uuid::Uuid;

use super::super::{
    SqliteStore, dead_letters,
    row::{all, change, first, json_array, limit},
    waiting,
    writer::Ending,
};
use super::{
    inbox, install,
    script::AdoptScript,
    write_back::{WriteBackResult, write},
};
use crate::adopt::{ACTOR, BY_UPDATE, CHANGES_MAX};

/// Handles changes: they count as settled.
pub(in super::super) async fn follow(store: &SqliteStore) -> StoreResult<SettleOutcome> {
    let adopted = &store.inner.adopted;
    if adopted.all().is_empty() {
        return Ok(SettleOutcome::default());
    }
    if adopted.is_due() {
        let rest = adopted.to_install();
        if !rest.is_empty() {
            adopted.install_later(&install::install(store.writer(), rest).await?);
        }
        store.refresh_adopted().await?;
    }
    let tables = adopted.all();
    let scripts: Vec<Arc<AdoptScript>> =
        tables.iter().filter_map(|table| table.script.clone()).collect();
    let names: Vec<&str> = scripts.iter().map(|script| script.name.as_str()).collect();
    let params = (adopted.cursor(), json_array(&names), limit(CHANGES_MAX));
    let read =
        |db: &rusqlite::Connection| all(db, adopt_sql!("changes"), params, AdoptedChange::of);
    let changes = store.readers().read(read).await?;
    let (last, read) = (changes.last().map(|change| change.id), changes.len());
    let mut outcome = SettleOutcome::default();
    for change in changes {
        let found = scripts.iter().find(|script| script.name == change.adopted_by);
        let Some(script) = found.map(Arc::clone) else { continue };
        match store.writer().run_to_end(move |tx| handle(tx, &script, &change)).await {
            Ok(is_done) => outcome.settled += u64::from(is_done),
            // An error of this row or table; a locked or full database ends the pass.
            Err(error) if is_about_row(&error) => {}
            Err(error) => return Err(error),
        }
    }
    adopted.pass_ended(last, read);
    Ok(outcome)
}

/// As [`super::write_back::is_about_rows`], of an error that is classified already.
fn is_about_row(error: &StoreError) -> bool {
    let code = error.code().and_then(|code| code.parse::<i32>().ok());
    code.is_some_and(|code| {
        [ffi::SQLITE_ERROR, ffi::SQLITE_CONSTRAINT, ffi::SQLITE_MISMATCH].contains(&(code & 0xff))
    })
}

/// A row of `relais_adopted_change`.
#[derive(Clone)]
pub(super) struct AdoptedChange {
    id: i64,
    pub(super) adopted_by: String,
    pub(super) adopted_key: String,
    is_reset: bool,
    /// An UPDATE of an inbox table made it; known when it is taken.
    pub(super) is_by_update: bool,
}

impl AdoptedChange {
    fn of(c: &super::super::row::Cells<'_, '_>) -> Self {
        let is_reset = c.string(3) == "reset";
        let (id, adopted_by, adopted_key) = (c.integer(0), c.string(1), c.string(2));
        Self { id, adopted_by, adopted_key, is_reset, is_by_update: false }
    }
}

/// Returns whether the change is handled; if not, nothing is changed, and the next pass tries it again.
fn handle(
    tx: &Transaction<'_>,
    script: &AdoptScript,
    change_of_row: &AdoptedChange,
) -> Result<Ending<bool>, StoreError> {
    let taken = first(tx, adopt_sql!("take_change"), [change_of_row.id], |c| c.string(0))?;
    let Some(taken) = taken else { return Ok(Ending::Undo(false)) };
    // Another row of the message may have been reset before.
    let is_by_update = taken == BY_UPDATE.to_string();
    let change_of_row = &AdoptedChange { is_by_update, ..change_of_row.clone() };
    let is_done = match (script.is_inbox, change_of_row.is_reset) {
        (true, true) => inbox::reset(tx, script, change_of_row)?,
        (true, false) => write_late(tx, script, inbox::linked(tx, change_of_row)?)?,
        (false, true) => {
            reset(tx, script, change_of_row)?;
            true
        }
        (false, false) => {
            let newest = copies(tx, change_of_row)?.first().map(|copy| copy.id);
            write_late(tx, script, newest)?
        }
    };
    Ok(if is_done { Ending::Keep(true) } else { Ending::Undo(false) })
}

/// Writes a result that could not be written before; returns whether it is written. A copy may have been removed.
pub(super) fn write_late(
    tx: &Transaction<'_>,
    script: &AdoptScript,
    copy: Option<i64>,
) -> Result<bool, StoreError> {
    let Some(copy) = copy else { return Ok(true) };
    Ok(write(tx, script, &[copy])? == WriteBackResult::Yes)
}

/// A copy of an adopted row.
struct AdoptedCopy {
    id: i64,
    destination: String,
    is_pending: bool,
}

/// Returns the copies of a row, newest first.
fn copies(tx: &Transaction<'_>, of: &AdoptedChange) -> Result<Vec<AdoptedCopy>, StoreError> {
    all(tx, adopt_sql!("lock_copies"), (&of.adopted_by, &of.adopted_key), |c| AdoptedCopy {
        id: c.integer(0),
        destination: c.string(1),
        is_pending: c.string(2) == "PENDING",
    })
}

/// Sends what the row has now; a copy may have been removed by the retention. A waiting copy that differs is
/// withdrawn and copied again: if it is in flight, its settlement finds no row, and the new copy is sent too.
fn reset(tx: &Transaction<'_>, script: &AdoptScript, of: &AdoptedChange) -> Result<(), StoreError> {
    let copies = copies(tx, of)?;
    let current = first(tx, &script.current, [&of.adopted_key], |c| {
        (c.string(0), c.string(1), c.string(2), c.text(3), c.flag(4))
    })?;
    // Deleted or changed again since.
    let Some((destination, payload, headers, next_attempt, has_time)) = current else {
        return Ok(());
    };
    let reason = format!("row {} of {} was changed", of.adopted_key, script.name);
    for copy in copies.iter().filter(|copy| copy.is_pending && copy.destination != destination) {
        withdraw(tx, copy.id, &reason)?;
    }
    match copies.iter().find(|copy| copy.destination == destination) {
        Some(copy) if copy.is_pending => {
            let params = (copy.id, &payload, &headers, has_time, &next_attempt);
            let is_changed = first(tx, adopt_sql!("is_changed"), params, |c| c.flag(0))?;
            if is_changed != Some(true) {
                return Ok(());
            }
            withdraw(tx, copy.id, &reason)?;
        }
        Some(copy) => {
            change(tx, adopt_sql!("refresh"), (copy.id, &payload, &headers))?;
            return send_again(tx, script, of, copy.id);
        }
        None => {}
    }
    change(tx, &script.copy_one, [&of.adopted_key]).map(drop)
}

/// Removes a waiting copy as an operator would: failed, then discarded. What waited behind it continues.
fn withdraw(tx: &Transaction<'_>, id: i64, reason: &str) -> Result<(), StoreError> {
    let by = (ACTOR, reason);
    dead_letters::fail_pending(tx, id, OnDeadLetter::Skip, by)?;
    if let Some(letter) = open_letter(tx, id, "outbox")? {
        dead_letters::resolve(tx, letter, Resolution::Discarded, by)?;
    }
    change(tx, adopt_sql!("withdraw"), [id]).map(drop)
}

/// Returns the open dead letter of a copy.
pub(super) fn open_letter(
    tx: &Transaction<'_>,
    id: i64,
    origin: &str,
) -> Result<Option<Uuid>, StoreError> {
    let found = first(tx, adopt_sql!("open_letter"), (id, origin), |c| c.string(0))?;
    Ok(found.and_then(|letter| letter.parse().ok()))
}

/// Sends a delivered or failed copy again.
fn send_again(
    tx: &Transaction<'_>,
    script: &AdoptScript,
    of: &AdoptedChange,
    id: i64,
) -> Result<(), StoreError> {
    let reason = format!("row {} of {} was reset", of.adopted_key, script.name);
    let by = (ACTOR, reason.as_str());
    match open_letter(tx, id, "outbox")? {
        Some(letter) => dead_letters::resolve(tx, letter, Resolution::Retried, by).map(drop),
        None => {
            change(tx, adopt_sql!("reopen"), [id])?;
            waiting::enter(tx, id)?;
            dead_letters::audit(tx, by, "outbox.reset", &id.to_string())
        }
    }
}
