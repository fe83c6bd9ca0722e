//! A point in time as the database gave it; for display and arithmetic, never read from a clock.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Reads RFC 3339 text such as `2026-11-15T12:00:00.123Z`.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_microsecond()))
    }

    /// From milliseconds since 1970, as brokers give them; saturates.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Returns true for the years 1 to 9999, which every database and every text of a time can hold.
    pub fn is_common(self) -> bool {
        (-62_135_596_800_000_000..=253_402_300_799_999_999).contains(&self.0)
    }

    /// Whole seconds from `self` to `later`, zero if `later` is earlier.
    pub fn seconds_until(self, later: Self) -> u64 {
        u64::try_from(later.0.saturating_sub(self.0).max(0) / 1_000_000).unwrap_or(0)
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds; out-of-range values show as raw microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not an RFC 3339 time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_number_agree() {
        let at = Timestamp::parse("2026-11-15T12:00:00.123Z").unwrap();
        assert_eq!(at.to_string(), "2026-11-15T12:00:00.123Z");
        assert_eq!(Timestamp::from_millis(i64::MAX).0, i64::MAX);
        assert_eq!(at.seconds_until(Timestamp(at.0 + 2_500_000)), 2);
        assert_eq!(at.seconds_until(Timestamp(0)), 0);
    }
}
