//! Everything the workers count, in one place. Nothing here decides anything.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use relais_core::{
    bulk::Phase,
    delivery::Problem,
    inbox::Accepted,
    limits::BreakerState,
    process::{Change, ProcessStatus},
};
use serde::Serialize;

/// The counters of one running [`App`](crate::App).
#[derive(Debug, Default)]
pub struct Observer {
    pub(crate) inbox: Arc<InboxCounters>,
    pub(crate) processes: Arc<ProcessCounters>,
    destinations: Mutex<BTreeMap<String, Arc<DestinationCounters>>>,
}

/// Counters of receiving and handling.
#[derive(Debug, Default)]
pub(crate) struct InboxCounters {
    stored: AtomicU64,
    duplicates: AtomicU64,
    conflicts: AtomicU64,
    processed: AtomicU64,
    retried: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    lanes: AtomicUsize,
    codes: Codes,
}

/// Counters of processes.
#[derive(Debug, Default)]
pub(crate) struct ProcessCounters {
    /// As many as there are definitions here.
    types: Mutex<BTreeMap<String, ProcessTypeSnapshot>>,
    timers: AtomicU64,
    stale: AtomicU64,
}

/// Counters of one destination.
#[derive(Debug, Default)]
pub(crate) struct DestinationCounters {
    dispatched: AtomicU64,
    retried: AtomicU64,
    failed: AtomicU64,
    outages: AtomicU64,
    refused: AtomicU64,
    lanes: AtomicUsize,
    breaker: Mutex<Option<BreakerState>>,
    /// The last outage.
    reason: Mutex<Option<Problem>>,
    jobs: AtomicU64,
    phase: Mutex<Option<Phase>>,
    codes: Codes,
}

/// How often each problem code was seen; bounded, the rest goes under `other`.
#[derive(Debug, Default)]
struct Codes(Mutex<BTreeMap<String, u64>>);

/// Different problem codes told apart per destination.
const CODES_MAX: usize = 100;

/// The counters at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    pub inbox: InboxSnapshot,
    pub processes: ProcessesSnapshot,
    pub destinations: BTreeMap<String, DestinationSnapshot>,
}

/// What was received and handled by this process.
#[derive(Clone, Debug, Serialize)]
pub struct InboxSnapshot {
    pub stored: u64,
    pub duplicates: u64,
    pub conflicts: u64,
    pub processed: u64,
    pub retried: u64,
    pub failed: u64,
    /// Settlements the fence refused.
    pub refused: u64,
    pub lanes: usize,
    pub codes: BTreeMap<String, u64>,
}

/// What the workers here did for processes. What people did through an operator is not counted.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessesSnapshot {
    pub types: BTreeMap<String, ProcessTypeSnapshot>,
    /// Timers turned into inbox rows.
    pub timers: u64,
    /// Decisions made again, because somebody else had changed the process meanwhile.
    pub stale: u64,
}

/// What happened to processes of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessTypeSnapshot {
    pub started: u64,
    /// Commands sent: each attempt of a step or of a compensation is one.
    pub steps: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub compensated: u64,
}

/// What this process delivered to one destination.
#[derive(Clone, Debug, Serialize)]
pub struct DestinationSnapshot {
    pub dispatched: u64,
    pub retried: u64,
    pub failed: u64,
    pub outages: u64,
    /// Settlements the fence refused.
    pub refused: u64,
    pub lanes: usize,
    pub breaker: Option<BreakerState>,
    /// Why the breaker is not closed.
    pub reason: Option<Problem>,
    /// Bulk jobs this process planned.
    pub jobs: u64,
    /// Where the bulk job is that this process works on now.
    pub phase: Option<Phase>,
    pub codes: BTreeMap<String, u64>,
}

impl Observer {
    /// All counters now.
    pub fn snapshot(&self) -> Snapshot {
        let destinations = self.destinations.lock().unwrap_or_else(PoisonError::into_inner);
        Snapshot {
            inbox: self.inbox.snapshot(),
            processes: self.processes.snapshot(),
            destinations: destinations.iter().map(|(n, c)| (n.clone(), c.snapshot())).collect(),
        }
    }

    pub(crate) fn destination(&self, name: &str) -> Arc<DestinationCounters> {
        let mut all = self.destinations.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(name.to_owned()).or_default())
    }
}

impl InboxCounters {
    pub(crate) fn accepted(&self, accepted: &[Accepted]) {
        for answer in accepted {
            match answer {
                Accepted::Stored => &self.stored,
                Accepted::Duplicate => &self.duplicates,
                Accepted::Conflict => &self.conflicts,
            }
            .fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn processed(&self, rows: u64) {
        self.processed.fetch_add(rows, Relaxed);
    }

    pub(crate) fn retried(&self, problem: &Problem) {
        self.retried.fetch_add(1, Relaxed);
        self.codes.count(problem);
    }

    pub(crate) fn failed(&self, problem: &Problem) {
        self.failed.fetch_add(1, Relaxed);
        self.codes.count(problem);
    }

    pub(crate) fn refused(&self, rows: u64) {
        self.refused.fetch_add(rows, Relaxed);
    }

    pub(crate) fn set_lanes(&self, lanes: usize) {
        self.lanes.store(lanes, Relaxed);
    }

    fn snapshot(&self) -> InboxSnapshot {
        InboxSnapshot {
            stored: self.stored.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            conflicts: self.conflicts.load(Relaxed),
            processed: self.processed.load(Relaxed),
            retried: self.retried.load(Relaxed),
            failed: self.failed.load(Relaxed),
            refused: self.refused.load(Relaxed),
            lanes: self.lanes.load(Relaxed),
            codes: self.codes.snapshot(),
        }
    }
}

impl ProcessCounters {
    /// A change was committed; `before` is the status the process had.
    pub(crate) fn changed(&self, before: Option<ProcessStatus>, change: &Change) {
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = types.entry(change.process.process_type.clone()).or_default();
        counts.started += u64::from(before.is_none());
        counts.steps += change.messages.len() as u64;
        let after = change.process.status;
        if before == Some(after) {
            return;
        }
        match after {
            ProcessStatus::Succeeded => counts.succeeded += 1,
            ProcessStatus::Failed => counts.failed += 1,
            ProcessStatus::Compensated => counts.compensated += 1,
            _ => {}
        }
    }

    pub(crate) fn timers(&self, fired: u64) {
        self.timers.fetch_add(fired, Relaxed);
    }

    pub(crate) fn stale(&self, rows: u64) {
        self.stale.fetch_add(rows, Relaxed);
    }

    fn snapshot(&self) -> ProcessesSnapshot {
        ProcessesSnapshot {
            types: self.types.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            timers: self.timers.load(Relaxed),
            stale: self.stale.load(Relaxed),
        }
    }
}

impl DestinationCounters {
    pub(crate) fn dispatched(&self) {
        self.dispatched.fetch_add(1, Relaxed);
    }

    pub(crate) fn retried(&self, problem: &Problem) {
        self.retried.fetch_add(1, Relaxed);
        self.codes.count(problem);
    }

    pub(crate) fn failed(&self, problem: &Problem) {
        self.failed.fetch_add(1, Relaxed);
        self.codes.count(problem);
    }

    pub(crate) fn outage(&self, problem: &Problem) {
        self.outages.fetch_add(1, Relaxed);
        self.codes.count(problem);
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem.clone());
    }

    pub(crate) fn refused(&self, rows: u64) {
        self.refused.fetch_add(rows, Relaxed);
    }

    pub(crate) fn set_state(&self, breaker: BreakerState, lanes: usize) {
        *self.breaker.lock().unwrap_or_else(PoisonError::into_inner) = Some(breaker);
        self.lanes.store(lanes, Relaxed);
    }

    pub(crate) fn job_planned(&self) {
        self.jobs.fetch_add(1, Relaxed);
    }

    /// The phase of the job under way; none when it has ended or went to somebody else.
    pub(crate) fn set_phase(&self, phase: Option<Phase>) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    fn snapshot(&self) -> DestinationSnapshot {
        let breaker = *self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let is_closed = matches!(breaker, None | Some(BreakerState::Closed));
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        DestinationSnapshot {
            dispatched: self.dispatched.load(Relaxed),
            retried: self.retried.load(Relaxed),
            failed: self.failed.load(Relaxed),
            outages: self.outages.load(Relaxed),
            refused: self.refused.load(Relaxed),
            lanes: self.lanes.load(Relaxed),
            breaker,
            reason: reason.filter(|_| !is_closed),
            jobs: self.jobs.load(Relaxed),
            phase: *self.phase.lock().unwrap_or_else(PoisonError::into_inner),
            codes: self.codes.snapshot(),
        }
    }
}

impl Codes {
    fn count(&self, problem: &Problem) {
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = codes.contains_key(&problem.code) || codes.len() < CODES_MAX;
        let code = if known { problem.code.as_str() } else { "other" };
        *codes.entry(code.to_owned()).or_default() += 1;
    }

    fn snapshot(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
