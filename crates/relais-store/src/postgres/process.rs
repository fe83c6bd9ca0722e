//! Processes, their logs and their timers.
//!
//! Invariant: a transaction that changes a process has locked its row and found it at the version the change
//! was made from; all that a change consists of is one commit.
//!
//! - [`claim`]: the versions that changes require
//! - [`write`]: carrying them out
//! - [`read`]: loading them
//! - here: single changes, and timers

mod claim;
mod read;
mod write;

use std::time::Duration;

pub(super) use self::{
    claim::{Claims, distinct},
    read::load,
    write::SortedChanges,
};
use super::session::Client;
use super::{error::Failure, inbox, row};
use futures_util::future::try_join;
use relais_core::{
    inbox::in_inbox,
    process::{Change, ChangeOutcome, FiredTimers, SOURCE_SYSTEM, TIMER_FIRED, TimerOwner},
};

/// A change without an inbox row.
pub(super) async fn change(
    client: &mut Client<'_>,
    change: &Change,
) -> Result<ChangeOutcome, Failure> {
    let lock = client.prepare_cached(sql!("lock_processes")).await?;
    let transaction = client.transaction().await?;
    if !transaction.query(&lock, &Claims::of_one(change).values()).await?.is_empty() {
        return Ok(ChangeOutcome::Stale);
    }
    let messages = change.messages.iter().collect();
    inbox::write(&transaction, messages, vec![change], SOURCE_SYSTEM).await?;
    crate::fail_point!("change_process.before_commit");
    transaction.commit().await?;
    Ok(ChangeOutcome::Done)
}

/// One statement fires them; the other, in the same round trip, reads when the next one is due.
pub(super) async fn fire_timers(
    client: &Client<'_>,
    owner: &TimerOwner,
    limit: usize,
) -> Result<FiredTimers, Failure> {
    let (source, types) = (in_inbox(&owner.inbox, SOURCE_SYSTEM), &owner.process_types);
    let fire = client.prepare_cached(sql!("fire_timers")).await?;
    let next = client.prepare_cached(sql!("next_timer")).await?;
    let (fired, next) = try_join(
        client.execute(&fire, &[&row::count(limit), &source, &TIMER_FIRED, types]),
        client.query_opt(&next, &[types]),
    )
    .await?;
    let next = next.map(|row| Duration::from_micros(row::amount(row.get(0))));
    Ok(FiredTimers { fired, next })
}
