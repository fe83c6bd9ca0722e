//! Messages that an application sends, and the headers around any message.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
/// The id of a message.
pub use uuid::Uuid as Id;
use uuid::Uuid;

use crate::time::Timestamp;

/// A typed message of the user's. Usually derived:
///
/// ```text
/// #[derive(Message, Serialize)]
/// #[message(name = "OrderCreated", aggregate = "Order", version = 1, key = "order_id")]
/// struct OrderCreated { order_id: Uuid, total_cents: i64 }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a message",
    label = "`Message` is not implemented for `{Self}`",
    note = "derive it: `#[derive(relais::Message, serde::Serialize)]` and \
            `#[message(aggregate = \"Order\", key = \"order_id\")]`"
)]
pub trait Message: Serialize {
    /// The event type, e.g. `OrderCreated`.
    const NAME: &'static str;
    /// The kind of thing it is about, e.g. `Order`.
    const AGGREGATE: &'static str;
    /// The version of the contract.
    const VERSION: i32 = 1;
    /// The destination unless the sender names another one.
    const DESTINATION: Option<&'static str> = None;
    /// The role of the message for its receiver.
    const CATEGORY: Category = Category::Event;

    /// Which aggregate it is about.
    fn aggregate_id(&self) -> String;
    /// The ordering key; by default the aggregate.
    fn key(&self) -> String {
        self.aggregate_id()
    }
    /// The stable id, when the payload carries one (`eventId`); otherwise relais makes one.
    fn message_id(&self) -> Option<Uuid> {
        None
    }
}

/// The role of a message for its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// Something that happened.
    #[default]
    Event,
    /// A request to do something.
    Command,
    /// The answer to a command.
    Reply,
}

impl Category {
    /// All categories.
    pub const ALL: [Self; 3] = [Self::Event, Self::Command, Self::Reply];

    /// The text in the `category` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Command => "command",
            Self::Reply => "reply",
        }
    }

    /// Parses a stored category; `None` if this program does not know it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.as_str() == text)
    }
}

/// The origin of a message id: it decides whether a store searches for an earlier message of this id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MessageIdOrigin {
    /// Chosen by the sender, who may send the message again: its second row is not written.
    #[default]
    Given,
    /// Drawn at random for this row alone: it is written without a search, which costs less.
    Generated,
}

/// A message on its way into the outbox: one future row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Sent along with every copy; the receiver's dedupe key.
    pub message_id: Uuid,
    /// The side that chose the id.
    pub id_origin: MessageIdOrigin,
    /// The role of the message for its receiver.
    pub category: Category,
    /// The kind of aggregate that it is about.
    pub aggregate_type: String,
    /// The id of that aggregate.
    pub aggregate_id: String,
    /// The event type.
    pub event_type: String,
    /// The version of the contract of its payload.
    pub event_version: i32,
    /// Valid JSON.
    pub payload: String,
    /// The headers.
    pub headers: Headers,
    /// The destination.
    pub destination: String,
    /// Messages of one destination and key are delivered in order.
    pub msg_key: String,
    /// Not before this long after the database's now.
    pub delay: Option<Duration>,
    /// The id of the message that caused it.
    pub causation_id: Option<String>,
    /// The id that all messages of one operation share.
    pub correlation_id: Option<String>,
    /// If set, the message is dropped when a higher version of its aggregate has been seen.
    pub as_of_version: Option<i64>,
}

impl NewMessage {
    /// A message with the defaults of a plain INSERT.
    pub fn new(
        message_id: Uuid,
        aggregate: (&str, &str),
        event_type: &str,
        destination: &str,
        payload: String,
    ) -> Self {
        Self {
            message_id,
            id_origin: MessageIdOrigin::Given,
            category: Category::Event,
            aggregate_type: aggregate.0.to_owned(),
            aggregate_id: aggregate.1.to_owned(),
            event_type: event_type.to_owned(),
            event_version: 1,
            payload,
            headers: Headers::default(),
            destination: destination.to_owned(),
            msg_key: aggregate.1.to_owned(),
            delay: None,
            causation_id: None,
            correlation_id: None,
            as_of_version: None,
        }
    }

    /// Addresses a reply to the sender of its command: the header `reply-to` and the correlation id of the
    /// command, or its message id if it has none. What the reply already has is kept.
    pub fn answer(&mut self, command_id: &str, command: &Headers) {
        if self.headers.get(HEADER_REPLY_TO).is_none()
            && let Some(address) = command.get(HEADER_REPLY_TO)
        {
            self.headers.set(HEADER_REPLY_TO, address);
        }
        self.correlation_id
            .get_or_insert_with(|| command.get("correlation-id").unwrap_or(command_id).to_owned());
    }
}

/// The header with the address to which the reply to a command is sent.
pub const HEADER_REPLY_TO: &str = "reply-to";

/// Reserved header: the message has no value (`tombstone`) or one without bytes (`empty`).
pub const HEADER_VALUE: &str = "relais-value";
/// Reserved header: where the message id comes from, if not from where the source promises it.
pub const HEADER_MESSAGE_ID: &str = "relais-message-id";
/// Reserved header: why the aggregate id of the message cannot be kept. Routes refuse such a message
/// instead of sending it under another id.
pub const HEADER_AGGREGATE_ID: &str = "relais-aggregate-id";
/// Reserved header: the number of the schema that stood before the value.
pub const HEADER_SCHEMA_ID: &str = "relais-schema-id";
/// Reserved header: the bytes of a key that is no text.
pub const HEADER_KEY: &str = "relais-key";
/// Reserved header of an outbox row: when the message that caused it was received, in microseconds
/// since 1970. It stays here: targets do not get it.
pub const HEADER_RECEIVED: &str = "relais-received-at";
/// Reserved header: the handler in another process that a command of a process is for. Only rows of relais's
/// own inbox and outbox have it.
pub const HEADER_HANDLER: &str = "relais-handler";
/// The prefix of reserved headers.
const HEADER_RESERVED: &str = "relais-";

/// Returns whether only relais may write a header of this name.
pub fn is_reserved_header(name: &str) -> bool {
    let start = name.get(..HEADER_RESERVED.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(HEADER_RESERVED))
}

/// Headers of a message: names with their values in order. Stored as a JSON object whose values are
/// a string, `{"base64": …}` for bytes that are no text, or an array of these where a name repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Headers(pub BTreeMap<String, HeaderValues>);

/// One value or several, in the order they came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HeaderValues {
    /// The only value of the header.
    One(HeaderValue),
    /// All values of a header that occurs several times, in order.
    Many(Vec<HeaderValue>),
}

/// Text, bytes that are no text, or no value at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HeaderValue {
    /// A text.
    Text(String),
    /// Bytes that are not UTF-8.
    Bytes {
        /// The bytes in Base64.
        base64: String,
    },
    /// A header without a value.
    Null,
}

impl HeaderValue {
    /// Text if the bytes are UTF-8 without U+0000, else their Base64.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        use base64::Engine;
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Self::Text(text.to_owned()),
            _ => Self::Bytes { base64: base64::engine::general_purpose::STANDARD.encode(bytes) },
        }
    }
}

impl Headers {
    /// Adds a value behind those the name already has.
    pub fn push(&mut self, name: &str, value: HeaderValue) {
        match self.0.get_mut(name) {
            None => {
                self.0.insert(name.to_owned(), HeaderValues::One(value));
            }
            Some(HeaderValues::Many(values)) => values.push(value),
            Some(slot @ HeaderValues::One(_)) => {
                let first = std::mem::replace(slot, HeaderValues::Many(Vec::new()));
                if let (HeaderValues::Many(values), HeaderValues::One(first)) = (slot, first) {
                    values.extend([first, value]);
                }
            }
        }
    }

    /// Adds a value that came from outside: only relais may write a reserved header, so such a name
    /// is kept with `x-` before it.
    pub fn receive(&mut self, name: &str, value: HeaderValue) {
        if is_reserved_header(name) {
            self.push(&format!("x-{name}"), value);
        } else {
            self.push(name, value);
        }
    }

    /// Sets a text header, replacing what was there.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), HeaderValues::One(HeaderValue::Text(value.to_owned())));
    }

    /// The first text value of a name; names compare without case.
    pub fn get(&self, name: &str) -> Option<&str> {
        let values = self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name))?.1;
        match values {
            HeaderValues::One(HeaderValue::Text(text)) => Some(text),
            HeaderValues::Many(values) => values.iter().find_map(|v| match v {
                HeaderValue::Text(text) => Some(text.as_str()),
                _ => None,
            }),
            HeaderValues::One(_) => None,
        }
    }

    /// Notes when the message that causes the one with these headers was received.
    pub fn set_received_at(&mut self, at: Timestamp) {
        self.set(HEADER_RECEIVED, &at.0.to_string());
    }

    /// When the message that caused the one with these headers was received, if that is noted.
    pub fn received_at(&self) -> Option<Timestamp> {
        let HeaderValues::One(HeaderValue::Text(text)) = self.0.get(HEADER_RECEIVED)? else {
            return None;
        };
        text.parse().ok().map(Timestamp)
    }

    /// Every name with each of its text values.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|(name, values)| {
            let values = match values {
                HeaderValues::One(value) => std::slice::from_ref(value),
                HeaderValues::Many(values) => values,
            };
            values.iter().filter_map(move |value| match value {
                HeaderValue::Text(text) => Some((name.as_str(), text.as_str())),
                _ => None,
            })
        })
    }

    /// The JSON stored in the `headers` column.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("headers are plain JSON")
    }

    /// Reads the `headers` column. What another writer put there in another form is kept as text.
    pub fn from_json(json: &str) -> Self {
        serde_json::from_str(json).unwrap_or_else(|_| {
            let mut headers = Self::default();
            let fields: BTreeMap<String, serde_json::Value> =
                serde_json::from_str(json).unwrap_or_default();
            for (name, value) in fields {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                headers.set(&name, &text);
            }
            headers
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_keep_repeats_bytes_and_empty_values() {
        let mut headers = Headers::default();
        headers.push("trace", HeaderValue::from_bytes(b"a"));
        headers.push("trace", HeaderValue::from_bytes(b"\xff\x00"));
        headers.push("trace", HeaderValue::Null);
        headers.push("one", HeaderValue::from_bytes(b""));
        let json = headers.to_json();
        assert_eq!(json, r#"{"one":"","trace":["a",{"base64":"/wA="},null]}"#);
        assert_eq!(Headers::from_json(&json), headers);
        assert_eq!(headers.get("TRACE"), Some("a"));
    }

    #[test]
    fn reserved_headers_of_others_are_kept_under_another_name() {
        let mut headers = Headers::default();
        headers.receive("Relais-Value", HeaderValue::from_bytes(b"tombstone"));
        headers.receive("relais", HeaderValue::from_bytes(b"mine"));
        assert_eq!(headers.get(HEADER_VALUE), None);
        assert_eq!(headers.get("x-relais-value"), Some("tombstone"));
        assert_eq!(headers.get("relais"), Some("mine"));
    }

    #[test]
    fn the_time_of_reception_is_noted_and_read() {
        let mut headers = Headers::default();
        assert_eq!(headers.received_at(), None);
        headers.set_received_at(Timestamp(1_794_812_563_823_117));
        assert_eq!(headers.received_at(), Some(Timestamp(1_794_812_563_823_117)));
        headers.set(HEADER_RECEIVED, "yesterday");
        assert_eq!(headers.received_at(), None);
    }

    #[test]
    fn headers_of_other_writers_are_not_lost() {
        let headers = Headers::from_json(r#"{"retries": 3, "user": "ann"}"#);
        assert_eq!((headers.get("retries"), headers.get("user")), (Some("3"), Some("ann")));
        assert_eq!(Headers::from_json("{}"), Headers::default());
    }
}
