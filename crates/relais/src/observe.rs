//! Everything the workers count, in one place. Nothing here decides anything.
//!
//! - here: what became of messages
//! - `codes`: problem codes
//! - `figures`: what a process reports for all others, and the sum of all
//! - `latency`: how long it took
//! - `processes`: what became of processes
//! - `trace`: spans of what was done
//! - `vitals`: whether there is life in lanes and sources

mod codes;
mod figures;
mod latency;
mod processes;
pub(crate) mod trace;
mod vitals;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
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

use self::{
    codes::Codes,
    latency::{Clock, Histogram},
};
pub use self::{
    figures::{DestinationFigures, Figures, LastError, SourceFigures},
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
use crate::limits::LimitsView;

/// The counters of one running [`App`](crate::App).
#[derive(Debug)]
pub struct Observer {
    pub(crate) inbox: Arc<InboxCounters>,
    pub(crate) processes: Arc<ProcessCounters>,
    destinations: Named<DestinationCounters>,
    scopes: Named<Heartbeat>,
    sources: Named<SourceCounters>,
    clock: Arc<Clock>,
    /// Which workers count here, and which types of processes they run.
    identity: Mutex<(Option<String>, BTreeSet<String>)>,
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
    in_flight: AtomicUsize,
    limits: Mutex<LimitsView>,
    /// The last outage.
    reason: Mutex<Option<Problem>>,
    last_error: Mutex<Option<LastError>>,
    /// Microseconds since 1970; 0 before the first.
    delivered_at: AtomicI64,
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
    /// Until when an open breaker stays open, to the second.
    pub open_until: Option<Timestamp>,
    /// Whether the target has answered a call.
    pub contacted: bool,
    /// Whether this process sends nothing, because an operator paused the destination.
    pub paused: bool,
    /// The last failed call.
    pub last_error: Option<LastError>,
    pub last_delivered_at: Option<Timestamp>,
    /// Calls in flight; of a bulk destination, jobs.
    pub in_flight: usize,
    /// The rate in force: `50/s`.
    pub rate: Option<String>,
    /// Calls in flight at once that are allowed.
    pub concurrency: u32,
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

/// `50/s`, `100/m`, `5/h`, or `10/1500ms`.
fn rate_text((calls, period): (u32, Duration)) -> String {
    match period.as_millis() {
        1_000 => format!("{calls}/s"),
        60_000 => format!("{calls}/m"),
        3_600_000 => format!("{calls}/h"),
        millis => format!("{calls}/{millis}ms"),
    }
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
            identity: Mutex::default(),
            tracer,
        }
    }

    /// The workers of this name count here from now on, and run these types of processes.
    pub(crate) fn identify(&self, worker: &str, process_types: Vec<String>) {
        let mut identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        *identity = (Some(worker.to_owned()), process_types.into_iter().collect());
    }

    /// Returns the name of the workers that count here; nothing before they start.
    pub fn worker(&self) -> Option<String> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Returns what this process reports to the others.
    pub fn figures(&self) -> Figures {
        let types = self.identity.lock().unwrap_or_else(PoisonError::into_inner).1.clone();
        Figures::of(&self.snapshot(), types)
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
        let clock = Arc::clone(&self.clock);
        named(&self.sources, name, || SourceCounters::new(clock))
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
        self.delivered_at.store(self.clock.now().0, Relaxed);
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
        self.note_error(problem);
    }

    pub(crate) fn failed(&self, problem: &Problem) {
        self.failed.fetch_add(1, Relaxed);
        self.codes.count(problem);
        self.note_error(problem);
    }

    pub(crate) fn outage(&self, problem: &Problem) {
        self.outages.fetch_add(1, Relaxed);
        self.codes.count(problem);
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem.clone());
        self.note_error(problem);
    }

    fn note_error(&self, problem: &Problem) {
        let Problem { code, message } = problem.clone();
        let error = LastError { at: self.clock.now(), code, message };
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    pub(crate) fn refused(&self, rows: u64) {
        self.refused.fetch_add(rows, Relaxed);
    }

    pub(crate) fn set_state(&self, limits: LimitsView, lanes: usize, in_flight: usize) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
        self.lanes.store(lanes, Relaxed);
        self.in_flight.store(in_flight, Relaxed);
    }

    pub(crate) fn job_planned(&self) {
        self.jobs.fetch_add(1, Relaxed);
    }

    /// The phase of the job under way; none when it has ended or went to somebody else.
    pub(crate) fn set_phase(&self, phase: Option<Phase>) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    fn snapshot(&self) -> DestinationSnapshot {
        let limits = *self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let LimitsView { breaker, cause, .. } = limits;
        let delivered_at = Some(self.delivered_at.load(Relaxed)).filter(|at| *at != 0);
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
            cause,
            reason: reason.filter(|_| !is_closed),
            open_until: limits.open_for.map(|left| self.clock.second_after(left)),
            contacted: limits.contacted,
            paused: limits.paused,
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            last_delivered_at: delivered_at.map(Timestamp),
            in_flight: self.in_flight.load(Relaxed),
            rate: limits.rate.map(rate_text),
            concurrency: limits.concurrency,
            jobs: self.jobs.load(Relaxed),
            phase: *self.phase.lock().unwrap_or_else(PoisonError::into_inner),
            codes: self.codes.snapshot(),
            dispatch: self.dispatch.snapshot(),
            end_to_end: self.end_to_end.snapshot(),
            publish: self.publish.snapshot(),
        }
    }
}
