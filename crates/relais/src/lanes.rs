//! The lanes that this worker owns: a heartbeat renews, takes and releases their leases.
//!
//! Invariant: a lane is usable only until its lease may have expired, measured from *before* the call
//! that renewed it. The fence in the store has the last word.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use relais_core::{
    lane::{Fence, LaneRelease, LaneRequest, OwnedLane},
    store::{Store, StoreError},
};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    handover::HandOvers,
    lock::lock,
    observe::Heartbeat,
    timing::{beat_interval, beat_retry},
};

pub(crate) struct LaneKeeper {
    store: Arc<dyn Store>,
    fence: Fence,
    lease: Duration,
    state: Mutex<LaneState>,
    /// The event types that the worker knows and announces; `None`: it takes every row of its scope.
    known: Option<BTreeSet<String>>,
    /// Notified when the next beat should not wait: a draining lane is empty, or a lane may be lost.
    hurry: Notify,
    /// Notified when this worker got lanes, or has lanes to release.
    changed: Notify,
    heartbeat: Arc<Heartbeat>,
}

#[derive(Default)]
struct LaneState {
    owned: BTreeMap<i16, OwnedLane>,
    valid_until: Option<Instant>,
    /// To be released as soon as no row of theirs is in flight.
    draining: BTreeSet<i16>,
    /// Draining lanes without rows in flight.
    empty: BTreeSet<i16>,
    /// Taken over from a lost worker, not read yet.
    unclean: BTreeSet<i16>,
    handovers: HandOvers,
}

impl LaneKeeper {
    pub(crate) fn new(store: Arc<dyn Store>, fence: Fence, lease: Duration) -> Self {
        let (state, heartbeat) = (Mutex::default(), Arc::default());
        let (hurry, changed) = (Notify::new(), Notify::new());
        Self { store, fence, lease, state, known: None, hurry, changed, heartbeat }
    }

    /// Announces these event types too, and is handed lanes for them.
    pub(crate) fn knowing(mut self, event_types: impl IntoIterator<Item = String>) -> Self {
        self.known.get_or_insert_default().extend(event_types);
        self
    }

    /// Returns whether the worker can handle rows of this type. A row without a type is not handed over.
    pub(crate) fn knows(&self, event_type: Option<&str>) -> bool {
        match (&self.known, event_type) {
            (Some(known), Some(event_type)) => known.contains(event_type),
            _ => true,
        }
    }

    /// Plans to give the lane to a live worker that knows the type, once no row of it is in flight; returns
    /// `false` if there is none.
    pub(crate) fn hand_over(&self, lane: i16, event_type: &str) -> bool {
        self.lock().handovers.plan(lane, event_type)
    }

    /// Makes the next owner of the lane quarantine its first rows.
    pub(crate) fn pass_on_unclean(&self, lane: i16) {
        self.lock().handovers.pass_on_unclean(lane);
    }

    /// Returns the lanes that may be read, without those to hand over.
    pub(crate) fn readable(&self, lanes: Vec<OwnedLane>) -> Vec<OwnedLane> {
        self.lock().handovers.readable(lanes)
    }

    /// Resolves when this worker got lanes, or has lanes to release. Safe to drop.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Reports its beats to `heartbeat`.
    pub(crate) fn report_to(mut self, heartbeat: Arc<Heartbeat>) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Returns the lanes whose lease is valid and that are not draining.
    pub(crate) fn usable(&self) -> Vec<OwnedLane> {
        let state = self.lock();
        if state.valid_until.is_none_or(|until| Instant::now() >= until) {
            return Vec::new();
        }
        let open = state.owned.values().filter(|lane| !state.draining.contains(&lane.lane));
        open.copied().collect()
    }

    /// Treats all leases as lost until the next beat, which comes at once: the fence refused a write, so a
    /// lane may have another owner.
    pub(crate) fn distrust(&self) {
        self.lock().valid_until = None;
        self.hurry.notify_one();
    }

    /// Returns whether one of the lanes is unclean and was not read yet.
    pub(crate) fn has_unclean(&self, lanes: &[OwnedLane]) -> bool {
        let state = self.lock();
        lanes.iter().any(|lane| state.unclean.contains(&lane.lane))
    }

    /// Removes and returns the unclean lanes among these.
    pub(crate) fn take_unclean(&self, lanes: &[OwnedLane]) -> BTreeSet<i16> {
        let mut state = self.lock();
        lanes.iter().map(|lane| lane.lane).filter(|lane| state.unclean.remove(lane)).collect()
    }

    /// Reports which draining lanes have no row in flight; the next beat releases them.
    pub(crate) fn report_empty(&self, is_empty: impl Fn(i16) -> bool) {
        let mut state = self.lock();
        // An unclean lane that was not read yet must not be released as clean.
        let clean = state.draining.difference(&state.unclean).copied();
        let empty: Vec<_> = clean.filter(|lane| is_empty(*lane)).collect();
        if !empty.is_empty() {
            state.empty.extend(empty);
            self.hurry.notify_one();
        }
    }

    /// Reports which lanes to hand over have no row in flight; the next beat hands them over.
    pub(crate) fn report_left(&self, is_empty: impl Fn(i16) -> bool) {
        let mut state = self.lock();
        let LaneState { handovers, draining, empty, .. } = &mut *state;
        let leaving = handovers.leaving().filter(|lane| !draining.contains(lane));
        let left: Vec<i16> = leaving.filter(|lane| is_empty(*lane)).collect();
        if !left.is_empty() {
            empty.extend(left);
            self.hurry.notify_one();
        }
    }

    pub(crate) fn owned(&self) -> usize {
        self.lock().owned.len()
    }

    /// Sends one heartbeat.
    pub(crate) async fn beat(&self) -> Result<(), StoreError> {
        let (empty, handed) = {
            let mut state = self.lock();
            let mut empty = std::mem::take(&mut state.empty);
            for lane in &empty {
                state.draining.remove(lane);
                state.owned.remove(lane);
            }
            let handed = state.handovers.take(&mut empty);
            (empty.into_iter().collect::<Vec<i16>>(), handed)
        };
        if !empty.is_empty() {
            self.store.release_lanes(self.fence.clone(), LaneRelease::Lanes(empty)).await?;
        }
        if !handed.is_empty() {
            self.store.release_lanes(self.fence.clone(), LaneRelease::HandOver(handed)).await?;
        }
        let asked_at = Instant::now();
        let event_types = self.known.iter().flatten().cloned().collect();
        let request = LaneRequest { fence: self.fence.clone(), lease: self.lease, event_types };
        let grant = self.store.lease_lanes(request).await?;
        crate::fail_point!("lanes.after_lease");
        let mut state = self.lock();
        let was_valid = state.valid_until.is_some_and(|until| Instant::now() < until);
        let surplus = state.handovers.learn(&grant, asked_at, self.lease);
        state.unclean.extend(grant.lanes.iter().filter(|l| l.unclean).map(|l| l.lane));
        let is_kept =
            |l: &&OwnedLane| state.owned.get(&l.lane).is_some_and(|before| before.epoch == l.epoch);
        let kept = grant.lanes.iter().filter(is_kept).count();
        let got_lanes = kept < grant.lanes.len() || !was_valid;
        self.heartbeat.beat(grant.lanes.len(), state.owned.len().saturating_sub(kept));
        state.owned = grant.lanes.into_iter().map(|lane| (lane.lane, lane)).collect();
        state.valid_until = Some(asked_at + self.lease);
        let LaneState { owned, draining, unclean, handovers, .. } = &mut *state;
        draining.retain(|lane| owned.contains_key(lane));
        while draining.len() > surplus {
            draining.pop_last();
        }
        // A draining lane is not read, so an unclean lane cannot drain before its first read: it would
        // neither be read nor released.
        let may_go = |lane: &&i16| {
            !draining.contains(lane) && !unclean.contains(lane) && handovers.may_go(**lane)
        };
        let more = owned.keys().rev().filter(may_go).take(surplus - draining.len());
        let more: Vec<i16> = more.copied().collect();
        if got_lanes || !more.is_empty() {
            self.changed.notify_one();
        }
        draining.extend(more);
        Ok(())
    }

    /// Starts a task that beats until `stop`, so that slow work cannot delay it. It also beats when `crowd`
    /// reports that a worker joined or left.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        mut crowd: watch::Receiver<u64>,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        let keeper = Arc::clone(self);
        tokio::spawn(async move {
            let mut troubled = false;
            while !stop.is_cancelled() {
                let pause = match keeper.beat().await {
                    // The answer took longer than the lease: ask again at once.
                    Ok(()) if keeper.is_stale() => continue,
                    Ok(()) => {
                        troubled = false;
                        beat_interval(keeper.lease)
                    }
                    Err(error) => {
                        keeper.heartbeat.failed(&error.to_string());
                        if !std::mem::replace(&mut troubled, true) {
                            tracing::warn!(scope = %keeper.fence.scope, %error, "heartbeat failed");
                        }
                        beat_retry(keeper.lease)
                    }
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    Ok(()) = crowd.changed() => {}
                    _ = timeout(pause, keeper.hurry.notified()) => {}
                }
            }
        })
    }

    fn is_stale(&self) -> bool {
        self.lock().valid_until.is_none_or(|until| Instant::now() >= until)
    }

    /// Releases every lane without rows in flight; leaves the scope if those are all.
    pub(crate) async fn leave(&self, in_use: impl Fn(i16) -> bool) {
        let lanes: Vec<i16> = {
            let mut state = self.lock();
            state.valid_until = None;
            let may_go = |lane: &i16| !in_use(*lane) && !state.unclean.contains(lane);
            state.owned.keys().copied().filter(may_go).collect()
        };
        let all = lanes.len() == self.owned();
        let release = if all { LaneRelease::All } else { LaneRelease::Lanes(lanes) };
        crate::fail_point!("lanes.before_release");
        if let Err(error) = self.store.release_lanes(self.fence.clone(), release).await {
            tracing::warn!(scope = %self.fence.scope, %error, "lanes were not released; their leases will expire");
        }
    }

    fn lock(&self) -> MutexGuard<'_, LaneState> {
        lock(&self.state)
    }
}

/// Returns the epochs by lane.
pub(crate) fn epochs(lanes: &[OwnedLane]) -> HashMap<i16, i64> {
    lanes.iter().map(|lane| (lane.lane, lane.epoch)).collect()
}
