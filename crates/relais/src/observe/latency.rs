//! Latency: histograms with fixed buckets, and the clock that measures it.
//!
//! Invariant: recording is two additions to atomics; a histogram never grows. Nothing here decides
//! anything, so a wrong clock falsifies figures and nothing else.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use relais_core::time::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Upper bounds of the buckets in microseconds, from a millisecond to four hours; one more bucket counts
/// longer durations.
pub const BOUNDS_MICROS: [u64; 20] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
    14_400_000_000,
];
const BUCKETS: usize = BOUNDS_MICROS.len() + 1;

/// Durations counted by bucket.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    micros: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Latency {
        let counts = std::array::from_fn(|at| self.counts[at].load(Relaxed));
        Latency { counts, micros: self.micros.load(Relaxed) }
    }
}

/// A histogram at one moment. The difference of two covers the time between them:
///
/// ```
/// # use relais::observe::Latency;
/// # fn show(earlier: &Latency, now: &Latency) {
/// let interval = now.since(earlier);
/// if let Some(p95) = interval.quantile(0.95) {
///     println!("95 % of {} within {p95:?}", interval.count());
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    counts: [u64; BUCKETS],
    micros: u64,
}

impl Latency {
    pub(super) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the latency of counts by bucket, without their sum; missing buckets are empty.
    pub(super) fn of_counts(counts: &[u64]) -> Self {
        let counts = std::array::from_fn(|at| counts.get(at).copied().unwrap_or(0));
        Self { counts, micros: 0 }
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// Returns each bound with the number of durations up to it; for the bucket without a bound that is
    /// [`Latency::count`].
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut so_far = 0;
        BOUNDS_MICROS.iter().zip(self.counts).map(move |(bound, count)| {
            so_far += count;
            (Duration::from_micros(*bound), so_far)
        })
    }

    /// Returns the difference to an earlier snapshot of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = std::array::from_fn(|at| self.counts[at].saturating_sub(earlier.counts[at]));
        Self { counts, micros: self.micros.saturating_sub(earlier.micros) }
    }

    /// Returns the sum of both, e.g. of two destinations.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let counts = std::array::from_fn(|at| self.counts[at] + other.counts[at]);
        Self { counts, micros: self.micros.saturating_add(other.micros) }
    }

    /// Returns the quantile `q` (0.5, 0.95), interpolated within its bucket; `None` if nothing was counted.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = (q.clamp(0.0, 1.0) * count as f64).max(1.0);
        let (mut before, mut lower) = (0.0, 0.0);
        for (bound, in_bucket) in BOUNDS_MICROS.iter().zip(self.counts) {
            let (upper, within) = (*bound as f64, in_bucket as f64);
            if before + within >= wanted {
                let share = (wanted - before) / within;
                return Some(Duration::from_micros((lower + share * (upper - lower)) as u64));
            }
            (before, lower) = (before + within, upper);
        }
        // Longer than the longest bound, by an unknown amount.
        Some(Duration::from_micros(lower as u64))
    }
}

impl Serialize for Latency {
    /// Serialises the count, the mean and two quantiles in milliseconds, for operators.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = |took: Option<Duration>| took.map(|took| took.as_micros() as f64 / 1_000.0);
        let mean = self.micros.checked_div(self.count()).map(Duration::from_micros);
        let mut fields = serializer.serialize_struct("Latency", 4)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("mean_ms", &millis(mean))?;
        fields.serialize_field("p50_ms", &millis(self.quantile(0.5)))?;
        fields.serialize_field("p95_ms", &millis(self.quantile(0.95)))?;
        fields.end()
    }
}

/// The clock of this machine, corrected as little as necessary to agree with the database.
#[derive(Debug, Default)]
pub(crate) struct DatabaseClock {
    /// Microseconds that the database is ahead.
    ahead: AtomicI64,
}

impl DatabaseClock {
    /// Learns that the database returned `now` between these two moments of this machine.
    pub(crate) fn learn(&self, asked: SystemTime, now: Timestamp, answered: SystemTime) {
        let least = now.0.saturating_sub(micros(answered));
        let most = now.0.saturating_sub(micros(asked));
        // Within the time of the answer the clocks may agree: no correction.
        self.ahead.store(0_i64.clamp(least.min(most), most), Relaxed);
    }

    /// Returns the time of the database, as far as it is known here.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(micros(SystemTime::now()).saturating_add(self.ahead.load(Relaxed)))
    }

    /// Returns the time after `left`, rounded to the second.
    pub(crate) fn second_after(&self, left: Duration) -> Timestamp {
        const SECOND: i64 = 1_000_000;
        let left = i64::try_from(left.as_micros()).unwrap_or(i64::MAX);
        let at = self.now().0.saturating_add(left).saturating_add(SECOND / 2);
        Timestamp(at - at.rem_euclid(SECOND))
    }

    /// Returns the time since `then`, a time of the database.
    pub(crate) fn since(&self, then: Timestamp) -> Duration {
        let passed = self.now().0.saturating_sub(then.0);
        Duration::from_micros(u64::try_from(passed).unwrap_or(0))
    }
}

fn micros(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(millis: impl IntoIterator<Item = u64>) -> Histogram {
        let histogram = Histogram::default();
        millis.into_iter().for_each(|took| histogram.record(Duration::from_millis(took)));
        histogram
    }

    #[test]
    fn quantiles_are_as_exact_as_the_buckets() {
        let latency = filled((1..=100).map(|n| n * 10)).snapshot();
        assert_eq!(latency.count(), 100);
        let p50 = latency.quantile(0.5).unwrap();
        let p95 = latency.quantile(0.95).unwrap();
        assert!(p50 > Duration::from_millis(400) && p50 <= Duration::from_millis(500), "{p50:?}");
        assert!(p95 > Duration::from_millis(900) && p95 <= Duration::from_secs(1), "{p95:?}");
        assert_eq!(Latency::default().quantile(0.5), None);
    }

    #[test]
    fn an_interval_counts_only_its_own_durations() {
        let histogram = filled([1; 1_000]);
        let before = histogram.snapshot();
        histogram.record(Duration::from_secs(20));
        let interval = histogram.snapshot().since(&before);
        assert_eq!(interval.count(), 1);
        assert!(interval.quantile(0.5).unwrap() > Duration::from_secs(10));
        assert_eq!(interval.and(&before).count(), 1_001);
    }

    #[test]
    fn the_longest_and_the_shortest_have_a_bucket() {
        let histogram = filled([0]);
        histogram.record(Duration::MAX);
        let latency = histogram.snapshot();
        assert_eq!(latency.count(), 2);
        assert_eq!(latency.cumulative().last().map(|(_, count)| count), Some(1));
        assert_eq!(latency.cumulative().next().map(|(_, count)| count), Some(1));
    }

    #[test]
    fn the_clock_is_corrected_only_as_far_as_the_database_proves() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let ahead = |now: i64| {
            let clock = DatabaseClock::default();
            clock.learn(at(100), Timestamp(now * 1_000_000), at(103));
            clock.ahead.load(Relaxed)
        };
        assert_eq!(ahead(101), 0, "within the time of the answer");
        assert_eq!(ahead(113), 10_000_000, "ahead of the moment it was answered at the latest");
        assert_eq!(ahead(90), -10_000_000, "behind the moment it was asked");
    }
}
