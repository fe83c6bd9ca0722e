//! Classifies the errors of brokers and of the client library.
//!
//! Pure and driven by a table. An error closes a channel or the connection, so it concerns every
//! message in flight there; the verdict says which of them can be the cause.

use std::{io, time::Duration};

use lapin::{ErrorKind, message::BasicReturnMessage, protocol::AMQPErrorKind};
use relais_core::delivery::{Delivery, Problem};

use super::connection::OpenError;

/// The pause of the destination before it checks whether an operator has acted.
const CONFIGURATION_PAUSE: Duration = Duration::from_secs(5);

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RabbitVerdict {
    /// The exchange or the routing key of one message; with a fixed name that of all.
    Address,
    /// One message, which will never succeed. Sending each alone shows which one.
    Message,
    /// Perhaps one message. Sending each alone shows which one.
    Suspect,
    /// No message is accepted before an operator acts.
    Configuration,
    /// The broker cannot accept anything now.
    Outage,
}

/// Reply codes of the broker, a part of its text, the verdict, the code of the problem, and the advice.
type ErrorRow = (&'static [u16], &'static str, RabbitVerdict, &'static str, &'static str);

const TABLE: &[ErrorRow] = &[
    (
        &[406],
        "larger than",
        RabbitVerdict::Message,
        "RABBITMQ_TOO_LARGE",
        "the message is too large; send less, or raise `max_message_size` of the broker",
    ),
    (
        &[311],
        "",
        RabbitVerdict::Message,
        "RABBITMQ_TOO_LARGE",
        "the message is too large; send less",
    ),
    (
        &[406],
        "",
        RabbitVerdict::Message,
        "RABBITMQ_PRECONDITION",
        "the broker refuses this message; change its properties or the exchange",
    ),
    (
        &[404],
        "",
        RabbitVerdict::Address,
        "RABBITMQ_UNKNOWN_EXCHANGE",
        "the exchange does not exist; create it (its messages wait until then)",
    ),
    (
        &[403],
        "Login was refused",
        RabbitVerdict::Configuration,
        "RABBITMQ_AUTHENTICATION",
        "the broker refuses the login; check user and password in `url`, or the client certificate",
    ),
    (
        &[403],
        "",
        RabbitVerdict::Address,
        "RABBITMQ_ACCESS_REFUSED",
        "this user may not write there; grant it the permission (its messages wait until then)",
    ),
    (
        &[530],
        "vhost  not found",
        RabbitVerdict::Configuration,
        "RABBITMQ_VIRTUAL_HOST",
        "the virtual host in `url` is empty; end it with `/%2f` for the default one",
    ),
    (
        &[530, 402],
        "",
        RabbitVerdict::Configuration,
        "RABBITMQ_VIRTUAL_HOST",
        "the virtual host does not exist or this user may not use it; check `url`",
    ),
    (
        &[320, 506, 541],
        "",
        RabbitVerdict::Outage,
        "RABBITMQ_NOT_READY",
        "the broker closed the connection",
    ),
];

const UNKNOWN: ErrorRow =
    (&[], "", RabbitVerdict::Suspect, "RABBITMQ_ERROR", "the broker answered with an error");

const UNREACHABLE: (&str, &str) =
    ("RABBITMQ_UNREACHABLE", "the broker is not reachable; check `url` and the network");
const TLS: (&str, &str) = (
    "RABBITMQ_TLS",
    "cannot establish a TLS connection; check `tls_ca`, `tls_certificate`, the name in `url`, and that \
     the port expects TLS",
);
const NO_AMQP: (&str, &str) = (
    "RABBITMQ_UNREACHABLE",
    "the broker ended the connection during the login; if the port expects TLS, use amqps:// in `url`",
);

/// One error with its verdict.
#[derive(Clone, Debug)]
pub(super) struct RabbitFailure {
    pub(super) verdict: RabbitVerdict,
    pub(super) problem: Problem,
}

impl RabbitFailure {
    fn new(verdict: RabbitVerdict, (code, advice): (&str, &str), detail: &str) -> Self {
        let problem = Problem::new(code, &format!("{advice} ({detail})"));
        Self { verdict, problem }
    }

    /// Classifies the error of a channel or an open connection.
    pub(super) fn of(error: &lapin::Error) -> Self {
        let ErrorKind::ProtocolError(answer) = error.kind() else {
            return match error.kind() {
                // One message that the library cannot write.
                ErrorKind::SerialisationError(_) => Self::new(
                    RabbitVerdict::Suspect,
                    ("RABBITMQ_ENCODING", "cannot encode the message for AMQP"),
                    &error.to_string(),
                ),
                _ => Self::new(RabbitVerdict::Outage, UNREACHABLE, &error.to_string()),
            };
        };
        let text = answer.get_message().as_str();
        let code = answer.get_id();
        let (_, _, verdict, name, advice) = TABLE
            .iter()
            .find(|(codes, part, ..)| codes.contains(&code) && text.contains(part))
            .unwrap_or(&UNKNOWN);
        Self::new(*verdict, (name, advice), &format!("{code} {text}"))
    }

    /// Classifies the error of a consumer.
    pub(super) fn of_queue(error: &lapin::Error) -> Self {
        let failure = Self::of(error);
        let advice = match failure.problem.code.as_str() {
            "RABBITMQ_UNKNOWN_EXCHANGE" => "the queue does not exist; create it",
            "RABBITMQ_ACCESS_REFUSED" => {
                "this user may not read the queue, or another consumer has it exclusively"
            }
            _ => return failure,
        };
        Self::new(failure.verdict, ("RABBITMQ_QUEUE", advice), &error.to_string())
    }

    /// Classifies the reason why there is no connection.
    pub(super) fn of_open(error: &OpenError, is_tls: bool) -> Self {
        match error {
            OpenError::Settings(why) => Self::new(
                RabbitVerdict::Configuration,
                ("RABBITMQ_CONFIGURATION", "cannot connect with this configuration"),
                why,
            ),
            OpenError::TimedOut => {
                Self::new(RabbitVerdict::Outage, UNREACHABLE, "no answer in time")
            }
            OpenError::Broker(error) => match error.kind() {
                ErrorKind::IOError(cause)
                    if is_tls && cause.kind() == io::ErrorKind::InvalidData =>
                {
                    Self::new(RabbitVerdict::Configuration, TLS, &cause.to_string())
                }
                ErrorKind::ProtocolError(answer) if is_soft(answer.kind()) => {
                    // Before the first message, every refusal is one of the login.
                    let failure = Self::of(error);
                    Self { verdict: RabbitVerdict::Configuration, ..failure }
                }
                kind if !is_tls && may_expect_tls(kind) => {
                    Self::new(RabbitVerdict::Outage, NO_AMQP, &error.to_string())
                }
                _ => {
                    let failure = Self::of(error);
                    let verdict = match failure.verdict {
                        RabbitVerdict::Configuration => RabbitVerdict::Configuration,
                        _ => RabbitVerdict::Outage,
                    };
                    Self { verdict, ..failure }
                }
            },
        }
    }

    /// Returns the delivery of a message that was sent alone, or of all that share the cause.
    pub(super) fn delivery(&self, address: RabbitAddress) -> Delivery {
        let problem = self.problem.clone();
        match (self.verdict, address) {
            (RabbitVerdict::Message, _) | (RabbitVerdict::Address, RabbitAddress::OfMessage) => {
                Delivery::Reject { problem }
            }
            (RabbitVerdict::Address, RabbitAddress::Fixed) | (RabbitVerdict::Configuration, _) => {
                Delivery::Misconfigured { problem, after: Some(CONFIGURATION_PAUSE) }
            }
            (RabbitVerdict::Suspect, _) => Delivery::Retry { problem, after: None },
            (RabbitVerdict::Outage, _) => Delivery::Outage { problem, after: None },
        }
    }
}

/// The origin of the exchange's name, or of exchange and routing key together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RabbitAddress {
    /// The configuration: a wrong name concerns every message.
    Fixed,
    /// The message: a wrong name concerns this one.
    OfMessage,
}

/// Returns whether a broker that expects TLS answers a connection without it like this.
fn may_expect_tls(kind: &ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, InvalidData, UnexpectedEof};
    match kind {
        ErrorKind::IOError(cause) => {
            [ConnectionAborted, ConnectionReset, InvalidData, UnexpectedEof].contains(&cause.kind())
        }
        ErrorKind::ParsingError(_)
        | ErrorKind::InvalidProtocolVersion(_)
        | ErrorKind::InvalidConnectionState(_) => true,
        _ => false,
    }
}

fn is_soft(kind: &AMQPErrorKind) -> bool {
    matches!(kind, AMQPErrorKind::Soft(_))
}

/// Returns the delivery of a message that no queue received. `route` is the origin of its exchange and
/// routing key.
pub(super) fn returned(message: &BasicReturnMessage, route: RabbitAddress) -> Delivery {
    let (exchange, key) = (message.exchange.as_str(), message.routing_key.as_str());
    let (what, next) = match exchange {
        // Every queue is bound to the default exchange by its name.
        "" => (format!("the queue `{key}` does not exist"), "declare the queue"),
        _ => (
            format!("no queue is bound to exchange `{exchange}` for routing key `{key}`"),
            "bind one",
        ),
    };
    let then = match route {
        RabbitAddress::Fixed => " (messages wait until then)",
        RabbitAddress::OfMessage => ", then retry",
    };
    let (code, text) = (message.reply_code, message.reply_text.as_str());
    let detail = format!("{what}; {next}{then} ({code} {text})");
    let problem = Problem::new("RABBITMQ_UNROUTABLE", &detail);
    match route {
        RabbitAddress::Fixed => {
            Delivery::Misconfigured { problem, after: Some(CONFIGURATION_PAUSE) }
        }
        RabbitAddress::OfMessage => Delivery::Reject { problem },
    }
}

/// Returns the delivery of a message that a queue could not store. That is a state of the queue: with a
/// fixed route all messages wait, otherwise those of this key.
pub(super) fn refused_by_queue(route: RabbitAddress) -> Delivery {
    let problem = Problem::new(
        "RABBITMQ_NACK",
        "a queue did not store the message; it is full or has too few replicas (messages wait until \
         then)",
    );
    match route {
        RabbitAddress::Fixed => Delivery::Outage { problem, after: None },
        RabbitAddress::OfMessage => Delivery::Wait { problem, after: None },
    }
}

/// Returns the delivery while the broker is out of memory or disk space.
pub(super) fn blocked(reason: &str) -> Delivery {
    Delivery::outage(
        "RABBITMQ_BLOCKED",
        &format!("the broker does not accept messages now: {reason}; free memory or disk space"),
    )
}

/// Returns the delivery of a message without a confirm in time.
pub(super) fn timed_out() -> Delivery {
    Delivery::outage("RABBITMQ_TIMEOUT", "no confirm in time; the message may have arrived")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lapin::protocol::AMQPError;

    use super::*;

    fn error(code: u16, text: &str) -> lapin::Error {
        let answer = AMQPError::from_id(code, text.into()).unwrap();
        ErrorKind::ProtocolError(answer).into()
    }

    fn io_error(kind: io::ErrorKind) -> lapin::Error {
        ErrorKind::IOError(Arc::new(io::Error::new(kind, "x"))).into()
    }

    #[test]
    fn every_reply_has_its_verdict() {
        use RabbitVerdict::{Address, Configuration, Message, Outage, Suspect};
        for (code, text, verdict, name) in [
            (404, "NOT_FOUND - no exchange 'x' in vhost '/'", Address, "RABBITMQ_UNKNOWN_EXCHANGE"),
            (403, "ACCESS_REFUSED - access to exchange", Address, "RABBITMQ_ACCESS_REFUSED"),
            (403, "ACCESS_REFUSED - Login was refused", Configuration, "RABBITMQ_AUTHENTICATION"),
            (406, "message size 9 is larger than configured", Message, "RABBITMQ_TOO_LARGE"),
            (406, "PRECONDITION_FAILED - user_id", Message, "RABBITMQ_PRECONDITION"),
            (311, "CONTENT_TOO_LARGE", Message, "RABBITMQ_TOO_LARGE"),
            (530, "NOT_ALLOWED - vhost x not found", Configuration, "RABBITMQ_VIRTUAL_HOST"),
            (530, "NOT_ALLOWED - vhost  not found", Configuration, "RABBITMQ_VIRTUAL_HOST"),
            (320, "CONNECTION_FORCED - shutdown", Outage, "RABBITMQ_NOT_READY"),
            (541, "INTERNAL_ERROR", Outage, "RABBITMQ_NOT_READY"),
            (501, "FRAME_ERROR", Suspect, "RABBITMQ_ERROR"),
            (505, "UNEXPECTED_FRAME", Suspect, "RABBITMQ_ERROR"),
        ] {
            let failure = RabbitFailure::of(&error(code, text));
            assert_eq!((failure.verdict, failure.problem.code.as_str()), (verdict, name), "{text}");
            assert!(failure.problem.message.contains(text), "the broker's reason");
        }
        let cut = RabbitFailure::of(&io_error(io::ErrorKind::ConnectionReset));
        assert_eq!((cut.verdict, cut.problem.code.as_str()), (Outage, "RABBITMQ_UNREACHABLE"));
    }

    #[test]
    fn an_unknown_exchange_is_a_configuration_error_only_if_every_message_has_it() {
        let failure = RabbitFailure::of(&error(404, "NOT_FOUND"));
        let all = failure.delivery(RabbitAddress::Fixed);
        assert!(matches!(all, Delivery::Misconfigured { after: Some(_), .. }));
        assert!(matches!(failure.delivery(RabbitAddress::OfMessage), Delivery::Reject { .. }));
    }

    #[test]
    fn an_empty_virtual_host_says_how_to_name_the_default_one() {
        let advice = |text| RabbitFailure::of(&error(530, text)).problem.message;
        assert!(advice("NOT_ALLOWED - vhost  not found").contains("`/%2f`"));
        assert!(!advice("NOT_ALLOWED - vhost x not found").contains("%2f"));
    }

    #[test]
    fn a_full_queue_uses_no_attempt_and_holds_back_only_what_may_go_there() {
        let fixed = refused_by_queue(RabbitAddress::Fixed);
        assert!(matches!(fixed, Delivery::Outage { .. }), "{fixed:?}");
        let of_message = refused_by_queue(RabbitAddress::OfMessage);
        assert!(matches!(of_message, Delivery::Wait { .. }), "{of_message:?}");
    }

    #[test]
    fn without_a_connection_it_is_an_outage_or_the_configuration() {
        use RabbitVerdict::{Configuration, Outage};
        let broker = |error| OpenError::Broker(error);
        for (cause, verdict, code) in [
            (OpenError::TimedOut, Outage, "RABBITMQ_UNREACHABLE"),
            (OpenError::Settings("x".into()), Configuration, "RABBITMQ_CONFIGURATION"),
            (broker(io_error(io::ErrorKind::ConnectionRefused)), Outage, "RABBITMQ_UNREACHABLE"),
            (broker(io_error(io::ErrorKind::InvalidData)), Configuration, "RABBITMQ_TLS"),
            (broker(error(403, "Login was refused")), Configuration, "RABBITMQ_AUTHENTICATION"),
            (broker(error(530, "vhost")), Configuration, "RABBITMQ_VIRTUAL_HOST"),
            (broker(error(501, "FRAME_ERROR")), Outage, "RABBITMQ_ERROR"),
        ] {
            let failure = RabbitFailure::of_open(&cause, true);
            assert_eq!((failure.verdict, failure.problem.code.as_str()), (verdict, code));
        }
    }
}
