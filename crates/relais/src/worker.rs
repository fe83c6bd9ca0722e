//! The one loop all workers share: a tested `run_once`, then hurry or rest, until told to stop.

use std::time::Duration;

use relais_core::{BoxFuture, store::StoreError};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

/// What one pass achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be more: go again at once.
    Worked,
    /// Nothing to do now; look again after this long at the latest (or when woken).
    Idle { at_most: Duration },
    /// There will be no more work.
    Finished,
}

/// A body of work. Each pass leaves the store consistent, so a worker may be stopped between any two.
pub(crate) trait Worker: Send {
    /// Rows may have come, or become due: the next pass should look into the store.
    fn look(&mut self) {}

    fn run_once(&mut self) -> BoxFuture<'_, Result<Progress, StoreError>>;

    /// Resolves when something this worker has under way has come back. Safe to drop.
    fn landed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// How much is under way.
    #[cfg(test)]
    fn under_way(&self) -> usize {
        0
    }

    /// Finishes what is in flight, but waits no longer than `patience` for it, and gives back what it holds.
    fn stop(&mut self, _patience: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// After a wake-up the rows may still be uncommitted: look this often, …
const HOT_POLL: Duration = Duration::from_millis(1);
/// … this many times, before the pauses grow.
const HOT_POLLS: u32 = 12;
/// Whoever was woken this often for nothing is not meant: others have the work. Its pauses are those
/// after so many looks, …
const VAIN_WAKES: u32 = 4;
const VAIN_POLLS: u32 = HOT_POLLS + 6;
/// … and wake-ups wait this long, or the idle would keep a busy database busier than the busy do.
const DEAF_FOR: Duration = Duration::from_millis(40);
/// The longest pause between two looks while nobody wakes us.
const IDLE_POLL_MAX: Duration = Duration::from_millis(800);
/// The pause after the database did not answer; doubles up to the maximum.
const TROUBLE_PAUSE: Duration = Duration::from_millis(100);
const TROUBLE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Runs a worker until `stop`, waking on `wake`. It stops with the `patience` that is set then.
pub(crate) async fn run(
    name: String,
    mut worker: Box<dyn Worker>,
    mut wake: watch::Receiver<u64>,
    stop: CancellationToken,
    patience: watch::Receiver<Duration>,
) {
    let (mut polls, mut vain) = (0_u32, 0_u32);
    let mut trouble = TROUBLE_PAUSE;
    while !stop.is_cancelled() {
        let rest = match worker.run_once().await {
            Ok(Progress::Finished) => break,
            Ok(Progress::Worked) => {
                (polls, vain, trouble) = (0, 0, TROUBLE_PAUSE);
                continue;
            }
            Ok(Progress::Idle { at_most }) => {
                trouble = TROUBLE_PAUSE;
                polls = polls.saturating_add(1);
                pause(polls).min(at_most)
            }
            Err(error) => {
                tracing::warn!(worker = name, %error, "waiting for the database");
                let pause = trouble;
                trouble = (trouble * 2).min(TROUBLE_PAUSE_MAX);
                pause
            }
        };
        let deaf = if vain > VAIN_WAKES { DEAF_FOR.min(rest) } else { Duration::ZERO };
        let woken = async {
            sleep(deaf).await;
            wake.changed().await.is_ok()
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = worker.landed() => continue,
            woken = woken => {
                if woken {
                    vain = vain.saturating_add(1);
                    polls = if vain > VAIN_WAKES { VAIN_POLLS } else { 0 };
                } else {
                    sleep(rest).await;
                }
            }
            () = sleep(rest) => {}
        }
        worker.look();
    }
    let patience = *patience.borrow();
    worker.stop(patience).await;
    tracing::debug!(worker = name, "stopped");
}

/// Short pauses right after work or a wake-up, then doubling ones.
fn pause(polls: u32) -> Duration {
    let doublings = polls.saturating_sub(HOT_POLLS).min(16);
    HOT_POLL.saturating_mul(1 << doublings).min(IDLE_POLL_MAX)
}

/// Drives a worker by hand until it rests with nothing under way, or only with what never lands.
#[cfg(test)]
pub(crate) async fn run_until_idle(worker: &mut dyn Worker) {
    /// Passes before a test gives up: a worker that never rests is a fault.
    const PASSES_MAX: usize = 10_000;
    /// What has not landed by then is stuck on purpose.
    const STUCK: Duration = Duration::from_secs(1);
    for _ in 0..PASSES_MAX {
        worker.look();
        match worker.run_once().await.expect("the store answers") {
            Progress::Worked => {}
            Progress::Finished => return,
            Progress::Idle { .. } if worker.under_way() == 0 => return,
            Progress::Idle { .. } => {
                if tokio::time::timeout(STUCK, worker.landed()).await.is_ok() {
                    continue;
                }
                worker.look();
                if worker.run_once().await.expect("the store answers") != Progress::Worked {
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

    /// Finds something in the passes it is told to, and counts them all.
    struct Looker {
        passes: Arc<AtomicU32>,
        finds: fn(u32) -> bool,
    }

    impl Worker for Looker {
        fn run_once(&mut self) -> BoxFuture<'_, Result<Progress, StoreError>> {
            let pass = self.passes.fetch_add(1, Relaxed);
            let idle = Progress::Idle { at_most: Duration::from_secs(1) };
            let progress = if (self.finds)(pass) { Progress::Worked } else { idle };
            Box::pin(async move {
                sleep(Duration::from_micros(100)).await;
                Ok(progress)
            })
        }
    }

    fn patience() -> watch::Receiver<Duration> {
        watch::channel(Duration::MAX).1
    }

    /// How many passes it makes in a second in which somebody else's work wakes it a thousand times.
    async fn passes_beside_a_busy_one(finds: fn(u32) -> bool) -> u32 {
        let passes = Arc::new(AtomicU32::new(0));
        let looker = Box::new(Looker { passes: Arc::clone(&passes), finds });
        let ((waker, wake), stop) = (watch::channel(0), CancellationToken::new());
        let running =
            tokio::spawn(run("looker".to_owned(), looker, wake, stop.clone(), patience()));
        for _ in 0..1_000 {
            waker.send_modify(|times| *times += 1);
            sleep(Duration::from_millis(1)).await;
        }
        stop.cancel();
        running.await.unwrap();
        passes.load(Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_woken_for_nothing_looks_less_often_until_there_is_something() {
        let idle = passes_beside_a_busy_one(|_| false).await;
        assert!((20..110).contains(&idle), "{idle}");
        let busy = passes_beside_a_busy_one(|pass| pass % 2 == 0).await;
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
