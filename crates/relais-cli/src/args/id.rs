//! IDs on the command line: whole, or only the first digits.

use uuid::Uuid;

/// Fewest digits of a prefix; fewer are more likely a typo.
const DIGITS_MIN: usize = 4;
const DIGITS: usize = 32;

/// A UUID, or the first digits of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdPrefix {
    pub(crate) written: String,
    /// The first and the last id with this prefix; equal if all digits were given.
    pub(crate) low: Uuid,
    pub(crate) high: Uuid,
}

impl IdPrefix {
    /// Parses a prefix; `None` if it is not the beginning of a UUID.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let fits = (DIGITS_MIN..=DIGITS).contains(&digits.len());
        if !fits || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let filled = |with: &str| {
            let rest = with.repeat(DIGITS - digits.len());
            Uuid::try_parse(&format!("{digits}{rest}")).ok()
        };
        Some(Self { written: text.to_owned(), low: filled("0")?, high: filled("f")? })
    }

    /// Returns the id if all its digits were given.
    pub(crate) fn whole(&self) -> Option<Uuid> {
        (self.low == self.high).then_some(self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_range_of_ids() {
        let id = "0192f3c4-5a6b-7c8d-9e0f-112233445566";
        assert_eq!(IdPrefix::parse(id).unwrap().whole(), Uuid::try_parse(id).ok());
        let some = IdPrefix::parse("0192F3c4-5").unwrap();
        assert_eq!(some.whole(), None);
        assert_eq!(some.low.to_string(), "0192f3c4-5000-0000-0000-000000000000");
        assert_eq!(some.high.to_string(), "0192f3c4-5fff-ffff-ffff-ffffffffffff");
        for other in ["", "019", "m-1", "order/o-1", "xyz12345", &format!("{id}0")] {
            assert_eq!(IdPrefix::parse(other), None, "{other}");
        }
    }
}
