//! Rows in this worker's hands: queued by key, one key at a time under way.
//!
//! Invariant: of one key, a row starts only when every earlier row of that key in these hands was
//! accepted. Pure bookkeeping; nothing here waits.

use std::collections::{HashMap, HashSet, VecDeque};

use relais_core::{
    inbox::InboxRow, lane::OwnedLane, outbox::OutboxRow, publisher::Batching, quarantine::Treatment,
};

/// What the bookkeeping needs to know of a row.
pub(crate) trait Row: Send + 'static {
    fn id(&self) -> i64;
    fn lane(&self) -> i16;
    fn key(&self) -> &str;
    fn lost_workers(&self) -> u32;
    fn bytes(&self) -> usize;
    /// The type that a worker must know to handle it, where that matters.
    fn event_type(&self) -> Option<&str> {
        None
    }
}

impl Row for OutboxRow {
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

impl Row for InboxRow {
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

/// A row with the lane it was read under.
#[derive(Clone, Debug)]
pub(crate) struct Job<R> {
    pub(crate) row: R,
    pub(crate) lane: OwnedLane,
    /// What the rule about rows that may have killed their worker says.
    pub(crate) treatment: Treatment,
}

impl<R> Job<R> {
    /// Whether a loss is noted in the store before it is sent.
    pub(crate) fn is_noted(&self) -> bool {
        matches!(self.treatment, Treatment::NoteAndSend | Treatment::SendAlone)
    }

    /// Whether it starts in a call with others.
    fn is_plain(&self) -> bool {
        matches!(self.treatment, Treatment::Send | Treatment::NoteAndSend)
    }
}

/// Most rows of one key kept in memory: more would crowd out other keys.
pub(crate) const PER_KEY_MAX: usize = 64;
/// Most keys whose calls are halved. Beyond it the search for bad messages starts again.
const HALVED_KEYS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Flight<R> {
    queues: HashMap<String, VecDeque<Job<R>>>,
    /// Keys with queued rows and none under way, in the order they became so.
    ready: VecDeque<String>,
    /// Keys with a row under way.
    busy: HashSet<String>,
    /// Every row in these hands, with its lane and its bytes: queued, in flight, or landed and not yet
    /// settled.
    held: HashMap<i64, (i16, usize)>,
    queued: usize,
    /// A suspect is in flight: the next one waits.
    suspect: bool,
    /// Keys whose calls failed as a whole: most rows of their next call.
    batch_max: HashMap<String, usize>,
}

impl<R: Row> Flight<R> {
    pub(crate) fn new() -> Self {
        Self {
            queues: HashMap::new(),
            ready: VecDeque::new(),
            busy: HashSet::new(),
            held: HashMap::new(),
            queued: 0,
            suspect: false,
            batch_max: HashMap::new(),
        }
    }

    pub(crate) fn holds(&self, id: i64) -> bool {
        self.held.contains_key(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Every row in these hands.
    pub(crate) fn ids(&self) -> Vec<i64> {
        self.held.keys().copied().collect()
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Queued, under way, or landed and not yet settled.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether any row of the lane is in these hands.
    pub(crate) fn uses(&self, lane: i16) -> bool {
        self.held.values().any(|(l, _)| *l == lane)
    }

    /// Payload bytes of every row in these hands.
    pub(crate) fn bytes(&self) -> usize {
        self.held.values().map(|(_, bytes)| bytes).sum()
    }

    /// Keys that have enough rows here for now.
    pub(crate) fn full_keys(&self) -> Vec<String> {
        let full = self.queues.iter().filter(|(_, queue)| queue.len() >= PER_KEY_MAX);
        full.map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn is_full(&self, key: &str) -> bool {
        self.queues.get(key).is_some_and(|queue| queue.len() >= PER_KEY_MAX)
    }

    /// Takes a row into these hands, behind the rows of its key; rows must come in id order.
    pub(crate) fn offer(&mut self, job: Job<R>) {
        let (id, lane, key) = (job.row.id(), job.row.lane(), job.row.key().to_owned());
        if self.held.insert(id, (lane, job.row.bytes())).is_some() {
            return;
        }
        self.queued += 1;
        let queue = self.queues.entry(key.clone()).or_default();
        queue.push_back(job);
        if queue.len() == 1 && !self.busy.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// Puts a ready key of the lowest rank first; of several, the one that `random` (`0.0..1.0`) names.
    pub(crate) fn put_first<T: Ord>(&mut self, rank: impl Fn(&str) -> T, random: f64) {
        let ranks: Vec<T> = self.ready.iter().map(|key| rank(key)).collect();
        let Some(lowest) = ranks.iter().min() else { return };
        let best: Vec<usize> = (0..ranks.len()).filter(|at| ranks[*at] == *lowest).collect();
        let nth = (random.clamp(0.0, 1.0) * best.len() as f64) as usize;
        if let Some(key) = self.ready.remove(best[nth.min(best.len() - 1)]) {
            self.ready.push_front(key);
        }
    }

    /// Takes these keys out of the queue of ready ones, in order.
    pub(crate) fn hold_back(&mut self, is_held: impl Fn(&str) -> bool) -> VecDeque<String> {
        let (held, ready) = self.ready.drain(..).partition(|key| is_held(key));
        self.ready = ready;
        held
    }

    /// Puts keys that were held back in front again.
    pub(crate) fn bring_back(&mut self, mut held: VecDeque<String>) {
        held.append(&mut self.ready);
        self.ready = held;
    }

    /// The next rows to start, their keys marked busy; empty when none may start. A row that is not plain
    /// comes by itself. A suspect that has to wait for another goes before those behind it.
    pub(crate) fn take(&mut self, batching: Batching) -> Vec<Job<R>> {
        let mut batch: Vec<Job<R>> = Vec::new();
        let mut waiting = VecDeque::new();
        let mut max = batching.max();
        while batch.len() < max
            && let Some(key) = self.ready.pop_front()
        {
            let front = self.queues.get(&key).and_then(VecDeque::front);
            let plain = front.is_none_or(Job::is_plain);
            let alone = front.is_some_and(|job| job.treatment == Treatment::SendAlone);
            let key_max = self.batch_max.get(&key).copied().unwrap_or(usize::MAX);
            if plain && batch.len() < key_max {
                max = max.min(key_max);
                let room = match batching {
                    Batching::InOrder { .. } => max - batch.len(),
                    Batching::Single | Batching::Distinct { .. } => 1,
                };
                batch.extend(self.start(key, room));
            } else if !plain && batch.is_empty() && !(alone && self.suspect) {
                self.suspect |= alone;
                batch = self.start(key, 1);
                break;
            } else {
                waiting.push_back(key);
            }
        }
        waiting.append(&mut self.ready);
        self.ready = waiting;
        batch
    }

    /// A call of these rows failed as a whole: the next calls of their keys carry half as many.
    pub(crate) fn halve<'j>(&mut self, jobs: impl Iterator<Item = &'j Job<R>>) {
        let keys: Vec<String> = jobs.map(|job| job.row.key().to_owned()).collect();
        let half = (keys.len() / 2).max(1);
        if self.batch_max.len() + keys.len() > HALVED_KEYS_MAX {
            self.batch_max.clear();
        }
        for key in keys {
            let max = self.batch_max.entry(key).or_insert(half);
            *max = (*max).min(half);
        }
    }

    /// A call of this key did not fail as a whole.
    pub(crate) fn restore(&mut self, key: &str) {
        if !self.batch_max.is_empty() {
            self.batch_max.remove(key);
        }
    }

    fn start(&mut self, key: String, room: usize) -> Vec<Job<R>> {
        let Some(queue) = self.queues.get_mut(&key) else { return Vec::new() };
        let plain = queue.iter().position(|job| !job.is_plain()).unwrap_or(queue.len()).max(1);
        let started: Vec<_> = queue.drain(..room.min(plain).min(queue.len())).collect();
        if queue.is_empty() {
            self.queues.remove(&key);
        }
        self.queued -= started.len();
        self.busy.insert(key);
        started
    }

    /// A batch came back: `forget` says which of its keys must not go on (their first row was not
    /// accepted); their queued rows leave these hands and will be read again in their time.
    pub(crate) fn land(&mut self, jobs: &[Job<R>], forget: &HashSet<String>) {
        for job in jobs {
            if job.treatment == Treatment::SendAlone {
                self.suspect = false;
            }
            let key = job.row.key();
            if !self.busy.remove(key) {
                continue;
            }
            if forget.contains(key) {
                for dropped in self.queues.remove(key).unwrap_or_default() {
                    self.held.remove(&dropped.row.id());
                    self.queued -= 1;
                }
            } else if self.queues.contains_key(key) {
                self.ready.push_back(key.to_owned());
            }
        }
    }

    /// Rows settled (or given up): they leave these hands.
    pub(crate) fn release(&mut self, ids: impl IntoIterator<Item = i64>) {
        for id in ids {
            self.held.remove(&id);
        }
    }

    /// Drops every queued row; what is under way stays.
    pub(crate) fn drop_queued(&mut self) {
        for (_, queue) in self.queues.drain() {
            for job in queue {
                self.held.remove(&job.row.id());
            }
        }
        self.ready.clear();
        self.queued = 0;
    }

    /// Drops queued rows read under a lane (and epoch) that is no longer ours.
    pub(crate) fn keep_only(&mut self, lanes: &HashMap<i16, i64>) {
        let stale = |job: &Job<R>| lanes.get(&job.lane.lane) != Some(&job.lane.epoch);
        let Self { queues, held, queued, .. } = self;
        queues.retain(|_, queue| {
            queue.retain(|job| {
                let drop = stale(job);
                if drop {
                    held.remove(&job.row.id());
                    *queued -= 1;
                }
                !drop
            });
            !queue.is_empty()
        });
        let Self { queues, ready, .. } = self;
        ready.retain(|key| queues.contains_key(key));
    }
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
