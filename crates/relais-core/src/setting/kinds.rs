//! The types that keys have. Each is a marker; `Value` is what the program gets.

use std::{marker::PhantomData, net::SocketAddr, path::PathBuf, time::Duration};

use super::{
    RawSetting, SettingForm, SettingKind,
    quantity::{self, Rate, show_duration, show_rate, show_size},
};
use crate::{decode::Decoder, extract::Pick, message::Category, outbox::OnDeadLetter, process::definition::KeyUse};

/// The most characters of a name.
const NAME_CHARS_MAX: usize = 200;
/// The most entries of a list of names.
const NAMES_MAX: usize = 50;
/// The most secrets that are valid at the same time.
const SECRETS_MAX: usize = 8;

/// Declares kinds whose values are parsed from strings.
#[macro_export]
macro_rules! text_kinds {
    ($($(#[$meta:meta])* $vis:vis $kind:ident -> $value:ty, $type:literal, $read:expr
        $(, show $show:expr)? $(, form $form:expr)? $(, hidden $hidden:literal)?
        $(, ordered $ordered:literal)?;)*
    ) => {$(
        $(#[$meta])*
        #[derive(Debug)]
        $vis struct $kind;

        impl $crate::setting::SettingKind for $kind {
            type Value = $value;
            const TYPE: &'static str = $type;
            $(const IS_HIDDEN: bool = $hidden;)?

            fn form() -> $crate::setting::SettingForm {
                $crate::settings!(@first $($form,)? $crate::setting::SettingForm::Text(""))
            }

            fn read(raw: $crate::setting::RawSetting) -> Result<$value, String> {
                let read: fn(&str) -> Result<$value, String> = $read;
                read(&raw.text())
            }

            $(fn show(value: &$value) -> String {
                let show: fn(&$value) -> String = $show;
                format!("\"{}\"", show(value))
            })?

            $(fn contains(from: &$value, to: &$value, value: &$value) -> bool {
                $ordered && (from..=to).contains(&value)
            })?
        }
    )*};
}

text_kinds! {
    /// Any string.
    pub PlainText -> String, "text", |text| Ok(text.to_owned()), show String::clone;
    /// A string that is not blank.
    pub NameText -> String, "name", name, show String::clone, form SettingForm::Text(".*\\S.*");
    /// `IP:PORT` or `localhost:PORT`.
    pub Listen -> SocketAddr, "address", listen, show ToString::to_string,
        form SettingForm::Text("^(localhost|[0-9.]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]{1,5}$");
    /// A duration.
    pub TimeSpan -> Duration, "duration", quantity::duration, show |span| show_duration(*span),
        form SettingForm::Text("^\\s*([0-9]+(ms|s|m|h|d))+\\s*$"), ordered true;
    /// The time that rows stay: a duration, or `never` to remove none.
    pub RetentionSpan -> Duration, "duration or `never`", quantity::retention,
        show |span| quantity::show_retention(*span),
        form SettingForm::Text("^\\s*(never|([0-9]+(ms|s|m|h|d))+)\\s*$"), ordered true;
    /// A number of bytes.
    pub ByteSize -> usize, "size", quantity::size, show |bytes| show_size(*bytes),
        form SettingForm::Text("^\\s*[0-9]+\\s*([KMG]i?B|B)?\\s*$"), ordered true;
    /// Calls per period.
    pub CallRate -> Rate, "rate", quantity::rate, show |rate| show_rate(*rate),
        form SettingForm::Text("^\\s*[0-9]+\\s*/\\s*[smh]\\s*$");
    /// A place in a received message.
    pub Selector -> Pick, "selector", selector, show ToString::to_string,
        form SettingForm::Text("^(header:.+|payload:(/.*)?|key|position)$");
    /// A place in a stored message, which has no position any more.
    pub StoredSelector -> Pick, "selector", |text| match selector(text)? {
            Pick::Position => Err(NO_SELECTOR.to_owned()),
            pick => Ok(pick),
        }, form SettingForm::Text("^(header:.+|payload:(/.*)?|key)$");
    /// A place in the payload; the value is its JSON pointer.
    pub PayloadPointer -> String, "selector in the payload", |text| match text.parse() {
            Ok(Pick::Payload(pointer)) => Ok(pointer),
            _ => Err("is not a place in the payload; write `payload:/JSON/POINTER`".to_owned()),
        }, form SettingForm::Text("^payload:(/.*)?$");
    /// The path of a file; a relative one starts at the folder of the configuration.
    pub FilePath -> PathBuf, "text", |text| match text.trim() {
            "" => Err(EMPTY.to_owned()),
            _ => Ok(text.into()),
        }, form SettingForm::Path;
    /// The decoders for bodies whose content type is JSON.
    pub JsonDecoder -> Decoder, "text", |text| Ok(text.parse::<Decoder>()?),
        show |decoder| decoder.as_str().to_owned(),
        form SettingForm::Words(vec!["json", "json-latin1"]);
    /// The decoders that need no schema registry.
    pub PlainDecoder -> Decoder, "text", |text| Ok(text.parse::<Decoder>()?),
        show |decoder| decoder.as_str().to_owned(),
        form SettingForm::Words(
            Decoder::ALL.into_iter().filter(|one| !one.needs_schema()).map(Decoder::as_str).collect(),
        );
}

const EMPTY: &str = "is empty; give it a value or remove the key";
const NO_SELECTOR: &str =
    "is not a place in a message; use `header:NAME`, `payload:/JSON/POINTER` or `key`";

fn selector(text: &str) -> Result<Pick, String> {
    text.parse().map_err(|_| NO_SELECTOR.to_owned())
}

fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.chars().count() > NAME_CHARS_MAX {
        return Err(format!("must have 1 to {NAME_CHARS_MAX} characters"));
    }
    Ok(text.to_owned())
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address = numeric.as_deref().unwrap_or(text).parse();
    address.map_err(|_| "is not an address; write for example \"127.0.0.1:7071\"".to_owned())
}

/// Declares the other kinds: how a value of their form becomes theirs.
macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident $(<$param:ident: $bound:path>)? -> $value:ty, $type:literal,
        $form:expr, $raw:pat => $read:expr
        $(, show $shown:ident $show:expr)? $(, ordered $ordered:literal)? $(, absent $absent:expr)?
        $(, hidden $hidden:literal)?;)*
    ) => {$(
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $kind $(<$param>(PhantomData<$param>))?;

        impl $(<$param: $bound>)? SettingKind for $kind $(<$param>)? {
            type Value = $value;
            const TYPE: &'static str = $type;
            $(const IS_HIDDEN: bool = $hidden;)?

            fn form() -> SettingForm {
                $form
            }

            fn read(raw: RawSetting) -> Result<$value, String> {
                let $raw = raw else { return Err("has another form".to_owned()) };
                $read
            }

            $(fn show($shown: &$value) -> String {
                $show
            })?

            $(fn contains(from: &$value, to: &$value, value: &$value) -> bool {
                $ordered && (from..=to).contains(&value)
            })?

            $(fn absent() -> Option<$value> {
                $absent
            })?
        }
    )*};
}

kinds! {
    /// `true` or `false`.
    OnOff -> bool, "true/false", SettingForm::Flag, RawSetting::Flag(flag) => Ok(flag),
        show flag flag.to_string();
    /// A whole number.
    Integer -> u32, "whole number", SettingForm::Whole, RawSetting::Whole(number) => Ok(number),
        show number number.to_string(), ordered true;
    /// A number, whole or not.
    Decimal -> f64, "number", SettingForm::Number, RawSetting::Number(number) => Ok(number),
        show number number.to_string(), ordered true;
    /// One of some words.
    Word<T: SettingWords> -> T, "text",
        SettingForm::Words(T::WORDS.iter().map(|(word, _)| *word).collect()),
        RawSetting::Text(text) => {
            let found = T::WORDS.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| "is not known here".to_owned())
        },
        show value {
            let word = T::WORDS.iter().find(|(_, other)| other == value);
            format!("\"{}\"", word.map_or("", |(word, _)| *word))
        };
    /// A string that is never shown.
    Hidden<S: HiddenText> -> S, "secret", SettingForm::Text("."),
        RawSetting::Text(text) => hidden(text), hidden true;
    /// Several secrets, all of which are valid.
    HiddenList<S: HiddenText> -> Vec<S>, "list of secrets", SettingForm::List,
        RawSetting::List(list) => entries(list, SECRETS_MAX)?.into_iter().map(hidden).collect(),
        absent Some(Vec::new()), hidden true;
    /// Names and secrets, such as headers.
    HiddenTable<S: HiddenText> -> Vec<(String, S)>, "table of texts", SettingForm::Table,
        RawSetting::Table(table) => secrets(table), absent Some(Vec::new()), hidden true;
    /// Options of a library under their own dotted names; any of them may be a secret.
    HiddenOptions<S: HiddenText> -> Vec<(String, S)>, "table", SettingForm::DottedTable,
        RawSetting::Table(table) => secrets(table), absent Some(Vec::new()), hidden true;
    /// Dotted names and texts.
    TextTable -> Vec<(String, String)>, "table of texts", SettingForm::DottedTable,
        RawSetting::Table(table) => Ok(table), absent Some(Vec::new());
    /// One name or a list of names, at least one.
    NameList -> Vec<String>, "name or list of names", SettingForm::TextOrList,
        RawSetting::List(list) => entries(list, NAMES_MAX)?.iter().map(|text| name(text)).collect();
}

/// A type whose values have names in the configuration.
pub trait SettingWords: Copy + PartialEq + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl SettingWords for Decoder {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("json", Self::Json),
        ("json-latin1", Self::JsonLatin1),
        ("confluent-json", Self::ConfluentJson),
        ("confluent-avro", Self::ConfluentAvro),
        ("text", Self::Text),
        ("bytes", Self::Bytes),
    ];
}

impl SettingWords for OnDeadLetter {
    const WORDS: &'static [(&'static str, Self)] =
        &[("park", Self::Park), ("skip", Self::Skip), ("retry", Self::Retry)];
}

impl SettingWords for KeyUse {
    const WORDS: &'static [(&'static str, Self)] =
        &[("once", Self::Once), ("while_open", Self::WhileOpen)];
}

impl SettingWords for Category {
    const WORDS: &'static [(&'static str, Self)] =
        &[("event", Self::Event), ("command", Self::Command), ("reply", Self::Reply)];
}

/// A type that keeps a secret; its error does not repeat the text.
pub trait HiddenText: Sized {
    fn hide(text: String) -> Result<Self, String>;
}

impl<S: From<String>> HiddenText for S {
    fn hide(text: String) -> Result<Self, String> {
        Ok(text.into())
    }
}

fn hidden<S: HiddenText>(text: String) -> Result<S, String> {
    if text.is_empty() {
        return Err(EMPTY.to_owned());
    }
    S::hide(text)
}

fn secrets<S: HiddenText>(table: Vec<(String, String)>) -> Result<Vec<(String, S)>, String> {
    table.into_iter().map(|(name, value)| Ok((name, S::hide(value)?))).collect()
}

/// Returns the list if it has at least one entry and not too many.
pub fn entries(list: Vec<String>, max: usize) -> Result<Vec<String>, String> {
    if list.is_empty() || list.len() > max {
        return Err(format!("must have 1 to {max} entries"));
    }
    Ok(list)
}

impl<K: SettingKind> SettingKind for Option<K> {
    type Value = Option<K::Value>;
    const TYPE: &'static str = K::TYPE;
    const IS_HIDDEN: bool = K::IS_HIDDEN;

    fn form() -> SettingForm {
        K::form()
    }

    fn read(raw: RawSetting) -> Result<Self::Value, String> {
        K::read(raw).map(Some)
    }

    fn show(value: &Self::Value) -> String {
        value.as_ref().map(K::show).unwrap_or_default()
    }

    fn contains(from: &Self::Value, to: &Self::Value, value: &Self::Value) -> bool {
        match (from, to, value) {
            (Some(from), Some(to), Some(value)) => K::contains(from, to, value),
            _ => true,
        }
    }

    fn absent() -> Option<Self::Value> {
        Some(None)
    }
}
