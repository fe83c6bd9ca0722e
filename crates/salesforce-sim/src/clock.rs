//! The time of the simulated org: real time plus what the test has skipped.

use std::time::Duration;

use jiff::Timestamp;

/// A clock that moves only forward.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OrgClock {
    skipped: Duration,
}

/// Maximum time that can be skipped; keeps dates printable.
const SKIP_MAX: Duration = Duration::from_secs(1_000 * 366 * 24 * 60 * 60);

impl OrgClock {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now() + self.skipped
    }

    pub(crate) fn skip(&mut self, time: Duration) {
        self.skipped = self.skipped.saturating_add(time).min(SKIP_MAX);
    }
}

/// Formats as `yyyy-MM-ddTHH:mm:ss.SSS+0000`, as in every response.
pub(crate) fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.3f+0000").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_an_offset_without_colon() {
        let time: Timestamp = "2022-01-02T21:33:43Z".parse().unwrap();
        assert_eq!(written(time), "2022-01-02T21:33:43.000+0000");
    }

    #[test]
    fn skipped_time_has_passed() {
        let mut clock = OrgClock::default();
        let before = clock.now();
        clock.skip(Duration::from_secs(7 * 24 * 60 * 60));
        assert!(clock.now().duration_since(before).as_hours() >= 7 * 24);
    }
}
