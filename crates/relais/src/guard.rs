//! What stands before a publisher: rate limit, bulkhead, circuit breaker, time limit, outermost first.
//!
//! An open breaker stops the calls, not the messages: no attempts are used.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use relais_core::{
    breaker::BreakerState,
    delivery::Delivery,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};

use crate::{
    app::DestinationSettings,
    limits::{Learnt, Limits},
};

pub(crate) struct Guard {
    publisher: Arc<dyn Publisher>,
    limits: Limits,
    counts: RateCounts,
    timeout: Duration,
    in_flight: usize,
}

/// What the rate of a destination counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateCounts {
    /// With a rate, calls carry one message each.
    Messages,
    Calls,
}

/// How long a paused destination rests; a resume wakes it.
const PAUSED_REST: Duration = Duration::from_secs(1);

/// Whether a call may start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    Go,
    /// Ask again after this long.
    Wait(Duration),
    /// Ask again when a call came back.
    Full,
}

impl Guard {
    /// With a rate, calls carry one message each, so that a message is what the rate counts.
    pub(crate) fn new(publisher: Arc<dyn Publisher>, settings: &DestinationSettings) -> Self {
        let limits = Limits::new(settings);
        Self { counts: RateCounts::Messages, ..Self::sharing(publisher, settings, limits) }
    }

    /// Beside other calls to the same target; the rate counts calls, whatever they carry.
    pub(crate) fn sharing(
        publisher: Arc<dyn Publisher>,
        settings: &DestinationSettings,
        limits: Limits,
    ) -> Self {
        Self {
            publisher,
            limits,
            counts: RateCounts::Calls,
            timeout: settings.timeout,
            in_flight: 0,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What one call may carry.
    pub(crate) fn batching(&self) -> Batching {
        match self.counts {
            RateCounts::Messages if self.limits.has_rate() => Batching::Single,
            RateCounts::Messages | RateCounts::Calls => self.publisher.batching(),
        }
    }

    /// Asks for one call beside those that were permitted and have not begun. `Go` has to be followed by
    /// [`Guard::call`].
    pub(crate) fn permit(&self, permitted: usize) -> Permit {
        if self.limits.is_paused() {
            return Permit::Wait(PAUSED_REST);
        }
        let limit = match self.limits.state() {
            BreakerState::Open => return Permit::Wait(self.limits.wait()),
            BreakerState::HalfOpen => 1,
            BreakerState::Closed => self.limits.concurrency(),
        };
        if self.in_flight + permitted >= limit {
            return Permit::Full;
        }
        match self.limits.take() {
            Ok(()) => Permit::Go,
            Err(wait) => Permit::Wait(wait),
        }
    }

    /// The call itself, to be run on a task: bounded in time, and a panic is a failed attempt.
    pub(crate) fn call(
        &mut self,
        rows: Vec<OutboxRow>,
    ) -> impl Future<Output = (Vec<OutboxRow>, Vec<Delivery>)> + Send + use<> {
        self.in_flight += 1;
        let (publisher, limit) = (Arc::clone(&self.publisher), self.timeout);
        async move {
            let count = rows.len();
            let all = |delivery: Delivery| vec![delivery; count];
            let calm = AssertUnwindSafe(publisher.publish(&rows)).catch_unwind();
            let deliveries = match tokio::time::timeout(limit, calm).await {
                Ok(Ok(deliveries)) if deliveries.len() == count => deliveries,
                Ok(Ok(_)) => all(Delivery::retry("PUBLISHER_FAULT", "answers are missing")),
                Ok(Err(_)) => all(Delivery::retry("PUBLISHER_PANIC", "the publisher panicked")),
                Err(_) => all(Delivery::retry("TIMEOUT", &format!("no answer within {limit:?}"))),
            };
            (rows, deliveries)
        }
    }

    /// Learns from a call that came back.
    pub(crate) fn landed<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k str>,
        deliveries: &[Delivery],
        began: Instant,
    ) -> Learnt {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.limits.learn(keys, deliveries, began)
    }

    pub(crate) async fn close(&self) {
        self.publisher.close().await;
    }
}
