//! Handles what applications changed in their adopted tables, and results that could not be written before.
//!
//! Each change is one transaction, which also removes the change: after a crash it is handled again. A change that
//! fails stays, and the next pass continues behind it.

use std::time::{Duration, SystemTime};

use deadpool_postgres::Transaction;
use relais_core::{dead_letter::Resolution, outbox::OnDeadLetter, store::SettleOutcome};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::super::{StoreState, dead_letters, error::Failure, session::Client};
use super::{
    inbox, install_rest, refresh,
    script::AdoptScript,
    write_back::{WriteBackResult, write_one},
};
use crate::adopt::{ACTOR, BY_UPDATE, CHANGES_MAX};

/// The longest wait for a row of the application.
const ROW_WAIT: Duration = Duration::from_millis(200);

/// Handles changes: they count as settled.
pub(in super::super) async fn follow(
    client: &mut Client<'_>,
    shared: &StoreState,
) -> Result<SettleOutcome, Failure> {
    let adopted = &shared.adopted;
    if adopted.all().is_empty() {
        return Ok(SettleOutcome::default());
    }
    if adopted.is_due() {
        install_rest(adopted, client).await?;
        refresh(adopted, client).await?;
    }
    let tables = adopted.all();
    let scripts: Vec<&AdoptScript> =
        tables.iter().filter_map(|table| table.script.as_deref()).collect();
    let names: Vec<&str> = scripts.iter().map(|script| script.name.as_str()).collect();
    let values: [&(dyn ToSql + Sync); 3] = [&adopted.cursor(), &names, &(CHANGES_MAX as i64)];
    let rows = client.query(adopt_sql!("changes"), &values).await?;
    let mut outcome = SettleOutcome::default();
    for change in rows.iter().map(AdoptedChange::of) {
        let found = scripts.iter().find(|script| script.name == change.adopted_by);
        let Some(script) = found else { continue };
        match handle(client, script, change).await {
            Ok(is_done) => outcome.settled += u64::from(is_done),
            // An error of this row or table; a lost connection ends the pass.
            Err(Failure::Final(error)) if error.code().is_some() => {}
            Err(failure) => return Err(failure),
        }
    }
    adopted.pass_ended(rows.last().map(|last| last.get(0)), rows.len());
    Ok(outcome)
}

/// A row of `relais_adopted_change`.
pub(super) struct AdoptedChange {
    id: i64,
    pub(super) adopted_by: String,
    pub(super) adopted_key: String,
    message_id: Uuid,
    is_reset: bool,
}

impl AdoptedChange {
    /// Returns whether an UPDATE of an inbox table made it.
    pub(super) fn is_by_update(&self) -> bool {
        self.message_id == BY_UPDATE
    }
}

impl AdoptedChange {
    fn of(row: &Row) -> Self {
        Self {
            id: row.get(0),
            adopted_by: row.get(1),
            adopted_key: row.get(2),
            message_id: row.get(3),
            is_reset: row.get::<_, &str>(4) == "reset",
        }
    }
}

/// Returns whether the change is handled. An early return rolls back, and leaves it for the next pass.
async fn handle(
    client: &mut Client<'_>,
    script: &AdoptScript,
    mut change: AdoptedChange,
) -> Result<bool, Failure> {
    let mut transaction = client.transaction().await?;
    let taken = transaction.query_opt(adopt_sql!("take_change"), &[&change.id]).await?;
    let Some(taken) = taken else { return Ok(false) };
    // Another row of the message may have been reset before.
    change.message_id = taken.get(0);
    let change = &change;
    transaction.execute(adopt_sql!("unvalidated"), &[]).await?;
    let is_done = match (script.is_inbox, change.is_reset) {
        (true, true) => inbox::reset(&mut transaction, script, change).await?,
        (true, false) => {
            let copy = inbox::linked(&transaction, change).await?;
            write_late(&mut transaction, script, copy).await?
        }
        (false, true) => {
            reset(&transaction, script, change, &copies(&transaction, change).await?).await?;
            true
        }
        (false, false) => {
            let newest = copies(&transaction, change).await?.first().map(|copy| copy.id);
            write_late(&mut transaction, script, newest).await?
        }
    };
    if !is_done {
        return Ok(false);
    }
    transaction.commit().await?;
    Ok(true)
}

/// Writes a result that could not be written before; returns whether it is written. A copy may have been removed.
pub(super) async fn write_late(
    transaction: &mut Transaction<'_>,
    script: &AdoptScript,
    copy: Option<i64>,
) -> Result<bool, Failure> {
    let Some(copy) = copy else { return Ok(true) };
    Ok(write_one(transaction, script, copy, ROW_WAIT).await? == WriteBackResult::Yes)
}

/// Locks and returns the copies of a row, newest first.
async fn copies(
    transaction: &Transaction<'_>,
    change: &AdoptedChange,
) -> Result<Vec<AdoptedCopy>, Failure> {
    let AdoptedChange { message_id, adopted_by, adopted_key, .. } = change;
    let values: [&(dyn ToSql + Sync); 3] = [message_id, adopted_by, adopted_key];
    let copies = transaction.query(adopt_sql!("lock_copies"), &values).await?;
    Ok(copies.iter().map(AdoptedCopy::of).collect())
}

/// A copy of an adopted row.
struct AdoptedCopy {
    id: i64,
    destination: String,
    is_pending: bool,
}

impl AdoptedCopy {
    fn of(row: &Row) -> Self {
        let is_pending = row.get::<_, &str>(2) == "PENDING";
        Self { id: row.get(0), destination: row.get(1), is_pending }
    }
}

/// Sends what the row has now; a copy may have been removed by the retention. A waiting copy that differs is withdrawn and copied again: if it is in flight, its
/// settlement finds no row, and the new copy is sent too.
async fn reset(
    transaction: &Transaction<'_>,
    script: &AdoptScript,
    change: &AdoptedChange,
    copies: &[AdoptedCopy],
) -> Result<(), Failure> {
    let AdoptedChange { message_id, adopted_key, .. } = change;
    let current = transaction.query_opt(script.current.as_str(), &[adopted_key]).await?;
    // Deleted or changed again since.
    let Some(current) = current else { return Ok(()) };
    let (destination, payload, headers): (&str, &str, &str) =
        (current.get(0), current.get(1), current.get(2));
    let (next_attempt, has_time): (Option<SystemTime>, bool) = (current.get(3), current.get(4));
    let reason = format!("row {adopted_key} of {} was changed", script.name);
    for copy in copies.iter().filter(|copy| copy.is_pending && copy.destination != destination) {
        withdraw(transaction, copy.id, &reason).await?;
    }
    let of_destination = copies.iter().find(|copy| copy.destination == destination);
    match of_destination {
        Some(copy) if copy.is_pending => {
            let values: [&(dyn ToSql + Sync); 6] =
                [message_id, &destination, &payload, &headers, &has_time, &next_attempt];
            let is_changed = transaction.query_one(adopt_sql!("is_changed"), &values).await?;
            if !is_changed.get::<_, bool>(0) {
                return Ok(());
            }
            withdraw(transaction, copy.id, &reason).await?;
        }
        Some(copy) => {
            transaction.execute(adopt_sql!("refresh"), &[&copy.id, &payload, &headers]).await?;
            return send_again(transaction, script, change, copy.id).await;
        }
        None => {}
    }
    transaction.execute(script.copy_one.as_str(), &[adopted_key]).await?;
    Ok(())
}

/// Removes a waiting copy as an operator would: failed, then discarded. What waited behind it continues.
async fn withdraw(transaction: &Transaction<'_>, id: i64, reason: &str) -> Result<(), Failure> {
    let by = (ACTOR, reason);
    dead_letters::fail_pending_in(transaction, id, OnDeadLetter::Skip, by).await?;
    if let Some(letter) =
        transaction.query_opt(adopt_sql!("open_letter"), &[&id, &"outbox"]).await?
    {
        dead_letters::resolve_in(transaction, letter.get(0), Resolution::Discarded, by).await?;
    }
    transaction.execute(adopt_sql!("withdraw"), &[&id]).await?;
    Ok(())
}

/// Sends a delivered or failed copy again.
async fn send_again(
    transaction: &Transaction<'_>,
    script: &AdoptScript,
    change: &AdoptedChange,
    id: i64,
) -> Result<(), Failure> {
    let reason = format!("row {} of {} was reset", change.adopted_key, script.name);
    let letter = transaction.query_opt(adopt_sql!("open_letter"), &[&id, &"outbox"]).await?;
    match letter {
        Some(letter) => {
            let letter: Uuid = letter.get(0);
            dead_letters::resolve_in(transaction, letter, Resolution::Retried, (ACTOR, &reason))
                .await?;
        }
        None => {
            transaction.execute(adopt_sql!("reopen"), &[&id]).await?;
            let by = (ACTOR, reason.as_str());
            dead_letters::audit(transaction, by, "outbox.reset", &id.to_string()).await?;
        }
    }
    Ok(())
}
