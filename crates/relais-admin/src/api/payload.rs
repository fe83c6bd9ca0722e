//! Payloads of any size: a preview in lists, a part in the details, the whole as a download.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use relais_core::{
    inspect::{Attempt, ListedRow},
    json,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::problem::ApiProblem;

/// Most bytes of a payload in the details of a row.
pub(super) const SHOWN_MAX: usize = 1 << 20;
/// Most bytes of an undecodable payload in the details of a row.
pub(super) const RAW_SHOWN_MAX: usize = 64 << 10;

/// Fields that may be large and are left out of lists.
const LARGE: [&str; 4] = ["payload", "raw_payload_base64", "original_payload", "headers"];

/// Returns a row of a list: without large fields, with the beginning of its payload.
pub(super) fn line<T: Serialize>(listed: &ListedRow<T>) -> Value {
    let mut line = serde_json::to_value(listed).expect("a row is JSON");
    if let Some(fields) = line.as_object_mut() {
        let preview = fields.get("payload").cloned().unwrap_or_default();
        LARGE.into_iter().for_each(|name| drop(fields.remove(name)));
        fields.insert("preview".to_owned(), preview);
    }
    line
}

/// A row of the inbox or the outbox with its details; a large payload is truncated.
#[derive(Serialize)]
pub(crate) struct RowDetail<R> {
    #[serde(flatten)]
    pub(super) row: R,
    pub(super) payload_bytes: usize,
    pub(super) payload_truncated: bool,
    /// Recorded attempts, oldest first.
    pub(super) history: Vec<Attempt>,
}

/// Truncates a text and returns its length before.
pub(super) fn cut(text: &mut String, max: usize) -> usize {
    let bytes = text.len();
    if bytes > max {
        text.truncate(text.floor_char_boundary(max));
        text.shrink_to_fit();
    }
    bytes
}

/// The payload of a request: a string that holds the JSON text, or the JSON value itself.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct RequestPayload(Box<RawValue>);

impl RequestPayload {
    /// Returns the JSON text byte for byte: that in the string, or that of another value.
    pub(super) fn text(&self) -> String {
        serde_json::from_str::<String>(self.0.get()).unwrap_or_else(|_| self.0.get().to_owned())
    }

    /// Returns the same, but keeps a string of plain words, such as `hello`, as a JSON string. A text that begins
    /// like an object or an array must be JSON.
    pub(super) fn text_or_string(&self) -> Result<String, ApiProblem> {
        let text = self.text();
        let Err(error) = json::check(text.as_bytes()) else { return Ok(text) };
        if text.trim_start().starts_with(['{', '[']) {
            return Err(ApiProblem::unprocessable(error.code(), error));
        }
        let value = self.0.get();
        match json::check(value.as_bytes()) {
            Ok(value) => Ok(value.to_owned()),
            Err(error) => Err(ApiProblem::unprocessable(error.code(), error)),
        }
    }
}

/// Returns a payload as a file, which no browser renders as a page.
pub(super) fn attachment(name: &str, content: DownloadContent) -> Response {
    let (kind, body) = match content {
        DownloadContent::Text(text) => ("text/plain; charset=utf-8", text.into_bytes()),
        DownloadContent::Bytes(bytes) => ("application/octet-stream", bytes),
    };
    let disposition = format!("attachment; filename=\"{name}\"");
    let disposition = HeaderValue::from_str(&disposition)
        .unwrap_or_else(|_| HeaderValue::from_static("attachment"));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    (headers, body).into_response()
}

/// The content of a download.
pub(crate) enum DownloadContent {
    Text(String),
    Bytes(Vec<u8>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_the_text_in_its_string_or_the_value_itself() {
        let read = |body: &str| serde_json::from_str::<RequestPayload>(body).unwrap();
        for (body, text) in [
            (r#""{\"a\": 1.50}""#, r#"{"a": 1.50}"#),
            (r#"{"a": 1.50}"#, r#"{"a": 1.50}"#),
            (r#""\"hello\"""#, r#""hello""#),
            (r#""7""#, "7"),
            ("7", "7"),
            (r#""hello""#, r#""hello""#),
        ] {
            assert_eq!(read(body).text_or_string().unwrap(), text, "{body}");
        }
        for wrong in [r#""{\"a\":""#, r#"" [1""#] {
            assert!(read(wrong).text_or_string().is_err(), "{wrong}");
        }
        assert_eq!(read(r#""hello""#).text(), "hello");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut text = "a€b".to_owned();
        assert_eq!(cut(&mut text, 3), 5);
        assert_eq!(text, "a");
        assert_eq!((cut(&mut text, 3), text.as_str()), (1, "a"));
    }
}
