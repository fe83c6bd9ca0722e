//! The used share of the org's daily API calls, as its responses report it.
//!
//! Invariant: above 80 % every call waits a little. Above 95 % there are no calls, except one every
//! five minutes to read the usage again: the rest is reserved for the users of the org.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Above this share calls wait.
const SLOW_PERCENT: u64 = 80;
/// Above this share there are no calls.
const STOP_PERCENT: u64 = 95;
/// The wait just below [`STOP_PERCENT`]; it grows linearly from zero.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// While stopped, one call per this interval reads the usage.
const READ_EVERY: Duration = Duration::from_secs(5 * 60);

/// API calls of the whole org in the last 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiCallUsage {
    /// The calls of the last 24 hours.
    pub used: u64,
    /// Most calls in 24 hours.
    pub limit: u64,
}

impl ApiCallUsage {
    /// Returns whole percents, rounded down; an org without an allocation counts as used up.
    pub fn percent(self) -> u64 {
        self.used.saturating_mul(100).checked_div(self.limit).unwrap_or(100)
    }
}

/// The API call budget of an org. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ApiCallBudget(Arc<Mutex<Option<UsageReading>>>);

#[derive(Clone, Copy, Debug)]
struct UsageReading {
    usage: ApiCallUsage,
    at: Instant,
}

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Allowed after this wait, usually zero.
    Go(Duration),
    Stop {
        usage: ApiCallUsage,
        /// Time until one call may read the usage.
        after: Duration,
    },
}

impl ApiCallBudget {
    /// Returns the last reading; `None` before the first response.
    pub fn usage(&self) -> Option<ApiCallUsage> {
        self.lock().map(|reading| reading.usage)
    }

    /// Records the `Sforce-Limit-Info` of a response.
    pub(super) fn note(&self, header: &str, now: Instant) {
        if let Some(usage) = parse(header) {
            *self.lock() = Some(UsageReading { usage, at: now });
        }
    }

    pub(super) fn admit(&self, now: Instant) -> Admission {
        let mut last = self.lock();
        let Some(reading) = last.as_mut() else { return Admission::Go(Duration::ZERO) };
        let percent = reading.usage.percent();
        if percent < STOP_PERCENT {
            let above = u32::try_from(percent.saturating_sub(SLOW_PERCENT)).unwrap_or(u32::MAX);
            let steps = u32::try_from(STOP_PERCENT - SLOW_PERCENT).unwrap_or(1);
            return Admission::Go(WAIT_MAX * above / steps);
        }
        let age = now.saturating_duration_since(reading.at);
        if age < READ_EVERY {
            return Admission::Stop { usage: reading.usage, after: READ_EVERY - age };
        }
        // One call is allowed; the others wait for its reading.
        reading.at = now;
        Admission::Go(Duration::ZERO)
    }

    fn lock(&self) -> MutexGuard<'_, Option<UsageReading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses `api-usage=18/5000; per-app-api-usage=17/250(appName=x)`, and returns the higher usage.
fn parse(header: &str) -> Option<ApiCallUsage> {
    let one = |part: &str| {
        let (name, value) = part.trim().split_once('=')?;
        let (used, limit) = value.split_once('/')?;
        let digits = limit.find(|c: char| !c.is_ascii_digit()).unwrap_or(limit.len());
        let usage = ApiCallUsage { used: used.parse().ok()?, limit: limit[..digits].parse().ok()? };
        name.ends_with("api-usage").then_some(usage)
    };
    header.split(';').filter_map(one).max_by_key(|usage| usage.percent())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(used: u64, limit: u64) -> Option<ApiCallUsage> {
        Some(ApiCallUsage { used, limit })
    }

    #[test]
    fn the_header_gives_the_reading() {
        assert_eq!(parse("api-usage=18/5000"), usage(18, 5_000));
        let both = "api-usage=25/5000; per-app-api-usage=17/250(appName=sample-connected-app)";
        assert_eq!(parse(both), usage(17, 250));
        for odd in ["", "api-usage=", "api-usage=x/y", "usage=1/2", "api-usage=1", "api-usage=1/"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn calls_slow_down_and_stop_before_the_budget_is_used_up() {
        let now = Instant::now();
        let budget = ApiCallBudget::default();
        let after = |used: u64| {
            budget.note(&format!("api-usage={used}/1000"), now);
            budget.admit(now)
        };
        assert_eq!(after(0), Admission::Go(Duration::ZERO));
        assert_eq!(after(799), Admission::Go(Duration::ZERO));
        assert_eq!(after(809), Admission::Go(Duration::ZERO));
        assert_eq!(after(830), Admission::Go(Duration::from_secs(1)));
        assert!(matches!(after(949), Admission::Go(wait) if wait > Duration::from_secs(4)));
        assert!(matches!(after(950), Admission::Stop { after: READ_EVERY, .. }));
        assert!(matches!(after(2_000), Admission::Stop { .. }));
        assert_eq!(budget.usage(), usage(2_000, 1_000));
    }

    #[test]
    fn while_stopped_one_call_at_a_time_takes_a_reading() {
        let start = Instant::now();
        let budget = ApiCallBudget::default();
        budget.note("api-usage=99/100", start);
        let later = start + READ_EVERY;
        assert_eq!(budget.admit(later), Admission::Go(Duration::ZERO));
        assert!(matches!(budget.admit(later), Admission::Stop { .. }));
        budget.note("api-usage=10/100", later);
        assert_eq!(budget.clone().admit(later), Admission::Go(Duration::ZERO));
    }

    #[test]
    fn an_org_without_allocation_is_used_up() {
        assert_eq!(ApiCallUsage { used: 0, limit: 0 }.percent(), 100);
        assert_eq!(ApiCallUsage { used: u64::MAX, limit: 1 }.percent(), u64::MAX);
    }
}
