//! Signs of life: heartbeats of lanes, and whether sources can be read. What readiness is made of.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use relais_core::{inbox::Accepted, time::Timestamp};
use serde::Serialize;

use super::latency::Clock;

/// The heartbeat of one scope: the write every worker makes all the time, so it also tells whether the
/// database can be written at all.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    lost: AtomicU64,
    state: Mutex<Beats>,
}

#[derive(Debug)]
struct Beats {
    last: Instant,
    trouble: Option<String>,
    lanes: usize,
    /// Since when there has not been one lane.
    bare: Option<Instant>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        let now = Instant::now();
        let state = Beats { last: now, trouble: None, lanes: 0, bare: Some(now) };
        Self { lost: AtomicU64::new(0), state: Mutex::new(state) }
    }
}

/// The heartbeat of a scope at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScopeSnapshot {
    pub lanes: usize,
    /// Lanes taken over by others before they were given back.
    pub lanes_lost: u64,
    /// Since the last heartbeat that the database took.
    pub silent_for: Duration,
    /// Why the database did not take the last one.
    pub trouble: Option<String>,
    /// How long there has not been one lane.
    pub bare_for: Option<Duration>,
}

impl Heartbeat {
    pub(crate) fn beat(&self, lanes: usize, lost: usize) {
        self.lost.fetch_add(lost as u64, Relaxed);
        let mut state = self.lock();
        let now = Instant::now();
        let bare = (lanes == 0).then(|| state.bare.unwrap_or(now));
        *state = Beats { last: now, trouble: None, lanes, bare };
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

    fn lock(&self) -> MutexGuard<'_, Beats> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters of one source.
#[derive(Debug, Default)]
pub(crate) struct SourceCounters {
    stored: AtomicU64,
    duplicates: AtomicU64,
    conflicts: AtomicU64,
    undecodable: AtomicU64,
    /// Since when, and why.
    away: Mutex<Option<(Instant, String)>>,
    /// Microseconds since 1970; 0 before the first.
    received_at: AtomicI64,
    paused: AtomicBool,
    clock: Arc<Clock>,
}

/// What one source gave this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceSnapshot {
    pub stored: u64,
    pub duplicates: u64,
    pub conflicts: u64,
    /// Of those stored, the ones kept as `SERDE_ERROR`.
    pub undecodable: u64,
    /// Why it cannot be read now, and for how long.
    pub away: Option<Away>,
    pub last_received_at: Option<Timestamp>,
    /// Whether this process reads nothing, because an operator paused the source.
    pub paused: bool,
}

/// A source that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Away {
    pub reason: String,
    pub lasts: Duration,
}

impl SourceCounters {
    pub(super) fn new(clock: Arc<Clock>) -> Self {
        Self { clock, ..Self::default() }
    }

    /// It gave messages, and the store took them. `undecodable` are those without readable content.
    pub(crate) fn accepted(&self, accepted: &[Accepted], undecodable: u64) {
        let count = |wanted: Accepted| accepted.iter().filter(|answer| **answer == wanted).count();
        self.stored.fetch_add(count(Accepted::Stored) as u64, Relaxed);
        self.duplicates.fetch_add(count(Accepted::Duplicate) as u64, Relaxed);
        self.conflicts.fetch_add(count(Accepted::Conflict) as u64, Relaxed);
        self.undecodable.fetch_add(undecodable, Relaxed);
        self.received_at.store(self.clock.now().0, Relaxed);
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
    }

    /// It answers.
    pub(crate) fn here(&self) {
        self.lock().take();
    }

    pub(crate) fn away(&self, reason: &str) {
        let mut away = self.lock();
        let since = away.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *away = Some((since, reason.to_owned()));
    }

    pub(super) fn snapshot(&self) -> SourceSnapshot {
        let away = self.lock().clone();
        SourceSnapshot {
            stored: self.stored.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            conflicts: self.conflicts.load(Relaxed),
            undecodable: self.undecodable.load(Relaxed),
            away: away.map(|(since, reason)| Away { reason, lasts: since.elapsed() }),
            paused: self.paused.load(Relaxed),
            last_received_at: Some(self.received_at.load(Relaxed))
                .filter(|at| *at != 0)
                .map(Timestamp),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_source_is_away_from_its_first_failure_on() {
        let source = SourceCounters::default();
        assert_eq!(source.snapshot().away, None);
        source.away("no broker");
        source.away("still no broker");
        assert_eq!(source.snapshot().away.unwrap().reason, "still no broker");
        source.here();
        assert_eq!(source.snapshot().away, None);
    }
}
