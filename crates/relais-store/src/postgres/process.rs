//! Processes, their logs and their timers.
//!
//! Invariant: whoever changes a process has locked its row and found it at the version the change was
//! made from; all that a change consists of is one commit.
//!
//! - [`claim`]: what changes ask of processes before they are carried out
//! - [`write`]: carrying them out
//! - [`read`]: looking at them
//! - here: the seam, and timers

mod claim;
mod read;
mod write;

use std::time::Duration;

use futures_util::future::try_join;
use relais_core::{
    inbox::in_inbox,
    process::{
        Applied, Change, Fired, LogEntry, Process, ProcessFilter, ProcessRef, Processes,
        SOURCE_SYSTEM, TIMER_FIRED, TimerOwner,
    },
    store::StoreFuture,
};
use uuid::Uuid;

pub(super) use self::{
    claim::{Claims, distinct},
    write::Changes,
};
use super::session::Client;
use super::{PostgresStore, error::Failure, inbox, row};

impl Processes for PostgresStore {
    fn load_processes(&self, wanted: Vec<ProcessRef>) -> StoreFuture<'_, Vec<Option<Process>>> {
        self.run(wanted, |client, _, wanted| Box::pin(read::load(client, wanted)))
    }

    fn list_processes(&self, filter: ProcessFilter) -> StoreFuture<'_, Vec<Process>> {
        self.run_other(filter, |client, _, filter| Box::pin(read::list(client, filter)))
    }

    fn process_log(
        &self,
        process_id: Uuid,
        before: Option<i64>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<LogEntry>> {
        self.run_other((process_id, before, limit), |client, _, (process_id, before, limit)| {
            Box::pin(read::log(client, *process_id, *before, *limit))
        })
    }

    fn process_log_of(&self, message_id: String) -> StoreFuture<'_, Vec<LogEntry>> {
        self.run_other(message_id, |client, _, message_id| {
            Box::pin(read::log_of(client, message_id))
        })
    }

    fn change_process(&self, change: Change) -> StoreFuture<'_, Applied> {
        self.run(change, |client, _, change| Box::pin(change_one(client, change)))
    }

    fn fire_timers_of(&self, owner: TimerOwner, limit: usize) -> StoreFuture<'_, Fired> {
        self.run((owner, limit), |client, _, (owner, limit)| Box::pin(fire(client, owner, *limit)))
    }
}

/// A change without an inbox row.
async fn change_one(client: &mut Client<'_>, change: &Change) -> Result<Applied, Failure> {
    let lock = client.prepare_cached(sql!("lock_processes")).await?;
    let transaction = client.transaction().await?;
    if !transaction.query(&lock, &Claims::of_one(change).values()).await?.is_empty() {
        return Ok(Applied::Stale);
    }
    let messages = change.messages.iter().collect();
    inbox::write(&transaction, messages, vec![change], SOURCE_SYSTEM).await?;
    crate::fail_point!("change_process.before_commit");
    transaction.commit().await?;
    Ok(Applied::Done)
}

/// One statement fires them; the other, in the same round trip, looks at what is left.
async fn fire(client: &Client<'_>, owner: &TimerOwner, limit: usize) -> Result<Fired, Failure> {
    let (source, types) = (in_inbox(&owner.inbox, SOURCE_SYSTEM), &owner.process_types);
    let fire = client.prepare_cached(sql!("fire_timers")).await?;
    let next = client.prepare_cached(sql!("next_timer")).await?;
    let (fired, next) = try_join(
        client.execute(&fire, &[&row::count(limit), &source, &TIMER_FIRED, types]),
        client.query_opt(&next, &[types]),
    )
    .await?;
    let next = next.map(|row| Duration::from_micros(row::amount(row.get(0))));
    Ok(Fired { fired, next })
}
