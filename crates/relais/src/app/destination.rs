//! One destination: how its messages are treated, and the worker that serves it.

use std::{sync::Arc, time::Duration};

use relais_core::{
    breaker::BreakerPolicy, bulk::BulkTarget, outbox::OnDeadLetter, publisher::Publisher,
    retry::RetryPolicy, store::Store,
};
use tokio::sync::watch;

use crate::{
    bulk::{BulkRelay, BulkSettings},
    guard::Guard,
    lanes::LaneKeeper,
    limits::Limits,
    observe::DestinationCounters,
    relay::Relay,
    worker::Worker,
};

/// How messages to one destination are treated.
#[derive(Clone, Debug)]
pub struct DestinationSettings {
    pub retry: RetryPolicy,
    pub on_dead_letter: OnDeadLetter,
    /// At most this many messages in this time.
    pub rate: Option<(u32, Duration)>,
    /// Calls in flight at once.
    pub concurrency: usize,
    /// The longest one call may take.
    pub timeout: Duration,
    pub breaker: BreakerPolicy,
}

impl Default for DestinationSettings {
    fn default() -> Self {
        Self {
            retry: RetryPolicy::patient(),
            on_dead_letter: OnDeadLetter::Park,
            rate: None,
            concurrency: 10,
            timeout: Duration::from_secs(30),
            breaker: BreakerPolicy::default(),
        }
    }
}

/// What delivers to a destination.
pub(super) enum Destination {
    Single(Arc<dyn Publisher>, DestinationSettings),
    Bulk(Arc<dyn BulkTarget>, BulkSettings),
}

impl Destination {
    /// The worker that serves it, with its heartbeat begun, and its limits.
    pub(super) fn relay(
        self,
        name: &str,
        store: Arc<dyn Store>,
        lanes: (LaneKeeper, Duration),
        counters: Arc<DestinationCounters>,
        crowd: watch::Receiver<u64>,
    ) -> (Box<dyn Worker>, Limits) {
        match self {
            Self::Single(publisher, settings) => {
                let guard = Guard::new(publisher, &settings);
                let mut relay = Relay::new(store, lanes.0, guard, settings, counters);
                relay.intake().start_heartbeat(crowd);
                let limits = relay.limits();
                (Box::new(relay), limits)
            }
            Self::Bulk(target, settings) => {
                let mut relay = BulkRelay::new(store, name, lanes, target, settings, counters);
                relay.intake().start_heartbeat(crowd);
                let limits = relay.limits();
                (Box::new(relay), limits)
            }
        }
    }
}
