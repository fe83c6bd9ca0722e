//! A regular expression in the faults; if absent, it matches everything.

use std::fmt;

use regex_lite::Regex;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

#[derive(Clone, Default)]
pub struct Pattern(Option<Regex>);

impl Pattern {
    pub fn new(text: &str) -> Result<Self, regex_lite::Error> {
        Regex::new(text).map(|regex| Self(Some(regex)))
    }

    pub(crate) fn fits(&self, text: &str) -> bool {
        self.0.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref().map_or("(everything)", |regex| regex.as_str()))
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_ref().map_or("", |regex| regex.as_str()))
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(|error| D::Error::custom(format!("bad pattern {text:?}: {error}")))
    }
}
