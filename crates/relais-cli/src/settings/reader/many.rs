//! Keys that hold several values: lists, and tables whose names are not ours.

use secrecy::SecretString;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::Section;
use crate::settings::findings::{Place, Severity};

/// Most names a table of options may have.
const OPTIONS_MAX: usize = 200;

impl Section<'_> {
    /// A list of strings with their variables filled in.
    pub(in crate::settings) fn texts(&self, key: &'static str) -> Option<Vec<String>> {
        let value = self.get(key)?;
        let DeValue::Array(items) = value else {
            self.wrong_type(key, "an array of strings", value);
            return None;
        };
        let texts = items.iter().filter_map(|item| match item.get_ref() {
            DeValue::String(written) => self.expand(key, written),
            other => {
                self.wrong_type(key, "strings", other);
                None
            }
        });
        Some(texts.collect())
    }

    /// One name or a list of names; empty if the key is absent or nothing of it can be read.
    pub(in crate::settings) fn names(&self, key: &'static str) -> Vec<String> {
        const NAMES_MAX: usize = 50;
        let value = self.table.and_then(|table| table.get(key)).map(Spanned::get_ref);
        if !matches!(value, Some(DeValue::Array(_))) {
            return self.name(key).into_iter().collect();
        }
        let names = self.texts(key).unwrap_or_default();
        if names.is_empty() || names.len() > NAMES_MAX {
            self.error(key, format_args!("must have 1 to {NAMES_MAX} entries"));
        }
        names.into_iter().filter(|name| self.is_name(key, name)).collect()
    }

    /// `secret = "…"` or `secrets = ["…", "…"]`: all of them sign and verify, for rotation.
    pub(in crate::settings) fn secrets(&self) -> Vec<SecretString> {
        const SECRETS_MAX: usize = 8;
        let one = self.secret("secret");
        let Some(many) = self.texts("secrets") else { return one.into_iter().collect() };
        if one.is_some() {
            self.error("secrets", "give either `secret` or `secrets`, not both");
        }
        if many.is_empty() || many.len() > SECRETS_MAX {
            self.error("secrets", format_args!("must have 1 to {SECRETS_MAX} entries"));
        }
        many.into_iter().filter_map(|text| self.not_empty("secrets", text)).collect()
    }

    /// A table of strings that must not be shown, e.g. headers.
    pub(in crate::settings) fn secret_table(
        &self,
        key: &'static str,
    ) -> Vec<(String, SecretString)> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let DeValue::Table(table) = value else {
            self.wrong_type(key, "a table of strings", value);
            return Vec::new();
        };
        let texts = table.iter().filter_map(|(name, value)| match value.get_ref() {
            DeValue::String(written) => {
                let text = self.expand(key, written)?;
                Some((name.get_ref().to_string(), text.into()))
            }
            other => {
                self.wrong_type(key, "strings as values", other);
                None
            }
        });
        texts.collect()
    }

    /// `[….key]`: options of a library under their own dotted names, quoted or not. Any of them may
    /// be a secret. `refusal` says why one cannot be, without repeating its value.
    pub(in crate::settings) fn options(
        &self,
        key: &'static str,
        refusal: impl Fn(&str, &str) -> Option<String>,
    ) -> Vec<(String, SecretString)> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let DeValue::Table(table) = value else {
            self.wrong_type(key, &format!("a table `[{key}]`"), value);
            return Vec::new();
        };
        let mut found: Vec<(String, String, Place)> = Vec::new();
        self.flatten(key, table, &mut |name, value, place| {
            let why = match found.iter().any(|(other, ..)| *other == name) {
                true => Some("is given twice; once quoted, once not".to_owned()),
                false => refusal(&name, &value),
            };
            match why {
                Some(why) => self.option_error(key, &name, place, &why),
                None => found.push((name, value, place)),
            }
        });
        if found.len() > OPTIONS_MAX {
            self.error(key, format_args!("must have at most {OPTIONS_MAX} entries"));
        }
        found.into_iter().map(|(name, value, _)| (name, value.into())).collect()
    }

    /// `a.b = 1` is a table in a table for TOML, and one name for the library.
    fn flatten(&self, key: &str, table: &DeTable<'_>, give: &mut dyn FnMut(String, String, Place)) {
        let mut open: Vec<(String, &DeTable<'_>)> = vec![(String::new(), table)];
        while let Some((prefix, table)) = open.pop() {
            for (name, value) in table {
                let name = format!("{prefix}{}", name.get_ref());
                if let DeValue::Table(inner) = value.get_ref() {
                    open.push((format!("{name}."), inner));
                } else if let Some(text) = self.option_text(key, &name, value) {
                    give(name, text, self.place_at(value));
                }
            }
        }
    }

    fn option_text(&self, key: &str, name: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        const WANTED: &str = "expected a string, a number, true or false";
        let read = match value.get_ref() {
            DeValue::String(written) => {
                super::expand(written, self.reader.environment).map_err(|error| error.to_string())
            }
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map(|number| number.to_string())
                .map_err(|_| "is too large a number".to_owned()),
            DeValue::Float(number) => Ok(number.as_str().to_owned()),
            DeValue::Boolean(flag) => Ok(flag.to_string()),
            _ => Err(WANTED.to_owned()),
        };
        read.map_err(|why| self.option_error(key, name, self.place_at(value), &why)).ok()
    }

    fn option_error(&self, key: &str, name: &str, place: Place, why: &str) {
        let path = format!("{}.{name}", self.path_of(key));
        self.reader.note(Severity::Error, place, &path, why);
    }

    fn place_at(&self, value: &Spanned<DeValue<'_>>) -> Place {
        Place::of(self.reader.text, value.span().start)
    }
}
