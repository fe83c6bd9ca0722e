//! The guard of a publisher: rate limit, bulkhead, circuit breaker and time limit, outermost first.
//!
//! An open breaker stops the calls, not the messages: no attempts are used.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use relais_core::{
    delivery::{Delivery, TIMEOUT},
    message::Category,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
};

use crate::{
    app::DestinationSettings,
    limits::{CallAssessment, SharedLimits},
    permit::Permit,
};

pub(crate) struct PublishGuard {
    publisher: Arc<dyn Publisher>,
    limits: SharedLimits,
    counts: RateCounts,
    timeout: Duration,
    /// Maximum number of messages in one call.
    batch_max: usize,
    in_flight: usize,
}

/// The unit that the rate of a destination counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateCounts {
    /// With a rate, each call carries one message.
    Messages,
    Calls,
}

impl PublishGuard {
    /// Returns a guard whose rate counts messages: with a rate, each call carries one message.
    pub(crate) fn new(publisher: Arc<dyn Publisher>, settings: &DestinationSettings) -> Self {
        let limits = SharedLimits::new(settings);
        Self { counts: RateCounts::Messages, ..Self::sharing(publisher, settings, limits) }
    }

    /// Returns a guard that shares its limits with other calls to the target; the rate counts calls.
    pub(crate) fn sharing(
        publisher: Arc<dyn Publisher>,
        settings: &DestinationSettings,
        limits: SharedLimits,
    ) -> Self {
        Self {
            publisher,
            limits,
            counts: RateCounts::Calls,
            timeout: settings.timeout,
            batch_max: settings.batch_max,
            in_flight: 0,
        }
    }

    pub(crate) fn limits(&self) -> &SharedLimits {
        &self.limits
    }

    /// Returns how many messages one call may carry.
    pub(crate) fn batching(&self) -> Batching {
        match self.counts {
            RateCounts::Messages if self.limits.has_rate() => Batching::Single,
            RateCounts::Messages | RateCounts::Calls => {
                self.publisher.batching().at_most(self.batch_max)
            }
        }
    }

    /// Requests one call beside those that were permitted and have not begun. After `Go`,
    /// [`PublishGuard::call`] must follow.
    pub(crate) fn permit(&self, permitted: usize) -> Permit {
        self.limits.permit(self.in_flight + permitted)
    }

    /// Returns the call, to be run on a task: limited in time, and a panic is a failed attempt.
    pub(crate) fn call(
        &mut self,
        rows: Vec<OutboxRow>,
    ) -> impl Future<Output = (Vec<OutboxRow>, Vec<Delivery>)> + Send + use<> {
        self.in_flight += 1;
        let (publisher, limit) = (Arc::clone(&self.publisher), self.timeout);
        async move {
            let count = rows.len();
            let all = |delivery: Delivery| vec![delivery; count];
            let caught = AssertUnwindSafe(publisher.publish(&rows)).catch_unwind();
            let deliveries = match tokio::time::timeout(limit, caught).await {
                Ok(Ok(deliveries)) if deliveries.len() == count => deliveries,
                Ok(Ok(_)) => all(Delivery::retry("PUBLISHER_FAULT", "answers are missing")),
                Ok(Err(_)) => all(Delivery::retry("PUBLISHER_PANIC", "the publisher panicked")),
                Err(_) => all(Delivery::retry(TIMEOUT, &format!("no answer within {limit:?}"))),
            };
            (rows, deliveries)
        }
    }

    /// Learns from a call that returned.
    pub(crate) fn finished<'k>(
        &mut self,
        messages: impl Iterator<Item = (&'k str, Category)>,
        deliveries: &[Delivery],
        began: Instant,
    ) -> CallAssessment {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.limits.learn(messages, deliveries, began)
    }

    pub(crate) async fn close(&self) {
        self.publisher.close().await;
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;

    struct Many;

    #[async_trait]
    impl Publisher for Many {
        async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
            vec![Delivery::Accepted; messages.len()]
        }

        fn batching(&self) -> Batching {
            Batching::InOrder { max: 500 }
        }
    }

    #[test]
    fn a_call_carries_no_more_messages_than_configured_and_than_the_target_takes() {
        let max = |settings: DestinationSettings| {
            PublishGuard::new(Arc::new(Many), &settings).batching().max()
        };
        assert_eq!(max(DestinationSettings::default()), 500);
        assert_eq!(max(DestinationSettings::default().batch_max(10)), 10);
        assert_eq!(
            max(DestinationSettings::default().rate(5, std::time::Duration::from_secs(1))),
            1
        );
    }
}
