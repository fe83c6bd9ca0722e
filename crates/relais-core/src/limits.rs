//! Limits of a destination as arithmetic: a rate, and how many calls run at once. The circuit breaker
//! is in [`breaker`](crate::breaker). Time is an argument, as nanoseconds of any steady clock.

use std::time::Duration;

/// Calls per period, evenly spread, with a burst of one period's worth (GCRA).
#[derive(Clone, Debug)]
pub struct RateLimit {
    interval_ns: u64,
    burst_ns: u64,
    next_ns: u64,
}

impl RateLimit {
    /// `calls` per `period`; both at least one (call, nanosecond).
    pub fn new(calls: u32, period: Duration) -> Self {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        let interval_ns = (period_ns / u64::from(calls.max(1))).max(1);
        Self { interval_ns, burst_ns: period_ns.saturating_sub(interval_ns), next_ns: 0 }
    }

    /// Takes one call at `now`, or says how long to wait.
    pub fn take(&mut self, now_ns: u64) -> Result<(), Duration> {
        let earliest = self.next_ns.saturating_sub(self.burst_ns);
        if now_ns < earliest {
            return Err(Duration::from_nanos(earliest - now_ns));
        }
        self.next_ns = self.next_ns.max(now_ns).saturating_add(self.interval_ns);
        Ok(())
    }
}

/// The number of parallel calls: the configured number, fewer while the target asks for patience.
#[derive(Clone, Debug)]
pub struct Concurrency {
    max: usize,
    now: usize,
    changed_ns: Option<u64>,
    /// The key that was last asked for patience, and when.
    asked: Option<(u64, u64)>,
}

/// The number changes at most this often.
const STEP: Duration = Duration::from_secs(1);
/// Two keys that are asked for patience within this time mean the destination.
const ASKED_TOGETHER: Duration = Duration::from_secs(10);
/// The share of the configured number that is added at each step of recovery.
const RECOVERY_STEPS: usize = 10;

impl Concurrency {
    pub fn new(max: usize) -> Self {
        let max = max.max(1);
        Self { max, now: max, changed_ns: None, asked: None }
    }

    pub fn get(&self) -> usize {
        self.now
    }

    /// The target asked this key for patience: from the second key on, half as many calls.
    pub fn busy(&mut self, key: u64, now_ns: u64) {
        let together = |(_, at_ns): &(u64, u64)| since(*at_ns, now_ns) <= ASKED_TOGETHER;
        let other = self.asked.filter(together).is_some_and(|(asked, _)| asked != key);
        self.asked = Some((key, now_ns));
        if other && self.may_change(now_ns) {
            self.now = (self.now / 2).max(1);
            self.changed_ns = Some(now_ns);
        }
    }

    /// A call succeeded: step by step back to the configured number.
    pub fn accepted(&mut self, now_ns: u64) {
        if self.now < self.max && self.may_change(now_ns) {
            self.now = (self.now + (self.max / RECOVERY_STEPS).max(1)).min(self.max);
            self.changed_ns = Some(now_ns);
        }
    }

    fn may_change(&self, now_ns: u64) -> bool {
        self.changed_ns.is_none_or(|changed_ns| since(changed_ns, now_ns) >= STEP)
    }
}

fn since(then_ns: u64, now_ns: u64) -> Duration {
    Duration::from_nanos(now_ns.saturating_sub(then_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_rate_is_kept_after_the_burst() {
        let mut limit = RateLimit::new(10, Duration::from_secs(1));
        let burst = (0..20).filter(|_| limit.take(0).is_ok()).count();
        assert_eq!(burst, 10);
        assert_eq!(limit.take(0), Err(Duration::from_millis(100)));
        let later = (0..20).filter(|_| limit.take(SECOND).is_ok()).count();
        assert_eq!(later, 10);
    }

    #[test]
    fn two_keys_asked_for_patience_halve_the_calls_and_success_brings_them_back() {
        let mut concurrency = Concurrency::new(10);
        (0..9).for_each(|n| concurrency.busy(7, n * SECOND));
        assert_eq!(concurrency.get(), 10, "one key is not the destination");
        let halved = (9..13).map(|n| {
            concurrency.busy(n, n * SECOND);
            concurrency.busy(n + 100, n * SECOND);
            concurrency.get()
        });
        assert_eq!(halved.collect::<Vec<_>>(), [5, 2, 1, 1], "once a second, never to nothing");
        let recovered = (13..25).map(|n| {
            (0..100).for_each(|_| concurrency.accepted(n * SECOND));
            concurrency.get()
        });
        assert_eq!(recovered.collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10]);
    }
}
