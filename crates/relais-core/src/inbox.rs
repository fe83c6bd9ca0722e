//! The life of an inbox row: `RECEIVED` (or `SERDE_ERROR`), perhaps `RETRY`, then `PROCESSED` or
//! `FAILED`.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;

use crate::{
    delivery::Problem,
    handler::Outcome,
    json,
    message::{Headers, NewMessage},
    process::Change,
    retry::RetryPolicy,
    text,
    time::Timestamp,
};

/// The state in the `status` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InboxStatus {
    /// Stored and not handled yet.
    Received,
    /// Failed, and waiting for its next attempt.
    Retry,
    /// Failed: a dead letter.
    Failed,
    /// Handled.
    Processed,
    /// Undecodable: an operator fixes it or discards it.
    SerdeError,
}

impl InboxStatus {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Received, Self::Retry, Self::Failed, Self::Processed, Self::SerdeError];

    /// Returns the state as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Received => "RECEIVED",
            Self::Retry => "RETRY",
            Self::Failed => "FAILED",
            Self::Processed => "PROCESSED",
            Self::SerdeError => "SERDE_ERROR",
        }
    }

    /// Parses a stored state; `None` if this program does not know it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }

    /// Returns true if the inbox worker will handle it, now or when it is due.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Received | Self::Retry)
    }
}

/// The content of a received message, decoded or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Valid JSON, byte for byte as it came.
    Json(String),
    /// Not what the source declares: kept as Base64, with the reason.
    Undecodable {
        /// The bytes as they came.
        bytes: Vec<u8>,
        /// The error of the decoder.
        problem: Problem,
    },
}

/// A message on its way into the inbox: one future row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInbox {
    /// The system that sent it. Message ids are unique in a source system.
    pub source_system: String,
    /// The id of the message in its source system.
    pub message_id: String,
    /// The topic, or the name of the source.
    pub topic: String,
    /// The partition, if the source has partitions.
    pub partition_num: i32,
    /// The position in the partition.
    pub offset_num: i64,
    /// The key that the broker has for it, as text.
    pub key_str: Option<String>,
    /// The ordering key: the aggregate, else the key, else the message itself.
    pub msg_key: String,
    /// The id of the aggregate that it is about.
    pub aggregate_id: Option<String>,
    /// The event type, which selects the handler.
    pub event_type: Option<String>,
    /// The payload, or the undecodable bytes.
    pub content: Content,
    /// The headers.
    pub headers: Headers,
    /// The time of the event, if the source has one.
    pub event_ts: Option<Timestamp>,
}

impl NewInbox {
    /// A message of a source: its id, event type and JSON payload. A message of this id from this source is
    /// stored once.
    ///
    /// Its ordering key is its id, so it waits for no other message: set it with [`NewInbox::key`]. A payload
    /// that is not JSON is stored as undecodable.
    pub fn new(source: &str, message_id: &str, event_type: &str, payload: &str) -> Self {
        let content = match json::check(payload.as_bytes()) {
            Ok(_) => Content::Json(payload.to_owned()),
            Err(error) => Content::Undecodable {
                bytes: payload.as_bytes().to_vec(),
                problem: Problem::new(error.code(), &error.to_string()),
            },
        };
        Self {
            source_system: source.to_owned(),
            message_id: message_id.to_owned(),
            topic: String::new(),
            partition_num: 0,
            offset_num: 0,
            key_str: None,
            msg_key: text::identity(message_id, text::KEY_MAX),
            aggregate_id: None,
            event_type: Some(event_type.to_owned()),
            content,
            headers: Headers::default(),
            event_ts: None,
        }
    }

    /// Sets the ordering key: messages of one key are handled in order.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.msg_key = text::identity(key, text::KEY_MAX);
        self
    }

    /// Sets the id of the aggregate, which routes send on, and the ordering key to the same.
    #[must_use]
    pub fn aggregate(mut self, id: &str) -> Self {
        self.aggregate_id = Some(id.to_owned());
        self.key(id)
    }

    /// Sets a header, for example `correlation-id` or `traceparent`.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.set(name, value);
        self
    }
}

/// Separates the name of an inbox from the source in `source_system`: `billing::crm`.
pub const INBOX_SEPARATOR: &str = "::";

/// The `source_system` of messages that a source brings into an inbox; '' is the inbox without a name.
pub fn in_inbox(inbox: &str, source: &str) -> String {
    if inbox.is_empty() { source.to_owned() } else { format!("{inbox}{INBOX_SEPARATOR}{source}") }
}

/// Returns the source in a `source_system`, without the name of the inbox.
pub fn source_of(source_system: &str) -> &str {
    source_system.split_once(INBOX_SEPARATOR).map_or(source_system, |(_, source)| source)
}

/// Returns the name of the inbox in a `source_system`; '' is the inbox without a name.
pub fn inbox_of(source_system: &str) -> &str {
    source_system.split_once(INBOX_SEPARATOR).map_or("", |(inbox, _)| inbox)
}

/// Separates the name of an inbox from that of a subscriber, whose copies are in an inbox of their own:
/// `@search`, or `billing@search`.
pub const SUBSCRIBER_SEPARATOR: char = '@';

/// The inbox of a subscriber's copies.
pub fn subscriber_inbox(inbox: &str, subscriber: &str) -> String {
    format!("{inbox}{SUBSCRIBER_SEPARATOR}{subscriber}")
}

/// The `source_system` of a message before it was copied for a subscriber.
pub fn original_source(source_system: &str) -> String {
    let Some((inbox, source)) = source_system.split_once(INBOX_SEPARATOR) else {
        return source_system.to_owned();
    };
    match inbox.split_once(SUBSCRIBER_SEPARATOR) {
        Some((inbox, _)) => in_inbox(inbox, source),
        None => source_system.to_owned(),
    }
}

/// The position up to which a source has been read: stored in the transaction that stores its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// The name of the source.
    pub source: String,
    /// The partition.
    pub partition: String,
    /// The next position to read.
    pub position: i64,
}

/// The result of accepting one received message; one for each, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AcceptOutcome {
    /// A new row.
    Stored,
    /// Seen before, with the same content.
    Duplicate,
    /// Seen before with other content: kept as a dead letter with `failed_status` `CONFLICT`.
    Conflict,
}

/// One row of `relais_inbox`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InboxRow {
    /// The number of the row; rows of a key are handled in this order.
    pub id: i64,
    /// The id of the message in its source system.
    pub message_id: String,
    /// The system that sent it.
    pub source_system: String,
    /// The topic, or the name of the source.
    pub topic: String,
    /// The partition, if the source has partitions.
    pub partition_num: i32,
    /// The position in the partition.
    pub offset_num: i64,
    /// The key that the broker has for it, as text.
    pub key_str: Option<String>,
    /// The ordering key.
    pub msg_key: String,
    /// The lane of the key.
    pub lane: i16,
    /// The id of the aggregate that it is about.
    pub aggregate_id: Option<String>,
    /// The event type, which selects the handler.
    pub event_type: Option<String>,
    /// The payload, JSON; absent if it is undecodable.
    pub payload: Option<String>,
    /// The headers.
    pub headers: Headers,
    /// The undecodable bytes, in Base64.
    pub raw_payload_base64: Option<String>,
    /// The time of the event, if the source has one.
    pub event_ts: Option<Timestamp>,
    /// The time at which relais stored it.
    pub received_at: Timestamp,
    /// The state.
    pub status: InboxStatus,
    /// The number of used attempts.
    pub attempts: u32,
    /// Workers that were lost while this row was in flight: the rule is quarantine.
    pub lost_workers: u32,
    /// The time before which it is not handled.
    pub next_attempt_at: Option<Timestamp>,
    /// The time at which it was handled.
    pub processed_at: Option<Timestamp>,
    /// The stage in which it failed, such as `decode` or `handle`.
    pub error_stage: Option<String>,
    /// The last error code.
    pub error_code: Option<String>,
    /// The last error text.
    pub error_message: Option<String>,
    /// Since when no live worker knows its event type, while it waits for one.
    pub unknown_since: Option<Timestamp>,
}

impl InboxRow {
    /// Returns the row that a store makes of a received message, before its first attempt: for tests and
    /// models that have no store.
    #[doc(hidden)]
    pub fn received(id: i64, message: NewInbox) -> Self {
        let (payload, raw_payload_base64, status) = match message.content {
            Content::Json(json) => (Some(json), None, InboxStatus::Received),
            Content::Undecodable { bytes, .. } => {
                (None, Some(STANDARD.encode(bytes)), InboxStatus::SerdeError)
            }
        };
        Self {
            id,
            message_id: message.message_id,
            source_system: message.source_system,
            topic: message.topic,
            partition_num: message.partition_num,
            offset_num: message.offset_num,
            key_str: message.key_str,
            msg_key: message.msg_key,
            lane: 0,
            aggregate_id: message.aggregate_id,
            event_type: message.event_type,
            payload,
            headers: message.headers,
            raw_payload_base64,
            event_ts: message.event_ts,
            received_at: Timestamp(0),
            status,
            attempts: 0,
            lost_workers: 0,
            next_attempt_at: None,
            processed_at: None,
            error_stage: None,
            error_code: None,
            error_message: None,
            unknown_since: None,
        }
    }
}

/// `error_stage` of a message that could not be decoded.
pub const STAGE_SERDE: &str = "CONSUMER_SERDE";
/// `error_stage` of a message whose handling failed.
pub const STAGE_BUSINESS: &str = "BUSINESS";

/// The error code in the recorded attempt of a row whose event type is ignored by configuration.
pub const IGNORED_BY_CONFIGURATION: &str = "IGNORED_BY_CONFIGURATION";

/// The decision about a row, to be settled.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq)]
pub enum InboxFate {
    /// `PROCESSED`, with these messages, changes of processes and copies of the row in the same commit. If
    /// one of the processes has moved on since, none of it happens and the row is [`SettleOutcome::stale`].
    ///
    /// Each of `copies` is the name of an inbox that gets the row as it was received, with attempts from
    /// zero; an inbox that has the message already gets no second copy.
    ///
    /// [`SettleOutcome::stale`]: crate::store::SettleOutcome
    Processed { messages: Vec<NewMessage>, changes: Vec<Change>, copies: Vec<String> },
    /// `PROCESSED` without an effect, because the configuration ignores its event type. The store records an
    /// attempt with the outcome `ignored`.
    Ignored { problem: Problem },
    /// `RETRY`; the store adds `pause` to its own now. Holds later rows of its key back.
    Retry { attempts: u32, pause: Duration, problem: Problem },
    /// `RETRY` without an attempt used. `lost_workers` is written down: 0 once the row was worked on
    /// without harm, more for a row in quarantine.
    Wait { pause: Duration, problem: Problem, lost_workers: u32 },
    /// `FAILED`, with a dead letter; `park` holds the key back behind it.
    Dead { attempts: u32, problem: Problem, park: bool },
}

impl InboxFate {
    /// Returns the messages that follow from the row, those of processes included.
    pub fn messages(&self) -> impl Iterator<Item = &NewMessage> {
        let (messages, changes) = match self {
            Self::Processed { messages, changes, .. } => (&messages[..], &changes[..]),
            Self::Ignored { .. } | Self::Retry { .. } | Self::Wait { .. } | Self::Dead { .. } => {
                (&[][..], &[][..])
            }
        };
        messages.iter().chain(changes.iter().flat_map(|change| &change.messages))
    }
}

/// One row's fate, with what the fence needs.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxSettlement {
    /// The id of the row.
    pub id: i64,
    /// Its lane.
    pub lane: i16,
    /// The epoch of the lane when the row was fetched.
    pub epoch: i64,
    /// The decision.
    pub fate: InboxFate,
}

/// The decision after a handler spoke; `None` when it is done (its own commit settled the row).
///
/// `attempts` are those already counted in the row before this one. A handler's verdict `Fail` is
/// final for this message only; running out of attempts parks the key, because later messages might
/// have needed this one.
pub fn decide(
    policy: &RetryPolicy,
    attempts: u32,
    outcome: Outcome,
    random: f64,
) -> Option<InboxFate> {
    let used = attempts.saturating_add(1);
    let dead = |problem: Problem, park| {
        let problem = problem.fitted();
        InboxFate::Dead { attempts: used, problem, park }
    };
    Some(match outcome {
        Outcome::Done => return None,
        Outcome::Fail { problem } => dead(problem, false),
        Outcome::Park { problem } => dead(problem, true),
        Outcome::Retry { problem, .. } if policy.exhausted(used) => dead(problem, true),
        Outcome::Retry { problem, after } => {
            let (pause, problem) = (policy.pause(used, after, random), problem.fitted());
            InboxFate::Retry { attempts: used, pause, problem }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handlers_fail_is_final_but_parks_no_key() {
        let fate = decide(&RetryPolicy::default(), 0, Outcome::fail("INVALID", "no"), 0.0);
        assert!(matches!(fate, Some(InboxFate::Dead { attempts: 1, park: false, .. })));
    }

    #[test]
    fn running_out_of_attempts_parks_the_key() {
        let fate = decide(&RetryPolicy::default(), 4, Outcome::retry("DB", "locked"), 0.0);
        assert!(matches!(fate, Some(InboxFate::Dead { attempts: 5, park: true, .. })));
        let fate = decide(&RetryPolicy::default(), 0, Outcome::retry("DB", "locked"), 0.0);
        assert!(matches!(fate, Some(InboxFate::Retry { attempts: 1, .. })));
    }

    #[test]
    fn a_message_of_four_values_is_its_own_key_unless_it_is_set() {
        let new = NewInbox::new("crm", "m-1", "Paid", r#"{"cents": 5}"#);
        assert_eq!((new.msg_key.as_str(), new.event_type.as_deref()), ("m-1", Some("Paid")));
        assert_eq!(new.content, Content::Json(r#"{"cents": 5}"#.into()));
        let new = new.aggregate("o-1").header("correlation-id", "c-1");
        assert_eq!((new.msg_key.as_str(), new.aggregate_id.as_deref()), ("o-1", Some("o-1")));
        let new = NewInbox::new("crm", "m-1", "Paid", "{").key("k");
        assert!(matches!(new.content, Content::Undecodable { .. }) && new.msg_key == "k");
    }

    #[test]
    fn a_copy_for_a_subscriber_names_its_first_source() {
        for (inbox, source) in [("", "crm"), ("billing", "crm"), ("", "a@b")] {
            let original = in_inbox(inbox, source);
            let copy = in_inbox(&subscriber_inbox(inbox, "search"), source);
            assert_eq!(original_source(&copy), original);
            assert_eq!(original_source(&original), original);
        }
    }

    #[test]
    fn every_state_has_one_text() {
        for status in InboxStatus::ALL {
            assert_eq!(InboxStatus::parse(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
    }
}
