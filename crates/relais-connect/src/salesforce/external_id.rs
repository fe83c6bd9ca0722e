//! External ids: which can be sent, and which are equal for Salesforce.
//!
//! Invariant: no two rows of one call or job have ids that differ only in case. Whether the org
//! distinguishes them depends on the field; if it does not, results could not be matched.

use std::collections::HashSet;

use relais_core::delivery::Delivery;

/// Maximum length of an external id, in characters.
const CHARS_MAX: usize = 255;

/// The ids of one call or job.
#[derive(Debug, Default)]
pub(super) struct ExternalIds(HashSet<String>);

impl ExternalIds {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self(HashSet::with_capacity(count))
    }

    /// Adds an id. The error is the delivery of a row that cannot be sent. `Held`: another row of
    /// the same record is sent first.
    pub(super) fn admit(&mut self, id: &str) -> Result<(), Delivery> {
        check(id).map_err(|why| Delivery::reject("EXTERNAL_ID_INVALID", &why))?;
        if self.0.insert(id.to_ascii_lowercase()) { Ok(()) } else { Err(Delivery::Held) }
    }
}

/// Checks that an id can be sent; the error explains why not.
pub(super) fn check(id: &str) -> Result<(), String> {
    let shown = || id.chars().take(60).collect::<String>().escape_debug().to_string();
    let why = if id.is_empty() {
        "is empty".to_owned()
    } else if id.trim() != id {
        "has blanks at its ends, which Salesforce removes; correct the aggregate id".to_owned()
    } else if id.chars().any(char::is_control) {
        "has control characters; correct the aggregate id".to_owned()
    } else if id.len() > CHARS_MAX && id.chars().count() > CHARS_MAX {
        format!("is longer than {CHARS_MAX} characters; use a shorter aggregate id")
    } else if id == super::csv::NULL {
        format!("means null in Salesforce; use another aggregate id than {id}")
    } else {
        return Ok(());
    };
    Err(format!("the external id \"{}\" {why}", shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_id_is_refused_with_the_reason() {
        for (id, says) in [
            ("", "is empty"),
            (" M-1", "blanks"),
            ("M-1\u{a0}", "blanks"),
            ("M\u{7}1", "control"),
            ("M\n1", "control"),
            ("#N/A", "means null"),
        ] {
            assert!(check(id).unwrap_err().contains(says), "{id:?}");
        }
        assert!(check(&"é".repeat(256)).unwrap_err().contains("longer than 255"));
        for good in ["M-1", "a b", "a/b", "é😀", "\u{feff}x"] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        assert_eq!(check(&"é".repeat(255)), Ok(()));
    }

    #[test]
    fn the_second_row_of_a_record_waits_for_the_first() {
        let mut keys = ExternalIds::default();
        assert_eq!(keys.admit("M-1"), Ok(()));
        assert_eq!(keys.admit("m-1"), Err(Delivery::Held));
        assert_eq!(keys.admit("M-2"), Ok(()));
        assert!(matches!(keys.admit(" M-3"), Err(Delivery::Reject { .. })));
    }
}
