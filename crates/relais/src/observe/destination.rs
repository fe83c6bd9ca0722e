//! What became of messages to one destination, and the state of its limits.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use relais_core::{
    breaker::{BreakerState, OpenCause},
    bulk::Phase,
    delivery::Problem,
    outbox::OutboxRow,
    time::Timestamp,
};
use serde::Serialize;

use super::{
    codes::Codes,
    figures::LastError,
    latency::{Clock, Histogram, Latency},
    trace::Tracer,
};
use crate::limits::LimitsView;

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

impl DestinationCounters {
    pub(super) fn new(clock: Arc<Clock>, tracer: Option<Arc<Tracer>>) -> Self {
        Self { clock, tracer, ..Self::default() }
    }

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

    /// The phase of the running job; none when it has ended or another worker has it.
    pub(crate) fn set_phase(&self, phase: Option<Phase>) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    pub(super) fn snapshot(&self) -> DestinationSnapshot {
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

/// `50/s`, `100/m`, `5/h`, or `10/1500ms`.
fn rate_text((calls, period): (u32, Duration)) -> String {
    match period.as_millis() {
        1_000 => format!("{calls}/s"),
        60_000 => format!("{calls}/m"),
        3_600_000 => format!("{calls}/h"),
        millis => format!("{calls}/{millis}ms"),
    }
}
