//! The figures that a process reports to the others, and their sum.
//!
//! Invariant: counters only grow while a process lives; a state is that of the last report.

use std::collections::{BTreeMap, BTreeSet};

use relais_core::{
    breaker::{BreakerState, OpenCause},
    bulk::Phase,
    control::ControlKind,
    delivery::Problem,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{DestinationSnapshot, Latency, ObserverSnapshot};

/// The figures of one process, or the sum of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Stored messages.
    pub stored: u64,
    /// Handled messages.
    pub processed: u64,
    /// Failed attempts that are retried.
    pub retried: u64,
    /// Dead letters.
    pub failed: u64,
    /// The destinations, by name.
    pub destinations: BTreeMap<String, DestinationFigures>,
    /// The sources, by name.
    pub sources: BTreeMap<String, SourceFigures>,
    /// The process types that it runs.
    pub process_types: BTreeSet<String>,
    /// Dispatch latency over all destinations, by bucket of [`super::BOUNDS_MICROS`].
    pub latency: Vec<u64>,
}

/// The figures of one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DestinationFigures {
    /// Delivered messages.
    pub dispatched: u64,
    /// Failed attempts that are retried.
    #[serde(skip_serializing_if = "is_zero")]
    pub retried: u64,
    /// Dead letters.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// Calls that failed without using an attempt.
    #[serde(skip_serializing_if = "is_zero")]
    pub outages: u64,
    /// Lanes that this process owns.
    pub lanes: u64,
    /// Calls in flight; of a bulk destination, jobs.
    pub in_flight: u64,
    /// The state of the circuit breaker.
    pub breaker: Option<BreakerState>,
    /// The kind of failure that opened the breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<OpenCause>,
    /// The reason why the breaker is not closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Problem>,
    /// The time until which an open breaker stays open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Timestamp>,
    /// `true` once the target has answered a call, if only with an error.
    pub contacted: bool,
    /// `true` once a call has succeeded.
    pub succeeded: bool,
    /// `true` if every process applies the pause of an operator.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// The time of the last delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivered_at: Option<Timestamp>,
    /// The rate in force in each process: `50/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Maximum number of calls in flight in each process.
    pub concurrency: u32,
    /// A digest of the configuration of the destination, if the process has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    /// Bulk jobs that were planned.
    #[serde(skip_serializing_if = "is_zero")]
    pub jobs: u64,
    /// The phase of the running bulk job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
}

/// The last failed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// The time, by the database clock.
    pub at: Timestamp,
    /// The stable error code.
    pub code: String,
    /// The error message.
    pub message: String,
}

/// The figures of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceFigures {
    /// Stored messages.
    pub stored: u64,
    /// Recognised duplicates.
    pub duplicates: u64,
    /// Messages with a known id and other content.
    pub conflicts: u64,
    /// Of those stored, the ones kept as `SERDE_ERROR`.
    pub undecodable: u64,
    /// Records that were deleted at their origin before they were read.
    pub missed: u64,
    /// Number of times a partition was deleted and created again.
    pub recreated: u64,
    /// Records that wait at the origin, if known.
    pub lag: Option<u64>,
    /// The reason why it is unavailable.
    pub away: Option<String>,
    /// The time of the last message.
    pub last_received_at: Option<Timestamp>,
    /// `true` if every process applies the pause of an operator.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl Figures {
    pub(super) fn of(snapshot: &ObserverSnapshot, process_types: BTreeSet<String>) -> Self {
        let ObserverSnapshot { inbox, destinations, sources, .. } = snapshot;
        let sources = sources.iter().map(|(name, source)| {
            let figures = SourceFigures {
                stored: source.stored,
                duplicates: source.duplicates,
                conflicts: source.conflicts,
                undecodable: source.undecodable,
                // Only the connector knows the state at the origin.
                missed: 0,
                recreated: 0,
                lag: None,
                away: source.away.as_ref().map(|away| away.reason.clone()),
                last_received_at: source.last_received_at,
                paused: source.paused,
            };
            (name.clone(), figures)
        });
        Self {
            stored: inbox.stored,
            processed: inbox.processed,
            retried: inbox.retried,
            failed: inbox.failed,
            destinations: destinations.iter().map(|(n, d)| (n.clone(), of_one(d))).collect(),
            sources: sources.collect(),
            process_types,
            latency: snapshot.dispatch().counts().to_vec(),
        }
    }

    /// Returns the names of a kind.
    pub fn names(&self, kind: ControlKind) -> Vec<String> {
        match kind {
            ControlKind::Destination => self.destinations.keys().cloned().collect(),
            ControlKind::Source => self.sources.keys().cloned().collect(),
            ControlKind::ProcessType => self.process_types.iter().cloned().collect(),
        }
    }

    /// Returns the dispatch latency over all destinations.
    pub fn dispatch(&self) -> Latency {
        Latency::of_counts(&self.latency)
    }

    /// Adds the figures of another process.
    pub fn add(&mut self, other: &Self) {
        self.stored += other.stored;
        self.processed += other.processed;
        self.retried += other.retried;
        self.failed += other.failed;
        for (name, figures) in &other.destinations {
            match self.destinations.get_mut(name) {
                Some(sum) => sum.add(figures),
                None => drop(self.destinations.insert(name.clone(), figures.clone())),
            }
        }
        for (name, figures) in &other.sources {
            match self.sources.get_mut(name) {
                Some(sum) => sum.add(figures),
                None => drop(self.sources.insert(name.clone(), figures.clone())),
            }
        }
        self.process_types.extend(other.process_types.iter().cloned());
        self.latency = self.dispatch().and(&other.dispatch()).counts().to_vec();
    }
}

impl DestinationFigures {
    /// Adds the figures of another process; the breaker is that of the process where it is worst.
    fn add(&mut self, other: &Self) {
        self.dispatched += other.dispatched;
        self.retried += other.retried;
        self.failed += other.failed;
        self.outages += other.outages;
        self.lanes += other.lanes;
        self.in_flight += other.in_flight;
        self.jobs += other.jobs;
        self.contacted |= other.contacted;
        self.succeeded |= other.succeeded;
        self.paused &= other.paused;
        if badness(other.breaker) > badness(self.breaker) {
            self.breaker = other.breaker;
            self.cause = other.cause;
            self.reason.clone_from(&other.reason);
            self.open_until = other.open_until;
        }
        let newer = |error: &&LastError| self.last_error.as_ref().is_none_or(|e| e.at < error.at);
        if let Some(error) = other.last_error.as_ref().filter(newer) {
            self.last_error = Some(error.clone());
        }
        self.last_delivered_at = self.last_delivered_at.max(other.last_delivered_at);
        self.phase = self.phase.or(other.phase);
    }
}

impl SourceFigures {
    fn add(&mut self, other: &Self) {
        self.stored += other.stored;
        self.duplicates += other.duplicates;
        self.conflicts += other.conflicts;
        self.undecodable += other.undecodable;
        self.missed += other.missed;
        self.recreated += other.recreated;
        // Each process knows the lag of what it reads.
        self.lag = self.lag.into_iter().chain(other.lag).reduce(u64::saturating_add);
        self.paused &= other.paused;
        if self.away.is_none() {
            self.away.clone_from(&other.away);
        }
        self.last_received_at = self.last_received_at.max(other.last_received_at);
    }
}

fn of_one(snapshot: &DestinationSnapshot) -> DestinationFigures {
    DestinationFigures {
        dispatched: snapshot.dispatched,
        retried: snapshot.retried,
        failed: snapshot.failed,
        outages: snapshot.outages,
        lanes: snapshot.lanes as u64,
        in_flight: snapshot.in_flight as u64,
        breaker: snapshot.breaker,
        cause: snapshot.cause,
        reason: snapshot.reason.clone(),
        open_until: snapshot.open_until,
        contacted: snapshot.contacted,
        succeeded: snapshot.succeeded,
        paused: snapshot.paused,
        last_error: snapshot.last_error.clone(),
        last_delivered_at: snapshot.last_delivered_at,
        rate: snapshot.rate.clone(),
        concurrency: snapshot.concurrency,
        configuration: None,
        jobs: snapshot.jobs,
        phase: snapshot.phase,
    }
}

fn badness(breaker: Option<BreakerState>) -> u8 {
    match breaker {
        None => 0,
        Some(BreakerState::Closed) => 1,
        Some(BreakerState::HalfOpen) => 2,
        Some(BreakerState::Open) => 3,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(dispatched: u64, breaker: BreakerState, error_at: i64) -> Figures {
        let error = LastError { at: Timestamp(error_at), code: "E".into(), message: "e".into() };
        let orders = DestinationFigures {
            dispatched,
            breaker: Some(breaker),
            last_error: Some(error),
            in_flight: 2,
            ..DestinationFigures::default()
        };
        let destinations = BTreeMap::from([("orders".to_owned(), orders)]);
        Figures { stored: 5, destinations, latency: vec![1, 2], ..Figures::default() }
    }

    #[test]
    fn the_sum_adds_counters_and_shows_the_worst_breaker() {
        let mut sum = process(3, BreakerState::Closed, 7);
        sum.add(&process(4, BreakerState::Open, 5));
        sum.add(&process(5, BreakerState::HalfOpen, 6));
        let orders = &sum.destinations["orders"];
        assert_eq!((sum.stored, orders.dispatched, orders.in_flight), (15, 12, 6));
        assert_eq!(orders.breaker, Some(BreakerState::Open));
        assert_eq!(orders.last_error.as_ref().map(|error| error.at), Some(Timestamp(7)));
        assert_eq!(sum.dispatch().count(), 9);
    }

    #[test]
    fn figures_come_back_from_json_and_those_of_another_version_too() {
        let figures = process(3, BreakerState::HalfOpen, 1_000_000);
        let json = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&json).unwrap(), figures);
        let newer =
            r#"{"stored":1,"something_new":{},"destinations":{"a":{"dispatched":2,"x":1}}}"#;
        assert_eq!(serde_json::from_str::<Figures>(newer).unwrap().destinations["a"].dispatched, 2);
    }
}
