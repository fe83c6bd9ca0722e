//! Reads the tables of a TOML file by their keys, and reports everything that does not fit.
//!
//! Invariant: reading never stops at a problem. An invalid key counts as absent, so one
//! pass finds all problems of a file.

use std::{cell::RefCell, fmt::Display, ops::Range, path::Path};

use relais_core::setting::{
    RawSetting, SettingForm, SettingGroup, SettingReported, SettingSource, SettingSpec,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    excerpt::leaves,
    expand::expand,
    findings::{ConfigFinding, FilePlace, Severity},
    nearest::suggestion,
    sections::elsewhere,
};

/// The most names in a table of options.
const OPTIONS_MAX: usize = 200;
/// A longer text is not repeated in an error.
const REPEATED_CHARS_MAX: usize = 80;

/// One file while it is read.
pub(super) struct SettingsFile<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    pub(super) folder: &'a Path,
    pub(super) environment: &'a dyn Fn(&str) -> Option<String>,
    pub(super) findings: RefCell<Vec<ConfigFinding>>,
    /// Values that an excerpt may show.
    pub(super) shown: RefCell<Vec<Range<usize>>>,
}

impl<'a> SettingsFile<'a> {
    pub(super) fn report(&self, severity: Severity, place: FilePlace, key: &str, message: &str) {
        let error = ConfigFinding::of_file(self.file, message.to_owned());
        let finding = ConfigFinding { severity, place, key: key.to_owned(), ..error };
        self.findings.borrow_mut().push(finding);
    }

    /// Returns the whole file as a section.
    pub(super) fn root(&'a self, table: &'a DeTable<'a>) -> Section<'a> {
        let place = FilePlace::of(self.text, 0..0);
        Section {
            file: self,
            path: String::new(),
            name: String::new(),
            place,
            table: Some(table),
            known: RefCell::default(),
        }
    }
}

/// One table of the file, or the place where it could be.
pub(super) struct Section<'a> {
    file: &'a SettingsFile<'a>,
    /// `destination[orders].retry`
    path: String,
    /// `destination.retry`
    name: String,
    place: FilePlace,
    table: Option<&'a DeTable<'a>>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// Reads a group of keys and reports every problem with them.
    pub(super) fn read<G: SettingGroup<Base = ()>>(&self) -> Option<G> {
        G::read(self, &())
    }

    /// Reads a group of optional keys with the defaults of `base`.
    pub(super) fn read_with<G: SettingGroup>(&self, base: &G::Base) -> G {
        G::read(self, base).expect("every key of the group has a default")
    }

    pub(super) fn place(&self) -> FilePlace {
        self.place
    }

    pub(super) fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// Returns whether the file has the key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Returns a text, and reports nothing if it is none.
    pub(super) fn peek(&self, key: &str) -> Option<String> {
        match self.table?.get(key)?.get_ref() {
            DeValue::String(written) => expand(written, self.file.environment).ok(),
            DeValue::Boolean(flag) => Some(flag.to_string()),
            _ => None,
        }
    }

    pub(super) fn error(&self, key: &str, message: impl Display) {
        let place = self.place_of(key);
        self.file.report(Severity::Error, place, &join(&self.path, key), &message.to_string());
    }

    pub(super) fn warn(&self, key: &str, message: impl Display) {
        let place = self.place_of(key);
        self.file.report(Severity::Warning, place, &join(&self.path, key), &message.to_string());
    }

    /// Returns the place of a key's value, or of the section. An option of a library is named
    /// `options.its.own.name`.
    pub(super) fn place_of(&self, key: &str) -> FilePlace {
        let direct = self.table.and_then(|table| table.get(key)).map(Spanned::span);
        let dotted = || {
            let (table, name) = key.split_once('.')?;
            let DeValue::Table(table) = self.table?.get(table)?.get_ref() else { return None };
            let options = flatten(table).into_iter();
            options.rev().find(|(other, _)| other == name).map(|(_, value)| value.span())
        };
        direct.or_else(dotted).map_or(self.place, |bytes| FilePlace::of(self.file.text, bytes))
    }

    /// Returns the table `[key]` inside this one, present or not.
    pub(super) fn child(&self, key: &'static str) -> Section<'a> {
        let value = self.get(key).map(Spanned::get_ref);
        match value {
            Some(DeValue::Array(_)) => {
                self.error(key, format_args!("is one table; write `[{key}]`, not `[[{key}]]`"));
            }
            None | Some(DeValue::Table(_)) => {}
            Some(other) => {
                self.wrong_form(key, &format!("a table `[{key}]`"), other);
            }
        }
        let table = if let Some(DeValue::Table(table)) = value { Some(table) } else { None };
        self.section(join(&self.path, key), key, table)
    }

    /// Returns the tables `[[key]]` inside this one; findings name each by its value of `label`.
    pub(super) fn children(&self, key: &'static str, label: &str) -> Vec<Section<'a>> {
        let wanted = format!("tables `[[{key}]]`");
        let items = match self.get(key).map(Spanned::get_ref) {
            Some(DeValue::Array(items)) => &items[..],
            Some(DeValue::Table(_)) => {
                self.error(key, format_args!("may come several times; write `[[{key}]]`"));
                &[]
            }
            Some(other) => {
                self.wrong_form(key, &wanted, other);
                &[]
            }
            None => &[],
        };
        let tables = items.iter().enumerate().filter_map(|(index, item)| {
            let DeValue::Table(table) = item.get_ref() else {
                self.wrong_form(key, &wanted, item.get_ref());
                return None;
            };
            let name = match table.get(label).map(Spanned::get_ref) {
                Some(DeValue::String(name)) if !name.is_empty() => name.to_string(),
                _ => format!("#{}", index + 1),
            };
            let path = format!("{}[{name}]", join(&self.path, key));
            let place = FilePlace::of(self.file.text, item.span());
            Some(Section { place, ..self.section(path, key, Some(table)) })
        });
        tables.collect()
    }

    fn section(&self, path: String, key: &str, table: Option<&'a DeTable<'a>>) -> Section<'a> {
        let (name, place) = (join(&self.name, key), self.place_of(key));
        Section { file: self.file, path, name, place, table, known: RefCell::default() }
    }

    /// Reports every key that was not read.
    pub(super) fn finish(self) {
        self.finish_with(|name| elsewhere(&self.name, name));
    }

    /// Reports every key that was not read; `hint` may return where it belongs.
    pub(super) fn finish_with(&self, hint: impl Fn(&str) -> Option<String>) {
        let known = self.known.borrow();
        for (key, _) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let hint = hint(name).unwrap_or_else(|| suggestion(name, &known, "known keys:"));
            let place = FilePlace::of(self.file.text, key.span());
            let message = format!("unknown key; {hint}");
            self.file.report(Severity::Error, place, &join(&self.path, name), &message);
        }
    }

    fn get(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.borrow_mut().push(key);
        self.table?.get(key)
    }

    fn wrong_form(&self, key: &str, wanted: &str, found: &DeValue<'_>) -> SettingReported {
        let found = match found {
            DeValue::Table(_) => "a table",
            DeValue::Array(_) => "an array",
            other => other.type_str(),
        };
        self.error(key, format_args!("expected {wanted}, found {found}"));
        SettingReported
    }

    fn expand(&self, key: &str, written: &str) -> Result<String, SettingReported> {
        expand(written, self.file.environment).map_err(|error| {
            self.error(key, error);
            SettingReported
        })
    }

    fn texts(
        &self,
        key: &str,
        items: &[Spanned<DeValue<'_>>],
    ) -> Result<Vec<String>, SettingReported> {
        let texts = items.iter().map(|item| match item.get_ref() {
            DeValue::String(written) => self.expand(key, written),
            other => Err(self.wrong_form(key, "strings", other)),
        });
        all(texts)
    }

    /// Reads a table whose names relais does not know. Each problem is reported at its own entry.
    fn table(
        &self,
        key: &str,
        table: &DeTable<'_>,
        is_dotted: bool,
    ) -> Result<Vec<(String, String)>, SettingReported> {
        let entries = if is_dotted {
            flatten(table)
        } else {
            table.iter().map(|(name, value)| (name.get_ref().to_string(), value)).collect()
        };
        if entries.len() > OPTIONS_MAX {
            self.error(key, format_args!("must have at most {OPTIONS_MAX} entries"));
        }
        let mut names = Vec::new();
        let entry = |(name, value): (String, &Spanned<DeValue<'_>>)| {
            let wrong = |why: &str| {
                let place = FilePlace::of(self.file.text, value.span());
                let path = join(&join(&self.path, key), &name);
                self.file.report(Severity::Error, place, &path, why);
                SettingReported
            };
            if names.contains(&name) {
                return Err(wrong("is given twice; once quoted, once not"));
            }
            names.push(name.clone());
            let text = match value.get_ref() {
                DeValue::String(written) => expand(written, self.file.environment)
                    .map_err(|error| wrong(&error.to_string()))?,
                _ if !is_dotted => return Err(wrong("expected a string")),
                DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                    .map_err(|_| wrong("is too large a number"))?
                    .to_string(),
                DeValue::Float(number) => number.as_str().to_owned(),
                DeValue::Boolean(flag) => flag.to_string(),
                _ => return Err(wrong("expected a string, a number, true or false")),
            };
            Ok((name, text))
        };
        all(entries.into_iter().map(entry))
    }
}

impl SettingSource for Section<'_> {
    fn raw(&self, spec: &SettingSpec) -> Result<Option<RawSetting>, SettingReported> {
        use SettingForm as Form;
        let key = spec.name;
        let float = |text: &str| text.parse().unwrap_or(f64::NAN);
        let Some(value) = self.get(key) else { return Ok(None) };
        if !spec.is_hidden {
            leaves(value, &mut self.file.shown.borrow_mut());
        }
        Ok(Some(match (&spec.form, value.get_ref()) {
            (Form::Path, DeValue::String(written)) => {
                let text = self.expand(key, written)?;
                let path = self.file.folder.join(&text);
                let is_blank = text.trim().is_empty();
                RawSetting::Text(if is_blank { text } else { path.display().to_string() })
            }
            (Form::Text(_), DeValue::String(written)) => {
                RawSetting::Text(self.expand(key, written)?)
            }
            (Form::Words(words), DeValue::String(written)) => {
                let text = self.expand(key, written)?;
                if !words.contains(&text.as_str()) {
                    let near = suggestion(&text, words, "one of");
                    self.refuse(spec, &format!("is not known here; {near}"));
                    return Err(SettingReported);
                }
                RawSetting::Text(text)
            }
            (Form::TextOrList, DeValue::String(written)) => {
                RawSetting::List(vec![self.expand(key, written)?])
            }
            (Form::Flag, DeValue::Boolean(flag)) => RawSetting::Flag(*flag),
            (Form::Whole, DeValue::Integer(number)) => {
                let number = u32::from_str_radix(number.as_str(), number.radix());
                RawSetting::Whole(number.unwrap_or(u32::MAX))
            }
            (Form::Number, DeValue::Integer(number)) => RawSetting::Number(float(number.as_str())),
            (Form::Number, DeValue::Float(number)) => RawSetting::Number(float(number.as_str())),
            (Form::List | Form::TextOrList, DeValue::Array(items)) => {
                RawSetting::List(self.texts(key, items)?)
            }
            (Form::Table, DeValue::Table(table)) => {
                RawSetting::Table(self.table(key, table, false)?)
            }
            (Form::DottedTable, DeValue::Table(table)) => {
                RawSetting::Table(self.table(key, table, true)?)
            }
            (form, other) => return Err(self.wrong_form(key, wanted(form), other)),
        }))
    }

    fn refuse(&self, spec: &SettingSpec, why: &str) {
        let value = self.table.and_then(|table| table.get(spec.name)).map(Spanned::get_ref);
        let written = match value {
            Some(DeValue::String(written)) => written.as_ref(),
            _ => "",
        };
        let is_short = (1..=REPEATED_CHARS_MAX).contains(&written.chars().count());
        match spec.is_hidden || !is_short {
            true => self.error(spec.name, why),
            false => self.error(spec.name, format_args!("`{written}` {why}")),
        }
    }

    fn missing(&self, spec: &SettingSpec) {
        match spec.absent {
            "" => self.error(spec.name, "is missing"),
            hint => self.error(spec.name, format_args!("is missing; {hint}")),
        }
    }
}

fn wanted(form: &SettingForm) -> &'static str {
    match form {
        SettingForm::Flag => "true or false",
        SettingForm::Whole => "a whole number",
        SettingForm::Number => "a number",
        SettingForm::List => "an array of strings",
        SettingForm::Table => "a table of strings",
        SettingForm::DottedTable => "a table",
        _ => "a string",
    }
}

/// Returns all results, or nothing if one of them is missing; every one is computed.
fn all<T>(
    items: impl Iterator<Item = Result<T, SettingReported>>,
) -> Result<Vec<T>, SettingReported> {
    let items: Vec<Result<T, SettingReported>> = items.collect();
    items.into_iter().collect()
}

/// `a.b = 1` is a table in a table for TOML, and one name for a library.
fn flatten<'t>(table: &'t DeTable<'t>) -> Vec<(String, &'t Spanned<DeValue<'t>>)> {
    let (mut found, mut open) = (Vec::new(), vec![(String::new(), table)]);
    while let Some((prefix, table)) = open.pop() {
        for (name, value) in table {
            let name = format!("{prefix}{}", name.get_ref());
            match value.get_ref() {
                DeValue::Table(inner) => open.push((format!("{name}."), inner)),
                _ => found.push((name, value)),
            }
        }
    }
    found
}

fn join(path: &str, key: &str) -> String {
    match (path, key) {
        ("", key) => key.to_owned(),
        (path, "") => path.to_owned(),
        (path, key) => format!("{path}.{key}"),
    }
}
