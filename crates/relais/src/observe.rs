//! Everything the workers count, in one place. Nothing here decides anything.
//!
//! - here: what became of messages
//! - `codes`: problem codes
//! - `guarded`: the circuit breaker
//! - `latency`: how long it took
//! - `processes`: what became of processes
//! - `trace`: spans of what was done
//! - `vitals`: whether there is life in lanes and sources

mod codes;
mod guarded;
mod latency;
mod processes;
pub(crate) mod trace;
mod vitals;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use relais_core::{
    breaker::{BreakerState, OpenCause},
    bulk::Phase,
    delivery::Problem,
    inbox::Accepted,
    lane::Scope,
    outbox::OutboxRow,
    time::Timestamp,
};
use serde::Serialize;

pub(crate) use self::guarded::Guarded;
use self::{
    codes::Codes,
    latency::{Clock, Histogram},
};
pub use self::{
    latency::{BOUNDS_MICROS, Latency},
    processes::{ProcessTypeSnapshot, ProcessesSnapshot},
    trace::{Attribute, Span, SpanKind, SpanSink},
    vitals::{Away, ScopeSnapshot, SourceSnapshot},
};
pub(crate) use self::{
    processes::ProcessCounters,
    trace::Tracer,
    vitals::{Heartbeat, SourceCounters},
};

/// The counters of one running [`App`](crate::App).
#[derive(Debug)]
pub struct Observer {
    pub(crate) inbox: Arc<InboxCounters>,
    pub(crate) processes: Arc<ProcessCounters>,
    destinations: Named<DestinationCounters>,
    scopes: Named<Heartbeat>,
    sources: Named<SourceCounters>,
    clock: Arc<Clock>,
    /// Absent: nothing is traced.
    pub(crate) tracer: Option<Arc<Tracer>>,
}

/// As many as the settings name.
type Named<T> = Mutex<BTreeMap<String, Arc<T>>>;

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
    ignored: AtomicU64,
    lanes: AtomicUsize,
    codes: Codes,
    /// From received to processed.
    handling: Histogram,
    clock: Arc<Clock>,
    pub(crate) tracer: Option<Arc<Tracer>>,
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
    breaker: Mutex<Guarded>,
    /// The last outage.
    reason: Mutex<Option<Problem>>,
    jobs: AtomicU64,
    phase: Mutex<Option<Phase>>,
    codes: Codes,
    dispatch: Histogram,
    end_to_end: Histogram,
    publish: Histogram,
    clock: Arc<Clock>,
    pub(crate) tracer: Option<Arc<Tracer>>,
}

/// The counters at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    pub inbox: InboxSnapshot,
    pub processes: ProcessesSnapshot,
    pub destinations: BTreeMap<String, DestinationSnapshot>,
    /// Heartbeats by scope: `inbox`, and `outbox:` with each destination.
    pub scopes: BTreeMap<String, ScopeSnapshot>,
    pub sources: BTreeMap<String, SourceSnapshot>,
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
    /// Messages that were not sent, because they were out of order.
    pub ignored: u64,
    pub lanes: usize,
    pub codes: BTreeMap<String, u64>,
    /// From received to processed.
    pub handling: Latency,
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
    /// What kind of trouble opened the breaker.
    pub cause: Option<OpenCause>,
    /// Why the breaker is not closed.
    pub reason: Option<Problem>,
    /// When the next call is tried, while the breaker is open; by the clock of this process.
    pub rests_until: Option<Timestamp>,
    /// Bulk jobs this process planned.
    pub jobs: u64,
    /// Where the bulk job is that this process works on now.
    pub phase: Option<Phase>,
    pub codes: BTreeMap<String, u64>,
    /// From the row's being due to the target's acknowledgement.
    pub dispatch: Latency,
    /// From the reception of the message that caused it to the target's acknowledgement.
    pub end_to_end: Latency,
    /// Calls to the target, each with one message or many.
    pub publish: Latency,
}

impl Snapshot {
    /// Dispatch latency over all destinations.
    pub fn dispatch(&self) -> Latency {
        let all = self.destinations.values().map(|destination| &destination.dispatch);
        all.fold(Latency::default(), |sum, one| sum.and(one))
    }
}

impl Default for Observer {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Observer {
    /// Also gives a span of everything done to a message to `sink`. `sample` is the share of the traces
    /// that begin here which are recorded; one that came in with a message is recorded if its
    /// `traceparent` says so.
    pub fn with_spans(sink: Arc<dyn SpanSink>, sample: f64) -> Self {
        Self::new(Some(Arc::new(Tracer::new(sink, sample))))
    }

    fn new(tracer: Option<Arc<Tracer>>) -> Self {
        let clock = Arc::<Clock>::default();
        let inbox = InboxCounters {
            clock: Arc::clone(&clock),
            tracer: tracer.clone(),
            ..InboxCounters::default()
        };
        Self {
            inbox: Arc::new(inbox),
            processes: Arc::default(),
            destinations: Mutex::default(),
            scopes: Mutex::default(),
            sources: Mutex::default(),
            clock,
            tracer,
        }
    }

    /// All counters now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            inbox: self.inbox.snapshot(),
            processes: self.processes.snapshot(),
            destinations: each(&self.destinations, DestinationCounters::snapshot),
            scopes: each(&self.scopes, Heartbeat::snapshot),
            sources: each(&self.sources, SourceCounters::snapshot),
        }
    }

    /// The database, asked and answering at these moments of this machine, says it is `now` there.
    /// Latencies are read by its clock from then on.
    pub fn database_time(&self, asked: SystemTime, now: Timestamp, answered: SystemTime) {
        self.clock.learn(asked, now, answered);
    }

    pub(crate) fn destination(&self, name: &str) -> Arc<DestinationCounters> {
        let (clock, tracer) = (Arc::clone(&self.clock), self.tracer.clone());
        named(&self.destinations, name, || DestinationCounters {
            clock,
            tracer,
            ..DestinationCounters::default()
        })
    }

    pub(crate) fn scope(&self, scope: &Scope) -> Arc<Heartbeat> {
        named(&self.scopes, &scope.to_string(), Heartbeat::default)
    }

    pub(crate) fn source(&self, name: &str) -> Arc<SourceCounters> {
        named(&self.sources, name, SourceCounters::default)
    }
}

fn named<T>(all: &Named<T>, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.entry(name.to_owned()).or_insert_with(|| Arc::new(make())))
}

fn each<T, S>(all: &Named<T>, look: impl Fn(&T) -> S) -> BTreeMap<String, S> {
    let all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().map(|(name, one)| (name.clone(), look(one))).collect()
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

    /// A row received then is processed now.
    pub(crate) fn took(&self, received_at: Timestamp) {
        self.handling.record(self.clock.since(received_at));
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

    /// Messages that were not sent, because newer versions of their aggregates had been seen.
    pub(crate) fn ignored(&self, messages: u64) {
        self.ignored.fetch_add(messages, Relaxed);
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
            ignored: self.ignored.load(Relaxed),
            lanes: self.lanes.load(Relaxed),
            codes: self.codes.snapshot(),
            handling: self.handling.snapshot(),
        }
    }
}

impl DestinationCounters {
    pub(crate) fn dispatched(&self, row: &OutboxRow) {
        self.dispatched.fetch_add(1, Relaxed);
        // What was delayed on purpose is not late. A row in a bulk job waits for a time that never comes, so
        // that no worker reads it: that is no delay.
        let calm = row.attempts == 0 && row.error_code.is_none() && row.job_id.is_none();
        let delay = row.next_attempt_at.filter(|_| calm);
        let due = delay.map_or(row.created_at, |until| until.max(row.created_at));
        self.dispatch.record(self.clock.since(due));
        if let Some(received_at) = row.headers.received_at() {
            self.end_to_end.record(self.clock.since(received_at));
        }
    }

    /// One call to the target.
    pub(crate) fn called(&self, took: Duration) {
        self.publish.record(took);
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

    pub(crate) fn set_state(&self, guarded: Guarded, lanes: usize) {
        *self.breaker.lock().unwrap_or_else(PoisonError::into_inner) = guarded;
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
        let guarded = *self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        DestinationSnapshot {
            dispatched: self.dispatched.load(Relaxed),
            retried: self.retried.load(Relaxed),
            failed: self.failed.load(Relaxed),
            outages: self.outages.load(Relaxed),
            refused: self.refused.load(Relaxed),
            lanes: self.lanes.load(Relaxed),
            breaker: guarded.state,
            cause: guarded.cause,
            reason: reason.filter(|_| !guarded.is_closed()),
            rests_until: guarded.rests_until(),
            jobs: self.jobs.load(Relaxed),
            phase: *self.phase.lock().unwrap_or_else(PoisonError::into_inner),
            codes: self.codes.snapshot(),
            dispatch: self.dispatch.snapshot(),
            end_to_end: self.end_to_end.snapshot(),
            publish: self.publish.snapshot(),
        }
    }
}
