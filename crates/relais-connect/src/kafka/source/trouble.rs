//! What librdkafka complains about, in words that say what to do; and not too often.

use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode as Code;

use super::membership::State;

/// The shortest time between two complaints.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(10);

/// What is to be said, and when it was last said: librdkafka repeats some things several times a
/// second, and says others only once.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    waiting: Option<Trouble>,
    last: Option<Instant>,
}

/// Something is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) reason: String,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No broker answers; over with the next record.
    Away,
    Lasting,
}

impl Complaints {
    /// Keeps it until it can be said. That nobody can be reached explains less than anything else.
    pub(super) fn note(&mut self, trouble: Trouble) {
        let lasting = self.waiting.as_ref().is_some_and(|waiting| waiting.kind == Kind::Lasting);
        if trouble.kind == Kind::Lasting || !lasting {
            self.waiting = Some(trouble);
        }
    }

    /// A record has come.
    pub(super) fn note_record(&mut self) {
        self.waiting.take_if(|waiting| waiting.kind == Kind::Away);
    }

    /// What is to be said now.
    pub(super) fn due(&mut self, now: Instant) -> Option<String> {
        if self.last.is_some_and(|last| now.duration_since(last) < COMPLAINT_PAUSE) {
            return None;
        }
        let trouble = self.waiting.take()?;
        self.last = Some(now);
        Some(trouble.reason)
    }
}

/// An error with what to do about it.
pub(super) fn explain(code: Code, reason: &str, brokers: &str) -> Trouble {
    let kind = match code {
        Code::AllBrokersDown | Code::BrokerTransportFailure | Code::Resolve => Kind::Away,
        _ => Kind::Lasting,
    };
    let reason = match code {
        _ if kind == Kind::Away => format!("{brokers} cannot be reached: {reason}"),
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
    };
    Trouble { reason, kind }
}

/// Records that cannot be read: which, as far as it can be told.
///
/// librdkafka names the offset but not the partition. It is one whose next offset that is, or else
/// one that has not come so far yet.
pub(super) fn unreadable(state: &mut State, offset: i64, reason: &str) -> Trouble {
    let exact = state.owned.iter().any(|owned| owned.next == offset);
    let mut names = Vec::new();
    for owned in &mut state.owned {
        if owned.next == offset || (!exact && owned.next <= offset) {
            owned.unreadable = Some(offset);
            names.push(format!("{}/{}", owned.partition.topic, owned.partition.number));
        }
    }
    let reason = format!(
        "records of {} at offset {offset} cannot be read: {reason}; the partition waits there until \
         they can, or until its position in relais_source_position is set behind them",
        names.join(" or ")
    );
    Trouble { reason, kind: Kind::Lasting }
}

/// The first number behind ` at offset ` or ` at `: where librdkafka could not read.
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
    fn complaints_keep_a_distance_and_none_is_lost() {
        let trouble = |reason: &str, kind| Trouble { reason: reason.to_owned(), kind };
        let mut complaints = Complaints::default();
        let now = Instant::now();
        assert_eq!(complaints.due(now), None);
        complaints.note(trouble("away", Kind::Away));
        assert_eq!(complaints.due(now).as_deref(), Some("away"));
        complaints.note(trouble("no topic", Kind::Lasting));
        complaints.note(trouble("away", Kind::Away));
        assert_eq!(complaints.due(now), None);
        assert_eq!(complaints.due(now + COMPLAINT_PAUSE).as_deref(), Some("no topic"));
        complaints.note(trouble("away", Kind::Away));
        complaints.note_record();
        assert_eq!(complaints.due(now + 2 * COMPLAINT_PAUSE), None);
    }

    #[test]
    fn every_trouble_says_what_to_do() {
        let explain = |code| explain(code, "why", "host:1").reason;
        assert!(explain(Code::AllBrokersDown).contains("host:1 cannot be reached: why"));
        assert!(explain(Code::UnknownTopicOrPartition).contains("create the topic"));
        assert!(explain(Code::Authentication).contains("sasl."));
        assert!(explain(Code::TopicAuthorizationFailed).contains("READ"));
    }
}
