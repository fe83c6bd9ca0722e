//! Where the parts of a received message are found: `header:…`, `payload:/pointer`, `key`,
//! `position`. Pure: bytes in, an inbox row out, whatever the bytes are.

use std::{fmt, str::FromStr};

use crate::{
    InvalidSettings,
    decode::{DecodedValue, Decoder},
    delivery::Problem,
    inbox::{Content, InboxRow, NewInbox},
    json,
    message::{HEADER_AGGREGATE_ID, HEADER_MESSAGE_ID, HEADER_SCHEMA_ID, HEADER_VALUE, Headers},
    text,
    time::Timestamp,
};

/// A place in a message; as text `header:NAME`, `payload:/POINTER`, `key` or `position`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// A header, by its name.
    Header(String),
    /// A value in the payload, by its JSON pointer.
    Payload(String),
    /// The key that the broker has for it.
    Key,
    /// Its position at its source, for example topic, partition and offset.
    Position,
}

impl FromStr for Pick {
    type Err = InvalidSettings;

    fn from_str(text: &str) -> Result<Self, InvalidSettings> {
        match text.split_once(':') {
            Some(("header", name)) if !name.is_empty() => Ok(Self::Header(name.to_owned())),
            Some(("payload", pointer)) if pointer.is_empty() || pointer.starts_with('/') => {
                Ok(Self::Payload(pointer.to_owned()))
            }
            None if text == "key" => Ok(Self::Key),
            None if text == "position" => Ok(Self::Position),
            _ => Err(InvalidSettings::new(format!(
                "`{text}` is not a place in a message; use `header:NAME`, `payload:/JSON/POINTER`, \
                 `key` or `position`"
            ))),
        }
    }
}

impl fmt::Display for Pick {
    /// Writes it as it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Payload(pointer) => write!(f, "payload:{pointer}"),
            Self::Key => f.write_str("key"),
            Self::Position => f.write_str("position"),
        }
    }
}

impl Pick {
    /// Returns the place of a header.
    pub fn header(name: &str) -> Self {
        Self::Header(name.to_owned())
    }

    /// Returns the place of a value in the payload, by its JSON pointer: `/order/id`.
    pub fn payload(pointer: &str) -> Self {
        Self::Payload(pointer.to_owned())
    }

    /// The value in a stored message; where it stood at its source is not asked here.
    pub fn of(&self, row: &InboxRow) -> Option<String> {
        let found = match self {
            Self::Header(name) => row.headers.get(name).map(str::to_owned),
            Self::Payload(pointer) => scalar(row.payload.as_deref()?, pointer),
            Self::Key => row.key_str.clone(),
            Self::Position => None,
        };
        found.filter(|text| !text.is_empty())
    }

    /// Returns the error text for a missing value.
    pub fn absent(&self) -> String {
        match self {
            Self::Header(name) => format!("header `{name}` is absent or empty"),
            Self::Payload(pointer) => format!("payload has no scalar at `{pointer}`"),
            Self::Key => "the message has no key".to_owned(),
            Self::Position => "the message has no position".to_owned(),
        }
    }
}

/// The value of a message. Brokers have messages without a value, and values without a byte: both
/// mean something there and are no errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The bytes.
    Bytes(Vec<u8>),
    /// Zero bytes.
    Empty,
    /// No value at all: on a compacted topic, the key was deleted.
    Tombstone,
}

impl Value {
    /// The value of the reserved header; the event type where the mapping finds none.
    fn absence(&self) -> Option<&'static str> {
        match self {
            Self::Bytes(_) => None,
            Self::Empty => Some(VALUE_EMPTY),
            Self::Tombstone => Some(VALUE_TOMBSTONE),
        }
    }
}

impl Default for Value {
    fn default() -> Self {
        Self::Bytes(Vec::new())
    }
}

/// [`HEADER_VALUE`] of a message without a value.
pub const VALUE_TOMBSTONE: &str = "tombstone";
/// [`HEADER_VALUE`] of a message whose value has no bytes.
pub const VALUE_EMPTY: &str = "empty";

/// A message as a source received it, before it is decoded.
#[derive(Clone, Debug, Default)]
pub struct Incoming {
    /// The topic, or the name of the source.
    pub topic: String,
    /// The partition, if the source has partitions.
    pub partition_num: i32,
    /// The position in the partition.
    pub offset_num: i64,
    /// The key that the broker has for it.
    pub key: Option<String>,
    /// The headers.
    pub headers: Headers,
    /// The value.
    pub value: Value,
    /// Kept if it is [common](Timestamp::is_common).
    pub event_ts: Option<Timestamp>,
    /// Its permanent position at its source; only brokers have that.
    pub position: Option<String>,
}

/// The places in a source's messages where relais finds what an inbox row needs.
///
/// ```
/// use relais_core::extract::{Mapping, Pick};
///
/// let mapping = Mapping::json("bank")
///     .message_id(Pick::header("message-id"))
///     .event_type(Pick::payload("/type"))
///     .aggregate_id(Pick::payload("/order_id"));
/// assert_eq!(mapping.event_type, "payload:/type".parse().ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping {
    /// The system that the messages come from. A message id is unique within it.
    pub source_system: String,
    /// Decodes the bytes.
    pub decoder: Decoder,
    /// The place of the message id, by which duplicates are recognised.
    pub message_id: Pick,
    /// The place of the event type, by which handlers, routes and processes are found.
    pub event_type: Option<Pick>,
    /// The place of the id that orders messages.
    pub aggregate_id: Option<Pick>,
}

crate::setters!(Mapping {
    /// Sets the decoder.
    decoder: = Decoder,
    /// Sets the place of the message id.
    message_id: = Pick,
    /// Sets the place of the event type.
    event_type: ? Pick,
    /// Sets the place of the id that orders messages.
    aggregate_id: ? Pick,
});

/// A decodable message without the id its source promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message id: {0}")]
pub struct MissingId(pub String);

impl Mapping {
    /// Returns a mapping of JSON messages whose id is in the header `message-id`.
    pub fn json(source_system: &str) -> Self {
        Self {
            source_system: source_system.to_owned(),
            decoder: Decoder::Json,
            message_id: Pick::header("message-id"),
            event_type: None,
            aggregate_id: None,
        }
    }

    /// The inbox row of a message.
    ///
    /// A message without the id its source promises has its position for an id, and says so; so has
    /// what cannot be decoded. Without a position garbage goes by the hash of its bytes (the same
    /// twice is one row), and a decodable message is refused.
    pub fn read(&self, incoming: Incoming) -> Result<NewInbox, MissingId> {
        self.read_with(incoming, |bytes| self.decoder.decode(bytes))
    }

    /// The same for a value that the caller decodes, with a schema that it has.
    pub fn read_with(
        &self,
        mut incoming: Incoming,
        decode: impl FnOnce(&[u8]) -> Result<DecodedValue, Problem>,
    ) -> Result<NewInbox, MissingId> {
        let absence = incoming.value.absence();
        let (decoded, schema_id) = content(std::mem::take(&mut incoming.value), decode);
        let mut headers = incoming.headers.clone();
        if let Some(absence) = absence {
            headers.set(HEADER_VALUE, absence);
        }
        if let Some(schema_id) = schema_id {
            headers.set(HEADER_SCHEMA_ID, &schema_id.to_string());
        }
        let json = match &decoded {
            Content::Json(json) => Some(json.as_str()),
            Content::Undecodable { .. } => None,
        };
        let parts = self.parts(&incoming, json);
        parts.note(&mut headers);
        let message_id = match (parts.message_id, &incoming.position, &decoded) {
            (Some(id), ..) => id,
            (None, Some(position), _) => {
                headers.set(HEADER_MESSAGE_ID, "position");
                text::identity(position, text::MESSAGE_ID_MAX)
            }
            (None, None, Content::Undecodable { bytes, .. }) => {
                format!("sha256:{}", text::sha256_hex(bytes))
            }
            (None, None, Content::Json(_)) => return Err(self.missing_id()),
        };
        let key_str = incoming.key.as_deref().map(|key| text::identity(key, text::KEY_MAX));
        let order_id = parts.order_id.as_ref();
        let msg_key = ordering_key(order_id, key_str.as_ref(), &message_id);
        Ok(NewInbox {
            source_system: self.source_system.clone(),
            message_id,
            topic: incoming.topic,
            partition_num: incoming.partition_num,
            offset_num: incoming.offset_num,
            key_str,
            msg_key,
            aggregate_id: parts.aggregate_id,
            event_type: parts.event_type.or_else(|| absence.map(str::to_owned)),
            content: decoded,
            headers,
            event_ts: incoming.event_ts.filter(|at| at.is_common()),
        })
    }

    /// The parts the settings name, where the message has them.
    pub fn parts(&self, incoming: &Incoming, json: Option<&str>) -> Parts {
        let find = |pick: &Option<Pick>| pick.as_ref().and_then(|p| self.pick(p, incoming, json));
        let message_id = self.pick(&self.message_id, incoming, json);
        let aggregate_id = find(&self.aggregate_id);
        // Without an aggregate id a message is about its key, else about itself.
        let about = match (&aggregate_id, &incoming.key, &message_id) {
            (Some(id), ..) => text::aggregate_id(id),
            (None, Some(key), _) => text::kept(key, text::KEY_MAX),
            (None, None, Some(id)) => text::kept(id, text::MESSAGE_ID_MAX),
            (None, None, None) => Ok(""),
        };
        let unusable_id = about.err();
        let kept = aggregate_id.as_ref().filter(|_| unusable_id.is_none()).cloned();
        Parts {
            message_id: message_id.map(|id| text::identity(&id, text::MESSAGE_ID_MAX)),
            order_id: aggregate_id.map(|id| text::identity(&id, text::AGGREGATE_ID_MAX)),
            aggregate_id: kept,
            unusable_id,
            event_type: find(&self.event_type).map(|kind| text::fit(&kind, text::MESSAGE_ID_MAX)),
        }
    }

    fn pick(&self, pick: &Pick, incoming: &Incoming, json: Option<&str>) -> Option<String> {
        let found = match pick {
            Pick::Header(name) => incoming.headers.get(name).map(str::to_owned),
            Pick::Payload(pointer) => scalar(json?, pointer),
            Pick::Key => incoming.key.clone(),
            Pick::Position => incoming.position.clone(),
        };
        found.filter(|text| !text.is_empty())
    }

    fn missing_id(&self) -> MissingId {
        MissingId(self.message_id.absent())
    }
}

/// Decodes a value; a missing one becomes the `null` of JSON.
fn content(
    value: Value,
    decode: impl FnOnce(&[u8]) -> Result<DecodedValue, Problem>,
) -> (Content, Option<u32>) {
    match value {
        Value::Empty | Value::Tombstone => (Content::Json("null".to_owned()), None),
        Value::Bytes(bytes) => match decode(&bytes) {
            Ok(DecodedValue { json, schema_id }) => (Content::Json(json), schema_id),
            Err(problem) => (Content::Undecodable { problem, bytes }, None),
        },
    }
}

/// Objects and arrays cannot be used as an id.
fn scalar(json: &str, pointer: &str) -> Option<String> {
    json::pointer(json, pointer).filter(|found| !found.starts_with(['{', '['])).and_then(json::text)
}

/// The parts of a message that the mapping finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The id of the message.
    pub message_id: Option<String>,
    /// As the message has it, never replaced; `None` also if it cannot be kept.
    pub aggregate_id: Option<String>,
    /// The aggregate id as an ordering key: a hash if it cannot be kept.
    pub order_id: Option<String>,
    /// Why the id of what the message is about cannot be kept.
    pub unusable_id: Option<String>,
    /// The event type.
    pub event_type: Option<String>,
}

impl Parts {
    /// Notes in the row's headers whether the id of what it is about was lost.
    pub fn note(&self, headers: &mut Headers) {
        match &self.unusable_id {
            Some(why) => headers.set(HEADER_AGGREGATE_ID, why),
            None => {
                headers.0.remove(HEADER_AGGREGATE_ID);
            }
        }
    }
}

/// The aggregate, else the key, else the message itself.
pub fn ordering_key(
    aggregate_id: Option<&String>,
    key_str: Option<&String>,
    message_id: &str,
) -> String {
    aggregate_id.or(key_str).map_or_else(|| message_id.to_owned(), Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(message_id: &str) -> Mapping {
        Mapping {
            source_system: "crm".into(),
            decoder: Decoder::Json,
            message_id: message_id.parse().unwrap(),
            event_type: Some("payload:/type".parse().unwrap()),
            aggregate_id: Some("payload:/familyId".parse().unwrap()),
        }
    }

    fn incoming(body: &[u8]) -> Incoming {
        Incoming { topic: "hook".into(), value: Value::Bytes(body.to_vec()), ..Incoming::default() }
    }

    #[test]
    fn parts_come_from_where_the_settings_say() {
        let mut message = incoming(br#"{"type":"MembersCreated","familyId":7}"#);
        message.headers.set("Message-Id", "m-1");
        let row = mapping("header:message-id").read(message).unwrap();
        assert_eq!(row.message_id, "m-1");
        assert_eq!(row.event_type.as_deref(), Some("MembersCreated"));
        assert_eq!((row.aggregate_id.as_deref(), row.msg_key.as_str()), (Some("7"), "7"));
    }

    #[test]
    fn an_aggregate_id_is_the_one_of_the_message_or_none() {
        let read = |id: &str| {
            let body = serde_json::json!({"id": "m-1", "familyId": id}).to_string();
            mapping("payload:/id").read(incoming(body.as_bytes())).unwrap()
        };
        let long = "f".repeat(1_000);
        assert_eq!(read(&long).aggregate_id, Some(long.clone()));
        assert_eq!(read(&long).headers.get(HEADER_AGGREGATE_ID), None);
        for id in [format!("{long}f"), "a\0b".to_owned()] {
            let row = read(&id);
            assert_eq!(row.aggregate_id, None);
            assert!(row.msg_key.starts_with("sha256:"), "its order holds all the same");
            assert!(row.headers.get(HEADER_AGGREGATE_ID).is_some());
        }
        // A key stands for the aggregate where the message names none.
        let mut message = incoming(br#"{"id": "m-1"}"#);
        message.key = Some("a\0b".into());
        let row = mapping("payload:/id").read(message).unwrap();
        assert!(row.headers.get(HEADER_AGGREGATE_ID).is_some_and(|why| why.contains("U+0000")));
    }

    #[test]
    fn garbage_is_kept_with_its_reason_and_one_identity() {
        let read = |body: &[u8]| mapping("payload:/id").read(incoming(body)).unwrap();
        let row = read(b"{oops");
        assert_eq!(row.message_id, read(b"{oops").message_id);
        assert_ne!(row.message_id, read(b"{oop").message_id);
        assert!(
            matches!(row.content, Content::Undecodable { ref problem, .. } if problem.code == "INVALID_JSON")
        );
    }

    #[test]
    fn a_decodable_message_without_its_id_is_refused() {
        let error = mapping("header:message-id").read(incoming(b"{}")).unwrap_err();
        assert_eq!(error.to_string(), "no message id: header `message-id` is absent or empty");
        for id in ["null", "\"\"", "{\"a\":1}", "[1]"] {
            let body = format!("{{\"id\":{id}}}");
            assert!(mapping("payload:/id").read(incoming(body.as_bytes())).is_err(), "{id}");
        }
    }

    #[test]
    fn at_a_broker_the_position_serves_where_the_id_is_missing_and_the_row_says_so() {
        let mut record = incoming(b"{}");
        record.position = Some("c/members/3/17@9".into());
        let row = mapping("header:message-id").read(record.clone()).unwrap();
        assert_eq!(row.message_id, "c/members/3/17@9");
        assert_eq!(row.headers.get(HEADER_MESSAGE_ID), Some("position"));
        record.value = Value::Bytes(b"{oops".to_vec());
        assert_eq!(mapping("payload:/id").read(record).unwrap().message_id, "c/members/3/17@9");
    }

    #[test]
    fn tombstones_and_empty_values_are_messages() {
        for (value, name) in [(Value::Tombstone, "tombstone"), (Value::Empty, "empty")] {
            let mut record = incoming(b"");
            record.value = value;
            record.key = Some("k".into());
            let row = mapping("key").read(record).unwrap();
            assert_eq!(row.content, Content::Json("null".into()));
            assert_eq!(row.event_type.as_deref(), Some(name));
            assert_eq!(row.headers.get(HEADER_VALUE), Some(name));
        }
    }

    #[test]
    fn a_time_that_not_every_database_holds_is_left_out() {
        let read = |time: &str| {
            let mut record = incoming(b"{}");
            (record.position, record.event_ts) = (Some("p".into()), Timestamp::parse(time));
            assert!(record.event_ts.is_some(), "{time}");
            mapping("position").read(record).unwrap().event_ts.map(|at| at.to_string())
        };
        for kept in ["0001-01-01T00:00:00.000Z", "2026-11-15T12:00:00.123Z"] {
            assert_eq!(read(kept).as_deref(), Some(kept));
        }
        for gone in ["-004800-01-01T00:00:00Z", "0000-12-31T23:59:59.999Z"] {
            assert_eq!(read(gone), None);
        }
    }

    #[test]
    fn unknown_places_are_named() {
        assert!("heder:x".parse::<Pick>().unwrap_err().to_string().contains("header:NAME"));
        assert!("payload:x".parse::<Pick>().is_err());
    }
}
