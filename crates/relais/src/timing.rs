//! Pauses and limits in time that several workers share.

use std::time::Duration;

/// Heartbeats within one lease.
const BEATS_PER_LEASE: u32 = 3;
/// The pause after a failed heartbeat.
const BEAT_RETRY: Duration = Duration::from_millis(200);
/// The longest rest of an idle worker between two reads of its table.
pub(crate) const REST_MAX: Duration = Duration::from_secs(1);
/// Time that a stopping relay waits for calls in flight beyond their own time limit.
pub(crate) const CALL_STOP_GRACE: Duration = Duration::from_secs(1);
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
