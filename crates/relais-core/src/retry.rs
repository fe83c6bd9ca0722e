//! When to try again: exponential backoff with jitter, as arithmetic.

use std::time::Duration;

/// The number of attempts and the pauses between them: exponential backoff.
///
/// ```
/// use std::time::Duration;
///
/// use relais_core::retry::RetryPolicy;
///
/// let policy = RetryPolicy::patient().attempts_max(50).max(Duration::from_secs(3_600));
/// assert_eq!(policy.first, Duration::from_millis(100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Attempts before a row becomes a dead letter; at least 1.
    pub attempts_max: u32,
    /// The pause after the first failed attempt.
    pub first: Duration,
    /// Each pause is this many times the one before.
    pub factor: f64,
    /// The longest pause.
    pub max: Duration,
    /// Spread each pause over 100 % to 125 % of itself, so that equal failures do not come back
    /// together. Never shorter: a target that named a pause gets at least that.
    pub jitter: bool,
}

impl Default for RetryPolicy {
    /// Five attempts, 100 ms doubling to 1.6 s: what a broker's hiccup needs. The default of brokers and
    /// of the steps of a process.
    fn default() -> Self {
        Self {
            attempts_max: 5,
            first: Duration::from_millis(100),
            factor: 2.0,
            max: Duration::from_millis(1_600),
            jitter: true,
        }
    }
}

/// The longest pause after a failure that used no attempt: the target is back soon, or it is not.
pub const UNCOUNTED_PAUSE_MAX: Duration = Duration::from_secs(30);

crate::setters!(RetryPolicy {
    /// Sets the number of attempts before a row becomes a dead letter.
    attempts_max: = u32,
    /// Sets the pause after the first failed attempt.
    first: = Duration,
    /// Sets the factor from one pause to the next.
    factor: = f64,
    /// Sets the longest pause.
    max: = Duration,
    /// Turns jitter on or off.
    jitter: = bool,
});

impl RetryPolicy {
    /// Returns a policy whose pauses double from `first` to `max`, with jitter.
    pub const fn new(attempts_max: u32, first: Duration, max: Duration) -> Self {
        Self { attempts_max, first, factor: 2.0, max, jitter: true }
    }

    /// Twenty attempts, 100 ms doubling to 10 minutes, about an hour in all: what a service that is
    /// deployed, restarted or repaired needs. The default of destinations and handlers.
    pub fn patient() -> Self {
        Self { attempts_max: 20, max: Duration::from_secs(600), ..Self::default() }
    }

    /// The pause after `failures` failures in a row that used no attempt.
    pub fn uncounted_pause(&self, failures: u32, asked: Option<Duration>, random: f64) -> Duration {
        let capped = Self { max: self.max.min(UNCOUNTED_PAUSE_MAX), ..*self };
        capped.pause(failures, asked, random)
    }

    /// The pause after `attempts` failed attempts (1 for the first), given a random number in
    /// `0.0..1.0`. `asked` is what the target asked for; the longer pause wins.
    pub fn pause(&self, attempts: u32, asked: Option<Duration>, random: f64) -> Duration {
        let doublings = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.first.as_secs_f64() * self.factor.powi(doublings);
        let asked = asked.unwrap_or_default();
        let pause = seconds.min(self.max.as_secs_f64()).max(asked.as_secs_f64());
        let spread = if self.jitter { 1.0 + random.clamp(0.0, 1.0) / 4.0 } else { 1.0 };
        // What is no duration came from a factor below zero, or from beyond all durations.
        Duration::try_from_secs_f64(pause * spread).unwrap_or(self.max.max(asked))
    }

    /// Returns true if no attempt is left after `attempts`.
    pub fn exhausted(&self, attempts: u32) -> bool {
        attempts >= self.attempts_max.max(1)
    }

    /// The longest time between the first and the last attempt: retention must exceed it.
    pub fn horizon(&self) -> Duration {
        (1..self.attempts_max)
            .map(|attempt| self.pause(attempt, None, 1.0))
            .fold(Duration::ZERO, Duration::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_five_attempts_from_100_ms_to_1600_ms() {
        let policy = RetryPolicy { jitter: false, ..RetryPolicy::default() };
        let pauses: Vec<_> = (1..=5).map(|n| policy.pause(n, None, 0.5).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_600]);
        assert!(!policy.exhausted(4));
        assert!(policy.exhausted(5));
        assert_eq!(policy.horizon().as_millis(), 1_500);
    }

    #[test]
    fn the_patient_default_lasts_about_an_hour_and_uncounted_pauses_stay_short() {
        let policy = RetryPolicy { jitter: false, ..RetryPolicy::patient() };
        let minutes = policy.horizon().as_secs() / 60;
        assert!((60..=90).contains(&minutes), "{minutes}");
        assert_eq!(policy.pause(20, None, 0.0), Duration::from_secs(600));
        assert_eq!(policy.uncounted_pause(1, None, 0.0), Duration::from_millis(100));
        assert_eq!(policy.uncounted_pause(20, None, 0.0), UNCOUNTED_PAUSE_MAX);
        let asked = Some(Duration::from_secs(3_600));
        assert_eq!(policy.uncounted_pause(1, asked, 0.0), Duration::from_secs(3_600));
    }

    #[test]
    fn extremes_neither_overflow_nor_go_negative() {
        let wild = RetryPolicy {
            attempts_max: u32::MAX,
            first: Duration::from_secs(3_600),
            factor: 1e300,
            max: Duration::MAX,
            jitter: true,
        };
        for attempts in [0, 1, 2, 1_000, u32::MAX] {
            for random in [-1.0, 0.0, 0.5, 1.0, f64::NAN] {
                assert!(wild.pause(attempts, None, random) >= Duration::ZERO);
            }
        }
        let none = RetryPolicy { factor: 0.0, ..RetryPolicy::default() };
        assert!(none.pause(9, None, 0.0) >= Duration::ZERO);
    }

    #[test]
    fn jitter_only_lengthens_and_what_the_target_asks_is_kept() {
        let policy = RetryPolicy::default();
        let asked = Some(Duration::from_secs(10));
        assert_eq!(policy.pause(1, asked, 0.0), Duration::from_secs(10));
        assert_eq!(policy.pause(1, asked, 1.0), Duration::from_millis(12_500));
        assert_eq!(policy.pause(1, Some(Duration::MAX), 1.0), Duration::MAX);
        assert!(policy.pause(1, asked, f64::NAN) >= Duration::from_secs(10));
    }
}
