//! A collector of OpenTelemetry: takes OTLP in JSON and reads it as strictly as the standard allows.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::Target;

/// A received span.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) service: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: Option<String>,
    pub(crate) name: String,
    pub(crate) kind: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) failed: bool,
}

pub(crate) struct Collector {
    target: Target,
    spans: Vec<Span>,
    /// All received spans.
    pub(crate) raw: String,
}

impl Collector {
    pub(crate) fn start() -> Self {
        Self { target: Target::start(), spans: Vec::new(), raw: String::new() }
    }

    /// The section that sends spans here.
    pub(crate) fn settings(&self, service: &str) -> String {
        format!(
            "[telemetry]\notlp = \"http://{}\"\nservice_name = \"{service}\"\n\
             headers = {{ x-key = \"canary-otlp\" }}\n",
            self.target.address
        )
    }

    /// Waits for a span of this name; the first one.
    pub(crate) fn span(&mut self, name: &str) -> Span {
        loop {
            if let Some(span) = self.spans.iter().find(|span| span.name == name) {
                return span.clone();
            }
            self.take();
        }
    }

    fn take(&mut self) {
        let seen = self.target.next();
        assert!(seen.head.starts_with("POST /v1/traces HTTP/1.1"), "{}", seen.head);
        let head = seen.head.to_lowercase();
        assert!(head.contains("content-type: application/json"), "{head}");
        assert!(head.contains("x-key: canary-otlp"), "{head}");
        let request: Value = serde_json::from_str(&seen.body).expect("it is JSON");
        self.raw.push_str(&seen.body);
        for resource in list(&request["resourceSpans"]) {
            let about = attributes(&resource["resource"]);
            for scope in list(&resource["scopeSpans"]) {
                assert_eq!(scope["scope"]["name"], "relais");
                let spans = list(&scope["spans"]).iter();
                self.spans.extend(spans.map(|span| read(span, &about["service.name"])));
            }
        }
    }
}

fn read(span: &Value, service: &str) -> Span {
    let hex = |key: &str, digits: usize| {
        let text = span[key].as_str().unwrap_or_else(|| panic!("no {key}: {span}"));
        let fits = text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(fits && text.bytes().any(|b| b != b'0'), "{key}: {span}");
        text.to_owned()
    };
    let nanos = |key: &str| span[key].as_str().and_then(|t| t.parse::<u64>().ok()).expect("nanos");
    assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"), "{span}");
    Span {
        service: service.to_owned(),
        trace: hex("traceId", 32),
        id: hex("spanId", 16),
        parent: span.get("parentSpanId").map(|_| hex("parentSpanId", 16)),
        name: span["name"].as_str().expect("a name").to_owned(),
        kind: span["kind"].as_u64().expect("a kind"),
        attributes: attributes(span),
        failed: span["status"]["code"] == 2,
    }
}

fn attributes(of: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| {
        let one = value.as_object().filter(|fields| fields.len() == 1).expect("one value");
        let (kind, value) = one.iter().next().expect("one value");
        assert!(["stringValue", "intValue"].contains(&kind.as_str()), "{kind}");
        value.as_str().expect("64-bit numbers are text too").to_owned()
    };
    let all = list(&of["attributes"]).iter();
    all.map(|one| (one["key"].as_str().expect("a key").to_owned(), text(&one["value"]))).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
