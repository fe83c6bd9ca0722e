//! Payloads of any size: a preview in lists, a part in the detail, the whole as a download.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use relais_core::{browse::Listed, desk::Attempt};
use serde::Serialize;
use serde_json::Value;

/// Bytes of a payload that the detail of a row carries.
pub(super) const SHOWN_MAX: usize = 1 << 20;
/// Bytes that could not be read are shown so far.
pub(super) const RAW_SHOWN_MAX: usize = 64 << 10;

/// Fields that may be large, and are not in lists.
const LARGE: [&str; 4] = ["payload", "raw_payload_base64", "original_payload", "headers"];

/// A row of a list: without what may be large, with the beginning of its payload.
pub(super) fn line<T: Serialize>(listed: &Listed<T>) -> Value {
    let mut line = serde_json::to_value(listed).expect("a row is JSON");
    if let Some(fields) = line.as_object_mut() {
        let preview = fields.get("payload").cloned().unwrap_or_default();
        LARGE.into_iter().for_each(|name| drop(fields.remove(name)));
        fields.insert("preview".to_owned(), preview);
    }
    line
}

/// A row of the inbox or the outbox with what there is to know of it; a large payload is cut.
#[derive(Serialize)]
pub(crate) struct Shown<R> {
    #[serde(flatten)]
    pub(super) row: R,
    pub(super) payload_bytes: usize,
    pub(super) payload_truncated: bool,
    /// What was tried and failed, oldest first.
    pub(super) history: Vec<Attempt>,
}

/// Cuts a text to what is shown of it; its length before.
pub(super) fn cut(text: &mut String, max: usize) -> usize {
    let bytes = text.len();
    if bytes > max {
        text.truncate(text.floor_char_boundary(max));
        text.shrink_to_fit();
    }
    bytes
}

/// A payload as a file, which no browser takes for a page.
pub(super) fn attachment(name: &str, content: Content) -> Response {
    let (kind, body) = match content {
        Content::Text(text) => ("text/plain; charset=utf-8", text.into_bytes()),
        Content::Bytes(bytes) => ("application/octet-stream", bytes),
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

/// What a download has.
pub(crate) enum Content {
    Text(String),
    Bytes(Vec<u8>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut text = "a€b".to_owned();
        assert_eq!(cut(&mut text, 3), 5);
        assert_eq!(text, "a");
        assert_eq!((cut(&mut text, 3), text.as_str()), (1, "a"));
    }
}
