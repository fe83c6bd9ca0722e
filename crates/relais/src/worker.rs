//! The loop that all workers share: one pass after the other until the stop, with rests between.

use std::time::Duration;

use async_trait::async_trait;
use relais_core::store::StoreError;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    timing::{DatabaseBackoff, REST_MAX},
    wake::WakeCount,
};

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

    /// Returns how the worker learns of its rows.
    fn polling(&self) -> Polling {
        Polling::Timed
    }

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

/// The way in which a worker learns of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polling {
    /// It also reads without a wake-up, at growing intervals.
    Timed,
    /// It is woken for each of its rows.
    Woken,
}

/// The pause before the first read after a send: its rows are not committed yet. Each pause until the next
/// read is twice as long.
const HOT_POLL: Duration = Duration::from_millis(1);
/// Reads after a send, over 31 ms; later commits cause a wake-up of their own
/// ([`Wakers::wake`](crate::wake::Wakers::wake)).
const HOT_POLLS: u32 = 5;
/// The shortest time between two reads that wake-ups cause: rows that arrive meanwhile are read together.
const PACE: Duration = Duration::from_millis(4);
/// After this many wake-ups without rows, other workers probably get them: wake-ups become hints.
const EMPTY_WAKES_MAX: u32 = 4;
/// The delay of each hint, so that idle workers do not load a busy database.
const HINT_DELAY: Duration = Duration::from_millis(40);
/// The longest pause between two polls without a wake-up.
const IDLE_POLL_MAX: Duration = Duration::from_millis(800);

/// The wake-ups of a worker, and the times of its reads.
#[derive(Debug)]
pub(crate) struct WakeUps {
    count: watch::Receiver<WakeCount>,
    seen: WakeCount,
    /// The next read that a wake-up causes.
    read_at: Option<Instant>,
    last_read: Option<Instant>,
    /// The last read that found rows.
    last_found: Option<Instant>,
    /// Reads since the last wake-up.
    polls: u32,
    empty_wakes: u32,
}

impl WakeUps {
    pub(crate) fn new(count: watch::Receiver<WakeCount>) -> Self {
        let seen = *count.borrow();
        let (read_at, last_read, last_found) = (None, None, None);
        Self { count, seen, read_at, last_read, last_found, polls: 0, empty_wakes: 0 }
    }

    /// Resolves at the next wake-up, or never if there will be none. Safe to drop.
    async fn woken(&mut self) {
        if self.count.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Plans a read for the wake-ups since the last call.
    fn plan(&mut self, now: Instant) {
        let count = *self.count.borrow_and_update();
        let before = std::mem::replace(&mut self.seen, count);
        let is_hint = self.empty_wakes >= EMPTY_WAKES_MAX;
        let delay = match (count.arrived != before.arrived, count.sent != before.sent) {
            (false, false) => return,
            _ if is_hint => HINT_DELAY,
            (true, _) => Duration::ZERO,
            (false, true) => HOT_POLL,
        };
        if !is_hint {
            self.polls = 0;
        }
        self.empty_wakes = self.empty_wakes.saturating_add(1);
        let paced = self.last_read.map_or(now, |last| last + PACE);
        let at = (now + delay).max(paced);
        self.read_at = Some(self.read_at.map_or(at, |planned| planned.min(at)));
    }

    /// Returns whether a planned read is due, and counts it as done.
    fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.read_at.is_some_and(|at| at <= now);
        if is_due {
            self.read_now(now);
        }
        is_due
    }

    fn read_now(&mut self, now: Instant) {
        (self.read_at, self.last_read) = (None, Some(now));
    }

    fn found_rows(&mut self, polling: Polling) {
        (self.last_found, self.empty_wakes) = (self.last_read, 0);
        if polling == Polling::Timed {
            self.polls = 0;
        }
    }

    /// Returns the end of the rest after a pass without work, and whether a read follows it.
    fn rest(&mut self, polling: Polling, at_most: Duration, now: Instant) -> (Instant, bool) {
        self.polls = self.polls.saturating_add(1);
        let end = now + at_most;
        let paced = self.last_found.map_or(now, |found| found + PACE);
        let hot = (now + pause(self.polls)).max(paced).min(end);
        match polling {
            Polling::Timed => (hot, true),
            Polling::Woken if self.polls <= HOT_POLLS => (hot, true),
            Polling::Woken => (end, at_most < REST_MAX),
        }
    }
}

/// Runs a worker until `stop`. It stops with the `patience` that is set then.
pub(crate) async fn run(
    name: String,
    mut worker: Box<dyn Worker>,
    mut wakes: WakeUps,
    stop: CancellationToken,
    patience: watch::Receiver<Duration>,
) {
    let mut backoff = DatabaseBackoff::default();
    while !stop.is_cancelled() {
        wakes.plan(Instant::now());
        if wakes.take_due(Instant::now()) {
            worker.request_read();
        }
        let (until, reads) = match worker.run_once().await {
            Ok(PassOutcome::Finished) => break,
            Ok(PassOutcome::Worked) => {
                wakes.found_rows(worker.polling());
                backoff.reset();
                continue;
            }
            Ok(PassOutcome::Idle { at_most }) => {
                backoff.reset();
                wakes.rest(worker.polling(), at_most, Instant::now())
            }
            Err(error) => {
                tracing::warn!(worker = name, %error, "database did not answer; waiting");
                (Instant::now() + backoff.next_pause(), true)
            }
        };
        loop {
            let next = wakes.read_at.map_or(until, |at| at.min(until));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = worker.returned() => break,
                () = wakes.woken() => wakes.plan(Instant::now()),
                () = sleep_until(next) => {
                    if reads && next == until {
                        wakes.read_now(Instant::now());
                        worker.request_read();
                    }
                    break;
                }
            }
        }
    }
    let patience = *patience.borrow();
    worker.stop(patience).await;
    tracing::debug!(worker = name, "stopped");
}

/// Returns the pause before the next poll: short right after work or a wake-up, then doubling.
fn pause(polls: u32) -> Duration {
    let doublings = polls.saturating_sub(1).min(16);
    HOT_POLL.saturating_mul(1 << doublings).min(IDLE_POLL_MAX)
}

/// Runs passes until the worker rests with nothing in flight, or only with calls that never return.
#[cfg(test)]
pub(crate) async fn run_until_idle(worker: &mut dyn Worker) {
    /// Passes before a test gives up: a worker that never rests is a fault.
    const PASSES_MAX: usize = 10_000;
    /// A call that has not returned by then never does, on purpose.
    const STUCK: Duration = Duration::from_secs(1);
    let (mut reads, mut is_last) = (true, false);
    for _ in 0..PASSES_MAX {
        let has_read = std::mem::replace(&mut reads, true);
        if has_read {
            worker.request_read();
        }
        match worker.run_once().await.expect("the store answers") {
            PassOutcome::Worked => is_last = false,
            PassOutcome::Finished => return,
            PassOutcome::Idle { .. } if worker.in_flight() == 0 => {
                if has_read || is_last {
                    return;
                }
                // What returned may have freed later rows of its key: one more read.
                is_last = true;
            }
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

    use tokio::time::sleep;

    use super::*;
    use crate::wake::Wakers;

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

    /// Returns the passes within a second in which another worker's rows cause 1,000 wake-ups.
    async fn passes_beside_a_busy_worker(finds: fn(u32) -> bool) -> u32 {
        let passes = Arc::new(AtomicU32::new(0));
        let counter = Box::new(PassCounter { passes: Arc::clone(&passes), finds });
        let (wakers, stop) = (Wakers::new(), CancellationToken::new());
        let wakes = WakeUps::new(wakers.subscribe());
        let running =
            tokio::spawn(run("counter".to_owned(), counter, wakes, stop.clone(), patience()));
        for _ in 0..1_000 {
            wakers.wake_others();
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
        assert!((400..600).contains(&busy), "two passes for each paced read: {busy}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_woken_worker_reads_a_few_times_after_a_send_and_not_again() {
        let (sender, count) = watch::channel(WakeCount::default());
        let (mut wakes, start) = (WakeUps::new(count), Instant::now());
        let second = Duration::from_secs(1);
        assert!(!wakes.take_due(start));
        sender.send_modify(|count| count.sent += 1);
        wakes.plan(start);
        assert!(!wakes.take_due(start), "its rows are not committed yet");
        assert!(wakes.take_due(start + HOT_POLL));
        let (mut now, mut reads) = (start, 0);
        while let (next, true) = wakes.rest(Polling::Woken, second, now) {
            (now, reads) = (next, reads + 1);
        }
        assert_eq!((reads, now), (HOT_POLLS, start + HOT_POLL * 31));
        assert_eq!(wakes.rest(Polling::Woken, second, now), (now + second, false));
        let soon = Duration::from_millis(300);
        let retry = wakes.rest(Polling::Woken, soon, now);
        assert_eq!(retry, (now + soon, true), "its own retry is due then");
        wakes.found_rows(Polling::Woken);
        sender.send_modify(|count| count.sent += 1);
        wakes.plan(start + HOT_POLL);
        let next = wakes.rest(Polling::Woken, second, start + HOT_POLL);
        assert_eq!(next, (start + HOT_POLL + PACE, true), "also after rows were found");
        assert!(!wakes.take_due(start + HOT_POLL * 2), "reads are paced");
        assert!(wakes.take_due(start + HOT_POLL + PACE));
    }

    #[test]
    fn pauses_start_short_and_grow_to_the_idle_poll() {
        assert_eq!(pause(1), HOT_POLL);
        assert_eq!(pause(4), HOT_POLL * 8);
        assert_eq!(pause(u32::MAX), IDLE_POLL_MAX);
    }
}
