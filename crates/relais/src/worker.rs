//! The loop that all workers share: one pass after the other until the stop, with rests between.

use std::time::Duration;

use async_trait::async_trait;
use relais_core::store::StoreError;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::timing::DatabaseBackoff;

/// The outcome of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassOutcome {
    /// There may be more: the next pass follows at once.
    Worked,
    /// Nothing to do now; the next pass follows after at most this long, or after a wake-up.
    Idle { at_most: Duration },
    /// There will be no more work.
    Finished,
}

/// A worker. Each pass leaves the store consistent, so a worker may be stopped between any two.
#[async_trait]
pub(crate) trait Worker: Send {
    /// Makes the next pass read the store: rows may have arrived or become due.
    fn request_read(&mut self) {}

    /// Runs one pass.
    async fn run_once(&mut self) -> Result<PassOutcome, StoreError>;

    /// Resolves when something in flight has returned. Safe to drop.
    async fn returned(&mut self) {
        std::future::pending().await
    }

    /// Returns the number of calls in flight.
    #[cfg(test)]
    fn in_flight(&self) -> usize {
        0
    }

    /// Waits for what is in flight, at most `patience`, and releases what the worker holds.
    async fn stop(&mut self, _patience: Duration) {}
}

/// The pause between two polls right after a wake-up: its rows may not be committed yet.
const HOT_POLL: Duration = Duration::from_millis(1);
/// Polls before the pauses grow.
const HOT_POLLS: u32 = 12;
/// After this many wake-ups without rows, other workers probably get them: wake-ups become hints.
const EMPTY_WAKES_MAX: u32 = 4;
/// The number of polls that a worker continues from after such a hint: it pauses at the idle interval.
const EMPTY_WAKE_POLLS: u32 = HOT_POLLS + 6;
/// The delay of each hint, so that idle workers do not load a busy database.
const HINT_DELAY: Duration = Duration::from_millis(40);
/// The longest pause between two polls without a wake-up.
const IDLE_POLL_MAX: Duration = Duration::from_millis(800);

/// Runs a worker until `stop`, waking on `wake`. It stops with the `patience` that is set then.
pub(crate) async fn run(
    name: String,
    mut worker: Box<dyn Worker>,
    mut wake: watch::Receiver<u64>,
    stop: CancellationToken,
    patience: watch::Receiver<Duration>,
) {
    let (mut polls, mut empty_wakes) = (0_u32, 0_u32);
    let mut backoff = DatabaseBackoff::default();
    while !stop.is_cancelled() {
        let rest = match worker.run_once().await {
            Ok(PassOutcome::Finished) => break,
            Ok(PassOutcome::Worked) => {
                (polls, empty_wakes) = (0, 0);
                backoff.reset();
                continue;
            }
            Ok(PassOutcome::Idle { at_most }) => {
                backoff.reset();
                polls = polls.saturating_add(1);
                pause(polls).min(at_most)
            }
            Err(error) => {
                tracing::warn!(worker = name, %error, "database did not answer; waiting");
                backoff.next_pause()
            }
        };
        let is_hint = empty_wakes > EMPTY_WAKES_MAX;
        let delay = if is_hint { HINT_DELAY.min(rest) } else { Duration::ZERO };
        let woken = async {
            sleep(delay).await;
            wake.changed().await.is_ok()
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = worker.returned() => continue,
            woken = woken => {
                if woken {
                    empty_wakes = empty_wakes.saturating_add(1);
                    polls = if empty_wakes > EMPTY_WAKES_MAX { EMPTY_WAKE_POLLS } else { 0 };
                } else {
                    sleep(rest).await;
                }
            }
            () = sleep(rest) => {}
        }
        worker.request_read();
    }
    let patience = *patience.borrow();
    worker.stop(patience).await;
    tracing::debug!(worker = name, "stopped");
}

/// Returns the pause before the next poll: short right after work or a wake-up, then doubling.
fn pause(polls: u32) -> Duration {
    let doublings = polls.saturating_sub(HOT_POLLS).min(16);
    HOT_POLL.saturating_mul(1 << doublings).min(IDLE_POLL_MAX)
}

/// Runs passes until the worker rests with nothing in flight, or only with calls that never return.
#[cfg(test)]
pub(crate) async fn run_until_idle(worker: &mut dyn Worker) {
    /// Passes before a test gives up: a worker that never rests is a fault.
    const PASSES_MAX: usize = 10_000;
    /// A call that has not returned by then never does, on purpose.
    const STUCK: Duration = Duration::from_secs(1);
    let mut reads = true;
    for _ in 0..PASSES_MAX {
        if std::mem::replace(&mut reads, true) {
            worker.request_read();
        }
        match worker.run_once().await.expect("the store answers") {
            PassOutcome::Worked => {}
            PassOutcome::Finished => return,
            PassOutcome::Idle { .. } if worker.in_flight() == 0 => return,
            PassOutcome::Idle { .. } => {
                if tokio::time::timeout(STUCK, worker.returned()).await.is_ok() {
                    // What returned may have been a read without rows: another would follow without end.
                    reads = false;
                    continue;
                }
                worker.request_read();
                if worker.run_once().await.expect("the store answers") != PassOutcome::Worked {
                    return;
                }
            }
        }
    }
    panic!("the worker never rests");
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    };

    use super::*;

    /// A worker that finds rows in the passes that a function selects, and counts all passes.
    struct PassCounter {
        passes: Arc<AtomicU32>,
        finds: fn(u32) -> bool,
    }

    #[async_trait]
    impl Worker for PassCounter {
        async fn run_once(&mut self) -> Result<PassOutcome, StoreError> {
            let pass = self.passes.fetch_add(1, Relaxed);
            let idle = PassOutcome::Idle { at_most: Duration::from_secs(1) };
            let outcome = if (self.finds)(pass) { PassOutcome::Worked } else { idle };
            sleep(Duration::from_micros(100)).await;
            Ok(outcome)
        }
    }

    fn patience() -> watch::Receiver<Duration> {
        watch::channel(Duration::MAX).1
    }

    /// Returns the passes within a second in which the rows of another worker cause 1,000 wake-ups.
    async fn passes_beside_a_busy_worker(finds: fn(u32) -> bool) -> u32 {
        let passes = Arc::new(AtomicU32::new(0));
        let counter = Box::new(PassCounter { passes: Arc::clone(&passes), finds });
        let ((waker, wake), stop) = (watch::channel(0), CancellationToken::new());
        let running =
            tokio::spawn(run("counter".to_owned(), counter, wake, stop.clone(), patience()));
        for _ in 0..1_000 {
            waker.send_modify(|times| *times += 1);
            sleep(Duration::from_millis(1)).await;
        }
        stop.cancel();
        running.await.unwrap();
        passes.load(Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_whose_wake_ups_are_empty_polls_less_often_until_it_finds_rows() {
        let idle = passes_beside_a_busy_worker(|_| false).await;
        assert!((20..110).contains(&idle), "{idle}");
        let busy = passes_beside_a_busy_worker(|pass| pass % 2 == 0).await;
        assert!(busy >= 900, "{busy}");
    }

    #[test]
    fn pauses_start_short_and_grow_to_the_idle_poll() {
        assert_eq!(pause(1), HOT_POLL);
        assert_eq!(pause(HOT_POLLS), HOT_POLL);
        assert_eq!(pause(HOT_POLLS + 3), HOT_POLL * 8);
        assert_eq!(pause(u32::MAX), IDLE_POLL_MAX);
    }
}
