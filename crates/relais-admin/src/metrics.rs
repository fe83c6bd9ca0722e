//! The Prometheus page. Every metric name of relais is in this file and in `docs/metrics.md`.
//!
//! Invariant: the number of series is bounded by the configuration plus a constant; the content of messages
//! cannot add series without bound.

mod adopted;
mod controls;
mod page;
mod process;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

use relais::{
    health::is_available,
    observe::{Latency, Observer, ObserverSnapshot},
};
use relais_core::{
    breaker::BreakerState,
    control::Control,
    query::{Backlog, Overview},
    time::Timestamp,
};

use self::page::MetricsPage;
use crate::{CallsUsed, SourceState, health::ServerFacts};

/// Most destinations with their own series that are in the outbox but not in the configuration.
const UNKNOWN_MAX: usize = 20;

/// The input of a page.
pub(crate) struct MetricsInput<'a> {
    /// Absent if the store did not answer.
    pub(crate) overview: Option<&'a Overview>,
    /// The age of the overview; absent if the caller has just read it.
    pub(crate) rows_age: Option<Duration>,
    pub(crate) controls: &'a [Control],
    /// Process types of this process.
    pub(crate) process_types: &'a BTreeSet<String>,
    pub(crate) snapshot: &'a ObserverSnapshot,
    pub(crate) facts: &'a ServerFacts,
    pub(crate) sources: &'a [(&'a str, SourceState)],
    pub(crate) usage: &'a [(&'a str, CallsUsed)],
}

/// Returns the Prometheus page for a service that has its own `/metrics`: the counters of this process and, if
/// the overview of the store is given, its rows. Append it to the service's own page; its content type is
/// `text/plain; version=0.0.4`.
///
/// The overview counts rows: read it no more often than the page is scraped.
pub fn render(observer: &Observer, overview: Option<&Overview>) -> String {
    let facts =
        ServerFacts { version: env!("CARGO_PKG_VERSION").to_owned(), ..ServerFacts::default() };
    let snapshot = observer.snapshot();
    render_page(&MetricsInput {
        overview,
        rows_age: None,
        controls: &[],
        process_types: &observer.figures().process_types,
        snapshot: &snapshot,
        facts: &facts,
        sources: &[],
        usage: &[],
    })
}

/// Renders the page: the rows of the store if it answered, and the counters of this process.
pub(crate) fn render_page(seen: &MetricsInput<'_>) -> String {
    let mut page = MetricsPage::default();
    facts(&mut page, seen.facts);
    let up = u64::from(seen.overview.is_some());
    let help = "1 if the database answered the last count of rows.";
    page.one("relais_store_up", "gauge", help, up);
    if let Some(age) = seen.rows_age {
        let help = "Seconds since the gauges of rows were counted.";
        page.one("relais_rows_age_seconds", "gauge", help, age.as_secs());
    }
    if let Some(overview) = seen.overview {
        rows(&mut page, overview);
        backlogs(&mut page, overview, seen.snapshot);
    }
    counters(&mut page, seen.snapshot);
    latencies(&mut page, seen.snapshot);
    processes(&mut page, seen.snapshot);
    scopes(&mut page, seen.snapshot);
    targets(&mut page, seen.snapshot, seen.usage);
    sources(&mut page, seen.snapshot, seen.sources);
    adopted::render(&mut page, seen.snapshot);
    controls::render(&mut page, seen);
    process::render(&mut page);
    page.0
}

fn facts(page: &mut MetricsPage, facts: &ServerFacts) {
    page.head("relais_build_info", "gauge", "Always 1; the labels hold version and database.");
    let labels = [("version", facts.version.as_str()), ("store", facts.store.as_str())];
    page.line("relais_build_info", &labels, 1);
    page.head(
        "relais_destination_info",
        "gauge",
        "Always 1; the labels hold kind and object of the target.",
    );
    for target in &facts.destinations {
        let object = target.object.as_deref().unwrap_or_default();
        let labels = [("destination", target.name.as_str()), ("kind", target.kind.as_str())];
        page.line("relais_destination_info", &[&labels[..], &[("object", object)]].concat(), 1);
    }
}

fn rows(page: &mut MetricsPage, overview: &Overview) {
    page.head("relais_inbox_rows", "gauge", "Inbox rows by status.");
    for count in &overview.inbox {
        page.line("relais_inbox_rows", &[("status", &count.name)], count.rows);
    }
    let oldest = age(overview.inbox_oldest, overview);
    let help = "Age of the oldest open inbox row that does not wait behind a parked key.";
    page.one("relais_inbox_oldest_seconds", "gauge", help, oldest);
    let help = "Open inbox rows that wait behind a parked key, among the first 100,000.";
    page.one("relais_inbox_parked_rows", "gauge", help, overview.inbox_parked);
    page.head("relais_outbox_rows", "gauge", "Outbox rows by status.");
    for count in &overview.outbox {
        page.line("relais_outbox_rows", &[("status", &count.name)], count.rows);
    }
    let open = overview.dead_letters_open;
    page.one("relais_dead_letters_open", "gauge", "Dead letters that need a decision.", open);
    page.one(
        "relais_parked_keys",
        "gauge",
        "Keys parked behind a dead letter.",
        overview.parked_keys,
    );
    page.head("relais_processes", "gauge", "Processes by status.");
    for count in &overview.processes {
        page.line("relais_processes", &[("status", &count.name)], count.rows);
    }
    let help = "Processes that wait for a decision of an operator.";
    let waiting = overview.processes_need_operator;
    page.one("relais_processes_need_operator", "gauge", help, waiting);
    unknown_types(page, overview);
    let due = overview.timers_due;
    page.one("relais_timers_due", "gauge", "Timers that are due and have not fired.", due);
}

/// Senders choose event types, so only the most frequent ones get their own series.
fn unknown_types(page: &mut MetricsPage, overview: &Overview) {
    let help = "Inbox rows that wait for a worker that knows their event type.";
    page.head("relais_inbox_unknown_type_rows", "gauge", help);
    let all = &overview.unknown_types;
    let (shown, rest) = all.split_at(all.len().min(UNKNOWN_MAX));
    for count in shown {
        page.line("relais_inbox_unknown_type_rows", &[("event_type", &count.name)], count.rows);
    }
    if !rest.is_empty() {
        let rows: u64 = rest.iter().map(|count| count.rows).sum();
        page.line("relais_inbox_unknown_type_rows", &[("event_type", "other")], rows);
    }
}

fn age(at: Option<Timestamp>, overview: &Overview) -> u64 {
    at.map_or(0, |at| at.seconds_until(overview.now))
}

/// Applications can write any destination into the outbox: of those that are not configured, only the longest
/// backlogs get their own series, and the rest is counted together.
fn backlogs(page: &mut MetricsPage, overview: &Overview, snapshot: &ObserverSnapshot) {
    let is_known = |b: &&Backlog| snapshot.destinations.contains_key(&b.destination);
    let (mut shown, mut unknown): (Vec<&Backlog>, Vec<&Backlog>) =
        overview.backlogs.iter().partition(is_known);
    unknown.sort_by_key(|backlog| std::cmp::Reverse(backlog.pending));
    let rest = unknown.split_off(unknown.len().min(UNKNOWN_MAX));
    shown.extend(unknown);
    let other = Backlog {
        destination: "other".to_owned(),
        pending: rest.iter().map(|backlog| backlog.pending).sum(),
        oldest: rest.iter().filter_map(|backlog| backlog.oldest).min(),
        parked: rest.iter().map(|backlog| backlog.parked).sum(),
        failing_keys: rest.iter().map(|backlog| backlog.failing_keys).sum(),
        failing: None,
    };
    shown.extend((!rest.is_empty()).then_some(&other));
    page.head("relais_outbox_pending", "gauge", "Pending outbox rows by destination.");
    for backlog in &shown {
        let labels = [("destination", backlog.destination.as_str())];
        page.line("relais_outbox_pending", &labels, backlog.pending);
    }
    let help = "Age of the oldest pending row that does not wait behind a parked key.";
    page.head("relais_outbox_oldest_seconds", "gauge", help);
    for backlog in &shown {
        let labels = [("destination", backlog.destination.as_str())];
        page.line("relais_outbox_oldest_seconds", &labels, age(backlog.oldest, overview));
    }
    let help = "Pending rows that wait behind a parked key, among the first 100,000.";
    page.head("relais_outbox_parked_rows", "gauge", help);
    for backlog in &shown {
        let labels = [("destination", backlog.destination.as_str())];
        page.line("relais_outbox_parked_rows", &labels, backlog.parked);
    }
    let help =
        "Keys with a row in backoff after a failed call, among the first 10,000 rows with a time.";
    page.head("relais_outbox_failing_keys", "gauge", help);
    for backlog in &shown {
        let labels = [("destination", backlog.destination.as_str())];
        page.line("relais_outbox_failing_keys", &labels, backlog.failing_keys);
    }
}

fn counters(page: &mut MetricsPage, snapshot: &ObserverSnapshot) {
    page.head("relais_received_total", "counter", "Messages received, by result.");
    for (source, s) in &snapshot.sources {
        for (result, count) in
            [("stored", s.stored), ("duplicate", s.duplicates), ("conflict", s.conflicts)]
        {
            let labels = [("source", source.as_str()), ("result", result)];
            page.line("relais_received_total", &labels, count);
        }
    }
    page.head("relais_serde_errors_total", "counter", "Undecodable messages stored.");
    for (source, s) in &snapshot.sources {
        page.line("relais_serde_errors_total", &[("source", source)], s.undecodable);
    }
    let inbox = &snapshot.inbox;
    page.head("relais_handled_total", "counter", "Inbox rows handled, by result.");
    for (result, count) in [
        ("processed", inbox.processed),
        ("retry", inbox.retried),
        ("failed", inbox.failed),
        ("ignored", inbox.ignored_rows),
    ] {
        page.line("relais_handled_total", &[("result", result)], count);
    }
    let help = "Messages of routes that were not sent because they were out of order.";
    page.one("relais_ignored_total", "counter", help, inbox.ignored);
    let help = "Rows past their retention that clean-up removed.";
    page.head("relais_cleaned_total", "counter", help);
    for (table, rows) in snapshot.cleaned.tables() {
        page.line("relais_cleaned_total", &[("table", table)], rows);
    }
    page.head(
        "relais_handling_problems_total",
        "counter",
        "Failed attempts at inbox rows by code.",
    );
    for (code, count) in &inbox.codes {
        page.line("relais_handling_problems_total", &[("code", code)], *count);
    }
    page.head("relais_delivered_total", "counter", "Deliveries by destination and result.");
    for (name, d) in &snapshot.destinations {
        for (result, count) in [
            ("dispatched", d.dispatched),
            ("retry", d.retried),
            ("failed", d.failed),
            ("outage", d.outages),
        ] {
            let labels = [("destination", name.as_str()), ("result", result)];
            page.line("relais_delivered_total", &labels, count);
        }
    }
    page.head("relais_problems_total", "counter", "Failed deliveries by destination and code.");
    for (name, d) in &snapshot.destinations {
        for (code, count) in &d.codes {
            page.line("relais_problems_total", &[("destination", name), ("code", code)], *count);
        }
    }
}

fn latencies(page: &mut MetricsPage, snapshot: &ObserverSnapshot) {
    let name = "relais_handling_seconds";
    page.head(name, "histogram", "From reception to the end of handling.");
    page.histogram(name, &[], &snapshot.inbox.handling);
    let mut by_destination = |name: &str, help: &str, of: fn(&Latencies<'_>) -> Latency| {
        page.head(name, "histogram", help);
        for (destination, d) in &snapshot.destinations {
            let all = Latencies(&d.dispatch, &d.end_to_end, &d.publish);
            page.histogram(name, &[("destination", destination)], &of(&all));
        }
    };
    let help = "From the due time of an outbox row to its delivery.";
    by_destination("relais_dispatch_seconds", help, |all| all.0.clone());
    let help = "From the reception of the causing message to the delivery.";
    by_destination("relais_end_to_end_seconds", help, |all| all.1.clone());
    by_destination("relais_publish_seconds", "Calls to the target.", |all| all.2.clone());
}

/// Latencies of dispatch, end to end, and publish.
struct Latencies<'a>(&'a Latency, &'a Latency, &'a Latency);

fn processes(page: &mut MetricsPage, snapshot: &ObserverSnapshot) {
    let types = &snapshot.processes.types;
    page.head("relais_processes_started_total", "counter", "Processes started, by type.");
    for (name, counts) in types {
        page.line("relais_processes_started_total", &[("type", name)], counts.started);
    }
    page.head("relais_processes_finished_total", "counter", "Processes ended, by type and status.");
    for (name, counts) in types {
        for (status, count) in [
            ("SUCCEEDED", counts.succeeded),
            ("FAILED", counts.failed),
            ("COMPENSATED", counts.compensated),
        ] {
            let labels = [("type", name.as_str()), ("status", status)];
            page.line("relais_processes_finished_total", &labels, count);
        }
    }
    page.head("relais_process_steps_total", "counter", "Commands sent for steps, by type.");
    for (name, counts) in types {
        page.line("relais_process_steps_total", &[("type", name)], counts.steps);
    }
    let (timers, stale) = (snapshot.processes.timers, snapshot.processes.stale);
    page.one("relais_timers_fired_total", "counter", "Timers fired.", timers);
    page.one(
        "relais_process_stale_total",
        "counter",
        "Process decisions that were repeated after a conflict.",
        stale,
    );
}

/// Lanes held and lost, by scope.
fn scopes(page: &mut MetricsPage, snapshot: &ObserverSnapshot) {
    let refused = |scope: &str| match scope.strip_prefix("outbox:") {
        Some(name) => snapshot.destinations.get(name).map_or(0, |d| d.refused),
        None => snapshot.inbox.refused,
    };
    page.head(
        "relais_fence_refusals_total",
        "counter",
        "Settlements refused because the lane was lost.",
    );
    for scope in snapshot.scopes.keys() {
        page.line("relais_fence_refusals_total", &[("scope", scope)], refused(scope));
    }
    page.head("relais_lanes_owned", "gauge", "Lanes this process holds, by scope.");
    for (scope, s) in &snapshot.scopes {
        page.line("relais_lanes_owned", &[("scope", scope)], s.lanes);
    }
    page.head("relais_lanes_lost_total", "counter", "Lanes lost before they were released.");
    for (scope, s) in &snapshot.scopes {
        page.line("relais_lanes_lost_total", &[("scope", scope)], s.lanes_lost);
    }
    page.head("relais_heartbeat_age_seconds", "gauge", "Time since the last stored heartbeat.");
    for (scope, s) in &snapshot.scopes {
        let silent = format!("{:.3}", s.silent_for.as_secs_f64());
        page.line("relais_heartbeat_age_seconds", &[("scope", scope)], silent);
    }
    page.head("relais_breaker_state", "gauge", "0 closed, 1 half open, 2 open.");
    for (name, d) in &snapshot.destinations {
        let state = match d.breaker {
            None | Some(BreakerState::Closed) => 0,
            Some(BreakerState::HalfOpen) => 1,
            Some(BreakerState::Open) => 2,
        };
        page.line("relais_breaker_state", &[("destination", name)], state);
    }
}

/// Metrics of single kinds of destinations.
fn targets(page: &mut MetricsPage, snapshot: &ObserverSnapshot, usage: &[(&str, CallsUsed)]) {
    page.head("relais_bulk_jobs_total", "counter", "Bulk jobs this process planned.");
    for (name, d) in snapshot.destinations.iter().filter(|(_, d)| d.jobs > 0) {
        page.line("relais_bulk_jobs_total", &[("destination", name)], d.jobs);
    }
    page.head("relais_api_calls_used", "gauge", "API calls of the day, as the target counts them.");
    for (name, calls) in usage {
        page.line("relais_api_calls_used", &[("destination", name)], calls.used);
    }
    page.head("relais_api_calls_limit", "gauge", "API calls that the target allows per day.");
    for (name, calls) in usage {
        page.line("relais_api_calls_limit", &[("destination", name)], calls.limit);
    }
}

fn sources(page: &mut MetricsPage, snapshot: &ObserverSnapshot, states: &[(&str, SourceState)]) {
    page.head("relais_source_up", "gauge", "1 if the source is available.");
    for (name, source) in &snapshot.sources {
        let state = states.iter().find(|(n, _)| n == name).map(|(_, state)| state);
        page.line(
            "relais_source_up",
            &[("source", name)],
            u64::from(is_available(source, state.and_then(|state| state.connected))),
        );
    }
    page.head("relais_source_lag", "gauge", "Records of its partitions that are not stored yet.");
    for (name, state) in states {
        if let Some(lag) = state.lag {
            page.line("relais_source_lag", &[("source", name)], lag);
        }
    }
    page.head("relais_source_missed_total", "counter", "Records deleted before they were read.");
    for (name, state) in states {
        page.line("relais_source_missed_total", &[("source", name)], state.missed);
    }
    page.head("relais_source_recreated_total", "counter", "Partitions deleted and created again.");
    for (name, state) in states {
        page.line("relais_source_recreated_total", &[("source", name)], state.recreated);
    }
}
