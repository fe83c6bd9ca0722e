//! Decisions about rows, dead letters, keys and breakers, pressed in the console and seen at the target.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
};

use serde_json::{Value, json};

use super::{ANN, OSKAR, TOKENS, place_badly, rows, sign_in, signed_in};
use crate::{
    browser::Browser,
    fixture::{LONG, OrderFixture},
};

/// Places an order whose command fails, and returns the outbox row in backoff for an hour.
fn row_in_backoff(fixture: &OrderFixture) -> Value {
    fixture.refuses_for_an_hour(500);
    fixture.place("o-1");
    fixture.command("TakePayment");
    fixture.wait("a row in backoff", || {
        let list = fixture.site.json(&["outbox", "list"]);
        let row = list.as_array()?.iter().find(|row| row["error_code"] == "HTTP_500")?.clone();
        (row["status"] == "PENDING").then_some(row)
    })
}

/// The audit log has these actions by this operator.
fn recorded(browser: &Browser, actions: &[&str]) {
    browser.go("#/audit");
    browser.sees(actions);
    browser.sees(&["oskar", "a test in a browser"]);
}

#[test]
fn a_row_in_backoff_is_sent_now() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    let row = row_in_backoff(&fixture);
    fixture.refuses(200);
    browser.go(&format!("#/outbox/{}", row["id"]));
    browser.press("Send now");
    browser.sees(&["Ends its backoff"]);
    browser.decide("Send now");
    browser.sees(&["The message is due."]);
    fixture.command("TakePayment");
    recorded(&browser, &["outbox.sent-now"]);
}

#[test]
fn a_pending_row_is_failed_and_its_dead_letter_retried_on_its_page() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    let row = row_in_backoff(&fixture);
    browser.go(&format!("#/outbox/{}", row["id"]));
    browser.press("Fail");
    browser.decide("Fail");
    browser.sees(&["The message is now a dead letter.", "Retry"]);
    assert!(!browser.offers("Fail") && !browser.offers("Send now"));
    assert_eq!(fixture.dead_letters().len(), 1);
    fixture.no_more_commands();
    fixture.refuses(200);
    browser.press("Retry");
    browser.decide("Retry");
    browser.sees(&["The message will be retried."]);
    fixture.command("TakePayment");
    assert!(fixture.dead_letters().is_empty());
    recorded(&browser, &["outbox.failed", "dead-letter.retried"]);
}

#[test]
fn a_failed_inbox_row_is_retried_on_its_page() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    place_badly(&fixture, "m-1");
    let letter = fixture.wait("a dead letter", || fixture.dead_letters().pop());
    browser.go(&format!("#/inbox/{}", letter["origin_id"]));
    browser.press("Retry");
    browser.decide("Retry");
    browser.sees(&["The message will be retried."]);
    fixture.wait("the decision", || {
        let all = fixture.site.json(&["dead-letter", "list", "--status", "all"]);
        let first = all.as_array()?.iter().find(|one| one["id"] == letter["id"])?.clone();
        (first["resolution"] == "retried").then_some(())
    });
    recorded(&browser, &["dead-letter.retried"]);
}

#[test]
fn all_matching_dead_letters_are_discarded_after_they_are_counted() {
    let Some((fixture, browser)) = signed_in(ANN) else { return };
    for id in ["m-1", "m-2"] {
        fixture.send(id, &[], &json!({"type": "Unheard"}));
    }
    place_badly(&fixture, "m-3");
    fixture.wait("three dead letters", || (fixture.dead_letters().len() == 3).then_some(()));
    browser.go("#/dead-letters?type=Unheard");
    browser.until("two rows", || (rows(&browser) == 2).then_some(()));
    browser.press("Discard all matching");
    browser.sees(&["2 dead letters", "type Unheard"]);
    browser.press("Cancel");
    assert_eq!(fixture.dead_letters().len(), 3, "nothing was decided");
    browser.press("Discard all matching");
    browser.decide("Discard 2");
    browser.sees(&["2 done, 0 unchanged, 0 refused", "No matches"]);
    let left = fixture.dead_letters();
    assert_eq!((left.len(), &left[0]["event_type"]), (1, &json!("OrderPlaced")));
}

#[test]
fn the_dead_letters_of_a_parked_key_are_discarded() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    fixture.refuses(400);
    fixture.place("o-1");
    fixture.command("TakePayment");
    browser.go("#/parked-keys");
    browser.until("a parked key", || (rows(&browser) == 1).then_some(()));
    browser.press("Discard");
    browser.sees(&["cannot be undone"]);
    browser.decide("Discard");
    browser.sees(&["1 done, 0 unchanged, 0 refused", "No parked keys"]);
    assert!(fixture.dead_letters().is_empty());
    fixture.no_more_commands();
    recorded(&browser, &["dead-letter.discarded"]);
}

/// Accepts deliveries at an address that refused connections before.
fn answer_at(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // The reply does not depend on the request.
            let _ = stream.read(&mut [0; 65_536]);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
}

#[test]
fn a_breaker_that_is_open_is_reset() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut fixture = OrderFixture::sqlite();
    let settings = fixture.settings(LONG);
    fixture.settle(&format!(
        "{settings}[[route]]\non = \"Lost\"\ndestination = \"gone\"\n[[destination]]\nname = \"gone\"\n\
         kind = \"http\"\nallow_private = true\nurl = \"http://{closed}/\"\n{TOKENS}"
    ));
    fixture.start();
    let Some(browser) = Browser::open(fixture.admin()) else { return };
    sign_in(&browser, OSKAR);
    fixture.send("m-1", &[], &json!({"type": "Lost"}));
    browser.go("#/destinations/gone");
    browser.sees(&["breaker open: unreachable"]);
    browser.press("Reset breaker");
    browser.sees(&["one message at once as a probe", "otherwise it opens again"]);
    answer_at(closed);
    browser.decide("Reset breaker");
    browser.sees(&["Circuit breaker reset."]);
    fixture.wait("a delivery", || {
        let delivered = fixture.site.json(&["outbox", "list", "--status", "dispatched"]);
        (delivered.as_array()?.len() == 1).then_some(())
    });
    recorded(&browser, &["destination.breaker-reset"]);
    browser.go("#/destinations/gone");
    browser.sees(&["reachable", "closed"]);
    assert!(!browser.offers("Reset breaker"));
}

#[test]
fn an_edit_is_formatted_and_cancelled() {
    let Some((fixture, browser)) = signed_in(ANN) else { return };
    place_badly(&fixture, "m-1");
    browser.go("#/dead-letters");
    browser.press("OrderPlaced");
    browser.press("Edit the payload");
    browser.fill("Payload", r#"{"cents":1}"#);
    browser.press("Format");
    let text = "return document.getElementById('payload')?.value ?? null";
    assert_eq!(browser.script(text, &[]), "{\n  \"cents\": 1\n}");
    browser.press("Cancel");
    browser.until("the payload as it was", || {
        let closed = browser.script(text, &[]).is_null();
        (closed && browser.offers("Edit the payload")).then_some(())
    });
    assert_eq!(fixture.dead_letters()[0]["edited_at"], Value::Null);
}
