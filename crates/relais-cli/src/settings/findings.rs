//! What is wrong, or odd, in a settings file: each with its place and its key.
//!
//! Invariant: a finding never shows a value that may be secret. Values are shown as they are written
//! in the file (before `${…}` is expanded), and those of secret keys not at all.

use std::fmt;

use serde::Serialize;

/// A line and a column, both from 1, the column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Place {
    /// The place of a byte of `text`.
    pub(crate) fn of(text: &str, byte: usize) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// The file cannot be used.
    Error,
    /// It can, but probably does not do what was meant.
    Warning,
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) file: String,
    #[serde(flatten)]
    pub(crate) place: Place,
    /// The path of the key, e.g. `destination[orders].retry.first`; empty for the whole file.
    pub(crate) key: String,
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place: Place { line, column }, key, message, .. } = self;
        write!(f, "{file}")?;
        if *line > 0 {
            write!(f, ":{line}:{column}")?;
        }
        if self.severity == Severity::Warning {
            write!(f, ": warning")?;
        }
        if key.is_empty() { write!(f, ": {message}") } else { write!(f, ": {key}: {message}") }
    }
}

/// Everything wrong with a file, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct SettingsError {
    pub(crate) findings: Vec<Finding>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.findings.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{finding}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "a = 1\né = \"x\"\n";
        assert_eq!(Place::of(text, 0), Place { line: 1, column: 1 });
        let x = text.find('"').unwrap();
        assert_eq!(Place::of(text, x), Place { line: 2, column: 5 });
        assert_eq!(Place::of(text, 9_999).line, 3);
    }
}
