//! The running workers of an [`App`](crate::App).
//!
//! Invariant: if a worker panics, [`RunningApp::failed`] resolves, so that the process can stop.

use std::{sync::Arc, time::Duration};

use relais_core::{
    inbox::InboxStatus,
    query::Overview,
    store::{Store, StoreDriver, StoreError},
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    control::{ControlReader, ControlledWorkers},
    health::{Health, HealthCheck},
    observe::Observer,
    pulse::{self, PollSignals},
    report,
    wake::Wakers,
    worker::{self, WakeUps, Worker},
};

/// Time that workers get to settle and to release their lanes after the limit of
/// [`RunningApp::stop_within`].
const RELEASE_TIME: Duration = Duration::from_secs(1);

/// The interval at which [`RunningApp::idle`] counts.
const IDLE_POLL: Duration = Duration::from_millis(20);

/// A worker panicked: a fault in relais, in a source or in a publisher. The other workers were stopped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WorkerPanicked(pub(crate) String);

/// The running workers of an app. Dropping it aborts them, as a crash would: use [`RunningApp::stop`].
/// After a drop, other processes take over its lanes only when its lease has expired, up to ten seconds later.
pub struct RunningApp {
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<()>,
    pub(crate) wakers: Arc<Wakers>,
    /// Raised when workers joined or left: the lanes are shared again.
    pub(crate) crowd: watch::Sender<u64>,
    /// The same for workers of the inbox, and when lanes were handed over for an event type.
    pub(crate) inbox: watch::Sender<u64>,
    pub(crate) observer: Arc<Observer>,
    /// Maximum time that workers wait at stop for what is in flight.
    pub(crate) patience: watch::Sender<Duration>,
    pub(crate) health: HealthCheck,
}

impl std::fmt::Debug for RunningApp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningApp").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

impl RunningApp {
    /// Returns an app without workers.
    pub(crate) fn new(store: &Arc<dyn StoreDriver>, observer: Arc<Observer>) -> Self {
        let health = HealthCheck { store: Arc::clone(store), observer: Arc::clone(&observer) };
        Self {
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            wakers: Wakers::new(),
            crowd: watch::Sender::new(0),
            inbox: watch::Sender::new(0),
            observer,
            patience: watch::Sender::new(Duration::MAX),
            health,
        }
    }

    /// Returns the counters of the workers.
    pub fn observer(&self) -> Arc<Observer> {
        Arc::clone(&self.observer)
    }

    /// Makes every worker poll at once, as after a commit made outside [`Outbox`](crate::Outbox).
    pub fn wake(&self) {
        self.wakers.wake_all();
    }

    /// Resolves with the message when a worker panicked: the process should stop then, because it does not
    /// do all of its work any more.
    pub async fn failed(&mut self) -> String {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(())) => {}
                Some(Err(error)) => return format!("a worker panicked: {error}"),
                None => std::future::pending().await,
            }
        }
    }

    /// Returns whether the workers can do their work, or why not: the answer of `/readyz`.
    pub async fn health(&self) -> Health {
        self.health.health().await
    }

    /// Returns a handle for [`RunningApp::health`] that can be stored elsewhere, e.g. in a web server.
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

    /// Waits until [`RunningApp::idle`], then stops: for programs that end by themselves.
    ///
    /// # Errors
    /// The database is unavailable. The workers are stopped then too.
    pub async fn stop_when_idle(self) -> Result<(), StoreError> {
        let idle = self.idle().await;
        self.stop().await;
        idle
    }

    /// Finishes what is in flight, settles it, and releases the lanes. Waits at most 30 s for a handler, and
    /// for a call to a destination as long as its time limit.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// [`RunningApp::stop`] with a limit; returns `true` if everything ended in time.
    ///
    /// Calls and handlers in flight get this long to finish. Then handlers are dropped, which rolls them
    /// back. The leases of lanes with rows still in flight expire: another worker takes them over after
    /// [`App::lease`]. One second after `limit` the rest is aborted, as a crash would.
    ///
    /// [`App::lease`]: crate::App::lease
    pub async fn stop_within(mut self, limit: Duration) -> bool {
        self.patience.send_replace(limit);
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let ended = tokio::time::timeout(limit + RELEASE_TIME, ended).await.is_ok();
        self.tasks.shutdown().await;
        ended
    }

    /// Returns a function that wakes the workers without a destination, for workers that write inbox rows.
    pub(crate) fn waker(&self) -> Box<dyn Fn() + Send + Sync> {
        let wakers = Arc::clone(&self.wakers);
        Box::new(move || wakers.wake_others())
    }

    /// Starts the loops that serve all workers: controls, reports and wake-ups.
    pub(crate) fn spawn_loops(
        &mut self,
        store: Arc<dyn Store>,
        controlled: ControlledWorkers,
        worker: String,
        poll_interval: Duration,
    ) {
        let (wakers, stop) = (Arc::clone(&self.wakers), self.stop.clone());
        let changed = Box::new(move || wakers.wake_all());
        let controls = ControlReader::new(Arc::clone(&store), controlled, changed);
        self.tasks.spawn(controls.run(stop.clone()));
        let (reports, observer) = (Arc::clone(&store), self.observer());
        self.tasks.spawn(report::run(reports, observer, worker, stop.clone()));
        let (crowd, inbox) = (self.crowd.clone(), self.inbox.clone());
        let signals = PollSignals { wakers: Arc::clone(&self.wakers), crowd, inbox };
        self.tasks.spawn(pulse::run(store, signals, poll_interval, stop));
    }

    /// Starts a worker without a destination.
    pub(crate) fn spawn(&mut self, name: String, worker: Box<dyn Worker>) {
        let patience = self.patience.subscribe();
        let wakes = WakeUps::new(self.wakers.subscribe());
        self.tasks.spawn(worker::run(name, worker, wakes, self.stop.clone(), patience));
    }

    /// Starts the worker of a destination, which reads only when it is woken.
    pub(crate) fn spawn_relay(&mut self, destination: &str, worker: Box<dyn Worker>) {
        let patience = self.patience.subscribe();
        let wakes = WakeUps::new(self.wakers.subscribe_to(destination));
        let name = format!("relay {destination}");
        self.tasks.spawn(worker::run(name, worker, wakes, self.stop.clone(), patience));
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
