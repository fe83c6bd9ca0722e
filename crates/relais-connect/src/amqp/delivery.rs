//! Maps a delivery of the broker to an inbox row. Nothing is lost: properties and annotations become
//! headers of their names, and undecodable bodies are kept byte for byte.

use fe2o3_amqp::link::delivery::{Delivery, DeliveryInfo};
use fe2o3_amqp_types::{
    messaging::{Body, Message, Properties},
    primitives::{Timestamp, Value},
};
use relais_core::{
    extract::{self, Incoming, Mapping, Pick},
    inbox::NewInbox,
    message::{HEADER_MESSAGE_ID, HeaderValue, Headers},
    text, time,
};
use uuid::Uuid;

use super::{
    AmqpEnvelope, WithoutId,
    value::{annotation_header, body_bytes, id_header, key_text, property_header},
};
use crate::{cloudevent, held::HeldMessage};

/// Headers with the ordering key, in order of preference.
const KEY_HEADERS: [&str; 3] = ["message-key", "group-id", "ce-partitionkey"];
/// Bytes that a message needs besides its body, about.
const OVERHEAD: usize = 256;

/// The form of all messages of a source.
#[derive(Clone, Debug)]
pub(crate) struct AmqpDeliveryFormat {
    pub(crate) address: String,
    pub(crate) mapping: Mapping,
    pub(crate) envelope: AmqpEnvelope,
    pub(crate) without_id: WithoutId,
}

/// A delivery that waits to be stored and settled.
#[derive(Debug)]
pub(crate) struct HeldAmqpDelivery {
    pub(crate) info: DeliveryInfo,
    pub(crate) bytes: usize,
    pub(crate) message: NewInbox,
}

impl HeldMessage for HeldAmqpDelivery {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn row(&self) -> &NewInbox {
        &self.message
    }
}

impl AmqpDeliveryFormat {
    pub(crate) fn held(&self, delivery: Delivery<Body<Value>>) -> HeldAmqpDelivery {
        let (info, message) = delivery.into_parts();
        let (bytes, message) = self.message(message);
        HeldAmqpDelivery { info, bytes, message }
    }

    fn message(&self, message: Message<Body<Value>>) -> (usize, NewInbox) {
        let mut headers = headers(&message);
        // Annotations of the broker are no part of the message, and may differ in a redelivery.
        let identity = headers.to_json();
        if let Some(annotations) = &message.message_annotations {
            for (key, value) in annotations.0.iter() {
                headers.receive(&key_text(key), annotation_header(value));
            }
        }
        let properties = message.properties.as_ref();
        let created = properties.and_then(|properties| properties.creation_time.clone());
        let mut value = body_bytes(message.body);
        let length = match &value {
            extract::Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        let position = (!self.names_its_id(&headers)).then(|| self.identity(&identity, &value));
        if self.envelope == AmqpEnvelope::CloudEvents
            && let extract::Value::Bytes(bytes) = value
        {
            let bytes = cloudevent::open(bytes, &mut headers, &cloudevent::AMQP);
            value =
                if bytes.is_empty() { extract::Value::Empty } else { extract::Value::Bytes(bytes) };
        }
        let key = KEY_HEADERS.iter().find_map(|name| headers.get(name)).map(str::to_owned);
        let incoming = Incoming {
            topic: self.address.clone(),
            partition_num: 0,
            offset_num: 0,
            key: key.filter(|key| !key.is_empty()),
            headers,
            value,
            event_ts: created.as_ref().and_then(event_ts),
            position,
        };
        let bytes = length + identity.len() + OVERHEAD;
        (bytes, self.row(incoming))
    }

    fn row(&self, incoming: Incoming) -> NewInbox {
        let mut row = self
            .mapping
            .read(incoming)
            .expect("a message without an id has a derived one in place of a position");
        if row.headers.get(HEADER_MESSAGE_ID).is_some() {
            let how = match self.without_id {
                WithoutId::Hash => "hash",
                WithoutId::New => "new",
            };
            row.headers.set(HEADER_MESSAGE_ID, how);
        }
        row
    }

    /// Returns whether the id is certain to be found, so that no other is needed.
    fn names_its_id(&self, headers: &Headers) -> bool {
        matches!(&self.mapping.message_id, Pick::Header(name)
            if headers.get(name).is_some_and(|id| !id.is_empty()))
    }

    /// Returns the id of a message without one. AMQP has no positions, and its delivery ids begin again
    /// with every session.
    fn identity(&self, properties: &str, value: &extract::Value) -> String {
        match self.without_id {
            WithoutId::New => format!("new:{}", Uuid::now_v7()),
            WithoutId::Hash => {
                let described = format!("{}\0{properties}\0{value:?}", self.address);
                format!("sha256:{}", text::sha256_hex(described.as_bytes()))
            }
        }
    }
}

fn event_ts(at: &Timestamp) -> Option<time::Timestamp> {
    at.milliseconds().checked_mul(1_000).map(time::Timestamp)
}

/// Returns properties and application properties. A property is before an application property of its
/// name. The header section is left out, because a redelivery changes it; the priority is not.
fn headers(message: &Message<Body<Value>>) -> Headers {
    let mut headers = Headers::default();
    if let Some(properties) = &message.properties {
        add_properties(&mut headers, properties);
    }
    if let Some(header) = &message.header {
        if header.priority != Default::default() {
            headers.set("priority", &header.priority.0.to_string());
        }
        if let Some(ttl) = header.ttl {
            headers.set("ttl", &ttl.to_string());
        }
    }
    if let Some(properties) = &message.application_properties {
        for (name, value) in properties.0.iter() {
            headers.receive(name, property_header(value));
        }
    }
    headers
}

fn add_properties(headers: &mut Headers, properties: &Properties) {
    let ids =
        [("message-id", &properties.message_id), ("correlation-id", &properties.correlation_id)];
    for (name, id) in ids {
        if let Some(id) = id {
            headers.push(name, id_header(id));
        }
    }
    let symbol = |symbol: &Option<fe2o3_amqp_types::primitives::Symbol>| {
        symbol.as_ref().map(|symbol| symbol.as_str().to_owned())
    };
    let texts = [
        ("content-type", symbol(&properties.content_type)),
        ("content-encoding", symbol(&properties.content_encoding)),
        ("subject", properties.subject.clone()),
        ("to", properties.to.clone()),
        ("reply-to", properties.reply_to.clone()),
        ("group-id", properties.group_id.clone()),
        ("group-sequence", properties.group_sequence.map(|number| number.to_string())),
        ("reply-to-group-id", properties.reply_to_group_id.clone()),
        ("absolute-expiry-time", properties.absolute_expiry_time.as_ref().and_then(time_text)),
        ("creation-time", properties.creation_time.as_ref().and_then(time_text)),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            headers.push(name, HeaderValue::from_bytes(text.as_bytes()));
        }
    }
    if let Some(user) = &properties.user_id {
        headers.push("user-id", HeaderValue::from_bytes(user));
    }
}

fn time_text(at: &Timestamp) -> Option<String> {
    event_ts(at).map(|at| at.to_string())
}

#[cfg(test)]
mod tests {
    use fe2o3_amqp_types::{
        messaging::{ApplicationProperties, Batch, Data, Header, MessageAnnotations, MessageId},
        primitives::{Binary, SimpleValue},
    };
    use relais_core::inbox::Content;

    use super::*;

    fn format(message_id: &str) -> AmqpDeliveryFormat {
        AmqpDeliveryFormat {
            address: "orders".into(),
            mapping: Mapping::json("crm").message_id(message_id.parse().unwrap()),
            envelope: AmqpEnvelope::None,
            without_id: WithoutId::Hash,
        }
    }

    fn message(body: &[u8]) -> Message<Body<Value>> {
        Message {
            header: None,
            delivery_annotations: None,
            message_annotations: None,
            properties: None,
            application_properties: None,
            body: Body::Data(Batch::new(vec![Data(Binary::from(body.to_vec()))])),
            footer: None,
        }
    }

    fn read(format: &AmqpDeliveryFormat, message: Message<Body<Value>>) -> NewInbox {
        format.message(message).1
    }

    #[test]
    fn properties_annotations_and_headers_are_kept() {
        let mut one = message(b"{\"a\": 1}");
        one.properties = Some(Properties {
            message_id: Some(MessageId::String("m-1".into())),
            subject: Some("Made".into()),
            group_id: Some("k-1".into()),
            creation_time: Some(Timestamp::from_milliseconds(1_794_744_000_123)),
            ..Properties::default()
        });
        let mut properties = ApplicationProperties::default();
        properties.insert("bytes".into(), SimpleValue::Binary(vec![0xFF, 0].into()));
        properties.insert("relais-value".into(), SimpleValue::String("tombstone".into()));
        properties.insert("message-id".into(), SimpleValue::String("of a header".into()));
        one.application_properties = Some(properties);
        let mut annotations = MessageAnnotations::default();
        annotations.insert("x-opt-sequence-number".into(), Value::Long(7));
        one.message_annotations = Some(annotations);
        let row = read(&format("header:message-id"), one);
        assert_eq!((row.message_id.as_str(), row.topic.as_str()), ("m-1", "orders"));
        assert_eq!((row.key_str.as_deref(), row.msg_key.as_str()), (Some("k-1"), "k-1"));
        assert_eq!(row.content, Content::Json("{\"a\": 1}".into()));
        assert_eq!(row.event_ts, Some(time::Timestamp(1_794_744_000_123_000)));
        assert_eq!(
            row.headers.to_json(),
            r#"{"bytes":{"base64":"/wA="},"creation-time":"2026-11-15T12:00:00.123Z","#.to_owned()
                + r#""group-id":"k-1","message-id":["m-1","of a header"],"subject":"Made","#
                + r#""x-opt-sequence-number":"7","x-relais-value":"tombstone"}"#
        );
    }

    #[test]
    fn a_redelivery_has_the_same_derived_id_and_another_message_has_not() {
        let format = format("header:message-id");
        let first = read(&format, message(b"{}"));
        assert!(first.message_id.starts_with("sha256:"));
        assert_eq!(first.headers.get(HEADER_MESSAGE_ID), Some("hash"));
        let mut again = message(b"{}");
        again.header = Some(Header { delivery_count: 3, ..Header::default() });
        let mut annotations = MessageAnnotations::default();
        annotations.insert("x-opt-locked-until".into(), Value::Long(7));
        again.message_annotations = Some(annotations);
        assert_eq!(read(&format, again).message_id, first.message_id);
        assert_ne!(read(&format, message(b"[]")).message_id, first.message_id);
        let new = AmqpDeliveryFormat { without_id: WithoutId::New, ..format };
        let row = read(&new, message(b"{}"));
        assert_eq!(row.headers.get(HEADER_MESSAGE_ID), Some("new"));
        assert_ne!(row.message_id, read(&new, message(b"{}")).message_id);
    }

    #[test]
    fn undecodable_bytes_and_empty_bodies_are_messages() {
        let format = format("payload:/id");
        let row = read(&format, message(b"\xff{"));
        assert!(matches!(row.content, Content::Undecodable { bytes, .. } if bytes == b"\xff{"));
        let row = read(&format, message(b""));
        assert_eq!(row.content, Content::Json("null".into()));
        assert_eq!(row.event_type.as_deref(), Some("empty"));
        let row = read(&format, Message { body: Body::Empty, ..message(b"") });
        assert_eq!(row.event_type.as_deref(), Some("tombstone"));
    }
}
