//! The circuit breaker of a destination: stops the calls to a target that fails, never for what one
//! message is. Time is an argument, as nanoseconds of any steady clock.
//!
//! | it opens | after |
//! |---|---|
//! | failing | 5 different keys failed one after the other, none of which was failing before; or [`BreakerPolicy::failure_rate`] of the keys in the last [`BreakerPolicy::window`] calls |
//! | unreachable | 2 calls in a row did not reach the target |
//! | configuration | 5 different keys were refused with one code, and nothing was accepted in between; or the failing ones above were not let in (401, 403, 404) |
//! | asked | two keys were asked to wait (`Retry-After`) while the target accepted nothing for a minute, failed 5 keys in a row or fails most of them; or the target named a pause for everything |
//!
//! Failures do not open it while messages are still accepted: [`ACCEPTED_LATELY`].
//!
//! It stays open for a second, doubling up to [`BreakerPolicy::open_for`]; then one call at a time is let
//! through, until one is accepted.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// The limits at which a circuit breaker opens and probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerPolicy {
    /// The number of last calls that count.
    pub window: usize,
    /// Opens when at least this share of the keys in a full window failed, in percent.
    pub failure_rate: u8,
    /// The longest pause between two probes.
    pub open_for: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self { window: 50, failure_rate: 50, open_for: Duration::from_secs(30) }
    }
}

crate::setters!(BreakerPolicy {
    /// Sets the number of last calls that count.
    window: = usize,
    /// Sets the share of failed keys in a full window that opens the breaker, in percent.
    failure_rate: = u8,
    /// Sets the longest pause between two probes.
    open_for: = Duration,
});

/// The calls that the breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// All calls.
    Closed,
    /// Nothing.
    Open,
    /// One call at a time, to find out whether the target works again.
    HalfOpen,
}

/// Why a breaker is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenCause {
    /// Too many calls failed.
    Failing,
    /// The target cannot be reached.
    Unreachable,
    /// The target refuses everything: a wrong log-in, address or permission.
    Configuration,
    /// The target asked for a pause.
    Asked,
}

impl OpenCause {
    /// Returns the name of the cause in metrics and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Unreachable => "unreachable",
            Self::Configuration => "configuration",
            Self::Asked => "asked",
        }
    }
}

/// Different keys in a row whose failures open it.
pub const FAILED_KEYS: usize = 5;
/// Calls in a row without a connection that open it.
pub const UNREACHABLE_CALLS: u32 = 2;
/// Different keys in a row, refused with one code, that open it.
pub const REJECTED_KEYS: usize = 5;
/// The first pause; doubles up to the policy's `open_for`.
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// While a message was accepted this short a time ago, failures do not open it: the target works for
/// some of its keys.
pub const ACCEPTED_LATELY: Duration = Duration::from_millis(100);
/// The longest pause of the whole destination that keys can ask for.
pub const ASKED_PAUSE_MAX: Duration = Duration::from_secs(5 * 60);
/// Two keys that ask for a pause within this time mean the destination, if it accepted nothing in this time.
const ASKED_TOGETHER: Duration = Duration::from_secs(60);

/// A failed call, as far as the breaker is concerned.
#[derive(Clone, Copy, Debug)]
pub struct FailedCall {
    /// The first key of the call.
    pub key: u64,
    /// The key was failing before: this says nothing new about the target.
    pub was_failing: bool,
    /// The target did not let us in.
    pub misconfigured: bool,
    /// The pause the target asked for.
    pub asked: Option<Duration>,
}

/// A circuit breaker of one destination. Times are arguments.
#[derive(Clone, Debug)]
pub struct Breaker {
    policy: BreakerPolicy,
    state: BreakerState,
    cause: OpenCause,
    opened_ns: u64,
    open_until_ns: u64,
    /// Consecutive openings without a success between.
    openings: u32,
    /// The last calls: their keys, and whether they succeeded.
    recent: VecDeque<(u64, bool)>,
    /// Different keys that failed in a row.
    failed: Vec<u64>,
    /// The number of them that were refused a log-in.
    misconfigured: usize,
    unreachable: u32,
    /// Different keys that were refused in a row, with this code.
    rejected: (String, Vec<u64>),
    /// The key that last asked for a pause, and when.
    asked: Option<(u64, u64)>,
    accepted_ns: Option<u64>,
}

impl Breaker {
    /// Creates a closed breaker.
    pub fn new(policy: BreakerPolicy) -> Self {
        Self {
            policy,
            state: BreakerState::Closed,
            cause: OpenCause::Failing,
            opened_ns: 0,
            open_until_ns: 0,
            openings: 0,
            recent: VecDeque::new(),
            failed: Vec::new(),
            misconfigured: 0,
            unreachable: 0,
            rejected: (String::new(), Vec::new()),
            asked: None,
            accepted_ns: None,
        }
    }

    /// Returns the state at `now`; an open breaker whose pause is over is half open.
    pub fn state(&mut self, now_ns: u64) -> BreakerState {
        if self.state == BreakerState::Open && now_ns >= self.open_until_ns {
            self.state = BreakerState::HalfOpen;
        }
        self.state
    }

    /// Why it is not closed.
    pub fn cause(&self) -> Option<OpenCause> {
        (self.state != BreakerState::Closed).then_some(self.cause)
    }

    /// Returns the time that it stays open from `now`.
    pub fn wait(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.open_until_ns.saturating_sub(now_ns))
    }

    /// Returns when it opened last.
    pub fn opened_ns(&self) -> u64 {
        self.opened_ns
    }

    /// Ends the pause: the next call is let through now, and the pauses start short again. A target
    /// that refuses everything makes no dead letters: the breaker is not closed before a message is accepted.
    pub fn probe_now(&mut self, now_ns: u64) {
        if self.state != BreakerState::Closed {
            (self.state, self.openings) = (BreakerState::HalfOpen, 0);
            (self.opened_ns, self.open_until_ns) = (now_ns, now_ns);
        }
    }

    /// The target accepted a message of this key. While open, a late answer of an earlier call changes
    /// nothing: the pause stands.
    pub fn accepted(&mut self, key: u64, now_ns: u64) {
        self.accepted_ns = Some(now_ns);
        if self.state == BreakerState::Open {
            return;
        }
        self.close();
        self.rejected.1.clear();
        self.record(key, true);
    }

    /// The target refused a message of this key. Returns whether the message is to be spared, because
    /// the configuration seems to be the reason.
    pub fn rejected(&mut self, key: u64, code: &str, now_ns: u64) -> bool {
        let in_doubt = self.state != BreakerState::Closed && self.cause == OpenCause::Configuration;
        if in_doubt {
            if self.state == BreakerState::HalfOpen {
                self.open(OpenCause::Configuration, None, now_ns);
            }
            return true;
        }
        if self.state == BreakerState::HalfOpen {
            // It answers, so it works.
            self.close();
        }
        self.record(key, true);
        if self.rejected.0 != code {
            self.rejected = (code.to_owned(), Vec::new());
        }
        let keys = &mut self.rejected.1;
        if !keys.contains(&key) {
            keys.push(key);
        }
        if keys.len() >= REJECTED_KEYS && self.state == BreakerState::Closed {
            self.open(OpenCause::Configuration, None, now_ns);
        }
        false
    }

    /// A call failed in a way that may be the target's fault.
    pub fn failed(&mut self, call: FailedCall, now_ns: u64) {
        let FailedCall { key, was_failing, misconfigured, asked } = call;
        self.unreachable = 0;
        let asked = asked.filter(|_| self.asked_by_two(key, now_ns, asked));
        let cause = if misconfigured { OpenCause::Configuration } else { OpenCause::Failing };
        match self.state {
            BreakerState::Open => return,
            BreakerState::HalfOpen => {
                let asked = asked.map(|asked| asked.min(ASKED_PAUSE_MAX));
                return self.open(cause, asked, now_ns);
            }
            BreakerState::Closed => {}
        }
        self.record(key, false);
        let room = self.failed.len() < FAILED_KEYS;
        if room && !was_failing && !self.failed.contains(&key) {
            self.failed.push(key);
            self.misconfigured += usize::from(misconfigured);
        }
        if let Some(asked) = asked.filter(|_| self.asks_for_all(now_ns)) {
            return self.open(OpenCause::Asked, Some(asked.min(ASKED_PAUSE_MAX)), now_ns);
        }
        if self.accepted_ns.is_some_and(|at_ns| since(at_ns, now_ns) < ACCEPTED_LATELY) {
            return;
        }
        if self.failed.len() >= FAILED_KEYS {
            let all = self.misconfigured == self.failed.len();
            let cause = if all { OpenCause::Configuration } else { OpenCause::Failing };
            self.open(cause, None, now_ns);
        } else if self.rate_reached() {
            self.open(cause, None, now_ns);
        }
    }

    /// A call did not reach the target.
    pub fn unreachable(&mut self, now_ns: u64) {
        self.unreachable = self.unreachable.saturating_add(1);
        let probe = self.state == BreakerState::HalfOpen;
        if probe || (self.unreachable >= UNREACHABLE_CALLS && self.state == BreakerState::Closed) {
            self.open(OpenCause::Unreachable, None, now_ns);
        }
    }

    /// The whole destination rests at once: for `pause`, or for as long as its turn is.
    pub fn rest(&mut self, cause: OpenCause, pause: Option<Duration>, now_ns: u64) {
        if self.state != BreakerState::Open {
            self.open(cause, pause, now_ns);
        }
    }

    fn asked_by_two(&mut self, key: u64, now_ns: u64, asked: Option<Duration>) -> bool {
        if asked.is_none() {
            return false;
        }
        let together = |(_, at_ns): &(u64, u64)| since(*at_ns, now_ns) <= ASKED_TOGETHER;
        let other = self.asked.filter(together).is_some_and(|(before, _)| before != key);
        self.asked = Some((key, now_ns));
        other
    }

    /// Returns whether a pause that two keys ask for concerns the whole target: it accepts nothing else,
    /// several keys failed in a row, or most keys fail. Otherwise only these keys wait.
    fn asks_for_all(&self, now_ns: u64) -> bool {
        let accepts = self.accepted_ns.is_some_and(|at_ns| since(at_ns, now_ns) <= ASKED_TOGETHER);
        !accepts || self.failed.len() >= FAILED_KEYS || self.most_keys_fail()
    }

    /// Returns true if enough of the keys in a full window failed.
    fn rate_reached(&self) -> bool {
        self.recent.len() >= self.policy.window && self.most_keys_fail()
    }

    /// Returns true if enough of the keys in the window failed. Each key counts once, by its last call; fewer
    /// than [`FAILED_KEYS`] are never enough.
    fn most_keys_fail(&self) -> bool {
        let mut seen = HashSet::new();
        let last = self.recent.iter().rev().filter(|(key, _)| seen.insert(*key));
        let failing = last.filter(|(_, good)| !good).count();
        failing >= FAILED_KEYS.min(self.policy.window)
            && failing * 100 >= seen.len() * usize::from(self.policy.failure_rate)
    }

    fn open(&mut self, cause: OpenCause, asked: Option<Duration>, now_ns: u64) {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.openings.min(20));
        let pause = doubled.min(self.policy.open_for).max(asked.unwrap_or_default());
        self.openings = self.openings.saturating_add(1);
        (self.state, self.cause) = (BreakerState::Open, cause);
        self.forget();
        let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.opened_ns = now_ns;
        self.open_until_ns = now_ns.saturating_add(pause_ns);
    }

    fn close(&mut self) {
        self.state = BreakerState::Closed;
        self.openings = 0;
        self.unreachable = 0;
        self.failed.clear();
        self.misconfigured = 0;
    }

    fn forget(&mut self) {
        self.recent.clear();
        self.failed.clear();
        self.misconfigured = 0;
        self.unreachable = 0;
        self.rejected.1.clear();
    }

    fn record(&mut self, key: u64, good: bool) {
        self.recent.push_back((key, good));
        while self.recent.len() > self.policy.window.max(1) {
            self.recent.pop_front();
        }
    }
}

fn since(then_ns: u64, now_ns: u64) -> Duration {
    Duration::from_nanos(now_ns.saturating_sub(then_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn call(key: u64) -> FailedCall {
        FailedCall { key, was_failing: false, misconfigured: false, asked: None }
    }

    fn breaker() -> Breaker {
        Breaker::new(BreakerPolicy::default())
    }

    /// Fails until its pause is over, as often as asked; the pauses in seconds.
    fn pauses(breaker: &mut Breaker, times: usize) -> Vec<u64> {
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..times {
            assert_ne!(breaker.state(now), BreakerState::Open);
            breaker.rest(OpenCause::Unreachable, None, now);
            pauses.push(breaker.wait(now).as_secs());
            now += u64::try_from(breaker.wait(now).as_nanos()).unwrap();
        }
        assert_eq!(breaker.state(now), BreakerState::HalfOpen);
        pauses
    }

    #[test]
    fn pauses_double_from_a_second_to_the_limit_and_success_closes_it() {
        let mut breaker = breaker();
        assert_eq!(pauses(&mut breaker, 7), [1, 2, 4, 8, 16, 30, 30]);
        assert!(breaker.cause().is_some());
        breaker.accepted(1, 0);
        assert_eq!((breaker.state(0), breaker.cause()), (BreakerState::Closed, None));
        assert_eq!(pauses(&mut breaker, 1), [1]);
    }

    #[test]
    fn a_probe_on_request_makes_no_dead_letter_while_everything_is_refused() {
        let mut breaker = breaker();
        let refused: Vec<bool> = (0..5).map(|key| breaker.rejected(key, "HTTP_422", 0)).collect();
        assert_eq!(refused, [false; 5]);
        for key in 5..9 {
            breaker.probe_now(SECOND);
            assert_eq!(breaker.state(SECOND), BreakerState::HalfOpen);
            assert!(breaker.rejected(key, "HTTP_422", SECOND), "the message is spared");
            assert_eq!(
                (breaker.state(SECOND), breaker.wait(SECOND)),
                (BreakerState::Open, FIRST_PAUSE)
            );
        }
        breaker.probe_now(SECOND);
        breaker.accepted(9, SECOND);
        assert_eq!(breaker.state(SECOND), BreakerState::Closed);
    }

    #[test]
    fn five_different_keys_in_a_row_open_it_and_one_key_never_does() {
        let mut breaker = breaker();
        (0..20).for_each(|_| breaker.failed(FailedCall { was_failing: true, ..call(7) }, 0));
        (0..20).for_each(|_| breaker.failed(call(7), 0));
        (1..4).for_each(|key| breaker.failed(call(key), 0));
        assert_eq!(breaker.state(0), BreakerState::Closed);
        breaker.accepted(9, 0);
        (1..5).for_each(|key| breaker.failed(call(key), SECOND));
        assert_eq!(breaker.state(SECOND), BreakerState::Closed, "one succeeded in between");
        breaker.failed(call(5), SECOND);
        assert_eq!(breaker.cause(), Some(OpenCause::Failing));
    }

    #[test]
    fn failures_do_not_open_it_while_others_are_accepted() {
        let mut breaker = breaker();
        for round in 0..100 {
            (0..20)
                .for_each(|key| breaker.failed(FailedCall { was_failing: true, ..call(key) }, 0));
            (0..80).for_each(|key| breaker.accepted(1_000 + round * 80 + key, 0));
        }
        assert_eq!(breaker.state(0), BreakerState::Closed);
        (100..200).for_each(|key| breaker.failed(call(key), 1_000_000));
        assert_eq!(breaker.state(1_000_000), BreakerState::Closed, "accepted a millisecond ago");
        breaker.failed(call(200), SECOND);
        assert_eq!(breaker.cause(), Some(OpenCause::Failing));
    }

    #[test]
    fn the_rate_of_a_full_window_counts_each_key_once() {
        let policy = BreakerPolicy { window: 10, failure_rate: 50, ..BreakerPolicy::default() };
        let mut breaker = Breaker::new(policy);
        let again = |key| FailedCall { was_failing: true, ..call(key) };
        (0..5).for_each(|key| breaker.accepted(key, 0));
        (0..99).for_each(|_| breaker.failed(again(9), SECOND));
        assert_eq!(breaker.state(SECOND), BreakerState::Closed, "a hot key is one key");
        (0..5).for_each(|key| breaker.accepted(key, SECOND));
        (0..6).for_each(|_| breaker.accepted(0, SECOND));
        (10..14).for_each(|key| breaker.failed(again(key), 2 * SECOND));
        assert_eq!(breaker.state(2 * SECOND), BreakerState::Closed, "four of them");
        breaker.failed(again(15), 2 * SECOND);
        assert_eq!(breaker.state(2 * SECOND), BreakerState::Open);
    }

    #[test]
    fn two_calls_without_a_connection_open_it() {
        let mut breaker = breaker();
        breaker.unreachable(0);
        breaker.accepted(1, 0);
        breaker.unreachable(0);
        assert_eq!(breaker.state(0), BreakerState::Closed);
        breaker.unreachable(0);
        assert_eq!(breaker.cause(), Some(OpenCause::Unreachable));
        assert_eq!(breaker.state(SECOND), BreakerState::HalfOpen);
        breaker.unreachable(SECOND);
        assert_eq!(breaker.wait(SECOND), Duration::from_secs(2));
    }

    #[test]
    fn five_keys_refused_with_one_code_are_the_configuration_and_the_next_are_spared() {
        let mut breaker = breaker();
        assert!((0..4).all(|key| !breaker.rejected(key, "HTTP_400", 0)));
        assert!(!breaker.rejected(4, "HTTP_422", 0), "another code begins again");
        assert!((5..9).all(|key| !breaker.rejected(key, "HTTP_422", 0)));
        assert_eq!(breaker.cause(), Some(OpenCause::Configuration));
        assert!(breaker.rejected(10, "HTTP_422", 0), "in flight when it opened");
        assert_eq!(breaker.state(SECOND), BreakerState::HalfOpen);
        assert!(breaker.rejected(11, "HTTP_422", SECOND), "a probe");
        assert_eq!(breaker.state(SECOND), BreakerState::Open);
        assert_eq!(breaker.state(9 * SECOND), BreakerState::HalfOpen);
        breaker.accepted(12, 9 * SECOND);
        assert!(!breaker.rejected(11, "HTTP_422", 9 * SECOND), "one that is really bad");
        assert_eq!(breaker.state(9 * SECOND), BreakerState::Closed);
    }

    #[test]
    fn keys_that_are_not_let_in_are_the_configuration() {
        let mut breaker = breaker();
        (0..5).for_each(|key| breaker.failed(FailedCall { misconfigured: true, ..call(key) }, 0));
        assert_eq!(breaker.cause(), Some(OpenCause::Configuration));
    }

    #[test]
    fn a_pause_is_kept_if_two_keys_ask_for_it_and_has_a_limit() {
        let hour = Some(Duration::from_secs(3_600));
        let mut breaker = breaker();
        (0..9).for_each(|_| breaker.failed(FailedCall { asked: hour, ..call(1) }, 0));
        assert_eq!(breaker.state(0), BreakerState::Closed, "only that key waits");
        breaker.failed(FailedCall { asked: hour, ..call(2) }, 0);
        assert_eq!((breaker.cause(), breaker.wait(0)), (Some(OpenCause::Asked), ASKED_PAUSE_MAX));
        breaker.accepted(3, 0);
        assert_eq!(breaker.state(0), BreakerState::Open, "a late answer does not end the pause");
    }

    #[test]
    fn a_pause_that_few_keys_ask_for_does_not_open_it_while_others_are_accepted() {
        let asked = Some(Duration::from_secs(20));
        let mut breaker = breaker();
        for round in 0..9 {
            let now_ns = round * 20 * SECOND;
            (100..110).for_each(|key| breaker.accepted(key, now_ns));
            (1..3)
                .for_each(|key| breaker.failed(FailedCall { asked, ..call(key) }, now_ns + SECOND));
            assert_eq!(
                breaker.state(now_ns + SECOND),
                BreakerState::Closed,
                "two tenants of a target"
            );
        }
        let now_ns = 190 * SECOND;
        (100..104).for_each(|key| breaker.failed(FailedCall { asked, ..call(key) }, now_ns));
        assert_eq!(
            breaker.cause(),
            Some(OpenCause::Asked),
            "several in a row, with the two before"
        );
        assert_eq!(breaker.wait(now_ns), Duration::from_secs(20));
    }
}
