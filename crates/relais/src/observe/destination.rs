//! Counters of one destination, and the state of its limits.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use relais_core::{
    breaker::{BreakerState, OpenCause},
    bulk::Phase,
    delivery::{Problem, TargetContact},
    outbox::OutboxRow,
    time::Timestamp,
};
use serde::Serialize;

use super::{
    codes::ProblemCodes,
    figures::LastError,
    latency::{DatabaseClock, Histogram, Latency},
    trace::Tracer,
};
use crate::{limits::LimitsView, lock::lock};

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
    codes: ProblemCodes,
    dispatch: Histogram,
    end_to_end: Histogram,
    publish: Histogram,
    clock: Arc<DatabaseClock>,
    pub(crate) tracer: Option<Arc<Tracer>>,
}

/// The counters of one destination at one moment, of this process.
#[derive(Clone, Debug, Serialize)]
pub struct DestinationSnapshot {
    /// Delivered messages.
    pub dispatched: u64,
    /// Failed attempts that are retried.
    pub retried: u64,
    /// Dead letters.
    pub failed: u64,
    /// Calls that found the target unavailable.
    pub outages: u64,
    /// Settlements that the fence refused.
    pub refused: u64,
    /// Lanes that this process owns.
    pub lanes: usize,
    /// The state of the circuit breaker.
    pub breaker: Option<BreakerState>,
    /// The kind of failure that opened the breaker.
    pub cause: Option<OpenCause>,
    /// The reason why the breaker is not closed.
    pub reason: Option<Problem>,
    /// The time until which an open breaker stays open, to the second.
    pub open_until: Option<Timestamp>,
    /// `true` once the target has answered a call, if only with an error.
    pub contacted: bool,
    /// `true` once a call has succeeded.
    pub succeeded: bool,
    /// `true` while this process sends nothing, because an operator paused the destination.
    pub paused: bool,
    /// The last failed call.
    pub last_error: Option<LastError>,
    /// The time of the last delivery.
    pub last_delivered_at: Option<Timestamp>,
    /// Calls in flight; of a bulk destination, jobs.
    pub in_flight: usize,
    /// The rate in force: `50/s`.
    pub rate: Option<String>,
    /// Maximum number of calls in flight.
    pub concurrency: u32,
    /// Bulk jobs this process planned.
    pub jobs: u64,
    /// The phase of the bulk job that this process runs now.
    pub phase: Option<Phase>,
    /// Failures by error code.
    pub codes: BTreeMap<String, u64>,
    /// From the time at which the row is due to the acknowledgement of the target.
    pub dispatch: Latency,
    /// From the reception of the message that caused it to the acknowledgement of the target.
    pub end_to_end: Latency,
    /// Calls to the target, each with one message or many.
    pub publish: Latency,
}

impl DestinationCounters {
    pub(super) fn new(clock: Arc<DatabaseClock>, tracer: Option<Arc<Tracer>>) -> Self {
        Self { clock, tracer, ..Self::default() }
    }

    pub(crate) fn dispatched(&self, row: &OutboxRow) {
        self.dispatched.fetch_add(1, Relaxed);
        self.delivered_at.store(self.clock.now().0, Relaxed);
        // A delay on purpose is not latency. A row in a bulk job has a `next_attempt_at` that is never
        // reached, so that no worker reads it: that is no delay.
        let first_try = row.attempts == 0 && row.error_code.is_none() && row.job_id.is_none();
        let delay = row.next_attempt_at.filter(|_| first_try);
        let due = delay.map_or(row.created_at, |until| until.max(row.created_at));
        self.dispatch.record(self.clock.since(due));
        if let Some(received_at) = row.headers.received_at() {
            self.end_to_end.record(self.clock.since(received_at));
        }
    }

    /// Counts a message that a handler in another process has handled.
    pub(crate) fn handled(&self, received_at: Timestamp) {
        self.dispatched.fetch_add(1, Relaxed);
        self.delivered_at.store(self.clock.now().0, Relaxed);
        self.dispatch.record(self.clock.since(received_at));
    }

    /// Records the duration of a call to the target.
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
        *lock(&self.reason) = Some(problem.clone());
        self.note_error(problem);
    }

    fn note_error(&self, problem: &Problem) {
        let Problem { code, message } = problem.clone();
        let error = LastError { at: self.clock.now(), code, message };
        *lock(&self.last_error) = Some(error);
    }

    pub(crate) fn refused(&self, rows: u64) {
        self.refused.fetch_add(rows, Relaxed);
    }

    pub(crate) fn set_state(&self, limits: LimitsView, lanes: usize, in_flight: usize) {
        *lock(&self.limits) = limits;
        self.lanes.store(lanes, Relaxed);
        self.in_flight.store(in_flight, Relaxed);
    }

    pub(crate) fn job_planned(&self) {
        self.jobs.fetch_add(1, Relaxed);
    }

    /// Sets the phase of the running job; `None` when it has ended or another worker has it.
    pub(crate) fn set_phase(&self, phase: Option<Phase>) {
        *lock(&self.phase) = phase;
    }

    pub(super) fn snapshot(&self) -> DestinationSnapshot {
        let limits = *lock(&self.limits);
        let LimitsView { breaker, cause, .. } = limits;
        let delivered_at = Some(self.delivered_at.load(Relaxed)).filter(|at| *at != 0);
        let is_closed = matches!(breaker, None | Some(BreakerState::Closed));
        let reason = lock(&self.reason).clone();
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
            contacted: limits.contact >= TargetContact::Answered,
            succeeded: limits.contact == TargetContact::Succeeded,
            paused: limits.paused,
            last_error: lock(&self.last_error).clone(),
            last_delivered_at: delivered_at.map(Timestamp),
            in_flight: self.in_flight.load(Relaxed),
            rate: limits.rate.map(rate_text),
            concurrency: limits.concurrency,
            jobs: self.jobs.load(Relaxed),
            phase: *lock(&self.phase),
            codes: self.codes.snapshot(),
            dispatch: self.dispatch.snapshot(),
            end_to_end: self.end_to_end.snapshot(),
            publish: self.publish.snapshot(),
        }
    }
}

/// Returns `50/s`, `100/m`, `5/h`, or `10/1500ms`.
fn rate_text((calls, period): (u32, Duration)) -> String {
    match period.as_millis() {
        1_000 => format!("{calls}/s"),
        60_000 => format!("{calls}/m"),
        3_600_000 => format!("{calls}/h"),
        millis => format!("{calls}/{millis}ms"),
    }
}
