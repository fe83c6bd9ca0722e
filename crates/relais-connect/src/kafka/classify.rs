//! Classifies the errors of brokers and of librdkafka.
//!
//! Pure and driven by a table. An *outage* means that the cluster cannot accept anything now.
//! Problems of the cluster, the network or the credentials never use an attempt of a message.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use relais_core::delivery::{Delivery, Problem};

/// The pause of the destination before it checks whether an operator has acted.
pub(super) const CONFIGURATION_PAUSE: Duration = Duration::from_secs(5);

/// The class of one error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KafkaVerdict {
    /// No message of this topic is accepted before an operator acts.
    Topic,
    /// No topic can have this name.
    TopicName,
    /// No message is accepted before an operator acts.
    Configuration,
    /// A message of the batch is refused. Sending each alone shows which one.
    Suspect,
    /// This message failed now and may succeed later.
    Retry,
    /// The cluster cannot accept anything now.
    Outage,
    /// The producer ended, whatever the message. Another producer sends it again.
    Again,
}

/// Error codes, their class, the code of the problem, and the advice.
type ErrorRow = (&'static [Code], KafkaVerdict, &'static str, &'static str);

const TABLE: &[ErrorRow] = &[
    (
        &[Code::UnknownTopic, Code::UnknownTopicOrPartition, Code::UnknownTopicId],
        KafkaVerdict::Topic,
        "KAFKA_UNKNOWN_TOPIC",
        "the topic does not exist; create it (its messages wait until then)",
    ),
    (
        &[Code::InvalidTopic],
        KafkaVerdict::TopicName,
        "KAFKA_INVALID_TOPIC",
        "the cluster does not allow a topic of this name; change `topic`",
    ),
    (
        &[Code::TopicAuthorizationFailed],
        KafkaVerdict::Topic,
        "KAFKA_TOPIC_AUTHORIZATION",
        "this client may not write to the topic; grant it WRITE (its messages wait until then)",
    ),
    (
        &[Code::MessageSizeTooLarge, Code::MessageBatchTooLarge, Code::InvalidMessageSize],
        KafkaVerdict::Suspect,
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
        KafkaVerdict::Suspect,
        "KAFKA_INVALID_RECORD",
        "the broker refuses this message; check the configuration of the topic",
    ),
    (
        &[
            Code::Authentication,
            Code::SaslAuthenticationFailed,
            Code::UnsupportedSASLMechanism,
            Code::IllegalSASLState,
            Code::SecurityDisabled,
        ],
        KafkaVerdict::Configuration,
        "KAFKA_AUTHENTICATION",
        "the cluster refuses the credentials; check the `sasl.` options",
    ),
    (
        &[Code::SSL],
        KafkaVerdict::Configuration,
        "KAFKA_TLS",
        "cannot establish a TLS connection; check the `ssl.` options and `security.protocol`",
    ),
    (
        &[Code::ClusterAuthorizationFailed, Code::TransactionalIdAuthorizationFailed],
        KafkaVerdict::Configuration,
        "KAFKA_CLUSTER_AUTHORIZATION",
        "this client may not write idempotently; grant it IDEMPOTENT_WRITE on the cluster",
    ),
    (
        &[Code::UnsupportedCompressionType, Code::UnsupportedVersion, Code::UnsupportedFeature],
        KafkaVerdict::Configuration,
        "KAFKA_UNSUPPORTED",
        "the cluster does not support the request; check the options and its version",
    ),
    (
        &[
            Code::AllBrokersDown,
            Code::BrokerTransportFailure,
            Code::Resolve,
            Code::NetworkException,
        ],
        KafkaVerdict::Outage,
        "KAFKA_UNREACHABLE",
        "no broker is reachable; check `brokers` and the network",
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
        KafkaVerdict::Outage,
        "KAFKA_NOT_READY",
        "the cluster does not have enough brokers for the topic now",
    ),
    (
        &[
            Code::MessageTimedOut,
            Code::OperationTimedOut,
            Code::TimedOutQueue,
            Code::RequestTimedOut,
        ],
        KafkaVerdict::Outage,
        "KAFKA_TIMEOUT",
        "no response in time; the message may have arrived",
    ),
    (
        &[Code::QueueFull, Code::ThrottlingQuotaExceeded, Code::CriticalSystemResource],
        KafkaVerdict::Outage,
        "KAFKA_BUSY",
        "more messages wait than the cluster accepts",
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
        KafkaVerdict::Again,
        "KAFKA_PRODUCER_ENDED",
        "the producer ended each time the message was sent",
    ),
];

const UNKNOWN: ErrorRow =
    (&[], KafkaVerdict::Retry, "KAFKA_ERROR", "the cluster answered with an error");

pub(super) fn verdict(code: Code) -> KafkaVerdict {
    row(code).1
}

/// The origin of a topic's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopicOrigin {
    /// The configuration: what is wrong with the topic concerns every message.
    Fixed,
    /// The message: it concerns the messages of this topic.
    OfMessage,
}

/// Returns the delivery of a message that was sent alone.
pub(super) fn delivery(code: Code, topic: &str, origin: TopicOrigin) -> Delivery {
    let problem = problem(code, topic, "");
    let after = Some(CONFIGURATION_PAUSE);
    match (verdict(code), origin) {
        (KafkaVerdict::Suspect, _) | (KafkaVerdict::TopicName, TopicOrigin::OfMessage) => {
            Delivery::Reject { problem }
        }
        (KafkaVerdict::Topic, TopicOrigin::OfMessage) => Delivery::Wait { problem, after },
        (KafkaVerdict::Topic | KafkaVerdict::TopicName | KafkaVerdict::Configuration, _) => {
            Delivery::Misconfigured { problem, after }
        }
        (KafkaVerdict::Outage, _) => Delivery::Outage { problem, after: None },
        (KafkaVerdict::Retry | KafkaVerdict::Again, _) => Delivery::Retry { problem, after: None },
    }
}

/// Returns the problem; `detail` is the text of librdkafka, without secrets.
pub(super) fn problem(code: Code, topic: &str, detail: &str) -> Problem {
    let (_, _, name, advice) = row(code);
    let detail = if detail.is_empty() { code.to_string() } else { format!("{code}: {detail}") };
    Problem::new(name, &format!("topic `{topic}`: {advice} ({detail})"))
}

fn row(code: Code) -> &'static ErrorRow {
    TABLE.iter().find(|(codes, ..)| codes.contains(&code)).unwrap_or(&UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_verdict() {
        use KafkaVerdict::{Again, Configuration, Outage, Retry, Suspect, Topic, TopicName};
        let table = [
            (Topic, &[Code::UnknownTopic, Code::TopicAuthorizationFailed][..]),
            (TopicName, &[Code::InvalidTopic]),
            (Configuration, &[Code::SSL]),
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
    fn no_code_is_in_two_rows() {
        let codes: Vec<_> = TABLE.iter().flat_map(|(codes, ..)| codes.iter()).collect();
        for (at, code) in codes.iter().enumerate() {
            assert!(!codes[..at].contains(code), "{code}");
        }
    }

    #[test]
    fn a_wrong_topic_concerns_its_own_messages_if_each_message_names_one() {
        let of = |code| delivery(code, "orders", TopicOrigin::OfMessage);
        for code in [Code::UnknownTopic, Code::TopicAuthorizationFailed] {
            assert!(matches!(of(code), Delivery::Wait { after: Some(_), .. }), "{code}");
        }
        assert!(matches!(of(Code::InvalidTopic), Delivery::Reject { .. }));
        // Credentials and TLS are those of all messages.
        for code in [Code::Authentication, Code::SSL, Code::ClusterAuthorizationFailed] {
            assert!(matches!(of(code), Delivery::Misconfigured { after: Some(_), .. }), "{code}");
        }
    }

    #[test]
    fn a_problem_says_what_to_do_about_which_topic() {
        let Delivery::Misconfigured { problem, after: Some(_) } =
            delivery(Code::UnknownTopic, "orders", TopicOrigin::Fixed)
        else {
            panic!("a missing topic is a configuration error")
        };
        assert_eq!(problem.code, "KAFKA_UNKNOWN_TOPIC");
        assert!(problem.message.starts_with("topic `orders`: the topic does not exist; create it"));
    }
}
