//! Errors and warnings about a configuration file, each with its place and its key.
//!
//! Invariant: a finding never shows a value that may be secret. Values are shown as they are written
//! in the file (before `${…}` is expanded), and those of hidden keys not at all.

use std::{fmt, ops::Range};

use serde::Serialize;

use super::excerpt::Excerpt;

/// A part of the file: line and column, both from 1, the column in characters; and its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct FilePlace {
    pub(crate) line: usize,
    pub(crate) column: usize,
    #[serde(skip)]
    pub(super) start: usize,
    #[serde(skip)]
    pub(super) end: usize,
}

impl FilePlace {
    /// Returns the place of some bytes of `text`.
    pub(super) fn of(text: &str, bytes: Range<usize>) -> Self {
        let before = text.get(..bytes.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            start: before.len(),
            end: bytes.end,
        }
    }
}

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but it is probably not what was meant.
    Warning,
}

/// One problem of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ConfigFinding {
    pub(crate) severity: Severity,
    pub(crate) file: String,
    #[serde(flatten)]
    pub(crate) place: FilePlace,
    /// The path of the key, e.g. `destination[orders].retry.first`; empty for the whole file.
    pub(crate) key: String,
    pub(crate) message: String,
    /// The source line, without secrets.
    #[serde(skip)]
    pub(crate) excerpt: Option<Excerpt>,
}

impl ConfigFinding {
    /// Returns an error about the file as a whole.
    pub(crate) fn of_file(file: &str, message: String) -> Self {
        Self {
            severity: Severity::Error,
            file: file.to_owned(),
            place: FilePlace::default(),
            key: String::new(),
            message,
            excerpt: None,
        }
    }

    /// Returns the finding with its source line and a caret, below a title in bold.
    pub(crate) fn render(&self, color: bool) -> String {
        let title = match self.severity {
            Severity::Error => ("error", 31),
            Severity::Warning => ("warning", 33),
        };
        let excerpt = self.excerpt.as_ref().map(|e| e.render(self.place.line, title.1, color));
        let paint = super::excerpt::paint(title.0, &format!("1;{}", title.1), color);
        format!("{paint}: {}{}", self.line(""), excerpt.unwrap_or_default())
    }

    fn line(&self, mark: &str) -> String {
        let Self { file, place: FilePlace { line, column, .. }, key, message, .. } = self;
        let place = if *line > 0 { format!("{file}:{line}:{column}") } else { file.clone() };
        let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
        format!("{place}: {mark}{key}{message}")
    }
}

impl fmt::Display for ConfigFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_warning = self.severity == Severity::Warning;
        f.write_str(&self.line(if is_warning { "warning: " } else { "" }))
    }
}

/// All problems of a file, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct SettingsError {
    pub(crate) findings: Vec<ConfigFinding>,
}

impl SettingsError {
    /// Returns all findings with their source lines.
    pub(crate) fn render(&self, color: bool) -> String {
        let all: Vec<String> = self.findings.iter().map(|finding| finding.render(color)).collect();
        all.join("\n")
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.findings.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "a = 1\né = \"x\"\n";
        let at = |byte: usize| {
            let place = FilePlace::of(text, byte..byte + 1);
            (place.line, place.column)
        };
        assert_eq!(at(0), (1, 1));
        assert_eq!(at(text.find('"').unwrap()), (2, 5));
        assert_eq!(at(9_999).0, 3);
    }
}
