//! Handlers that run: each in a task of its own, for a limited time, and with what caused it.

use std::sync::Arc;

use relais_core::{
    cause::Cause,
    handler::{Handled, Handler, HandlerWork, Outcome, panicked},
    inbox::InboxRow,
};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::{InboxWorker, Landed};
use crate::{flight::Job, observe::trace::Open};

impl InboxWorker {
    pub(super) fn start(&mut self, handler: Arc<dyn Handler>, job: Job<InboxRow>) {
        let handling = self.counters.tracer.as_ref().map(|tracer| tracer.handling(&job.row));
        let mut row = job.row.clone();
        if let Some(handling) = &handling {
            handling.pass_on(&mut row.headers);
        }
        let span = handling.map(|handling| handling.open);
        let work =
            HandlerWork { row, fence: self.intake.keeper().fence().clone(), epoch: job.lane.epoch };
        let limit = self.handler_timeout;
        self.handlers.spawn(async move {
            let mut task = AbortOnDropHandle::new(tokio::spawn(async move {
                Cause::of(&work.row).scope(handler.handle(work)).await
            }));
            let handled = match tokio::time::timeout(limit, &mut task).await {
                Ok(handled) => handled.unwrap_or_else(ended),
                Err(_) => {
                    // Should it be committing just now, the row is done and this answer refused.
                    task.abort();
                    let text = format!("the handler took longer than {limit:?}");
                    Handled::RolledBack(Outcome::retry("HANDLER_TIMEOUT", &text))
                }
            };
            (job, handled, span)
        });
    }

    /// A handler's span ends with what it said.
    pub(super) fn end_span(&self, handled: &Handled, span: Option<Open>) {
        let (Some(tracer), Some(span)) = (&self.counters.tracer, span) else { return };
        match handled {
            Handled::Committed => tracer.end(span, None),
            Handled::RolledBack(outcome) => tracer.end(span, outcome.problem()),
            // Another worker handles it, or it is handled again.
            Handled::Refused | Handled::Unavailable(_) | Handled::SessionLost(_) => {}
        }
    }

    pub(super) fn take_in(&mut self, done: Result<Landed, JoinError>) {
        match done {
            Ok(landed) => self.landed.push(landed),
            // Which row it held is unknown, so nothing can be settled: the program ends, and its lanes
            // expire.
            Err(error) => {
                panic!("cannot continue: a handler task ended without an answer: {error}")
            }
        }
    }
}

/// The task of a handler ended by a panic; by nothing else, because it is not aborted before its limit.
fn ended(error: JoinError) -> Handled {
    let outcome = error.try_into_panic().map_or_else(
        |error| Outcome::retry("HANDLER_PANIC", &error.to_string()),
        |panic| panicked(&*panic),
    );
    Handled::RolledBack(outcome)
}
