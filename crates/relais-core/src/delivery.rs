//! What a publisher says became of a message. It must classify; it cannot fail.

use std::time::Duration;

use serde::Serialize;

use crate::text;

/// The answer for one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The target has it.
    Accepted,
    /// This message failed now and may succeed later: one attempt is used.
    Retry { problem: Problem, after: Option<Duration> },
    /// This message will never succeed as it is.
    Reject { problem: Problem },
    /// The target is down, full or asks for patience: nobody's attempts are used, the whole
    /// destination rests.
    Outage { problem: Problem, after: Option<Duration> },
    /// Not tried, because an earlier message of its key in the same call was not accepted: it comes
    /// again behind that one.
    Held,
}

impl Delivery {
    pub fn retry(code: &str, message: &str) -> Self {
        Self::Retry { problem: Problem::new(code, message), after: None }
    }

    pub fn reject(code: &str, message: &str) -> Self {
        Self::Reject { problem: Problem::new(code, message) }
    }

    pub fn outage(code: &str, message: &str) -> Self {
        Self::Outage { problem: Problem::new(code, message), after: None }
    }
}

/// A reason as it is stored: a stable code for machines, a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub code: String,
    pub message: String,
}

impl Problem {
    /// Cuts both to what their columns hold.
    pub fn new(code: &str, message: &str) -> Self {
        Self {
            code: text::fit(code, text::ERROR_CODE_MAX),
            message: text::fit(message, text::ERROR_MESSAGE_MAX),
        }
    }

    /// The same for one whose fields somebody filled directly.
    #[must_use]
    pub fn fitted(self) -> Self {
        Self::new(&self.code, &self.message)
    }
}
