//! Rows of an adopted inbox table that the application changed, and messages that were received before.

use relais_core::{dead_letter::Resolution, store::StoreError};
use rusqlite::Transaction;

use super::super::{
    dead_letters,
    row::{change, first},
};
use super::{
    follow::{AdoptedChange, open_letter, write_late},
    script::AdoptScript,
};
use crate::adopt::ACTOR;

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
    let params = rusqlite::params![
        source,
        message_id,
        adopted_by,
        adopted_key,
        payload,
        raw,
        has_time,
        next_attempt
    ];
    let copy = first(tx, adopt_sql!("inbox_copy_of_row"), params, |c| {
        (c.integer(0), c.string(1), c.flag(2), c.flag(3))
    })?;
    match copy {
        None => change(tx, &script.copy_one, [adopted_key]).map(|_| true),
        Some((id, _, false, _)) => {
            change(tx, adopt_sql!("inbox_link"), (id, adopted_by, adopted_key))?;
            write_late(tx, script, Some(id))
        }
        Some((id, status, true, is_changed)) => {
            match status.as_str() {
                "PROCESSED" | "FAILED" => handle_again(tx, (id, payload.as_deref()), of)?,
                _ if is_changed => {
                    change(tx, adopt_sql!("inbox_withdraw"), [id])?;
                    change(tx, &script.copy_one, [adopted_key])?;
                }
                _ => {}
            }
            Ok(true)
        }
    }
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
