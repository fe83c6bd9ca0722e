//! What every page has: the theme, the help, dialogs that are cancelled, and pages that fail.

use serde_json::json;

use super::{OSKAR, VERA, signed_in};
use crate::browser::Browser;

/// Answers calls whose address contains some text in place of relais.
const ANSWER: &str = "
    const [path, status, body] = arguments;
    const real = window.fetch;
    window.restore = () => { window.fetch = real; };
    window.fetch = (url, options) => String(url).includes(path)
        ? Promise.resolve(new Response(body, { status, headers: { 'content-type': 'application/json' } }))
        : real(url, options)";

fn until_closed(browser: &Browser) {
    browser.until("no dialog", || {
        let closed = "return document.querySelector('dialog[open]') === null";
        (browser.script(closed, &[]) == true).then_some(())
    });
}

#[test]
fn the_theme_is_switched_and_kept() {
    let Some((_fixture, browser)) = signed_in(VERA) else { return };
    let background =
        || browser.script("return getComputedStyle(document.body).backgroundColor", &[]);
    let theme = || browser.script("return document.documentElement.dataset.theme ?? null", &[]);
    browser.press("Theme: system");
    assert_eq!(theme(), "dark");
    let dark = background();
    browser.reload();
    browser.sees(&["Overview"]);
    assert_eq!((theme(), background()), (json!("dark"), dark.clone()));
    browser.press("Theme: dark");
    assert_eq!(theme(), "light");
    assert_ne!(background(), dark);
    browser.press("Theme: light");
    assert_eq!(theme(), json!(null));
    browser.reload();
    browser.sees(&["Overview"]);
    assert_eq!(theme(), json!(null));
}

#[test]
fn the_help_lists_the_shortcuts_and_each_of_them_works() {
    let Some((_fixture, browser)) = signed_in(VERA) else { return };
    const HELP: &str =
        "document.querySelector('header button[title=\"Keyboard shortcuts\"]').click()";
    browser.script(HELP, &[]);
    browser.sees(&["Keyboard shortcuts", "find by ID"]);
    browser.press("Close");
    until_closed(&browser);
    browser.keys("?");
    browser.sees(&["find by ID"]);
    // Escape, the key of every dialog.
    browser.keys("\u{e00c}");
    until_closed(&browser);
    for (keys, title) in [
        ("gt", "Destinations"),
        ("gs", "Sources"),
        ("gw", "Workers"),
        ("gi", "Inbox"),
        ("gu", "Outbox"),
        ("gd", "Dead letters"),
        ("gk", "Parked keys"),
        ("gp", "Processes"),
        ("gr", "Repair"),
        ("ga", "Audit"),
        ("go", "Overview"),
    ] {
        browser.keys(keys);
        browser.until(title, || {
            let heading = "return document.querySelector('h1')?.innerText ?? null";
            (browser.script(heading, &[]) == title).then_some(())
        });
    }
}

#[test]
fn a_cancelled_dialog_changes_nothing() {
    let Some((fixture, browser)) = signed_in(OSKAR) else { return };
    browser.go("#/destinations/payments");
    browser.press("Pause");
    browser.fill("Reason", "a test in a browser");
    browser.press("Cancel");
    until_closed(&browser);
    assert!(browser.offers("Pause") && !browser.offers("Resume"));
    assert_eq!(fixture.site.json(&["audit", "list"]), json!([]));
}

#[test]
fn a_page_that_fails_is_loaded_again() {
    let Some((_fixture, browser)) = signed_in(VERA) else { return };
    let answer = |status: u16, body: &str| {
        browser.script(ANSWER, &[json!("api/v1/inbox"), json!(status), json!(body)]);
    };
    answer(500, r#"{"code": "INTERNAL", "detail": "out of order"}"#);
    browser.go("#/inbox");
    browser.sees(&["The request failed", "Out of order."]);
    browser.script("window.restore()", &[]);
    browser.press("Try again");
    browser.sees(&["No messages yet"]);
    // An answer that no version of relais gives.
    browser.go("#/outbox");
    browser.sees(&["The outbox is empty"]);
    answer(200, "{}");
    browser.go("#/inbox");
    browser.sees(&["This page failed", "Reload it"]);
    browser.press("Reload");
    browser.sees(&["No messages yet"]);
}

/// A filter may match none of the rows that one request looks at.
#[test]
fn older_rows_are_searched_by_a_button() {
    let Some((_fixture, browser)) = signed_in(VERA) else { return };
    let page = json!({"items": [], "next": "17"}).to_string();
    browser.script(ANSWER, &[json!("api/v1/inbox"), json!(200), json!(page)]);
    browser.go("#/inbox?type=Rare");
    browser.sees(&["No matches yet"]);
    browser.press("Search older rows");
    browser.until("the next page", || {
        (browser.address_bar() == "#/inbox?type=Rare&before=17").then_some(())
    });
}
