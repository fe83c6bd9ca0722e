//! Maps a delivery of the broker to an inbox row. Nothing is lost: properties become headers of
//! their names, and undecodable bodies are kept byte for byte.

use lapin::{
    BasicProperties,
    message::Delivery,
    types::{AMQPValue, FieldTable, ShortString},
};
use relais_core::{
    extract::{Incoming, Mapping, Pick, Value},
    inbox::NewInbox,
    message::{HEADER_MESSAGE_ID, HeaderValue, Headers},
    text,
    time::Timestamp,
};
use uuid::Uuid;

use super::{RabbitEnvelope, WithoutId, envelope};
use crate::{cloudevent, held::HeldMessage};

/// Headers with the ordering key, in order of preference.
const KEY_HEADERS: [&str; 2] = ["message-key", "ce-partitionkey"];
/// Headers with what only the broker knows.
const EXCHANGE: &str = "amqp-exchange";
const ROUTING_KEY: &str = "amqp-routing-key";
/// Headers that a quorum queue adds to a redelivery; they are no part of the message.
const OF_REDELIVERY: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// The form of all messages of a source.
#[derive(Clone, Debug)]
pub(super) struct DeliveryFormat {
    pub(super) queue: String,
    pub(super) mapping: Mapping,
    pub(super) envelope: RabbitEnvelope,
    pub(super) without_id: WithoutId,
}

/// A delivery that waits to be stored and acknowledged.
#[derive(Debug)]
pub(super) struct HeldDelivery {
    pub(super) tag: u64,
    pub(super) bytes: usize,
    pub(super) message: NewInbox,
}

impl HeldMessage for HeldDelivery {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn row(&self) -> &NewInbox {
        &self.message
    }
}

impl DeliveryFormat {
    pub(super) fn held(&self, delivery: Delivery) -> HeldDelivery {
        let (tag, bytes) = (delivery.delivery_tag, delivery.data.len());
        HeldDelivery { tag, bytes, message: self.message(delivery) }
    }

    fn message(&self, delivery: Delivery) -> NewInbox {
        let mut headers = headers(&delivery);
        let position = (!self.names_its_id(&headers)).then(|| self.identity(&delivery));
        let event_ts = event_ts(*delivery.properties.timestamp());
        let body = match self.envelope {
            RabbitEnvelope::None => delivery.data,
            RabbitEnvelope::MassTransit => envelope::open_masstransit(delivery.data, &mut headers),
            RabbitEnvelope::CloudEvents => {
                cloudevent::open(delivery.data, &mut headers, &cloudevent::AMQP)
            }
        };
        let key = KEY_HEADERS.iter().find_map(|name| headers.get(name)).map(str::to_owned);
        let incoming = Incoming {
            topic: self.queue.clone(),
            partition_num: 0,
            offset_num: 0,
            key: key.filter(|key| !key.is_empty()),
            headers,
            value: if body.is_empty() { Value::Empty } else { Value::Bytes(body) },
            event_ts,
            position,
        };
        let mut row = self
            .mapping
            .read(incoming)
            .expect("a message without an id has a derived one in place of a position");
        if row.headers.get(HEADER_MESSAGE_ID).is_some() {
            row.headers.set(
                HEADER_MESSAGE_ID,
                match self.without_id {
                    WithoutId::Hash => "hash",
                    WithoutId::New => "new",
                },
            );
        }
        if self.envelope == RabbitEnvelope::MassTransit {
            envelope::explain_missing(&mut row);
        }
        row
    }

    /// Returns whether the id is certain to be found, so that no other is needed.
    fn names_its_id(&self, headers: &Headers) -> bool {
        matches!(&self.mapping.message_id, Pick::Header(name)
            if headers.get(name).is_some_and(|id| !id.is_empty()))
    }

    /// Returns the id of a message without one. RabbitMQ has no positions, and its delivery tags begin
    /// again on every channel.
    fn identity(&self, delivery: &Delivery) -> String {
        match self.without_id {
            WithoutId::New => format!("new:{}", Uuid::now_v7()),
            WithoutId::Hash => {
                let properties = without_redelivery(&delivery.properties);
                let described = format!(
                    "{}\0{}\0{}\0{properties:?}\0",
                    self.queue, delivery.exchange, delivery.routing_key
                );
                let bytes = [described.as_bytes(), &delivery.data].concat();
                format!("sha256:{}", text::sha256_hex(&bytes))
            }
        }
    }
}

fn without_redelivery(properties: &BasicProperties) -> BasicProperties {
    let mut table = properties.headers().as_ref().map(|table| table.inner().clone());
    if let Some(table) = &mut table {
        table.retain(|name, _| !OF_REDELIVERY.contains(&name.as_str()));
    }
    // A message without headers and one with an empty table are the same.
    properties.clone().with_headers(table.unwrap_or_default().into())
}

fn event_ts(seconds: Option<u64>) -> Option<Timestamp> {
    let micros = i64::try_from(seconds?).ok()?.checked_mul(1_000_000)?;
    Some(Timestamp(micros))
}

/// Returns properties and headers. A property is before a header of its name.
fn headers(delivery: &Delivery) -> Headers {
    let mut headers = Headers::default();
    let properties = &delivery.properties;
    let texts = [
        ("message-id", properties.message_id()),
        ("correlation-id", properties.correlation_id()),
        ("content-type", properties.content_type()),
        ("content-encoding", properties.content_encoding()),
        ("type", properties.kind()),
        ("reply-to", properties.reply_to()),
        ("expiration", properties.expiration()),
        ("user-id", properties.user_id()),
        ("app-id", properties.app_id()),
        ("cluster-id", properties.cluster_id()),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            headers.push(name, HeaderValue::from_bytes(text.as_str().as_bytes()));
        }
    }
    if let Some(priority) = properties.priority() {
        headers.set("priority", &priority.to_string());
    }
    let broker = [(EXCHANGE, &delivery.exchange), (ROUTING_KEY, &delivery.routing_key)];
    for (name, text) in broker.into_iter().filter(|(_, text)| !text.as_str().is_empty()) {
        headers.push(name, HeaderValue::from_bytes(text.as_str().as_bytes()));
    }
    if let Some(table) = properties.headers() {
        for (name, value) in table.inner() {
            receive(&mut headers, name, value);
        }
    }
    headers
}

fn receive(headers: &mut Headers, name: &ShortString, value: &AMQPValue) {
    match value {
        AMQPValue::FieldArray(values) if is_flat(values.as_slice()) => {
            values
                .as_slice()
                .iter()
                .for_each(|value| headers.receive(name.as_str(), header(value)));
        }
        value => headers.receive(name.as_str(), header(value)),
    }
}

fn is_flat(values: &[AMQPValue]) -> bool {
    let nested =
        |value: &AMQPValue| matches!(value, AMQPValue::FieldArray(_) | AMQPValue::FieldTable(_));
    !values.is_empty() && !values.iter().any(nested)
}

/// Returns text and bytes as they are, numbers as text, and tables as JSON.
fn header(value: &AMQPValue) -> HeaderValue {
    match value {
        AMQPValue::LongString(text) => HeaderValue::from_bytes(text.as_bytes()),
        AMQPValue::ShortString(text) => HeaderValue::from_bytes(text.as_str().as_bytes()),
        AMQPValue::ByteArray(bytes) => HeaderValue::from_bytes(bytes.as_slice()),
        AMQPValue::Void => HeaderValue::Null,
        other => HeaderValue::Text(json(other).to_string()),
    }
}

fn json(value: &AMQPValue) -> serde_json::Value {
    use serde_json::json;
    match value {
        AMQPValue::Boolean(flag) => json!(flag),
        AMQPValue::ShortShortInt(number) => json!(number),
        AMQPValue::ShortShortUInt(number) => json!(number),
        AMQPValue::ShortInt(number) => json!(number),
        AMQPValue::ShortUInt(number) => json!(number),
        AMQPValue::LongInt(number) => json!(number),
        AMQPValue::LongUInt(number) => json!(number),
        AMQPValue::LongLongInt(number) => json!(number),
        AMQPValue::Float(number) => json!(number),
        AMQPValue::Double(number) => json!(number),
        AMQPValue::Timestamp(seconds) => json!(seconds),
        AMQPValue::DecimalValue(decimal) => json!([decimal.value, decimal.scale]),
        AMQPValue::FieldArray(values) => values.as_slice().iter().map(json).collect(),
        AMQPValue::FieldTable(table) => json_table(table),
        AMQPValue::Void => serde_json::Value::Null,
        AMQPValue::ShortString(text) => json!(text.as_str()),
        AMQPValue::LongString(text) => json_bytes(text.as_bytes()),
        AMQPValue::ByteArray(bytes) => json_bytes(bytes.as_slice()),
    }
}

fn json_table(table: &FieldTable) -> serde_json::Value {
    table.inner().iter().map(|(name, value)| (name.as_str().to_owned(), json(value))).collect()
}

fn json_bytes(bytes: &[u8]) -> serde_json::Value {
    serde_json::to_value(HeaderValue::from_bytes(bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use relais_core::inbox::Content;

    use super::*;

    fn format(message_id: &str) -> DeliveryFormat {
        DeliveryFormat {
            queue: "orders".into(),
            mapping: Mapping::json("crm").message_id(message_id.parse().unwrap()),
            envelope: RabbitEnvelope::None,
            without_id: WithoutId::Hash,
        }
    }

    fn delivery(properties: BasicProperties, body: &[u8]) -> Delivery {
        let mut delivery = Delivery::mock(7, "x".into(), "orders.eu".into(), false, body.to_vec());
        delivery.properties = properties;
        delivery
    }

    #[test]
    fn properties_and_headers_are_kept() {
        let table: BTreeMap<ShortString, AMQPValue> = [
            ("text".into(), AMQPValue::LongString("é".into())),
            ("bytes".into(), AMQPValue::LongString(vec![0xFF, 0].into())),
            ("void".into(), AMQPValue::Void),
            ("number".into(), AMQPValue::LongInt(-3)),
            (
                "many".into(),
                AMQPValue::FieldArray(
                    vec![AMQPValue::LongString("a".into()), AMQPValue::Void].into(),
                ),
            ),
            ("relais-value".into(), AMQPValue::LongString("tombstone".into())),
            ("message-key".into(), AMQPValue::LongString("k-1".into())),
            ("message-id".into(), AMQPValue::LongString("of a header".into())),
        ]
        .into();
        let properties = BasicProperties::default()
            .with_message_id("m-1".into())
            .with_type("Made".into())
            .with_timestamp(1_794_744_000)
            .with_priority(3)
            .with_headers(table.into());
        let row = format("header:message-id").message(delivery(properties, b"{\"a\": 1}"));
        assert_eq!((row.message_id.as_str(), row.topic.as_str()), ("m-1", "orders"));
        assert_eq!((row.key_str.as_deref(), row.msg_key.as_str()), (Some("k-1"), "k-1"));
        assert_eq!(row.content, Content::Json("{\"a\": 1}".into()));
        assert_eq!(row.event_ts, Some(Timestamp(1_794_744_000_000_000)));
        assert_eq!(
            row.headers.to_json(),
            r#"{"amqp-exchange":"x","amqp-routing-key":"orders.eu","bytes":{"base64":"/wA="},"#
                .to_owned()
                + r#""many":["a",null],"message-id":["m-1","of a header"],"message-key":"k-1","#
                + r#""number":"-3","priority":"3","text":"é","type":"Made","void":null,"#
                + r#""x-relais-value":"tombstone"}"#
        );
    }

    #[test]
    fn a_message_without_the_envelope_of_masstransit_says_so() {
        let mut format = format("header:message-id");
        format.envelope = RabbitEnvelope::MassTransit;
        format.mapping = format.mapping.event_type(Pick::header("event-type"));
        for body in [&b"{\"orderId\": 7}"[..], b"plain text"] {
            let row = format.message(delivery(BasicProperties::default(), body));
            let Content::Undecodable { bytes, problem } = row.content else { panic!("{row:?}") };
            assert_eq!((bytes.as_slice(), problem.code.as_str()), (body, "MASSTRANSIT_ENVELOPE"));
            assert!(problem.message.contains("no envelope of MassTransit"), "{problem:?}");
        }
        // Its sender names the type in another way.
        let table = BTreeMap::from([("event-type".into(), AMQPValue::LongString("Made".into()))]);
        let properties = BasicProperties::default().with_headers(table.into());
        let row = format.message(delivery(properties, b"{}"));
        assert_eq!(row.content, Content::Json("{}".into()));
    }

    #[test]
    fn a_message_without_an_id_is_known_by_its_content() {
        let read = |format: &DeliveryFormat, body: &[u8], kind: &str| {
            let properties = BasicProperties::default().with_type(kind.into());
            format.message(delivery(properties, body))
        };
        let hash = format("header:message-id");
        let first = read(&hash, b"{}", "a");
        assert!(first.message_id.starts_with("sha256:"));
        assert_eq!(first.headers.get(HEADER_MESSAGE_ID), Some("hash"));
        assert_eq!(first.message_id, read(&hash, b"{}", "a").message_id);
        assert_ne!(first.message_id, read(&hash, b"[]", "a").message_id);
        assert_ne!(first.message_id, read(&hash, b"{}", "b").message_id);
        let other = DeliveryFormat { queue: "other".into(), ..hash.clone() };
        assert_ne!(first.message_id, read(&other, b"{}", "a").message_id);
        let new = DeliveryFormat { without_id: WithoutId::New, ..hash };
        let row = read(&new, b"{}", "a");
        assert_eq!(row.headers.get(HEADER_MESSAGE_ID), Some("new"));
        assert_ne!(row.message_id, read(&new, b"{}", "a").message_id);
    }

    #[test]
    fn undecodable_bytes_and_empty_bodies_are_messages() {
        let format = format("payload:/id");
        let row = format.message(delivery(BasicProperties::default(), b"\xff{"));
        assert!(matches!(row.content, Content::Undecodable { bytes, .. } if bytes == b"\xff{"));
        let row = format.message(delivery(BasicProperties::default(), b""));
        assert_eq!(row.content, Content::Json("null".into()));
        assert_eq!(row.event_type.as_deref(), Some("empty"));
    }

    #[test]
    fn a_redelivery_has_the_same_derived_id() {
        let format = format("header:message-id");
        let first = delivery(BasicProperties::default(), b"{}");
        let mut again = delivery(BasicProperties::default(), b"{}");
        (again.redelivered, again.delivery_tag) = (true, 99);
        assert_eq!(format.message(first).message_id, format.message(again).message_id);
        let counted = BTreeMap::from([("x-delivery-count".into(), AMQPValue::LongInt(1))]);
        let counted = BasicProperties::default().with_headers(counted.into());
        let (first, again) = (BasicProperties::default(), counted);
        let id = |properties| format.message(delivery(properties, b"{}")).message_id;
        assert_eq!(id(first), id(again), "a quorum queue counts");
    }
}
