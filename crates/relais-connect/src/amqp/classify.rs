//! Classifies outcomes and errors of brokers, and errors of the client library.
//!
//! Pure and driven by a table. An error ends a link or the connection, so it concerns every message in
//! flight there; the verdict says which of them can be the cause.

use std::{io, time::Duration};

use fe2o3_amqp::{
    connection::{ConnectionStopReason, OpenError},
    link::{
        DetachError, LinkStateError, ReceiverAttachError, RecvError, SendError, SenderAttachError,
        SessionStopReason,
    },
    session::BeginError,
};
use fe2o3_amqp_types::{
    definitions::{Error, ErrorCondition},
    messaging::Outcome,
    primitives::Symbol,
    sasl::SaslCode,
};
use relais_core::delivery::{Delivery, Problem};

use super::connection::AmqpOpenError;

/// The pause of the destination before it checks whether an operator has acted.
const CONFIGURATION_PAUSE: Duration = Duration::from_secs(5);

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmqpVerdict {
    /// The address of one message; with a fixed address that of all.
    Address,
    /// One message, which will never succeed. Sending each alone shows which one.
    Message,
    /// Perhaps one message. Sending each alone shows which one.
    Suspect,
    /// No message is accepted before an operator acts.
    Configuration,
    /// The broker accepts messages, but not this many now.
    Busy,
    /// The address is full; with a fixed address no message is accepted now.
    Full,
    /// The broker cannot accept anything now.
    Outage,
}

/// Conditions of the broker, the verdict, the code of the problem, and the advice.
type ConditionRow = (&'static [&'static str], AmqpVerdict, &'static str, &'static str);

const TABLE: &[ConditionRow] = &[
    (
        &["amqp:not-found", "amqp:resource-deleted", "com.microsoft:entity-disabled"],
        AmqpVerdict::Address,
        "AMQP_UNKNOWN_ADDRESS",
        "the address does not exist; create it (its messages wait until then)",
    ),
    (
        &["amqp:unauthorized-access", "com.microsoft:auth-failed"],
        AmqpVerdict::Address,
        ACCESS_REFUSED,
        "this login may not use the address; grant it the permission (its messages wait until then)",
    ),
    (
        &["amqp:link:message-size-exceeded", "com.microsoft:message-size-exceeded"],
        AmqpVerdict::Message,
        "AMQP_TOO_LARGE",
        "the message is too large; send less, or raise the limit of the broker",
    ),
    (
        &[
            "amqp:precondition-failed",
            "amqp:invalid-field",
            "amqp:decode-error",
            "amqp:not-allowed",
            "com.microsoft:argument-error",
            "com.microsoft:argument-out-of-range",
        ],
        AmqpVerdict::Message,
        "AMQP_REFUSED",
        "the broker refuses this message; change it or the address",
    ),
    (
        &["amqp:resource-limit-exceeded"],
        AmqpVerdict::Full,
        "AMQP_FULL",
        "the broker or the queue is full (messages wait until then)",
    ),
    (&["com.microsoft:server-busy"], AmqpVerdict::Busy, "AMQP_FULL", "the broker is busy"),
    (
        &[
            "amqp:connection:forced",
            "amqp:connection:redirect",
            "amqp:link:detach-forced",
            "amqp:link:redirect",
            "amqp:link:stolen",
            "amqp:resource-locked",
            "amqp:session:errant-link",
            NO_SESSION,
            "com.microsoft:container-close",
        ],
        AmqpVerdict::Outage,
        "AMQP_NOT_READY",
        "the broker ended the link",
    ),
];

const ACCESS_REFUSED: &str = "AMQP_ACCESS_REFUSED";
/// Service Bus had nothing to give within the time that it waits.
const NO_SESSION: &str = "com.microsoft:timeout";
const UNKNOWN: ConditionRow =
    (&[], AmqpVerdict::Suspect, "AMQP_ERROR", "the broker answered with an error");
const UNREACHABLE: (&str, &str) =
    ("AMQP_UNREACHABLE", "the broker is not reachable; check the address and the network");
const TLS: (&str, &str) = (
    "AMQP_TLS",
    "cannot establish a TLS connection; check `tls_ca`, `tls_certificate`, the name of the host, and \
     that the port expects TLS",
);
const ENDED: (&str, &str) = (
    "AMQP_UNREACHABLE",
    "the broker ended the connection during the login; if the port expects TLS, use amqps:// in `url`",
);
const AUTHENTICATION: (&str, &str) = (
    "AMQP_AUTHENTICATION",
    "the broker refuses the login; check user and password in `url`, the key in `connection` of Service \
     Bus, or the client certificate",
);
const MECHANISM: (&str, &str) = (
    "AMQP_MECHANISM",
    "the broker does not offer this kind of login: PLAIN with a user, EXTERNAL with a certificate, \
     else ANONYMOUS",
);
const PROTOCOL: (&str, &str) =
    ("AMQP_PROTOCOL", "no AMQP 1.0 at this port, or it expects TLS; check host and port");
const CONFIGURATION: (&str, &str) =
    ("AMQP_CONFIGURATION", "cannot connect with this configuration");

/// One error with its verdict.
#[derive(Clone, Debug)]
pub(crate) struct AmqpFailure {
    pub(crate) verdict: AmqpVerdict,
    pub(crate) problem: Problem,
}

impl AmqpFailure {
    fn new(verdict: AmqpVerdict, (code, advice): (&str, &str), detail: &str) -> Self {
        let problem = Problem::new(code, &format!("{advice} ({detail})"));
        Self { verdict, problem }
    }

    fn lost(detail: &str) -> Self {
        Self::new(AmqpVerdict::Outage, UNREACHABLE, detail)
    }

    /// Classifies an error that the broker sent.
    pub(crate) fn of_broker(error: &Error) -> Self {
        let condition = condition(error);
        let known = TABLE.iter().find(|(conditions, ..)| conditions.contains(&condition.as_str()));
        let (_, verdict, code, advice) = known.unwrap_or(&UNKNOWN);
        Self::new(*verdict, (code, advice), &detail(error))
    }

    /// Classifies the error with which the broker closed the connection, if it refuses the login.
    fn of_login(error: &Error) -> Option<Self> {
        let refused = Self::of_broker(error).problem.code == ACCESS_REFUSED;
        refused.then(|| Self::new(AmqpVerdict::Configuration, AUTHENTICATION, &detail(error)))
    }

    /// Classifies the end of a link.
    fn of_link(error: &LinkStateError) -> Self {
        match error {
            LinkStateError::RemoteDetachedWithError(error)
            | LinkStateError::RemoteClosedWithError(error) => Self::of_broker(error),
            LinkStateError::SessionStopped(reason) => Self::of_session(reason),
            other => Self::lost(&other.to_string()),
        }
    }

    fn of_detach(error: &DetachError) -> Self {
        match error {
            DetachError::RemoteDetachedWithError(error)
            | DetachError::RemoteClosedWithError(error) => Self::of_broker(error),
            DetachError::SessionStopped(reason) => Self::of_session(reason),
            other => Self::lost(&other.to_string()),
        }
    }

    fn of_session(reason: &SessionStopReason) -> Self {
        match reason {
            SessionStopReason::RemoteEndedWithError(error) => Self::of_broker(error),
            SessionStopReason::ConnectionStopped(reason) => Self::of_stop(reason),
            other => Self::lost(&format!("{other:?}")),
        }
    }

    /// Classifies the end of a connection. Some brokers refuse a login only after the connection is open.
    fn of_stop(reason: &ConnectionStopReason) -> Self {
        let refused = match reason {
            ConnectionStopReason::RemoteClosedWithError(error) => Self::of_login(error),
            _ => None,
        };
        refused.unwrap_or_else(|| Self::lost(&format!("{reason:?}")))
    }

    /// Classifies an error of sending. The caller handles those that are of one message.
    pub(crate) fn of_send(error: &SendError) -> Self {
        match error {
            SendError::LinkStateError(error) => Self::of_link(error),
            SendError::Detached(error) => Self::of_detach(error),
            other => {
                let (_, verdict, code, advice) = UNKNOWN;
                Self::new(verdict, (code, advice), &other.to_string())
            }
        }
    }

    /// Classifies the error of a link that could not be attached for sending.
    pub(crate) fn of_sender(error: &SenderAttachError) -> Self {
        match error {
            SenderAttachError::RemoteClosedWithError(error) => Self::of_broker(error),
            SenderAttachError::SessionStopped(reason) => Self::of_session(reason),
            other => Self::lost(&other.to_string()),
        }
    }

    /// Classifies the error of a link that could not be attached for receiving.
    pub(crate) fn of_receiver(error: &ReceiverAttachError) -> Self {
        match error {
            ReceiverAttachError::RemoteClosedWithError(error) => Self::of_broker(error),
            ReceiverAttachError::SessionStopped(reason) => Self::of_session(reason),
            other => Self::lost(&other.to_string()),
        }
    }

    /// Classifies an error of receiving.
    pub(crate) fn of_receive(error: &RecvError) -> Self {
        match error {
            RecvError::LinkStateError(error) => Self::of_link(error),
            other => Self::lost(&other.to_string()),
        }
    }

    /// Classifies the reason why there is no connection.
    pub(crate) fn of_open(error: &AmqpOpenError) -> Self {
        let of_configuration = |what, why: &str| Self::new(AmqpVerdict::Configuration, what, why);
        match error {
            AmqpOpenError::Settings(why) => of_configuration(CONFIGURATION, why),
            AmqpOpenError::Session(why) => Self::lost(why),
            AmqpOpenError::Begin(BeginError::ConnectionStopped(reason)) => Self::of_stop(reason),
            AmqpOpenError::Begin(error) => Self::lost(&error.to_string()),
            AmqpOpenError::Plain(cause) if error.may_expect_tls() => {
                Self::new(AmqpVerdict::Outage, ENDED, &cause.to_string())
            }
            AmqpOpenError::Refused(why) => of_configuration(AUTHENTICATION, why),
            AmqpOpenError::TimedOut => Self::lost("no answer in time; does it expect TLS?"),
            AmqpOpenError::Broker(error) | AmqpOpenError::Plain(error) => match error {
                OpenError::Io(cause) if cause.kind() == io::ErrorKind::InvalidData => {
                    of_configuration(TLS, &cause.to_string())
                }
                OpenError::Io(cause) => Self::lost(&cause.to_string()),
                OpenError::SaslError { code: SaslCode::Auth | SaslCode::SysPerm, .. } => {
                    of_configuration(AUTHENTICATION, "SASL")
                }
                OpenError::NotImplemented(_) => of_configuration(MECHANISM, "SASL"),
                OpenError::ProtocolHeaderMismatch(_) => of_configuration(PROTOCOL, "header"),
                OpenError::InvalidDomain => of_configuration(TLS, "not a host name"),
                OpenError::RemoteClosedWithError(error) if Self::of_login(error).is_some() => {
                    of_configuration(AUTHENTICATION, &detail(error))
                }
                OpenError::RemoteClosedWithError(error) => {
                    let failure = Self::of_broker(error);
                    match failure.verdict {
                        // Before the first message, every refusal is one of the login.
                        AmqpVerdict::Address | AmqpVerdict::Message => {
                            Self { verdict: AmqpVerdict::Configuration, ..failure }
                        }
                        _ => Self { verdict: AmqpVerdict::Outage, ..failure },
                    }
                }
                other => Self::lost(&other.to_string()),
            },
        }
    }

    /// Returns whether there was no session to receive from, at a broker that waits for one.
    pub(crate) fn is_without_session(&self) -> bool {
        self.problem.message.contains(NO_SESSION)
    }

    /// Returns the delivery of a message that was sent alone, or of all that share the cause.
    pub(crate) fn delivery(&self, address: AmqpAddress) -> Delivery {
        let problem = self.problem.clone();
        match (self.verdict, address) {
            (AmqpVerdict::Message, _) | (AmqpVerdict::Address, AmqpAddress::OfMessage) => {
                Delivery::Reject { problem }
            }
            (AmqpVerdict::Address, AmqpAddress::Fixed) | (AmqpVerdict::Configuration, _) => {
                Delivery::Misconfigured { problem, after: Some(CONFIGURATION_PAUSE) }
            }
            (AmqpVerdict::Suspect, _) => Delivery::Retry { problem, after: None },
            (AmqpVerdict::Busy, _) => Delivery::Busy { problem, after: None },
            (AmqpVerdict::Full, AmqpAddress::OfMessage) => Delivery::Wait { problem, after: None },
            (AmqpVerdict::Full, AmqpAddress::Fixed) => Delivery::Outage { problem, after: None },
            (AmqpVerdict::Outage, _) => Delivery::Outage { problem, after: None },
        }
    }
}

/// The origin of the address of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmqpAddress {
    /// The configuration: an unknown address concerns every message.
    Fixed,
    /// The message: an unknown address concerns this one.
    OfMessage,
}

/// Returns the delivery of a message by the outcome that the broker settled it with.
pub(crate) fn outcome(outcome: &Outcome, address: AmqpAddress) -> Delivery {
    match outcome {
        Outcome::Accepted(_) => Delivery::Accepted,
        Outcome::Rejected(rejected) => match &rejected.error {
            Some(error) => {
                let failure = AmqpFailure::of_broker(error);
                match failure.verdict {
                    AmqpVerdict::Busy | AmqpVerdict::Full | AmqpVerdict::Outage => {
                        failure.delivery(address)
                    }
                    _ => Delivery::Reject { problem: failure.problem },
                }
            }
            None => Delivery::reject("AMQP_REJECTED", "the broker rejected it without a reason"),
        },
        Outcome::Released(_) => Delivery::retry(
            "AMQP_RELEASED",
            "the broker released the message without storing it; no queue may be bound to the address",
        ),
        Outcome::Modified(_) => {
            Delivery::retry("AMQP_MODIFIED", "the broker returned the message without storing it")
        }
    }
}

/// Returns the delivery of a message that the library cannot encode, or that is larger than the link
/// allows.
pub(crate) fn of_one_message(error: &SendError) -> Option<Delivery> {
    match error {
        SendError::MessageSizeExceeded(size) => Some(too_large(size.max_size)),
        SendError::MessageEncodeError => {
            Some(Delivery::reject("AMQP_ENCODING", "cannot encode the message for AMQP"))
        }
        _ => None,
    }
}

/// Returns the delivery of a message above a limit of bytes.
pub(crate) fn too_large(limit: u64) -> Delivery {
    let why = format!("the message is too large; the limit is {limit} bytes");
    Delivery::reject("AMQP_TOO_LARGE", &why)
}

/// Returns the delivery of a message without an outcome in time.
pub(crate) fn timed_out() -> Delivery {
    Delivery::outage("AMQP_TIMEOUT", "no outcome in time; the message may have arrived")
}

/// Returns the delivery while the broker gives no credit. Only a fixed address concerns all messages.
pub(crate) fn no_credit(address: AmqpAddress) -> Delivery {
    let (code, text) = (
        "AMQP_NO_CREDIT",
        "the broker gives the link no credit: it is blocked, or out of memory or disk space",
    );
    match address {
        AmqpAddress::Fixed => Delivery::outage(code, text),
        AmqpAddress::OfMessage => Delivery::Wait { problem: Problem::new(code, text), after: None },
    }
}

/// Returns the condition with the broker's text.
fn detail(error: &Error) -> String {
    match &error.description {
        Some(description) => format!("{}: {description}", condition(error)),
        None => condition(error),
    }
}

fn condition(error: &Error) -> String {
    let symbol = match &error.condition {
        ErrorCondition::AmqpError(error) => Symbol::from(error),
        ErrorCondition::ConnectionError(error) => Symbol::from(error),
        ErrorCondition::SessionError(error) => Symbol::from(error),
        ErrorCondition::LinkError(error) => Symbol::from(error),
        ErrorCondition::Custom(symbol) => symbol.clone(),
    };
    symbol.into_inner()
}

#[cfg(test)]
mod tests;
