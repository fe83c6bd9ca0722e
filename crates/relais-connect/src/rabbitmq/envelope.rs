//! The envelopes of MassTransit and CloudEvents.
//!
//! Invariant: the payload is copied byte for byte in both directions; only the envelope is parsed.
//! What an envelope has besides the payload becomes headers, and none of it is lost.

use relais_core::{
    json,
    message::{HeaderValue, Headers},
    outbox::OutboxRow,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The content type of MassTransit's JSON envelope.
pub(super) const MASSTRANSIT_JSON: &str = "application/vnd.masstransit+json";
/// The content type of a CloudEvent in structured mode.
const CLOUDEVENT_JSON: &str = "application/cloudevents+json";
/// The prefixes of CloudEvents attributes in AMQP; the second form is for JMS.
const CLOUDEVENT_PREFIXES: [&str; 2] = ["cloudEvents:", "cloudEvents_"];
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

/// Returns the headers of a CloudEvent in binary mode.
pub(super) fn cloudevent_headers(row: &OutboxRow) -> [(&'static str, String); 7] {
    [
        ("cloudEvents:specversion", "1.0".to_owned()),
        ("cloudEvents:id", row.message_id.to_string()),
        ("cloudEvents:source", format!("/relais/{}", uri_part(&row.aggregate_type))),
        ("cloudEvents:type", row.event_type.clone()),
        ("cloudEvents:subject", row.aggregate_id.clone()),
        ("cloudEvents:time", row.created_at.to_string()),
        ("cloudEvents:partitionkey", row.msg_key.clone()),
    ]
}

fn uri_part(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
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
            headers.receive(&name, header_value(&value));
        }
    }
    headers.receive("masstransit", HeaderValue::Text(Value::Object(fields).to_string()));
    payload
}

/// Returns the name without its namespace: `OrderCreated` of `urn:message:Company.Orders:OrderCreated`.
fn type_name(urn: &str) -> &str {
    let name = urn.strip_prefix(URN).unwrap_or(urn);
    name.split_once(':').map_or(name, |(_, name)| name)
}

/// Unwraps a CloudEvent of either mode: attributes become headers `ce-…`, as those of HTTP.
pub(super) fn open_cloudevent(body: Vec<u8>, headers: &mut Headers) -> Vec<u8> {
    let is_structured = headers.get("content-type").is_some_and(|kind| {
        kind.get(..CLOUDEVENT_JSON.len()).is_some_and(|k| k.eq_ignore_ascii_case(CLOUDEVENT_JSON))
    });
    let mut attributes: Vec<(String, HeaderValue)> = headers
        .texts()
        .filter_map(|(name, text)| {
            let name = CLOUDEVENT_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
            Some((name.to_owned(), HeaderValue::Text(text.to_owned())))
        })
        .collect();
    let mut payload = None;
    if is_structured
        && let Ok(text) = json::check(&body)
        && let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(text)
        && fields.contains_key("specversion")
    {
        payload = Some(structured_data(text, &mut fields));
        attributes.extend(fields.iter().map(|(name, value)| (name.clone(), header_value(value))));
    }
    for (name, value) in attributes {
        match (name.as_str(), &value) {
            ("id", HeaderValue::Text(id)) if headers.get("message-id").is_none() => {
                headers.set("message-id", id);
            }
            ("type", HeaderValue::Text(kind)) => headers.set("event-type", kind),
            ("partitionkey", HeaderValue::Text(key)) if headers.get("message-key").is_none() => {
                headers.set("message-key", key);
            }
            _ => {}
        }
        headers.push(&format!("ce-{name}"), value);
    }
    payload.unwrap_or(body)
}

fn structured_data(text: &str, fields: &mut Map<String, Value>) -> Vec<u8> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    if let Some(Value::String(data)) = fields.get("data_base64")
        && let Ok(bytes) = STANDARD.decode(data)
    {
        fields.remove("data_base64");
        return bytes;
    }
    fields.remove("data");
    json::pointer(text, "/data").unwrap_or_default().as_bytes().to_vec()
}

fn header_value(value: &Value) -> HeaderValue {
    match value {
        Value::Null => HeaderValue::Null,
        Value::String(text) => HeaderValue::from_bytes(text.as_bytes()),
        other => HeaderValue::Text(other.to_string()),
    }
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
            assert_eq!(open_cloudevent(body.to_vec(), &mut headers), body);
            assert_eq!(headers, Headers::default());
        }
    }

    #[test]
    fn a_cloudevent_is_unwrapped_in_both_modes() {
        let mut binary = Headers::default();
        binary.set("cloudEvents:id", "e-1");
        binary.set("cloudEvents_type", "Made");
        binary.set("cloudEvents:partitionkey", "k");
        assert_eq!(open_cloudevent(b"{\"a\": 1}".to_vec(), &mut binary), b"{\"a\": 1}");
        let mut structured = Headers::default();
        structured.set("content-type", "application/CloudEvents+json; charset=utf-8");
        let body = br#"{"specversion":"1.0","id":"e-1","type":"Made","source":"/s","n":5,
                        "partitionkey":"k","data":{"a": 1}}"#;
        assert_eq!(open_cloudevent(body.to_vec(), &mut structured), b"{\"a\": 1}");
        assert_eq!((structured.get("ce-source"), structured.get("ce-n")), (Some("/s"), Some("5")));
        for headers in [binary, structured] {
            assert_eq!(headers.get("message-id"), Some("e-1"));
            assert_eq!(headers.get("event-type"), Some("Made"));
            assert_eq!(headers.get("message-key"), Some("k"));
            assert_eq!(headers.get("ce-type"), Some("Made"));
        }
    }

    #[test]
    fn base64_data_of_a_cloudevent_is_decoded() {
        let mut headers = Headers::default();
        headers.set("content-type", "application/cloudevents+json");
        let body = br#"{"specversion":"1.0","id":"1","data_base64":"/wA="}"#;
        assert_eq!(open_cloudevent(body.to_vec(), &mut headers), [0xFF, 0]);
        assert_eq!(headers.get("ce-data_base64"), None);
    }
}
