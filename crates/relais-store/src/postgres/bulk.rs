//! Bulk jobs: rows go from the owner of their lanes to a job, and back or to their end.
//!
//! Invariant: a worker that changes a job or one of its rows has locked the job's row first and found its
//! own name and epoch there. A row set free is announced after it was changed, so that workers wake.

use std::time::Duration;

use deadpool_postgres::Transaction;
use futures_util::future::{try_join3, try_join4};
use relais_core::{
    bulk::{Advance, BulkJob, BulkLease, JobFence, JobTakeover},
    lane::{Fence, OwnedLane},
    outbox::{OutboxFate, OutboxRow, OutboxSettlement},
    store::{Payloads, SettleOutcome},
    text,
};
use uuid::Uuid;

use super::session::Client;
use super::{
    adopt::{self, PostgresAdoptions},
    error::Failure,
    fence::{LaneProof, Value, settled},
    outbox, row,
};
use crate::{adopt::SettledCopies, release::RELEASED_FROM_JOB};

pub(super) async fn lease(
    client: &mut Client<'_>,
    lease: &BulkLease,
) -> Result<Option<JobTakeover>, Failure> {
    let held = |job| JobTakeover { job, after_loss: false };
    let job = match lease {
        BulkLease::Plan { fence, job, rows, lease } => {
            plan(client, fence, *job, rows, *lease).await
        }
        BulkLease::Take { destination, worker, lease } => {
            return take(client, destination, worker, *lease).await;
        }
        BulkLease::Renew { fence, lease } => renew(client, fence, Some(*lease)).await,
        BulkLease::Release { fence } => renew(client, fence, None).await.map(|_| None),
    };
    Ok(job?.map(held))
}

/// All rows, or nothing changes: an early return rolls back.
async fn plan(
    client: &mut Client<'_>,
    fence: &Fence,
    job: Uuid,
    rows: &[(i64, OwnedLane)],
    lease: Duration,
) -> Result<Option<BulkJob>, Failure> {
    let destination = outbox::destination(&fence.scope)?;
    if rows.is_empty() {
        return Ok(None);
    }
    let scope = fence.scope.to_string();
    let (count, lease_ms) = (row::count(rows.len()), row::millis(lease));
    let insert = client.prepare_cached(sql!("plan_bulk")).await?;
    let assign = client.prepare_cached(sql!("plan_bulk_rows")).await?;
    let transaction = client.transaction().await?;
    let values: [Value<'_>; 5] = [&job, &destination, &count, &fence.worker, &lease_ms];
    let Some(planned) = transaction.query_opt(&insert, &values).await? else { return Ok(None) };
    let (proof, job_id) = (LaneProof::of(rows), job.to_string());
    let mut values = proof.values(&[&scope, &fence.worker, &destination]);
    values.push(&job_id);
    let assigned = transaction.query_one(&assign, &values).await?;
    if assigned.get::<_, i64>(0) != count {
        return Ok(None);
    }
    crate::fail_point!("plan_bulk.before_commit");
    transaction.commit().await?;
    Ok(Some(row::bulk_job(&planned)?))
}

/// In a transaction, so that a job in a phase that is not known here is left as it was.
async fn take(
    client: &mut Client<'_>,
    destination: &str,
    worker: &str,
    lease: Duration,
) -> Result<Option<JobTakeover>, Failure> {
    let transaction = client.transaction().await?;
    let statement = transaction.prepare_cached(sql!("take_bulk")).await?;
    let values: [Value<'_>; 3] = [&destination, &worker, &row::millis(lease)];
    let taken = transaction.query_opt(&statement, &values).await?;
    let job = taken.as_ref().map(row::job_takeover).transpose()?;
    transaction.commit().await?;
    Ok(job)
}

/// Extends the lease, or without one gives the job back.
async fn renew(
    client: &Client<'_>,
    fence: &JobFence,
    lease: Option<Duration>,
) -> Result<Option<BulkJob>, Failure> {
    let statement = client.prepare_cached(sql!("renew_bulk")).await?;
    let JobFence { job, worker, epoch } = fence;
    let values: [Value<'_>; 4] = [job, worker, epoch, &lease.map(row::millis)];
    let renewed = client.query_opt(&statement, &values).await?;
    Ok(renewed.as_ref().map(row::bulk_job).transpose()?)
}

pub(super) async fn advance(
    client: &mut Client<'_>,
    fence: &JobFence,
    step: &Advance,
) -> Result<bool, Failure> {
    let JobFence { job, worker, epoch } = fence;
    let (from, to, ends) = (step.from.as_str(), step.to.as_str(), step.to.is_terminal());
    let note = step.note.as_deref().map(|note| text::fit(note, text::ERROR_MESSAGE_MAX));
    let statement = client.prepare_cached(sql!("advance_bulk")).await?;
    let values: [Value<'_>; 8] = [job, worker, epoch, &from, &to, &step.remote_id, &note, &ends];
    if !ends {
        return Ok(client.execute(&statement, &values).await? == 1);
    }
    let free = client.prepare_cached(sql!("free_bulk")).await?;
    let announce = client.prepare_cached(sql!("announce_bulk")).await?;
    let transaction = client.transaction().await?;
    if transaction.execute(&statement, &values).await? == 0 {
        return Ok(false);
    }
    transaction.execute(&free, &[&job.to_string()]).await?;
    transaction.execute(&announce, &[job]).await?;
    crate::fail_point!("end_bulk.before_commit");
    transaction.commit().await?;
    Ok(true)
}

pub(super) async fn rows_of(
    client: &Client<'_>,
    (job, after): (Uuid, i64),
    limit: usize,
    payloads: Payloads,
) -> Result<Vec<OutboxRow>, Failure> {
    let statement = client.prepare_cached(sql!("bulk_rows")).await?;
    let bytes = payloads.bytes().map(row::count);
    let values: [Value<'_>; 4] = [&job.to_string(), &after, &row::count(limit), &bytes];
    row::each(client, &statement, &values, row::outbox_row).await
}

pub(super) async fn settle(
    client: &mut Client<'_>,
    adopted: &PostgresAdoptions,
    fence: &JobFence,
    rows: &[(i64, OutboxFate)],
) -> Result<SettleOutcome, Failure> {
    // The form in which `outbox` sorts fates; the job's fence stands for the lane's.
    let unfenced = |(id, fate): &(i64, OutboxFate)| OutboxSettlement {
        id: *id,
        lane: 0,
        epoch: 0,
        fate: fate.clone(),
    };
    let rows: Vec<_> = rows.iter().map(unfenced).collect();
    let hold = client.prepare_cached(sql!("hold_bulk")).await?;
    let statements = Statements::prepare(client).await?;
    let mut transaction = client.transaction().await?;
    let JobFence { job, worker, epoch } = fence;
    if rows.is_empty() {
        return Ok(settled(0, 0));
    }
    let Some(held) = transaction.query_opt(&hold, &[job, worker, epoch]).await? else {
        return Ok(settled(rows.len(), 0));
    };
    let reached = statements.apply(&transaction, (fence, held.get(0)), &rows).await?;
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    adopt::write_back(&mut transaction, &adopted.all(), SettledCopies::Outbox(None), &ids).await?;
    crate::fail_point!("settle_bulk.before_commit");
    transaction.commit().await?;
    Ok(settled(rows.len(), reached))
}

/// The statements of a settlement, prepared before its transaction.
struct Statements {
    dispatch: tokio_postgres::Statement,
    retry: tokio_postgres::Statement,
    fail: tokio_postgres::Statement,
    bury: tokio_postgres::Statement,
    free: tokio_postgres::Statement,
    finish: tokio_postgres::Statement,
    announce: tokio_postgres::Statement,
}

impl Statements {
    async fn prepare(client: &Client<'_>) -> Result<Self, Failure> {
        let (dispatch, retry, fail, bury) = try_join4(
            client.prepare_cached(sql!("dispatch_bulk")),
            client.prepare_cached(sql!("retry_bulk")),
            client.prepare_cached(sql!("fail_bulk")),
            client.prepare_cached(sql!("bury_outbox")),
        )
        .await?;
        let (free, finish, announce) = try_join3(
            client.prepare_cached(sql!("free_bulk_rows")),
            client.prepare_cached(sql!("finish_bulk")),
            client.prepare_cached(sql!("announce_bulk")),
        )
        .await?;
        Ok(Self { dispatch, retry, fail, bury, free, finish, announce })
    }

    /// Returns the number of rows it reached.
    async fn apply(
        &self,
        transaction: &Transaction<'_>,
        (fence, destination): (&JobFence, &str),
        rows: &[OutboxSettlement],
    ) -> Result<u64, Failure> {
        let job_id = fence.job.to_string();
        let (done, retries, dead) = outbox::by_fate(rows);
        let untouched = rows.iter().filter(|row| row.fate == OutboxFate::Untouched);
        let untouched: Vec<i64> = untouched.map(|row| row.id).collect();
        let retry: [Value<'_>; 8] = [
            &job_id,
            &retries.proof.ids,
            &retries.attempts,
            &retries.pauses_ms,
            &retries.codes,
            &retries.messages,
            &fence.worker,
            &retries.lost_workers,
        ];
        let fail: [Value<'_>; 6] =
            [&job_id, &dead.proof.ids, &dead.attempts, &dead.parks, &dead.codes, &dead.messages];
        let (dispatched, retried, failed, freed) = try_join4(
            transaction.query_one(&self.dispatch, &[&job_id, &done.ids]),
            transaction.query_one(&self.retry, &retry),
            transaction.query(&self.fail, &fail),
            transaction.execute(&self.free, &[&job_id, &untouched]),
        )
        .await?;
        outbox::bury(transaction, &self.bury, &failed, &fence.worker).await?;
        let mut keys: Vec<String> = dispatched.get(1);
        keys.extend(failed.iter().map(|row| row.get::<_, String>(2)));
        outbox::release(transaction, destination, &keys, RELEASED_FROM_JOB).await?;
        let ended = transaction.execute(&self.finish, &[&fence.job, &job_id]).await?;
        if ended > 0 || freed > 0 {
            transaction.execute(&self.announce, &[&fence.job]).await?;
        }
        let (dispatched, retried) = (row::amount(dispatched.get(0)), row::amount(retried.get(0)));
        Ok(dispatched + retried + failed.len() as u64 + freed)
    }
}
