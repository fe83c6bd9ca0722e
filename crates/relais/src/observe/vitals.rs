//! Signs of life, from which readiness is derived: heartbeats of lanes, and the availability of sources.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use relais_core::{inbox::AcceptOutcome, time::Timestamp};
use serde::Serialize;

use super::latency::DatabaseClock;
use crate::lock::lock;

/// The heartbeat of one scope. Every worker writes it all the time, so it also shows whether the database
/// accepts writes.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    lost: AtomicU64,
    state: Mutex<HeartbeatState>,
}

#[derive(Debug)]
struct HeartbeatState {
    last: Instant,
    trouble: Option<String>,
    lanes: usize,
    /// The time since which the scope has no lane.
    bare: Option<Instant>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        let now = Instant::now();
        let state = HeartbeatState { last: now, trouble: None, lanes: 0, bare: Some(now) };
        Self { lost: AtomicU64::new(0), state: Mutex::new(state) }
    }
}

/// The heartbeat of a scope at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScopeSnapshot {
    /// Lanes that this process owns.
    pub lanes: usize,
    /// Lanes that other workers took over before they were released.
    pub lanes_lost: u64,
    /// Time since the last heartbeat that the database accepted.
    pub silent_for: Duration,
    /// The reason why the database did not accept the last one.
    pub trouble: Option<String>,
    /// Time since which the scope has no lane.
    pub bare_for: Option<Duration>,
}

impl Heartbeat {
    pub(crate) fn beat(&self, lanes: usize, lost: usize) {
        self.lost.fetch_add(lost as u64, Relaxed);
        let mut state = self.lock();
        let now = Instant::now();
        let bare = (lanes == 0).then(|| state.bare.unwrap_or(now));
        *state = HeartbeatState { last: now, trouble: None, lanes, bare };
    }

    /// Records a heartbeat that left the lanes as they were.
    pub(crate) fn renewed(&self) {
        let mut state = self.lock();
        (state.last, state.trouble) = (Instant::now(), None);
    }

    pub(crate) fn failed(&self, reason: &str) {
        self.lock().trouble = Some(reason.to_owned());
    }

    pub(super) fn snapshot(&self) -> ScopeSnapshot {
        let state = self.lock();
        ScopeSnapshot {
            lanes: state.lanes,
            lanes_lost: self.lost.load(Relaxed),
            silent_for: state.last.elapsed(),
            trouble: state.trouble.clone(),
            bare_for: state.bare.map(|since| since.elapsed()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HeartbeatState> {
        lock(&self.state)
    }
}

/// Counters of one source.
#[derive(Debug, Default)]
pub(crate) struct SourceCounters {
    stored: AtomicU64,
    duplicates: AtomicU64,
    conflicts: AtomicU64,
    undecodable: AtomicU64,
    /// The time since which it is unavailable, and the reason.
    unavailable: Mutex<Option<(Instant, String)>>,
    /// Microseconds since 1970; 0 before the first.
    received_at: AtomicI64,
    paused: AtomicBool,
    clock: Arc<DatabaseClock>,
}

/// The counters of one source at one moment, of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceSnapshot {
    /// Stored messages.
    pub stored: u64,
    /// Recognised duplicates.
    pub duplicates: u64,
    /// Messages with a known id and other content.
    pub conflicts: u64,
    /// Of those stored, the ones kept as `SERDE_ERROR`.
    pub undecodable: u64,
    /// The reason why it is unavailable, and for how long.
    pub away: Option<SourceOutage>,
    /// The time of the last message.
    pub last_received_at: Option<Timestamp>,
    /// `true` while this process reads nothing, because an operator paused the source.
    pub paused: bool,
}

/// The outage of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceOutage {
    /// The last error.
    pub reason: String,
    /// The time since it began.
    pub lasts: Duration,
}

impl SourceCounters {
    pub(super) fn new(clock: Arc<DatabaseClock>) -> Self {
        Self { clock, ..Self::default() }
    }

    /// Counts stored messages of the source; `undecodable` is the number of undecodable ones.
    pub(crate) fn accepted(&self, accepted: &[AcceptOutcome], undecodable: u64) {
        let count =
            |wanted: AcceptOutcome| accepted.iter().filter(|answer| **answer == wanted).count();
        self.stored.fetch_add(count(AcceptOutcome::Stored) as u64, Relaxed);
        self.duplicates.fetch_add(count(AcceptOutcome::Duplicate) as u64, Relaxed);
        self.conflicts.fetch_add(count(AcceptOutcome::Conflict) as u64, Relaxed);
        self.undecodable.fetch_add(undecodable, Relaxed);
        self.received_at.store(self.clock.now().0, Relaxed);
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
    }

    /// Records that the source answers.
    pub(crate) fn available(&self) {
        self.lock().take();
    }

    pub(crate) fn unavailable(&self, reason: &str) {
        let mut unavailable = self.lock();
        let since = unavailable.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *unavailable = Some((since, reason.to_owned()));
    }

    pub(super) fn snapshot(&self) -> SourceSnapshot {
        let unavailable = self.lock().clone();
        SourceSnapshot {
            stored: self.stored.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            conflicts: self.conflicts.load(Relaxed),
            undecodable: self.undecodable.load(Relaxed),
            away: unavailable
                .map(|(since, reason)| SourceOutage { reason, lasts: since.elapsed() }),
            paused: self.paused.load(Relaxed),
            last_received_at: Some(self.received_at.load(Relaxed))
                .filter(|at| *at != 0)
                .map(Timestamp),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        lock(&self.unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_remembers_trouble_until_the_next_good_one() {
        let heart = Heartbeat::default();
        assert!(heart.snapshot().bare_for.is_some());
        heart.beat(3, 0);
        heart.failed("database or disk is full");
        let troubled = heart.snapshot();
        assert_eq!((troubled.lanes, troubled.bare_for), (3, None));
        assert_eq!(troubled.trouble.as_deref(), Some("database or disk is full"));
        heart.beat(0, 3);
        let after = heart.snapshot();
        assert_eq!((after.trouble, after.lanes_lost), (None, 3));
        assert!(after.bare_for.is_some());
    }

    #[test]
    fn a_source_is_unavailable_from_its_first_failure_on() {
        let source = SourceCounters::default();
        assert_eq!(source.snapshot().away, None);
        source.unavailable("no broker");
        source.unavailable("still no broker");
        assert_eq!(source.snapshot().away.unwrap().reason, "still no broker");
        source.available();
        assert_eq!(source.snapshot().away, None);
    }
}
