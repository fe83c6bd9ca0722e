//! What was written, and what arrived: the two sides the checker compares.
//!
//! A message is known by its flow, its key and its number within the key; numbers of a key begin at
//! one and have no gap. What a writer was told it had written must arrive; what was rolled back must
//! not; what it cannot know (the answer to its commit was lost) is looked up in the database.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Flow {
    /// Written with a business row into the outbox.
    Sent,
    /// Posted to a source, and routed to the target.
    Heard,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) flow: Flow,
    pub(crate) key: u32,
    pub(crate) number: u32,
}

impl Flow {
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Sent => 's',
            Self::Heard => 'h',
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}-{}", self.flow.letter(), self.key, self.number)
    }
}

impl Name {
    /// Reads what [`Name::to_string`] wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (flow, rest) = match text.split_at_checked(1)? {
            ("s", rest) => (Flow::Sent, rest),
            ("h", rest) => (Flow::Heard, rest),
            _ => return None,
        };
        let (key, number) = rest.split_once('-')?;
        Some(Self { flow, key: key.parse().ok()?, number: number.parse().ok()? })
    }
}

/// What the target got.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    arrived: HashMap<Name, Arrival>,
    /// The highest number that has arrived, by key.
    highest: HashMap<(Flow, u32), u32>,
    reordered: Vec<Name>,
    renamed: Vec<Name>,
    unknown: Vec<String>,
}

/// How one message arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) message_id: String,
    pub(crate) copies: u32,
}

impl Arrivals {
    /// Writes down one arrival.
    pub(crate) fn note(&self, text: &str, message_id: &str) {
        let mut book = self.0.lock().expect("nobody panics with the book");
        let Some(name) = Name::parse(text) else {
            book.unknown.push(text.to_owned());
            return;
        };
        if let Some(arrival) = book.arrived.get_mut(&name) {
            arrival.copies += 1;
            // A copy under another id would be a second effect at any target that knows ids.
            if arrival.message_id != message_id {
                book.renamed.push(name);
            }
            return;
        }
        let highest = book.highest.entry((name.flow, name.key)).or_default();
        let overtaken = name.number < *highest;
        *highest = name.number.max(*highest);
        if overtaken {
            book.reordered.push(name);
        }
        book.arrived.insert(name, Arrival { message_id: message_id.to_owned(), copies: 1 });
    }

    /// Everything, when nothing arrives any more.
    pub(crate) fn close(&self) -> Closed {
        let book = std::mem::take(&mut *self.0.lock().expect("nobody panics with the book"));
        let Book { arrived, reordered, renamed, unknown, .. } = book;
        Closed { arrived: arrived.into_iter().collect(), reordered, renamed, unknown }
    }
}

/// All arrivals of a run.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) arrived: BTreeMap<Name, Arrival>,
    /// First came after a later one of its key.
    pub(crate) reordered: Vec<Name>,
    /// Came under two message ids.
    pub(crate) renamed: Vec<Name>,
    /// What nobody has written.
    pub(crate) unknown: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["s7-1", "s7-2", "s7-3"];

    fn arrivals(of: &[(&str, &str)]) -> Closed {
        let arrivals = Arrivals::default();
        for (name, id) in of {
            arrivals.note(name, id);
        }
        arrivals.close()
    }

    #[test]
    fn names_are_written_as_they_are_read() {
        for name in NAMES {
            assert_eq!(Name::parse(name).map(|name| name.to_string()).as_deref(), Some(name));
        }
        for text in ["", "x1-1", "s1", "s1-x", "é1-1"] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_late_copy_is_harmless_and_a_late_first_is_not() {
        let copies = arrivals(&[("s7-1", "a"), ("s7-2", "b"), ("s7-1", "a")]);
        assert!(copies.reordered.is_empty() && copies.renamed.is_empty());
        assert_eq!(copies.arrived.values().map(|arrival| arrival.copies).sum::<u32>(), 3);
        let late = arrivals(&[("s7-2", "b"), ("s7-1", "a"), ("h7-1", "c")]);
        assert_eq!(late.reordered, [Name { flow: Flow::Sent, key: 7, number: 1 }]);
    }

    #[test]
    fn a_copy_under_another_id_and_a_stranger_are_told() {
        let found = arrivals(&[("s7-1", "a"), ("s7-1", "b"), ("what", "c")]);
        assert_eq!((found.renamed.len(), found.unknown.len()), (1, 1));
    }
}
