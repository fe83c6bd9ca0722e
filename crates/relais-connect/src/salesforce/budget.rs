//! How much of the org's daily allocation of calls is used, as its answers say.
//!
//! Invariant: from 80 % on every call waits a little, from 95 % on none is made until the reading is
//! old enough for one call to take another: the rest belongs to the org's people.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// From this share on calls wait.
const SLOW_PERCENT: u64 = 80;
/// From this share on there are none.
const STOP_PERCENT: u64 = 95;
/// The wait just below [`STOP_PERCENT`]; it grows evenly from nothing.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// While stopped, one call in this time takes a new reading.
const READ_EVERY: Duration = Duration::from_secs(5 * 60);

/// Calls of the last 24 hours, by everybody in the org.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub used: u64,
    pub limit: u64,
}

impl Usage {
    /// Whole percents, rounded down; an org without any allocation is used up.
    pub fn percent(self) -> u64 {
        self.used.saturating_mul(100).checked_div(self.limit).unwrap_or(100)
    }
}

/// The gauge. Clones show the same one.
#[derive(Clone, Debug, Default)]
pub struct Budget(Arc<Mutex<Option<Reading>>>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    usage: Usage,
    at: Instant,
}

/// Whether a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// After this wait, usually none.
    Go(Duration),
    Stop {
        usage: Usage,
        /// Until one call may take a new reading.
        after: Duration,
    },
}

impl Budget {
    /// The last reading; `None` before the first answer.
    pub fn usage(&self) -> Option<Usage> {
        self.lock().map(|reading| reading.usage)
    }

    /// Takes the reading of an answer's `Sforce-Limit-Info`.
    pub(super) fn note(&self, header: &str, now: Instant) {
        if let Some(usage) = parse(header) {
            *self.lock() = Some(Reading { usage, at: now });
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
        // One call goes; the others wait for what it reads.
        reading.at = now;
        Admission::Go(Duration::ZERO)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `api-usage=18/5000; per-app-api-usage=17/250(appName=x)`: the one that is nearer to its end.
fn parse(header: &str) -> Option<Usage> {
    let one = |part: &str| {
        let (name, value) = part.trim().split_once('=')?;
        let (used, limit) = value.split_once('/')?;
        let digits = limit.find(|c: char| !c.is_ascii_digit()).unwrap_or(limit.len());
        let usage = Usage { used: used.parse().ok()?, limit: limit[..digits].parse().ok()? };
        name.ends_with("api-usage").then_some(usage)
    };
    header.split(';').filter_map(one).max_by_key(|usage| usage.percent())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(used: u64, limit: u64) -> Option<Usage> {
        Some(Usage { used, limit })
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
    fn calls_slow_down_and_stop_before_the_budget_is_gone() {
        let now = Instant::now();
        let budget = Budget::default();
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
        let budget = Budget::default();
        budget.note("api-usage=99/100", start);
        let later = start + READ_EVERY;
        assert_eq!(budget.admit(later), Admission::Go(Duration::ZERO));
        assert!(matches!(budget.admit(later), Admission::Stop { .. }));
        budget.note("api-usage=10/100", later);
        assert_eq!(budget.clone().admit(later), Admission::Go(Duration::ZERO));
    }

    #[test]
    fn an_org_without_allocation_is_used_up() {
        assert_eq!(Usage { used: 0, limit: 0 }.percent(), 100);
        assert_eq!(Usage { used: u64::MAX, limit: 1 }.percent(), u64::MAX);
    }
}
