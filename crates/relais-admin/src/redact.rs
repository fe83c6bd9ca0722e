//! Removal of payloads and headers from responses for the role monitor.
//!
//! Invariant: it applies to every JSON response of the API and finds fields by name at any depth, so a new route
//! cannot forget it.

use axum::{
    body::{Body, to_bytes},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::Value;

use crate::problem::ApiProblem;

/// Endings of the names of fields with the content of a message or the data of a process, in the spelling of
/// [`plain_name`]: `payload`, `original_payload`, `initialData`.
const CONTENTS: [&str; 4] = ["payload", "preview", "text", "data"];
/// The ending of fields with the same in Base64.
const BYTES: &str = "base64";
const HEADERS: &str = "headers";
/// The replacement.
const HIDDEN: &str = "hidden; needs the role viewer";

/// Removes payloads and headers from a response.
pub(crate) async fn redact(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_json = kind.is_some_and(|kind| kind.starts_with(b"application/json"));
    if !is_json || !response.status().is_success() {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let read = to_bytes(body, usize::MAX).await.ok();
    let Some(mut value) = read.and_then(|bytes| serde_json::from_slice(&bytes).ok()) else {
        let detail = "cannot remove the payloads from the response";
        return ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "REDACT", detail)
            .into_response();
    };
    hide(&mut value);
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(value.to_string()))
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = plain_name(name);
                match value {
                    Value::Null => {}
                    Value::String(text) if name.ends_with(BYTES) => text.clear(),
                    // Most payloads are JSON in a text, so their replacement is too.
                    Value::String(text) if is_content(&name) => *text = format!("\"{HIDDEN}\""),
                    content if is_content(&name) => *content = HIDDEN.into(),
                    Value::Object(headers) if name.ends_with(HEADERS) => headers.clear(),
                    Value::Array(headers) if name.ends_with(HEADERS) => headers.clear(),
                    other => hide(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        _ => {}
    }
}

/// Returns the name in lower case without underscores: rows have `snake_case`, log entries `camelCase`.
fn plain_name(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

fn is_content(plain_name: &str) -> bool {
    CONTENTS.iter().any(|ending| plain_name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn payloads_and_headers_are_hidden_wherever_they_are() {
        let shown = json!({
            "id": 7, "payload": "CANARY", "payload_bytes": 6, "headers": { "x": "CANARY" },
            "rows": [{ "preview": "CANARY", "key": "k", "raw_payload_base64": "CANARY" }],
            "shown": { "original_payload": null, "data": "CANARY", "base64": "CANARY" },
            "log": [
                { "type": "ProcessStarted", "initialData": { "input": { "id": "CANARY" } } },
                { "step": "payment", "resultData": ["CANARY"], "error": null },
            ],
        });
        let response = redact(Json(shown).into_response()).await;
        let bytes = to_bytes(response.into_body(), 10_000).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(!text.contains("CANARY"), "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["id"], &value["payload_bytes"]), (&json!(7), &json!(6)));
        assert_eq!((&value["headers"], &value["rows"][0]["key"]), (&json!({}), &json!("k")));
        assert_eq!(value["shown"]["original_payload"], Value::Null);
        assert_eq!(
            (&value["log"][0]["initialData"], &value["log"][1]["step"]),
            (&json!(HIDDEN), &json!("payment"))
        );
    }
}
