//! Pauses and limits in time that several workers share.

use std::time::Duration;

/// Heartbeats within one lease.
const BEATS_PER_LEASE: u32 = 3;
/// The pause after a failed heartbeat.
const BEAT_RETRY: Duration = Duration::from_millis(200);
/// The longest rest of an idle worker between two reads of its table.
pub(crate) const REST_MAX: Duration = Duration::from_secs(1);
/// The longest rest of a relay without rows and calls: it is woken for new rows.
pub(crate) const WOKEN_REST_MAX: Duration = Duration::from_secs(5);
/// Time that a stopping relay waits for calls in flight beyond their own time limit.
pub(crate) const CALL_STOP_GRACE: Duration = Duration::from_secs(1);
/// The longest time that the result of a call waits for others to share a commit with.
pub(crate) const SETTLE_WITHIN: Duration = Duration::from_millis(5);
/// The first pause after the database did not answer.
const DATABASE_PAUSE: Duration = Duration::from_millis(100);
const DATABASE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Returns the pause between two heartbeats of a lease.
pub(crate) fn beat_interval(lease: Duration) -> Duration {
    lease / BEATS_PER_LEASE
}

/// Returns the pause after a failed heartbeat of a lease.
pub(crate) fn beat_retry(lease: Duration) -> Duration {
    BEAT_RETRY.min(beat_interval(lease))
}

/// Pauses while the database does not answer: each is twice as long as the one before, up to 5 s.
#[derive(Debug)]
pub(crate) struct DatabaseBackoff(Duration);

impl Default for DatabaseBackoff {
    fn default() -> Self {
        Self(DATABASE_PAUSE)
    }
}

impl DatabaseBackoff {
    /// Returns the next pause.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(DATABASE_PAUSE_MAX);
        pause
    }

    /// Begins again with the shortest pause.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_begin_again_after_an_answer() {
        let mut backoff = DatabaseBackoff::default();
        let pauses: Vec<Duration> = (0..8).map(|_| backoff.next_pause()).collect();
        assert_eq!(pauses[..2], [DATABASE_PAUSE, DATABASE_PAUSE * 2]);
        assert_eq!(pauses[7], DATABASE_PAUSE_MAX);
        backoff.reset();
        assert_eq!(backoff.next_pause(), DATABASE_PAUSE);
    }

    #[test]
    fn a_failed_heartbeat_is_repeated_within_the_lease_however_short() {
        assert_eq!(beat_retry(Duration::from_secs(10)), BEAT_RETRY);
        assert_eq!(beat_retry(Duration::from_millis(300)), Duration::from_millis(100));
    }
}
