//! Wakes the workers: at once for messages sent in this process, by a cheap poll for rows of other
//! processes.
//!
//! Never by NOTIFY inside a user's transaction: that would serialise all commits of the cluster.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use relais_core::store::{Changes, Store};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

/// The interval of polls for new rows, …
const POLL_EVERY: Duration = Duration::from_millis(14);
/// … and the interval after a quiet time: each poll costs both sides a round trip.
const QUIET_POLL_EVERY: Duration = Duration::from_millis(40);
const QUIET_AFTER: Duration = Duration::from_secs(3);
/// The interval after a poll that failed.
const FAILED_POLL_EVERY: Duration = Duration::from_millis(500);

/// Raised by every send in this process. The rows become visible when the sender commits, a moment
/// later; workers poll often for a while after a wake-up.
static SENT: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));

/// Wakes every worker in this process: a message is about to be committed.
pub(crate) fn sent() {
    SENT.send_modify(|n| *n = n.wrapping_add(1));
}

/// Polls until `stop`. Raises `wake` for sends of this process and changes in the store, `crowd` when
/// workers join or leave, and `inbox` as `crowd` and when lanes were handed over.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    wake: watch::Sender<u64>,
    crowd: watch::Sender<u64>,
    inbox: watch::Sender<u64>,
    stop: CancellationToken,
) {
    let mut sends = SENT.subscribe();
    let mut last: Option<Changes> = None;
    let mut moved = Instant::now();
    loop {
        let pause = match store.changes().await {
            Ok(now) => {
                let before = last.replace(now);
                if before.map(|changes| changes.rows) != Some(now.rows) {
                    moved = Instant::now();
                    wake.send_modify(|n| *n = n.wrapping_add(1));
                }
                // The first answer counts as a change: a worker may have left before it.
                let crowded = before.map(|changes| changes.workers) != Some(now.workers);
                if crowded {
                    crowd.send_modify(|n| *n = n.wrapping_add(1));
                }
                if crowded || before.map(|changes| changes.handed_over) != Some(now.handed_over) {
                    inbox.send_modify(|n| *n = n.wrapping_add(1));
                }
                if moved.elapsed() < QUIET_AFTER { POLL_EVERY } else { QUIET_POLL_EVERY }
            }
            Err(_) => FAILED_POLL_EVERY,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = sends.changed() => wake.send_modify(|n| *n = n.wrapping_add(1)),
            () = sleep(pause) => {}
        }
    }
}
