//! Ids that operators give by their first characters, as lists on a narrow terminal show them.
//!
//! Invariant: a prefix is never resolved by a guess. If several ids begin with it, the caller gets an error that
//! lists them. Ids of senders have any length: `order-1` may be a message that was removed, and `order-17` another one.
//! So the prefix of such an id must be marked (`order-1*`); UUIDs need no mark.

use uuid::Uuid;

/// Most ids of one [`Inspect::ids_with`](crate::inspect::Inspect::ids_with).
pub const IDS_MAX: usize = 10;

/// Fewest characters of a prefix, without the hyphens of a UUID; fewer are more likely a typo.
pub const CHARACTERS_MIN: usize = 4;
const UUID_DIGITS: usize = 32;
/// Either at the end marks a prefix; lists end a shortened text with the first.
const MARKS: [char; 2] = ['…', '*'];

/// The ids among which a prefix is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    /// Dead letters.
    DeadLetter,
    /// Processes.
    Process,
    /// The message ids of outbox rows, which are UUIDs.
    OutboxMessage,
    /// The message ids of inbox rows, which are texts of their senders.
    InboxMessage,
}

impl IdKind {
    /// All values.
    pub const ALL: [Self; 4] =
        [Self::DeadLetter, Self::Process, Self::OutboxMessage, Self::InboxMessage];

    /// Returns the word for one thing with such an id.
    pub fn noun(self) -> &'static str {
        match self {
            Self::DeadLetter => "dead letter",
            Self::Process => "process",
            Self::OutboxMessage | Self::InboxMessage => "message",
        }
    }
}

/// The first characters of an id, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdPrefix {
    kind: IdKind,
    written: String,
    marked: bool,
    low: String,
    high: String,
}

/// Several ids begin with the same prefix, or one does that may be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", ambiguous(self))]
pub struct AmbiguousId {
    /// The prefix as it was given.
    pub written: String,
    /// The word for one thing with such an id.
    pub noun: &'static str,
    /// The ids that begin with it, in order; [`IDS_MAX`] if there are more.
    pub ids: Vec<String>,
}

fn ambiguous(error: &AmbiguousId) -> String {
    let AmbiguousId { written, noun, ids } = error;
    let listed = ids.join(", ");
    match ids.len() {
        1 => format!(
            "no {noun} has the ID {written}; one begins with it: {listed}; pass the whole ID"
        ),
        IDS_MAX.. => {
            format!("{written} matches many {noun} IDs: {listed} and more; pass more characters")
        }
        _ => format!("{written} matches more than one {noun}: {listed}; pass more characters"),
    }
}

impl IdPrefix {
    /// Parses a prefix; `None` if no id of this kind can begin with it, or if it is too short.
    pub fn parse(kind: IdKind, text: &str) -> Option<Self> {
        let written = text.strip_suffix(MARKS).unwrap_or(text);
        let (low, high) = match kind {
            IdKind::InboxMessage => text_range(written)?,
            IdKind::DeadLetter | IdKind::Process | IdKind::OutboxMessage => uuid_range(written)?,
        };
        let marked = written.len() < text.len();
        Some(Self { kind, written: written.to_owned(), marked, low, high })
    }

    /// Returns the kind of the ids.
    pub fn kind(&self) -> IdKind {
        self.kind
    }

    /// Returns the prefix as it was given, without its mark.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Returns the first and the last text that begin with this prefix; UUIDs as they are stored.
    pub fn range(&self) -> (&str, &str) {
        (&self.low, &self.high)
    }

    /// Returns the UUID if all its digits were given.
    pub fn whole(&self) -> Option<Uuid> {
        if self.low != self.high {
            return None;
        }
        Uuid::try_parse(&self.low).ok()
    }

    /// Returns the only one of the ids that were found.
    pub fn only(&self, mut found: Vec<String>) -> Result<Option<String>, AmbiguousId> {
        match found.as_slice() {
            [] => Ok(None),
            [one] if self.means(one) => Ok(found.pop()),
            _ => {
                let (written, noun) = (self.written.clone(), self.kind.noun());
                Err(AmbiguousId { written, noun, ids: found })
            }
        }
    }

    /// Returns `true` if this id can be meant without a doubt, if it is the only one.
    pub fn means(&self, id: &str) -> bool {
        self.marked || self.kind != IdKind::InboxMessage || Uuid::try_parse(id).is_ok()
    }
}

/// Returns `true` if a text has too few characters for a prefix, without its mark.
pub fn is_too_short(text: &str) -> bool {
    text.strip_suffix(MARKS).unwrap_or(text).chars().count() < CHARACTERS_MIN
}

/// Fills the missing digits of a UUID; hyphens may be left out.
fn uuid_range(text: &str) -> Option<(String, String)> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let fits = (CHARACTERS_MIN..=UUID_DIGITS).contains(&digits.len());
    if !fits || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let filled = |with: &str| {
        let rest = with.repeat(UUID_DIGITS - digits.len());
        Uuid::try_parse(&format!("{digits}{rest}")).ok().map(|id| id.to_string())
    };
    Some((filled("0")?, filled("f")?))
}

/// Both databases compare message ids byte by byte, so the last character of Unicode ends the range.
fn text_range(text: &str) -> Option<(String, String)> {
    let fits = text.chars().nth(CHARACTERS_MIN - 1).is_some() && !text.contains('\0');
    fits.then(|| (text.to_owned(), format!("{text}{}", char::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_digits_of_a_uuid_are_a_range() {
        let parse = |text| IdPrefix::parse(IdKind::DeadLetter, text);
        let id = "0192f3c4-5a6b-7c8d-9e0f-112233445566";
        assert_eq!(parse(id).unwrap().whole(), Uuid::try_parse(id).ok());
        let some = parse("0192F3c4-5").unwrap();
        assert_eq!(some.whole(), None);
        let last = "0192f3c4-5fff-ffff-ffff-ffffffffffff";
        assert_eq!(some.range(), ("0192f3c4-5000-0000-0000-000000000000", last));
        for other in ["", "019", "m-1", "order/o-1", "xyz12345", &format!("{id}0")] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_first_characters_of_a_text_are_a_range() {
        let parse = |text| IdPrefix::parse(IdKind::InboxMessage, text);
        let orders = parse("order-1").unwrap();
        let (low, high) = orders.range();
        for within in ["order-1", "order-17", "order-1/é", "order-1\u{10fffe}"] {
            assert!(low <= within && within <= high, "{within}");
        }
        assert!("order-2" > high && "order-0" < low);
        assert_eq!(orders.whole(), None);
        assert_eq!(parse("m-1"), None, "too short");
        assert_eq!(parse("m-1\0x"), None);
        assert_eq!(parse("m-1*"), None, "the mark is no character of the ID");
        assert_eq!(["m-1", "m-1*", "m-17", "m-17…"].map(is_too_short), [true, true, false, false]);
    }

    #[test]
    fn several_matches_are_an_error_that_lists_them() {
        let prefix = IdPrefix::parse(IdKind::Process, "0192f3c4").unwrap();
        let ids = |count: usize| (0..count).map(|n| format!("id-{n}")).collect::<Vec<_>>();
        assert_eq!(prefix.only(ids(0)), Ok(None));
        assert_eq!(prefix.only(ids(1)), Ok(Some("id-0".to_owned())));
        let text = prefix.only(ids(2)).unwrap_err().to_string();
        assert_eq!(
            text,
            "0192f3c4 matches more than one process: id-0, id-1; pass more characters"
        );
        let text = prefix.only(ids(IDS_MAX)).unwrap_err().to_string();
        assert!(text.contains("id-9 and more;"), "{text}");
    }

    #[test]
    fn a_text_is_resolved_only_if_it_is_marked_and_a_uuid_always() {
        let only = |text: &str, id: &str| {
            let prefix = IdPrefix::parse(IdKind::InboxMessage, text).unwrap();
            prefix.only(vec![id.to_owned()])
        };
        let text = only("order-1", "order-17").unwrap_err().to_string();
        let wanted =
            "no message has the ID order-1; one begins with it: order-17; pass the whole ID";
        assert_eq!(text, wanted);
        for marked in ["order-1*", "order-1…"] {
            assert_eq!(only(marked, "order-17"), Ok(Some("order-17".to_owned())));
        }
        let id = "0192f3c4-5a6b-7c8d-9e0f-112233445566";
        assert_eq!(only("0192f3c4", id), Ok(Some(id.to_owned())));
        let marked = IdPrefix::parse(IdKind::DeadLetter, "0192f3c4…").unwrap();
        assert_eq!(marked.written(), "0192f3c4");
    }
}
