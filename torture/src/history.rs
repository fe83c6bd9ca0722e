//! Written and arrived messages: the two sides that the checker compares.
//!
//! A message is known by its flow, its key and its number within the key; numbers of a key begin at
//! one and have no gap. A committed message must arrive, a rolled-back one must not. If the answer to a
//! commit was lost, the writer reads the result from the database.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Mutex,
    time::{Duration, Instant},
};

/// Most messages of a key; no writer uses a higher number.
const NUMBER_MAX: u32 = 1_000_000;
/// About one in this many messages of [`Flow::Patient`] is large.
const LARGE_EVERY: u32 = 97;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Flow {
    /// WrittenKeys with a business row into the outbox.
    Sent,
    /// Posted to a source, and routed to the target.
    Heard,
    /// WrittenKeys with a business row into the outbox, and upserted in Salesforce.
    Contact,
    /// Posted to the ledger, which sends a message about it.
    Booked,
    /// Produced to a topic of Kafka, and routed to another.
    Record,
    /// Sent to a queue of RabbitMQ, and routed to another.
    Queued,
    /// Sent to a stream of NATS, and routed to another.
    Streamed,
    /// WrittenKeys with a business row into the outbox, for a target in trouble: with the default retry, and
    /// with few attempts.
    Patient,
    Strict,
}

/// The first keys of [`Flow::Patient`] and of [`Flow::Strict`] are poison keys; this is the number of each.
const POISON_KEYS: u32 = 4;

/// The answer to every call of a poison key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poison {
    Status(u16),
    NoAnswer,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MessageName {
    pub(crate) flow: Flow,
    pub(crate) key: u32,
    pub(crate) number: u32,
}

impl Flow {
    const ALL: [Self; 9] = [
        Self::Sent,
        Self::Heard,
        Self::Contact,
        Self::Booked,
        Self::Record,
        Self::Queued,
        Self::Streamed,
        Self::Patient,
        Self::Strict,
    ];

    pub(crate) fn letter(self) -> char {
        match self {
            Self::Sent => 's',
            Self::Heard => 'h',
            Self::Contact => 'c',
            Self::Booked => 'b',
            Self::Record => 'r',
            Self::Queued => 'u',
            Self::Streamed => 't',
            Self::Patient => 'p',
            Self::Strict => 'q',
        }
    }

    /// Returns its poison keys, as they are in the tables.
    pub(crate) fn poison_keys(self) -> Vec<String> {
        let names = (0..POISON_KEYS).map(|key| MessageName { flow: self, key, number: 1 });
        names.filter(|name| name.poison().is_some()).map(MessageName::key).collect()
    }
}

impl std::fmt::Display for MessageName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}-{}", self.flow.letter(), self.key, self.number)
    }
}

impl MessageName {
    /// Reads what [`MessageName::to_string`] wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let flow = Flow::ALL.into_iter().find(|flow| text.starts_with(flow.letter()))?;
        let (key, number) = text[1..].split_once('-')?;
        Some(Self { flow, key: key.parse().ok()?, number: number.parse().ok()? })
    }

    pub(crate) fn key(self) -> String {
        format!("{}{}", self.flow.letter(), self.key)
    }

    /// Returns what its calls get, if its key is a poison key.
    pub(crate) fn poison(self) -> Option<Poison> {
        match (self.flow, self.key) {
            (Flow::Patient | Flow::Strict, 0) => Some(Poison::Status(500)),
            (Flow::Patient | Flow::Strict, 1) => Some(Poison::Status(503)),
            (Flow::Patient | Flow::Strict, 2) => Some(Poison::Status(504)),
            (Flow::Patient | Flow::Strict, 3) => Some(Poison::NoAnswer),
            _ => None,
        }
    }

    /// Returns the size of its payload, if that is a large one.
    pub(crate) fn large_megabytes(self) -> Option<usize> {
        let rng = self.key * 7 + self.number;
        let large = self.flow == Flow::Patient && rng.is_multiple_of(LARGE_EVERY);
        large.then(|| 1 + (rng / LARGE_EVERY) as usize % 4)
    }
}

/// Written messages: the last number of each key.
#[derive(Clone, Debug, Default)]
pub(crate) struct WrittenKeys {
    last: BTreeMap<(Flow, u32), u32>,
    /// Still in a table: that is no loss.
    pub(crate) waiting: HashSet<MessageName>,
}

impl WrittenKeys {
    pub(crate) fn add(&mut self, flow: Flow, key: u32, last: u32) {
        self.last.insert((flow, key), last);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.last.extend(other.last);
        self.waiting.extend(other.waiting);
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = MessageName> {
        self.last.iter().flat_map(|((flow, key), last)| {
            (1..=*last).map(|number| MessageName { flow: *flow, key: *key, number })
        })
    }

    pub(crate) fn has(&self, name: MessageName) -> bool {
        self.last.get(&(name.flow, name.key)).is_some_and(|last| (1..=*last).contains(&name.number))
    }
}

/// Messages that the target got.
#[derive(Debug)]
pub(crate) struct Arrivals {
    started: Instant,
    table: Mutex<ArrivalTable>,
}

/// The arrival of one message. There are millions of them.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    /// Of its message id.
    hash: u64,
    copies: u32,
    /// Milliseconds since the start.
    first: u32,
}

/// A message of which more than one copy came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepeatedMessage {
    pub(crate) name: MessageName,
    /// Of its message id.
    pub(crate) hash: u64,
    pub(crate) copies: u32,
    pub(crate) first: Instant,
    pub(crate) last: Instant,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { started: Instant::now(), table: Mutex::default() }
    }
}

impl Arrivals {
    /// Writes down one arrival.
    pub(crate) fn note(&self, text: &str, message_id: &str) {
        let now = Instant::now();
        let mut table = self.table.lock().expect("the lock is not poisoned");
        let name = MessageName::parse(text).filter(|name| (1..=NUMBER_MAX).contains(&name.number));
        match name {
            Some(name) => table.note(name, hash(message_id), self.started, now),
            None => table.unknown.push(text.to_owned()),
        }
    }

    /// Writes down the arrival of a payload that a writer made.
    pub(crate) fn note_payload(&self, payload: &[u8], message_id: &str) {
        let value: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
        self.note(value["name"].as_str().unwrap_or_default(), message_id);
    }

    /// Returns the number of messages that have arrived.
    pub(crate) fn count(&self) -> u64 {
        self.table.lock().expect("the lock is not poisoned").messages
    }

    /// Everything, when nothing arrives any more.
    pub(crate) fn close(&self) -> ArrivalTable {
        std::mem::take(&mut *self.table.lock().expect("the lock is not poisoned"))
    }
}

/// All arrivals of a run.
#[derive(Debug, Default)]
pub(crate) struct ArrivalTable {
    /// By number; the length of a list is the highest number that has arrived.
    arrived: HashMap<(Flow, u32), Vec<Arrival>>,
    pub(crate) messages: u64,
    /// Beyond the first.
    pub(crate) copies: u64,
    pub(crate) repeated: HashMap<MessageName, RepeatedMessage>,
    /// First came after a later one of its key.
    pub(crate) reordered: Vec<MessageName>,
    /// Came under two message ids.
    pub(crate) renamed: Vec<MessageName>,
    /// Arrived, but not written by any writer.
    pub(crate) unknown: Vec<String>,
}

impl ArrivalTable {
    fn note(&mut self, name: MessageName, hash: u64, started: Instant, now: Instant) {
        let numbers = self.arrived.entry((name.flow, name.key)).or_default();
        let place = name.number as usize - 1;
        if place < numbers.len() && numbers[place].copies == 0 {
            self.reordered.push(name);
        }
        if place >= numbers.len() {
            numbers.resize(place + 1, Arrival::default());
        }
        let arrival = &mut numbers[place];
        arrival.copies += 1;
        if arrival.copies == 1 {
            self.messages += 1;
            arrival.hash = hash;
            let first = now.saturating_duration_since(started).as_millis();
            arrival.first = u32::try_from(first).unwrap_or(u32::MAX);
            return;
        }
        self.copies += 1;
        // A copy under another id would be a second effect at any target that knows ids.
        if arrival.hash != hash {
            self.renamed.push(name);
        }
        let first = started + Duration::from_millis(arrival.first.into());
        let copies = arrival.copies;
        self.repeated.insert(name, RepeatedMessage { name, hash, copies, first, last: now });
    }

    pub(crate) fn has(&self, name: MessageName) -> bool {
        let numbers = self.arrived.get(&(name.flow, name.key));
        let arrival =
            numbers.and_then(|numbers| numbers.get((name.number as usize).wrapping_sub(1)));
        arrival.is_some_and(|arrival| arrival.copies > 0)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = MessageName> {
        self.arrived.iter().flat_map(|((flow, key), numbers)| {
            let came = numbers.iter().zip(1..).filter(|(arrival, _)| arrival.copies > 0);
            came.map(|(_, number)| MessageName { flow: *flow, key: *key, number })
        })
    }
}

/// A message id is known by its hash: ten million texts would be too many.
pub(crate) fn hash(message_id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    message_id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["s7-1", "s7-2", "s7-3"];

    fn arrivals(of: &[(&str, &str)]) -> ArrivalTable {
        let arrivals = Arrivals::default();
        for (name, id) in of {
            arrivals.note(name, id);
        }
        arrivals.close()
    }

    #[test]
    fn names_are_written_as_they_are_read() {
        for name in NAMES {
            assert_eq!(
                MessageName::parse(name).map(|name| name.to_string()).as_deref(),
                Some(name)
            );
        }
        for text in ["", "x1-1", "s1", "s1-x", "é1-1"] {
            assert_eq!(MessageName::parse(text), None, "{text}");
        }
    }

    #[test]
    fn few_keys_are_poison_and_few_rows_are_large() {
        assert_eq!(Flow::Strict.poison_keys(), ["q0", "q1", "q2", "q3"]);
        assert_eq!(Flow::Sent.poison_keys(), Vec::<String>::new());
        let names = (0..200).map(|key| MessageName { flow: Flow::Patient, key, number: 8 });
        let large: Vec<_> = names.filter_map(MessageName::large_megabytes).collect();
        assert!(!large.is_empty() && large.len() < 5, "{large:?}");
        assert!(large.iter().all(|megabytes| (1..=4).contains(megabytes)), "{large:?}");
    }

    #[test]
    fn a_late_copy_is_harmless_and_a_late_first_is_not() {
        let copies = arrivals(&[("s7-1", "a"), ("s7-2", "b"), ("s7-1", "a")]);
        assert!(copies.reordered.is_empty() && copies.renamed.is_empty());
        assert_eq!((copies.messages, copies.copies), (2, 1));
        assert_eq!(
            copies.repeated.values().map(|repeated| repeated.copies).collect::<Vec<_>>(),
            [2]
        );
        let late = arrivals(&[("s7-2", "b"), ("s7-1", "a"), ("h7-1", "c")]);
        assert_eq!(late.reordered, [MessageName { flow: Flow::Sent, key: 7, number: 1 }]);
    }

    #[test]
    fn a_copy_under_another_id_and_an_unknown_message_are_found() {
        let found = arrivals(&[("s7-1", "a"), ("s7-1", "b"), ("what", "c")]);
        assert_eq!((found.renamed.len(), found.unknown.len()), (1, 1));
    }
}
