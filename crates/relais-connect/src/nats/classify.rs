//! Classifies the errors of servers and of the client library.
//!
//! Pure and driven by a table. Each message has an answer of its own, so an answer concerns one
//! message unless the verdict says otherwise.

use std::{error::Error, io, time::Duration};

use async_nats::{ConnectErrorKind, RequestError, RequestErrorKind};
use relais_core::delivery::{Delivery, Problem};

use super::{api::JetStreamError, connection::NatsOpenError};

/// The pause of the destination before it checks whether an operator has acted.
const CONFIGURATION_PAUSE: Duration = Duration::from_secs(5);
/// Bytes of an unreadable answer that are shown.
const SHOWN_MAX: usize = 200;

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NatsVerdict {
    /// The subject of one message; with a fixed subject that of all.
    Address,
    /// One message, which will never succeed.
    Message,
    /// Perhaps one message.
    Suspect,
    /// The subject or its stream is full; with a fixed subject no message is accepted now.
    Full,
    /// No message is accepted before an operator acts.
    Configuration,
    /// The server cannot accept anything now.
    Outage,
}

/// Codes of JetStream's errors, a part of the text, the verdict, the code of the problem, and the advice.
type ErrorRow = (&'static [u32], &'static str, NatsVerdict, &'static str, &'static str);

const TABLE: &[ErrorRow] = &[
    (
        &[10_054, 10_097],
        "",
        NatsVerdict::Message,
        TOO_LARGE.0,
        "the message is too large for the stream; send less, or raise its `max_msg_size`",
    ),
    (
        &[10_077],
        "per subject",
        NatsVerdict::Full,
        "NATS_SUBJECT_FULL",
        "the stream has its maximum number of messages of this subject; read them, or raise the limit",
    ),
    (
        &[10_077],
        "maximum",
        NatsVerdict::Full,
        "NATS_STREAM_FULL",
        "the stream is full and refuses new messages; read them, or raise its limits",
    ),
    (
        &[10_077],
        "",
        NatsVerdict::Outage,
        "NATS_STORE_FAILED",
        "the server could not store the message",
    ),
    (
        &[10_002, 10_023, 10_028, 10_047],
        "",
        NatsVerdict::Outage,
        "NATS_NO_RESOURCES",
        "the server has no storage left for JetStream; free it, or raise the account's limits",
    ),
    (
        &[10_039, 10_076],
        "",
        NatsVerdict::Configuration,
        "NATS_NO_JETSTREAM",
        "JetStream is off on this server or for this account; enable it",
    ),
    (
        &[10_109],
        "",
        NatsVerdict::Address,
        "NATS_STREAM_SEALED",
        "the stream is sealed and accepts no messages; use another subject",
    ),
    (
        &[10_059],
        "",
        NatsVerdict::Configuration,
        "NATS_UNKNOWN_STREAM",
        "the stream does not exist; create it (relais reads it then)",
    ),
    (
        &[CONSUMER_NOT_FOUND],
        "",
        NatsVerdict::Configuration,
        "NATS_UNKNOWN_CONSUMER",
        "the consumer does not exist",
    ),
];

/// JetStream's code for a consumer that does not exist.
const CONSUMER_NOT_FOUND: u32 = 10_014;
/// JetStream's code for a message that does not exist.
const MESSAGE_NOT_FOUND: u32 = 10_037;

const REFUSED: (&str, &str) = ("NATS_REFUSED", "the stream refuses this message");
const NOT_READY: (&str, &str) = ("NATS_NOT_READY", "JetStream is not available now");
const ERROR: (&str, &str) = ("NATS_ERROR", "the server answered with an error");
const UNREACHABLE: (&str, &str) =
    ("NATS_UNREACHABLE", "the server is not reachable; check `url` and the network");
const TIMEOUT: (&str, &str) =
    ("NATS_TIMEOUT", "no acknowledgement in time; the message may have arrived");
const TLS: (&str, &str) = (
    "NATS_TLS",
    "cannot establish a TLS connection; check `tls_ca`, `tls_certificate` and the name in `url`",
);
const AUTHENTICATION: (&str, &str) = (
    "NATS_AUTHENTICATION",
    "the server refuses the login; check `url`, `nkey`, `credentials` or the client certificate",
);
const TOO_LARGE: (&str, &str) =
    ("NATS_TOO_LARGE", "the message is too large; send less, or raise `max_payload` of the server");
const FORBIDDEN: (&str, &str) = (
    "NATS_FORBIDDEN",
    "this user may not write to this subject; grant it the permission (its messages wait until then)",
);
const UNROUTABLE: (&str, &str) =
    ("NATS_UNROUTABLE", "no stream has the subject; add it to one (then retry the dead letters)");

/// One error with its verdict.
#[derive(Clone, Debug)]
pub(super) struct NatsFailure {
    pub(super) verdict: NatsVerdict,
    pub(super) problem: Problem,
    /// JetStream's code, or 0.
    code: u32,
}

impl NatsFailure {
    fn new(verdict: NatsVerdict, (name, advice): (&str, &str), detail: &str) -> Self {
        let problem = Problem::new(name, &format!("{advice} ({detail})"));
        Self { verdict, problem, code: 0 }
    }

    /// Classifies an error that JetStream answered with.
    pub(super) fn of_answer(error: &JetStreamError) -> Self {
        let JetStreamError { code, err_code, description } = error;
        let row = TABLE
            .iter()
            .find(|(codes, part, ..)| codes.contains(err_code) && description.contains(part));
        let (verdict, text) = match (row, code) {
            (Some((_, _, verdict, name, advice)), _) => (*verdict, (*name, *advice)),
            (None, 503) => (NatsVerdict::Outage, NOT_READY),
            (None, 400..=499) => (NatsVerdict::Message, REFUSED),
            (None, _) => (NatsVerdict::Suspect, ERROR),
        };
        let failure = Self::new(verdict, text, &format!("{code} {err_code} {description}"));
        Self { code: *err_code, ..failure }
    }

    /// Classifies the error of a request.
    pub(super) fn of_request(error: &RequestError) -> Self {
        let detail = with_sources(error);
        match error.kind() {
            RequestErrorKind::MaxPayloadExceeded => {
                Self::new(NatsVerdict::Message, TOO_LARGE, &detail)
            }
            RequestErrorKind::InvalidSubject => Self::new(
                NatsVerdict::Message,
                ("NATS_SUBJECT", "the subject cannot be used"),
                &detail,
            ),
            RequestErrorKind::NoResponders => Self::new(NatsVerdict::Outage, NOT_READY, &detail),
            RequestErrorKind::TimedOut => Self::new(NatsVerdict::Outage, TIMEOUT, &detail),
            _ => Self::new(NatsVerdict::Outage, UNREACHABLE, &detail),
        }
    }

    /// Classifies the failure to connect.
    pub(super) fn of_open(error: &NatsOpenError) -> Self {
        use NatsVerdict::{Configuration, Outage};
        match error {
            NatsOpenError::Settings(why) => Self::new(
                Configuration,
                ("NATS_CONFIGURATION", "cannot use the settings of the connection"),
                why,
            ),
            NatsOpenError::TimedOut => Self::new(Outage, UNREACHABLE, "no answer in time"),
            NatsOpenError::Server(error) => {
                let detail = with_sources(error);
                match error.kind() {
                    ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                        Self::new(Configuration, AUTHENTICATION, &detail)
                    }
                    ConnectErrorKind::Tls => Self::new(Configuration, TLS, &detail),
                    _ if is_tls_refusal(error) => Self::new(Configuration, TLS, &detail),
                    _ => Self::new(Outage, UNREACHABLE, &detail),
                }
            }
        }
    }

    /// Returns the failure of everything in flight on a lost connection.
    pub(super) fn lost(reason: &str) -> Self {
        Self::new(NatsVerdict::Outage, UNREACHABLE, reason)
    }

    /// Returns the failure of a request for messages that the server has ended.
    pub(super) fn ended(detail: &str) -> Self {
        Self::new(NatsVerdict::Outage, ("NATS_ENDED", "the server ended the request"), detail)
    }

    /// Returns the failure of a message without an answer in time.
    pub(super) fn timed_out() -> Self {
        Self::new(NatsVerdict::Outage, TIMEOUT, "time limit")
    }

    /// Returns the failure of a subject that the user may not write to.
    pub(super) fn forbidden(subject: &str) -> Self {
        let detail = format!("permissions violation for publish to `{subject}`");
        Self::new(NatsVerdict::Address, FORBIDDEN, &detail)
    }

    /// Returns the failure of an answer that is not one of JetStream.
    pub(super) fn unreadable(answer: &[u8]) -> Self {
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(SHOWN_MAX)]).into_owned();
        let text = ("NATS_ANSWER", "the answer is not one of JetStream");
        Self::new(NatsVerdict::Suspect, text, &shown)
    }

    /// Returns whether a consumer does not exist.
    pub(super) fn is_unknown_consumer(&self) -> bool {
        self.code == CONSUMER_NOT_FOUND
    }

    /// Returns whether a stream has no such message.
    pub(super) fn is_no_message(&self) -> bool {
        self.code == MESSAGE_NOT_FOUND
    }

    /// Returns the delivery of a message.
    pub(super) fn delivery(&self, address: NatsAddress) -> Delivery {
        let problem = self.problem.clone();
        match (self.verdict, address) {
            (NatsVerdict::Message, _) | (NatsVerdict::Address, NatsAddress::OfMessage) => {
                Delivery::Reject { problem }
            }
            (NatsVerdict::Address, NatsAddress::Fixed) | (NatsVerdict::Configuration, _) => {
                Delivery::Misconfigured { problem, after: Some(CONFIGURATION_PAUSE) }
            }
            (NatsVerdict::Suspect, _) => Delivery::Retry { problem, after: None },
            (NatsVerdict::Full, NatsAddress::OfMessage) => Delivery::Wait { problem, after: None },
            (NatsVerdict::Full, NatsAddress::Fixed) | (NatsVerdict::Outage, _) => {
                Delivery::Outage { problem, after: None }
            }
        }
    }
}

/// The origin of the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NatsAddress {
    /// The configuration: a refused subject concerns every message.
    Fixed,
    /// The message: a refused subject concerns this one.
    OfMessage,
}

/// Returns the failure of a message whose subject no stream has.
pub(super) fn unroutable(subject: &str) -> NatsFailure {
    let why = format!("subject `{subject}`: 503 no responders");
    NatsFailure::new(NatsVerdict::Address, UNROUTABLE, &why)
}

/// Returns the failure of a message that a program got and no stream.
pub(super) fn unacknowledged(subject: &str) -> NatsFailure {
    let why = format!("subject `{subject}`: the program that listens to it acknowledges nothing");
    NatsFailure::new(NatsVerdict::Address, UNROUTABLE, &why)
}

/// Returns the delivery of a message whose stream exists and does not answer.
pub(super) fn without_leader(stream: &str) -> Delivery {
    Delivery::outage(
        "NATS_NOT_READY",
        &format!("the stream `{stream}` does not answer now (503 no responders)"),
    )
}

fn is_tls_refusal(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error
            .downcast_ref::<io::Error>()
            .is_some_and(|io| io.kind() == io::ErrorKind::InvalidData)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns the text of an error and of those below it, each once.
fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use async_nats::ConnectError;

    use super::*;

    fn answer(code: u16, err_code: u32, description: &str) -> NatsFailure {
        NatsFailure::of_answer(&JetStreamError {
            code,
            err_code,
            description: description.to_owned(),
        })
    }

    #[test]
    fn every_answer_has_its_verdict() {
        use NatsVerdict::{Address, Configuration, Full, Message, Outage, Suspect};
        for (code, err_code, text, verdict, name) in [
            (400, 10_054, "message size exceeds maximum allowed", Message, "NATS_TOO_LARGE"),
            (400, 10_097, "header size exceeds maximum", Message, "NATS_TOO_LARGE"),
            (503, 10_077, "maximum messages exceeded", Full, "NATS_STREAM_FULL"),
            (503, 10_077, "maximum bytes exceeded", Full, "NATS_STREAM_FULL"),
            (503, 10_077, "maximum messages per subject exceeded", Full, "NATS_SUBJECT_FULL"),
            (503, 10_077, "no space left on device", Outage, "NATS_STORE_FAILED"),
            (503, 10_023, "insufficient resources", Outage, "NATS_NO_RESOURCES"),
            (500, 10_047, "insufficient storage resources", Outage, "NATS_NO_RESOURCES"),
            (400, 10_002, "resource limits exceeded for account", Outage, "NATS_NO_RESOURCES"),
            (503, 10_076, "jetstream not enabled", Configuration, "NATS_NO_JETSTREAM"),
            (503, 10_039, "not enabled for account", Configuration, "NATS_NO_JETSTREAM"),
            (400, 10_109, "invalid operation on sealed stream", Address, "NATS_STREAM_SEALED"),
            (503, 10_008, "temporarily unavailable", Outage, "NATS_NOT_READY"),
            (400, 10_071, "wrong last sequence: 7", Message, "NATS_REFUSED"),
            (500, 10_000, "?", Suspect, "NATS_ERROR"),
        ] {
            let failure = answer(code, err_code, text);
            assert_eq!((failure.verdict, failure.problem.code.as_str()), (verdict, name), "{text}");
            assert!(failure.problem.message.contains(text), "the server's reason");
        }
        assert!(answer(404, 10_014, "consumer not found").is_unknown_consumer());
        assert!(!answer(404, 10_059, "stream not found").is_unknown_consumer());
        assert!(answer(404, 10_037, "no message found").is_no_message());
    }

    #[test]
    fn a_forbidden_subject_is_a_configuration_error_only_if_every_message_has_it() {
        let failure = NatsFailure::forbidden("orders");
        let all = failure.delivery(NatsAddress::Fixed);
        assert!(matches!(all, Delivery::Misconfigured { after: Some(_), .. }));
        assert!(matches!(failure.delivery(NatsAddress::OfMessage), Delivery::Reject { .. }));
    }

    #[test]
    fn a_subject_without_a_stream_is_a_configuration_error_only_if_every_message_has_it() {
        for failure in [unroutable("orders"), unacknowledged("orders")] {
            assert!(failure.problem.message.contains("`orders`"), "{failure:?}");
            let all = failure.delivery(NatsAddress::Fixed);
            assert!(matches!(all, Delivery::Misconfigured { after: Some(_), .. }));
            let one = failure.delivery(NatsAddress::OfMessage);
            assert!(matches!(one, Delivery::Reject { .. }));
        }
    }

    #[test]
    fn an_outage_and_a_full_subject_or_stream_use_no_attempt() {
        let delivery = |failure: NatsFailure| failure.delivery(NatsAddress::Fixed);
        assert!(matches!(delivery(NatsFailure::timed_out()), Delivery::Outage { .. }));
        assert!(matches!(delivery(NatsFailure::lost("x")), Delivery::Outage { .. }));
        assert!(matches!(delivery(NatsFailure::unreadable(b"x")), Delivery::Retry { .. }));
        for limit in ["maximum messages per subject exceeded", "maximum bytes exceeded"] {
            let full = || answer(503, 10_077, limit);
            assert!(matches!(delivery(full()), Delivery::Outage { .. }), "{limit}");
            let of_message = full().delivery(NatsAddress::OfMessage);
            assert!(matches!(of_message, Delivery::Wait { .. }), "{of_message:?}");
        }
    }

    #[test]
    fn errors_of_requests_and_of_opening_have_their_verdict() {
        use NatsVerdict::{Configuration, Message, Outage};
        for (kind, verdict, code) in [
            (RequestErrorKind::MaxPayloadExceeded, Message, "NATS_TOO_LARGE"),
            (RequestErrorKind::TimedOut, Outage, "NATS_TIMEOUT"),
            (RequestErrorKind::NoResponders, Outage, "NATS_NOT_READY"),
            (RequestErrorKind::Other, Outage, "NATS_UNREACHABLE"),
        ] {
            let failure = NatsFailure::of_request(&RequestError::new(kind));
            assert_eq!((failure.verdict, failure.problem.code.as_str()), (verdict, code));
        }
        let io = |kind| NatsOpenError::Server(ConnectError::from(io::Error::new(kind, "x")));
        let server = |kind| NatsOpenError::Server(ConnectError::new(kind));
        for (cause, verdict, code) in [
            (NatsOpenError::TimedOut, Outage, "NATS_UNREACHABLE"),
            (NatsOpenError::Settings("x".into()), Configuration, "NATS_CONFIGURATION"),
            (io(io::ErrorKind::ConnectionRefused), Outage, "NATS_UNREACHABLE"),
            (io(io::ErrorKind::InvalidData), Configuration, "NATS_TLS"),
            (server(ConnectErrorKind::Tls), Configuration, "NATS_TLS"),
            (server(ConnectErrorKind::Dns), Outage, "NATS_UNREACHABLE"),
            (
                server(ConnectErrorKind::AuthorizationViolation),
                Configuration,
                "NATS_AUTHENTICATION",
            ),
        ] {
            let failure = NatsFailure::of_open(&cause);
            assert_eq!((failure.verdict, failure.problem.code.as_str()), (verdict, code));
        }
    }
}
