//! Limits of a destination as arithmetic: a rate and a circuit breaker. Time is an argument, as
//! nanoseconds of any steady clock.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

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

/// When a breaker opens and how long it stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// How many of the last calls are looked at.
    pub window: usize,
    /// Opens when at least this share of a full window failed, in percent.
    pub failure_rate: u8,
    pub open_for: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self { window: 50, failure_rate: 50, open_for: Duration::from_secs(30) }
    }
}

/// What the breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    Closed,
    /// Nothing.
    Open,
    /// One call at a time, to see whether the target is back.
    HalfOpen,
}

/// Stops calls to a target that fails: after an outage at once, after failures by their rate.
#[derive(Clone, Debug)]
pub struct Breaker {
    policy: BreakerPolicy,
    recent: VecDeque<bool>,
    state: BreakerState,
    /// Opened because the target could not be reached, not because it failed too often: then any
    /// answer at all shows that it is back.
    unreachable: bool,
    open_until_ns: u64,
    /// Consecutive openings without a success between: each doubles a short first pause.
    openings: u32,
}

/// First pause after an outage; doubles up to the policy's `open_for`.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

impl Breaker {
    pub fn new(policy: BreakerPolicy) -> Self {
        Self {
            policy,
            recent: VecDeque::new(),
            state: BreakerState::Closed,
            unreachable: false,
            open_until_ns: 0,
            openings: 0,
        }
    }

    /// The state at `now`; an open breaker whose pause is over is half open.
    pub fn state(&mut self, now_ns: u64) -> BreakerState {
        if self.state == BreakerState::Open && now_ns >= self.open_until_ns {
            self.state = BreakerState::HalfOpen;
        }
        self.state
    }

    /// Whether the next answer decides if a target that failed too often has recovered.
    pub fn is_probing(&self) -> bool {
        self.state == BreakerState::HalfOpen && !self.unreachable
    }

    /// How long it stays open from `now`.
    pub fn wait(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.open_until_ns.saturating_sub(now_ns))
    }

    /// A call got through; whether the message was liked does not matter here. While open, a late
    /// answer of an earlier call changes nothing: the pause stands.
    pub fn succeeded(&mut self) {
        if self.state == BreakerState::Open {
            return;
        }
        if self.state == BreakerState::HalfOpen {
            self.recent.clear();
            self.state = BreakerState::Closed;
        }
        self.openings = 0;
        self.record(true);
    }

    /// A call failed in a way that may be the target's fault.
    pub fn failed(&mut self, now_ns: u64) {
        if self.state == BreakerState::HalfOpen && self.unreachable {
            self.state = BreakerState::Closed;
        }
        self.record(false);
        let failures = self.recent.iter().filter(|ok| !**ok).count();
        let full = self.recent.len() >= self.policy.window;
        let too_many = failures * 100 >= self.recent.len() * usize::from(self.policy.failure_rate);
        if self.state == BreakerState::HalfOpen || (full && too_many) {
            self.unreachable = false;
            self.open(now_ns, self.policy.open_for);
        }
    }

    /// The target is down, or asked for patience: opens at once, for `asked` if that is longer.
    pub fn outage(&mut self, now_ns: u64, asked: Option<Duration>) {
        if self.state == BreakerState::Open {
            return;
        }
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.openings.min(20));
        self.openings = self.openings.saturating_add(1);
        self.unreachable = true;
        self.open(now_ns, doubled.min(self.policy.open_for).max(asked.unwrap_or_default()));
    }

    fn open(&mut self, now_ns: u64, pause: Duration) {
        self.state = BreakerState::Open;
        self.recent.clear();
        let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.open_until_ns = now_ns.saturating_add(pause_ns);
    }

    fn record(&mut self, ok: bool) {
        self.recent.push_back(ok);
        while self.recent.len() > self.policy.window.max(1) {
            self.recent.pop_front();
        }
    }
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
    fn an_outage_opens_at_once_and_pauses_grow_to_the_limit() {
        let mut breaker = Breaker::new(BreakerPolicy::default());
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            assert_ne!(breaker.state(now), BreakerState::Open);
            breaker.outage(now, None);
            pauses.push(breaker.wait(now).as_millis());
            now += u64::try_from(breaker.wait(now).as_nanos()).unwrap();
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000]);
        assert_eq!(breaker.state(now), BreakerState::HalfOpen);
        breaker.succeeded();
        assert_eq!(breaker.state(now), BreakerState::Closed);
    }

    #[test]
    fn failures_open_it_only_by_their_rate_in_a_full_window() {
        let policy =
            BreakerPolicy { window: 4, failure_rate: 50, open_for: Duration::from_secs(1) };
        let mut breaker = Breaker::new(policy);
        breaker.failed(0);
        breaker.failed(0);
        breaker.succeeded();
        assert_eq!(breaker.state(0), BreakerState::Closed);
        breaker.failed(0);
        assert_eq!(breaker.state(0), BreakerState::Open);
        assert_eq!(breaker.state(SECOND), BreakerState::HalfOpen);
        breaker.failed(SECOND);
        assert_eq!(breaker.state(SECOND), BreakerState::Open);
    }

    #[test]
    fn after_an_outage_even_a_failed_message_shows_that_the_target_is_back() {
        let mut breaker = Breaker::new(BreakerPolicy::default());
        breaker.outage(0, None);
        assert_eq!(breaker.state(SECOND), BreakerState::HalfOpen);
        breaker.failed(SECOND);
        assert_eq!(breaker.state(SECOND), BreakerState::Closed);
    }

    #[test]
    fn a_pause_the_target_asks_for_is_kept() {
        let mut breaker = Breaker::new(BreakerPolicy::default());
        breaker.outage(0, Some(Duration::from_secs(120)));
        assert_eq!(breaker.wait(0), Duration::from_secs(120));
        breaker.succeeded();
        assert_eq!(breaker.state(0), BreakerState::Open, "a late answer does not end the pause");
    }
}
