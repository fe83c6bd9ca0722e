//! Polls for rows of other processes, once for all workers of an app, and wakes those that have work.
//!
//! Never by NOTIFY inside a user's transaction: that would serialise all commits of the cluster.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::store::{Changes, Store, StoreError, WorkQuery};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    arrivals::{ARRIVALS_MAX, UnseenIds, WokenDestinations},
    wake::Wakers,
};

/// The interval of polls while rows of other processes arrive, …
const BUSY_POLL_EVERY: Duration = Duration::from_millis(4);
const BUSY_FOR: Duration = Duration::from_millis(100);
/// … for a while after the last row, …
const POLL_EVERY: Duration = Duration::from_millis(14);
/// … and after a quiet time: each poll costs both sides a round trip.
const QUIET_POLL_EVERY: Duration = Duration::from_millis(40);
const QUIET_AFTER: Duration = Duration::from_secs(3);
/// The interval after a poll that failed.
const FAILED_POLL_EVERY: Duration = Duration::from_millis(500);
/// The interval of searches for due rows: retries, delayed rows, and rows that became visible late.
const SEARCH_EVERY: Duration = Duration::from_millis(800);

/// The signals of the polls.
pub(crate) struct PollSignals {
    pub(crate) wakers: Arc<Wakers>,
    /// Raised when workers join or leave.
    pub(crate) crowd: watch::Sender<u64>,
    /// Raised as `crowd`, and when lanes were handed over.
    pub(crate) inbox: watch::Sender<u64>,
}

/// Polls until `stop`, with at least this pause between two polls.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    signals: PollSignals,
    shortest: Duration,
    stop: CancellationToken,
) {
    let mut poller = Poller {
        store,
        signals,
        last: None,
        unseen: UnseenIds::default(),
        moved: Instant::now(),
        arrived: None,
        searched: Instant::now(),
    };
    loop {
        let pause = match poller.poll().await {
            Ok(()) => poller.pause().max(shortest),
            Err(_) => FAILED_POLL_EVERY,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
    }
}

struct Poller {
    store: Arc<dyn Store>,
    signals: PollSignals,
    last: Option<Changes>,
    unseen: UnseenIds,
    /// The time of the last change of rows.
    moved: Instant,
    /// The time at which the last row was found that no send of this process had announced.
    arrived: Option<Instant>,
    searched: Instant,
}

impl Poller {
    async fn poll(&mut self) -> Result<(), StoreError> {
        let now = self.store.changes().await?;
        let before = self.last.replace(now);
        if before.map(|changes| changes.rows) != Some(now.rows) {
            self.moved = Instant::now();
            self.signals.wakers.wake_others();
        }
        if before.map(|changes| changes.decisions) != Some(now.decisions) {
            self.signals.wakers.wake_destinations();
        }
        if before.map(|changes| changes.outbox) != Some(now.outbox) {
            self.moved = Instant::now();
        }
        // The first answer counts as a change: a worker may have left before it.
        let crowded = before.map(|changes| changes.workers) != Some(now.workers);
        if crowded {
            self.signals.crowd.send_modify(|n| *n = n.wrapping_add(1));
        }
        if crowded || before.map(|changes| changes.handed_over) != Some(now.handed_over) {
            self.signals.inbox.send_modify(|n| *n = n.wrapping_add(1));
        }
        self.find_work(now.outbox).await
    }

    /// Wakes the destinations of rows that have become visible, and at times those that may have due rows.
    async fn find_work(&mut self, drawn: i64) -> Result<(), StoreError> {
        let new_ids = self.unseen.ranges(drawn, Instant::now()).unwrap_or_else(|| {
            self.signals.wakers.wake_destinations();
            Vec::new()
        });
        let destinations = self.destinations_to_search();
        if new_ids.is_empty() && destinations.is_empty() {
            return Ok(());
        }
        let query = WorkQuery { new_ids, rows_max: ARRIVALS_MAX, destinations };
        let work = self.store.find_work(query).await?;
        for name in work.destinations {
            self.signals.wakers.wake(&name);
        }
        match self.unseen.learn(work.arrivals) {
            WokenDestinations::All => self.signals.wakers.wake_destinations(),
            WokenDestinations::Named(names) => {
                let woken = names.iter().filter(|name| self.signals.wakers.wake(name)).count();
                if woken > 0 {
                    self.arrived = Some(Instant::now());
                }
            }
        }
        Ok(())
    }

    /// Returns all destinations if it is time for a search, else none.
    fn destinations_to_search(&mut self) -> Vec<String> {
        if self.searched.elapsed() < SEARCH_EVERY {
            return Vec::new();
        }
        self.searched = Instant::now();
        self.signals.wakers.destinations()
    }

    fn pause(&self) -> Duration {
        if self.arrived.is_some_and(|at| at.elapsed() < BUSY_FOR) {
            BUSY_POLL_EVERY
        } else if self.moved.elapsed() < QUIET_AFTER || self.unseen.has_gaps() {
            POLL_EVERY
        } else {
            QUIET_POLL_EVERY
        }
    }
}
