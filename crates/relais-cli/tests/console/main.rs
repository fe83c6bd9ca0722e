//! The web console in a real browser, on the real program.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod accessibility;
mod browser;
#[allow(dead_code)]
#[path = "../admin/client.rs"]
mod client;
mod controls;
mod corpus;
mod detail;
mod frame;
mod grid;
mod kinds;
mod labels;
mod outage;
mod pictures;
mod repair;
mod replicas;
mod rows;
// Some helpers are made for other tests of the program.
#[allow(dead_code, unused_macros)]
#[path = "../process/fixture.rs"]
mod fixture;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use browser::Browser;
use fixture::{LONG, OrderFixture};
use serde_json::{Value, json};
use support::post;

/// The tokens; the configuration has only their hashes.
const ANN: &str = "browser-ann-token";
const OSKAR: &str = "browser-oskar-token";
const VERA: &str = "browser-vera-token";

const TOKENS: &str = r#"
[[admin.tokens]]
name = "ann"
role = "admin"
sha256 = "6087301539745219d2bac4cff99f4a81400178064d355bc64bbf98c8ddfb9b31"
[[admin.tokens]]
name = "oskar"
role = "operator"
sha256 = "0f997ea57b44dbac91833f46c4358cd2d7b1c205b56d7868ff787acaa87a31d9"
[[admin.tokens]]
name = "vera"
role = "viewer"
sha256 = "739066af67495430ea58de57c7aa4ac55e2320f44500c18e0a1a1248ced7d99a"
"#;

/// A fixture that is open, and a browser at its console's door.
fn opened() -> Option<(OrderFixture, Browser)> {
    let mut fixture = OrderFixture::sqlite();
    fixture.settle(&format!("{}{TOKENS}", fixture.settings(LONG)));
    fixture.start();
    let browser = Browser::open(fixture.admin())?;
    Some((fixture, browser))
}

/// Starts a browser with a signed-in operator.
fn signed_in(token: &str) -> Option<(OrderFixture, Browser)> {
    let (fixture, browser) = opened()?;
    sign_in(&browser, token);
    Some((fixture, browser))
}

fn sign_in(browser: &Browser, token: &str) {
    browser.fill("Token", token);
    browser.press("Sign in");
    browser.sees(&["Overview", "Workers"]);
}

/// A message the order process cannot begin with: its id is missing.
fn place_badly(fixture: &OrderFixture, id: &str) {
    fixture.send(id, &[], &json!({"type": "OrderPlaced", "cents": 1}));
}

#[test]
fn an_operator_signs_in_sees_live_figures_and_signs_out() {
    let Some((fixture, browser)) = opened() else { return };
    browser.fill("Token", "not-a-token");
    browser.press("Sign in");
    browser.sees(&["Invalid token"]);
    sign_in(&browser, ANN);
    browser.until("a live stream", || {
        let state =
            browser.script("return document.querySelector('.live-state').dataset.state", &[]);
        (state == "live").then_some(())
    });
    let received = || {
        const BOX: &str =
            "return [...document.querySelectorAll('.box')].map((one) => one.innerText)
            .find((text) => text.startsWith('Messages received')) ?? null";
        browser.script(BOX, &[])
    };
    let before = received();
    for order in 0..20 {
        fixture.place(&format!("o-{order}"));
    }
    browser.until("other numbers", || (received() != before).then_some(()));
    browser.until("all received messages as handled", || {
        received().as_str()?.contains("handled\n20").then_some(())
    });
    browser.reload();
    browser.sees(&["Overview", "Throughput", "ann"]);
    browser.press("Sign out");
    browser.sees(&["Sign in with a token"]);
    browser.go("#/inbox");
    browser.reload();
    browser.sees(&["Sign in with a token"]);
    sign_in_at(&browser, VERA, "Inbox");
    browser.forget_session();
    browser.press("Outbox");
    browser.sees(&["Sign in with a token"]);
    sign_in_at(&browser, VERA, "Outbox");
}

/// After sign-in the requested page is shown.
fn sign_in_at(browser: &Browser, token: &str, title: &str) {
    browser.fill("Token", token);
    browser.press("Sign in");
    browser.until(title, || {
        (browser.script("return document.querySelector('h1')?.innerText ?? null", &[]) == title)
            .then_some(())
    });
}

#[test]
fn a_dead_letter_is_edited_validated_and_retried() {
    let Some((fixture, browser)) = signed_in(ANN) else { return };
    place_badly(&fixture, "m-1");
    browser.go("#/dead-letters");
    browser.press("OrderPlaced");
    browser.sees(&["Last error", "Attempts", "Timeline", "Received from shop"]);
    browser.press("Edit the payload");
    browser.fill("Payload", r#"{"type": "OrderPlaced""#);
    browser.press("Validate");
    browser.sees(&["This is not JSON"]);
    browser.fill("Payload", r#"{"type": "OrderPlaced"}"#);
    browser.press("Validate");
    browser.sees(&["Validation failed"]);
    // A number that no browser can hold.
    let fixed = r#"{"type": "OrderPlaced", "orderId": "o-1", "cents": 12345678901234567890}"#;
    browser.fill("Payload", fixed);
    browser.press("Validate");
    browser.sees(&["Validation passed"]);
    browser.press("Save");
    browser.decide("Save");
    browser.sees(&["Payload before it was edited", "edited", "12345678901234567890"]);
    browser.press("Retry");
    browser.decide("Retry");
    browser.sees(&["retried", "Decided"]);
    assert!(!browser.offers("Retry"), "it is decided");
    let command = fixture.command("TakePayment");
    assert_eq!(command.payload, json!({"order": "o-1", "cents": 12_345_678_901_234_567_890_u64}));
    browser.go("#/dead-letters");
    browser.sees(&["No dead letter"]);
    browser.go("#/audit");
    browser.sees(&["ann", "a test in a browser"]);
}

/// Only its syntax can be known before it is sent, and the console says no more than that.
#[test]
fn a_valid_payload_of_an_outgoing_message_is_not_called_deliverable() {
    let Some((fixture, browser)) = signed_in(ANN) else { return };
    fixture.refuses(422);
    fixture.place("o-1");
    let letter = fixture.wait("a dead letter", || fixture.dead_letters().pop());
    assert_eq!(letter["origin"], "outbox", "{letter}");
    let letter = letter["id"].as_str().unwrap().to_owned();
    browser.go(&format!("#/dead-letters/{letter}"));
    browser.press("Edit the payload");
    browser.fill("Payload", r#"{"cents": "thirteen"}"#);
    browser.press("Validate");
    browser.sees(&["Valid JSON", "only when the message is sent"]);
    let page = browser.script("return document.body.innerText", &[]);
    let page = page.as_str().unwrap().to_lowercase();
    for untrue in ["would go through", "passes", "deliverable"] {
        assert!(!page.contains(untrue), "{untrue}: {page}");
    }
    let payload = r#"{"cents": "thirteen"}"#;
    let edit = ["dead-letter", "edit", &letter, "--payload", payload, "--dry-run"];
    let said = fixture.site.relais(&edit);
    let wanted = "valid JSON; the destination checks it only";
    assert!(said.code == 0 && said.out.contains(wanted), "{said:?}");
}

#[test]
fn many_dead_letters_are_counted_before_they_are_retried() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    for id in ["m-1", "m-2", "m-3"] {
        fixture.send(id, &[], &json!({"type": "Unheard"}));
    }
    place_badly(&fixture, "m-4");
    browser.go("#/dead-letters?type=Unheard");
    browser.until("three rows", || (rows(&browser) == 3).then_some(()));
    assert!(!browser.offers("Discard all matching"), "that takes an admin");
    browser.press("Retry all matching");
    browser.sees(&["3 dead letters", "type Unheard", "Recorded as oskar"]);
    browser.decide("Retry 3");
    browser.sees(&["3 done, 0 unchanged, 0 refused"]);
}

/// Rows of the list that is shown.
fn rows(browser: &Browser) -> u64 {
    let count = browser.script("return document.querySelectorAll('tr[data-key]').length", &[]);
    count.as_u64().unwrap()
}

#[test]
fn an_undecodable_message_is_reprocessed_with_a_corrected_payload() {
    let Some((fixture, browser)) = signed_in(ANN) else { return };
    let broken = r#"{"type": "OrderPlaced", "orderId": "o-1", "cents": 42"#;
    let (status, answer) = post(fixture.hook(), "/hook", &[("message-id", "m-1")], broken);
    assert_eq!(status, 202, "{answer}");
    browser.go("#/repair");
    browser.until("a row", || (rows(&browser) == 1).then_some(()));
    browser.keys("j");
    browser.keys("\u{e007}");
    browser.sees(&["Decoding error", "7b 22 74 79 70 65", broken]);
    browser.press("Test decode");
    browser.sees(&["Decoding fails"]);
    browser.fill("Corrected payload (JSON)", &format!("{broken}}}"));
    browser.press("Validate");
    browser.sees(&["Decoding succeeds"]);
    browser.press("Reprocess with this payload");
    browser.decide("Reprocess");
    browser.sees(&["This message is resolved"]);
    assert_eq!(fixture.command("TakePayment").payload, json!({"order": "o-1", "cents": 42}));
    browser.go("#/repair");
    browser.sees(&["No undecodable messages"]);
}

#[test]
fn a_process_is_paused_and_resumed() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    fixture.place("o-1");
    fixture.command("TakePayment");
    browser.go("#/processes?status=running");
    browser.press("o-1");
    browser.sees(&["Steps", "payment", "running", "shipment", "not started", "process started"]);
    browser.press("Pause");
    browser.decide("Pause");
    browser.sees(&["The process is now paused", "process paused", "by oskar: a test in a browser"]);
    assert_eq!(fixture.process("o-1")["status"], "PAUSED");
    assert!(!browser.offers("Pause"), "only what is possible now is offered");
    browser.press("Resume");
    browser.decide("Resume");
    browser.sees(&["The process is now running", "process resumed"]);
    assert_eq!(fixture.process("o-1")["status"], "RUNNING");
}

#[test]
fn a_process_is_compensated_and_another_cancelled() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    fixture.place("o-1");
    let first = fixture.command("TakePayment");
    browser.go("#/processes");
    browser.press("o-1");
    browser.press("Retry the step");
    browser.decide("Retry the step");
    let again = fixture.command("TakePayment");
    assert_ne!(again.message_id, first.message_id);
    fixture.reply(&again, "PaymentTaken", json!({"id": "p-1"}));
    fixture.command("Ship");
    browser.sees(&["step shipment started"]);
    browser.press("Compensate");
    browser.decide("Compensate");
    let refund = fixture.command("RefundPayment");
    fixture.reply(&refund, "PaymentRefunded", json!({}));
    fixture.until("o-1", "COMPENSATED");
    browser.sees(&["compensated", "by oskar: a test in a browser"]);
    fixture.place("o-2");
    fixture.command("TakePayment");
    browser.go("#/processes");
    browser.press("o-2");
    browser.press("Cancel the process");
    browser.sees(&["completed steps are not compensated"]);
    browser.decide("Cancel the process");
    browser.sees(&["The process is now failed"]);
    fixture.until("o-2", "FAILED");
    fixture.no_more_commands();
    browser.go("#/audit");
    browser.sees(&["process.retried", "process.compensated", "process.cancelled"]);
}

#[test]
fn without_tokens_the_console_asks_for_the_actor_once() {
    let fixture = OrderFixture::sqlite().open(LONG);
    let Some(browser) = Browser::open(fixture.admin()) else { return };
    browser.sees(&["Overview", "this machine"]);
    fixture.place("o-1");
    fixture.command("TakePayment");
    browser.go("#/processes");
    browser.press("o-1");
    browser.press("Pause");
    browser.fill("Your name", "bea");
    browser.decide("Pause");
    browser.sees(&["by bea: a test in a browser"]);
    browser.press("Resume");
    browser.decide("Resume");
    browser.sees(&["The process is now running"]);
    let log = fixture.process("o-1")["log"].clone();
    let by = log
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["pausedBy"] == "bea" || entry["resumedBy"] == "bea")
        .count();
    assert_eq!(by, 2, "{log}");
}

#[test]
fn a_large_payload_is_shown_in_part_and_cannot_be_edited_by_mistake() {
    let Some((fixture, browser)) = signed_in(ANN) else { return };
    let large = "x".repeat(2 << 20);
    fixture.send("m-1", &[], &json!({"type": "Unheard", "large": large, "last": "the very end"}));
    browser.go("#/dead-letters");
    browser.press("Unheard");
    browser.sees(&["2 MiB", "only the beginning is shown", "too large to be edited here"]);
    assert!(!browser.offers("Edit the payload"));
    const LOAD: &str = "
        const link = [...document.querySelectorAll('a')].find((one) => one.innerText === 'Download');
        const request = new XMLHttpRequest();
        request.open('GET', link.href, false);
        request.send();
        return [request.status, request.getResponseHeader('content-disposition').split(';')[0],
            request.responseText.includes('the very end')]";
    assert_eq!(browser.script(LOAD, &[]), json!([200, "attachment", true]));
}

#[test]
fn a_parked_key_is_released() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    fixture.refuses(400);
    fixture.place("o-1");
    fixture.command("TakePayment");
    browser.go("#/parked-keys");
    browser.until("a parked key", || (rows(&browser) == 1).then_some(()));
    fixture.refuses(200);
    browser.press("Release");
    browser.decide("Release");
    browser.sees(&["1 done, 0 unchanged, 0 refused", "No parked keys"]);
    fixture.command("TakePayment");
}

#[test]
fn filters_and_pages_are_in_the_address_and_survive_a_reload() {
    let Some((fixture, browser)) = signed_in(VERA) else { return };
    for number in 0..120 {
        let kind = if number % 2 == 0 { "Even" } else { "Odd" };
        fixture.send(&format!("m-{number}"), &[], &json!({ "type": kind }));
    }
    browser.go("#/inbox");
    browser.fill("Type", "Even");
    browser.press("Filter");
    browser.until("fifty rows of it", || {
        (rows(&browser) == 50 && !browser.text().contains("Odd")).then_some(())
    });
    assert_eq!(browser.address_bar(), "#/inbox?type=Even");
    browser.press("Next");
    browser.until("the last ten", || (rows(&browser) == 10).then_some(()));
    let address = browser.address_bar();
    assert!(address.starts_with("#/inbox?type=Even&before="), "{address}");
    browser.reload();
    browser.until("the same ten", || (rows(&browser) == 10).then_some(()));
    assert_eq!(browser.address_bar(), address);
    browser.press("Previous");
    browser.until("the first fifty", || (rows(&browser) == 50).then_some(()));
    browser.choose("Status", "received");
    browser.sees(&["No matches"]);
    assert_eq!(browser.address_bar(), "#/inbox?status=received&type=Even");
    browser.press("Clear the filters");
    browser.until("everything", || browser.text().contains("Odd").then_some(()));
    // Keyboard shortcuts.
    browser.keys("go");
    browser.sees(&["Throughput"]);
    browser.keys("/");
    let focus = browser.script("return document.activeElement.id", &[]);
    assert_eq!(focus, "find");
    browser.keys("m-7\u{e007}");
    browser.sees(&["History of", "Timeline", "Received from shop"]);
}

#[test]
fn of_two_tabs_on_one_row_the_slower_sees_the_new_state() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    place_badly(&fixture, "m-1");
    browser.go("#/dead-letters");
    browser.press("OrderPlaced");
    browser.sees(&["Last error"]);
    let (address, first) = (browser.address_bar(), browser.tab());
    browser.press("Discard");
    browser.fill("Reason", "too slow");
    browser.new_tab();
    browser.go(&address);
    browser.press("Discard");
    browser.decide("Discard");
    browser.sees(&["discarded"]);
    browser.switch(&first);
    browser.press("Discard");
    browser.sees(&["The state has changed", "by `oskar`", "Nothing was changed", "discarded"]);
    assert!(!browser.offers("Discard"), "what is shown is how it is now");
}

#[test]
fn a_viewer_sees_everything_and_is_offered_nothing() {
    let Some((fixture, browser)) = signed_in(VERA) else { return };
    place_badly(&fixture, "m-1");
    fixture.refuses(400);
    fixture.place("o-1");
    fixture.command("TakePayment");
    post(fixture.hook(), "/hook", &[("message-id", "m-2")], "{");
    let letter = fixture.wait("a dead letter", || fixture.dead_letters().pop());
    let process = fixture.process("o-1")["process_id"].as_str().unwrap().to_owned();
    let look = |place: &str, words: &str| {
        browser.go(place);
        browser.sees(&[words]);
        let shown = "return [...document.querySelectorAll('main button')].map((one) => one.innerText.trim())";
        let known = ["", "Raw", "Filter", "Next", "Previous"];
        for button in browser.script(shown, &[]).as_array().unwrap() {
            assert!(known.contains(&button.as_str().unwrap()), "{place} offers {button}");
        }
    };
    look("#/dead-letters", "OrderPlaced");
    look(&format!("#/dead-letters/{}", letter["id"].as_str().unwrap()), "Last error");
    look("#/parked-keys", "Behind");
    look(&format!("#/processes/{process}"), "payment");
    look("#/repair", "shop");
    browser.press("3");
    look(&browser.address_bar(), "Decoding error");
    look("#/audit", "No actions yet");
}

#[test]
fn missing_items_are_reported_with_the_next_step() {
    let Some((_shop, browser)) = signed_in(VERA) else { return };
    for (place, words) in [
        ("#/inbox/999", ["No inbox row", "Check the ID"]),
        ("#/dead-letters/00000000-0000-4000-8000-000000000000", ["dead letter", "Check the ID"]),
        ("#/dead-letters/none", ["The request failed", "Try again"]),
        ("#/explain/nothing-has-this-id", ["dead letter has the id", "Check the ID"]),
        ("#/nowhere", ["There is no such page", "enter an ID"]),
        ("#/inbox?since_seconds=1;DROP", ["The request failed", "Try again"]),
    ] {
        browser.go(place);
        browser.until(place, || {
            let text = browser.text().to_lowercase();
            words.iter().all(|word| text.contains(&word.to_lowercase())).then_some(())
        });
    }
}

/// Nothing of what messages carry ran, and the page's policy had nothing to stop.
fn nothing_ran(browser: &Browser, place: &str) {
    let trace: Value = browser.script("return [window.ran, window.violations]", &[]);
    assert_eq!(trace, json!([[], []]), "{place}");
    let made = "return [...document.querySelectorAll('main :is(script, img, iframe, object, embed, base, meta, link, style, video, audio, math, marquee)')].map((one) => one.outerHTML)";
    assert_eq!(browser.script(made, &[]), json!([]), "{place}");
}
