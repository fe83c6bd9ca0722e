//! Leases: who works on which share of the keys.
//!
//! Invariant: a lane's epoch rises at every change of owner and never otherwise; only the
//! database's clock ends a lease.

use std::{collections::BTreeMap, time::Duration};

use relais_core::{
    lane::{
        Fence, LaneGrant, LaneHandOver, LaneRelease, LaneRequest, LeaseRenewal, OwnedLane,
        ScopeAnnouncement, share,
    },
    store::{SettleOutcome, StoreError},
};
use rusqlite::Transaction;

use super::row::{all, change, first, json_array, limit, millis};

/// Renews the lease of a worker and announces its scopes; returns the term of the lease.
pub(super) fn renew(tx: &Transaction<'_>, renewal: &LeaseRenewal) -> Result<i64, StoreError> {
    let LeaseRenewal { worker, lease, announce } = renewal;
    let term = renew_row(tx, worker, *lease)?;
    if !announce.is_empty() {
        change(tx, include_str!("sql/forget_lanes.sql"), [])?;
        change(tx, include_str!("sql/forget_announcements.sql"), [])?;
        change(tx, include_str!("sql/forget_workers.sql"), [])?;
        for ScopeAnnouncement { scope, event_types } in announce {
            announce_scope(tx, worker, &scope.to_string(), event_types)?;
        }
        change(tx, include_str!("sql/count_move.sql"), [worker])?;
    }
    Ok(term)
}

fn renew_row(tx: &Transaction<'_>, worker: &str, lease: Duration) -> Result<i64, StoreError> {
    let renew = include_str!("sql/renew_lease.sql");
    let term = first(tx, renew, (worker, millis(lease)), |c| c.integer(0))?;
    Ok(term.unwrap_or_default())
}

/// Returns the number of changed announcements.
fn announce_scope(
    tx: &Transaction<'_>,
    worker: &str,
    scope: &str,
    event_types: &[String],
) -> Result<u64, StoreError> {
    let types = (!event_types.is_empty()).then(|| json_array(event_types));
    change(tx, include_str!("sql/announce.sql"), (worker, scope, types))
}

/// Renews the lease, takes free lanes of one scope up to the fair share, and returns the surplus.
pub(super) fn lease(tx: &Transaction<'_>, request: &LaneRequest) -> Result<LaneGrant, StoreError> {
    let LaneRequest { fence: Fence { scope, worker }, lease, event_types } = request;
    let (scope, lease_ms, known) = (scope.to_string(), millis(*lease), json_array(event_types));
    let term = renew_row(tx, worker, *lease)?;
    if announce_scope(tx, worker, &scope, event_types)? > 0 {
        change(tx, include_str!("sql/count_move.sql"), [worker])?;
    }
    change(tx, include_str!("sql/make_lanes.sql"), [&scope])?;
    change(tx, include_str!("sql/expire_missing.sql"), [&scope])?;
    let live = first(tx, include_str!("sql/live_workers.sql"), (&scope, lease_ms), |c| c.count(0))?;
    let share = share(usize::try_from(live.unwrap_or(1)).unwrap_or(usize::MAX));

    let owned = include_str!("sql/owned_lanes.sql");
    let mut lanes = all(tx, owned, (&scope, worker), |c| OwnedLane {
        lane: c.lane(0),
        epoch: c.integer(1),
        unclean: false,
    })?;
    let elsewhere = include_str!("sql/types_elsewhere.sql");
    let types_elsewhere = all(tx, elsewhere, (&scope, worker, &known), |c| c.string(0))?;
    let wanted = include_str!("sql/take_wanted_lanes.sql");
    let wanted = all(tx, wanted, (&scope, worker, &known), |c| OwnedLane {
        lane: c.lane(0),
        epoch: c.integer(1),
        unclean: c.flag(2),
    })?;
    let handed_over = wanted.iter().map(|lane| lane.lane).collect();
    lanes.extend(wanted);
    let lost = include_str!("sql/lost_workers.sql");
    let lost = all(tx, lost, (&scope, worker, lease_ms), |c| c.string(0))?;
    let wanted = limit(share.saturating_sub(lanes.len()));
    let free = include_str!("sql/free_lanes.sql");
    let left = (&scope, worker, wanted, json_array(&lost), json_array(&types_elsewhere));
    let free = all(tx, free, left, |c| (c.lane(0), c.flag(1)))?;
    let unclean: BTreeMap<i16, bool> = free.into_iter().collect();
    let which = json_array(&unclean.keys().collect::<Vec<_>>());
    let take = include_str!("sql/take_lanes.sql");
    lanes.extend(all(tx, take, (&scope, worker, which), |c| OwnedLane {
        lane: c.lane(0),
        epoch: c.integer(1),
        unclean: unclean.get(&c.lane(0)).copied().unwrap_or_default(),
    })?);
    let others = include_str!("sql/other_owners.sql");
    let others = all(tx, others, (&scope, worker), |c| c.flag(1) && c.integer(0) <= limit(share))?;
    crate::fail_point!("lease.before_commit");
    lanes.sort_unstable();
    let surplus = lanes.len().saturating_sub(share);
    let unsettled = lanes.len() < share && others.contains(&false);
    Ok(LaneGrant { term, unsettled, lanes, surplus, handed_over, types_elsewhere })
}

/// Gives lanes back; all of them if the worker leaves, and its share with them.
pub(super) fn release(
    tx: &Transaction<'_>,
    fence: &Fence,
    release: &LaneRelease,
) -> Result<(), StoreError> {
    let which = match release {
        LaneRelease::Lanes(lanes) => Some(json_array(lanes)),
        LaneRelease::HandOver(lanes) => return hand_over(tx, fence, lanes),
        LaneRelease::All => None,
    };
    let (scope, leaving) = (fence.scope.to_string(), which.is_none());
    change(tx, include_str!("sql/release_lanes.sql"), (&scope, &fence.worker, which))?;
    if leaving {
        change(tx, include_str!("sql/leave_scope.sql"), (&scope, &fence.worker))?;
        change(tx, include_str!("sql/count_move.sql"), [&fence.worker])?;
        change(tx, include_str!("sql/end_lease.sql"), [&fence.worker])?;
        crate::fail_point!("leave.before_commit");
    }
    Ok(())
}

/// Gives lanes back for workers that know an event type.
fn hand_over(
    tx: &Transaction<'_>,
    fence: &Fence,
    lanes: &[LaneHandOver],
) -> Result<(), StoreError> {
    let (scope, worker) = (fence.scope.to_string(), &fence.worker);
    for LaneHandOver { lane, event_type, unclean } in lanes {
        let params = (&scope, worker, lane, event_type, unclean);
        change(tx, include_str!("sql/hand_over_lanes.sql"), params)?;
    }
    change(tx, include_str!("sql/count_hand_over.sql"), [worker])?;
    Ok(())
}

/// The lanes of a scope that a worker owns, with their epochs: read in the transaction that changes their rows.
pub(super) struct OwnedEpochs(BTreeMap<i16, i64>);

impl OwnedEpochs {
    pub(super) fn read(tx: &Transaction<'_>, fence: &Fence) -> Result<Self, StoreError> {
        let params = (fence.scope.to_string(), &fence.worker);
        let lanes =
            all(tx, include_str!("sql/owned_lanes.sql"), params, |c| (c.lane(0), c.integer(1)))?;
        Ok(Self(lanes.into_iter().collect()))
    }

    pub(super) fn holds(&self, lane: i16, epoch: i64) -> bool {
        self.0.get(&lane) == Some(&epoch)
    }
}

/// Counts a row as settled, or as refused when no row was changed.
pub(super) fn tally(settled: &mut SettleOutcome, changed: u64) {
    if changed == 0 {
        settled.refused += 1;
    } else {
        settled.settled += 1;
    }
}
