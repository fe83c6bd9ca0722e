//! A message as AMQP sends it: exchange, routing key, properties, headers and body.
//!
//! Invariant: headers of the row are sent unchanged, including bytes, repeated names and null values;
//! only a name that relais sets itself is left out. Names are those of the HTTP publisher. What AMQP
//! has a property for (`message-id`, `correlation-id`, `type`, …) is there and not in a header.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};
use relais_core::{
    delivery::Delivery,
    extract::{VALUE_EMPTY, VALUE_TOMBSTONE},
    message::{
        Category, HEADER_KEY, HEADER_RECEIVED, HEADER_REPLY_TO, HEADER_VALUE, HeaderValue,
        HeaderValues,
    },
    outbox::OutboxRow,
};

use super::{RabbitEnvelope, RoutingTemplate, envelope};
use crate::{cloudevent, rabbitmq_settings::NAME_BYTES_MAX, reply::reply_to};

/// The delivery mode of a message that survives a restart of the broker.
const PERSISTENT: u8 = 2;
/// The start of the address of a client that waits on its own channel ("direct reply-to").
const DIRECT_REPLY: &str = "amq.rabbitmq.reply-to.";
/// Bytes that a header needs besides its name and value.
const HEADER_OVERHEAD: usize = 16;
/// Bytes of the properties besides the headers, at most.
const PROPERTIES_MAX: usize = 2_048;

/// The form of all messages of a destination.
#[derive(Clone, Debug)]
pub(super) struct MessageFormat {
    pub(super) exchange: RoutingTemplate,
    pub(super) routing_key: RoutingTemplate,
    pub(super) envelope: RabbitEnvelope,
    /// The .NET namespace of message types, for MassTransit.
    pub(super) namespace: String,
    /// The queue to which commands ask for replies.
    pub(super) reply_to: Option<String>,
}

/// One message.
#[derive(Debug)]
pub(super) struct OutgoingMessage<'a> {
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    pub(super) body: Cow<'a, [u8]>,
    /// An upper limit of the frame that has the properties; AMQP cannot split it.
    pub(super) header_bytes: usize,
}

impl OutgoingMessage<'_> {
    /// Returns whether the address is not a queue but a client that waits. The broker reports such a
    /// message as unroutable although the client gets it.
    pub(super) fn is_direct_reply(&self) -> bool {
        self.exchange.as_str().is_empty() && self.routing_key.as_str().starts_with(DIRECT_REPLY)
    }
}

impl MessageFormat {
    /// Builds the message of a row. The error is the delivery of a row that cannot be sent.
    pub(super) fn message<'a>(&self, row: &'a OutboxRow) -> Result<OutgoingMessage<'a>, Delivery> {
        let name = |template: &RoutingTemplate, what: &str| {
            let refuse = |why: String| {
                Delivery::reject("RABBITMQ_ADDRESS", &format!("cannot make the {what}: {why}"))
            };
            template
                .fill(row)
                .and_then(|name| {
                    let why = || {
                        let bytes = name.len();
                        format!("it has {bytes} bytes; AMQP allows {NAME_BYTES_MAX}")
                    };
                    short(&name).ok_or_else(why)
                })
                .map_err(refuse)
        };
        let (exchange, routing_key) =
            (name(&self.exchange, "exchange")?, name(&self.routing_key, "routing key")?);
        let mut headers = MessageHeaders::default();
        let mut properties = self.properties(row, &mut headers)?;
        let body: Cow<'a, [u8]> = match row.headers.get(HEADER_VALUE) {
            Some(VALUE_TOMBSTONE | VALUE_EMPTY) => Cow::Borrowed(&[]),
            _ if self.envelope == RabbitEnvelope::MassTransit => {
                properties = properties.with_content_type(envelope::MASSTRANSIT_JSON.into());
                Cow::Owned(envelope::masstransit(row, &self.namespace).into_bytes())
            }
            _ => {
                properties = properties.with_content_type("application/json".into());
                Cow::Borrowed(row.payload.as_bytes())
            }
        };
        headers.add_row_headers(row)?;
        let header_bytes = headers.bytes.saturating_add(PROPERTIES_MAX);
        let properties = properties.with_headers(headers.table);
        Ok(OutgoingMessage { exchange, routing_key, properties, body, header_bytes })
    }

    /// Sets the properties, and the headers of relais beside them.
    fn properties(
        &self,
        row: &OutboxRow,
        headers: &mut MessageHeaders,
    ) -> Result<BasicProperties, Delivery> {
        let seconds = u64::try_from(row.created_at.0 / 1_000_000).unwrap_or_default();
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_message_id(row.message_id.to_string().into())
            .with_timestamp(seconds);
        headers.taken.push("message-id");
        // A property has 255 bytes; longer texts are in headers.
        if let Some(kind) = short(&row.event_type) {
            properties = properties.with_type(kind);
        }
        if let Some(id) = &row.correlation_id {
            match short(id) {
                Some(id) => {
                    properties = properties.with_correlation_id(id);
                    headers.taken.push("correlation-id");
                }
                None => headers.set("correlation-id", id)?,
            }
        }
        match reply_to(row, self.reply_to.as_deref()) {
            Some(address) => match short(address) {
                Some(address) => {
                    properties = properties.with_reply_to(address);
                    headers.taken.push(HEADER_REPLY_TO);
                }
                None => headers.set(HEADER_REPLY_TO, address)?,
            },
            None if row.category == Category::Reply => headers.taken.push(HEADER_REPLY_TO),
            None => {}
        }
        headers.set("event-type", &row.event_type)?;
        headers.set("event-version", &row.event_version.to_string())?;
        headers.set("aggregate-type", &row.aggregate_type)?;
        headers.set("aggregate-id", &row.aggregate_id)?;
        headers.set("message-key", &row.msg_key)?;
        if let Some(id) = &row.causation_id {
            headers.set("causation-id", id)?;
        }
        if self.envelope == RabbitEnvelope::CloudEvents {
            for (name, value) in cloudevent::headers(row, &cloudevent::AMQP) {
                headers.set(name, &value)?;
            }
        }
        Ok(properties)
    }
}

/// Returns the text if AMQP can carry it as a short one.
fn short(text: &str) -> Option<ShortString> {
    ShortString::try_new(text).ok()
}

/// Collects headers, and the names that are in use.
#[derive(Default)]
struct MessageHeaders {
    table: FieldTable,
    taken: Vec<&'static str>,
    bytes: usize,
}

impl MessageHeaders {
    fn add_row_headers(&mut self, row: &OutboxRow) -> Result<(), Delivery> {
        for (name, values) in &row.headers.0 {
            if self.is_taken(name)
                || [HEADER_VALUE, HEADER_KEY, HEADER_RECEIVED].contains(&name.as_str())
            {
                continue;
            }
            let value = match values {
                HeaderValues::One(value) => amqp_value(value),
                HeaderValues::Many(values) => {
                    let values: Vec<AMQPValue> = values.iter().map(amqp_value).collect();
                    AMQPValue::FieldArray(values.into())
                }
            };
            self.add(name, value)?;
        }
        Ok(())
    }

    fn is_taken(&self, name: &str) -> bool {
        self.taken.iter().any(|taken| taken.eq_ignore_ascii_case(name))
    }

    fn set(&mut self, name: &'static str, value: &str) -> Result<(), Delivery> {
        self.taken.push(name);
        self.add(name, AMQPValue::LongString(value.into()))
    }

    fn add(&mut self, name: &str, value: AMQPValue) -> Result<(), Delivery> {
        let Some(name) = short(name) else {
            let start: String = name.chars().take(50).collect();
            let why =
                format!("the name of the header `{start}…` has more than 255 bytes; rename it");
            return Err(Delivery::reject("RABBITMQ_HEADER", &why));
        };
        self.bytes += name.as_str().len() + HEADER_OVERHEAD + size(&value);
        self.table.insert(name, value);
        Ok(())
    }
}

fn amqp_value(value: &HeaderValue) -> AMQPValue {
    match value {
        HeaderValue::Text(text) => AMQPValue::LongString(text.as_str().into()),
        HeaderValue::Null => AMQPValue::Void,
        HeaderValue::Bytes { base64 } => match STANDARD.decode(base64) {
            Ok(bytes) => AMQPValue::LongString(bytes.into()),
            // An object of this form that is not Base64: the user's own.
            Err(_) => AMQPValue::LongString(base64.as_str().into()),
        },
    }
}

fn size(value: &AMQPValue) -> usize {
    match value {
        AMQPValue::LongString(text) => text.len(),
        AMQPValue::FieldArray(values) => {
            values.as_slice().iter().map(|value| size(value) + HEADER_OVERHEAD).sum()
        }
        _ => HEADER_OVERHEAD,
    }
}

#[cfg(test)]
mod tests {
    use relais_core::message::Headers;

    use super::*;
    use crate::testing::row;

    fn format(envelope: RabbitEnvelope) -> MessageFormat {
        MessageFormat {
            exchange: "orders".parse().unwrap(),
            routing_key: "{{event_type}}.{{payload:/region}}".parse().unwrap(),
            envelope,
            namespace: "Company.Orders".into(),
            reply_to: Some("answers".into()),
        }
    }

    fn header<'a>(message: &'a OutgoingMessage<'_>, name: &str) -> Option<&'a AMQPValue> {
        message.properties.headers().as_ref().and_then(|table| table.inner().get(name))
    }

    fn text(value: &str) -> AMQPValue {
        AMQPValue::LongString(value.into())
    }

    #[test]
    fn a_message_has_the_properties_of_amqp_and_the_headers_of_the_http_publisher() {
        let mut row = row(r#"{"region":"eu"}"#);
        row.correlation_id = Some("c-1".into());
        row.headers.set("traceparent", "00-abc");
        row.headers.set("Event-Type", "mine");
        row.headers.set("reply-to", "replies");
        row.headers.set("relais-received-at", "17");
        let message = format(RabbitEnvelope::None).message(&row).unwrap();
        assert_eq!(message.exchange.as_str(), "orders");
        assert_eq!(message.routing_key.as_str(), "OrderCreated.eu");
        assert_eq!(&*message.body, row.payload.as_bytes());
        let properties = &message.properties;
        let of = |text: &Option<ShortString>| text.as_ref().map(|text| text.as_str().to_owned());
        assert_eq!(of(properties.message_id()).unwrap(), row.message_id.to_string());
        assert_eq!(of(properties.correlation_id()).as_deref(), Some("c-1"));
        assert_eq!(of(properties.content_type()).as_deref(), Some("application/json"));
        assert_eq!(of(properties.kind()).as_deref(), Some("OrderCreated"));
        assert_eq!(of(properties.reply_to()).as_deref(), Some("replies"));
        assert_eq!(*properties.delivery_mode(), Some(PERSISTENT));
        assert_eq!(*properties.timestamp(), Some(1_794_744_000));
        assert_eq!(header(&message, "traceparent"), Some(&text("00-abc")));
        assert_eq!(header(&message, "event-type"), Some(&text("OrderCreated")));
        assert_eq!(header(&message, "message-key"), Some(&text("7")));
        for absent in
            ["Event-Type", "message-id", "correlation-id", "reply-to", "relais-received-at"]
        {
            assert_eq!(header(&message, absent), None, "{absent}");
        }
    }

    #[test]
    fn a_command_asks_for_its_reply_and_a_reply_is_sent_to_the_queue_of_its_sender() {
        let to_sender = MessageFormat {
            exchange: "".parse().unwrap(),
            routing_key: "{{header:reply-to}}".parse().unwrap(),
            ..format(RabbitEnvelope::None)
        };
        let asked = |message: &OutgoingMessage<'_>| {
            message.properties.reply_to().as_ref().map(|text| text.as_str().to_owned())
        };
        let mut row = row(r#"{"region":"eu"}"#);
        row.category = Category::Command;
        let command = format(RabbitEnvelope::None).message(&row).unwrap();
        assert_eq!(asked(&command).as_deref(), Some("answers"));
        row.category = Category::Reply;
        let Err(Delivery::Reject { problem }) = to_sender.message(&row) else {
            panic!("it has no address")
        };
        assert_eq!(problem.code, "RABBITMQ_ADDRESS");
        assert!(problem.message.contains("`{{header:reply-to}}`"), "{problem:?}");
        for (address, is_direct) in [("amq.rabbitmq.reply-to.g2dk", true), ("callers", false)] {
            row.headers.set("reply-to", address);
            let reply = to_sender.message(&row).unwrap();
            assert_eq!((reply.exchange.as_str(), reply.routing_key.as_str()), ("", address));
            assert_eq!((asked(&reply), header(&reply, "reply-to")), (None, None));
            assert_eq!(reply.is_direct_reply(), is_direct);
        }
    }

    #[test]
    fn headers_of_the_row_arrive_as_they_are() {
        let mut row = row(r#"{"region":"eu"}"#);
        row.headers = Headers::from_json(
            r#"{"bytes":{"base64":"/wA="},"empty":"","many":["a",null,"b"],"odd":{"base64":"?"}}"#,
        );
        let message = format(RabbitEnvelope::None).message(&row).unwrap();
        assert_eq!(header(&message, "bytes"), Some(&AMQPValue::LongString(vec![0xFF, 0].into())));
        assert_eq!(header(&message, "empty"), Some(&text("")));
        assert_eq!(header(&message, "odd"), Some(&text("?")));
        let many = vec![text("a"), AMQPValue::Void, text("b")];
        assert_eq!(header(&message, "many"), Some(&AMQPValue::FieldArray(many.into())));
    }

    #[test]
    fn a_message_without_a_value_has_an_empty_body() {
        let mut row = row(r#"{"region":"eu"}"#);
        for name in ["tombstone", "empty"] {
            row.headers.set(HEADER_VALUE, name);
            let message = format(RabbitEnvelope::MassTransit).message(&row).unwrap();
            assert!(message.body.is_empty() && header(&message, HEADER_VALUE).is_none());
        }
    }

    #[test]
    fn what_amqp_cannot_carry_is_rejected_with_its_reason() {
        let code = |row: &OutboxRow| match format(RabbitEnvelope::None).message(row) {
            Err(Delivery::Reject { problem }) => problem.code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code(&row("{}")), "RABBITMQ_ADDRESS");
        let mut row = row(r#"{"region":"eu"}"#);
        row.headers.set(&"n".repeat(256), "x");
        assert_eq!(code(&row), "RABBITMQ_HEADER");
        row.event_type = "t".repeat(256);
        let Err(Delivery::Reject { problem }) = format(RabbitEnvelope::None).message(&row) else {
            panic!("the routing key is too long")
        };
        assert!(problem.message.contains("it has 259 bytes; AMQP allows 255"), "{problem:?}");
    }

    #[test]
    fn a_long_id_moves_from_the_property_to_a_header() {
        let mut row = row(r#"{"region":"eu"}"#);
        let long = "c".repeat(256);
        row.correlation_id = Some(long.clone());
        let message = format(RabbitEnvelope::None).message(&row).unwrap();
        assert_eq!(message.properties.correlation_id(), &None);
        assert_eq!(header(&message, "correlation-id"), Some(&text(&long)));
        assert!(message.header_bytes > 256);
    }
}
