//! What wakes the workers: messages sent in this process at once, rows of other processes by a cheap
//! question asked often.
//!
//! Never by NOTIFY inside a user's transaction: that would serialise all commits of the cluster.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use relais_core::store::{Changes, Store};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

/// How often the store is asked whether rows may have come, …
const ASK_EVERY: Duration = Duration::from_millis(14);
/// … and how often when none came for a while: each question costs both sides a round trip.
const ASK_WHEN_QUIET: Duration = Duration::from_millis(40);
const QUIET_AFTER: Duration = Duration::from_secs(3);
/// How often after it did not answer.
const ASK_AFTER_TROUBLE: Duration = Duration::from_millis(500);

/// Raised by every send in this process. The rows become visible when the sender commits, a moment
/// later; workers look often for a while after a wake-up.
static SENT: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));

/// Tells every worker in this process that a message is on its way into the outbox.
pub(crate) fn sent() {
    SENT.send_modify(|n| *n = n.wrapping_add(1));
}

/// Passes sends of this process and changes in the store on to `wake`, and the coming and leaving of
/// workers to `crowd`, until `stop`. `inbox` is raised as `crowd` is, and when lanes were handed over.
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
                // The first answer counts as news: who left before it is missed otherwise.
                let crowded = before.map(|changes| changes.workers) != Some(now.workers);
                if crowded {
                    crowd.send_modify(|n| *n = n.wrapping_add(1));
                }
                if crowded || before.map(|changes| changes.handed_over) != Some(now.handed_over) {
                    inbox.send_modify(|n| *n = n.wrapping_add(1));
                }
                if moved.elapsed() < QUIET_AFTER { ASK_EVERY } else { ASK_WHEN_QUIET }
            }
            Err(_) => ASK_AFTER_TROUBLE,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = sends.changed() => wake.send_modify(|n| *n = n.wrapping_add(1)),
            () = sleep(pause) => {}
        }
    }
}
