//! The headers of an outgoing request: everything of the message except its payload.
//!
//! Invariant: whatever a row contains, the request has exactly the intended headers. No value can
//! add a line, and no header of a row replaces one set by relais. Encoding:
//! - Fields of relais are percent-encoded where HTTP cannot carry them (control characters,
//!   non-ASCII, white space at the ends) and where they already look percent-encoded. So decoding
//!   always returns the value.
//! - A row's own headers are sent unchanged if HTTP can carry them, otherwise percent-encoded in
//!   the same way.
//! - `ce-` headers are encoded as CloudEvents requires.
//! - A header *name* that is invalid in HTTP cannot be sent: the message is rejected.

use relais_core::{
    inbox::{InboxRow, original_source},
    message::{Category, HEADER_HANDLER, HeaderValue as RowValue, HeaderValues, Headers},
    outbox::OutboxRow,
};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::signature::{self, SignedContent, WebhookSecret};

/// The code of a message whose headers cannot be sent.
pub(super) const HEADER_INVALID: &str = "HEADER_INVALID";

/// Maximum number of header values that a message has of its own.
const ROW_VALUES_MAX: usize = 256;

/// Names that relais sets itself in the request of a message, in lower case.
pub(super) const OURS: &[&str] = &[
    "idempotency-key",
    "message-id",
    "event-type",
    "event-version",
    "aggregate-type",
    "aggregate-id",
    "message-key",
    "correlation-id",
    "causation-id",
    signature::ID,
    signature::TIMESTAMP,
    signature::SIGNATURE,
];

/// Names that relais sets itself in the call of a handler, in lower case.
pub(super) const OURS_IN_CALLS: &[&str] = &[
    "idempotency-key",
    "message-id",
    "source-system",
    "event-type",
    "aggregate-id",
    "message-key",
    "attempt",
    "received-at",
    "event-time",
    HEADER_HANDLER,
    signature::ID,
    signature::TIMESTAMP,
    signature::SIGNATURE,
];

/// Names that belong to the connection, in lower case: neither a row nor the configuration can set
/// them.
const OF_THE_CONNECTION: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Names that only the configuration can set, in lower case: they identify the client or describe
/// the body.
const OF_THE_SETTINGS: &[&str] = &["authorization", "content-type", "cookie", "user-agent"];

/// Returns the headers of the configuration, validated once. `ours` are the names that relais sets itself.
pub(super) fn fixed(
    headers: &[(String, SecretString)],
    ours: &[&str],
) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut own = HeaderMap::new();
    for (name, value) in headers {
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("`{}` is not a header name", name.escape_debug()))?;
        if ours.contains(&known.as_str()) || OF_THE_CONNECTION.contains(&known.as_str()) {
            return Err(format!("the header `{known}` is set by relais; leave it out"));
        }
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| {
            format!("the value of the header `{known}` has a character that HTTP cannot carry")
        })?;
        value.set_sensitive(true);
        own.append(known, value);
    }
    for name in own.keys() {
        map.remove(name);
    }
    map.extend(own);
    Ok(map)
}

/// Builds the headers of a request.
pub(super) struct RequestHeaders<'a> {
    pub(super) fixed: &'a HeaderMap,
    pub(super) secrets: &'a [WebhookSecret],
    pub(super) cloudevents: bool,
    pub(super) now_seconds: i64,
}

impl RequestHeaders<'_> {
    /// Returns all headers of the request that carries `row`; the error explains why it cannot be
    /// sent.
    pub(super) fn headers(&self, row: &OutboxRow) -> Result<HeaderMap, String> {
        let message_id = row.message_id.to_string();
        // Each attempt of a process step is a separate message; the step is what must happen once.
        let own = row.headers.get("idempotency-key").filter(|_| row.category == Category::Command);
        let once = own.map_or_else(|| message_id.clone(), |key| exact(key.as_bytes()));
        let mut fields = vec![
            ("idempotency-key", once),
            ("message-id", message_id.clone()),
            ("event-type", exact(row.event_type.as_bytes())),
            ("event-version", row.event_version.to_string()),
            ("aggregate-type", exact(row.aggregate_type.as_bytes())),
            ("aggregate-id", exact(row.aggregate_id.as_bytes())),
            ("message-key", exact(row.msg_key.as_bytes())),
        ];
        let ids = [("correlation-id", &row.correlation_id), ("causation-id", &row.causation_id)];
        for (name, id) in ids {
            fields.extend(id.as_ref().map(|id| (name, exact(id.as_bytes()))));
        }
        if self.cloudevents {
            fields.extend([
                ("ce-specversion", "1.0".to_owned()),
                ("ce-id", message_id.clone()),
                ("ce-source", format!("/relais/{}", cloudevent(&row.aggregate_type))),
                ("ce-type", cloudevent(&row.event_type)),
                ("ce-subject", cloudevent(&row.aggregate_id)),
                ("ce-time", row.created_at.to_string()),
                ("ce-partitionkey", cloudevent(&row.msg_key)),
            ]);
        }
        self.all(&row.headers, OURS, fields, (&message_id, row.payload.as_bytes()))
    }

    /// Returns all headers of the call that carries `row` to a handler. `id` is the same in every call
    /// about the message.
    pub(super) fn call_headers(
        &self,
        row: &InboxRow,
        id: &str,
        body: &str,
    ) -> Result<HeaderMap, String> {
        let event_type = row.event_type.as_deref().unwrap_or_default();
        let mut fields = vec![
            ("idempotency-key", id.to_owned()),
            ("message-id", exact(row.message_id.as_bytes())),
            ("source-system", exact(original_source(&row.source_system).as_bytes())),
            ("event-type", exact(event_type.as_bytes())),
            ("message-key", exact(row.msg_key.as_bytes())),
            ("attempt", row.attempts.saturating_add(1).to_string()),
            ("received-at", row.received_at.to_string()),
        ];
        let aggregate_id = row.aggregate_id.as_ref();
        fields.extend(aggregate_id.map(|id| ("aggregate-id", exact(id.as_bytes()))));
        fields.extend(row.event_ts.map(|at| ("event-time", at.to_string())));
        self.all(&row.headers, OURS_IN_CALLS, fields, (id, body.as_bytes()))
    }

    /// Returns a message's own headers, the configured ones, the fields that relais sets, and the signature
    /// of id and body.
    fn all(
        &self,
        own: &Headers,
        ours: &[&str],
        fields: Vec<(&'static str, String)>,
        (id, body): (&str, &[u8]),
    ) -> Result<HeaderMap, String> {
        let mut map = self.own_headers(own, ours)?;
        for name in self.fixed.keys() {
            map.remove(name);
        }
        map.extend(self.fixed.clone());
        let mut set = |name: &'static str, value: String| {
            map.insert(HeaderName::from_static(name), printable(value));
        };
        fields.into_iter().for_each(|(name, value)| set(name, value));
        if !self.secrets.is_empty() {
            let timestamp = self.now_seconds.to_string();
            let signed = SignedContent { id, timestamp: &timestamp, body };
            set(signature::SIGNATURE, signature::sign(self.secrets, &signed));
            set(signature::ID, id.to_owned());
            set(signature::TIMESTAMP, timestamp);
        }
        Ok(map)
    }

    fn own_headers(&self, own: &Headers, ours: &[&str]) -> Result<HeaderMap, String> {
        let mut map = HeaderMap::new();
        for (name, values) in &own.0 {
            let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                let name: String = name.chars().take(100).collect();
                format!("`{}` is not a valid HTTP header name; rename it", name.escape_debug())
            })?;
            if ours.contains(&known.as_str()) || self.is_reserved(known.as_str()) {
                continue;
            }
            let values = match values {
                HeaderValues::One(value) => std::slice::from_ref(value),
                HeaderValues::Many(values) => values,
            };
            if map.len() + values.len() > ROW_VALUES_MAX {
                return Err(format!("the message has more than {ROW_VALUES_MAX} header values"));
            }
            for value in values {
                map.append(&known, row_value(value));
            }
        }
        Ok(map)
    }

    /// Returns whether a row cannot set this name; such headers are left out.
    fn is_reserved(&self, name: &str) -> bool {
        OF_THE_CONNECTION.contains(&name)
            || OF_THE_SETTINGS.contains(&name)
            || (self.cloudevents && name.starts_with("ce-"))
    }
}

fn row_value(value: &RowValue) -> HeaderValue {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let as_it_is = |bytes: &[u8]| {
        let carried = (0..bytes.len()).all(|at| carries(bytes, at));
        let text = carried.then(|| String::from_utf8_lossy(bytes).into_owned());
        printable(text.unwrap_or_else(|| exact(bytes)))
    };
    match value {
        RowValue::Text(text) => as_it_is(text.as_bytes()),
        RowValue::Bytes { base64 } => match STANDARD.decode(base64) {
            Ok(bytes) => as_it_is(&bytes),
            Err(_) => as_it_is(base64.as_bytes()),
        },
        RowValue::Null => HeaderValue::from_static(""),
    }
}

/// Returns whether HTTP carries the byte unchanged. White space at the ends is stripped in transit.
fn carries(bytes: &[u8], at: usize) -> bool {
    match bytes[at] {
        b' ' => at != 0 && at != bytes.len() - 1,
        byte => byte.is_ascii_graphic(),
    }
}

/// Percent-encodes only as much as needed for decoding to return the same bytes.
fn exact(bytes: &[u8]) -> String {
    encode(bytes, |at| {
        let looks_encoded = bytes[at] == b'%'
            && bytes.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
        carries(bytes, at) && !looks_encoded
    })
}

/// Encodes as the HTTP binding of CloudEvents requires.
fn cloudevent(text: &str) -> String {
    let bytes = text.as_bytes();
    encode(bytes, |at| bytes[at].is_ascii_graphic() && !matches!(bytes[at], b'"' | b'%'))
}

fn encode(bytes: &[u8], keep: impl Fn(usize) -> bool) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        if keep(at) {
            text.push(char::from(*byte));
        } else {
            let [high, low] = [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]);
            text.extend(['%', char::from(high), char::from(low)]);
        }
    }
    text
}

fn printable(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("encoded text is printable ASCII")
}

#[cfg(test)]
mod tests;
