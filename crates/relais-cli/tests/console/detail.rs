//! The configuration on the pages of a destination and a source, and a dead letter that is edited and retried in
//! one step.

use serde_json::json;

use super::{ANN, VERA, signed_in};

#[test]
fn destinations_and_sources_show_their_effective_configuration() {
    let Some((fixture, browser)) = signed_in(VERA) else { return };
    // The same lines as `relais check` prints.
    let checked = fixture.site.json(&["check", "--offline"]);
    let lines = |section: &str, name: &str| {
        let sections = checked["sections"].as_array().unwrap().iter();
        let mut found = sections.filter(|one| one["section"] == section && one["name"] == name);
        let lines = found.next().unwrap()["lines"].as_array().unwrap().iter();
        lines.map(|line| line.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (section, name) in [("destination", "payments"), ("source", "hook")] {
        let expected = lines(section, name);
        assert!(expected.len() > 1, "{expected:?}");
        browser.go(&format!("#/{section}s/{name}"));
        let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        expected.push("Configuration");
        browser.sees(&expected);
    }
}

#[test]
fn a_payload_is_saved_and_retried_with_one_reason_and_its_row_is_followed() {
    let Some((fixture, browser)) = signed_in(ANN) else { return };
    fixture.refuses(422);
    fixture.place("o-1");
    let letter = fixture.wait("a dead letter", || fixture.dead_letters().pop());
    fixture.command("TakePayment");
    fixture.refuses(200);
    browser.go(&format!("#/dead-letters/{}", letter["id"].as_str().unwrap()));
    browser.press("Edit the payload");
    browser.fill("Payload", r#"{"cents": 13"#);
    browser.press("Save and retry");
    browser.sees(&["This is not JSON"]);
    browser.fill("Payload", r#"{"cents": 13}"#);
    browser.press("Save and retry");
    browser.decide("Save and retry");
    // No reload and no click: the page follows the row to its end.
    browser.sees(&["retried", "Row now", "delivered", "Payload before it was edited"]);
    assert_eq!(fixture.command("TakePayment").payload, json!({"cents": 13}));
    browser.go("#/audit");
    browser.sees(&["dead-letter.edited", "dead-letter.retried"]);
    let reasons = browser.text().matches("a test in a browser").count();
    assert_eq!(reasons, 2, "one reason, two entries: {}", browser.text());
}
