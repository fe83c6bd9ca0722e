//! axe-core finds nothing on any page, in both themes, on a desk and on a phone.

use std::fs;

use serde_json::{Value, json};

use super::{ANN, place_badly, signed_in};
use crate::{browser::Browser, support::post};

/// Runs axe-core with all its rules.
const RUN: &str = "
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then(
        (found) => done(found.violations.map((one) => [one.id, one.help, one.nodes.map((node) => node.html)])),
        (error) => done(['axe-core failed', String(error)]))";

fn check(browser: &Browser, axe: &str, place: &str, words: &str) {
    browser.go(place);
    browser.sees(&[words]);
    browser.until("an end of loading", || {
        let ready = "return document.querySelector('main[aria-busy]') === null";
        (browser.script(ready, &[]) == true).then_some(())
    });
    browser.script(axe, &[]);
    let found: Value = browser.script_later(RUN, &[]);
    assert_eq!(found, json!([]), "{place}");
}

#[test]
fn axe_core_finds_nothing_on_any_page() {
    let Ok(script) = std::env::var("RELAIS_TEST_AXE") else {
        assert!(std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_AXE");
        eprintln!("NOT TESTED: the console with axe-core; set RELAIS_TEST_AXE");
        return;
    };
    let axe = fs::read_to_string(script).unwrap();
    let Some((mut fixture, browser)) = signed_in(ANN) else { return };
    place_badly(&fixture, "m-1");
    post(fixture.hook(), "/hook", &[("message-id", "m-2")], "{");
    fixture.refuses(400);
    fixture.place("o-1");
    fixture.command("TakePayment");
    let letter = fixture.wait("a dead letter", || fixture.dead_letters().pop());
    let letter = format!("#/dead-letters/{}", letter["id"].as_str().unwrap());
    let process = fixture.process("o-1")["process_id"].as_str().unwrap().to_owned();
    let process = format!("#/processes/{process}");
    let paused = fixture.site.relais(&["destination", "pause", "shipping", "--reason", "a test"]);
    assert_eq!(paused.code, 0, "{paused:?}");
    browser.go("#/workers");
    let worker = browser.until("a worker", || {
        let key = "return document.querySelector('tr[data-key]')?.dataset.key ?? null";
        Some(format!("#/workers/{}", browser.script(key, &[]).as_str()?))
    });
    let pages = [
        ("#/", "Throughput"),
        ("#/destinations", "payments"),
        ("#/destinations/shipping", "Circuit breaker"),
        ("#/sources", "hook"),
        ("#/sources/hook", "Received since start"),
        ("#/workers", "alive"),
        (worker.as_str(), "Leased lanes"),
        ("#/inbox", "OrderPlaced"),
        ("#/inbox/1", "Timeline"),
        ("#/outbox", "TakePayment"),
        ("#/dead-letters", "OrderPlaced"),
        (letter.as_str(), "Last error"),
        ("#/parked-keys", "Longest parked first"),
        ("#/processes", "o-1"),
        (process.as_str(), "Steps"),
        ("#/repair", "shop"),
        ("#/explain/m-1", "History of"),
        ("#/audit", "a test"),
        ("#/nowhere", "no such page"),
    ];
    for (theme, width) in [("light", 1440), ("dark", 1440), ("light", 390)] {
        browser.resize(width, 900);
        browser.script("localStorage.setItem('relais.theme', arguments[0])", &[json!(theme)]);
        browser.go("#/");
        browser.reload();
        for (place, words) in pages {
            check(&browser, &axe, place, words);
        }
    }
    browser.go("#/destinations/payments");
    browser.press("Change limits");
    browser.sees(&["until they are reset"]);
    assert_eq!(browser.script_later(RUN, &[]), json!([]), "an open dialog");
    browser.go("#/");
    browser.reload();
    browser.sees(&["Throughput"]);
    fixture.stop();
    browser.sees(&["No connection to relais"]);
    browser.script(&axe, &[]);
    assert_eq!(browser.script_later(RUN, &[]), json!([]), "dimmed figures");
}
