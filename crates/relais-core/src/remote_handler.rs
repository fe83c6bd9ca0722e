//! Handlers in another process: they get a message by a call and answer with an outcome and messages.
//!
//! A call holds no connection to the database. The engine commits the answer afterwards, in one fenced
//! transaction: the row's `PROCESSED` and the messages. A crash, a lost lease or a lost answer repeats the
//! call, with the same message and possibly while the first call still runs. So the service must recognise
//! a message that it has handled, and must give the same answer again.

use crate::{
    async_trait,
    delivery::{Delivery, Problem},
    handler::Outcome,
    inbox::InboxRow,
    message::NewMessage,
};

/// Calls the service that handles messages, and understands its answers. It classifies; it cannot fail.
#[async_trait]
pub trait RemoteHandler: Send + Sync {
    /// Sends a message to the service and returns its answer. `row.attempts` are the attempts before this
    /// one.
    async fn call(&self, row: &InboxRow) -> RemoteReply;
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteReply {
    /// The message is handled. The messages are committed together with its mark.
    Done {
        /// The messages to send.
        messages: Vec<NewMessage>,
        /// JSON for the process whose command it is; ignored if no process waits for the answer.
        data: Option<String>,
    },
    /// The service decided about the message, and its answer is another outcome than [`Outcome::Done`].
    Refused(Outcome),
    /// The service answered, and the answer is not valid. One attempt is used, unless the circuit breaker is
    /// open.
    Invalid(Problem),
    /// There is no answer, or one that only says that the call failed. Evidence decides who is at fault, as
    /// for a destination. Never [`Delivery::Accepted`].
    Failed(Delivery),
}

impl RemoteReply {
    /// Returns an answer that does not follow the contract.
    pub fn invalid(message: &str) -> Self {
        Self::Invalid(Problem::new(ANSWER_INVALID, message))
    }

    /// Returns the reason unless the message is handled.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Done { .. } => None,
            Self::Refused(outcome) => outcome.problem(),
            Self::Invalid(problem) => Some(problem),
            Self::Failed(delivery) => delivery.problem().map(|(problem, _)| problem),
        }
    }
}

/// The code of an answer that does not follow the contract.
pub const ANSWER_INVALID: &str = "ANSWER_INVALID";
