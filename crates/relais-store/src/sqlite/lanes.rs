//! Leases: who works on which share of the keys.
//!
//! Invariant: a lane's epoch rises at every change of owner and never otherwise; only the
//! database's clock ends a lease.

use std::collections::BTreeMap;

use relais_core::{
    lane::{Fence, LaneGrant, LaneRequest, OwnedLane, share},
    store::{Settled, StoreError},
};
use rusqlite::Transaction;

use super::row::{all, change, first, json_array, limit, millis};

/// One heartbeat: renews, takes what is free up to the fair share, says what is too much.
pub(super) fn lease(tx: &Transaction<'_>, request: &LaneRequest) -> Result<LaneGrant, StoreError> {
    let LaneRequest { fence: Fence { scope, worker }, lease } = request;
    let (scope, lease_ms) = (scope.to_string(), millis(*lease));
    change(tx, include_str!("sql/forget_workers.sql"), [])?;
    change(tx, include_str!("sql/heartbeat.sql"), (&scope, worker, lease_ms))?;
    change(tx, include_str!("sql/make_lanes.sql"), [&scope])?;
    let live = first(tx, include_str!("sql/live_workers.sql"), (&scope, lease_ms), |c| c.count(0))?;
    let share = share(usize::try_from(live.unwrap_or(1)).unwrap_or(usize::MAX));

    let renew = include_str!("sql/renew_lanes.sql");
    let mut lanes = all(tx, renew, (&scope, worker, lease_ms), |c| OwnedLane {
        lane: c.lane(0),
        epoch: c.integer(1),
        unclean: false,
    })?;
    let wanted = limit(share.saturating_sub(lanes.len()));
    let free = include_str!("sql/free_lanes.sql");
    let free = all(tx, free, (&scope, worker, wanted, lease_ms), |c| (c.lane(0), c.flag(1)))?;
    let unclean: BTreeMap<i16, bool> = free.into_iter().collect();
    let which = json_array(&unclean.keys().collect::<Vec<_>>());
    let take = include_str!("sql/take_lanes.sql");
    lanes.extend(all(tx, take, (&scope, worker, lease_ms, which), |c| OwnedLane {
        lane: c.lane(0),
        epoch: c.integer(1),
        unclean: unclean.get(&c.lane(0)).copied().unwrap_or_default(),
    })?);
    crate::fail_point!("lease.before_commit");
    lanes.sort_unstable();
    let surplus = lanes.len().saturating_sub(share);
    Ok(LaneGrant { lanes, surplus })
}

/// Gives lanes back; leaving gives back all of them, and the share with them.
pub(super) fn release(
    tx: &Transaction<'_>,
    fence: &Fence,
    lanes: &[i16],
    leaving: bool,
) -> Result<(), StoreError> {
    let scope = fence.scope.to_string();
    let which = (!leaving).then(|| json_array(lanes));
    change(tx, include_str!("sql/release_lanes.sql"), (&scope, &fence.worker, which))?;
    if leaving {
        change(tx, include_str!("sql/leave_scope.sql"), (&scope, &fence.worker))?;
        crate::fail_point!("leave.before_commit");
    }
    Ok(())
}

/// Counts a row as settled, or as refused when no row was changed.
pub(super) fn tally(settled: &mut Settled, changed: u64) {
    if changed == 0 {
        settled.refused += 1;
    } else {
        settled.settled += 1;
    }
}
