//! Fuzz targets: headers of requests in both directions. Each function panics if a property does
//! not hold.

use std::sync::Arc;

use hyper::{HeaderMap, header::HeaderName, header::HeaderValue};
use percent_encoding::percent_decode_str;
use relais_core::{
    extract::{Mapping, Pick},
    message::{HeaderValue as RowValue, HeaderValues, Headers},
    outbox::OutboxRow,
};
use tokio::sync::{Semaphore, mpsc, watch};

use super::{
    bodies::Bodies,
    outgoing::{self, OURS, RequestHeaders},
    request::{RequestReceiver, SECRET_HEADERS},
    signature::{self, SignedContent},
    source::HttpSourceSettings,
};
use crate::{fuzz_parts::Parts, testing};

/// Whatever a row contains, the request has exactly the intended headers, and the receiver reads
/// their values back.
pub fn http_headers(input: &[u8]) {
    let mut parts = Parts::new(input);
    let flags = parts.byte();
    let [kind, id, key, name] = std::array::from_fn(|_| parts.text());
    let mut row = testing::row("{}");
    let value = RowValue::from_bytes(parts.bytes());
    let signatures = parts.text();
    row.headers = Headers::from_json(&String::from_utf8_lossy(parts.rest()));
    row.headers.push(&name, value.clone());
    (row.event_type, row.aggregate_id, row.msg_key) = (kind, id, key);
    row.correlation_id = Some(name.clone());
    let secrets = ["whsec_c2VjcmV0".parse().expect("a secret")];
    let fixed = outgoing::fixed(&[], OURS).expect("no headers");
    let headers_of = RequestHeaders {
        fixed: &fixed,
        secrets: &secrets,
        cloudevents: flags & 1 == 1,
        now_seconds: 7,
    };
    let Ok(headers) = headers_of.headers(&row) else { return };
    for (name, value) in &headers {
        let sent = value.to_str().expect("only what every proxy carries");
        assert_eq!(sent.trim(), sent, "{name}");
        assert!(!["host", "content-length", "transfer-encoding"].contains(&name.as_str()));
    }
    assert_ours_arrive(&row, &headers);
    let sent = |name: &str| headers[name].to_str().expect("ASCII");
    let signed = |body| SignedContent {
        id: sent(signature::ID),
        timestamp: sent(signature::TIMESTAMP),
        body,
    };
    let check = |body, signatures: &str| signature::verify(&secrets, &signed(body), signatures, 7);
    assert_eq!(check(b"{}", sent(signature::SIGNATURE)), Ok(()));
    assert!(check(b"{ }", sent(signature::SIGNATURE)).is_err());
    assert!(check(b"{}", &signatures).is_err() || signatures.contains(sent(signature::SIGNATURE)));
    received(&headers, &row, &name, &value);
}

fn assert_ours_arrive(row: &OutboxRow, headers: &HeaderMap) {
    let ours = [
        ("event-type", &row.event_type),
        ("aggregate-id", &row.aggregate_id),
        ("message-key", &row.msg_key),
        ("correlation-id", row.correlation_id.as_ref().expect("set")),
    ];
    for (name, value) in ours {
        assert_eq!(headers.get_all(name).iter().count(), 1, "{name} is ours alone");
        let sent = headers[name].to_str().expect("ASCII");
        assert_eq!(
            percent_decode_str(sent).collect::<Vec<_>>(),
            value.as_bytes(),
            "{name}: {sent}"
        );
    }
}

/// The request arrives at a source, with arbitrary bytes in one more header.
fn received(sent: &HeaderMap, row: &OutboxRow, name: &str, value: &RowValue) {
    let mut request = sent.clone();
    let bytes = bytes_of(value);
    let raw = HeaderValue::from_bytes(&bytes).ok();
    if let Some(raw) = &raw {
        request.insert("x-raw", raw.clone());
        request.insert("cookie", raw.clone());
    }
    for secret in SECRET_HEADERS {
        request.insert(secret, HeaderValue::from_static("CANARY"));
    }
    if let Ok(name) = HeaderName::from_bytes(format!("Relais-{name}").as_bytes()) {
        request.insert(name, HeaderValue::from_static("forged"));
    }
    let incoming = receiver().incoming(&request, Vec::new());
    if row.msg_key.is_empty() {
        assert_eq!(incoming.key, None);
    } else {
        assert_eq!(incoming.key.as_ref(), Some(&row.msg_key));
    }
    if raw.is_some() {
        let Some(HeaderValues::One(kept)) = incoming.headers.0.get("x-raw") else {
            panic!("one value")
        };
        assert_eq!(bytes_of(kept), bytes);
    }
    assert!(
        incoming.headers.0.keys().all(|name| !name.starts_with("relais-")),
        "a sender cannot forge our headers"
    );
    assert!(!incoming.headers.to_json().contains("CANARY"));
}

fn bytes_of(value: &RowValue) -> Vec<u8> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    match value {
        RowValue::Text(text) => text.as_bytes().to_vec(),
        RowValue::Bytes { base64 } => STANDARD.decode(base64).expect("our own Base64"),
        RowValue::Null => Vec::new(),
    }
}

fn receiver() -> RequestReceiver {
    let mapping = Mapping::json("s").message_id(Pick::Header("message-id".into()));
    let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    RequestReceiver {
        settings: HttpSourceSettings::new("hook", listen, mapping),
        queue: mpsc::channel(1).0,
        buffer: Arc::new(Semaphore::new(1)),
        bodies: Bodies::new(1),
        closing: watch::channel(false).1,
        paused: Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_row_goes_out_in_headers_that_are_understood() {
        crate::fuzz_run::run("http_headers", 5_000, super::http_headers);
    }
}
