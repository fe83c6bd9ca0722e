//! Keys of the configuration, each described once: name, type, default, limits and documentation.
//!
//! [`settings!`](crate::settings) declares a group of keys beside what it configures. The program reads the
//! group, the reference page lists it, and the JSON schema is generated from it. Nothing here reads a file.

mod kinds;
pub mod quantity;

use std::ops::RangeInclusive;

pub use kinds::*;

/// A value as the file has it: environment variables are filled in, and its form is that of its key.
#[derive(Clone, Debug, PartialEq)]
pub enum RawSetting {
    Text(String),
    Flag(bool),
    /// A number that does not fit is the largest one, which no key allows.
    Whole(u32),
    Number(f64),
    List(Vec<String>),
    Table(Vec<(String, String)>),
}

impl RawSetting {
    /// Returns the text of a value whose form is a string.
    pub fn text(self) -> String {
        if let Self::Text(text) = self { text } else { String::new() }
    }
}

/// The form that a value must have in the file.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingForm {
    /// A string; with a pattern that it must match, or an empty one.
    Text(&'static str),
    /// A path, which starts at the folder of the file.
    Path,
    Words(Vec<&'static str>),
    Flag,
    Whole,
    Number,
    List,
    TextOrList,
    /// A table of strings under names that relais does not know.
    Table,
    /// A table under dotted names; also with numbers, `true` and `false`.
    DottedTable,
}

/// The description of one key.
#[derive(Clone, Debug)]
pub struct SettingSpec {
    pub name: &'static str,
    /// The type as the reference page calls it.
    pub type_name: &'static str,
    pub doc: &'static str,
    pub form: SettingForm,
    /// Errors and excerpts of the file never show the value.
    pub is_hidden: bool,
    pub is_needed: bool,
    /// As it is written in TOML.
    pub default: Option<String>,
    /// For a needed key, what to write; for others, the default in words.
    pub absent: &'static str,
    pub range: Option<(String, String)>,
}

/// A section of the file while it is read.
pub trait SettingSource {
    /// Returns the value of a key if it is present. One of another form is reported, and an `Err`.
    fn raw(&self, spec: &SettingSpec) -> Result<Option<RawSetting>, SettingReported>;

    /// Reports that the value of a key cannot be used.
    fn refuse(&self, spec: &SettingSpec, why: &str);

    /// Reports that a key must be present.
    fn missing(&self, spec: &SettingSpec);
}

/// The problem is reported already.
#[derive(Clone, Copy, Debug)]
pub struct SettingReported;

/// The type of a key. The trait is implemented by markers; a key's value has the type `Value`.
pub trait SettingKind {
    type Value;
    const TYPE: &'static str;
    const IS_HIDDEN: bool = false;

    fn form() -> SettingForm;

    /// Reads a value that has this form. The error follows the text as it is written.
    fn read(raw: RawSetting) -> Result<Self::Value, String>;

    /// Formats a default or a limit as TOML.
    fn show(_value: &Self::Value) -> String {
        String::new()
    }

    /// Returns whether a value is in a range; kinds without an order have no limits.
    fn contains(_from: &Self::Value, _to: &Self::Value, _value: &Self::Value) -> bool {
        true
    }

    /// Returns the value of an absent key; nothing if such a key is needed.
    fn absent() -> Option<Self::Value> {
        None
    }
}

/// One key of a group; [`settings!`](crate::settings) makes it.
#[doc(hidden)]
#[derive(Debug)]
pub struct SettingEntry<K: SettingKind> {
    pub name: &'static str,
    pub doc: &'static str,
    pub default: Option<K::Value>,
    pub limits: Option<RangeInclusive<K::Value>>,
    pub absent: &'static str,
}

impl<K: SettingKind> SettingEntry<K> {
    pub fn spec(&self) -> SettingSpec {
        let limit = |value| K::show(value).trim_matches('"').to_owned();
        SettingSpec {
            name: self.name,
            type_name: K::TYPE,
            doc: self.doc.trim(),
            form: K::form(),
            is_hidden: K::IS_HIDDEN,
            is_needed: self.default.is_none() && K::absent().is_none(),
            default: self.default.as_ref().map(K::show),
            absent: self.absent,
            range: self.limits.as_ref().map(|range| (limit(range.start()), limit(range.end()))),
        }
    }

    /// Reads the value, or the default if there is none or it cannot be used.
    pub fn read(self, source: &dyn SettingSource) -> Option<K::Value> {
        let spec = self.spec();
        match source.raw(&spec).map(|raw| raw.map(K::read)) {
            Ok(Some(Ok(value))) => match &self.limits {
                Some(limits) if !K::contains(limits.start(), limits.end(), &value) => {
                    let (from, to) = spec.range.clone().unwrap_or_default();
                    source.refuse(&spec, &format!("must be from {from} to {to}"));
                }
                _ => return Some(value),
            },
            Ok(Some(Err(why))) => source.refuse(&spec, &why),
            Ok(None) if spec.is_needed => source.missing(&spec),
            Ok(None) | Err(SettingReported) => {}
        }
        self.default.or_else(K::absent)
    }
}

/// A group of keys, read into one struct.
pub trait SettingGroup: Sized {
    /// The value that holds the defaults, where they differ from place to place.
    type Base;

    fn specs(base: &Self::Base) -> Vec<SettingSpec>;

    /// Reads every key and reports every problem; nothing if a needed key cannot be used.
    fn read(source: &dyn SettingSource, base: &Self::Base) -> Option<Self>;
}

/// Declares a group of keys: a struct, its documentation, and how it is read.
///
/// ```
/// use std::time::Duration;
/// use relais_core::setting::{Integer, NameText, SettingGroup, TimeSpan};
///
/// relais_core::settings! {
///     /// `[worker]`
///     pub struct WorkerKeys {
///         /// the name in the log
///         name: NameText => "write for example \"a\"";
///         /// threads
///         threads: Integer = 4, 1..=64;
///         /// time until it gives up
///         patience: Option<TimeSpan> => "none";
///     }
/// }
///
/// let specs = WorkerKeys::specs(&());
/// assert_eq!((specs[1].name, specs[1].doc), ("threads", "threads"));
/// assert_eq!(specs[1].default.as_deref(), Some("4"));
/// assert!(specs[0].is_needed && !specs[2].is_needed);
/// ```
///
/// A line is `field: Kind = default, limits => "text if it is absent";`. Without a default the key is needed,
/// unless its kind is an `Option` or a list. `field as "key"` gives the key another name than the field.
#[macro_export]
macro_rules! settings {
    (@group [$(#[$meta:meta])*] [$vis:vis] $group:ident [] $keys:tt) => {
        $crate::settings!(@group [$(#[$meta])*] [$vis] $group [_base: ()] $keys);
    };
    (@group [$(#[$meta:meta])*] [$vis:vis] $group:ident [$base:ident: $base_type:ty] { $(
        $(#[doc = $doc:literal])+
        $field:ident $(as $key:literal)? : $kind:ty
            $(= $default:expr)? $(, $limits:expr)? $(=> $absent:literal)? ;
    )* }) => {
        $(#[$meta])*
        #[derive(Debug)]
        $vis struct $group { $(
            $(#[doc = $doc])+
            $vis $field: <$kind as $crate::setting::SettingKind>::Value,
        )* }

        impl $crate::setting::SettingGroup for $group {
            type Base = $base_type;

            fn specs($base: &$base_type) -> Vec<$crate::setting::SettingSpec> {
                vec![$($crate::settings!(@entry
                    $field, $kind, concat!($($doc),+)
                    $(, key $key)? $(, default $default)? $(, limits $limits)? $(, absent $absent)?
                ).spec()),*]
            }

            fn read(
                source: &dyn $crate::setting::SettingSource,
                $base: &$base_type,
            ) -> Option<Self> {
                $(let $field = $crate::settings!(@entry
                    $field, $kind, concat!($($doc),+)
                    $(, key $key)? $(, default $default)? $(, limits $limits)? $(, absent $absent)?
                ).read(source);)*
                Some(Self { $($field: $field?),* })
            }
        }
    };
    (@entry $field:ident, $kind:ty, $doc:expr
        $(, key $key:literal)? $(, default $default:expr)? $(, limits $limits:expr)?
        $(, absent $absent:literal)?
    ) => {
        $crate::setting::SettingEntry::<$kind> {
            name: $crate::settings!(@first $($key,)? stringify!($field)),
            doc: $doc,
            default: $crate::settings!(@option $($default)?),
            limits: $crate::settings!(@option $($limits)?),
            absent: $crate::settings!(@first $($absent,)? ""),
        }
    };
    (@first $first:expr $(, $other:expr)*) => { $first };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
    ($($(#[$meta:meta])* $vis:vis struct $group:ident $(($base:ident: $base_type:ty))? {
        $($keys:tt)*
    })+) => {$(
        $crate::settings!(@group [$(#[$meta])*] [$vis] $group [$($base: $base_type)?] { $($keys)* });
    )+};
}
