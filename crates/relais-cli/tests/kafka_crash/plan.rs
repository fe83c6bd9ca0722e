//! The records: the same in every run, with duplicates and undecodable ones.

use std::collections::HashMap;

/// Among a hundred records: ten repeat an earlier one, one is garbage.
const AGAIN_EVERY: usize = 10;
const GARBAGE_EVERY: usize = 100;
/// Largest distance between a record and its repetition.
const REACH: usize = 5_000;

/// One record.
pub(crate) enum Record {
    /// The `seq`-th message of its key; a repetition is the same again, byte for byte.
    Message { key: usize, seq: usize },
    /// The beginning of a JSON text.
    Garbage { key: usize },
}

/// All records, in the order they are sent.
pub(crate) struct Plan {
    pub(crate) records: Vec<Record>,
    /// Number of messages per key.
    pub(crate) messages: HashMap<usize, usize>,
    pub(crate) garbage: usize,
    pub(crate) repeated: usize,
}

impl Plan {
    pub(crate) fn new(count: usize, keys: usize) -> Self {
        let mut plan = Self {
            records: Vec::with_capacity(count),
            messages: HashMap::new(),
            garbage: 0,
            repeated: 0,
        };
        let mut sent: Vec<(usize, usize)> = Vec::new();
        for index in 0..count {
            let chance = scatter(index);
            let key = chance % keys;
            let record = if index % GARBAGE_EVERY == GARBAGE_EVERY / 2 {
                plan.garbage += 1;
                Record::Garbage { key }
            } else if index % AGAIN_EVERY == AGAIN_EVERY - 1 {
                plan.repeated += 1;
                let (key, seq) = sent[sent.len() - 1 - chance % REACH.min(sent.len())];
                Record::Message { key, seq }
            } else {
                let seq = plan.messages.entry(key).or_default();
                *seq += 1;
                sent.push((key, *seq));
                Record::Message { key, seq: *seq }
            };
            plan.records.push(record);
        }
        plan
    }

    pub(crate) fn distinct(&self) -> usize {
        self.messages.values().sum()
    }
}

/// Returns a pseudo-random number of a number.
fn scatter(index: usize) -> usize {
    let mut bits = (index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    usize::try_from(bits >> 34).unwrap()
}
