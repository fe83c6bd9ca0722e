//! Fuzz targets of the program: its configuration and its output. Each function panics on a violation.

use std::path::Path;

use serde_json::json;

use self::parts::Parts;
use crate::{
    output::{LineBreaks, Output, TableColumn, Tone, escape, fields, harmless_json, hex, table},
    settings::{self, explain::explain, quantity},
};

#[path = "../../../fuzz/parts.rs"]
#[allow(dead_code)]
mod parts;
#[cfg(test)]
#[path = "../../../fuzz/run.rs"]
mod run;

/// The value of every environment variable.
const FROM_ENVIRONMENT: &str = "CANARY-of-the-environment";
/// The value of secrets in the corpus.
const IN_THE_FILE: &str = "CANARY-in-the-file";

/// Checks that any text is parsed or gets findings without secrets.
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
        let text = format!("{finding} {}", json!(finding));
        assert!(!finding.message.is_empty());
        assert!(!text.contains(FROM_ENVIRONMENT), "{text}");
        // Names are shown, and in a text that is not TOML anything may be a name.
        let shows_a_name = text.contains("key `");
        assert!(is_toml || shows_a_name || !text.contains(IN_THE_FILE), "{text}");
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

/// Checks that no text of a message controls a terminal in any format.
pub(crate) fn terminal(input: &[u8]) {
    let mut parts = Parts::new(input);
    let texts = [parts.text(), parts.text(), parts.text()];
    let output = Output { json: false, color: false, terminal: true, width: Some(80) };
    let columns = [TableColumn::Id("ID"), TableColumn::Text("KEY"), TableColumn::Number("N")];
    let row = texts.iter().map(|text| (text.clone(), Tone::of_status(text))).collect();
    let shown = table(&output, &columns, [row]);
    assert_harmless(&shown);
    assert!(shown.lines().count() <= 2, "a row is one line: {shown:?}");
    let [id, key, payload] = &texts;
    let row = json!({ "id": id, "key": key, "payload": payload, "headers": { key: [payload] } });
    assert_harmless(&fields(&output, &row).expect("it is JSON"));
    for text in &texts {
        assert_harmless(&escape(text, LineBreaks::Keep));
        assert!(!escape(text, LineBreaks::Escape).contains(['\n', '\t']));
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
    fn any_configuration_is_parsed_or_explained_without_secrets() {
        run("settings", 1_000, super::settings);
    }

    #[test]
    fn no_text_of_a_message_controls_a_terminal() {
        run("terminal", 1_000, super::terminal);
    }
}
