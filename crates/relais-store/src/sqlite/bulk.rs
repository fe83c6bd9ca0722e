//! Bulk jobs: rows go from the owner of their lanes to a job, and back or to their end.
//!
//! Invariant: a worker that changes a job or one of its rows has found its own name and epoch in the job, in
//! the same transaction.

use std::time::Duration;

use relais_core::{
    bulk::{Advance, BulkJob, BulkLease, JobFence, JobTakeover},
    delivery::Problem,
    lane::{Fence, OwnedLane},
    outbox::{OutboxFate, OutboxRow},
    store::{Payloads, SettleOutcome, StoreError},
    text,
};
use rusqlite::{Connection, Transaction};
use uuid::Uuid;

use super::{
    adopt::{self, SqliteAdoptions},
    attempt,
    inbox::bury,
    lanes::{OwnedEpochs, tally},
    outbox::destination,
    row::{all, change, first, limit, millis},
    waiting::{self, LeftKeys},
    writer::Ending,
};
use crate::{adopt::SettledCopies, release::RELEASED_FROM_JOB};

/// Without a job nothing has changed, not even the rows that were the worker's.
pub(super) fn lease(
    tx: &Transaction<'_>,
    lease: BulkLease,
) -> Result<Ending<Option<JobTakeover>>, StoreError> {
    let held = |job| JobTakeover { job, after_loss: false };
    let leased = match lease {
        BulkLease::Plan { fence, job, rows, lease } => {
            plan(tx, &fence, job, &rows, lease)?.map(held)
        }
        BulkLease::Take { destination, worker, lease } => {
            let owned = include_str!("sql/bulk_owner.sql");
            let after_loss = first(tx, owned, [&destination], |_| ())?.is_some();
            let params = (destination, worker, millis(lease));
            let taken = first(tx, include_str!("sql/take_bulk.sql"), params, |c| c.bulk_job())?;
            taken.map(|job| JobTakeover { job, after_loss })
        }
        BulkLease::Renew { fence, lease } => renew(tx, fence, Some(lease))?.map(held),
        BulkLease::Release { fence } => {
            renew(tx, fence, None)?;
            return Ok(Ending::Keep(None));
        }
    };
    Ok(if leased.is_some() { Ending::Keep(leased) } else { Ending::Undo(None) })
}

/// Extends the lease, or without one gives the job back.
fn renew(
    tx: &Transaction<'_>,
    fence: JobFence,
    lease: Option<Duration>,
) -> Result<Option<BulkJob>, StoreError> {
    let JobFence { job, worker, epoch } = fence;
    let params = (job.to_string(), worker, epoch, lease.map(millis));
    first(tx, include_str!("sql/renew_bulk.sql"), params, |c| c.bulk_job())
}

pub(super) fn rows_of(
    db: &Connection,
    (job, after): (Uuid, i64),
    rows: usize,
    payloads: Payloads,
) -> Result<Vec<OutboxRow>, StoreError> {
    let bytes = payloads.bytes().map(limit);
    let params = (job.to_string(), after, limit(rows), bytes);
    all(db, include_str!("sql/bulk_rows.sql"), params, |c| c.outbox())
}

fn plan(
    tx: &Transaction<'_>,
    fence: &Fence,
    job: Uuid,
    rows: &[(i64, OwnedLane)],
    lease: Duration,
) -> Result<Option<BulkJob>, StoreError> {
    let destination = destination(&fence.scope)?;
    if rows.is_empty() {
        return Ok(None);
    }
    let owned = OwnedEpochs::read(tx, fence)?;
    let job_id = job.to_string();
    let params = (&job_id, destination, limit(rows.len()), &fence.worker, millis(lease));
    let planned = first(tx, include_str!("sql/plan_bulk.sql"), params, |c| c.bulk_job())?;
    if planned.is_none() {
        return Ok(None);
    }
    for (id, lane) in rows {
        let params = (id, destination, lane.lane, &job_id);
        if !owned.holds(lane.lane, lane.epoch)
            || change(tx, include_str!("sql/plan_bulk_rows.sql"), params)? == 0
        {
            return Ok(None);
        }
        waiting::enter(tx, *id)?;
    }
    crate::fail_point!("plan_bulk.before_commit");
    Ok(planned)
}

pub(super) fn advance(
    tx: &Transaction<'_>,
    fence: &JobFence,
    step: &Advance,
) -> Result<bool, StoreError> {
    let JobFence { job, worker, epoch } = fence;
    let job_id = job.to_string();
    let note = step.note.as_deref().map(|note| text::fit(note, text::ERROR_MESSAGE_MAX));
    let (from, to, ends) = (step.from.as_str(), step.to.as_str(), step.to.is_terminal());
    let params = (&job_id, worker, epoch, from, to, &step.remote_id, note, ends);
    let advanced = change(tx, include_str!("sql/advance_bulk.sql"), params)? == 1;
    if advanced && ends {
        change(tx, include_str!("sql/free_bulk.sql"), [&job_id])?;
        change(tx, include_str!("sql/free_waiting.sql"), [&job_id])?;
        change(tx, include_str!("sql/announce_bulk.sql"), [&job_id])?;
        crate::fail_point!("end_bulk.before_commit");
    }
    Ok(advanced)
}

pub(super) fn settle(
    tx: &Transaction<'_>,
    adopted: &SqliteAdoptions,
    fence: &JobFence,
    rows: &[(i64, OutboxFate)],
) -> Result<SettleOutcome, StoreError> {
    let mut settled = SettleOutcome::default();
    if !holds(tx, fence)? {
        settled.refused = rows.len() as u64;
        return Ok(settled);
    }
    let job_id = fence.job.to_string();
    let mut due_again = false;
    let mut left = LeftKeys::default();
    for (id, fate) in rows {
        let reached = settle_one(tx, &job_id, &fence.worker, *id, fate)?;
        if reached == 1 {
            attempt::record_outbox(tx, *id, fate, &fence.worker)?;
            match fate {
                OutboxFate::Untouched => waiting::enter(tx, *id)?,
                OutboxFate::Retry { .. } | OutboxFate::Wait { .. } => waiting::back_off(tx, *id)?,
                OutboxFate::Dispatched | OutboxFate::Dead { .. } => left.leave(tx, *id)?,
            }
        }
        due_again |= *fate == OutboxFate::Untouched && reached > 0;
        tally(&mut settled, reached);
    }
    left.release(tx, RELEASED_FROM_JOB)?;
    let ended =
        !rows.is_empty() && change(tx, include_str!("sql/finish_bulk.sql"), [&job_id])? == 1;
    if ended || due_again {
        change(tx, include_str!("sql/announce_bulk.sql"), [&job_id])?;
    }
    let ids: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
    adopt::write_back(tx, &adopted.all(), SettledCopies::Outbox(None), &ids)?;
    crate::fail_point!("settle_bulk.before_commit");
    Ok(settled)
}

fn holds(db: &Connection, fence: &JobFence) -> Result<bool, StoreError> {
    let JobFence { job, worker, epoch } = fence;
    let params = (job.to_string(), worker, epoch);
    Ok(first(db, include_str!("sql/hold_bulk.sql"), params, |_| ())?.is_some())
}

fn settle_one(
    tx: &Transaction<'_>,
    job_id: &str,
    worker: &str,
    id: i64,
    fate: &OutboxFate,
) -> Result<u64, StoreError> {
    match fate {
        OutboxFate::Untouched => change(tx, include_str!("sql/free_bulk_rows.sql"), (id, job_id)),
        OutboxFate::Dispatched => change(tx, include_str!("sql/dispatch_bulk.sql"), (id, job_id)),
        OutboxFate::Retry { pause, problem, .. } | OutboxFate::Wait { pause, problem, .. } => {
            let (attempts, lost_workers) = match fate {
                OutboxFate::Retry { attempts, .. } => (Some(*attempts), 0),
                OutboxFate::Wait { lost_workers, .. } => (None, *lost_workers),
                _ => (None, 0),
            };
            let Problem { code, message } = problem;
            let params = (id, job_id, attempts, millis(*pause), code, message, lost_workers);
            change(tx, include_str!("sql/retry_bulk.sql"), params)
        }
        OutboxFate::Dead { attempts, problem, park } => {
            let Problem { code, message } = problem;
            let params = (id, job_id, attempts, code, message);
            let failed = change(tx, include_str!("sql/fail_bulk.sql"), params)?;
            if failed == 1 {
                bury(tx, include_str!("sql/bury_outbox.sql"), id, worker, *park)?;
            }
            Ok(failed)
        }
    }
}
