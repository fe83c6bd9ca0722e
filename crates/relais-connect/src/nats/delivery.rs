//! Maps a delivered message to an inbox row. Nothing is lost: undecodable bodies are kept byte for
//! byte, and the subject is a header.

use async_nats::{Message, Subject};
use relais_core::{
    extract::{Incoming, Mapping, Value},
    inbox::NewInbox,
    message::{HeaderValue, Headers},
    time::Timestamp,
};

use super::NatsEnvelope;
use crate::{cloudevent, held::HeldMessage};

/// Headers with the ordering key, in order of preference.
const KEY_HEADERS: [&str; 2] = ["message-key", "ce-partitionkey"];
/// The header with the subject, which only the server knows.
const SUBJECT: &str = "nats-subject";

/// The form of all messages of a source.
#[derive(Clone, Debug)]
pub(super) struct StreamFormat {
    pub(super) mapping: Mapping,
    pub(super) envelope: NatsEnvelope,
}

/// A message that waits to be stored and acknowledged.
#[derive(Debug)]
pub(super) struct StreamMessage {
    /// Its sequence in the stream.
    pub(super) sequence: u64,
    /// The subject of its acknowledgement.
    pub(super) reply: Subject,
    pub(super) bytes: usize,
    pub(super) row: NewInbox,
}

impl HeldMessage for StreamMessage {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn row(&self) -> &NewInbox {
        &self.row
    }
}

impl StreamFormat {
    /// Maps a message. Returns `None` for one that is not of a consumer.
    pub(super) fn read(&self, message: Message) -> Option<StreamMessage> {
        let (reply, bytes) = (message.reply.clone()?, message.length);
        let headers = headers(&message);
        self.map(reply, headers, Vec::from(message.payload), bytes)
    }

    /// Maps a message with this subject of its acknowledgement. Returns `None` if that is not one of a
    /// consumer.
    pub(super) fn map(
        &self,
        reply: Subject,
        mut headers: Headers,
        payload: Vec<u8>,
        bytes: usize,
    ) -> Option<StreamMessage> {
        let place = StreamPlace::parse(&reply)?;
        let position = format!("{}:{}:{}", place.stream, place.sequence, place.nanoseconds);
        let (sequence, topic) = (place.sequence, place.stream.to_owned());
        let event_ts = Some(Timestamp(place.nanoseconds / 1_000));
        let body = match self.envelope {
            NatsEnvelope::None => payload,
            NatsEnvelope::CloudEvents => cloudevent::open(payload, &mut headers, &cloudevent::NATS),
        };
        let key = KEY_HEADERS.iter().find_map(|name| headers.get(name)).map(str::to_owned);
        let incoming = Incoming {
            topic,
            partition_num: 0,
            offset_num: i64::try_from(sequence).unwrap_or(i64::MAX),
            key: key.filter(|key| !key.is_empty()),
            headers,
            value: if body.is_empty() { Value::Empty } else { Value::Bytes(body) },
            event_ts,
            position: Some(position),
        };
        let row = self.mapping.read(incoming).expect("a message with a position has an id");
        Some(StreamMessage { sequence, reply, bytes, row })
    }
}

/// Returns headers with the subject alone.
pub(super) fn subject_header(subject: &str) -> Headers {
    let mut headers = Headers::default();
    headers.push(SUBJECT, HeaderValue::from_bytes(subject.as_bytes()));
    headers
}

fn headers(message: &Message) -> Headers {
    let mut headers = subject_header(&message.subject);
    for (name, values) in message.headers.iter().flat_map(|map| map.iter()) {
        for value in values {
            let (name, value): (&str, &[u8]) = (name.as_ref(), value.as_ref());
            headers.receive(name, HeaderValue::from_bytes(value));
        }
    }
    headers
}

/// The place of a message in its stream, as the subject of its acknowledgement has it. The time makes
/// it unique: sequences of a stream that was deleted and created again begin again.
#[derive(Debug, PartialEq, Eq)]
struct StreamPlace<'a> {
    stream: &'a str,
    sequence: u64,
    nanoseconds: i64,
}

impl<'a> StreamPlace<'a> {
    /// Parses `$JS.ACK.STREAM.CONSUMER.DELIVERED.SEQUENCE.CONSUMER_SEQUENCE.TIME.PENDING`; newer
    /// servers have domain and account before the stream, and another part behind.
    fn parse(reply: &'a str) -> Option<Self> {
        let parts: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let first = if parts.len() >= 9 { 2 } else { 0 };
        Some(Self {
            stream: parts.get(first)?,
            sequence: parts.get(first + 3)?.parse().ok()?,
            nanoseconds: parts.get(first + 5)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use async_nats::HeaderMap;
    use relais_core::{inbox::Content, message::HEADER_MESSAGE_ID};

    use super::*;

    const REPLY: &str = "$JS.ACK.ORDERS.relais.1.17.4.1794744000123456789.0";

    fn message(headers: &[(&str, &str)], body: &[u8]) -> Message {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, *value);
        }
        Message {
            subject: "orders.eu".into(),
            reply: Some(REPLY.into()),
            payload: body.to_vec().into(),
            headers: Some(map),
            status: None,
            description: None,
            length: body.len(),
        }
    }

    fn format(message_id: &str) -> StreamFormat {
        let mapping = Mapping::json("crm").message_id(message_id.parse().unwrap());
        StreamFormat { mapping, envelope: NatsEnvelope::None }
    }

    #[test]
    fn headers_subject_and_place_are_kept() {
        let given = [
            ("Nats-Msg-Id", "m-1"),
            ("text", "é"),
            ("many", "a"),
            ("many", ""),
            ("message-key", "k-1"),
            ("relais-value", "tombstone"),
        ];
        let read = format("header:nats-msg-id").read(message(&given, b"{\"a\": 1}")).unwrap();
        assert_eq!((read.sequence, read.reply.as_str()), (17, REPLY));
        let row = read.row;
        assert_eq!((row.message_id.as_str(), row.topic.as_str()), ("m-1", "ORDERS"));
        assert_eq!((row.offset_num, row.msg_key.as_str()), (17, "k-1"));
        assert_eq!(row.content, Content::Json("{\"a\": 1}".into()));
        assert_eq!(row.event_ts, Some(Timestamp(1_794_744_000_123_456)));
        assert_eq!(
            row.headers.to_json(),
            r#"{"Nats-Msg-Id":"m-1","many":["a",""],"message-key":"k-1","#.to_owned()
                + r#""nats-subject":"orders.eu","text":"é","x-relais-value":"tombstone"}"#
        );
    }

    #[test]
    fn a_message_without_an_id_has_its_place_for_an_id() {
        let row = format("header:Nats-Msg-Id").read(message(&[], b"{}")).unwrap().row;
        assert_eq!(row.message_id, "ORDERS:17:1794744000123456789");
        assert_eq!(row.headers.get(HEADER_MESSAGE_ID), Some("position"));
        let again = format("position").read(message(&[], b"{}")).unwrap().row;
        assert_eq!(again.message_id, row.message_id);
    }

    #[test]
    fn undecodable_bytes_and_empty_bodies_are_messages() {
        let format = format("payload:/id");
        let row = format.read(message(&[], b"\xff{")).unwrap().row;
        assert!(matches!(row.content, Content::Undecodable { bytes, .. } if bytes == b"\xff{"));
        let row = format.read(message(&[], b"")).unwrap().row;
        assert_eq!(row.content, Content::Json("null".into()));
        assert_eq!(row.event_type.as_deref(), Some("empty"));
    }

    #[test]
    fn the_place_of_a_message_is_found_in_both_forms() {
        let place = |reply| StreamPlace::parse(reply);
        let expected = StreamPlace { stream: "S", sequence: 17, nanoseconds: 99 };
        assert_eq!(place("$JS.ACK.S.c.1.17.4.99.0"), Some(expected));
        let expected = StreamPlace { stream: "S", sequence: 17, nanoseconds: 99 };
        assert_eq!(place("$JS.ACK._.ACC.S.c.1.17.4.99.0.x"), Some(expected));
        for other in ["_INBOX.a.b", "$JS.ACK.S", "$JS.ACK.S.c.1.x.4.99.0"] {
            assert_eq!(place(other), None, "{other}");
        }
    }

    #[test]
    fn a_cloudevent_is_unwrapped() {
        let format = StreamFormat { envelope: NatsEnvelope::CloudEvents, ..format("header:ce-id") };
        let given = [("ce-id", "e-1"), ("ce-type", "Made"), ("ce-partitionkey", "k")];
        let row = format.read(message(&given, b"{}")).unwrap().row;
        assert_eq!((row.message_id.as_str(), row.msg_key.as_str()), ("e-1", "k"));
        assert_eq!(row.headers.get("event-type"), Some("Made"));
    }
}
