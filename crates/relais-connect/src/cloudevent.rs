//! CloudEvents: sent in binary mode, received in binary or structured mode.
//!
//! Invariant: the payload is copied byte for byte in both directions. Attributes become headers
//! `ce-…` of the row, as those of HTTP; none is lost.

use base64::{Engine, engine::general_purpose::STANDARD};
use relais_core::{
    json,
    message::{HeaderValue, Headers},
    outbox::OutboxRow,
};
use serde_json::{Map, Value};

/// The content type of a CloudEvent in structured mode.
const CLOUDEVENT_JSON: &str = "application/cloudevents+json";

/// The names that a protocol gives the attributes of a CloudEvent in binary mode.
pub(crate) struct CloudEventNames {
    /// In the order of [`headers`].
    sent: [&'static str; 7],
    /// Prefixes of received ones.
    prefixes: &'static [&'static str],
}

/// The names in AMQP; the second prefix is for JMS.
#[cfg(any(feature = "amqp", feature = "rabbitmq"))]
pub(crate) const AMQP: CloudEventNames = CloudEventNames {
    sent: [
        "cloudEvents:specversion",
        "cloudEvents:id",
        "cloudEvents:source",
        "cloudEvents:type",
        "cloudEvents:subject",
        "cloudEvents:time",
        "cloudEvents:partitionkey",
    ],
    prefixes: &["cloudEvents:", "cloudEvents_"],
};

/// The names in NATS.
#[cfg(feature = "nats")]
pub(crate) const NATS: CloudEventNames = CloudEventNames {
    sent: [
        "ce-specversion",
        "ce-id",
        "ce-source",
        "ce-type",
        "ce-subject",
        "ce-time",
        "ce-partitionkey",
    ],
    prefixes: &["ce-"],
};

/// Returns the headers of a CloudEvent in binary mode.
pub(crate) fn headers(
    row: &OutboxRow,
    names: &CloudEventNames,
) -> impl Iterator<Item = (&'static str, String)> {
    let values = [
        "1.0".to_owned(),
        row.message_id.to_string(),
        format!("/relais/{}", uri_part(&row.aggregate_type)),
        row.event_type.clone(),
        row.aggregate_id.clone(),
        row.created_at.to_string(),
        row.msg_key.clone(),
    ];
    names.sent.into_iter().zip(values)
}

fn uri_part(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// Unwraps a CloudEvent of either mode: attributes become headers `ce-…`, as those of HTTP.
pub(crate) fn open(body: Vec<u8>, headers: &mut Headers, names: &CloudEventNames) -> Vec<u8> {
    let is_structured = headers.get("content-type").is_some_and(|kind| {
        kind.get(..CLOUDEVENT_JSON.len()).is_some_and(|k| k.eq_ignore_ascii_case(CLOUDEVENT_JSON))
    });
    let mut attributes: Vec<(String, HeaderValue)> = headers
        .texts()
        .filter_map(|(name, text)| {
            let name = names.prefixes.iter().find_map(|prefix| without_prefix(name, prefix))?;
            Some((name.to_lowercase(), HeaderValue::Text(text.to_owned())))
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
        let name = format!("ce-{name}");
        if headers.get(&name).is_none() {
            headers.push(&name, value);
        }
    }
    payload.unwrap_or(body)
}

/// Names compare without case: some clients change it.
fn without_prefix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let start = name.get(..prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then(|| &name[prefix.len()..])
}

fn structured_data(text: &str, fields: &mut Map<String, Value>) -> Vec<u8> {
    if let Some(Value::String(data)) = fields.get("data_base64")
        && let Ok(bytes) = STANDARD.decode(data)
    {
        fields.remove("data_base64");
        return bytes;
    }
    fields.remove("data");
    json::pointer(text, "/data").unwrap_or_default().as_bytes().to_vec()
}

/// Returns a value of JSON as a header.
pub(crate) fn header_value(value: &Value) -> HeaderValue {
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

    const NAMES: CloudEventNames = CloudEventNames {
        sent: ["v", "i", "s", "t", "j", "m", "k"],
        prefixes: &["cloudEvents:", "cloudEvents_", "ce-"],
    };

    #[test]
    fn a_cloudevent_is_unwrapped_in_both_modes() {
        let mut binary = Headers::default();
        binary.set("cloudEvents:id", "e-1");
        binary.set("cloudEvents_type", "Made");
        binary.set("cloudEvents:partitionkey", "k");
        assert_eq!(open(b"{\"a\": 1}".to_vec(), &mut binary, &NAMES), b"{\"a\": 1}");
        let mut structured = Headers::default();
        structured.set("content-type", "application/CloudEvents+json; charset=utf-8");
        let body = br#"{"specversion":"1.0","id":"e-1","type":"Made","source":"/s","n":5,
                        "partitionkey":"k","data":{"a": 1}}"#;
        assert_eq!(open(body.to_vec(), &mut structured, &NAMES), b"{\"a\": 1}");
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
        assert_eq!(open(body.to_vec(), &mut headers, &NAMES), [0xFF, 0]);
        assert_eq!(headers.get("ce-data_base64"), None);
    }

    #[test]
    fn attributes_that_have_the_names_of_headers_stay_once() {
        let mut given = Headers::default();
        given.set("Ce-Id", "e-1");
        given.set("ce-type", "Made");
        open(b"{}".to_vec(), &mut given, &NAMES);
        assert_eq!(
            given.to_json(),
            r#"{"Ce-Id":"e-1","ce-type":"Made","event-type":"Made","message-id":"e-1"}"#
        );
    }

    #[test]
    fn a_body_without_an_event_stays_as_it_is() {
        for body in [&b"{oops"[..], b"[1]", b"{}", br#"{"type":"x"}"#, b"\xff"] {
            let mut headers = Headers::default();
            assert_eq!(open(body.to_vec(), &mut headers, &NAMES), body);
            assert_eq!(headers, Headers::default());
        }
    }

    #[test]
    fn a_sent_event_has_every_attribute() {
        let sent: Vec<(&str, String)> = headers(&row("{}"), &NAMES).collect();
        assert_eq!(sent[0], ("v", "1.0".to_owned()));
        assert_eq!(sent[2], ("s", "/relais/Order".to_owned()));
        assert_eq!(sent[6], ("k", "7".to_owned()));
    }
}
