//! Runs handlers: each in a task of its own, with a time limit, and with its message as the cause of what it
//! sends.

use std::sync::Arc;

use relais_core::{
    cause::Cause,
    handler::{HandleOutcome, Handler, HandlerWork, Outcome, panicked},
    inbox::InboxRow,
};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::{FinishedHandler, InboxWorker, remote::ReturnedCall};
use crate::{key_queues::RowInFlight, observe::trace::OpenSpan};

/// The end of a handler.
pub(super) enum HandlerEnd {
    /// It ran in a transaction of the user's driver, which has ended too.
    Ran(HandleOutcome, Option<OpenSpan>),
    /// It was called in another process.
    Called(ReturnedCall),
}

impl InboxWorker {
    pub(super) fn start(&mut self, handler: Arc<dyn Handler>, entry: RowInFlight<InboxRow>) {
        let handling = self.counters.tracer.as_ref().map(|tracer| tracer.handling(&entry.row));
        let mut row = entry.row.clone();
        if let Some(handling) = &handling {
            handling.pass_on(&mut row.headers);
        }
        let span = handling.map(|handling| handling.open);
        let work = HandlerWork {
            row,
            fence: self.reader.keeper().fence().clone(),
            epoch: entry.lane.epoch,
        };
        let limit = self.handler_timeout;
        self.handlers.spawn(async move {
            let mut task = AbortOnDropHandle::new(tokio::spawn(async move {
                Cause::of(&work.row).scope(handler.handle(work)).await
            }));
            let handled = match tokio::time::timeout(limit, &mut task).await {
                Ok(handled) => handled.unwrap_or_else(ended),
                Err(_) => {
                    // If it commits at this moment, the row is handled and this result is refused.
                    task.abort();
                    let text = format!("the handler took longer than {limit:?}");
                    HandleOutcome::RolledBack(Outcome::retry("HANDLER_TIMEOUT", &text))
                }
            };
            (entry, HandlerEnd::Ran(handled, span))
        });
    }

    /// Ends the span of a handler with its result.
    pub(super) fn end_span(&self, handled: &HandleOutcome, span: Option<OpenSpan>) {
        let (Some(tracer), Some(span)) = (&self.counters.tracer, span) else { return };
        match handled {
            HandleOutcome::Committed => tracer.end(span, None),
            HandleOutcome::RolledBack(outcome) => tracer.end(span, outcome.problem()),
            // Another worker handles it, or it is handled again.
            HandleOutcome::Refused
            | HandleOutcome::Unavailable(_)
            | HandleOutcome::SessionLost(_) => {}
        }
    }

    pub(super) fn add_finished(&mut self, done: Result<FinishedHandler, JoinError>) {
        match done {
            Ok(handler) => self.finished.push(handler),
            // The row of the task is unknown, so nothing can be settled: the program ends, and its leases
            // expire.
            Err(error) => {
                panic!("cannot continue: a handler task ended without a result: {error}")
            }
        }
    }
}

/// Returns the result of a handler task that panicked; it is not aborted before its time limit.
fn ended(error: JoinError) -> HandleOutcome {
    let outcome = error.try_into_panic().map_or_else(
        |error| Outcome::retry("HANDLER_PANIC", &error.to_string()),
        |panic| panicked(&*panic),
    );
    HandleOutcome::RolledBack(outcome)
}
