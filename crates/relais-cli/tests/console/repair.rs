//! The page of undecodable messages: every way to reprocess them, and to discard one.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use super::{ANN, OSKAR, TOKENS, rows, sign_in, signed_in};
use crate::{
    browser::Browser,
    fixture::{LONG, OrderFixture},
    support::post,
};

/// An order as JSON behind the number of a schema, which a source of JSON cannot decode.
fn framed(order: &str) -> String {
    format!("\0\0\0\0\u{7}{{\"type\": \"OrderPlaced\", \"orderId\": \"{order}\", \"cents\": 1}}")
}

/// An order in Latin-1, which a source of JSON cannot decode.
fn latin1(order: &str) -> Vec<u8> {
    let text = format!(
        "{{\"type\": \"OrderPlaced\", \"orderId\": \"{order}\", \"cents\": 1, \"name\": \"René\"}}"
    );
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

/// Sends bytes that are no text.
fn send_bytes(fixture: &OrderFixture, id: &str, body: &[u8]) {
    let mut stream = TcpStream::connect(fixture.hook()).unwrap();
    let head = format!(
        "POST /hook HTTP/1.1\r\nhost: test\r\nconnection: close\r\nmessage-id: {id}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
}

fn send(fixture: &OrderFixture, id: &str, body: &str) {
    let (status, answer) = post(fixture.hook(), "/hook", &[("message-id", id)], body);
    assert_eq!(status, 202, "{answer}");
}

/// Goes to the page of the first undecodable message.
fn open_first(browser: &Browser) {
    browser.go("#/repair");
    let first = "return document.querySelector('tr[data-key] a')?.getAttribute('href') ?? null";
    let href = browser.until("a row", || browser.script(first, &[]).as_str().map(str::to_owned));
    browser.go(&href);
    browser.sees(&["Decoding error"]);
}

#[test]
fn undecodable_messages_are_reprocessed_after_the_source_was_configured_again() {
    let mut fixture = OrderFixture::sqlite().open(LONG);
    for order in ["o-1", "o-2", "o-3"] {
        send_bytes(&fixture, order, &latin1(order));
    }
    fixture.stop();
    let declared = "source_system = \"shop\"\n";
    let settings =
        fixture.settings(LONG).replace(declared, &format!("{declared}decoder = \"json-latin1\"\n"));
    fixture.settle(&format!("{settings}{TOKENS}"));
    fixture.start();
    let Some(browser) = Browser::open(fixture.admin()) else { return };
    sign_in(&browser, OSKAR);
    open_first(&browser);
    browser.press("Test decode");
    browser.sees(&["Decoding succeeds", "Nothing was changed"]);
    browser.press("Reprocess");
    browser.decide("Reprocess");
    browser.sees(&["Reprocessed. The message will be handled.", "This message is resolved"]);
    fixture.command("TakePayment");
    browser.go("#/repair");
    browser.until("the other two", || (rows(&browser) == 2).then_some(()));
    browser.press("Reprocess all matching");
    browser.sees(&["Expected result", "2 reprocessed"]);
    fixture.no_more_commands();
    browser.decide("Reprocess");
    browser.sees(&["2 reprocessed.", "No undecodable messages"]);
    fixture.command("TakePayment");
    fixture.command("TakePayment");
    browser.go("#/audit");
    browser.sees(&["inbox.repaired", "oskar", "a test in a browser"]);
}

#[test]
fn an_undecodable_message_is_decoded_as_another_format() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    send(&fixture, "m-1", &framed("o-1"));
    open_first(&browser);
    browser.sees(&["needs the role admin"]);
    browser.press("Decode as confluent-json");
    browser.decide("Reprocess");
    browser.sees(&["This message is resolved"]);
    assert_eq!(fixture.command("TakePayment").payload["order"], "o-1");
}

#[test]
fn a_corrected_payload_is_formatted_and_an_undecodable_message_discarded() {
    let Some((fixture, browser)) = signed_in(ANN) else { return };
    send(&fixture, "m-1", "{");
    open_first(&browser);
    browser.fill("Corrected payload (JSON)", r#"{"type":"OrderPlaced"}"#);
    browser.press("Format");
    let text = "return document.getElementById('payload').value";
    assert_eq!(browser.script(text, &[]), "{\n  \"type\": \"OrderPlaced\"\n}");
    browser.press("Discard");
    browser.sees(&["Its bytes are kept"]);
    browser.decide("Discard");
    browser.sees(&["Discarded.", "This message is resolved"]);
    assert_eq!(fixture.site.json(&["inbox", "show", "1"])["status"], "FAILED");
    assert!(!browser.offers("Reprocess") && !browser.offers("Discard"));
    browser.go("#/audit");
    browser.sees(&["inbox.discarded", "ann"]);
}
