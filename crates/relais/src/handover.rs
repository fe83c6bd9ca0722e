//! Hand-overs of lanes because of event types: lanes that this worker gives to workers that know more
//! types, and lanes that it got.
//!
//! Invariant: a lane is handed over only for a type that a live worker announced at the last heartbeat,
//! and only when this worker holds no row of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use relais_core::lane::{LaneGrant, LaneHandOver, OwnedLane};

/// Leases for which a lane that was handed over to this worker is not released as surplus: the next owner
/// may not know the types of its rows.
const KEPT_LEASES: u32 = 6;

#[derive(Debug, Default)]
pub(crate) struct HandOvers {
    /// Lanes that are not read any more and are handed over once no row of them is in flight.
    leaving: BTreeMap<i16, String>,
    /// Lanes of lost workers with rows that were not quarantined: this worker cannot handle them.
    unclean: BTreeSet<i16>,
    /// Lanes that were handed over to this worker, with the time until which they stay.
    kept: BTreeMap<i16, Instant>,
    /// Event types that other live workers know and this one does not.
    elsewhere: BTreeSet<String>,
}

impl HandOvers {
    /// Plans to give a lane to a worker that knows the type; returns `false` if no live worker does.
    pub(crate) fn plan(&mut self, lane: i16, event_type: &str) -> bool {
        let known = self.elsewhere.contains(event_type);
        if known {
            self.leaving.entry(lane).or_insert_with(|| event_type.to_owned());
        }
        known
    }

    /// Makes the next owner of the lane quarantine its first rows.
    pub(crate) fn pass_on_unclean(&mut self, lane: i16) {
        self.unclean.insert(lane);
    }

    /// Returns the lanes that are still read.
    pub(crate) fn readable(&self, mut lanes: Vec<OwnedLane>) -> Vec<OwnedLane> {
        lanes.retain(|lane| !self.leaving.contains_key(&lane.lane));
        lanes
    }

    /// Returns the lanes to hand over.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = i16> + '_ {
        self.leaving.keys().copied()
    }

    /// Removes the lanes to hand over from `lanes` and returns them; the others are released.
    pub(crate) fn take(&mut self, lanes: &mut BTreeSet<i16>) -> Vec<LaneHandOver> {
        let mut taken = Vec::new();
        lanes.retain(|lane| match self.leaving.remove(lane) {
            None => true,
            Some(event_type) => {
                let unclean = self.unclean.remove(lane);
                taken.push(LaneHandOver { lane: *lane, event_type, unclean });
                false
            }
        });
        taken
    }

    /// Learns from a heartbeat, and returns how many lanes are surplus: lanes that were handed over to
    /// this worker do not count for a while.
    pub(crate) fn learn(&mut self, grant: &LaneGrant, now: Instant, lease: Duration) -> usize {
        let owned: BTreeSet<i16> = grant.lanes.iter().map(|lane| lane.lane).collect();
        self.leaving.retain(|lane, _| owned.contains(lane));
        self.unclean.retain(|lane| owned.contains(lane));
        let until = now + lease.saturating_mul(KEPT_LEASES).min(Duration::from_secs(3_600));
        self.kept.extend(grant.handed_over.iter().map(|lane| (*lane, until)));
        self.kept.retain(|lane, until| owned.contains(lane) && *until > now);
        self.elsewhere = grant.types_elsewhere.iter().cloned().collect();
        grant.surplus.saturating_sub(self.kept.len())
    }

    /// Returns whether the lane may be released as surplus.
    pub(crate) fn may_go(&self, lane: i16) -> bool {
        !self.leaving.contains_key(&lane) && !self.kept.contains_key(&lane)
    }
}
