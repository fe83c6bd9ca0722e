//! The lease of this worker: one heartbeat for its lanes in all scopes.
//!
//! Invariant: lanes are usable only until the lease may have expired, measured from *before* the call that
//! renewed it, and only in the term in which they were granted. A new term means that the lease had expired:
//! then each scope asks for its lanes again before it uses them.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use relais_core::{
    lane::{LeaseRenewal, ScopeAnnouncement},
    store::{Store, StoreError},
};
use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{
    lock::lock,
    observe::Heartbeat,
    timing::{beat_interval, beat_retry},
};

/// Scopes of one worker that ask for lanes at once: the heartbeat must not wait behind a thousand of them.
const SCOPES_AT_ONCE: usize = 2;

pub(crate) struct WorkerLease {
    store: Arc<dyn Store>,
    worker: String,
    lease: Duration,
    state: Mutex<LeaseState>,
    /// The term in which lanes may be used; `None` before the first renewal.
    term: watch::Sender<Option<i64>>,
    members: watch::Sender<MemberCount>,
    turns: Semaphore,
}

#[derive(Default)]
struct LeaseState {
    valid_until: Option<Instant>,
    announcements: Vec<ScopeAnnouncement>,
    heartbeats: Vec<Arc<Heartbeat>>,
}

#[derive(Clone, Copy, Default)]
struct MemberCount {
    scopes: usize,
    /// A scope ended without releasing its lanes: only their expiry frees them.
    lost: bool,
}

impl WorkerLease {
    pub(crate) fn new(store: Arc<dyn Store>, worker: String, lease: Duration) -> Arc<Self> {
        Arc::new(Self {
            store,
            worker,
            lease,
            state: Mutex::default(),
            term: watch::Sender::new(None),
            members: watch::Sender::default(),
            turns: Semaphore::new(SCOPES_AT_ONCE),
        })
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn worker(&self) -> &str {
        &self.worker
    }

    /// Returns how long the lease is valid after a renewal.
    pub(crate) fn duration(&self) -> Duration {
        self.lease
    }

    /// Adds a scope; its lanes are covered until the member leaves.
    pub(crate) fn join(
        self: &Arc<Self>,
        announcement: ScopeAnnouncement,
        heartbeat: Arc<Heartbeat>,
    ) -> LeaseMember {
        let mut state = self.lock();
        state.announcements.push(announcement);
        state.heartbeats.push(heartbeat);
        self.members.send_modify(|members| members.scopes += 1);
        LeaseMember { lease: Arc::clone(self), has_left: false }
    }

    /// Returns whether a scope needs the lease.
    pub(crate) fn is_used(&self) -> bool {
        self.members.borrow().scopes > 0
    }

    /// Returns whether lanes that were granted in this term may be used now.
    pub(crate) fn is_valid(&self, term: i64) -> bool {
        *self.term.borrow() == Some(term)
            && self.lock().valid_until.is_some_and(|until| Instant::now() < until)
    }

    /// Takes the answer to a renewal that was asked for at `asked_at`. Answers may come out of order; terms
    /// only rise.
    pub(crate) fn renewed(&self, asked_at: Instant, term: i64) {
        let mut state = self.lock();
        self.term.send_if_modified(|current| {
            let is_new = current.is_none_or(|current| term > current);
            if is_new {
                *current = Some(term);
                state.valid_until = None;
            }
            is_new
        });
        if *self.term.borrow() == Some(term) {
            state.valid_until = state.valid_until.max(asked_at.checked_add(self.lease));
        }
    }

    /// Returns the current term, and a signal of new ones.
    pub(crate) fn terms(&self) -> watch::Receiver<Option<i64>> {
        self.term.subscribe()
    }

    /// Waits until this scope may ask for lanes.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        if self.members.borrow().lost {
            return Err(StoreError::unavailable("a worker of this process was lost"));
        }
        self.turns.acquire().await.map_err(|_| StoreError::unavailable("the lease has ended"))
    }

    /// Renews the lease until `stop` and until every scope has left.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut announced, mut troubled) = (None, false);
        loop {
            let asked_at = Instant::now();
            let announce = if announced.is_some() && announced == *self.term.borrow() {
                Vec::new()
            } else {
                self.lock().announcements.clone()
            };
            let is_announced = !announce.is_empty();
            let (worker, lease) = (self.worker.clone(), self.lease);
            let renewal = LeaseRenewal { worker, lease, announce };
            let pause = match self.store.renew_lease(renewal).await {
                Ok(term) => {
                    troubled = false;
                    if is_announced {
                        announced = Some(term);
                    }
                    self.renewed(asked_at, term);
                    self.lock().heartbeats.iter().for_each(|heartbeat| heartbeat.renewed());
                    // After an expiry the announcements may have been forgotten.
                    if announced == Some(term) { beat_interval(lease) } else { Duration::ZERO }
                }
                Err(error) => {
                    let heartbeats = self.lock().heartbeats.clone();
                    heartbeats.iter().for_each(|heartbeat| heartbeat.failed(&error.to_string()));
                    if !std::mem::replace(&mut troubled, true) {
                        tracing::warn!(%error, "heartbeat failed");
                    }
                    beat_retry(lease)
                }
            };
            tokio::select! {
                () = self.ended(&stop) => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// Resolves when the lease need not be renewed any more.
    async fn ended(&self, stop: &CancellationToken) {
        let mut members = self.members.subscribe();
        tokio::select! {
            _ = members.wait_for(|members| members.lost) => {
                tracing::error!("a worker ended without releasing its lanes; the lease will expire");
            }
            () = async {
                stop.cancelled().await;
                let mut members = self.members.subscribe();
                _ = members.wait_for(|members| members.scopes == 0).await;
            } => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, LeaseState> {
        lock(&self.state)
    }
}

/// One scope under a lease. If it is dropped without leaving, its rows may be in flight: the lease is not
/// renewed any more, so that other workers take the lanes over as those of a lost worker.
pub(crate) struct LeaseMember {
    lease: Arc<WorkerLease>,
    has_left: bool,
}

impl LeaseMember {
    /// Ends the membership: the lanes were released, or expire with the lease.
    pub(crate) fn leave(mut self) {
        self.has_left = true;
    }
}

impl Drop for LeaseMember {
    fn drop(&mut self) {
        let has_left = self.has_left;
        self.lease.members.send_modify(|members| {
            members.scopes = members.scopes.saturating_sub(1);
            members.lost |= !has_left;
        });
    }
}
