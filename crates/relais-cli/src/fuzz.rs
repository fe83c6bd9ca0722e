//! Fuzz targets of the program: its settings, and what it prints. Each function panics if something does
//! not hold.

use std::path::Path;

use serde_json::json;

use self::parts::Parts;
use crate::{
    output::{Column, Lines, Output, Tone, escape, fields, harmless_json, hex, table},
    settings::{self, explain::explain, quantity},
};

#[path = "../../../fuzz/parts.rs"]
#[allow(dead_code)]
mod parts;
#[cfg(test)]
#[path = "../../../fuzz/run.rs"]
mod run;

/// What every environment variable holds here.
const FROM_ENVIRONMENT: &str = "CANARY-of-the-environment";
/// What stands in secret places of the corpus.
const IN_THE_FILE: &str = "CANARY-in-the-file";

/// Any text is settings, or is told what is wrong with it: at a place, without a secret.
pub(crate) fn settings(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let environment = |_: &str| Some(FROM_ENVIRONMENT.to_owned());
    let findings = match settings::read(Path::new("/nowhere/relais.toml"), &text, &environment) {
        Ok((settings, warnings)) => {
            assert!(!explain(&settings).is_empty() && !format!("{settings:?}").is_empty());
            warnings
        }
        Err(error) => {
            assert!(!error.findings.is_empty(), "wrong without a reason");
            error.findings
        }
    };
    let is_toml = text.parse::<toml::Table>().is_ok();
    for finding in findings {
        let told = format!("{finding} {}", json!(finding));
        assert!(!finding.message.is_empty());
        assert!(!told.contains(FROM_ENVIRONMENT), "{told}");
        // Names are shown, and a text that is no TOML can have anything for a name.
        let shows_a_name = told.contains("key `");
        assert!(is_toml || shows_a_name || !told.contains(IN_THE_FILE), "{told}");
    }
    let line = text.lines().next().unwrap_or_default();
    if let Ok(duration) = quantity::duration(line) {
        assert_eq!(quantity::duration(&quantity::show_duration(duration)), Ok(duration));
    }
    if let Ok(rate) = quantity::rate(line) {
        assert_eq!(quantity::rate(&quantity::show_rate(rate)), Ok(rate));
    }
    if let Ok(size) = quantity::size(line) {
        assert_eq!(quantity::size(&quantity::show_size(size)), Ok(size));
    }
}

/// No text of a message acts on a terminal, however it is shown.
pub(crate) fn terminal(input: &[u8]) {
    let mut parts = Parts::new(input);
    let texts = [parts.text(), parts.text(), parts.text()];
    let output = Output { json: false, color: false, terminal: true, width: Some(80) };
    let columns = [Column::Id("ID"), Column::Text("KEY"), Column::Number("N")];
    let row = texts.iter().map(|text| (text.clone(), Tone::of_status(text))).collect();
    let shown = table(&output, &columns, [row]);
    assert_harmless(&shown);
    assert!(shown.lines().count() <= 2, "a row is a line: {shown:?}");
    let [id, key, payload] = &texts;
    let row = json!({ "id": id, "key": key, "payload": payload, "headers": { key: [payload] } });
    assert_harmless(&fields(&output, &row).expect("it is JSON"));
    for text in &texts {
        assert_harmless(&escape(text, Lines::Keep));
        assert!(!escape(text, Lines::Escape).contains(['\n', '\t']));
    }
    assert_harmless(&hex(input));
    let shown = harmless_json(&serde_json::to_string_pretty(&row).expect("it is JSON"));
    assert_harmless(&shown);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).ok(), Some(row), "still the same");
}

fn assert_harmless(shown: &str) {
    let turns = |c| matches!(c, '\u{200E}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    let acts = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || turns(c);
    assert!(!shown.contains(acts), "{shown:?}");
}

#[cfg(test)]
mod tests {
    use super::run::run;

    #[test]
    fn any_text_is_settings_or_is_told_what_is_wrong_without_a_secret() {
        run("settings", 1_000, super::settings);
    }

    #[test]
    fn no_text_of_a_message_acts_on_a_terminal() {
        run("terminal", 1_000, super::terminal);
    }
}
