//! Reads the tables of a TOML file by key, and notes everything that does not fit.
//!
//! Invariant: reading never stops at a problem. A key that cannot be read counts as absent, so one
//! pass finds all problems of a file.

mod many;

use std::{cell::RefCell, fmt::Display, ops::RangeInclusive};

use secrecy::SecretString;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    expand::expand,
    findings::{Finding, Place, Severity},
    nearest::nearest,
};

/// One file while it is read.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    pub(super) environment: &'a dyn Fn(&str) -> Option<String>,
    pub(super) findings: RefCell<Vec<Finding>>,
}

impl<'a> Reader<'a> {
    pub(super) fn note(&self, severity: Severity, place: Place, key: &str, message: &str) {
        self.findings.borrow_mut().push(Finding {
            severity,
            file: self.file.to_owned(),
            place,
            key: key.to_owned(),
            message: message.to_owned(),
        });
    }

    /// The whole file as a section.
    pub(super) fn root(&'a self, table: &'a DeTable<'a>) -> Section<'a> {
        Section {
            reader: self,
            path: String::new(),
            place: Place { line: 1, column: 1 },
            table: Some(table),
            asked: RefCell::default(),
        }
    }
}

/// A string as it is used and as it is written.
pub(super) struct Text<'a> {
    pub(super) value: String,
    pub(super) written: &'a str,
}

/// One table of the file, or the place where it could be.
pub(super) struct Section<'a> {
    reader: &'a Reader<'a>,
    path: String,
    place: Place,
    table: Option<&'a DeTable<'a>>,
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// Whether the file has the key, readable or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    pub(super) fn error(&self, key: &str, message: impl Display) {
        self.note(Severity::Error, key, &message.to_string());
    }

    pub(super) fn warn(&self, key: &str, message: impl Display) {
        self.note(Severity::Warning, key, &message.to_string());
    }

    fn note(&self, severity: Severity, key: &str, message: &str) {
        self.reader.note(severity, self.place_of(key), &self.path_of(key), message);
    }

    pub(super) fn place_of(&self, key: &str) -> Place {
        let value = self.table.and_then(|table| table.get(key));
        value.map_or(self.place, |value| Place::of(self.reader.text, value.span().start))
    }

    fn path_of(&self, key: &str) -> String {
        match (self.path.as_str(), key) {
            ("", key) => key.to_owned(),
            (path, "") => path.to_owned(),
            (path, key) => format!("{path}.{key}"),
        }
    }

    fn get(&self, key: &'static str) -> Option<&'a DeValue<'a>> {
        self.asked.borrow_mut().push(key);
        self.table?.get(key).map(Spanned::get_ref)
    }

    fn wrong_type(&self, key: &str, wanted: &str, found: &DeValue<'_>) {
        let found = match found {
            DeValue::Table(_) => "a table",
            DeValue::Array(_) => "an array",
            other => other.type_str(),
        };
        self.error(key, format_args!("expected {wanted}, found {found}"));
    }

    // ---- values -------------------------------------------------------------------------------

    /// A string with its variables filled in.
    pub(super) fn text(&self, key: &'static str) -> Option<Text<'a>> {
        match self.get(key)? {
            DeValue::String(written) => {
                Some(Text { value: self.expand(key, written)?, written: written.as_ref() })
            }
            other => {
                self.wrong_type(key, "a string", other);
                None
            }
        }
    }

    fn expand(&self, key: &str, written: &str) -> Option<String> {
        expand(written, self.reader.environment).map_err(|error| self.error(key, error)).ok()
    }

    /// A string that is not blank; noted if `required` and absent.
    pub(super) fn name(&self, key: &'static str) -> Option<String> {
        Some(self.text(key)?.value).filter(|text| self.is_name(key, text))
    }

    fn is_name(&self, key: &str, text: &str) -> bool {
        const CHARS_MAX: usize = 200;
        let fits = !text.trim().is_empty() && text.chars().count() <= CHARS_MAX;
        if !fits {
            self.error(key, format_args!("must have 1 to {CHARS_MAX} characters"));
        }
        fits
    }

    /// Like [`Self::name`], and its absence is an error.
    pub(super) fn required_name(&self, key: &'static str) -> Option<String> {
        if !self.has(key) {
            self.asked.borrow_mut().push(key);
            self.error(key, "is missing");
            return None;
        }
        self.name(key)
    }

    /// A string read by `parse`, whose error follows the text as it is written.
    pub(super) fn parsed<T>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(key)?;
        parse(&text.value)
            .map_err(|error| self.error(key, format_args!("`{}` {error}", text.written)))
            .ok()
    }

    /// One of some words; another word is an error that names the nearest.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        self.parsed(key, |text| {
            let found = choices.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                format!("is not known here; {}", suggestion(text, &words, "one of"))
            })
        })
    }

    pub(super) fn flag(&self, key: &'static str, default: bool) -> bool {
        match self.get(key) {
            None => default,
            Some(DeValue::Boolean(flag)) => *flag,
            Some(other) => {
                self.wrong_type(key, "true or false", other);
                default
            }
        }
    }

    /// A whole number in a range.
    pub(super) fn whole(&self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let number = match self.get(key)? {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            other => {
                self.wrong_type(key, "a whole number", other);
                return None;
            }
        };
        let fits = number.filter(|number| range.contains(number));
        if fits.is_none() {
            let (from, to) = (range.start(), range.end());
            self.error(key, format_args!("must be a whole number from {from} to {to}"));
        }
        fits
    }

    /// A number, whole or not, in a range.
    pub(super) fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let number = match self.get(key)? {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            other => {
                self.wrong_type(key, "a number", other);
                return None;
            }
        };
        let fits = number.filter(|number| range.contains(number));
        if fits.is_none() {
            let (from, to) = (range.start(), range.end());
            self.error(key, format_args!("must be a number from {from} to {to}"));
        }
        fits
    }

    /// A string that must not be shown.
    pub(super) fn secret(&self, key: &'static str) -> Option<SecretString> {
        self.not_empty(key, self.text(key)?.value)
    }

    fn not_empty(&self, key: &str, value: String) -> Option<SecretString> {
        if value.is_empty() {
            self.error(key, "is empty; give it a value or remove the key");
            return None;
        }
        Some(value.into())
    }

    // ---- tables -------------------------------------------------------------------------------

    /// The table `[key]` inside this one, present or not.
    pub(super) fn child(&self, key: &'static str) -> Section<'a> {
        let table = match self.get(key) {
            Some(DeValue::Table(table)) => Some(table),
            Some(DeValue::Array(_)) => {
                self.error(key, format_args!("is one table; write `[{key}]`, not `[[{key}]]`"));
                None
            }
            Some(other) => {
                self.wrong_type(key, &format!("a table `[{key}]`"), other);
                None
            }
            None => None,
        };
        self.section(self.path_of(key), self.place_of(key), table)
    }

    /// The tables `[[key]]` inside this one, each called by its `name` in findings.
    pub(super) fn children(&self, key: &'static str) -> Vec<Section<'a>> {
        self.children_called(key, "name")
    }

    /// The tables `[[key]]` inside this one, each called by what it has under `label`.
    pub(super) fn children_called(&self, key: &'static str, label: &str) -> Vec<Section<'a>> {
        let items = match self.get(key) {
            None => return Vec::new(),
            Some(DeValue::Array(items)) => items,
            Some(DeValue::Table(_)) => {
                self.error(key, format_args!("may come several times; write `[[{key}]]`"));
                return Vec::new();
            }
            Some(other) => {
                self.wrong_type(key, &format!("tables `[[{key}]]`"), other);
                return Vec::new();
            }
        };
        let tables = items.iter().enumerate().filter_map(|(index, item)| {
            let DeValue::Table(table) = item.get_ref() else {
                self.wrong_type(key, &format!("tables `[[{key}]]`"), item.get_ref());
                return None;
            };
            let name = match table.get(label).map(Spanned::get_ref) {
                Some(DeValue::String(name)) if !name.is_empty() => name.to_string(),
                _ => format!("#{}", index + 1),
            };
            let place = Place::of(self.reader.text, item.span().start);
            Some(self.section(format!("{}[{name}]", self.path_of(key)), place, Some(table)))
        });
        tables.collect()
    }

    fn section(&self, path: String, place: Place, table: Option<&'a DeTable<'a>>) -> Section<'a> {
        Section { reader: self.reader, path, place, table, asked: RefCell::default() }
    }

    /// Notes every key nobody asked for. `elsewhere` may say where a key belongs.
    pub(super) fn finish(self, elsewhere: impl Fn(&str) -> Option<String>) {
        let asked = self.asked.borrow();
        for (key, _) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if asked.contains(&name) {
                continue;
            }
            let hint = elsewhere(name).unwrap_or_else(|| suggestion(name, &asked, "known keys:"));
            let place = Place::of(self.reader.text, key.span().start);
            let message = format!("unknown key; {hint}");
            self.reader.note(Severity::Error, place, &self.path_of(name), &message);
        }
    }
}

/// `did you mean …?`, or all the words when none is near.
fn suggestion(word: &str, known: &[&str], all: &str) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{all} {}", quoted(known)),
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
