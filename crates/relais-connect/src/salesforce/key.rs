//! External ids: which can be sent, and which are the same to Salesforce.
//!
//! Invariant: no two rows of one call or job have ids that differ in case only. Whether the org tells
//! them apart depends on the field; results could not be matched if it does not.

use std::collections::HashSet;

use relais_core::delivery::Delivery;

/// The longest text of an external id, in characters.
const CHARS_MAX: usize = 255;

/// Ids of one call or job.
#[derive(Debug, Default)]
pub(super) struct Keys(HashSet<String>);

impl Keys {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self(HashSet::with_capacity(count))
    }

    /// The answer for a row that cannot go along. `Held`: another row of the same record goes first.
    pub(super) fn admit(&mut self, id: &str) -> Result<(), Delivery> {
        check(id).map_err(|why| Delivery::reject("EXTERNAL_ID_INVALID", &why))?;
        if self.0.insert(id.to_ascii_lowercase()) { Ok(()) } else { Err(Delivery::Held) }
    }
}

/// Why an id cannot be sent.
pub(super) fn check(id: &str) -> Result<(), String> {
    let shown = || id.chars().take(60).collect::<String>().escape_debug().to_string();
    let why = if id.is_empty() {
        "is empty".to_owned()
    } else if id.trim() != id {
        "has blanks at its ends, which Salesforce cuts off; correct the aggregate id".to_owned()
    } else if id.chars().any(char::is_control) {
        "has control characters; correct the aggregate id".to_owned()
    } else if id.len() > CHARS_MAX && id.chars().count() > CHARS_MAX {
        format!("is longer than {CHARS_MAX} characters; use a shorter aggregate id")
    } else if id == super::csv::NULL {
        format!("means null to Salesforce; use another aggregate id than {id}")
    } else {
        return Ok(());
    };
    Err(format!("the external id \"{}\" {why}", shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_cannot_be_sent_say_why() {
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
        let mut keys = Keys::default();
        assert_eq!(keys.admit("M-1"), Ok(()));
        assert_eq!(keys.admit("m-1"), Err(Delivery::Held));
        assert_eq!(keys.admit("M-2"), Ok(()));
        assert!(matches!(keys.admit(" M-3"), Err(Delivery::Reject { .. })));
    }
}
