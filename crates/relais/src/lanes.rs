//! The lanes of one scope that this worker owns: taken, shared and released when workers come or leave.
//!
//! Invariant: a lane is usable only while the lease of the worker is valid, in the term in which the lane was
//! granted ([`lease`](crate::lease)). The fence in the store has the last word.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use relais_core::{
    lane::{Fence, LaneRelease, LaneRequest, OwnedLane, Scope, ScopeAnnouncement},
    store::{Store, StoreError},
};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{
    handover::HandOvers,
    lease::{LeaseMember, WorkerLease},
    lock::lock,
    observe::Heartbeat,
    timing::{beat_interval, beat_retry},
};

pub(crate) struct LaneKeeper {
    fence: Fence,
    lease: Arc<WorkerLease>,
    renewal: Renewal,
    member: Mutex<Option<LeaseMember>>,
    state: Mutex<LaneState>,
    /// The event types that the worker knows and announces; `None`: it takes every row of its scope.
    known: Option<BTreeSet<String>>,
    /// Notified when the next beat should not wait: a draining lane is empty, or a lane may be lost.
    hurry: Notify,
    /// Notified when this worker got lanes, or has lanes to release.
    changed: Notify,
    heartbeat: Arc<Heartbeat>,
}

/// The side that renews the lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Renewal {
    /// The worker, for all its scopes.
    Worker,
    /// This scope: it has a lease of its own.
    Scope,
}

#[derive(Default)]
struct LaneState {
    owned: BTreeMap<i16, OwnedLane>,
    /// The term in which the lanes were granted; `None` while they cannot be used.
    term: Option<i64>,
    /// Other workers hold lanes that this one should get.
    unsettled: bool,
    /// To be released as soon as no row of theirs is in flight.
    draining: BTreeSet<i16>,
    /// Draining lanes without rows in flight.
    empty: BTreeSet<i16>,
    /// Taken over from a lost worker, not read yet.
    unclean: BTreeSet<i16>,
    handovers: HandOvers,
}

impl LaneKeeper {
    /// Returns the keeper of a scope with a lease of its own.
    #[cfg(test)]
    pub(crate) fn new(store: Arc<dyn Store>, fence: Fence, lease: Duration) -> Self {
        let lease = WorkerLease::new(store, fence.worker, lease);
        Self { renewal: Renewal::Scope, ..Self::under(lease, fence.scope) }
    }

    /// Returns the keeper of a scope under the lease of the worker.
    pub(crate) fn under(lease: Arc<WorkerLease>, scope: Scope) -> Self {
        Self {
            fence: Fence { scope, worker: lease.worker().to_owned() },
            lease,
            renewal: Renewal::Worker,
            member: Mutex::default(),
            state: Mutex::default(),
            known: None,
            hurry: Notify::new(),
            changed: Notify::new(),
            heartbeat: Arc::default(),
        }
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

    /// Returns the lanes that may be used and are not draining.
    pub(crate) fn usable(&self) -> Vec<OwnedLane> {
        let state = self.lock();
        if !self.is_valid(&state) {
            return Vec::new();
        }
        let open = state.owned.values().filter(|lane| !state.draining.contains(&lane.lane));
        open.copied().collect()
    }

    /// Treats all lanes as lost until the next beat, which comes at once: the fence refused a write, so a
    /// lane may have another owner.
    pub(crate) fn distrust(&self) {
        self.lock().term = None;
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

    /// Releases lanes, and asks for the lanes of the scope.
    pub(crate) async fn beat(&self) -> Result<(), StoreError> {
        let _turn = self.lease.turn().await?;
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
            self.store().release_lanes(self.fence.clone(), LaneRelease::Lanes(empty)).await?;
        }
        if !handed.is_empty() {
            self.store().release_lanes(self.fence.clone(), LaneRelease::HandOver(handed)).await?;
        }
        let (asked_at, lease) = (Instant::now(), self.lease.duration());
        let event_types = self.event_types();
        let request = LaneRequest { fence: self.fence.clone(), lease, event_types };
        let grant = self.store().lease_lanes(request).await?;
        crate::fail_point!("lanes.after_lease");
        let mut state = self.lock();
        let was_valid = self.is_valid(&state);
        self.lease.renewed(asked_at, grant.term);
        (state.term, state.unsettled) = (Some(grant.term), grant.unsettled);
        let surplus = state.handovers.learn(&grant, asked_at, lease);
        state.unclean.extend(grant.lanes.iter().filter(|l| l.unclean).map(|l| l.lane));
        let is_kept =
            |l: &&OwnedLane| state.owned.get(&l.lane).is_some_and(|before| before.epoch == l.epoch);
        let kept = grant.lanes.iter().filter(is_kept).count();
        let got_lanes = kept < grant.lanes.len() || !was_valid;
        self.heartbeat.beat(grant.lanes.len(), state.owned.len().saturating_sub(kept));
        state.owned = grant.lanes.into_iter().map(|lane| (lane.lane, lane)).collect();
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

    /// Starts a task that asks for lanes until `stop`: when `crowd` reports that a worker joined or left,
    /// after a new term of the lease, and at intervals while other workers hold lanes that this one should
    /// get.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        mut crowd: watch::Receiver<u64>,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        let keeper = Arc::clone(self);
        let mut terms = self.lease.terms();
        if self.renewal == Renewal::Worker {
            let (scope, event_types) = (self.fence.scope.clone(), self.event_types());
            let announcement = ScopeAnnouncement { scope, event_types };
            let member = self.lease.join(announcement, Arc::clone(&self.heartbeat));
            *lock(&self.member) = Some(member);
        }
        tokio::spawn(async move {
            if keeper.renewal == Renewal::Worker {
                // All scopes are announced before the first asks for lanes, so that other workers share the
                // lanes of all of them at once.
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = terms.wait_for(Option::is_some) => {}
                }
            }
            let mut troubled = false;
            while !stop.is_cancelled() {
                let pause = match keeper.beat().await {
                    // The answer took longer than the lease: ask again at once.
                    Ok(()) if !keeper.is_valid(&keeper.lock()) => continue,
                    Ok(()) if *terms.borrow_and_update() != keeper.lock().term => continue,
                    Ok(()) => {
                        troubled = false;
                        keeper.next_beat()
                    }
                    Err(error) => {
                        keeper.heartbeat.failed(&error.to_string());
                        if !std::mem::replace(&mut troubled, true) {
                            tracing::warn!(scope = %keeper.fence.scope, %error, "lanes were not leased");
                        }
                        Some(beat_retry(keeper.lease.duration()))
                    }
                };
                let paused = async {
                    match pause {
                        Some(pause) => sleep(pause).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    Ok(()) = crowd.changed() => {}
                    Ok(()) = terms.changed() => {}
                    () = keeper.hurry.notified() => {}
                    () = paused => {}
                }
            }
        })
    }

    /// Returns the pause before the scope asks again by itself; `None` if only an event makes it ask.
    fn next_beat(&self) -> Option<Duration> {
        let asks = self.renewal == Renewal::Scope || self.lock().unsettled;
        asks.then(|| beat_interval(self.lease.duration()))
    }

    fn is_valid(&self, state: &LaneState) -> bool {
        state.term.is_some_and(|term| self.lease.is_valid(term))
    }

    fn event_types(&self) -> Vec<String> {
        self.known.iter().flatten().cloned().collect()
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.lease.store()
    }

    /// Releases every lane without rows in flight; leaves the scope if those are all.
    pub(crate) async fn leave(&self, in_use: impl Fn(i16) -> bool) {
        let lanes: Vec<i16> = {
            let mut state = self.lock();
            state.term = None;
            let may_go = |lane: &i16| !in_use(*lane) && !state.unclean.contains(lane);
            state.owned.keys().copied().filter(may_go).collect()
        };
        let all = lanes.len() == self.owned();
        let release = if all { LaneRelease::All } else { LaneRelease::Lanes(lanes) };
        crate::fail_point!("lanes.before_release");
        if let Err(error) = self.store().release_lanes(self.fence.clone(), release).await {
            tracing::warn!(scope = %self.fence.scope, %error, "lanes were not released; the lease will expire");
        }
        if let Some(member) = lock(&self.member).take() {
            member.leave();
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
