//! Wake-ups of workers: a destination's worker is woken for its own rows only.
//!
//! Invariant: a wake-up is never lost, and never needed for correctness: workers also read when a search
//! for due rows, once a second, finds some of theirs.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, RwLock, RwLockReadGuard, Weak},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use crate::lock::{read, write};

/// While a worker reads repeatedly after a send, its rows need no other wake-up.
const SENT_FOR: Duration = Duration::from_millis(16);

/// The wake-ups of one worker so far. A worker compares it with what it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WakeCount {
    /// Sends in this process: the rows become visible when the sender commits, a moment later.
    pub(crate) sent: u64,
    /// Rows that are visible, and other changes.
    pub(crate) arrived: u64,
    sent_at: Option<Instant>,
}

/// Wakes the workers of one app.
#[derive(Debug)]
pub(crate) struct Wakers {
    /// Workers without a destination: inboxes, sources, timers and others.
    others: watch::Sender<WakeCount>,
    destinations: RwLock<HashMap<String, watch::Sender<WakeCount>>>,
}

/// The apps of this process that run.
static RUNNING: LazyLock<RwLock<Vec<Weak<Wakers>>>> = LazyLock::new(RwLock::default);

impl Wakers {
    /// Returns wakers that hear of the sends of this process.
    pub(crate) fn new() -> Arc<Self> {
        let (others, destinations) = (watch::Sender::default(), RwLock::default());
        let wakers = Arc::new(Self { others, destinations });
        let mut running = write(&RUNNING);
        running.retain(|wakers| wakers.strong_count() > 0);
        running.push(Arc::downgrade(&wakers));
        wakers
    }

    /// Returns the wake-ups of a worker without a destination.
    pub(crate) fn subscribe(&self) -> watch::Receiver<WakeCount> {
        self.others.subscribe()
    }

    /// Returns the wake-ups of a destination's worker.
    pub(crate) fn subscribe_to(&self, destination: &str) -> watch::Receiver<WakeCount> {
        write(&self.destinations).entry(destination.to_owned()).or_default().subscribe()
    }

    /// Returns the names of all destinations.
    pub(crate) fn destinations(&self) -> Vec<String> {
        self.list().keys().cloned().collect()
    }

    /// Wakes every worker.
    pub(crate) fn wake_all(&self) {
        self.wake_others();
        self.wake_destinations();
    }

    /// Wakes the workers without a destination.
    pub(crate) fn wake_others(&self) {
        self.others.send_modify(arrived);
    }

    /// Wakes the workers of all destinations.
    pub(crate) fn wake_destinations(&self) {
        self.list().values().for_each(|worker| worker.send_modify(arrived));
    }

    /// Wakes the worker of a destination, which has visible rows; returns `false` if that was not
    /// necessary: there is no such worker, or it reads repeatedly after a send.
    pub(crate) fn wake(&self, destination: &str) -> bool {
        let list = self.list();
        let Some(worker) = list.get(destination) else { return false };
        let is_hot = worker.borrow().sent_at.is_some_and(|at| at.elapsed() < SENT_FOR);
        if !is_hot {
            worker.send_modify(arrived);
        }
        !is_hot
    }

    fn sent(&self, destination: &str) {
        if let Some(worker) = self.list().get(destination) {
            worker.send_modify(sent);
        }
    }

    fn list(&self) -> RwLockReadGuard<'_, HashMap<String, watch::Sender<WakeCount>>> {
        read(&self.destinations)
    }
}

fn arrived(count: &mut WakeCount) {
    count.arrived = count.arrived.wrapping_add(1);
}

fn sent(count: &mut WakeCount) {
    count.sent = count.sent.wrapping_add(1);
    count.sent_at = Some(Instant::now());
}

/// Wakes the workers of the destinations in this process: messages to them are about to be committed.
pub(crate) fn sent_to<'a>(destinations: impl IntoIterator<Item = &'a str>) {
    let running = read(&RUNNING);
    let mut last = None;
    for destination in destinations {
        if last.replace(destination) != Some(destination) {
            running.iter().filter_map(Weak::upgrade).for_each(|w| w.sent(destination));
        }
    }
}

/// Wakes the workers in this process of destinations that have new visible rows, and those without a
/// destination.
pub(crate) fn committed_to<'a>(destinations: impl IntoIterator<Item = &'a str>) {
    let running: Vec<_> = read(&RUNNING).iter().filter_map(Weak::upgrade).collect();
    running.iter().for_each(|wakers| wakers.wake_others());
    for destination in destinations {
        running.iter().for_each(|wakers| _ = wakers.wake(destination));
    }
}

/// Wakes every worker in this process, after a commit.
pub(crate) fn committed_anywhere() {
    read(&RUNNING).iter().filter_map(Weak::upgrade).for_each(|wakers| wakers.wake_all());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_wakes_only_the_worker_of_its_destination() {
        let wakers = Wakers::new();
        let (shop, bank) = (wakers.subscribe_to("wake-shop"), wakers.subscribe_to("wake-bank"));
        sent_to(["wake-shop", "wake-shop", "unknown"]);
        assert!(shop.has_changed().unwrap());
        assert_eq!(shop.borrow().sent, 1, "one wake-up for many messages");
        assert!(!bank.has_changed().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_reads_after_a_send_is_not_woken_for_its_rows() {
        let wakers = Wakers::new();
        let shop = wakers.subscribe_to("wake-hot");
        assert!(wakers.wake("wake-hot"));
        sent_to(["wake-hot"]);
        assert!(!wakers.wake("wake-hot"));
        assert_eq!((shop.borrow().sent, shop.borrow().arrived), (1, 1));
        assert!(!wakers.wake("another process serves it"));
    }
}
