//! The envelope of MassTransit.
//!
//! Invariant: the payload is copied byte for byte in both directions; only the envelope is parsed.
//! All other fields of an envelope become headers; none is lost.

use relais_core::{
    delivery::Problem,
    inbox::{Content, NewInbox},
    json,
    message::{HeaderValue, HeaderValues, Headers},
    outbox::OutboxRow,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::cloudevent::header_value;

/// The content type of MassTransit's JSON envelope.
pub(super) const MASSTRANSIT_JSON: &str = "application/vnd.masstransit+json";
/// The header with the envelope's other fields.
const HEADER: &str = "masstransit";
/// Headers that fields of the envelope set.
const OF_FIELDS: [&str; 3] = ["message-id", "correlation-id", "event-type"];
/// The prefix of a message type of MassTransit.
const URN: &str = "urn:message:";

/// Returns the body that MassTransit expects for a row.
pub(super) fn masstransit(row: &OutboxRow, namespace: &str) -> String {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    set("messageId", json!(row.message_id.to_string()));
    // These two are GUIDs there; another id is only in its header.
    let guid = |id: &Option<String>| id.as_ref().and_then(|id| Uuid::parse_str(id).ok());
    if let Some(id) = guid(&row.correlation_id) {
        set("correlationId", json!(id.to_string()));
        set("conversationId", json!(id.to_string()));
    }
    if let Some(id) = guid(&row.causation_id) {
        set("initiatorId", json!(id.to_string()));
    }
    set("messageType", json!([message_type(&row.event_type, namespace)]));
    set("sentTime", json!(row.created_at.to_string()));
    let headers: Map<String, Value> =
        row.headers.texts().map(|(name, text)| (name.to_owned(), json!(text))).collect();
    set("headers", Value::Object(headers));
    set("host", json!({"machineName": "relais", "processName": "relais"}));
    let envelope = Value::Object(fields).to_string();
    let start = envelope.strip_suffix('}').unwrap_or(&envelope);
    format!("{start},\"message\":{}}}", row.payload)
}

/// An event type that names its namespace itself (`Company.Orders:OrderCreated`) is kept.
fn message_type(event_type: &str, namespace: &str) -> String {
    if event_type.starts_with(URN) {
        event_type.to_owned()
    } else if event_type.contains(':') {
        format!("{URN}{event_type}")
    } else {
        format!("{URN}{namespace}:{event_type}")
    }
}

/// Unwraps MassTransit's envelope. A body that is none is returned unchanged, and becomes an
/// undecodable row or a message without an id.
pub(super) fn open_masstransit(body: Vec<u8>, headers: &mut Headers) -> Vec<u8> {
    let Ok(text) = json::check(&body) else { return body };
    let Some(message) = json::pointer(text, "/message") else { return body };
    let Ok(Value::Object(mut fields)) = serde_json::from_str(text) else { return body };
    let payload = message.as_bytes().to_vec();
    fields.remove("message");
    for (field, name) in [("messageId", "message-id"), ("correlationId", "correlation-id")] {
        if let Some(Value::String(id)) = fields.get(field) {
            headers.set(name, id);
        }
    }
    if let Some(Value::Array(types)) = fields.get("messageType")
        && let Some(Value::String(urn)) = types.first()
    {
        headers.set("event-type", type_name(urn));
    }
    if let Some(Value::Object(theirs)) = fields.remove("headers") {
        for (name, value) in theirs {
            receive(headers, &name, header_value(&value));
        }
    }
    headers.receive(HEADER, HeaderValue::Text(Value::Object(fields).to_string()));
    payload
}

/// Keeps a message without envelope as undecodable, with this reason, if nothing else says what it is.
pub(super) fn explain_missing(row: &mut NewInbox) {
    if row.headers.get(HEADER).is_some() || row.event_type.is_some() {
        return;
    }
    let why =
        "the body has no envelope of MassTransit; send one, or remove `envelope` from the source";
    let (bytes, why) = match std::mem::replace(&mut row.content, Content::Json(String::new())) {
        Content::Json(json) => (json.into_bytes(), why.to_owned()),
        Content::Undecodable { bytes, problem } => (bytes, format!("{why} ({})", problem.message)),
    };
    let problem = Problem::new("MASSTRANSIT_ENVELOPE", &why);
    row.content = Content::Undecodable { bytes, problem };
}

/// Adds a header of the envelope. A sender may have it in the headers of AMQP too: equal values are one, and
/// that of the envelope replaces another one.
fn receive(headers: &mut Headers, name: &str, value: HeaderValue) {
    let found = headers.0.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
    let Some((known, values)) = found.filter(|_| !OF_FIELDS.contains(&name)) else {
        return headers.receive(name, value);
    };
    let is_known = match values {
        HeaderValues::One(other) => *other == value,
        HeaderValues::Many(others) => others.contains(&value),
    };
    if !is_known {
        let known = known.clone();
        headers.0.insert(known, HeaderValues::One(value));
    }
}

/// Returns the name without its namespace: `OrderCreated` of `urn:message:Company.Orders:OrderCreated`.
fn type_name(urn: &str) -> &str {
    let name = urn.strip_prefix(URN).unwrap_or(urn);
    name.split_once(':').map_or(name, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::row;

    /// The sample of MassTransit's documentation (Interoperability), shortened.
    const SAMPLE: &str = r#"{
        "messageId": "181c0000-6393-3630-36a4-08daf4e7c6da",
        "requestId": "ef375b18-69ee-4a9e-b5ec-44ee1177a27e",
        "correlationId": null,
        "conversationId": null,
        "initiatorId": null,
        "sourceAddress": "rabbitmq://localhost/source",
        "destinationAddress": "rabbitmq://localhost/destination",
        "responseAddress": "rabbitmq://localhost/response",
        "faultAddress": "rabbitmq://localhost/fault",
        "messageType": ["urn:message:Company.Project:SubmitOrder"],
        "message": {"orderId": "181c0000-6393-3630-36a4-08daf4e7c6da", "amount": 1.50},
        "expirationTime": null,
        "sentTime": "2023-01-12T21:55:53.714Z",
        "headers": {"Application-Header": "SomeValue", "retries": 3},
        "host": {"machineName": "MyComputer", "processName": "dotnet", "processId": 427,
                 "massTransitVersion": "8.0.10.0"}
    }"#;

    #[test]
    fn the_sample_of_masstransit_is_unwrapped() {
        let mut headers = Headers::default();
        let payload = open_masstransit(SAMPLE.as_bytes().to_vec(), &mut headers);
        let message = r#"{"orderId": "181c0000-6393-3630-36a4-08daf4e7c6da", "amount": 1.50}"#;
        assert_eq!(payload, message.as_bytes(), "byte for byte");
        assert_eq!(headers.get("message-id"), Some("181c0000-6393-3630-36a4-08daf4e7c6da"));
        assert_eq!(headers.get("event-type"), Some("SubmitOrder"));
        assert_eq!(headers.get("application-header"), Some("SomeValue"));
        assert_eq!(headers.get("retries"), Some("3"));
        assert_eq!(headers.get("correlation-id"), None);
        let rest = headers.get("masstransit").unwrap();
        assert!(rest.contains("urn:message:Company.Project:SubmitOrder"));
        assert!(rest.contains("rabbitmq://localhost/response") && !rest.contains("orderId"));
    }

    #[test]
    fn an_envelope_has_the_fields_of_the_sample_and_the_payload_unchanged() {
        let mut row = row(r#"{"amount": 1.50}"#);
        row.correlation_id = Some("EF375B18-69ee-4a9e-b5ec-44ee1177a27e".into());
        row.causation_id = Some("not a guid".into());
        row.headers.set("tenant", "acme");
        let body = masstransit(&row, "Company.Project");
        assert!(body.ends_with(r#","message":{"amount": 1.50}}"#), "{body}");
        let envelope: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(envelope["messageId"], json!(row.message_id.to_string()));
        assert_eq!(envelope["messageType"], json!(["urn:message:Company.Project:OrderCreated"]));
        assert_eq!(envelope["correlationId"], "ef375b18-69ee-4a9e-b5ec-44ee1177a27e");
        assert_eq!(envelope["conversationId"], envelope["correlationId"]);
        assert_eq!(envelope["initiatorId"], Value::Null, "MassTransit refuses another id");
        assert_eq!(envelope["sentTime"], "2026-11-15T12:00:00.123Z");
        assert_eq!(envelope["headers"]["tenant"], "acme");
        let known: Value = serde_json::from_str(SAMPLE).unwrap();
        for name in envelope.as_object().unwrap().keys() {
            assert!(known.get(name).is_some(), "{name}");
        }
        let mut headers = Headers::default();
        assert_eq!(open_masstransit(body.into_bytes(), &mut headers), row.payload.as_bytes());
        assert_eq!(headers.get("event-type"), Some("OrderCreated"));
    }

    #[test]
    fn a_header_of_both_envelope_and_amqp_is_one() {
        let mut headers = Headers::default();
        for (name, value) in [("Application-Header", "SomeValue"), ("retries", "2"), ("else", "x")]
        {
            headers.set(name, value);
        }
        headers.set("message-id", "of AMQP");
        open_masstransit(SAMPLE.as_bytes().to_vec(), &mut headers);
        let all = |name| headers.texts().filter(|(n, _)| n.eq_ignore_ascii_case(name)).count();
        assert_eq!((all("application-header"), all("retries"), all("message-id")), (1, 1, 1));
        assert_eq!(headers.get("application-header"), Some("SomeValue"));
        assert_eq!(headers.get("retries"), Some("3"), "that of the envelope");
        assert_eq!(headers.get("else"), Some("x"), "only in AMQP");
    }

    #[test]
    fn a_type_that_has_its_namespace_keeps_it() {
        for (event_type, urn) in [
            ("Made", "urn:message:N:Made"),
            ("Other.Space:Made", "urn:message:Other.Space:Made"),
            ("urn:message:A:B", "urn:message:A:B"),
        ] {
            assert_eq!(message_type(event_type, "N"), urn);
        }
    }

    #[test]
    fn a_body_without_an_envelope_stays_as_it_is() {
        for body in [&b"{oops"[..], b"[1]", b"{}", br#"{"type":"x"}"#, b"\xff"] {
            let mut headers = Headers::default();
            assert_eq!(open_masstransit(body.to_vec(), &mut headers), body);
            assert_eq!(headers, Headers::default());
        }
    }
}
