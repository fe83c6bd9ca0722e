//! Record ids: 15 case-sensitive characters, and a checksum of 3 that makes them case-insensitive.
//!
//! Ids grow with time: their order is the order of creation.

use std::fmt;

use serde::{Serialize, Serializer};

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const CHECKS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ012345";
/// The instance of the org, between the object prefix and the number.
const INSTANCE: &[u8; 2] = b"5f";

/// The 18 characters of an id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id([u8; 18]);

impl Id {
    /// Returns the id with this number and prefix; the prefix has three letters or digits.
    pub(crate) fn new(prefix: &str, number: u64) -> Self {
        let mut short = [b'0'; 15];
        short[..3].copy_from_slice(&prefix.as_bytes()[..3]);
        short[3..5].copy_from_slice(INSTANCE);
        let mut rest = number;
        for digit in short[5..].iter_mut().rev() {
            *digit = DIGITS[(rest % 62) as usize];
            rest /= 62;
        }
        Self::complete(short)
    }

    /// Parses an id of 15 or 18 characters.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if !bytes.iter().all(u8::is_ascii_alphanumeric) {
            return None;
        }
        let id = Self::complete(bytes.get(..15)?.try_into().ok()?);
        (bytes.len() == 15 || bytes.get(15..)? == &id.0[15..]).then_some(id)
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("an id has ASCII characters only")
    }

    /// Returns the first three characters, which identify the object.
    pub(crate) fn prefix(&self) -> &str {
        &self.as_str()[..3]
    }

    fn complete(short: [u8; 15]) -> Self {
        let mut full = [0; 18];
        full[..15].copy_from_slice(&short);
        for (part, five) in short.chunks(5).enumerate() {
            let upper = |(i, c): (usize, &u8)| usize::from(c.is_ascii_uppercase()) << i;
            full[15 + part] = CHECKS[five.iter().enumerate().map(upper).sum::<usize>()];
        }
        Self(full)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_characters_are_those_of_salesforce() {
        // The example of Salesforce's article on 15 and 18 characters.
        let id = Id::parse("00570000001ZwTi").unwrap();
        assert_eq!(id.as_str(), "00570000001ZwTiAAK");
        assert_eq!(Id::parse("00570000001ZwTiAAK"), Some(id));
        assert_eq!(Id::parse("00570000001ZwTiAAA"), None);
    }

    #[test]
    fn ids_grow_with_their_number() {
        let ids: Vec<Id> = [0, 1, 61, 62, 3843, 3844].map(|n| Id::new("001", n)).into();
        assert!(ids.is_sorted());
        assert_eq!(ids[1].prefix(), "001");
        assert!(ids.iter().all(|id| Id::parse(id.as_str()) == Some(*id)));
    }

    #[test]
    fn invalid_ids_are_refused() {
        for text in ["", "001", "0015f0000000001AA", "0015f00000 0001", "0015f0000000001AAÄ"] {
            assert_eq!(Id::parse(text), None, "{text}");
        }
    }
}
