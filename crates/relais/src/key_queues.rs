//! The rows that a worker holds, queued by key; at most one call of each key is in flight.
//!
//! Invariant: a row starts only when every earlier held row of its key was accepted; it need not be settled.
//! Pure bookkeeping: nothing here waits.

use std::collections::{HashMap, HashSet, VecDeque};

use relais_core::{
    inbox::InboxRow, lane::OwnedLane, outbox::OutboxRow, publisher::Batching, quarantine::Treatment,
};

use crate::lane_reader::ROWS_MAX;

/// A row of the inbox or of the outbox, as the queues need it.
pub(crate) trait QueueRow: Send + 'static {
    fn id(&self) -> i64;
    fn lane(&self) -> i16;
    fn key(&self) -> &str;
    fn lost_workers(&self) -> u32;
    fn bytes(&self) -> usize;
    /// Returns the type that a worker must know to handle the row, where that matters.
    fn event_type(&self) -> Option<&str> {
        None
    }
}

impl QueueRow for OutboxRow {
    fn id(&self) -> i64 {
        self.id
    }
    fn lane(&self) -> i16 {
        self.lane
    }
    fn key(&self) -> &str {
        &self.msg_key
    }
    fn lost_workers(&self) -> u32 {
        self.lost_workers
    }
    fn bytes(&self) -> usize {
        self.payload.len()
    }
}

impl QueueRow for InboxRow {
    fn id(&self) -> i64 {
        self.id
    }
    fn lane(&self) -> i16 {
        self.lane
    }
    fn key(&self) -> &str {
        &self.msg_key
    }
    fn lost_workers(&self) -> u32 {
        self.lost_workers
    }
    fn bytes(&self) -> usize {
        let texts = [&self.payload, &self.raw_payload_base64];
        texts.into_iter().flatten().map(String::len).sum()
    }
    fn event_type(&self) -> Option<&str> {
        self.event_type.as_deref()
    }
}

/// A row that a worker holds, with the lane it was read under.
#[derive(Clone, Debug)]
pub(crate) struct RowInFlight<R> {
    pub(crate) row: R,
    pub(crate) lane: OwnedLane,
    /// The decision of the [quarantine](crate::quarantine).
    pub(crate) treatment: Treatment,
}

/// Maximum number of queued rows of one key whose calls carry one row of it: more would crowd out other keys.
pub(crate) const PER_KEY_MAX: usize = 64;
/// Maximum number of queued rows of a key whose calls carry many rows of it, and of all such keys that have a
/// call in flight, beyond [`PER_KEY_MAX`] of each: half of a worker's queue, the rest is for other keys.
pub(crate) const LONG_KEYS_MAX: usize = ROWS_MAX / 2;
/// Maximum number of keys whose calls are halved. Beyond it the search for bad messages starts again.
const HALVED_KEYS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct KeyQueues<R> {
    queues: HashMap<String, VecDeque<RowInFlight<R>>>,
    /// Keys with queued rows and no call in flight, in the order they became so.
    ready: VecDeque<String>,
    /// Keys with a call in flight.
    busy: HashSet<String>,
    /// Every held row, with its lane and its bytes: queued, in flight, or returned and not yet settled.
    held: HashMap<i64, (i16, usize)>,
    /// The payload bytes of all held rows.
    bytes: usize,
    queued: usize,
    /// Queued rows of keys with a call in flight.
    behind: usize,
    /// Maximum number of queued rows of one key.
    key_max: usize,
    /// A row that must be sent alone and is not settled: the next such row waits.
    alone: Option<i64>,
    /// Keys of which the read in progress returns nothing usable: an earlier row failed or was dropped.
    void: HashSet<String>,
    /// Keys whose calls failed as a whole, with the maximum rows of their next call.
    batch_max: HashMap<String, usize>,
    /// A row that was read is not held any more, and may not be settled: it must be read again.
    pub(crate) has_given_back: bool,
}

impl<R: QueueRow> KeyQueues<R> {
    pub(crate) fn new() -> Self {
        Self {
            queues: HashMap::new(),
            ready: VecDeque::new(),
            busy: HashSet::new(),
            held: HashMap::new(),
            bytes: 0,
            queued: 0,
            behind: 0,
            key_max: PER_KEY_MAX,
            alone: None,
            void: HashSet::new(),
            batch_max: HashMap::new(),
            has_given_back: true,
        }
    }

    pub(crate) fn holds(&self, id: i64) -> bool {
        self.held.contains_key(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the ids of every held row.
    pub(crate) fn ids(&self) -> Vec<i64> {
        self.held.keys().copied().collect()
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Returns the number of rows that are queued, in flight, or returned and not yet settled.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns whether a row of the lane is held.
    pub(crate) fn uses(&self, lane: i16) -> bool {
        self.held.values().any(|(l, _)| *l == lane)
    }

    /// Returns the payload bytes of all held rows.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fits the queue of each key to the rows of it that one call carries.
    pub(crate) fn fit(&mut self, batching: Batching) {
        self.key_max = match batching {
            Batching::InOrder { max } => max.clamp(PER_KEY_MAX, LONG_KEYS_MAX),
            Batching::Single | Batching::Distinct { .. } => PER_KEY_MAX,
        };
    }

    /// Returns the keys that have enough queued rows for now.
    pub(crate) fn full_keys(&self) -> Vec<String> {
        self.queues.keys().filter(|key| self.is_full(key)).cloned().collect()
    }

    pub(crate) fn is_full(&self, key: &str) -> bool {
        let queued = self.queues.get(key).map_or(0, VecDeque::len);
        let is_behind = || self.behind >= LONG_KEYS_MAX && self.busy.contains(key);
        queued >= self.key_max || queued >= PER_KEY_MAX && is_behind()
    }

    /// Begins a read, which leaves out the rows that are held now. From here until its rows are offered, every
    /// key whose rows are dropped is void: the read would return later rows only.
    pub(crate) fn begin_read(&mut self) {
        self.void.clear();
    }

    /// Voids keys of the read in progress: an earlier row of theirs failed and is not settled.
    pub(crate) fn void<'k>(&mut self, keys: impl Iterator<Item = &'k String>) {
        self.void.extend(keys.cloned());
    }

    /// Returns whether rows of this key stay in the store, behind earlier rows of the key.
    pub(crate) fn is_void(&self, key: &str) -> bool {
        self.void.contains(key)
    }

    /// Queues a row behind the rows of its key; rows must come in id order.
    pub(crate) fn offer(&mut self, entry: RowInFlight<R>) {
        let (id, lane, key) = (entry.row.id(), entry.row.lane(), entry.row.key().to_owned());
        let bytes = entry.row.bytes();
        if self.held.contains_key(&id) {
            return;
        }
        self.held.insert(id, (lane, bytes));
        self.bytes += bytes;
        self.queued += 1;
        let busy = self.busy.contains(&key);
        self.behind += usize::from(busy);
        let queue = self.queues.entry(key.clone()).or_default();
        queue.push_back(entry);
        if queue.len() == 1 && !busy {
            self.ready.push_back(key);
        }
    }

    /// Puts a ready key of the lowest rank first; of several, the one that `random` (`0.0..1.0`) selects.
    pub(crate) fn put_first<T: Ord>(&mut self, rank: impl Fn(&str) -> T, random: f64) {
        let ranks: Vec<T> = self.ready.iter().map(|key| rank(key)).collect();
        let Some(lowest) = ranks.iter().min() else { return };
        let best: Vec<usize> = (0..ranks.len()).filter(|at| ranks[*at] == *lowest).collect();
        let nth = (random.clamp(0.0, 1.0) * best.len() as f64) as usize;
        if let Some(key) = self.ready.remove(best[nth.min(best.len() - 1)]) {
            self.ready.push_front(key);
        }
    }

    /// Removes keys from the ready ones, in order.
    pub(crate) fn defer_keys(&mut self, is_deferred: impl Fn(&str) -> bool) -> VecDeque<String> {
        let (deferred, ready) = self.ready.drain(..).partition(|key| is_deferred(key));
        self.ready = ready;
        deferred
    }

    /// Puts deferred keys in front again.
    pub(crate) fn readmit_keys(&mut self, mut deferred: VecDeque<String>) {
        deferred.append(&mut self.ready);
        self.ready = deferred;
    }

    /// Returns the next rows to start and marks their keys busy; empty when none may start. A row that may
    /// not share a call comes by itself. A row that waits to be sent alone keeps its place in the queue.
    pub(crate) fn take(&mut self, batching: Batching) -> Vec<RowInFlight<R>> {
        let mut batch: Vec<RowInFlight<R>> = Vec::new();
        let mut waiting = VecDeque::new();
        let mut max = batching.max();
        while batch.len() < max
            && let Some(key) = self.ready.pop_front()
        {
            let front = self.queues.get(&key).and_then(VecDeque::front);
            let shares = front.is_none_or(RowInFlight::may_share_call);
            let alone = front.is_some_and(|entry| entry.treatment == Treatment::SendAlone);
            let key_max = self.batch_max.get(&key).copied().unwrap_or(usize::MAX);
            if shares && batch.len() < key_max {
                max = max.min(key_max);
                let room = match batching {
                    Batching::InOrder { .. } => max - batch.len(),
                    Batching::Single | Batching::Distinct { .. } => 1,
                };
                batch.extend(self.start(key, room));
            } else if !shares && batch.is_empty() && !(alone && self.alone.is_some()) {
                batch = self.start(key, 1);
                if alone {
                    self.alone = batch.first().map(|entry| entry.row.id());
                }
                break;
            } else {
                waiting.push_back(key);
            }
        }
        waiting.append(&mut self.ready);
        self.ready = waiting;
        batch
    }

    /// Halves the next calls of these rows' keys: a call of them failed as a whole.
    pub(crate) fn halve<'e>(&mut self, entries: impl Iterator<Item = &'e RowInFlight<R>>) {
        let keys: Vec<String> = entries.map(|entry| entry.row.key().to_owned()).collect();
        let half = (keys.len() / 2).max(1);
        if self.batch_max.len() + keys.len() > HALVED_KEYS_MAX {
            self.batch_max.clear();
        }
        for key in keys {
            let max = self.batch_max.entry(key).or_insert(half);
            *max = (*max).min(half);
        }
    }

    /// Ends the halving of a key: its call did not fail as a whole.
    pub(crate) fn restore(&mut self, key: &str) {
        if !self.batch_max.is_empty() {
            self.batch_max.remove(key);
        }
    }

    fn start(&mut self, key: String, room: usize) -> Vec<RowInFlight<R>> {
        let Some(queue) = self.queues.get_mut(&key) else { return Vec::new() };
        let alone = queue.iter().position(|entry| !entry.may_share_call());
        let shared = alone.unwrap_or(queue.len()).max(1);
        let started: Vec<_> = queue.drain(..room.min(shared).min(queue.len())).collect();
        if queue.is_empty() {
            self.queues.remove(&key);
        }
        self.queued -= started.len();
        self.behind += self.queues.get(&key).map_or(0, VecDeque::len);
        self.busy.insert(key);
        started
    }

    /// Ends a call: its keys may start again. The queued rows of `forget` keys are dropped and read again
    /// later, because an earlier row of the key was not accepted.
    pub(crate) fn complete(&mut self, entries: &[RowInFlight<R>], forget: &HashSet<String>) {
        for entry in entries {
            let key = entry.row.key();
            if !self.busy.remove(key) {
                continue;
            }
            let forgotten = forget.contains(key);
            if forgotten {
                self.void.insert(key.to_owned());
            }
            let Some(queue) = self.queues.get(key) else { continue };
            self.behind -= queue.len();
            if forgotten {
                let queue = self.queues.remove(key).unwrap_or_default();
                self.queued -= queue.len();
                self.give_back(queue.iter().map(|dropped| dropped.row.id()));
            } else {
                self.ready.push_back(key.to_owned());
            }
        }
    }

    /// Drops rows that are left to a later read.
    pub(crate) fn give_back(&mut self, ids: impl IntoIterator<Item = i64>) {
        self.has_given_back = true;
        self.release(ids);
    }

    /// Drops rows that are settled.
    pub(crate) fn release(&mut self, ids: impl IntoIterator<Item = i64>) {
        for id in ids {
            if let Some((_, bytes)) = self.held.remove(&id) {
                self.bytes -= bytes;
            }
            self.end_alone(id);
        }
    }

    /// Lets the next row start that must be sent alone, if this one was.
    pub(crate) fn end_alone(&mut self, id: i64) {
        if self.alone == Some(id) {
            self.alone = None;
        }
    }

    /// Drops every queued row; rows in flight stay.
    pub(crate) fn drop_queued(&mut self) {
        for (key, queue) in std::mem::take(&mut self.queues) {
            self.give_back(queue.iter().map(|entry| entry.row.id()));
            self.void.insert(key);
        }
        self.ready.clear();
        (self.queued, self.behind) = (0, 0);
    }

    /// Returns the queued suspects: rows that may have been in flight when their worker was lost.
    pub(crate) fn queued_suspects(&self) -> impl Iterator<Item = (i64, OwnedLane)> {
        let rows = self.queues.values().flatten();
        rows.filter(|entry| entry.is_suspect()).map(|entry| (entry.row.id(), entry.lane))
    }

    /// Drops queued rows whose lane this worker does not own any more in that epoch.
    pub(crate) fn keep_only(&mut self, lanes: &HashMap<i16, i64>) {
        let stale = |entry: &RowInFlight<R>| lanes.get(&entry.lane.lane) != Some(&entry.lane.epoch);
        let mut dropped = Vec::new();
        let Self { queues, void, .. } = self;
        queues.retain(|key, queue| {
            let before = dropped.len();
            dropped.extend(queue.iter().filter(|entry| stale(entry)).map(|entry| entry.row.id()));
            if dropped.len() > before {
                queue.retain(|entry| !stale(entry));
                void.insert(key.clone());
            }
            !queue.is_empty()
        });
        self.queued -= dropped.len();
        if !dropped.is_empty() {
            self.give_back(dropped);
        }
        let Self { queues, ready, busy, .. } = self;
        ready.retain(|key| queues.contains_key(key));
        self.behind = busy.iter().filter_map(|key| queues.get(key)).map(VecDeque::len).sum();
    }
}

#[cfg(test)]
#[path = "key_queues_tests.rs"]
mod tests;
