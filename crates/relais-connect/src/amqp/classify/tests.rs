//! Every condition, outcome and error with its verdict.

use fe2o3_amqp_types::messaging::{Accepted, Modified, Rejected, Released};

use super::*;

const MODIFIED: Modified =
    Modified { delivery_failed: None, undeliverable_here: None, message_annotations: None };

fn error(condition: &str) -> Error {
    Error::new(ErrorCondition::Custom(condition.into()), Some("why".to_owned()), None)
}

fn code(delivery: &Delivery) -> &str {
    delivery.problem().map_or("", |(problem, _)| problem.code.as_str())
}

#[test]
fn every_condition_has_its_verdict() {
    use AmqpVerdict::{Address, Busy, Full, Message, Outage, Suspect};
    for (condition, verdict, name) in [
        ("amqp:not-found", Address, "AMQP_UNKNOWN_ADDRESS"),
        ("amqp:resource-deleted", Address, "AMQP_UNKNOWN_ADDRESS"),
        ("com.microsoft:entity-disabled", Address, "AMQP_UNKNOWN_ADDRESS"),
        ("amqp:unauthorized-access", Address, "AMQP_ACCESS_REFUSED"),
        ("amqp:link:message-size-exceeded", Message, "AMQP_TOO_LARGE"),
        ("amqp:precondition-failed", Message, "AMQP_REFUSED"),
        ("com.microsoft:argument-error", Message, "AMQP_REFUSED"),
        ("amqp:resource-limit-exceeded", Full, "AMQP_FULL"),
        ("com.microsoft:server-busy", Busy, "AMQP_FULL"),
        ("amqp:link:detach-forced", Outage, "AMQP_NOT_READY"),
        ("amqp:connection:forced", Outage, "AMQP_NOT_READY"),
        ("com.microsoft:timeout", Outage, "AMQP_NOT_READY"),
        ("amqp:internal-error", Suspect, "AMQP_ERROR"),
        ("vendor:else", Suspect, "AMQP_ERROR"),
    ] {
        let failure = AmqpFailure::of_broker(&error(condition));
        assert_eq!((failure.verdict, failure.problem.code.as_str()), (verdict, name));
        assert!(failure.problem.message.contains(condition), "the broker's reason");
        assert!(failure.problem.message.contains("why"), "the broker's text");
    }
}

#[test]
fn an_unknown_address_is_a_configuration_error_only_if_every_message_has_it() {
    let failure = AmqpFailure::of_broker(&error("amqp:not-found"));
    let all = failure.delivery(AmqpAddress::Fixed);
    assert!(matches!(all, Delivery::Misconfigured { after: Some(_), .. }));
    assert!(matches!(failure.delivery(AmqpAddress::OfMessage), Delivery::Reject { .. }));
}

#[test]
fn only_accepted_is_delivered() {
    let rejected =
        |condition: Option<&str>| Outcome::Rejected(Rejected { error: condition.map(error) });
    assert_eq!(outcome(&Outcome::Accepted(Accepted {}), AmqpAddress::Fixed), Delivery::Accepted);
    for (answer, name) in [
        (rejected(None), "AMQP_REJECTED"),
        (rejected(Some("amqp:not-found")), "AMQP_UNKNOWN_ADDRESS"),
        (rejected(Some("amqp:precondition-failed")), "AMQP_REFUSED"),
        (rejected(Some("amqp:internal-error")), "AMQP_ERROR"),
    ] {
        let delivery = outcome(&answer, AmqpAddress::Fixed);
        assert!(matches!(delivery, Delivery::Reject { .. }), "{delivery:?}");
        assert_eq!(code(&delivery), name);
    }
    let full = |address| outcome(&rejected(Some("amqp:resource-limit-exceeded")), address);
    assert!(matches!(full(AmqpAddress::Fixed), Delivery::Outage { .. }));
    assert!(matches!(full(AmqpAddress::OfMessage), Delivery::Wait { .. }));
    assert!(matches!(no_credit(AmqpAddress::Fixed), Delivery::Outage { .. }));
    assert!(matches!(no_credit(AmqpAddress::OfMessage), Delivery::Wait { .. }));
    for (answer, name) in [
        (Outcome::Released(Released {}), "AMQP_RELEASED"),
        (Outcome::Modified(MODIFIED), "AMQP_MODIFIED"),
    ] {
        let delivery = outcome(&answer, AmqpAddress::Fixed);
        assert!(matches!(delivery, Delivery::Retry { .. }), "{delivery:?}");
        assert_eq!(code(&delivery), name);
    }
}

#[test]
fn without_a_connection_it_is_an_outage_or_the_configuration() {
    use AmqpVerdict::{Configuration, Outage};
    let io = |kind| AmqpOpenError::Broker(OpenError::Io(io::Error::new(kind, "x")));
    let sasl = |code| AmqpOpenError::Broker(OpenError::SaslError { code, additional_data: None });
    let closed =
        |condition| AmqpOpenError::Broker(OpenError::RemoteClosedWithError(error(condition)));
    let stopped = |condition| {
        let reason = ConnectionStopReason::RemoteClosedWithError(error(condition));
        AmqpOpenError::Begin(BeginError::ConnectionStopped(reason))
    };
    for (cause, verdict, name) in [
        (AmqpOpenError::TimedOut, Outage, "AMQP_UNREACHABLE"),
        (AmqpOpenError::Refused("401".into()), Configuration, "AMQP_AUTHENTICATION"),
        (AmqpOpenError::Settings("x".into()), Configuration, "AMQP_CONFIGURATION"),
        (io(io::ErrorKind::ConnectionRefused), Outage, "AMQP_UNREACHABLE"),
        (io(io::ErrorKind::InvalidData), Configuration, "AMQP_TLS"),
        (sasl(SaslCode::Auth), Configuration, "AMQP_AUTHENTICATION"),
        (sasl(SaslCode::SysTemp), Outage, "AMQP_UNREACHABLE"),
        (AmqpOpenError::Broker(OpenError::NotImplemented(None)), Configuration, "AMQP_MECHANISM"),
        (closed("amqp:unauthorized-access"), Configuration, "AMQP_AUTHENTICATION"),
        (stopped("amqp:unauthorized-access"), Configuration, "AMQP_AUTHENTICATION"),
        (stopped("amqp:connection:forced"), Outage, "AMQP_UNREACHABLE"),
        (closed("amqp:not-found"), Configuration, "AMQP_UNKNOWN_ADDRESS"),
        (closed("amqp:connection:forced"), Outage, "AMQP_NOT_READY"),
        (closed("amqp:internal-error"), Outage, "AMQP_ERROR"),
    ] {
        let failure = AmqpFailure::of_open(&cause);
        assert_eq!((failure.verdict, failure.problem.code.as_str()), (verdict, name));
    }
}

#[test]
fn a_message_above_the_limit_of_the_link_is_rejected() {
    let size = fe2o3_amqp::link::MessageSizeExceeded { size: 9, max_size: 8 };
    let delivery = of_one_message(&SendError::MessageSizeExceeded(size)).unwrap();
    assert_eq!(code(&delivery), "AMQP_TOO_LARGE");
    assert_eq!(of_one_message(&SendError::NonTerminalDeliveryState), None);
}

#[test]
fn a_connection_without_tls_that_ends_at_once_names_the_scheme() {
    let cut = |kind| {
        AmqpFailure::of_open(&AmqpOpenError::Plain(OpenError::Io(io::Error::new(kind, "x"))))
    };
    assert!(cut(io::ErrorKind::UnexpectedEof).problem.message.contains("amqps://"));
    assert!(!cut(io::ErrorKind::TimedOut).problem.message.contains("amqps://"));
}
