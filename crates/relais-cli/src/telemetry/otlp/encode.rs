//! Encodes spans as OTLP JSON: ids in hex, 64-bit numbers as text.

use std::time::{SystemTime, UNIX_EPOCH};

use relais::observe::{Attribute, Span, SpanKind};
use serde_json::{Value, json};

/// Encodes one request.
pub(super) fn encode(spans: &[Span], service_name: &str) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let resource = json!({"attributes": [
        text("service.name", service_name),
        text("service.version", version),
        json!({"key": "process.pid", "value": {"intValue": std::process::id().to_string()}}),
    ]});
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let scope = json!({"scope": {"name": "relais", "version": version}, "spans": spans});
    let request = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]});
    serde_json::to_vec(&request).expect("a value is JSON")
}

fn span(span: &Span) -> Value {
    let attributes: Vec<Value> = span.attributes.iter().map(attribute).collect();
    let mut encoded = json!({
        "traceId": hex(&span.trace_id),
        "spanId": hex(&span.span_id),
        "name": span.name,
        "kind": match span.kind {
            SpanKind::Producer => 4,
            SpanKind::Consumer => 5,
        },
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.end.max(span.start)),
        "attributes": attributes,
    });
    if let Some(parent) = &span.parent {
        encoded["parentSpanId"] = hex(parent).into();
    }
    if let Some(code) = &span.error {
        encoded["status"] = json!({"code": 2, "message": code});
    }
    encoded
}

fn attribute((key, value): &(&'static str, Attribute)) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({"stringValue": text}),
        Attribute::Number(number) => json!({"intValue": number.to_string()}),
    };
    json!({"key": key, "value": value})
}

fn nanos(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_span_is_encoded_by_the_standard() {
        let start = UNIX_EPOCH + Duration::from_nanos(1_794_812_563_000_000_001);
        let encoded = span(&Span {
            trace_id: [0xab; 16],
            span_id: [1; 8],
            parent: Some([2; 8]),
            kind: SpanKind::Producer,
            name: "publish crm".into(),
            start,
            end: start + Duration::from_millis(1),
            attributes: vec![
                ("messaging.message.id", "m-1".into()),
                ("relais.attempt", 2_i64.into()),
            ],
            error: Some("503".into()),
        });
        let expected = json!({
            "traceId": "abababababababababababababababab",
            "spanId": "0101010101010101",
            "parentSpanId": "0202020202020202",
            "name": "publish crm",
            "kind": 4,
            "startTimeUnixNano": "1794812563000000001",
            "endTimeUnixNano": "1794812563001000001",
            "attributes": [
                {"key": "messaging.message.id", "value": {"stringValue": "m-1"}},
                {"key": "relais.attempt", "value": {"intValue": "2"}},
            ],
            "status": {"code": 2, "message": "503"},
        });
        assert_eq!(encoded, expected);
    }
}
