//! Messages to send: fetched in order, settled under the fence.

use std::time::Duration;

use relais_core::{
    delivery::Problem,
    lane::{Fence, Scope},
    outbox::{OutboxFate, OutboxRow, OutboxSettlement},
    store::{Fetch, SettleOutcome, StoreError},
};
use rusqlite::{Connection, Transaction};

use super::{
    attempt,
    inbox::bury,
    lanes::tally,
    low_water_mark::{Marks, Place},
    row::{all, change, json_array, lane_bits, limit, millis},
};

pub(super) fn fetch(
    db: &Connection,
    marks: &Marks,
    fetch: &Fetch,
) -> Result<Vec<OutboxRow>, StoreError> {
    let destination = destination(&fetch.scope)?;
    let (skip_keys, skip_ids) = (json_array(&fetch.skip_keys), json_array(&fetch.skip_ids));
    let (lanes, bytes) = (lane_bits(&fetch.lanes), fetch.payloads.bytes().map(limit));
    let advance = include_str!("sql/advance_outbox_mark.sql");
    marks.fetch(db, fetch, Place { origin: "outbox", destination, advance }, |from| {
        let params = (destination, lanes, limit(fetch.limit), skip_keys, skip_ids, bytes, from);
        all(db, include_str!("sql/fetch_outbox.sql"), params, |c| c.outbox())
    })
}

/// Settles the rows whose lane is still ours. A row left untouched counts as neither.
pub(super) fn settle(
    tx: &Transaction<'_>,
    fence: &Fence,
    rows: &[OutboxSettlement],
) -> Result<SettleOutcome, StoreError> {
    let proof = SettleProof {
        scope: &fence.scope.to_string(),
        worker: &fence.worker,
        destination: destination(&fence.scope)?,
    };
    let mut settled = SettleOutcome::default();
    for row in rows {
        if row.fate == OutboxFate::Untouched {
            continue;
        }
        let reached = settle_one(tx, &proof, row)?;
        if reached == 1 {
            attempt::record_outbox(tx, row.id, &row.fate, &fence.worker)?;
        } else if row.fate == OutboxFate::Dispatched {
            // Perhaps an operator failed the row meanwhile.
            change(tx, include_str!("sql/note_delivered.sql"), (row.id, &fence.worker))?;
        }
        tally(&mut settled, reached);
    }
    crate::fail_point!("settle_outbox.before_commit");
    Ok(settled)
}

/// The ownership that every statement of a settlement proves.
struct SettleProof<'a> {
    scope: &'a str,
    worker: &'a str,
    destination: &'a str,
}

fn settle_one(
    tx: &Transaction<'_>,
    proof: &SettleProof<'_>,
    row: &OutboxSettlement,
) -> Result<u64, StoreError> {
    let SettleProof { scope, worker, destination } = proof;
    let OutboxSettlement { id, epoch, fate, .. } = row;
    match fate {
        OutboxFate::Untouched => Ok(0),
        OutboxFate::Dispatched => change(
            tx,
            include_str!("sql/mark_dispatched.sql"),
            (id, scope, worker, epoch, destination),
        ),
        OutboxFate::Retry { attempts, pause, problem } => {
            wait(tx, proof, row, (Some(*attempts), *pause, problem, 0))
        }
        OutboxFate::Wait { pause, problem, lost_workers } => {
            wait(tx, proof, row, (None, *pause, problem, *lost_workers))
        }
        OutboxFate::Dead { attempts, problem, park } => {
            let Problem { code, message } = problem;
            let failed = change(
                tx,
                include_str!("sql/fail_outbox.sql"),
                (id, scope, worker, epoch, destination, attempts, code, message),
            )?;
            if failed == 1 {
                bury(tx, include_str!("sql/bury_outbox.sql"), *id, worker, *park)?;
            }
            Ok(failed)
        }
    }
}

/// The row stays pending until its time comes; without attempts, none was used.
fn wait(
    tx: &Transaction<'_>,
    proof: &SettleProof<'_>,
    row: &OutboxSettlement,
    (attempts, pause, problem, lost_workers): (Option<u32>, Duration, &Problem, u32),
) -> Result<u64, StoreError> {
    let SettleProof { scope, worker, destination } = proof;
    let (pause, Problem { code, message }) = (millis(pause), problem);
    let params = (
        row.id,
        scope,
        worker,
        row.epoch,
        destination,
        attempts,
        pause,
        code,
        message,
        lost_workers,
    );
    change(tx, include_str!("sql/retry_outbox.sql"), params)
}

pub(super) fn destination(scope: &Scope) -> Result<&str, StoreError> {
    match scope {
        Scope::Outbox(destination) => Ok(destination),
        Scope::Inbox | Scope::NamedInbox(_) => {
            Err(StoreError::invalid("the inbox has no outbox rows; name a destination"))
        }
    }
}
