//! Hostile contents of rows, and what is sent for them.

use percent_encoding::percent_decode_str;

use super::*;
use crate::testing::row;

fn headers_of(row: &OutboxRow) -> Result<HeaderMap, String> {
    let fixed = fixed(&[("authorization".into(), "Bearer right".into())], OURS).unwrap();
    RequestHeaders { fixed: &fixed, secrets: &[], cloudevents: false, now_seconds: 0 }.headers(row)
}

fn text<'a>(map: &'a HeaderMap, name: &str) -> &'a str {
    map.get(name).unwrap_or_else(|| panic!("{name} is absent")).to_str().unwrap()
}

/// Values that end a line, are invisible, or are not ASCII.
const HOSTILE: &[&str] = &[
    "a\r\nx-evil: 1",
    "a\nx-evil: 1",
    "a\rx-evil: 1",
    "\r\n\r\nGET / HTTP/1.1",
    "a\0b",
    "\u{7f}",
    "\u{1b}[31m",
    "a\tb",
    " a ",
    " ",
    "",
    "é",
    "日本",
    "😀",
    "a\u{2028}b",
    "\u{0085}",
    "嘊嘍x-evil: 1", // its low bytes would be CR LF
    "100%",
    "%0d%0ax-evil: 1",
    "%25",
    "%zz%4",
];

#[test]
fn every_value_of_our_fields_arrives_and_none_adds_a_line() {
    for value in HOSTILE {
        let row = OutboxRow {
            aggregate_id: (*value).into(),
            aggregate_type: (*value).into(),
            event_type: (*value).into(),
            msg_key: (*value).into(),
            correlation_id: Some((*value).into()),
            causation_id: Some((*value).into()),
            ..row("{}")
        };
        let map = headers_of(&row).unwrap();
        assert!(!map.contains_key("x-evil"));
        for name in ["aggregate-id", "aggregate-type", "event-type", "message-key"]
            .into_iter()
            .chain(["correlation-id", "causation-id"])
        {
            let sent = text(&map, name);
            assert!(sent.bytes().all(|b| (0x20..0x7f).contains(&b)), "{sent:?}");
            assert_eq!(sent.trim(), sent);
            assert_eq!(percent_decode_str(sent).decode_utf8().unwrap(), *value);
        }
    }
}

#[test]
fn ordinary_values_are_sent_unchanged() {
    let mut row = OutboxRow { msg_key: "Order 7; 50% \"off\"".into(), ..row("{}") };
    row.headers.set("link", "<https://example.org/a%20b>");
    row.headers.set("tracestate", "a=%41,b=2");
    let map = headers_of(&row).unwrap();
    assert_eq!(text(&map, "message-key"), "Order 7; 50% \"off\"");
    assert_eq!(text(&map, "link"), "<https://example.org/a%20b>");
    assert_eq!(text(&map, "tracestate"), "a=%41,b=2");
}

#[test]
fn hostile_values_of_row_headers_are_encoded() {
    for value in HOSTILE {
        let mut row = row("{}");
        row.headers.push("x-note", RowValue::from_bytes(value.as_bytes()));
        row.headers.push("x-note", RowValue::from_bytes(b"\xff\r\n"));
        row.headers.push("x-note", RowValue::Null);
        let map = headers_of(&row).unwrap();
        assert!(!map.contains_key("x-evil"));
        let sent: Vec<_> = map.get_all("x-note").iter().map(|v| v.to_str().unwrap()).collect();
        assert!(sent.iter().all(|v| v.bytes().all(|b| (0x20..0x7f).contains(&b))), "{sent:?}");
        assert_eq!(sent[1..], ["%FF%0D%0A", ""]);
    }
}

#[test]
fn a_header_name_that_is_invalid_in_http_rejects_the_message() {
    for name in ["", "a b", "a:b", "a\r\nx-evil", "é", "a\0", "(x)", "a\tb", "x-evil: 1"] {
        let mut row = row("{}");
        row.headers.set(name, "v");
        let error = headers_of(&row).expect_err(name);
        assert!(error.contains("rename it"), "{error}");
        assert!(!error.contains('\n'));
    }
    let mut row = row("{}");
    for _ in 0..=ROW_VALUES_MAX {
        row.headers.push("x-many", RowValue::Text("v".into()));
    }
    assert!(headers_of(&row).is_err());
}

#[test]
fn a_row_never_replaces_our_headers() {
    let mut row = row("{}");
    let plain = headers_of(&row).unwrap();
    for name in OURS.iter().chain(OF_THE_CONNECTION).chain(OF_THE_SETTINGS) {
        row.headers.set(&name.to_ascii_uppercase(), "evil");
    }
    assert_eq!(headers_of(&row).unwrap(), plain);
    assert_eq!(text(&plain, "authorization"), "Bearer right");
    assert_eq!(text(&plain, "content-type"), "application/json");
}

#[test]
fn only_a_command_sets_its_own_idempotency_key() {
    let mut row = row("{}");
    row.headers.set("idempotency-key", "p-1/pay");
    assert_eq!(text(&headers_of(&row).unwrap(), "idempotency-key"), row.message_id.to_string());
    row.category = Category::Command;
    let map = headers_of(&row).unwrap();
    assert_eq!(text(&map, "idempotency-key"), "p-1/pay");
    assert_eq!(map.get_all("idempotency-key").iter().count(), 1);
    assert_eq!(text(&map, "message-id"), row.message_id.to_string());
}

#[test]
fn configured_headers_override_the_row_but_not_relais() {
    let mut row = row("{}");
    row.headers.set("X-Api-Key", "of the row");
    let of_settings = [("x-api-key".to_owned(), SecretString::from("of the settings"))];
    let fixed = fixed(&of_settings, OURS).unwrap();
    let builder =
        RequestHeaders { fixed: &fixed, secrets: &[], cloudevents: false, now_seconds: 0 };
    let map = builder.headers(&row).unwrap();
    assert_eq!(map.get_all("x-api-key").iter().collect::<Vec<_>>(), ["of the settings"]);
    for (name, value) in
        [("Host", "x"), ("message-id", "x"), ("a b", "x"), ("x", "a\r\nb"), ("webhook-id", "x")]
    {
        let error = super::fixed(&[(name.into(), value.into())], OURS).expect_err(name);
        assert!(!error.contains("a\r\nb"));
    }
}

#[test]
fn cloudevents_have_their_attributes() {
    let mut row = OutboxRow { aggregate_id: "a \"é%".into(), ..row("{}") };
    row.headers.set("ce-id", "evil");
    let fixed = fixed(&[], OURS).unwrap();
    let builder = RequestHeaders { fixed: &fixed, secrets: &[], cloudevents: true, now_seconds: 0 };
    let map = builder.headers(&row).unwrap();
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", "00000000-0000-0000-0123-456789abcdef"),
        ("ce-source", "/relais/Order"),
        ("ce-type", "OrderCreated"),
        ("ce-subject", "a%20%22%C3%A9%25"),
        ("ce-time", "2026-11-15T12:00:00.123Z"),
        ("ce-partitionkey", "7"),
    ] {
        assert_eq!(text(&map, name), value);
        assert_eq!(map.get_all(name).iter().count(), 1);
    }
}

#[test]
fn each_secret_signs() {
    let secrets = ["one".parse().unwrap(), "two".parse().unwrap()];
    let fixed = fixed(&[], OURS).unwrap();
    let builder =
        RequestHeaders { fixed: &fixed, secrets: &secrets, cloudevents: false, now_seconds: 99 };
    let row = row("{}");
    let map = builder.headers(&row).unwrap();
    let (id, timestamp) = (text(&map, "webhook-id"), text(&map, "webhook-timestamp"));
    assert_eq!((id, timestamp), (text(&map, "message-id"), "99"));
    let signed = SignedContent { id, timestamp, body: row.payload.as_bytes() };
    for secret in &secrets {
        let signatures = text(&map, "webhook-signature");
        assert_eq!(
            signature::verify(std::slice::from_ref(secret), &signed, signatures, 99),
            Ok(())
        );
    }
}
