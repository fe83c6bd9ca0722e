//! Errors of librdkafka, with advice and at a limited rate.

use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode as Code;

use super::membership::MembershipState;

/// Minimum time between two reports.
const REPORT_PAUSE: Duration = Duration::from_secs(10);

/// The error to report next, and the time of the last report: librdkafka repeats some errors
/// several times a second, and others only once.
#[derive(Debug, Default)]
pub(super) struct ErrorReports {
    pending: Option<ConsumerError>,
    last: Option<Instant>,
}

/// An error of the consumer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConsumerError {
    pub(super) reason: String,
    pub(super) kind: ConsumerErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsumerErrorKind {
    /// No broker answers; cleared by the next record.
    Unavailable,
    /// A partition waits for a schema; cleared when none does.
    Schema,
    Persistent,
}

impl ErrorReports {
    /// Keeps the error for the next report; "no broker reachable" has the lowest priority.
    pub(super) fn note(&mut self, error: ConsumerError) {
        let lasting = self
            .pending
            .as_ref()
            .is_some_and(|pending| pending.kind != ConsumerErrorKind::Unavailable);
        if error.kind != ConsumerErrorKind::Unavailable || !lasting {
            self.pending = Some(error);
        }
    }

    /// Clears "no broker reachable": a record has arrived.
    pub(super) fn note_record(&mut self) {
        self.pending.take_if(|pending| pending.kind == ConsumerErrorKind::Unavailable);
    }

    /// Clears the wait for a schema: none is missing any more.
    pub(super) fn note_schemas(&mut self) {
        self.pending.take_if(|pending| pending.kind == ConsumerErrorKind::Schema);
    }

    /// Returns the error to report now.
    pub(super) fn due(&mut self, now: Instant) -> Option<String> {
        if self.last.is_some_and(|last| now.duration_since(last) < REPORT_PAUSE) {
            return None;
        }
        let error = self.pending.take()?;
        self.last = Some(now);
        Some(error.reason)
    }
}

/// Returns an error with advice.
pub(super) fn explain(code: Code, reason: &str, brokers: &str) -> ConsumerError {
    let kind = match code {
        Code::AllBrokersDown | Code::BrokerTransportFailure | Code::Resolve => {
            ConsumerErrorKind::Unavailable
        }
        _ => ConsumerErrorKind::Persistent,
    };
    let reason = match code {
        _ if kind == ConsumerErrorKind::Unavailable => {
            format!("cannot reach {brokers}: {reason}")
        }
        Code::UnknownTopicOrPartition | Code::UnknownTopic => {
            format!("{reason}; create the topic, or correct `topics`")
        }
        Code::Authentication | Code::SaslAuthenticationFailed => {
            format!("{brokers} refuses the credentials: {reason}; check the `sasl.` options")
        }
        Code::SSL => {
            format!("cannot establish TLS with {brokers}: {reason}; check the `ssl.` options")
        }
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed => {
            format!("{reason}; the user needs READ on the topic and on the group")
        }
        _ => format!("{code}: {reason}"),
    };
    ConsumerError { reason, kind }
}

/// Returns the error for unreadable records, with their partition as far as it is known.
///
/// librdkafka reports the offset but not the partition. It is a partition with this next offset, or
/// else one that has not reached it yet.
pub(super) fn unreadable(state: &mut MembershipState, offset: i64, reason: &str) -> ConsumerError {
    let exact = state.owned.iter().any(|owned| owned.next == offset);
    let mut names = Vec::new();
    for owned in &mut state.owned {
        if owned.next == offset || (!exact && owned.next <= offset) {
            owned.unreadable = Some(offset);
            names.push(format!("{}/{}", owned.partition.topic, owned.partition.number));
        }
    }
    let reason = format!(
        "cannot read records of {} at offset {offset}: {reason}; the partition waits until they are \
         readable, or until its position in relais_source_position is set after them",
        names.join(" or ")
    );
    ConsumerError { reason, kind: ConsumerErrorKind::Persistent }
}

/// Returns the first number after ` at offset ` or ` at `: the offset that librdkafka could not
/// read.
pub(super) fn offset_in(reason: &str) -> Option<i64> {
    let (_, rest) = reason.split_once(" at ")?;
    let rest = rest.strip_prefix("offset ").unwrap_or(rest);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_found_in_the_text_of_librdkafka() {
        for (reason, offset) in [
            ("Decompression (codec 0x5) of message at 42 of 77 bytes failed: x", Some(42)),
            (
                "MessageSet at offset 7 (99 bytes) failed CRC32C check (original 0x1 != 0x2)",
                Some(7),
            ),
            ("Unsupported Message(Set) MagicByte 9 at offset 0", Some(0)),
            ("nothing of the kind", None),
        ] {
            assert_eq!(offset_in(reason), offset, "{reason}");
        }
    }

    #[test]
    fn errors_are_reported_at_a_limited_rate_and_none_is_lost() {
        let error = |reason: &str, kind| ConsumerError { reason: reason.to_owned(), kind };
        let mut errors = ErrorReports::default();
        let now = Instant::now();
        assert_eq!(errors.due(now), None);
        errors.note(error("unavailable", ConsumerErrorKind::Unavailable));
        assert_eq!(errors.due(now).as_deref(), Some("unavailable"));
        errors.note(error("no topic", ConsumerErrorKind::Persistent));
        errors.note(error("unavailable", ConsumerErrorKind::Unavailable));
        assert_eq!(errors.due(now), None);
        assert_eq!(errors.due(now + REPORT_PAUSE).as_deref(), Some("no topic"));
        errors.note(error("unavailable", ConsumerErrorKind::Unavailable));
        errors.note_record();
        assert_eq!(errors.due(now + 2 * REPORT_PAUSE), None);
    }

    #[test]
    fn every_error_has_advice() {
        let explain = |code| explain(code, "why", "host:1").reason;
        assert!(explain(Code::AllBrokersDown).contains("cannot reach host:1: why"));
        assert!(explain(Code::UnknownTopicOrPartition).contains("create the topic"));
        assert!(explain(Code::Authentication).contains("sasl."));
        assert!(explain(Code::TopicAuthorizationFailed).contains("READ"));
    }
}
