//! axe-core finds nothing on any page, in both themes, on a desk and on a phone.

use std::fs;

use serde_json::{Value, json};

use super::{ANN, opened, place_badly, sign_in};
use crate::{browser::Browser, fixture::OrderFixture, support::post};

/// Runs axe-core with all its rules.
const RUN: &str = "
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then(
        (found) => done(found.violations.map((one) => [one.id, one.help, one.nodes.map((node) => node.html)])),
        (error) => done(['axe-core failed', String(error)]))";

fn check(browser: &Browser, axe: &str, place: &str, words: &str) {
    open(browser, place, words);
    assert_clean(browser, axe, place);
}

fn open(browser: &Browser, place: &str, words: &str) {
    browser.go(place);
    browser.sees(&[words]);
    browser.until("an end of loading", || {
        let ready = "return document.querySelector('main[aria-busy]') === null";
        (browser.script(ready, &[]) == true).then_some(())
    });
}

/// Checks the page as it is now.
fn assert_clean(browser: &Browser, axe: &str, what: &str) {
    browser.script(axe, &[]);
    let found: Value = browser.script_later(RUN, &[]);
    assert_eq!(found, json!([]), "{what}");
}

/// Opens a dialog by its button, checks it and closes it.
fn check_dialog(browser: &Browser, axe: &str, place: &str, button: &str) {
    open(browser, place, "");
    // On a phone the header would cover a button above the last one of the same page.
    browser.script("scrollTo(0, 0)", &[]);
    browser.press(button);
    let open = || browser.script("return document.querySelector('dialog[open]') !== null", &[]);
    browser.until("a dialog", || (open() == true).then_some(()));
    assert_clean(browser, axe, &format!("{button} of {place}"));
    // Escape.
    browser.keys("\u{e00c}");
    browser.until("no dialog", || (open() == false).then_some(()));
}

/// Theme and width.
const LOOKS: [(&str, u32); 3] = [("light", 1440), ("dark", 1440), ("light", 390)];

fn choose_look(browser: &Browser, (theme, width): (&str, u32)) {
    browser.resize(width, 900);
    browser.script("localStorage.setItem('relais.theme', arguments[0])", &[json!(theme)]);
    browser.go("#/");
    browser.reload();
}

/// The script of axe-core, if the environment has it.
fn axe() -> Option<String> {
    let Ok(script) = std::env::var("RELAIS_TEST_AXE") else {
        assert!(std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_AXE");
        eprintln!("NOT TESTED: the console with axe-core; set RELAIS_TEST_AXE");
        return None;
    };
    Some(fs::read_to_string(script).unwrap())
}

/// Addresses of pages that show one item.
struct ItemPages {
    worker: String,
    backoff: String,
    letter: String,
    process: String,
    undecodable: String,
}

impl ItemPages {
    /// Brings about an item of each kind, and something paused.
    fn prepare(fixture: &OrderFixture, browser: &Browser) -> Self {
        place_badly(fixture, "m-1");
        post(fixture.hook(), "/hook", &[("message-id", "m-2")], "{");
        fixture.refuses_for_an_hour(500);
        fixture.place("o-2");
        fixture.command("TakePayment");
        let backoff = fixture.wait("a row in backoff", || {
            let list = fixture.site.json(&["outbox", "list"]);
            let mut rows = list.as_array()?.iter();
            Some(rows.find(|row| row["error_code"] == "HTTP_500")?["id"].to_string())
        });
        fixture.refuses(400);
        fixture.place("o-1");
        fixture.command("TakePayment");
        let letter = fixture.wait("a dead letter of the outbox", || {
            fixture.dead_letters().into_iter().find(|letter| letter["origin"] == "outbox")
        });
        let process = fixture.process("o-1")["process_id"].as_str().unwrap().to_owned();
        let pause = ["destination", "pause", "shipping", "--reason", "a test"];
        let paused = fixture.site.relais(&pause);
        assert_eq!(paused.code, 0, "{paused:?}");
        Self {
            worker: first_item(browser, "#/workers"),
            backoff: format!("#/outbox/{backoff}"),
            letter: format!("#/dead-letters/{}", letter["id"].as_str().unwrap()),
            process: format!("#/processes/{process}"),
            undecodable: first_item(browser, "#/repair"),
        }
    }

    fn all(&self) -> [(&str, &str); 21] {
        [
            ("#/", "Throughput"),
            ("#/destinations", "payments"),
            ("#/destinations/shipping", "Circuit breaker"),
            ("#/sources", "hook"),
            ("#/sources/hook", "Received since start"),
            ("#/workers", "alive"),
            (&self.worker, "Leased lanes"),
            ("#/inbox", "OrderPlaced"),
            ("#/inbox/1", "Timeline"),
            ("#/outbox", "TakePayment"),
            (&self.backoff, "Send now"),
            ("#/dead-letters", "OrderPlaced"),
            (&self.letter, "Last error"),
            ("#/parked-keys", "Longest parked first"),
            ("#/processes", "o-1"),
            (&self.process, "Steps"),
            ("#/repair", "shop"),
            (&self.undecodable, "Corrected payload"),
            ("#/explain/m-1", "History of"),
            ("#/audit", "a test"),
            ("#/nowhere", "no such page"),
        ]
    }

    /// A page and the button of each dialog.
    fn dialogs(&self) -> [(&str, &str); 18] {
        [
            ("#/destinations/payments", "Pause"),
            ("#/destinations/payments", "Change limits"),
            ("#/destinations/shipping", "Resume"),
            ("#/sources/hook", "Pause"),
            ("#/processes", "Pause order"),
            (&self.process, "Pause"),
            (&self.process, "Cancel the process"),
            (&self.backoff, "Send now"),
            (&self.backoff, "Fail"),
            ("#/dead-letters", "Retry all matching"),
            ("#/dead-letters", "Discard all matching"),
            (&self.letter, "Retry"),
            (&self.letter, "Discard"),
            ("#/parked-keys", "Release"),
            ("#/parked-keys", "Discard"),
            ("#/repair", "Reprocess all matching"),
            (&self.undecodable, "Reprocess"),
            (&self.undecodable, "Discard"),
        ]
    }
}

/// The address of the first item of a list.
fn first_item(browser: &Browser, list: &str) -> String {
    browser.go(list);
    // The list of the page before may still be shown.
    let first = "return document.querySelector(`tr[data-key] a[href^=\"${arguments[0]}/\"]`)
        ?.getAttribute('href') ?? null";
    browser.until("an item", || browser.script(first, &[json!(list)]).as_str().map(str::to_owned))
}

#[test]
fn axe_core_finds_nothing_on_any_page() {
    let Some(axe) = axe() else { return };
    let Some((mut fixture, browser)) = opened() else { return };
    for look in LOOKS {
        choose_look(&browser, look);
        browser.sees(&["Sign in with a token"]);
        assert_clean(&browser, &axe, "the sign-in page");
    }
    // The menu is closed on a phone.
    choose_look(&browser, LOOKS[0]);
    browser.fill("Token", "not-a-token");
    browser.press("Sign in");
    browser.sees(&["Invalid token"]);
    assert_clean(&browser, &axe, "a refused token");
    sign_in(&browser, ANN);
    let items = ItemPages::prepare(&fixture, &browser);
    for look in LOOKS {
        choose_look(&browser, look);
        for (place, words) in items.all() {
            check(&browser, &axe, place, words);
        }
        open(&browser, &items.letter, "Edit the payload");
        browser.press("Edit the payload");
        browser.fill("Payload", "{");
        browser.press("Validate");
        browser.sees(&["This is not JSON"]);
        assert_clean(&browser, &axe, "an open edit form");
    }
    browser.go("#/");
    browser.reload();
    browser.sees(&["Throughput"]);
    fixture.stop();
    browser.sees(&["No connection to relais"]);
    assert_clean(&browser, &axe, "dimmed figures");
}

#[test]
fn axe_core_finds_nothing_in_any_dialog() {
    let Some(axe) = axe() else { return };
    let Some((fixture, browser)) = opened() else { return };
    sign_in(&browser, ANN);
    let items = ItemPages::prepare(&fixture, &browser);
    for look in LOOKS {
        choose_look(&browser, look);
        for (place, button) in items.dialogs() {
            check_dialog(&browser, &axe, place, button);
        }
        browser.keys("?");
        browser.sees(&["find by ID"]);
        assert_clean(&browser, &axe, "the help");
    }
}
