//! What an error of the broker or of librdkafka means for the message.
//!
//! Pure and driven by a table. An *outage* is when the cluster cannot take anything now; nothing that
//! is about the cluster, the network or our credentials ever uses an attempt of a message.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use relais_core::delivery::{Delivery, Problem};

/// How long the destination rests before it finds out whether an operator has acted.
const CONFIGURATION_PAUSE: Duration = Duration::from_secs(5);

/// What one error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No message of this topic is accepted before an operator has done something.
    Configuration,
    /// A message of the batch is refused. Which one is known when each has been sent alone.
    Suspect,
    /// This message failed now and may succeed later.
    Retry,
    /// The cluster cannot take anything now.
    Outage,
    /// Nothing about the message: its producer came to an end. Another one sends it again.
    Again,
}

/// Some errors, what they mean, their code and what to do about them.
type Line = (&'static [Code], Verdict, &'static str, &'static str);

const TABLE: &[Line] = &[
    (
        &[Code::UnknownTopic, Code::UnknownTopicOrPartition, Code::UnknownTopicId],
        Verdict::Configuration,
        "KAFKA_UNKNOWN_TOPIC",
        "the topic does not exist; create it, its messages wait until then",
    ),
    (
        &[Code::InvalidTopic],
        Verdict::Configuration,
        "KAFKA_INVALID_TOPIC",
        "the cluster does not allow a topic of this name; change `topic`",
    ),
    (
        &[Code::TopicAuthorizationFailed],
        Verdict::Configuration,
        "KAFKA_TOPIC_AUTHORIZATION",
        "this client may not write to the topic; grant it WRITE, its messages wait until then",
    ),
    (
        &[Code::MessageSizeTooLarge, Code::MessageBatchTooLarge, Code::InvalidMessageSize],
        Verdict::Suspect,
        "KAFKA_TOO_LARGE",
        "the message is too large; send less, or raise `max.message.bytes` of the topic and the \
         option `message.max.bytes`",
    ),
    (
        &[
            Code::InvalidRecord,
            Code::InvalidTimestamp,
            Code::PolicyViolation,
            Code::UnsupportedForMessageFormat,
        ],
        Verdict::Suspect,
        "KAFKA_INVALID_RECORD",
        "the broker does not take this message; look at what the topic asks of its records",
    ),
    (
        &[
            Code::Authentication,
            Code::SaslAuthenticationFailed,
            Code::UnsupportedSASLMechanism,
            Code::IllegalSASLState,
            Code::SecurityDisabled,
        ],
        Verdict::Configuration,
        "KAFKA_AUTHENTICATION",
        "the cluster does not know our credentials; check the `sasl.` options",
    ),
    (
        &[Code::SSL],
        Verdict::Configuration,
        "KAFKA_TLS",
        "no TLS connection; check the `ssl.` options and `security.protocol`",
    ),
    (
        &[Code::ClusterAuthorizationFailed, Code::TransactionalIdAuthorizationFailed],
        Verdict::Configuration,
        "KAFKA_CLUSTER_AUTHORIZATION",
        "this client may not write idempotently; grant it IDEMPOTENT_WRITE on the cluster",
    ),
    (
        &[Code::UnsupportedCompressionType, Code::UnsupportedVersion, Code::UnsupportedFeature],
        Verdict::Configuration,
        "KAFKA_UNSUPPORTED",
        "the cluster cannot do what is asked of it; check the options and its version",
    ),
    (
        &[
            Code::AllBrokersDown,
            Code::BrokerTransportFailure,
            Code::Resolve,
            Code::NetworkException,
        ],
        Verdict::Outage,
        "KAFKA_UNREACHABLE",
        "no broker can be reached; check `brokers` and the network",
    ),
    (
        &[
            Code::NotEnoughReplicas,
            Code::NotEnoughReplicasAfterAppend,
            Code::ISRInsufficient,
            Code::LeaderNotAvailable,
            Code::NotLeaderForPartition,
            Code::BrokerNotAvailable,
            Code::ReplicaNotAvailable,
            Code::KafkaStorageError,
            Code::FencedLeaderEpoch,
            Code::UnknownLeaderEpoch,
            Code::EligibleLeadersNotAvailable,
            Code::CoordinatorNotAvailable,
            Code::CoordinatorLoadInProgress,
            Code::NotCoordinator,
            Code::RebootstrapRequired,
        ],
        Verdict::Outage,
        "KAFKA_NOT_READY",
        "the cluster has not enough brokers for the topic now",
    ),
    (
        &[
            Code::MessageTimedOut,
            Code::OperationTimedOut,
            Code::TimedOutQueue,
            Code::RequestTimedOut,
        ],
        Verdict::Outage,
        "KAFKA_TIMEOUT",
        "no answer in time; the message may have arrived",
    ),
    (
        &[Code::QueueFull, Code::ThrottlingQuotaExceeded, Code::CriticalSystemResource],
        Verdict::Outage,
        "KAFKA_BUSY",
        "more is waiting than the cluster takes",
    ),
    (
        &[
            Code::Fatal,
            Code::GaplessGuarantee,
            Code::Inconsistent,
            Code::PurgeQueue,
            Code::PurgeInflight,
            Code::OutOfOrderSequenceNumber,
            Code::UnknownProducerId,
            Code::InvalidProducerEpoch,
            Code::InvalidProducerIdMapping,
            Code::ProducerFenced,
            Code::Fenced,
            Code::InvalidDifferentRecord,
            Code::UnknownPartition,
            Code::BrokerDestroy,
        ],
        Verdict::Again,
        "KAFKA_PRODUCER_ENDED",
        "the producer came to an end each time the message was sent",
    ),
];

const UNKNOWN: Line = (&[], Verdict::Retry, "KAFKA_ERROR", "the cluster answered with an error");

pub(super) fn verdict(code: Code) -> Verdict {
    line(code).1
}

/// The delivery of a message that travelled alone.
pub(super) fn delivery(code: Code, topic: &str) -> Delivery {
    let problem = problem(code, topic, "");
    match verdict(code) {
        Verdict::Suspect => Delivery::Reject { problem },
        Verdict::Configuration => {
            Delivery::Misconfigured { problem, after: Some(CONFIGURATION_PAUSE) }
        }
        Verdict::Outage => Delivery::Outage { problem, after: None },
        Verdict::Retry | Verdict::Again => Delivery::Retry { problem, after: None },
    }
}

/// The problem as people read it; `detail` is what librdkafka said, without secrets.
pub(super) fn problem(code: Code, topic: &str, detail: &str) -> Problem {
    let (_, _, name, advice) = line(code);
    let detail = if detail.is_empty() { code.to_string() } else { format!("{code}: {detail}") };
    Problem::new(name, &format!("topic `{topic}`: {advice} ({detail})"))
}

fn line(code: Code) -> &'static Line {
    TABLE.iter().find(|(codes, ..)| codes.contains(&code)).unwrap_or(&UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_verdict() {
        use Verdict::{Again, Configuration, Outage, Retry, Suspect};
        let table = [
            (Configuration, &[Code::UnknownTopic, Code::TopicAuthorizationFailed, Code::SSL][..]),
            (Suspect, &[Code::MessageSizeTooLarge, Code::InvalidRecord, Code::PolicyViolation]),
            (Outage, &[Code::AllBrokersDown, Code::BrokerTransportFailure, Code::MessageTimedOut]),
            (Outage, &[Code::NotEnoughReplicas, Code::QueueFull, Code::RequestTimedOut]),
            (Configuration, &[Code::SaslAuthenticationFailed, Code::ClusterAuthorizationFailed]),
            (Outage, &[Code::LeaderNotAvailable, Code::NotEnoughReplicasAfterAppend]),
            (Again, &[Code::Fatal, Code::OutOfOrderSequenceNumber, Code::PurgeInflight]),
            (Retry, &[Code::Unknown, Code::InvalidRequest, Code::StaleControllerEpoch]),
        ];
        for (verdict, codes) in table {
            for code in codes {
                assert_eq!(super::verdict(*code), verdict, "{code}");
            }
        }
    }

    #[test]
    fn no_code_stands_in_two_lines() {
        let codes: Vec<_> = TABLE.iter().flat_map(|(codes, ..)| codes.iter()).collect();
        for (at, code) in codes.iter().enumerate() {
            assert!(!codes[..at].contains(code), "{code}");
        }
    }

    #[test]
    fn a_problem_says_what_to_do_about_which_topic() {
        let Delivery::Misconfigured { problem, after: Some(_) } =
            delivery(Code::UnknownTopic, "orders")
        else {
            panic!("no message can succeed without its topic")
        };
        assert_eq!(problem.code, "KAFKA_UNKNOWN_TOPIC");
        assert!(problem.message.starts_with("topic `orders`: the topic does not exist; create it"));
    }
}
