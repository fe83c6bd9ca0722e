//! What librdkafka complains about, in words that say what to do; and not too often.

use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode as Code;

use super::membership::State;

/// The shortest time between two complaints.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);

/// Keeps complaints apart: librdkafka repeats itself several times a second.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    last: Option<Instant>,
}

impl Complaints {
    /// The reason, if it is time for one.
    pub(super) fn due(&mut self, reason: String) -> Option<String> {
        if self.last.is_some_and(|last| last.elapsed() < COMPLAINT_PAUSE) {
            tracing::debug!(reason, "still in trouble");
            return None;
        }
        self.last = Some(Instant::now());
        Some(reason)
    }
}

/// Whether no broker can be reached.
pub(super) fn is_away(code: Code) -> bool {
    matches!(code, Code::AllBrokersDown | Code::BrokerTransportFailure | Code::Resolve)
}

/// An error with what to do about it.
pub(super) fn explain(code: Code, reason: &str, brokers: &str) -> String {
    match code {
        code if is_away(code) => format!("{brokers} cannot be reached: {reason}"),
        Code::UnknownTopicOrPartition | Code::UnknownTopic => {
            format!("{reason}; create the topic, or correct `topics`")
        }
        Code::Authentication | Code::SaslAuthenticationFailed => {
            format!("{brokers} refuses who we say we are: {reason}; check the `sasl.` options")
        }
        Code::SSL => format!("no TLS with {brokers}: {reason}; check the `ssl.` options"),
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed => {
            format!("{reason}; the user needs READ on the topic and on the group")
        }
        _ => format!("{code}: {reason}"),
    }
}

/// Records that cannot be read: which, as far as it can be told.
///
/// librdkafka names the offset but not the partition. It is one whose next offset that is, or else
/// one that has not come so far yet.
pub(super) fn unreadable(state: &mut State, reason: &str) -> String {
    let offset = offset_in(reason).unwrap_or(-1);
    let exact = state.owned.iter().any(|owned| owned.next == offset);
    let mut names = Vec::new();
    for owned in &mut state.owned {
        if owned.next == offset || (!exact && owned.next <= offset) {
            owned.unreadable = Some(offset);
            names.push(format!("{}/{}", owned.partition.topic, owned.partition.number));
        }
    }
    format!(
        "records of {} at offset {offset} cannot be read: {reason}; the partition waits there until \
         they can, or until its position in relais_source_position is set behind them",
        names.join(" or ")
    )
}

/// The first number behind ` at offset ` or ` at `.
fn offset_in(reason: &str) -> Option<i64> {
    let (_, rest) = reason.split_once(" at ")?;
    let rest = rest.strip_prefix("offset ").unwrap_or(rest);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_found_in_the_words_of_librdkafka() {
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
    fn complaints_keep_a_distance() {
        let mut complaints = Complaints::default();
        assert_eq!(complaints.due("a".into()), Some("a".into()));
        assert_eq!(complaints.due("b".into()), None);
    }

    #[test]
    fn every_trouble_says_what_to_do() {
        let explain = |code| explain(code, "why", "host:1");
        assert!(explain(Code::AllBrokersDown).contains("host:1 cannot be reached: why"));
        assert!(explain(Code::UnknownTopicOrPartition).contains("create the topic"));
        assert!(explain(Code::Authentication).contains("sasl."));
        assert!(explain(Code::TopicAuthorizationFailed).contains("READ"));
    }
}
