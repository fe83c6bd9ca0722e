//! The workers of an [`App`](crate::App) while they work.
//!
//! Invariant: a worker that ended by a panic is noticed; nobody lingers half dead.

use std::{sync::Arc, time::Duration};

use relais_core::{
    inbox::InboxStatus,
    query::Overview,
    store::{Store, StoreError},
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    control::{self, Obedient},
    health::{Health, HealthCheck},
    observe::Observer,
    pulse, report,
    worker::{self, Worker},
};

/// How long workers may take to settle and to hand over their lanes after the limit of
/// [`Running::stop_within`].
const HAND_OVER_TIME: Duration = Duration::from_secs(1);

/// How often [`Running::idle`] counts.
const IDLE_POLL: Duration = Duration::from_millis(20);

/// A worker ended by a panic: a fault in relais or in a source or publisher. The others were stopped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WorkerPanicked(pub(crate) String);

/// The workers at work. Dropping it aborts them, as a crash would: use [`Running::stop`].
pub struct Running {
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<()>,
    pub(crate) wake: watch::Sender<u64>,
    /// Raised when workers came or left: time to share the lanes anew.
    pub(crate) crowd: watch::Sender<u64>,
    /// The same for workers of the inbox, and when lanes were handed over for an event type.
    pub(crate) inbox: watch::Sender<u64>,
    pub(crate) observer: Arc<Observer>,
    /// How long workers wait at stop for what is in flight, at most.
    pub(crate) patience: watch::Sender<Duration>,
    pub(crate) health: HealthCheck,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

impl Running {
    /// Without a worker yet.
    pub(crate) fn new(store: &Arc<dyn Store>, observer: Arc<Observer>) -> Self {
        let health = HealthCheck { store: Arc::clone(store), observer: Arc::clone(&observer) };
        Self {
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            wake: watch::Sender::new(0),
            crowd: watch::Sender::new(0),
            inbox: watch::Sender::new(0),
            observer,
            patience: watch::Sender::new(Duration::MAX),
            health,
        }
    }

    /// What the workers count.
    pub fn observer(&self) -> Arc<Observer> {
        Arc::clone(&self.observer)
    }

    /// Makes every worker look for work at once, as after a commit made outside [`Outbox`](crate::Outbox).
    pub fn wake(&self) {
        self.wake.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Resolves when a worker ended by a panic, with its message: the process should end too, so
    /// that it cannot linger half dead.
    pub async fn failed(&mut self) -> String {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(())) => {}
                Some(Err(error)) => return format!("a worker panicked: {error}"),
                None => std::future::pending().await,
            }
        }
    }

    /// Reports whether the workers can do their work, or why not: what `/readyz` answers.
    pub async fn health(&self) -> Health {
        self.health.health().await
    }

    /// Returns what [`Running::health`] asks, to be kept elsewhere: in the state of a web server.
    pub fn health_check(&self) -> HealthCheck {
        self.health.clone()
    }

    /// Waits until no stored message has to be handled or delivered. Rows behind a parked key and
    /// undecodable rows do not count; a retry in its backoff and a delayed message do.
    ///
    /// For tests and programs that end by themselves: it counts all open rows, 50 times a second.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn idle(&self) -> Result<(), StoreError> {
        while !is_idle(&self.health.store.overview().await?) {
            tokio::time::sleep(IDLE_POLL).await;
        }
        Ok(())
    }

    /// Finishes what is in flight, settles it, and hands the lanes over. A handler that hangs is waited for
    /// 30 s, a call to a destination as long as its time limit.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// [`Running::stop`] with a limit; returns `true` if everything ended in time.
    ///
    /// What is in flight gets this long to finish. Then handlers are dropped, which rolls them back, and the
    /// lanes of what was still in flight expire: another worker takes them over after [`App::lease`]. A
    /// little later than `limit` the rest is aborted, as a crash would.
    ///
    /// [`App::lease`]: crate::App::lease
    pub async fn stop_within(mut self, limit: Duration) -> bool {
        self.patience.send_replace(limit);
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let ended = tokio::time::timeout(limit + HAND_OVER_TIME, ended).await.is_ok();
        self.tasks.shutdown().await;
        ended
    }

    /// What [`Running::wake`] does, for a worker that has brought others something to do.
    pub(crate) fn waker(&self) -> Box<dyn Fn() + Send + Sync> {
        let wake = self.wake.clone();
        Box::new(move || wake.send_modify(|n| *n = n.wrapping_add(1)))
    }

    /// Starts what serves all workers: controls, reports, and what wakes them.
    pub(crate) fn spawn_loops(
        &mut self,
        store: Arc<dyn Store>,
        obedient: Obedient,
        worker: String,
    ) {
        let (wake, crowd) = (self.wake.clone(), self.crowd.clone());
        let (inbox, stop) = (self.inbox.clone(), self.stop.clone());
        let (controls, obeyed) = (Arc::clone(&store), self.waker());
        self.tasks.spawn(control::run(controls, obedient, obeyed, stop.clone()));
        let (reports, observer) = (Arc::clone(&store), self.observer());
        self.tasks.spawn(report::run(reports, observer, worker, stop.clone()));
        self.tasks.spawn(pulse::run(store, wake, crowd, inbox, stop));
    }

    pub(crate) fn spawn(&mut self, name: String, worker: Box<dyn Worker>) {
        let (wake, stop) = (self.wake.subscribe(), self.stop.clone());
        let patience = self.patience.subscribe();
        self.tasks.spawn(worker::run(name, worker, wake, stop, patience));
    }
}

/// Returns whether every open row waits behind a parked key, and no timer is due.
fn is_idle(overview: &Overview) -> bool {
    let open = |name: &str| InboxStatus::parse(name).is_some_and(InboxStatus::is_open);
    let counts = overview.inbox.iter().filter(|count| open(&count.name));
    let inbox: u64 = counts.map(|count| count.rows).sum();
    let is_delivered = overview.backlogs.iter().all(|backlog| backlog.pending <= backlog.parked);
    inbox <= overview.inbox_parked && is_delivered && overview.timers_due == 0
}
