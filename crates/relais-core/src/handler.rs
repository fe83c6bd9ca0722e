//! User code for one inbox message, and its outcome.

use std::{any::Any, error::Error, time::Duration};

use serde::de::DeserializeOwned;

use crate::{
    async_trait,
    delivery::Problem,
    inbox::{InboxRow, original_source},
    lane::Fence,
    message::Headers,
    store::StoreError,
    time::Timestamp,
};

/// The outcome of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Commit everything.
    Done,
    /// Roll back; try again later (after at least `after`, if given). One attempt is used.
    Retry {
        /// The reason.
        problem: Problem,
        /// The shortest time until the next attempt.
        after: Option<Duration>,
    },
    /// Roll back; this message will never succeed. It becomes a dead letter; later messages of its
    /// key continue.
    Fail {
        /// The reason.
        problem: Problem,
    },
    /// Roll back; an operator must decide, and later messages of the key wait.
    Park {
        /// The reason.
        problem: Problem,
    },
}

impl Outcome {
    /// Returns an outcome that uses an attempt and tries the message again after a backoff.
    pub fn retry(code: &str, message: &str) -> Self {
        Self::Retry { problem: Problem::new(code, message), after: None }
    }

    /// Returns an outcome that uses an attempt and tries the message again after this time.
    pub fn retry_after(after: Duration, code: &str, message: &str) -> Self {
        Self::Retry { problem: Problem::new(code, message), after: Some(after) }
    }

    /// Returns an outcome that makes the message a dead letter and lets its key continue.
    pub fn fail(code: &str, message: &str) -> Self {
        Self::Fail { problem: Problem::new(code, message) }
    }

    /// Returns an outcome that makes the message a dead letter and parks its key.
    pub fn park(code: &str, message: &str) -> Self {
        Self::Park { problem: Problem::new(code, message) }
    }

    /// Returns the problem, unless the outcome is `Done`.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Done => None,
            Self::Retry { problem, .. } | Self::Fail { problem } | Self::Park { problem } => {
                Some(problem)
            }
        }
    }
}

/// The return type of a handler function: an [`Outcome`], `()` (done), or a `Result` of these whose error
/// means *retry*. The error is recorded with all its causes.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this handler returns `{Self}`",
    note = "return `Outcome`, `()`, or a `Result` of these, for example `anyhow::Result<()>`",
    note = "the error of the `Result` must be an error type (`E: Into<Box<dyn std::error::Error>>`)",
    note = "if `{Self}` is a future: handlers of `relais::sqlite::handler` are plain functions, not `async fn`; \
            use `relais::sqlite::sqlx_handler` for an `async fn`"
)]
pub trait IntoOutcome {
    /// Converts the return value to an outcome.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

impl<T: IntoOutcome, E: Into<Box<dyn Error>>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(outcome) => outcome.into_outcome(),
            Err(error) => Outcome::retry("HANDLER_ERROR", &chain(&*error.into())),
        }
    }
}

/// Returns an error and its causes in one line. A cause that the text repeats already is left out.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// Returns the outcome of a handler that panicked, with the text of the panic.
pub fn panicked(panic: &(dyn Any + Send)) -> Outcome {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.map_or_else(
        || "the handler panicked; see the log of the program".to_owned(),
        |text| format!("the handler panicked: {text}"),
    );
    Outcome::retry("HANDLER_PANIC", &text)
}

/// A message as a handler receives it: the decoded payload and its origin.
#[derive(Clone, Debug)]
pub struct Received<M> {
    /// The decoded payload.
    pub payload: M,
    /// The id of the message in its source system.
    pub message_id: String,
    /// The system that sent it.
    pub source_system: String,
    /// The event type.
    pub event_type: String,
    /// The id of the aggregate that it is about.
    pub aggregate_id: Option<String>,
    /// The ordering key.
    pub key: String,
    /// The headers.
    pub headers: Headers,
    /// The time of the event, if the source has one.
    pub event_ts: Option<Timestamp>,
    /// The time at which relais stored it.
    pub received_at: Timestamp,
    /// 1 for the first attempt.
    pub attempt: u32,
}

impl<M: DeserializeOwned> Received<M> {
    /// Decodes the row; a payload of another shape is an outcome, not an error.
    pub fn decode(row: &InboxRow) -> Result<Self, Outcome> {
        let payload = row.payload.as_deref().unwrap_or("null");
        let payload = serde_json::from_str(payload).map_err(|error| {
            Outcome::fail("PAYLOAD_SHAPE", &format!("payload does not fit the handler: {error}"))
        })?;
        Ok(Self {
            payload,
            message_id: row.message_id.clone(),
            source_system: original_source(&row.source_system),
            event_type: row.event_type.clone().unwrap_or_default(),
            aggregate_id: row.aggregate_id.clone(),
            key: row.msg_key.clone(),
            headers: row.headers.clone(),
            event_ts: row.event_ts,
            received_at: row.received_at,
            attempt: row.attempts.saturating_add(1),
        })
    }
}

/// One row to handle, with the proof that this worker owns its lane.
#[derive(Clone, Debug)]
pub struct HandlerWork {
    /// The row of the message.
    pub row: InboxRow,
    /// The proof that the worker owns the lane.
    pub fence: Fence,
    /// The epoch of the lane when the row was fetched.
    pub epoch: i64,
}

/// The result of the transaction.
#[derive(Debug)]
pub enum HandleOutcome {
    /// Committed: the handler's changes, its messages, and the row's `PROCESSED`.
    Committed,
    /// Rolled back; the worker settles the row by this outcome (never `Done`).
    RolledBack(Outcome),
    /// Rolled back because the lane has another owner, or the row is no longer open.
    Refused,
    /// The database did not answer. It is unknown whether anything was committed; no attempt is
    /// used.
    Unavailable(StoreError),
    /// The session was lost after the handler started, by the database or by the handler itself. It
    /// is unknown whether anything was committed. An attempt is used only if this happens
    /// repeatedly while the store answers.
    SessionLost(StoreError),
}

/// Runs user code in one transaction of the user's own driver, and marks the row `PROCESSED` in
/// that same commit. Created by a driver's `handler(pool, function)`, never by hand.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Runs the handler for a row and commits its transaction.
    async fn handle(&self, work: HandlerWork) -> HandleOutcome;

    /// Runs the handler for a row and rolls everything back. Returns the outcome that it would
    /// have.
    async fn validate(&self, row: InboxRow) -> Result<Outcome, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot save")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("insert into orders: {0}")]
    struct Inner(#[source] std::io::Error);

    fn text(outcome: Outcome) -> String {
        outcome.problem().expect("a problem").message.clone()
    }

    #[test]
    fn an_error_keeps_all_its_causes_and_repeats_none() {
        let failed: Result<(), Outer> = Err(Outer(Inner(std::io::Error::other("disk full"))));
        assert_eq!(text(failed.into_outcome()), "cannot save: insert into orders: disk full");
        let plain: Result<Outcome, &str> = Err("no such order");
        assert_eq!(text(plain.into_outcome()), "no such order");
    }

    #[test]
    fn a_panic_keeps_its_text() {
        let caught = std::panic::catch_unwind(|| panic!("order {} is odd", 7)).unwrap_err();
        assert_eq!(text(panicked(&*caught)), "the handler panicked: order 7 is odd");
        let caught = std::panic::catch_unwind(|| panic!("plain")).unwrap_err();
        assert_eq!(text(panicked(&*caught)), "the handler panicked: plain");
        let caught = std::panic::catch_unwind(|| std::panic::panic_any(7)).unwrap_err();
        assert!(text(panicked(&*caught)).contains("see the log"));
    }
}
