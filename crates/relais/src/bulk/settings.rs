//! The settings of a bulk destination.

use std::{fmt, sync::Arc, time::Duration};

use relais_core::publisher::Publisher;

use crate::app::DestinationSettings;

/// Most rows of a job. Planning one holds its rows in memory, without their payloads: about 0.6 kB each.
pub const JOB_ROWS_MAX: u32 = 50_000;

/// The limits and policies of a bulk destination.
#[derive(Clone)]
#[non_exhaustive]
pub struct BulkSettings {
    /// Retries, dead letters, breaker. `rate` counts calls; `timeout` is for calls that carry no rows.
    pub destination: DestinationSettings,
    /// The number of waiting rows from which they are sent in a job; fewer are sent by `small`.
    pub threshold: usize,
    /// Sends few rows at once; without it every row is sent in a job.
    pub small: Option<Arc<dyn Publisher>>,
    /// Time that a job which is not full waits for more rows, without `small`.
    pub linger: Duration,
    /// The pause before the first poll of a running job; doubles up to `poll_max`.
    pub poll_first: Duration,
    /// The longest pause between two polls of a job.
    pub poll_max: Duration,
    /// Time limit of an upload, of reading results and of reading fresh data.
    pub transfer_timeout: Duration,
    /// The interval of sweeps for jobs that a lost answer left at the target.
    pub sweep_every: Duration,
}

relais_core::setters!(BulkSettings {
    /// Sets retries, dead letters and breaker.
    destination: = DestinationSettings,
    /// Sets the number of waiting rows from which they are sent in a job.
    threshold: = usize,
    /// Sets the publisher for fewer rows.
    small: ? Arc<dyn Publisher>,
    /// Sets how long a job that is not full waits for more rows.
    linger: = Duration,
    /// Sets the pause before the first poll of a job.
    poll_first: = Duration,
    /// Sets the longest pause between two polls of a job.
    poll_max: = Duration,
    /// Sets the longest time of an upload, or of reading results or fresh data.
    transfer_timeout: = Duration,
    /// Sets how often jobs that a lost answer left at the target are cleaned up.
    sweep_every: = Duration,
});

impl Default for BulkSettings {
    fn default() -> Self {
        Self {
            destination: DestinationSettings::default(),
            threshold: 2_000,
            small: None,
            linger: Duration::from_secs(1),
            poll_first: Duration::from_secs(1),
            poll_max: Duration::from_secs(30),
            transfer_timeout: Duration::from_secs(600),
            sweep_every: Duration::from_secs(900),
        }
    }
}

impl fmt::Debug for BulkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkSettings")
            .field("destination", &self.destination)
            .field("threshold", &self.threshold)
            .field("small", &self.small.is_some())
            .finish_non_exhaustive()
    }
}
