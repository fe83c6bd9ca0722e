//! Rows of an adopted inbox table that the application changed, and messages that were received before.

use relais_core::{dead_letter::Resolution, store::StoreError};
use rusqlite::{ToSql, Transaction};

use super::super::{
    dead_letters,
    row::{Cells, all, change, first},
};
use super::{
    follow::{AdoptedChange, open_letter, write_late},
    script::AdoptScript,
};
use crate::adopt::{ACTOR, OtherRow, ReceivedCopy};

/// Returns the copy of a row by its link.
pub(super) fn linked(tx: &Transaction<'_>, of: &AdoptedChange) -> Result<Option<i64>, StoreError> {
    first(tx, adopt_sql!("inbox_linked"), (&of.adopted_by, &of.adopted_key), |c| c.integer(0))
}

/// Handles what the row has now; returns false if it must be tried again. A copy that is not handled yet and differs
/// is removed and copied again: if it is in flight, its settlement finds no row.
pub(super) fn reset(
    tx: &Transaction<'_>,
    script: &AdoptScript,
    of: &AdoptedChange,
) -> Result<bool, StoreError> {
    let AdoptedChange { adopted_by, adopted_key, .. } = of;
    let current = first(tx, &script.current, [adopted_key], |c| {
        (c.string(0), c.string(1), c.text(2), c.text(3), c.text(4), c.flag(5))
    })?;
    // Deleted or changed again since.
    let Some((source, message_id, payload, raw, next_attempt, has_time)) = current else {
        return Ok(true);
    };
    let params: &[&dyn ToSql] = rusqlite::params![
        &source,
        &message_id,
        adopted_by,
        adopted_key,
        payload,
        raw,
        has_time,
        next_attempt
    ];
    let Some(copy) = with_the_result(tx, params)? else {
        return change(tx, &script.copy_one, [adopted_key]).map(|_| true);
    };
    let id = copy.id;
    if !copy.is_own {
        let other_is_open = match &copy.row {
            Some(row) => first(tx, &script.current, [row], |_| ())?.is_some(),
            None => false,
        };
        let decision = copy.for_other_row(of.is_by_update, other_is_open);
        if matches!(decision, OtherRow::Later) {
            if of.is_by_update {
                change(tx, adopt_sql!("inbox_duplicate"), (adopted_by, adopted_key))?;
            }
            return Ok(of.is_by_update);
        }
        change(tx, adopt_sql!("inbox_link"), (id, adopted_by, adopted_key))?;
        if matches!(decision, OtherRow::Result) {
            return write_late(tx, script, Some(id));
        }
    }
    match copy.status.as_str() {
        "PROCESSED" | "FAILED" => {
            handle_again(tx, (id, payload.as_deref()), of)?;
            change(tx, &script.once, (&source, &message_id))?;
        }
        _ if copy.is_changed && copy.is_for_handler => {
            change(tx, adopt_sql!("inbox_renew"), (id, &payload, &next_attempt))?;
        }
        _ if copy.is_changed => {
            change(tx, adopt_sql!("inbox_withdraw"), [id])?;
            change(tx, &script.copy_one, [adopted_key])?;
        }
        _ => {}
    }
    Ok(true)
}

fn received_copy(c: &Cells<'_, '_>, is_for_handler: bool) -> ReceivedCopy {
    let (id, status) = (c.integer(0), c.string(1));
    let (is_own, is_changed, row) = (c.flag(2), c.flag(3), c.text(4));
    ReceivedCopy { id, status, is_own, is_changed, is_for_handler, row }
}

/// Returns the message that has the result of a row: its copy, or once that is handled, the only copy of it for a
/// handler.
fn with_the_result(
    tx: &Transaction<'_>,
    params: &[&dyn ToSql],
) -> Result<Option<ReceivedCopy>, StoreError> {
    let own = adopt_sql!("inbox_copy_of_row");
    let own = first(tx, own, params, |c| received_copy(c, false))?;
    if own.as_ref().is_some_and(|copy| copy.status != "PROCESSED") {
        return Ok(own);
    }
    let copies = adopt_sql!("inbox_copies_for_handlers");
    let mut copies = all(tx, copies, params, |c| received_copy(c, true))?;
    Ok(if copies.len() == 1 { copies.pop() } else { own })
}

/// Handles a copy again, with the payload that the row has now.
fn handle_again(
    tx: &Transaction<'_>,
    (id, payload): (i64, Option<&str>),
    of: &AdoptedChange,
) -> Result<(), StoreError> {
    let reason = format!("row {} of {} was reset", of.adopted_key, of.adopted_by);
    let by = (ACTOR, reason.as_str());
    change(tx, adopt_sql!("inbox_refresh"), (id, payload))?;
    if let Some(letter) = open_letter(tx, id, "inbox")? {
        return dead_letters::resolve(tx, letter, Resolution::Retried, by).map(drop);
    }
    change(tx, adopt_sql!("inbox_reopen"), [id])?;
    dead_letters::audit(tx, by, "inbox.reset", &id.to_string())
}
