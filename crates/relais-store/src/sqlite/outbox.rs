//! Messages to send: settled under the fence.

use std::time::Duration;

use relais_core::{
    delivery::Problem,
    lane::{Fence, Scope},
    outbox::{OutboxFate, OutboxSettlement},
    store::{SettleOutcome, StoreError},
};
use rusqlite::Transaction;

use super::{
    adopt::{self, SqliteAdoptions},
    attempt, error,
    inbox::bury,
    lanes::{OwnedEpochs, tally},
    row::{change, first, millis},
    waiting::{LeftKeys, back_off},
};
use crate::{adopt::SettledCopies, release::RELEASED_ROWS};

/// Settles the rows whose lane is still ours. A row left untouched counts as neither.
pub(super) fn settle(
    tx: &Transaction<'_>,
    adopted: &SqliteAdoptions,
    fence: &Fence,
    rows: &[OutboxSettlement],
) -> Result<SettleOutcome, StoreError> {
    let destination = destination(&fence.scope)?;
    let owned = OwnedEpochs::read(tx, fence)?;
    let time = first(tx, include_str!("sql/settle_time.sql"), [destination], |c| {
        (c.string(0), c.flag(1))
    })?;
    let (now, mut has_waiting) = time.expect("a SELECT without FROM gives one row");
    let failed = |e| error::store(&e);
    let dispatch = include_str!("sql/mark_dispatched.sql");
    let mut dispatch = tx.prepare_cached(dispatch).map_err(failed)?;
    let mut left = LeftKeys::default();
    let mut settled = SettleOutcome::default();
    for row in rows {
        let OutboxSettlement { id, lane, epoch, fate } = row;
        let reached = match fate {
            OutboxFate::Untouched => continue,
            _ if !owned.holds(*lane, *epoch) => 0,
            OutboxFate::Dispatched => {
                dispatch.execute((id, destination, lane, &now)).map_err(failed)? as u64
            }
            fate => settle_failed(tx, &fence.worker, (*id, destination, *lane), fate)?,
        };
        if reached == 1 {
            attempt::record_outbox(tx, *id, fate, &fence.worker)?;
            let waits = matches!(fate, OutboxFate::Retry { .. } | OutboxFate::Wait { .. });
            if waits {
                back_off(tx, *id)?;
                has_waiting = true;
            } else if has_waiting {
                left.leave(tx, *id)?;
            }
        } else if *fate == OutboxFate::Dispatched {
            // Perhaps an operator failed the row meanwhile.
            change(tx, include_str!("sql/note_delivered.sql"), (id, &fence.worker))?;
        }
        tally(&mut settled, reached);
    }
    left.release(tx, RELEASED_ROWS)?;
    let copies = SettledCopies::Outbox(Some(destination));
    if adopted.concern(copies) {
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        adopt::write_back(tx, &adopted.all(), copies, &ids)?;
    }
    crate::fail_point!("settle_outbox.before_commit");
    Ok(settled)
}

/// Settles a row that was not delivered; returns the number of changed rows.
fn settle_failed(
    tx: &Transaction<'_>,
    worker: &str,
    (id, destination, lane): (i64, &str, i16),
    fate: &OutboxFate,
) -> Result<u64, StoreError> {
    let wait = |attempts: Option<u32>, pause: Duration, problem: &Problem, lost_workers: u32| {
        let Problem { code, message } = problem;
        let params = (id, destination, lane, attempts, millis(pause), code, message, lost_workers);
        change(tx, include_str!("sql/retry_outbox.sql"), params)
    };
    match fate {
        OutboxFate::Untouched | OutboxFate::Dispatched => Ok(0),
        // The row stays pending until its time comes; without attempts, none was used.
        OutboxFate::Retry { attempts, pause, problem } => wait(Some(*attempts), *pause, problem, 0),
        OutboxFate::Wait { pause, problem, lost_workers } => {
            wait(None, *pause, problem, *lost_workers)
        }
        OutboxFate::Dead { attempts, problem, park } => {
            let Problem { code, message } = problem;
            let params = (id, destination, lane, attempts, code, message);
            let failed = change(tx, include_str!("sql/fail_outbox.sql"), params)?;
            if failed == 1 {
                bury(tx, include_str!("sql/bury_outbox.sql"), id, worker, *park)?;
            }
            Ok(failed)
        }
    }
}

pub(super) fn destination(scope: &Scope) -> Result<&str, StoreError> {
    match scope {
        Scope::Outbox(destination) => Ok(destination),
        Scope::Inbox | Scope::NamedInbox(_) => {
            Err(StoreError::invalid("the inbox has no outbox rows; name a destination"))
        }
    }
}
