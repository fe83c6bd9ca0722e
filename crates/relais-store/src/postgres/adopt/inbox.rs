//! Rows of an adopted inbox table that the application changed, and messages that were received before.

use std::time::SystemTime;

use deadpool_postgres::Transaction;
use relais_core::dead_letter::Resolution;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::super::{dead_letters, error::Failure};
use super::{
    follow::{AdoptedChange, write_late},
    script::AdoptScript,
};
use crate::adopt::{ACTOR, OtherRow, ReceivedCopy};

/// Returns the copy of a row by its link.
pub(super) async fn linked(
    transaction: &Transaction<'_>,
    change: &AdoptedChange,
) -> Result<Option<i64>, Failure> {
    let values: [&(dyn ToSql + Sync); 2] = [&change.adopted_by, &change.adopted_key];
    let row = transaction.query_opt(adopt_sql!("inbox_linked"), &values).await?;
    Ok(row.map(|row| row.get(0)))
}

/// Handles what the row has now; returns false if it must be tried again. A copy that is not handled yet and differs
/// is removed and copied again: if it is in flight, its settlement finds no row.
pub(super) async fn reset(
    transaction: &mut Transaction<'_>,
    script: &AdoptScript,
    change: &AdoptedChange,
) -> Result<bool, Failure> {
    let AdoptedChange { adopted_by, adopted_key, .. } = change;
    let current = transaction.query_opt(script.current.as_str(), &[adopted_key]).await?;
    // Deleted or changed again since.
    let Some(current) = current else { return Ok(true) };
    let (source, message_id): (&str, &str) = (current.get(0), current.get(1));
    let (payload, raw): (Option<&str>, Option<&str>) = (current.get(2), current.get(3));
    let (next_attempt, has_time): (Option<SystemTime>, bool) = (current.get(4), current.get(5));
    let values: [&(dyn ToSql + Sync); 8] =
        [&source, &message_id, adopted_by, adopted_key, &payload, &raw, &has_time, &next_attempt];
    let Some(copy) = with_the_result(transaction, &values).await? else {
        transaction.execute(script.copy_one.as_str(), &[adopted_key]).await?;
        return Ok(true);
    };
    let id = copy.id;
    if !copy.is_own {
        let other_is_open = match &copy.row {
            Some(row) => transaction.query_opt(script.current.as_str(), &[row]).await?.is_some(),
            None => false,
        };
        let decision = copy.for_other_row(change.is_by_update(), other_is_open);
        if matches!(decision, OtherRow::Later) {
            if change.is_by_update() {
                let values: [&(dyn ToSql + Sync); 2] = [adopted_by, adopted_key];
                transaction.execute(adopt_sql!("inbox_duplicate"), &values).await?;
            }
            return Ok(change.is_by_update());
        }
        transaction.execute(adopt_sql!("inbox_link"), &[&id, adopted_by, adopted_key]).await?;
        if matches!(decision, OtherRow::Result) {
            return write_late(transaction, script, Some(id)).await;
        }
    }
    match copy.status.as_str() {
        "PROCESSED" | "FAILED" => {
            handle_again(transaction, (id, payload), change).await?;
            transaction.execute(script.once.as_str(), &[&source, &message_id]).await?;
        }
        _ if copy.is_changed && copy.is_for_handler => {
            let values: [&(dyn ToSql + Sync); 3] = [&id, &payload, &next_attempt];
            transaction.execute(adopt_sql!("inbox_renew"), &values).await?;
        }
        _ if copy.is_changed => {
            transaction.execute(adopt_sql!("inbox_withdraw"), &[&id]).await?;
            transaction.execute(script.copy_one.as_str(), &[adopted_key]).await?;
        }
        _ => {}
    }
    Ok(true)
}

fn received_copy(row: &Row, is_for_handler: bool) -> ReceivedCopy {
    let (id, status, is_own, is_changed) = (row.get(0), row.get(1), row.get(2), row.get(3));
    ReceivedCopy { id, status, is_own, is_changed, is_for_handler, row: row.get(4) }
}

/// Locks and returns the message that has the result of a row: its copy, or once that is handled, the only copy of
/// it for a handler.
async fn with_the_result(
    transaction: &Transaction<'_>,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Option<ReceivedCopy>, Failure> {
    let own = transaction.query_opt(adopt_sql!("inbox_copy_of_row"), values).await?;
    let own = own.map(|row| received_copy(&row, false));
    if own.as_ref().is_some_and(|copy| copy.status != "PROCESSED") {
        return Ok(own);
    }
    let copies = transaction.query(adopt_sql!("inbox_copies_for_handlers"), values).await?;
    Ok(match copies.as_slice() {
        [only] => Some(received_copy(only, true)),
        _ => own,
    })
}

/// Handles a copy again, with the payload that the row has now.
async fn handle_again(
    transaction: &Transaction<'_>,
    (id, payload): (i64, Option<&str>),
    change: &AdoptedChange,
) -> Result<(), Failure> {
    let reason = format!("row {} of {} was reset", change.adopted_key, change.adopted_by);
    let by = (ACTOR, reason.as_str());
    transaction.execute(adopt_sql!("inbox_refresh"), &[&id, &payload]).await?;
    if let Some(letter) = transaction.query_opt(adopt_sql!("open_letter"), &[&id, &"inbox"]).await?
    {
        let letter: Uuid = letter.get(0);
        dead_letters::resolve_in(transaction, letter, Resolution::Retried, by).await?;
        return Ok(());
    }
    transaction.execute(adopt_sql!("inbox_reopen"), &[&id]).await?;
    dead_letters::audit(transaction, by, "inbox.reset", &id.to_string()).await
}
