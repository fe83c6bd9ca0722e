//! Observes calls and the fates of their rows: duration, spans, counters, log lines.

use std::{sync::Arc, time::Instant};

use relais_core::{
    delivery::Delivery,
    message::{HEADER_RECEIVED, HeaderValues},
    outbox::{OutboxFate, OutboxRow},
};

use crate::observe::{DestinationCounters, trace::OpenSpan};

/// The observation of one call: its spans, and headers of its rows that the target does not get.
pub(super) struct CallObservation {
    counters: Arc<DestinationCounters>,
    start: Instant,
    received: Vec<Option<HeaderValues>>,
    spans: Vec<OpenSpan>,
}

impl CallObservation {
    pub(super) fn begin(counters: &Arc<DestinationCounters>, rows: &mut [OutboxRow]) -> Self {
        let tracer = counters.tracer.as_deref();
        let spans = tracer.map(|tracer| rows.iter_mut().map(|row| tracer.publishing(row)));
        let spans = spans.map(Iterator::collect).unwrap_or_default();
        let received = rows.iter_mut().map(|row| row.headers.0.remove(HEADER_RECEIVED)).collect();
        Self { counters: Arc::clone(counters), start: Instant::now(), received, spans }
    }

    /// Ends the observation with the results of the call.
    pub(super) fn end(self, rows: &mut [OutboxRow], deliveries: &[Delivery]) {
        let Self { counters, start, received, spans } = self;
        counters.called(start.elapsed());
        for (row, received) in rows.iter_mut().zip(received) {
            row.headers.0.extend(received.map(|at| (HEADER_RECEIVED.to_owned(), at)));
        }
        if let Some(tracer) = &counters.tracer {
            let ended = spans.into_iter().zip(deliveries);
            ended.for_each(|(span, delivery)| tracer.published(span, delivery));
        }
    }
}

/// Counts and logs the fate of a row.
pub(crate) fn count(counters: &DestinationCounters, row: &OutboxRow, fate: &OutboxFate) {
    match fate {
        OutboxFate::Dispatched => {
            counters.dispatched(row);
            tracing::debug!(
                destination = row.destination, id = row.id, message_id = %row.message_id,
                key = row.msg_key, "delivered"
            );
        }
        OutboxFate::Retry { problem, attempts, .. } => {
            counters.retried(problem);
            tracing::debug!(
                destination = row.destination, id = row.id, message_id = %row.message_id,
                key = row.msg_key, attempts, code = problem.code, "retry: {}", problem.message
            );
        }
        OutboxFate::Dead { problem, attempts, .. } => {
            counters.failed(problem);
            tracing::warn!(
                destination = row.destination, id = row.id, message_id = %row.message_id,
                key = row.msg_key, attempts, code = problem.code, "dead letter: {}", problem.message
            );
        }
        OutboxFate::Wait { problem, .. } => tracing::debug!(
            destination = row.destination, id = row.id, message_id = %row.message_id,
            key = row.msg_key, code = problem.code, "waits: {}", problem.message
        ),
        OutboxFate::Untouched => {}
    }
}
