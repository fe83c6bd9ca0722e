//! Rows that may have killed their worker: losses are noted before the work and forgiven in time.

use relais_core::{
    lane::{Fence, OwnedLane, Scope},
    quarantine::{CLEARED, HOLD_AFTER, HOLD_FOR},
    store::{SettleOutcome, StoreError},
};
use rusqlite::Transaction;

use super::{
    lanes::tally,
    row::{all, change, lane_bits, millis},
    waiting,
};

pub(super) fn note(
    tx: &Transaction<'_>,
    fence: &Fence,
    rows: &[(i64, OwnedLane)],
) -> Result<SettleOutcome, StoreError> {
    let (scope, worker) = (fence.scope.to_string(), &fence.worker);
    let mut settled = SettleOutcome::default();
    for (id, lane) in rows {
        let noted = match &fence.scope {
            Scope::Inbox | Scope::NamedInbox(_) => {
                let sql = include_str!("sql/mark_inbox_in_flight.sql");
                change(tx, sql, (id, &scope, worker, lane.epoch))?
            }
            Scope::Outbox(destination) => {
                let sql = include_str!("sql/mark_outbox_in_flight.sql");
                change(tx, sql, (id, &scope, worker, lane.epoch, destination))?
            }
        };
        tally(&mut settled, noted);
    }
    Ok(settled)
}

pub(super) fn end(
    tx: &Transaction<'_>,
    fence: &Fence,
    lanes: &[OwnedLane],
) -> Result<SettleOutcome, StoreError> {
    let (scope, worker, lanes) = (fence.scope.to_string(), &fence.worker, lane_bits(lanes));
    let settled = match &fence.scope {
        Scope::Inbox | Scope::NamedInbox(_) => {
            let sql = include_str!("sql/end_inbox_quarantine.sql");
            let inbox = fence.scope.inbox().unwrap_or_default();
            change(tx, sql, (scope, worker, lanes, HOLD_AFTER, CLEARED, inbox))?
        }
        Scope::Outbox(destination) => {
            let sql = include_str!("sql/end_outbox_quarantine.sql");
            let hold_ms = millis(HOLD_FOR);
            let params = (scope, worker, destination, lanes, HOLD_AFTER, CLEARED, hold_ms);
            let freed = all(tx, sql, params, |c| c.integer(0))?;
            freed.iter().try_for_each(|id| waiting::enter(tx, *id))?;
            freed.len() as u64
        }
    };
    Ok(SettleOutcome { settled, ..SettleOutcome::default() })
}
