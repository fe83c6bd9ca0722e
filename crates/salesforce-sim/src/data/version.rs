//! The versions of the API.

use std::fmt;

use serde_json::{Value as Json, json};

/// The first version with the Bulk API 2.0.
const FIRST: u16 = 41;
const LAST: u16 = 68;
/// Version 68 was released in the winter of this year; there are three releases a year.
const LAST_YEAR: u16 = 27;

/// An API version: `v66.0` is 66.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u16);

impl Version {
    pub(crate) const UPSERT_SAYS_CREATED: Self = Self(46);
    pub(crate) const COLLECTIONS: Self = Self(42);
    pub(crate) const COLLECTION_UPSERT: Self = Self(46);
    pub(crate) const GRAPH: Self = Self(50);
    pub(crate) const FAILED_RESULTS_HAVE_ID: Self = Self(53);

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = text.strip_prefix('v')?.strip_suffix(".0")?.parse().ok()?;
        (FIRST..=LAST).contains(&number).then_some(Self(number))
    }

    pub(crate) fn last() -> Self {
        Self(LAST)
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (FIRST..=LAST).map(Self)
    }

    /// Returns the number of `apiVersion` in a job.
    pub(crate) fn number(self) -> f64 {
        f64::from(self.0)
    }

    pub(crate) fn to_json(self) -> Json {
        let seasons_back = LAST - self.0;
        let season = ["Winter", "Summer", "Spring"][usize::from(seasons_back % 3)];
        // Winter '27 follows Summer '26.
        let year = LAST_YEAR - seasons_back.div_ceil(3);
        json!({
            "label": format!("{season} '{year}"),
            "url": format!("/services/data/{self}"),
            "version": format!("{}.0", self.0),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.0", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_labelled() {
        assert_eq!(Version::parse("v66.0").unwrap().to_string(), "v66.0");
        for text in ["66.0", "v66", "v40.0", "v69.0", "v.0", "v66.5"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        let label = |text| Version::parse(text).unwrap().to_json()["label"].clone();
        assert_eq!(label("v66.0"), "Spring '26");
        assert_eq!(label("v68.0"), "Winter '27");
        assert_eq!(label("v65.0"), "Winter '26");
    }
}
