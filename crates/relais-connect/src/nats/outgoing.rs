//! A message as NATS sends it: subject, headers and body.
//!
//! Invariant: headers of the row are sent unchanged as far as NATS can carry them: text in one line.
//! A name that relais sets itself is left out. Names are those of the HTTP publisher; the message id
//! is in the header by which streams recognise duplicates.

use async_nats::{HeaderMap, HeaderName, HeaderValue as NatsValue};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use relais_core::{
    delivery::Delivery,
    extract::{VALUE_EMPTY, VALUE_TOMBSTONE},
    message::{
        Category, HEADER_KEY, HEADER_RECEIVED, HEADER_REPLY_TO, HEADER_VALUE, HeaderValue,
        HeaderValues,
    },
    outbox::OutboxRow,
};

use super::{NatsEnvelope, RoutingTemplate};
use crate::{
    cloudevent,
    nats_settings::{MESSAGE_ID, Wildcards, check_subject},
    reply::reply_to,
};

/// The form of all messages of a destination.
#[derive(Clone, Debug)]
pub(super) struct SubjectFormat {
    pub(super) subject: RoutingTemplate,
    pub(super) envelope: NatsEnvelope,
    /// The subject to which commands ask for replies.
    pub(super) reply_to: Option<String>,
}

/// One message.
#[derive(Clone, Debug)]
pub(super) struct SubjectMessage {
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl SubjectFormat {
    /// Builds the message of a row. The error is the delivery of a row that cannot be sent.
    pub(super) fn message(&self, row: &OutboxRow) -> Result<SubjectMessage, Delivery> {
        let subject = self.subject(row).map_err(|why| {
            Delivery::reject("NATS_SUBJECT", &format!("cannot make the subject: {why}"))
        })?;
        let mut headers = SubjectHeaders::default();
        headers.set(MESSAGE_ID, &row.message_id.to_string())?;
        headers.set("event-type", &row.event_type)?;
        headers.set("event-version", &row.event_version.to_string())?;
        headers.set("aggregate-type", &row.aggregate_type)?;
        headers.set("aggregate-id", &row.aggregate_id)?;
        headers.set("message-key", &row.msg_key)?;
        if let Some(id) = &row.correlation_id {
            headers.set("correlation-id", id)?;
        }
        if let Some(id) = &row.causation_id {
            headers.set("causation-id", id)?;
        }
        match reply_to(row, self.reply_to.as_deref()) {
            Some(subject) => headers.set(HEADER_REPLY_TO, subject)?,
            None if row.category == Category::Reply => headers.taken.push(HEADER_REPLY_TO),
            None => {}
        }
        if self.envelope == NatsEnvelope::CloudEvents {
            for (name, value) in cloudevent::headers(row, &cloudevent::NATS) {
                headers.set(name, &value)?;
            }
        }
        let body = match row.headers.get(HEADER_VALUE) {
            Some(VALUE_TOMBSTONE | VALUE_EMPTY) => Bytes::new(),
            _ => {
                headers.set("content-type", "application/json")?;
                Bytes::copy_from_slice(row.payload.as_bytes())
            }
        };
        headers.add_row_headers(row)?;
        Ok(SubjectMessage { subject, headers: headers.map, body })
    }

    fn subject(&self, row: &OutboxRow) -> Result<String, String> {
        let subject = self.subject.fill(row)?;
        check_subject(&subject, Wildcards::Refused).map_err(|why| format!("it {why}"))?;
        // The API of the server and of JetStream: only the configuration may name it.
        if subject.starts_with('$') && !self.subject.to_string().starts_with('$') {
            return Err("it starts with `$`, which is reserved".to_owned());
        }
        Ok(subject)
    }
}

/// Collects headers, and the names that are in use.
#[derive(Default)]
struct SubjectHeaders {
    map: HeaderMap,
    taken: Vec<&'static str>,
}

impl SubjectHeaders {
    fn add_row_headers(&mut self, row: &OutboxRow) -> Result<(), Delivery> {
        for (name, values) in &row.headers.0 {
            if self.is_taken(name)
                || [HEADER_VALUE, HEADER_KEY, HEADER_RECEIVED].contains(&name.as_str())
            {
                continue;
            }
            match values {
                HeaderValues::One(value) => self.add(name, &text(name, value)?)?,
                HeaderValues::Many(values) => {
                    for value in values {
                        self.add(name, &text(name, value)?)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_taken(&self, name: &str) -> bool {
        // Headers with this prefix are instructions for the server.
        let start = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("nats-"));
        start || self.taken.iter().any(|taken| taken.eq_ignore_ascii_case(name))
    }

    fn set(&mut self, name: &'static str, value: &str) -> Result<(), Delivery> {
        self.taken.push(name);
        self.add(name, value)
    }

    fn add(&mut self, name: &str, value: &str) -> Result<(), Delivery> {
        let known: HeaderName = name
            .parse()
            .map_err(|_| refuse(name, "its name has characters that NATS cannot carry"))?;
        let value: NatsValue =
            value.parse().map_err(|_| refuse(name, "its value has more than one line"))?;
        self.map.append(known, value);
        Ok(())
    }
}

fn text(name: &str, value: &HeaderValue) -> Result<String, Delivery> {
    match value {
        HeaderValue::Text(text) => Ok(text.clone()),
        HeaderValue::Null => Ok(String::new()),
        HeaderValue::Bytes { base64 } => match STANDARD.decode(base64) {
            Ok(bytes) => {
                String::from_utf8(bytes).map_err(|_| refuse(name, "its value is not UTF-8"))
            }
            // An object of this form that is not Base64: the user's own.
            Err(_) => Ok(base64.clone()),
        },
    }
}

fn refuse(name: &str, why: &str) -> Delivery {
    let start: String = name.chars().take(50).collect();
    Delivery::reject("NATS_HEADER", &format!("cannot send the header `{start}`: {why}; change it"))
}

#[cfg(test)]
mod tests {
    use relais_core::message::Headers;

    use super::*;
    use crate::testing::row;

    fn format(subject: &str, envelope: NatsEnvelope) -> SubjectFormat {
        let reply_to = Some("answers.relais".to_owned());
        SubjectFormat { subject: subject.parse().unwrap(), envelope, reply_to }
    }

    fn plain() -> SubjectFormat {
        format("orders.{{event_type}}", NatsEnvelope::None)
    }

    fn header<'a>(message: &'a SubjectMessage, name: &str) -> Vec<&'a str> {
        message.headers.get_all(name).map(|value| value.as_str()).collect()
    }

    fn code(format: &SubjectFormat, row: &OutboxRow) -> String {
        match format.message(row) {
            Err(Delivery::Reject { problem }) => problem.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_has_the_headers_of_the_http_publisher_and_the_stable_id() {
        let mut row = row(r#"{"region":"eu"}"#);
        row.correlation_id = Some("c-1".into());
        row.headers.set("traceparent", "00-abc");
        row.headers.set("Event-Type", "mine");
        row.headers.set("relais-received-at", "17");
        row.headers.set("nats-msg-id", "theirs");
        row.headers.set("Nats-Rollup", "all");
        let message = plain().message(&row).unwrap();
        assert_eq!(message.subject, "orders.OrderCreated");
        assert_eq!(message.body, row.payload.as_bytes());
        for (name, value) in [
            ("Nats-Msg-Id", row.message_id.to_string().as_str()),
            ("event-type", "OrderCreated"),
            ("event-version", "2"),
            ("aggregate-type", "Order"),
            ("aggregate-id", "7"),
            ("message-key", "7"),
            ("correlation-id", "c-1"),
            ("content-type", "application/json"),
            ("traceparent", "00-abc"),
        ] {
            assert_eq!(header(&message, name), [value], "{name}");
        }
        for absent in ["Event-Type", "relais-received-at", "nats-msg-id", "Nats-Rollup"] {
            assert!(header(&message, absent).is_empty(), "{absent}");
        }
    }

    #[test]
    fn a_command_asks_for_its_reply_and_a_reply_is_sent_to_the_subject_of_its_sender() {
        let mut row = OutboxRow { category: Category::Command, ..row("{}") };
        let command = plain().message(&row).unwrap();
        assert_eq!(header(&command, "reply-to"), ["answers.relais"]);
        row.category = Category::Reply;
        let to_sender = format("{{header:reply-to}}", NatsEnvelope::None);
        assert_eq!(code(&to_sender, &row), "NATS_SUBJECT");
        row.headers.set("Reply-To", "$JS.API.STREAM.DELETE.ORDERS");
        assert_eq!(code(&to_sender, &row), "NATS_SUBJECT");
        row.headers.set("Reply-To", "callers.7");
        let reply = to_sender.message(&row).unwrap();
        assert_eq!(reply.subject, "callers.7");
        assert!(header(&reply, "reply-to").is_empty() && header(&reply, "Reply-To").is_empty());
    }

    #[test]
    fn headers_of_the_row_arrive_as_they_are() {
        let mut row = row("{}");
        row.headers = Headers::from_json(
            r#"{"empty":"","many":["a",null,"b"],"odd":{"base64":"?"},"é":"not a name"}"#,
        );
        assert_eq!(code(&plain(), &row), "NATS_HEADER");
        row.headers.0.remove("é");
        let message = plain().message(&row).unwrap();
        assert_eq!(header(&message, "empty"), [""]);
        assert_eq!(header(&message, "many"), ["a", "", "b"]);
        assert_eq!(header(&message, "odd"), ["?"]);
    }

    #[test]
    fn what_nats_cannot_carry_is_rejected_with_its_reason() {
        let mut lines = row("{}");
        lines.headers.set("lines", "a\r\nb: c");
        assert_eq!(code(&plain(), &lines), "NATS_HEADER");
        let mut bytes = row("{}");
        bytes.headers = Headers::from_json(r#"{"bytes":{"base64":"/wA="}}"#);
        assert_eq!(code(&plain(), &bytes), "NATS_HEADER");
        let by_key = format("orders.{{key}}", NatsEnvelope::None);
        for key in ["", "a b", "*", ">", "a..b", "a\n"] {
            let row = OutboxRow { msg_key: key.to_owned(), ..row("{}") };
            assert_eq!(code(&by_key, &row), "NATS_SUBJECT", "{key}");
        }
        assert_eq!(
            code(&format("{{payload:/none}}", NatsEnvelope::None), &row("{}")),
            "NATS_SUBJECT"
        );
    }

    #[test]
    fn a_message_cannot_address_the_api_of_the_server() {
        let row = OutboxRow { msg_key: "$JS.API.STREAM.DELETE.ORDERS".to_owned(), ..row("{}") };
        assert_eq!(code(&format("{{key}}", NatsEnvelope::None), &row), "NATS_SUBJECT");
        let configured = format("$KV.orders.{{aggregate_id}}", NatsEnvelope::None);
        assert_eq!(configured.message(&row).unwrap().subject, "$KV.orders.7");
    }

    #[test]
    fn a_message_without_a_value_has_an_empty_body() {
        for name in ["tombstone", "empty"] {
            let mut row = row("{}");
            row.headers.set(HEADER_VALUE, name);
            let message = plain().message(&row).unwrap();
            assert!(message.body.is_empty() && header(&message, HEADER_VALUE).is_empty());
        }
    }

    #[test]
    fn a_cloudevent_has_its_attributes_in_headers() {
        let message = format("orders", NatsEnvelope::CloudEvents).message(&row("{}")).unwrap();
        assert_eq!(header(&message, "ce-specversion"), ["1.0"]);
        assert_eq!(header(&message, "ce-type"), ["OrderCreated"]);
        assert_eq!(header(&message, "ce-id"), header(&message, "Nats-Msg-Id"));
    }
}
