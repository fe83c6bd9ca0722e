//! The workers of an [`App`](crate::App) while they work.
//!
//! Invariant: a worker that ended by a panic is noticed; nobody lingers half dead.

use std::sync::Arc;

use relais_core::store::Store;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    control::{self, Obedient},
    observe::Observer,
    pulse, report,
    worker::{self, Worker},
};

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
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

impl Running {
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

    /// Finishes what is under way, settles it, and hands the lanes over.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
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
        self.tasks.spawn(worker::run(name, worker, wake, stop));
    }
}
