//! The counters of the workers, in one place. Nothing here decides anything.
//!
//! - here: counters of messages
//! - `codes`: problem codes; `destination`: counters of one destination
//! - `conflicts`: destinations that processes configure differently
//! - `figures`: the figures that a process reports to the others, and their sum
//! - `latency`: histograms
//! - `origin`: the state of sources at their origin
//! - `processes`: counters of processes
//! - `trace`: spans
//! - `vitals`: heartbeats of lanes, availability of sources

mod codes;
mod conflicts;
mod destination;
mod figures;
mod latency;
mod origin;
mod processes;
pub(crate) mod trace;
mod vitals;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::SystemTime,
};

use relais_core::{
    delivery::Problem, inbox::AcceptOutcome, inspect::AdoptedProblems, lane::Scope,
    query::CleanupCounts, time::Timestamp,
};
use serde::Serialize;

use self::{
    codes::ProblemCodes,
    latency::{DatabaseClock, Histogram},
    origin::SourceStates,
};
use crate::lock::lock;

pub use self::{
    conflicts::configuration_conflicts,
    destination::DestinationSnapshot,
    figures::{DestinationFigures, Figures, LastError, SourceFigures},
    latency::{BOUNDS_MICROS, Latency},
    origin::{AskSource, SourceState},
    processes::{ProcessTypeSnapshot, ProcessesSnapshot},
    trace::{Attribute, Span, SpanKind, SpanSink},
    vitals::{ScopeSnapshot, SourceOutage, SourceSnapshot},
};
pub(crate) use self::{
    destination::DestinationCounters,
    processes::ProcessCounters,
    trace::Tracer,
    vitals::{Heartbeat, SourceCounters},
};

/// The counters of one running [`App`](crate::App).
#[derive(Debug)]
pub struct Observer {
    pub(crate) inbox: Arc<InboxCounters>,
    pub(crate) processes: Arc<ProcessCounters>,
    destinations: ByName<DestinationCounters>,
    scopes: ByName<Heartbeat>,
    sources: ByName<SourceCounters>,
    origins: SourceStates,
    unserved: Mutex<(BTreeMap<String, u64>, BTreeMap<String, u64>)>,
    cleaned: Mutex<CleanupCounts>,
    adopted: Mutex<Vec<AdoptedProblems>>,
    clock: Arc<DatabaseClock>,
    /// The name of the workers that count here, and the process types they run.
    identity: Mutex<(Option<String>, BTreeSet<String>)>,
    /// Digests of configurations, by destination.
    configurations: Mutex<BTreeMap<String, String>>,
    /// Absent: nothing is traced.
    pub(crate) tracer: Option<Arc<Tracer>>,
}

/// Counters by name, as many as the configuration has.
type ByName<T> = Mutex<BTreeMap<String, Arc<T>>>;

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
    ignored_rows: AtomicU64,
    lanes: AtomicUsize,
    codes: ProblemCodes,
    /// From received to handled.
    handling: Histogram,
    clock: Arc<DatabaseClock>,
    pub(crate) tracer: Option<Arc<Tracer>>,
}

/// The counters at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct ObserverSnapshot {
    /// The inbox.
    pub inbox: InboxSnapshot,
    /// The processes.
    pub processes: ProcessesSnapshot,
    /// The destinations, by name.
    pub destinations: BTreeMap<String, DestinationSnapshot>,
    /// Heartbeats by scope: `inbox`, and `outbox:` with each destination.
    pub scopes: BTreeMap<String, ScopeSnapshot>,
    /// The sources, by name.
    pub sources: BTreeMap<String, SourceSnapshot>,
    /// Messages that wait for destinations without a live worker, as of the last minute.
    pub unserved: BTreeMap<String, u64>,
    /// Messages that wait for subscribers (`@name`) and inboxes without a live worker, as of the last minute.
    pub unserved_inboxes: BTreeMap<String, u64>,
    /// Rows past their retention that were removed.
    pub cleaned: CleanupCounts,
    /// The adopted tables, as of the last comparison with the configuration.
    pub adopted: Vec<AdoptedProblems>,
}

/// The counters of receiving and handling at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct InboxSnapshot {
    /// Stored messages.
    pub stored: u64,
    /// Recognised duplicates.
    pub duplicates: u64,
    /// Messages with a known id and other content.
    pub conflicts: u64,
    /// Handled messages.
    pub processed: u64,
    /// Failed attempts that are retried.
    pub retried: u64,
    /// Dead letters.
    pub failed: u64,
    /// Settlements that the fence refused.
    pub refused: u64,
    /// Messages that were not sent, because they were out of order.
    pub ignored: u64,
    /// Messages whose event type the configuration ignores.
    pub ignored_rows: u64,
    /// Lanes that this process owns.
    pub lanes: usize,
    /// Failures by error code.
    pub codes: BTreeMap<String, u64>,
    /// From received to handled.
    pub handling: Latency,
}

impl ObserverSnapshot {
    /// Returns the dispatch latency over all destinations.
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
    /// Returns an observer that also passes a span of each step of a message to `sink`. `sample` is the
    /// recorded share of the traces that begin here; a trace that arrives with a message is recorded if its
    /// `traceparent` is sampled.
    pub fn with_spans(sink: Arc<dyn SpanSink>, sample: f64) -> Self {
        Self::new(Some(Arc::new(Tracer::new(sink, sample))))
    }

    fn new(tracer: Option<Arc<Tracer>>) -> Self {
        let clock = Arc::<DatabaseClock>::default();
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
            origins: SourceStates::default(),
            unserved: Mutex::default(),
            cleaned: Mutex::default(),
            adopted: Mutex::default(),
            clock,
            identity: Mutex::default(),
            configurations: Mutex::default(),
            tracer,
        }
    }

    /// Sets the name of the workers that count here, and the process types they run.
    pub(crate) fn identify(&self, worker: &str, process_types: Vec<String>) {
        *lock(&self.identity) = (Some(worker.to_owned()), process_types.into_iter().collect());
    }

    /// Returns the name of the workers that count here; `None` before they start.
    pub fn worker(&self) -> Option<String> {
        lock(&self.identity).0.clone()
    }

    /// Returns what this process reports to the others.
    pub fn figures(&self) -> Figures {
        let types = lock(&self.identity).1.clone();
        let mut figures = Figures::of(&self.snapshot(), types);
        for (name, digest) in lock(&self.configurations).iter() {
            if let Some(destination) = figures.destinations.get_mut(name) {
                destination.configuration = Some(digest.clone());
            }
        }
        self.origins.add_to(&mut figures);
        figures
    }

    /// Sets the functions that return the states of sources at their origin. The figures of this process contain
    /// them, so that they are summed over all processes.
    pub fn watch_sources(&self, states: Vec<(String, AskSource)>) {
        self.origins.set(states);
    }

    /// Returns all counters now.
    pub fn snapshot(&self) -> ObserverSnapshot {
        let unserved = lock(&self.unserved).clone();
        ObserverSnapshot {
            inbox: self.inbox.snapshot(),
            processes: self.processes.snapshot(),
            destinations: each(&self.destinations, DestinationCounters::snapshot),
            scopes: each(&self.scopes, Heartbeat::snapshot),
            sources: each(&self.sources, SourceCounters::snapshot),
            unserved: unserved.0,
            unserved_inboxes: unserved.1,
            cleaned: *lock(&self.cleaned),
            adopted: self.adopted(),
        }
    }

    /// Learns the time of the database: it returned `now` between these two moments of this machine.
    /// Latencies use its clock from then on.
    pub fn database_time(&self, asked: SystemTime, now: Timestamp, answered: SystemTime) {
        self.clock.learn(asked, now, answered);
    }

    /// Sets the digests of the configurations of destinations.
    pub(crate) fn set_configurations(&self, digests: BTreeMap<String, String>) {
        *lock(&self.configurations) = digests;
    }

    /// Counts rows past their retention that were removed.
    pub(crate) fn cleaned(&self, rows: CleanupCounts) {
        *lock(&self.cleaned) += rows;
    }

    /// Returns the adopted tables, as of the last comparison.
    pub(crate) fn adopted(&self) -> Vec<AdoptedProblems> {
        lock(&self.adopted).clone()
    }

    /// Sets the adopted tables with their problems.
    pub(crate) fn set_adopted(&self, tables: Vec<AdoptedProblems>) {
        *lock(&self.adopted) = tables;
    }

    /// Sets the destinations and inboxes that no live worker serves, with their waiting messages.
    pub(crate) fn set_unserved(
        &self,
        destinations: BTreeMap<String, u64>,
        inboxes: BTreeMap<String, u64>,
    ) {
        *lock(&self.unserved) = (destinations, inboxes);
    }

    pub(crate) fn destination(&self, name: &str) -> Arc<DestinationCounters> {
        let (clock, tracer) = (Arc::clone(&self.clock), self.tracer.clone());
        named(&self.destinations, name, || DestinationCounters::new(clock, tracer))
    }

    pub(crate) fn scope(&self, scope: &Scope) -> Arc<Heartbeat> {
        named(&self.scopes, &scope.to_string(), Heartbeat::default)
    }

    pub(crate) fn source(&self, name: &str) -> Arc<SourceCounters> {
        let clock = Arc::clone(&self.clock);
        named(&self.sources, name, || SourceCounters::new(clock))
    }
}

fn named<T>(all: &ByName<T>, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
    let mut all = lock(all);
    Arc::clone(all.entry(name.to_owned()).or_insert_with(|| Arc::new(make())))
}

fn each<T, S>(all: &ByName<T>, read: impl Fn(&T) -> S) -> BTreeMap<String, S> {
    lock(all).iter().map(|(name, one)| (name.clone(), read(one))).collect()
}

impl InboxCounters {
    pub(crate) fn accepted(&self, accepted: &[AcceptOutcome]) {
        for answer in accepted {
            match answer {
                AcceptOutcome::Stored => &self.stored,
                AcceptOutcome::Duplicate => &self.duplicates,
                AcceptOutcome::Conflict => &self.conflicts,
            }
            .fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn processed(&self, rows: u64) {
        self.processed.fetch_add(rows, Relaxed);
    }

    /// Records the latency of a row that is handled now.
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

    /// Counts messages that were not sent, because newer versions of their aggregates had been sent.
    pub(crate) fn ignored(&self, messages: u64) {
        self.ignored.fetch_add(messages, Relaxed);
    }

    /// Counts rows whose event type the configuration ignores.
    pub(crate) fn ignored_rows(&self, rows: u64) {
        self.ignored_rows.fetch_add(rows, Relaxed);
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
            ignored_rows: self.ignored_rows.load(Relaxed),
            lanes: self.lanes.load(Relaxed),
            codes: self.codes.snapshot(),
            handling: self.handling.snapshot(),
        }
    }
}
