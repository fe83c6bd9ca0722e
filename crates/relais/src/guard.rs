//! What stands before a publisher: rate limit, bulkhead, circuit breaker, time limit, outermost first.
//!
//! A breaker that is open stops the calls, not the messages: nobody's attempts are used.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use relais_core::{
    delivery::Delivery,
    limits::{Breaker, BreakerState, RateLimit},
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};

use crate::app::DestinationSettings;

pub(crate) struct Guard {
    publisher: Arc<dyn Publisher>,
    rate: Option<RateLimit>,
    breaker: Breaker,
    concurrency: usize,
    timeout: Duration,
    in_flight: usize,
    started: Instant,
}

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
    pub(crate) fn new(publisher: Arc<dyn Publisher>, settings: &DestinationSettings) -> Self {
        Self {
            publisher,
            rate: settings.rate.map(|(calls, period)| RateLimit::new(calls, period)),
            breaker: Breaker::new(settings.breaker),
            concurrency: settings.concurrency.max(1),
            timeout: settings.timeout,
            in_flight: 0,
            started: Instant::now(),
        }
    }

    /// What one call may carry. With a rate, calls carry one message each, so that a message is what
    /// the rate counts.
    pub(crate) fn batching(&self) -> Batching {
        if self.rate.is_some() { Batching::Single } else { self.publisher.batching() }
    }

    /// Asks for one call. `Go` has to be followed by [`Guard::call`].
    pub(crate) fn permit(&mut self) -> Permit {
        let now_ns = self.now_ns();
        let limit = match self.breaker.state(now_ns) {
            BreakerState::Open => return Permit::Wait(self.breaker.wait(now_ns)),
            BreakerState::HalfOpen => 1,
            BreakerState::Closed => self.concurrency,
        };
        if self.in_flight >= limit {
            return Permit::Full;
        }
        match self.rate.as_mut().map(|rate| rate.take(now_ns)) {
            Some(Err(wait)) => Permit::Wait(wait),
            Some(Ok(())) | None => Permit::Go,
        }
    }

    pub(crate) fn is_open(&mut self) -> bool {
        let now_ns = self.now_ns();
        self.breaker.state(now_ns) == BreakerState::Open
    }

    /// Whether the call under way is a probe of a target that failed too often.
    pub(crate) fn is_probing(&self) -> bool {
        self.breaker.is_probing()
    }

    pub(crate) fn state(&mut self) -> BreakerState {
        let now_ns = self.now_ns();
        self.breaker.state(now_ns)
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

    /// Learns from what came back.
    pub(crate) fn landed(&mut self, deliveries: &[Delivery]) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let now_ns = self.now_ns();
        for delivery in deliveries {
            match delivery {
                Delivery::Accepted | Delivery::Reject { .. } => self.breaker.succeeded(),
                Delivery::Retry { .. } => self.breaker.failed(now_ns),
                Delivery::Outage { after, .. } => self.breaker.outage(now_ns, *after),
            }
        }
    }

    pub(crate) async fn close(&self) {
        self.publisher.close().await;
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
