//! The time of the simulated org: the real one, and what was skipped by the admin.

use std::time::Duration;

use jiff::Timestamp;

/// Moves only forward.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    skipped: Duration,
}

/// All that can be skipped; it keeps the calendar within what can be written.
const SKIP_MAX: Duration = Duration::from_secs(1_000 * 366 * 24 * 60 * 60);

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now() + self.skipped
    }

    pub(crate) fn skip(&mut self, time: Duration) {
        self.skipped = self.skipped.saturating_add(time).min(SKIP_MAX);
    }
}

/// `yyyy-MM-ddTHH:mm:ss.SSS+0000`, as in every answer.
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
    fn skipped_time_is_over() {
        let mut clock = Clock::default();
        let before = clock.now();
        clock.skip(Duration::from_secs(7 * 24 * 60 * 60));
        assert!(clock.now().duration_since(before).as_hours() >= 7 * 24);
    }
}
