//! One destination: its settings, and the worker that serves it.

use std::{sync::Arc, time::Duration};

use relais_core::{
    breaker::BreakerPolicy, bulk::BulkTarget, outbox::OnDeadLetter, publisher::Publisher,
    retry::RetryPolicy, store::StoreDriver,
};
use tokio::sync::watch;

use super::App;
use crate::{
    bulk::{BulkRelay, BulkSettings},
    lanes::LaneKeeper,
    limits::SharedLimits,
    observe::DestinationCounters,
    publish_guard::PublishGuard,
    relay::Relay,
    worker::Worker,
};

/// The limits and policies of one destination.
///
/// ```
/// use std::time::Duration;
///
/// use relais::{DestinationSettings, OnDeadLetter, RetryPolicy};
///
/// let settings = DestinationSettings::default()
///     .retry(RetryPolicy::patient().attempts_max(50))
///     .on_dead_letter(OnDeadLetter::Skip)
///     .rate(50, Duration::from_secs(1))
///     .timeout(Duration::from_secs(5));
/// assert_eq!(settings.concurrency, 10);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DestinationSettings {
    /// The number of attempts and the pauses between them.
    pub retry: RetryPolicy,
    /// The effect of a dead letter on later messages of its key.
    pub on_dead_letter: OnDeadLetter,
    /// Maximum number of messages in this time.
    pub rate: Option<(u32, Duration)>,
    /// Maximum number of calls in flight.
    pub concurrency: usize,
    /// Time limit of one call.
    pub timeout: Duration,
    /// Maximum number of messages in one call; a target may take fewer.
    pub batch_max: usize,
    /// The limits at which the circuit breaker opens.
    pub breaker: BreakerPolicy,
}

relais_core::setters!(DestinationSettings {
    /// Sets the number of attempts and the pauses between them.
    retry: = RetryPolicy,
    /// Sets the effect of a dead letter on later messages of its key.
    on_dead_letter: = OnDeadLetter,
    /// Sets how many calls may be in flight at once.
    concurrency: = usize,
    /// Sets the longest time of one call.
    timeout: = Duration,
    /// Sets how many messages one call may carry; a target may take fewer.
    batch_max: = usize,
    /// Sets the limits at which the circuit breaker opens.
    breaker: = BreakerPolicy,
});

impl DestinationSettings {
    /// Limits the messages sent in each period.
    #[must_use]
    pub fn rate(mut self, messages: u32, period: Duration) -> Self {
        self.rate = Some((messages, period));
        self
    }
}

impl Default for DestinationSettings {
    fn default() -> Self {
        Self {
            retry: RetryPolicy::patient(),
            on_dead_letter: OnDeadLetter::Park,
            rate: None,
            concurrency: 10,
            timeout: Duration::from_secs(30),
            batch_max: 1_000,
            breaker: BreakerPolicy::default(),
        }
    }
}

impl App {
    /// Sets a digest of the configuration of a destination: its kind, target and limits, without secrets.
    /// Processes that serve one destination with different digests are warned about once a minute, and
    /// `relais status` and the console show them. `relais run` sets it.
    #[must_use]
    pub fn configuration_digest(mut self, destination: &str, digest: &str) -> Self {
        self.configurations.insert(destination.to_owned(), digest.to_owned());
        self
    }
}

/// The publisher or bulk target of a destination, with its settings.
pub(super) enum DestinationSetup {
    Single(Arc<dyn Publisher>, DestinationSettings),
    Bulk(Arc<dyn BulkTarget>, BulkSettings),
}

impl DestinationSetup {
    /// Returns the worker that serves it, with its heartbeat started, and its limits.
    pub(super) fn relay(
        self,
        name: &str,
        store: Arc<dyn StoreDriver>,
        lanes: (LaneKeeper, Duration),
        counters: Arc<DestinationCounters>,
        crowd: watch::Receiver<u64>,
    ) -> (Box<dyn Worker>, SharedLimits) {
        match self {
            Self::Single(publisher, settings) => {
                let guard = PublishGuard::new(publisher, &settings);
                let mut relay = Relay::new(store, lanes.0, guard, settings, counters);
                relay.reader().start_heartbeat(crowd);
                let limits = relay.limits();
                (Box::new(relay), limits)
            }
            Self::Bulk(target, settings) => {
                let mut relay = BulkRelay::new(store, name, lanes, target, settings, counters);
                relay.reader().start_heartbeat(crowd);
                let limits = relay.limits();
                (Box::new(relay), limits)
            }
        }
    }
}
