//! A message as a Kafka record: key, value, and everything else in headers.
//!
//! Invariant: headers of the row are sent unchanged, including bytes, repeated names and null
//! values; only a name that relais sets itself is left out. Names are those of the HTTP publisher.
//! The timestamp of the record is the time of sending, not of the row: the topic's retention counts
//! from it, and a record that waited long must not expire on arrival (`ce_time` has the row's
//! time).

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use rdkafka::message::{Header, OwnedHeaders};
use relais_core::{
    extract::{VALUE_EMPTY, VALUE_TOMBSTONE},
    message::{HEADER_KEY, HEADER_VALUE, HeaderValue, HeaderValues},
    outbox::OutboxRow,
    text,
};

/// The headers of a record: those of relais, or CloudEvents in binary mode too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordFormat {
    Plain,
    CloudEvents { content_type: &'static str },
}

/// The record of one row.
pub(super) struct OutgoingRecord<'a> {
    pub(super) key: Cow<'a, [u8]>,
    /// `None` is a tombstone.
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: OwnedHeaders,
}

impl<'a> OutgoingRecord<'a> {
    pub(super) fn of(row: &'a OutboxRow, format: RecordFormat) -> Self {
        let value = match row.headers.get(HEADER_VALUE) {
            Some(VALUE_TOMBSTONE) => None,
            Some(VALUE_EMPTY) => Some(&[][..]),
            _ => Some(row.payload.as_bytes()),
        };
        let mut headers = RecordHeaders { headers: None, taken: Vec::with_capacity(HEADERS_USUAL) };
        headers.add_relais_headers(row);
        if let RecordFormat::CloudEvents { content_type } = format {
            headers.add_cloudevents_headers(row, value.map(|_| content_type));
        }
        headers.add_row_headers(row);
        Self { key: key(row), value, headers: headers.headers.unwrap_or_default() }
    }
}

/// Returns the ordering key. If it replaces a key that no column can hold, returns the bytes of
/// that key. The mapping is one to one, so that related messages stay in one partition.
fn key(row: &OutboxRow) -> Cow<'_, [u8]> {
    let bytes = match row.headers.0.get(HEADER_KEY) {
        Some(HeaderValues::One(HeaderValue::Text(text))) => Some(text.as_bytes().to_vec()),
        Some(HeaderValues::One(HeaderValue::Bytes { base64 })) => STANDARD.decode(base64).ok(),
        _ => None,
    };
    match bytes.filter(|bytes| *row.msg_key == kept(bytes)) {
        Some(bytes) => Cow::Owned(bytes),
        None => Cow::Borrowed(row.msg_key.as_bytes()),
    }
}

/// Returns the text that the source stores for a key.
fn kept(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) => text::identity(text, text::KEY_MAX),
        Err(_) => text::identity(&format!("base64:{}", STANDARD.encode(key)), text::KEY_MAX),
    }
}

/// Collects headers, and the names that are in use.
struct RecordHeaders {
    headers: Option<OwnedHeaders>,
    taken: Vec<&'static str>,
}

/// Initial capacity for headers.
const HEADERS_USUAL: usize = 16;

impl RecordHeaders {
    fn add_relais_headers(&mut self, row: &OutboxRow) {
        self.set("message-id", &row.message_id.to_string());
        self.set("event-type", &row.event_type);
        self.set("event-version", &row.event_version.to_string());
        self.set("aggregate-type", &row.aggregate_type);
        self.set("aggregate-id", &row.aggregate_id);
        for (name, id) in
            [("correlation-id", &row.correlation_id), ("causation-id", &row.causation_id)]
        {
            if let Some(id) = id {
                self.set(name, id);
            }
        }
    }

    /// Adds the headers of CloudEvents as its Kafka binding requires: UTF-8; only characters that a
    /// URI cannot hold are encoded.
    fn add_cloudevents_headers(&mut self, row: &OutboxRow, content_type: Option<&str>) {
        self.set("ce_specversion", "1.0");
        self.set("ce_id", &row.message_id.to_string());
        self.set("ce_source", &format!("/relais/{}", uri_part(&row.aggregate_type)));
        self.set("ce_type", &row.event_type);
        self.set("ce_subject", &row.aggregate_id);
        self.set("ce_time", &row.created_at.to_string());
        self.set("ce_partitionkey", &row.msg_key);
        if let Some(content_type) = content_type {
            self.set("content-type", content_type);
        }
    }

    fn add_row_headers(&mut self, row: &OutboxRow) {
        for (name, values) in &row.headers.0 {
            if self.is_taken(name) || [HEADER_VALUE, HEADER_KEY].contains(&name.as_str()) {
                continue;
            }
            let values = match values {
                HeaderValues::One(value) => std::slice::from_ref(value),
                HeaderValues::Many(values) => values,
            };
            for value in values {
                match value {
                    HeaderValue::Text(text) => self.add(name, Some(text.as_bytes())),
                    HeaderValue::Null => self.add(name, None),
                    HeaderValue::Bytes { base64 } => match STANDARD.decode(base64) {
                        Ok(bytes) => self.add(name, Some(&bytes)),
                        // An object of this form that is not Base64: the user's own.
                        Err(_) => self.add(name, Some(base64.as_bytes())),
                    },
                }
            }
        }
    }

    fn is_taken(&self, name: &str) -> bool {
        self.taken.iter().any(|taken| taken.eq_ignore_ascii_case(name))
    }

    fn set(&mut self, name: &'static str, value: &str) {
        self.taken.push(name);
        self.add(name, Some(value.as_bytes()));
    }

    fn add(&mut self, key: &str, value: Option<&[u8]>) {
        let headers = self.headers.take();
        let headers = headers.unwrap_or_else(|| OwnedHeaders::new_with_capacity(HEADERS_USUAL));
        self.headers = Some(headers.insert(Header { key, value }));
    }
}

fn uri_part(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use rdkafka::message::Headers as _;
    use relais_core::message::Headers;

    use super::*;
    use crate::testing::row;

    const CLOUDEVENTS: RecordFormat =
        RecordFormat::CloudEvents { content_type: "application/json" };

    fn shown(row: &OutboxRow, format: RecordFormat) -> Vec<(String, Option<Vec<u8>>)> {
        let headers = OutgoingRecord::of(row, format).headers;
        headers.iter().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect()
    }

    fn pair(name: &str, value: &str) -> (String, Option<Vec<u8>>) {
        (name.to_owned(), Some(value.as_bytes().to_vec()))
    }

    #[test]
    fn a_record_has_the_names_of_the_http_publisher() {
        let mut row = row("{}");
        row.correlation_id = Some("c-1".into());
        row.headers.set("traceparent", "00-abc");
        row.headers.set("Event-Type", "mine");
        row.headers.set("causation-id", "theirs");
        let expected = [
            pair("message-id", "00000000-0000-0000-0123-456789abcdef"),
            pair("event-type", "OrderCreated"),
            pair("event-version", "2"),
            pair("aggregate-type", "Order"),
            pair("aggregate-id", "7"),
            pair("correlation-id", "c-1"),
            pair("causation-id", "theirs"),
            pair("traceparent", "00-abc"),
        ];
        assert_eq!(shown(&row, RecordFormat::Plain), expected);
    }

    #[test]
    fn headers_add_row_headers_arrive_as_they_are() {
        let mut row = row("{}");
        row.headers = Headers::from_json(
            r#"{"bytes":{"base64":"/wA="},"empty":"","nul":["a",null,"b"],"odd":{"base64":"?"}}"#,
        );
        let shown = shown(&row, RecordFormat::Plain);
        let expected = [
            ("bytes".to_owned(), Some(vec![0xFF, 0])),
            pair("empty", ""),
            pair("nul", "a"),
            ("nul".to_owned(), None),
            pair("nul", "b"),
            pair("odd", "?"),
        ];
        assert_eq!(shown[5..], expected);
    }

    #[test]
    fn a_tombstone_has_no_value_and_an_empty_value_no_bytes() {
        let mut row = row("null");
        assert_eq!(OutgoingRecord::of(&row, RecordFormat::Plain).value, Some(&b"null"[..]));
        for (name, value) in [("tombstone", None), ("empty", Some(&b""[..]))] {
            row.headers.set(HEADER_VALUE, name);
            assert_eq!(OutgoingRecord::of(&row, RecordFormat::Plain).value, value);
            assert!(shown(&row, RecordFormat::Plain).iter().all(|(name, _)| name != HEADER_VALUE));
        }
    }

    #[test]
    fn a_key_no_column_could_keep_goes_out_as_it_came() {
        let long = "k".repeat(text::KEY_MAX + 1);
        for key in [&[0xFF, 0][..], b"a\0b", long.as_bytes()] {
            let mut row = row("{}");
            row.headers.push(HEADER_KEY, HeaderValue::from_bytes(key));
            assert_eq!(
                OutgoingRecord::of(&row, RecordFormat::Plain).key,
                &b"7"[..],
                "it is ordered by another"
            );
            row.msg_key = kept(key);
            assert_eq!(OutgoingRecord::of(&row, RecordFormat::Plain).key, key);
            assert!(shown(&row, RecordFormat::Plain).iter().all(|(name, _)| name != HEADER_KEY));
        }
    }

    #[test]
    fn cloudevents_have_their_headers_and_ours() {
        let mut row = row("{}");
        row.aggregate_type = "Grüße an".into();
        row.headers.set("ce_source", "theirs");
        let headers = shown(&row, CLOUDEVENTS);
        for expected in [
            pair("message-id", "00000000-0000-0000-0123-456789abcdef"),
            pair("ce_specversion", "1.0"),
            pair("ce_id", "00000000-0000-0000-0123-456789abcdef"),
            pair("ce_source", "/relais/Gr%C3%BC%C3%9Fe%20an"),
            pair("ce_type", "OrderCreated"),
            pair("ce_subject", "7"),
            pair("ce_time", "2026-11-15T12:00:00.123Z"),
            pair("ce_partitionkey", "7"),
            pair("content-type", "application/json"),
        ] {
            assert!(headers.contains(&expected), "{expected:?}");
        }
        assert_eq!(headers.iter().filter(|(name, _)| name == "ce_source").count(), 1);
        row.headers.set(HEADER_VALUE, "tombstone");
        assert!(shown(&row, CLOUDEVENTS).iter().all(|(name, _)| name != "content-type"));
    }
}
