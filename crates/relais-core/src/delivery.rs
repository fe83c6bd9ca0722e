//! The result of publishing a message. A publisher must classify; it cannot fail.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{fault::FailureKind, text};

/// The code of a failure of a call without an answer within its time limit.
pub const TIMEOUT: &str = "TIMEOUT";
/// Codes of failures of a call that the target did not answer, or did not get.
const WITHOUT_ANSWER: [&str; 10] = [
    TIMEOUT,
    "CONNECTION_CUT",
    "PUBLISHER_FAULT",
    "PUBLISHER_PANIC",
    "HANDLER_PANIC",
    "HYDRATE_FAILED",
    "STALE_READ",
    "ADDRESS_REFUSED",
    "REQUEST_INVALID",
    "HEADER_INVALID",
];

/// The contact with a target so far, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetContact {
    /// No call was answered.
    #[default]
    Unknown,
    /// A call was answered, if only with an error.
    Answered,
    /// A call has succeeded.
    Succeeded,
}

/// The answer for one message. Whether a failure uses an attempt is decided by evidence: [`crate::fault::judge`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// The target has it.
    Accepted,
    /// It failed, and may succeed later: an error, a time-out, a cut connection. The message or the
    /// target may be the reason.
    Retry {
        /// The reason.
        problem: Problem,
        /// The shortest time until the next call, if the target gave one.
        after: Option<Duration>,
    },
    /// The target, or a gateway before it, asks for patience: HTTP 429, 502, 503, 504. The message may
    /// be the reason here too.
    Busy {
        /// The reason.
        problem: Problem,
        /// The shortest time until the next call, if the target gave one.
        after: Option<Duration>,
    },
    /// The target does not let us in, or does not know the address: HTTP 401, 403, 404. With `after`
    /// it is certain that no message can succeed, and the whole destination rests for that time.
    Misconfigured {
        /// The reason.
        problem: Problem,
        /// The shortest time until the next call, if the target gave one.
        after: Option<Duration>,
    },
    /// This message will never succeed as it is.
    Reject {
        /// The reason.
        problem: Problem,
    },
    /// The target cannot be reached: no connection, name, certificate, log-in, broker or leader. Never
    /// uses an attempt. With `after` the whole destination rests for that time at once.
    Outage {
        /// The reason.
        problem: Problem,
        /// The shortest time until the next call, if the target gave one.
        after: Option<Duration>,
    },
    /// Something that only some messages need is missing, such as their topic. It waits and holds its
    /// key; messages of other keys continue. Never uses an attempt.
    Wait {
        /// The reason.
        problem: Problem,
        /// The shortest time until the next call.
        after: Option<Duration>,
    },
    /// Not tried, because an earlier message of its key in the same call was not accepted: it comes
    /// again behind that one.
    Held,
}

impl Delivery {
    /// Returns a failure after which the message may be sent again.
    pub fn retry(code: &str, message: &str) -> Self {
        Self::Retry { problem: Problem::new(code, message), after: None }
    }

    /// Returns a failure of a target that asks for patience.
    pub fn busy(code: &str, message: &str) -> Self {
        Self::Busy { problem: Problem::new(code, message), after: None }
    }

    /// Returns a failure by a wrong log-in, address or permission.
    pub fn misconfigured(code: &str, message: &str) -> Self {
        Self::Misconfigured { problem: Problem::new(code, message), after: None }
    }

    /// Returns a refusal of this message: sending it again does not help.
    pub fn reject(code: &str, message: &str) -> Self {
        Self::Reject { problem: Problem::new(code, message) }
    }

    /// Returns a failure of the whole target: it cannot be reached.
    pub fn outage(code: &str, message: &str) -> Self {
        Self::Outage { problem: Problem::new(code, message), after: None }
    }

    /// Returns the kind of failure, if it failed and the message may be sent again. A message that waits says
    /// nothing about its target.
    pub fn failure(&self) -> Option<FailureKind> {
        match self {
            Self::Retry { .. } | Self::Misconfigured { after: None, .. } => {
                Some(FailureKind::Unclear)
            }
            Self::Busy { .. } => Some(FailureKind::Busy),
            Self::Outage { .. } | Self::Misconfigured { after: Some(_), .. } => {
                Some(FailureKind::Unreachable)
            }
            Self::Accepted | Self::Reject { .. } | Self::Wait { .. } | Self::Held => None,
        }
    }

    /// Returns what the result shows about the contact with the target.
    pub fn contact(&self) -> TargetContact {
        match self {
            Self::Accepted => TargetContact::Succeeded,
            Self::Retry { problem, .. }
            | Self::Busy { problem, .. }
            | Self::Misconfigured { problem, .. }
            | Self::Wait { problem, .. }
            | Self::Reject { problem }
                if !WITHOUT_ANSWER.contains(&problem.code.as_str()) =>
            {
                TargetContact::Answered
            }
            _ => TargetContact::Unknown,
        }
    }

    /// Why it was not accepted, and the pause that was asked for.
    pub fn problem(&self) -> Option<(&Problem, Option<Duration>)> {
        match self {
            Self::Retry { problem, after }
            | Self::Busy { problem, after }
            | Self::Misconfigured { problem, after }
            | Self::Wait { problem, after }
            | Self::Outage { problem, after } => Some((problem, *after)),
            Self::Reject { problem } => Some((problem, None)),
            Self::Accepted | Self::Held => None,
        }
    }
}

/// A reason as it is stored: a stable code for machines, a sentence for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The code, for filters and metrics.
    pub code: String,
    /// The text, for operators.
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

    /// The same for one whose fields were set directly.
    #[must_use]
    pub fn fitted(self) -> Self {
        Self::new(&self.code, &self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_answer_is_contact_and_only_an_accepted_message_is_success() {
        assert_eq!(Delivery::Accepted.contact(), TargetContact::Succeeded);
        let answers = [
            Delivery::retry("HTTP_500", ""),
            Delivery::busy("HTTP_503", ""),
            Delivery::misconfigured("HTTP_404", ""),
            Delivery::reject("HTTP_422", ""),
        ];
        for answer in answers {
            assert_eq!(answer.contact(), TargetContact::Answered, "{answer:?}");
        }
        let unanswered = [
            Delivery::retry("TIMEOUT", ""),
            Delivery::retry("CONNECTION_CUT", ""),
            Delivery::reject("REQUEST_INVALID", ""),
            Delivery::outage("CONNECT_FAILED", ""),
            Delivery::Held,
        ];
        for delivery in unanswered {
            assert_eq!(delivery.contact(), TargetContact::Unknown, "{delivery:?}");
        }
    }
}
