//! A message as AMQP 1.0 sends it: address, header, properties, application properties and body.
//!
//! Invariant: headers of the row are sent unchanged, bytes and null values included; only a name that
//! relais sets itself is left out. Names are those of the HTTP publisher. What AMQP has a property for
//! (`message-id`, `subject`, `group-id`, …) is there.

use base64::{Engine, engine::general_purpose::STANDARD};
use fe2o3_amqp::Sendable;
use fe2o3_amqp_types::{
    messaging::{
        AmqpValue, ApplicationProperties, Batch, Body, Data, Header, Message, MessageAnnotations,
        Properties,
    },
    primitives::{Binary, SimpleValue, Symbol, Timestamp, Value},
};
use relais_core::{
    delivery::Delivery,
    extract::{VALUE_EMPTY, VALUE_TOMBSTONE},
    message::{
        Category, HEADER_KEY, HEADER_RECEIVED, HEADER_REPLY_TO, HEADER_VALUE, HeaderValue,
        HeaderValues,
    },
    outbox::OutboxRow,
    time,
};

use super::{AmqpEnvelope, RoutingTemplate, classify};
use crate::{cloudevent, reply::reply_to};

/// The annotation with the time at which Service Bus enqueues a message.
const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";

/// The form of all messages of a destination.
#[derive(Clone, Debug)]
pub(crate) struct AmqpMessageFormat {
    pub(crate) address: RoutingTemplate,
    pub(crate) envelope: AmqpEnvelope,
    pub(crate) message_bytes_max: Option<usize>,
    /// The header with the time of a scheduled message, at a broker that knows them.
    pub(crate) schedule_header: Option<String>,
    /// The address to which commands ask for replies.
    pub(crate) reply_to: Option<String>,
}

/// One message.
#[derive(Debug)]
pub(crate) struct AmqpMessage {
    pub(crate) address: String,
    pub(crate) sendable: Sendable<Body<Value>>,
}

impl AmqpMessageFormat {
    /// Builds the message of a row. The error is the delivery of a row that cannot be sent.
    pub(crate) fn message(&self, row: &OutboxRow) -> Result<AmqpMessage, Delivery> {
        let address = self.address.fill(row).map_err(|why| {
            Delivery::reject("AMQP_ADDRESS", &format!("cannot make the address: {why}"))
        })?;
        if let Some(max) = self.message_bytes_max.filter(|max| row.payload.len() > *max) {
            return Err(classify::too_large(max.try_into().unwrap_or(u64::MAX)));
        }
        let mut taken = vec!["message-id"];
        let mut properties = self.properties(row, &mut taken);
        let body = match row.headers.get(HEADER_VALUE) {
            Some(VALUE_TOMBSTONE) => Body::Value(AmqpValue(Value::Null)),
            Some(VALUE_EMPTY) => Body::Data(Batch::new(vec![Data(Binary::from(Vec::new()))])),
            _ => {
                properties.content_type = Some(Symbol::from("application/json"));
                let payload = Binary::from(row.payload.as_bytes().to_vec());
                Body::Data(Batch::new(vec![Data(payload)]))
            }
        };
        let annotations = self.annotations(row)?;
        taken.extend(annotations.as_ref().and(self.schedule_header.as_deref()));
        let message = Message {
            header: Some(Header { durable: true, ..Header::default() }),
            delivery_annotations: None,
            message_annotations: annotations,
            properties: Some(properties),
            application_properties: Some(self.application_properties(row, taken)),
            body,
            footer: None,
        };
        let sendable = Sendable::builder().message(message).build();
        Ok(AmqpMessage { address, sendable })
    }

    fn properties(&self, row: &OutboxRow, taken: &mut Vec<&str>) -> Properties {
        let mut properties = Properties {
            message_id: Some(row.message_id.to_string().into()),
            subject: Some(row.event_type.clone()),
            group_id: Some(row.msg_key.clone()),
            creation_time: Some(milliseconds(row.created_at)),
            ..Properties::default()
        };
        if let Some(id) = &row.correlation_id {
            properties.correlation_id = Some(id.clone().into());
            taken.push("correlation-id");
        }
        properties.reply_to = reply_to(row, self.reply_to.as_deref()).map(str::to_owned);
        if properties.reply_to.is_some() || row.category == Category::Reply {
            taken.push(HEADER_REPLY_TO);
        }
        properties
    }

    fn application_properties(&self, row: &OutboxRow, taken: Vec<&str>) -> ApplicationProperties {
        let mut sent = SentProperties { taken, map: ApplicationProperties::default() };
        sent.set("event-type", &row.event_type);
        sent.set("event-version", &row.event_version.to_string());
        sent.set("aggregate-type", &row.aggregate_type);
        sent.set("aggregate-id", &row.aggregate_id);
        if let Some(id) = &row.causation_id {
            sent.set("causation-id", id);
        }
        if self.envelope == AmqpEnvelope::CloudEvents {
            for (name, value) in cloudevent::headers(row, &cloudevent::AMQP) {
                sent.set(name, &value);
            }
        }
        sent.add_row_headers(row);
        sent.map
    }

    fn annotations(&self, row: &OutboxRow) -> Result<Option<MessageAnnotations>, Delivery> {
        let header = self.schedule_header.as_deref();
        let Some(text) = header.and_then(|name| row.headers.get(name)) else { return Ok(None) };
        let Some(at) = scheduled_at(text, row.created_at) else {
            let why = format!(
                "cannot schedule the message at `{text}`; write a time as 2026-11-15T12:00:00Z, or \
                 seconds after its creation"
            );
            return Err(Delivery::reject("AMQP_SCHEDULE", &why));
        };
        let mut annotations = MessageAnnotations::default();
        annotations.insert(SCHEDULED.into(), Value::Timestamp(milliseconds(at)));
        Ok(Some(annotations))
    }
}

/// Returns the time of a scheduled message: a time, or seconds after the creation of the row.
fn scheduled_at(text: &str, created: time::Timestamp) -> Option<time::Timestamp> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(time::Timestamp(created.0 + i64::from(seconds) * 1_000_000));
    }
    time::Timestamp::parse(text)
}

fn milliseconds(at: time::Timestamp) -> Timestamp {
    Timestamp::from_milliseconds(at.0.div_euclid(1_000))
}

/// Collects application properties, and the names that are in use.
struct SentProperties<'a> {
    map: ApplicationProperties,
    taken: Vec<&'a str>,
}

impl<'a> SentProperties<'a> {
    fn set(&mut self, name: &'a str, value: &str) {
        self.taken.push(name);
        self.map.insert(name.to_owned(), SimpleValue::String(value.to_owned()));
    }

    fn add_row_headers(&mut self, row: &OutboxRow) {
        for (name, values) in &row.headers.0 {
            if self.taken.iter().any(|taken| taken.eq_ignore_ascii_case(name))
                || [HEADER_VALUE, HEADER_KEY, HEADER_RECEIVED].contains(&name.as_str())
            {
                continue;
            }
            let value = match values {
                HeaderValues::One(value) => simple(value),
                // An application property has one value: several are sent as JSON.
                HeaderValues::Many(values) => {
                    SimpleValue::String(serde_json::to_string(values).unwrap_or_default())
                }
            };
            self.map.insert(name.clone(), value);
        }
    }
}

fn simple(value: &HeaderValue) -> SimpleValue {
    match value {
        HeaderValue::Text(text) => SimpleValue::String(text.clone()),
        HeaderValue::Null => SimpleValue::Null,
        HeaderValue::Bytes { base64 } => match STANDARD.decode(base64) {
            Ok(bytes) => SimpleValue::Binary(Binary::from(bytes)),
            // An object of this form that is not Base64: the user's own.
            Err(_) => SimpleValue::String(base64.clone()),
        },
    }
}

#[cfg(test)]
mod tests {
    use fe2o3_amqp_types::messaging::MessageId;
    use relais_core::message::Headers;

    use super::*;
    use crate::testing::row;

    fn format() -> AmqpMessageFormat {
        AmqpMessageFormat {
            address: "orders.{{payload:/region}}".parse().unwrap(),
            envelope: AmqpEnvelope::None,
            message_bytes_max: Some(100),
            schedule_header: Some("deliver-at".to_owned()),
            reply_to: Some("answers".to_owned()),
        }
    }

    fn sent(row: &OutboxRow) -> (Message<Body<Value>>, ApplicationProperties) {
        let message = format().message(row).unwrap().sendable.message;
        let properties = message.application_properties.clone().unwrap();
        (message, properties)
    }

    fn text(value: &str) -> SimpleValue {
        SimpleValue::String(value.to_owned())
    }

    #[test]
    fn a_command_asks_for_its_reply_and_a_reply_is_sent_to_the_address_of_its_sender() {
        let to_sender =
            AmqpMessageFormat { address: "{{header:reply-to}}".parse().unwrap(), ..format() };
        let mut row = OutboxRow { category: Category::Command, ..row(r#"{"region":"eu"}"#) };
        let (command, _) = sent(&row);
        assert_eq!(command.properties.unwrap().reply_to.as_deref(), Some("answers"));
        row.category = Category::Reply;
        let Err(Delivery::Reject { problem }) = to_sender.message(&row) else {
            panic!("it has no address")
        };
        assert_eq!(problem.code, "AMQP_ADDRESS");
        row.headers.set("reply-to", "callers");
        assert_eq!(to_sender.message(&row).unwrap().address, "callers");
        let (reply, application) = sent(&row);
        assert_eq!(reply.properties.unwrap().reply_to, None);
        assert!(application.0.get("reply-to").is_none());
    }

    #[test]
    fn a_message_has_the_properties_of_amqp_and_the_headers_of_the_http_publisher() {
        let mut row = row(r#"{"region":"eu"}"#);
        row.correlation_id = Some("c-1".into());
        row.causation_id = Some("c-0".into());
        row.headers.set("traceparent", "00-abc");
        row.headers.set("Event-Type", "mine");
        row.headers.set("reply-to", "replies");
        row.headers.set("relais-received-at", "17");
        assert_eq!(format().message(&row).unwrap().address, "orders.eu");
        let (message, application) = sent(&row);
        let properties = message.properties.unwrap();
        let id = MessageId::String(row.message_id.to_string());
        assert_eq!(properties.message_id, Some(id));
        assert_eq!(properties.correlation_id, Some(MessageId::String("c-1".into())));
        assert_eq!(properties.subject.as_deref(), Some("OrderCreated"));
        assert_eq!(properties.group_id.as_deref(), Some("7"));
        assert_eq!(properties.reply_to.as_deref(), Some("replies"));
        assert_eq!(properties.content_type.unwrap().as_str(), "application/json");
        assert_eq!(properties.creation_time.unwrap().milliseconds(), 1_794_744_000_123);
        assert!(message.header.unwrap().durable);
        assert_eq!(message.message_annotations, None);
        assert_eq!(application.get("traceparent"), Some(&text("00-abc")));
        assert_eq!(application.get("event-type"), Some(&text("OrderCreated")));
        assert_eq!(application.get("causation-id"), Some(&text("c-0")));
        for absent in ["Event-Type", "message-id", "reply-to", "relais-received-at"] {
            assert_eq!(application.get(absent), None, "{absent}");
        }
        let Body::Data(data) = message.body else { panic!("a data section") };
        let bytes: Vec<_> = data.into_iter().map(|one| one.0.into_vec()).collect();
        assert_eq!(bytes, [row.payload.into_bytes()]);
    }

    #[test]
    fn headers_of_the_row_arrive_as_they_are() {
        let mut row = row(r#"{"region":"eu"}"#);
        row.headers = Headers::from_json(
            r#"{"bytes":{"base64":"/wA="},"empty":"","many":["a",null,"b"],"none":null}"#,
        );
        let (_, application) = sent(&row);
        let bytes = SimpleValue::Binary(Binary::from(vec![0xFF, 0]));
        assert_eq!(application.get("bytes"), Some(&bytes));
        assert_eq!(application.get("empty"), Some(&text("")));
        assert_eq!(application.get("none"), Some(&SimpleValue::Null));
        assert_eq!(application.get("many"), Some(&text(r#"["a",null,"b"]"#)));
    }

    #[test]
    fn a_tombstone_and_an_empty_value_differ() {
        let mut row = row(r#"{"region":"eu"}"#);
        row.headers.set(HEADER_VALUE, VALUE_TOMBSTONE);
        assert_eq!(sent(&row).0.body, Body::Value(AmqpValue(Value::Null)));
        row.headers.set(HEADER_VALUE, VALUE_EMPTY);
        let empty = Body::Data(Batch::new(vec![Data(Binary::from(Vec::new()))]));
        assert_eq!(sent(&row).0.body, empty);
    }

    #[test]
    fn a_scheduled_message_has_its_time_in_an_annotation() {
        let mut row = row(r#"{"region":"eu"}"#);
        for (value, expected) in
            [("2026-11-15T13:00:00Z", 1_794_747_600_000), ("90", row.created_at.0 / 1_000 + 90_000)]
        {
            row.headers.set("deliver-at", value);
            let (message, application) = sent(&row);
            let annotations = message.message_annotations.unwrap();
            let at = Value::Timestamp(Timestamp::from_milliseconds(expected));
            assert_eq!(annotations.0.values().collect::<Vec<_>>(), [&at], "{value}");
            assert_eq!(application.get("deliver-at"), None);
        }
        row.headers.set("deliver-at", "tomorrow");
        let Err(Delivery::Reject { problem }) = format().message(&row) else { panic!("no time") };
        assert_eq!(problem.code, "AMQP_SCHEDULE");
    }

    #[test]
    fn what_cannot_be_sent_is_rejected_with_its_reason() {
        let code = |row: &OutboxRow| match format().message(row) {
            Err(Delivery::Reject { problem }) => problem.code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code(&row("{}")), "AMQP_ADDRESS");
        let large = format!(r#"{{"region":"eu","x":"{}"}}"#, "x".repeat(100));
        assert_eq!(code(&row(&large)), "AMQP_TOO_LARGE");
    }
}
