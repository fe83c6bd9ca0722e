//! The Prometheus page. Every metric name of relais is in this file and in `docs/metrics.md`.

use std::fmt::Write;

use relais::observe::Snapshot;
use relais_core::{limits::BreakerState, query::Overview, time::Timestamp};

use crate::{CallsUsed, SourceLosses};

/// The text format: the store's rows if it answered, and what this process counted.
pub(crate) fn render(
    overview: Option<&Overview>,
    snapshot: &Snapshot,
    losses: &[(&str, SourceLosses)],
    usage: &[(&str, CallsUsed)],
) -> String {
    let mut page = Page::default();
    page.one("relais_store_up", "gauge", "1 if the store answered.", u64::from(overview.is_some()));
    if let Some(overview) = overview {
        rows(&mut page, overview);
    }
    counters(&mut page, snapshot);
    processes(&mut page, snapshot);
    targets(&mut page, snapshot, usage);
    sources(&mut page, losses);
    page.0
}

fn rows(page: &mut Page, overview: &Overview) {
    page.head("relais_inbox_rows", "gauge", "Inbox rows by status.");
    for count in &overview.inbox {
        page.line("relais_inbox_rows", &[("status", &count.name)], count.rows);
    }
    let age = |at: Option<Timestamp>| at.map_or(0, |at| at.seconds_until(overview.now));
    let oldest = age(overview.inbox_oldest);
    page.one("relais_inbox_oldest_seconds", "gauge", "Age of the oldest open inbox row.", oldest);
    page.head("relais_outbox_rows", "gauge", "Outbox rows by status.");
    for count in &overview.outbox {
        page.line("relais_outbox_rows", &[("status", &count.name)], count.rows);
    }
    page.head("relais_outbox_pending", "gauge", "Pending outbox rows by destination.");
    for backlog in &overview.backlogs {
        page.line(
            "relais_outbox_pending",
            &[("destination", &backlog.destination)],
            backlog.pending,
        );
    }
    page.head("relais_outbox_oldest_seconds", "gauge", "Age of the oldest pending row.");
    for backlog in &overview.backlogs {
        let labels = [("destination", backlog.destination.as_str())];
        page.line("relais_outbox_oldest_seconds", &labels, age(backlog.oldest));
    }
    let open = overview.dead_letters_open;
    page.one("relais_dead_letters_open", "gauge", "Dead letters that wait for a person.", open);
    page.one("relais_parked_keys", "gauge", "Keys held back behind them.", overview.parked_keys);
    page.head("relais_processes", "gauge", "Processes by status.");
    for count in &overview.processes {
        page.line("relais_processes", &[("status", &count.name)], count.rows);
    }
    let due = overview.timers_due;
    page.one("relais_timers_due", "gauge", "Timers that are due and have not fired.", due);
}

fn counters(page: &mut Page, snapshot: &Snapshot) {
    let inbox = &snapshot.inbox;
    page.head("relais_received_total", "counter", "Messages received, by what became of them.");
    for (result, count) in
        [("stored", inbox.stored), ("duplicate", inbox.duplicates), ("conflict", inbox.conflicts)]
    {
        page.line("relais_received_total", &[("result", result)], count);
    }
    page.head("relais_handled_total", "counter", "Inbox rows handled, by result.");
    for (result, count) in
        [("processed", inbox.processed), ("retry", inbox.retried), ("failed", inbox.failed)]
    {
        page.line("relais_handled_total", &[("result", result)], count);
    }
    page.head("relais_delivered_total", "counter", "Deliveries by destination and result.");
    for (name, d) in &snapshot.destinations {
        for (result, count) in [
            ("dispatched", d.dispatched),
            ("retry", d.retried),
            ("failed", d.failed),
            ("outage", d.outages),
        ] {
            page.line(
                "relais_delivered_total",
                &[("destination", name), ("result", result)],
                count,
            );
        }
    }
    page.head("relais_problems_total", "counter", "Failed deliveries by destination and code.");
    for (name, d) in &snapshot.destinations {
        for (code, count) in &d.codes {
            page.line("relais_problems_total", &[("destination", name), ("code", code)], *count);
        }
    }
    scopes(page, snapshot);
}

fn processes(page: &mut Page, snapshot: &Snapshot) {
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
    page.one("relais_process_stale_total", "counter", "Decisions made again.", stale);
}

/// What each scope holds and lost. Samples of one metric stand together, as the format wants.
fn scopes(page: &mut Page, snapshot: &Snapshot) {
    let inbox = &snapshot.inbox;
    let outbox = |name: &str| format!("outbox:{name}");
    page.head("relais_fence_refusals_total", "counter", "Settlements refused: the lane was lost.");
    page.line("relais_fence_refusals_total", &[("scope", "inbox")], inbox.refused);
    for (name, d) in &snapshot.destinations {
        page.line("relais_fence_refusals_total", &[("scope", &outbox(name))], d.refused);
    }
    page.head("relais_lanes_owned", "gauge", "Lanes this process holds, by scope.");
    page.line("relais_lanes_owned", &[("scope", "inbox")], inbox.lanes as u64);
    for (name, d) in &snapshot.destinations {
        page.line("relais_lanes_owned", &[("scope", &outbox(name))], d.lanes as u64);
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

/// What only some kinds of destinations have.
fn targets(page: &mut Page, snapshot: &Snapshot, usage: &[(&str, CallsUsed)]) {
    page.head("relais_bulk_jobs_total", "counter", "Bulk jobs this process planned.");
    for (name, d) in snapshot.destinations.iter().filter(|(_, d)| d.jobs > 0) {
        page.line("relais_bulk_jobs_total", &[("destination", name)], d.jobs);
    }
    page.head("relais_api_calls_used", "gauge", "Calls of the day, as the target counts them.");
    for (name, calls) in usage {
        page.line("relais_api_calls_used", &[("destination", name)], calls.used);
    }
    page.head("relais_api_calls_limit", "gauge", "Calls the target allows in a day.");
    for (name, calls) in usage {
        page.line("relais_api_calls_limit", &[("destination", name)], calls.limit);
    }
}

fn sources(page: &mut Page, losses: &[(&str, SourceLosses)]) {
    page.head("relais_source_missed_total", "counter", "Records deleted before they were read.");
    for (name, lost) in losses {
        page.line("relais_source_missed_total", &[("source", name)], lost.missed);
    }
    page.head("relais_source_recreated_total", "counter", "Partitions deleted and made again.");
    for (name, lost) in losses {
        page.line("relais_source_recreated_total", &[("source", name)], lost.recreated);
    }
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let labels: Vec<String> =
            labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escape(text))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

/// Label values come from messages: quotes, backslashes and line breaks must not break the page.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use relais::observe::Observer;

    #[test]
    fn without_the_store_the_process_still_tells_what_it_counted() {
        let losses = [("members", SourceLosses { missed: 7, recreated: 0 })];
        let usage = [("contacts", CallsUsed { used: 8, limit: 100 })];
        let page = render(None, &Observer::default().snapshot(), &losses, &usage);
        assert!(page.contains("relais_api_calls_used{destination=\"contacts\"} 8\n"));
        assert!(page.contains("relais_source_missed_total{source=\"members\"} 7\n"));
        assert!(page.contains("relais_store_up 0\n"));
        assert!(page.contains("relais_received_total{result=\"stored\"} 0\n"));
    }

    #[test]
    fn every_metric_is_documented_and_every_documented_one_exists() {
        let docs = include_str!("../../../docs/metrics.md");
        let code = include_str!("metrics.rs");
        let names = |text: &str, quote: char| -> std::collections::BTreeSet<String> {
            let parts = text.split(quote).filter(|part| {
                part.len() > 7
                    && part.starts_with("relais_")
                    && part.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            });
            parts.map(str::to_owned).collect()
        };
        assert_eq!(names(docs, '`'), names(code, '"'));
    }

    #[test]
    fn labels_cannot_break_out() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
