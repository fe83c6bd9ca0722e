//! `relais status`: counts of the store, and the circuit breakers of the running process.

mod failing;
pub(super) mod guards;
mod tables;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use relais::observe::configuration_conflicts;
use relais_core::{
    bulk::{BulkJob, Phase},
    control::{Control, Pause},
    inspect::InspectExt,
    query::{Backlog, Count, Overview, ParkedKey, is_estimated},
    report::{REPORT_KEPT, Report},
    time::Timestamp,
};
use serde::Serialize;

pub(super) use self::failing::failing_text;
use self::{
    guards::DestinationGuards,
    tables::{destinations_table, handlers_table, jobs_table, workers},
};
use super::{
    CommandContext,
    control::{self, OperatorLimits},
};
use crate::{
    args::StatusArgs,
    failure::Done,
    output::{LineBreaks, Output, Tone, age, escape, wrap},
    settings::{HandlerConfig, Settings, quantity::show_rate},
};

/// Most parked keys listed by name.
const PARKED_SHOWN: usize = 10;
/// The note of a destination that only rows name.
pub(super) const UNDEFINED: &str = "waits: no [[destination]] names it";
/// Most bulk jobs read; open ones come first.
const JOBS_MAX: usize = 50;

/// The output of `--json`: the overview and the configuration of the destinations.
#[derive(Debug, Serialize)]
struct Status {
    store: String,
    database: String,
    #[serde(flatten)]
    overview: Overview,
    destinations: Vec<DestinationStatus>,
    handlers: Vec<HandlerStatus>,
    /// The reason why breakers and API calls are unknown.
    guards_unknown: Option<String>,
    bulk_jobs: Vec<BulkJob>,
    paused: Vec<PausedItem>,
    /// Workers that were lost within [`REPORT_KEPT`].
    lost_workers: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PausedItem {
    kind: &'static str,
    name: String,
    #[serde(flatten)]
    pause: Pause,
}

#[derive(Debug, Serialize)]
struct DestinationStatus {
    #[serde(flatten)]
    backlog: Backlog,
    /// True if a `[[destination]]` names it; otherwise its rows wait.
    defined: bool,
    /// True if another program serves it.
    external: bool,
    /// The configured rate.
    rate: Option<String>,
    operator_limits: Option<OperatorLimits>,
    /// The state in the running process; absent if none answers.
    guards: Option<DestinationGuards>,
    /// The processes that configure it differently.
    conflict: Option<String>,
}

/// A `[[handler]]`; its messages wait in the inbox.
#[derive(Debug, Serialize)]
struct HandlerStatus {
    /// As operators name it: `@billing`.
    name: String,
    rate: Option<String>,
    operator_limits: Option<OperatorLimits>,
    guards: Option<DestinationGuards>,
}

/// Prints counts, backlogs, dead letters, parked keys and workers.
pub(crate) async fn status(context: &CommandContext, args: &StatusArgs) -> Done {
    let (settings, store) = context.store().await?;
    let database = store.describe().await?.server;
    let overview = store.overview().await?;
    let parked = store.parked_keys(PARKED_SHOWN).await?;
    let mut bulk_jobs = store.list_bulk(None, JOBS_MAX).await?;
    bulk_jobs.retain(|job| !job.phase.is_terminal());
    let controls = store.controls().await?;
    let guards = guards::ask(settings.admin.as_ref(), &args.access, &overview.workers).await;
    let guards_unknown = guards.as_ref().err().cloned();
    let guards = guards.unwrap_or_default();
    let mut destinations = destinations(&settings, &overview.backlogs, &guards);
    let reports = store.reports().await?;
    let conflicts = configuration_conflicts(&reports);
    let limits = control::limits(&controls);
    for destination in &mut destinations {
        let name = &destination.backlog.destination;
        destination.conflict = conflicts.get(name).cloned();
        destination.operator_limits = limits.get(name.as_str()).cloned();
    }
    let mut handlers = handlers(&settings, &guards);
    for handler in &mut handlers {
        handler.operator_limits = limits.get(handler.name.as_str()).cloned();
    }
    let lost_workers = lost_workers(&overview, &reports);
    let store = settings.store.url.to_string();
    let paused = controls.iter().filter_map(|control| {
        let (kind, name) = (control.kind.as_str(), control.name.clone());
        Some(PausedItem { kind, name, pause: control.pause.clone()? })
    });
    let paused = paused.collect();
    let status = Status {
        store,
        database,
        overview,
        destinations,
        handlers,
        guards_unknown,
        bulk_jobs,
        paused,
        lost_workers,
    };
    if context.output.json {
        return context.output.print_json(&status);
    }
    let shown = show(&context.output, &status, &parked, &controls);
    let Some(width) = context.output.width else { return context.output.print(&shown) };
    // Tables fit already; sentences continue on the next line.
    let lines: Vec<String> = shown.lines().map(|line| wrap_line(line, width)).collect();
    context.output.print(&lines.join("\n"))
}

/// Returns all destinations that are configured or have a backlog.
fn destinations(
    settings: &Settings,
    backlogs: &[Backlog],
    guards: &BTreeMap<String, DestinationGuards>,
) -> Vec<DestinationStatus> {
    let nothing = |name: &String| Backlog { destination: name.clone(), ..Backlog::default() };
    let mut all: BTreeMap<&str, Backlog> =
        settings.destinations.iter().map(|d| (d.name.as_str(), nothing(&d.name))).collect();
    for backlog in backlogs {
        all.insert(&backlog.destination, backlog.clone());
    }
    all.into_values()
        .map(|backlog| {
            let mut defined = settings.destinations.iter();
            let defined = defined.find(|d| d.name == backlog.destination);
            DestinationStatus {
                defined: settings.delivers_to(&backlog.destination),
                external: settings.external.contains(&backlog.destination),
                rate: defined.and_then(|d| d.limits.rate).map(show_rate),
                operator_limits: None,
                guards: guards.get(&backlog.destination).cloned(),
                conflict: None,
                backlog,
            }
        })
        .collect()
}

fn handlers(
    settings: &Settings,
    guards: &BTreeMap<String, DestinationGuards>,
) -> Vec<HandlerStatus> {
    let one = |handler: &HandlerConfig| {
        let name = handler.target();
        let rate = handler.limits.rate.map(show_rate);
        HandlerStatus { rate, operator_limits: None, guards: guards.get(&name).cloned(), name }
    };
    settings.handlers.iter().map(one).collect()
}

/// Returns the workers that were lost as recently as the console shows them.
fn lost_workers(overview: &Overview, reports: &[Report]) -> Vec<String> {
    let kept = i64::try_from(REPORT_KEPT.as_micros()).unwrap_or(i64::MAX);
    let is_recent = |report: &&Report| overview.now.0.saturating_sub(report.reported_at.0) <= kept;
    let recent: BTreeSet<&str> =
        reports.iter().filter(is_recent).map(|report| report.worker.as_str()).collect();
    let lost = overview.workers.iter().filter(|worker| !worker.alive);
    let lost: BTreeSet<&str> = lost.map(|worker| worker.worker.as_str()).collect();
    lost.intersection(&recent).map(|name| (*name).to_owned()).collect()
}

fn show(output: &Output, status: &Status, parked: &[ParkedKey], controls: &[Control]) -> String {
    let Overview { now, schema_version, inbox, inbox_oldest, inbox_parked, outbox, .. } =
        &status.overview;
    let mut out = format!(
        "store         {} ({}, tables at version {schema_version})\n",
        status.store, status.database
    );
    let oldest = inbox_oldest.map(|at| format!(", oldest open {}", age(at, *now)));
    let parked_rows = match inbox_parked {
        0 => String::new(),
        rows => format!(", {rows} behind parked keys"),
    };
    let oldest = oldest.unwrap_or_default();
    let _ = writeln!(out, "inbox         {}{oldest}{parked_rows}", counts(inbox));
    for line in without_worker(&status.overview) {
        let _ = writeln!(out, "              {}", escape(&line, LineBreaks::Escape));
    }
    let _ = writeln!(out, "outbox        {}", counts(outbox));
    out.push_str(&processes(output, &status.overview));
    for line in control::paused(controls, *now) {
        let _ = writeln!(out, "paused        {}", output.paint(&line, Tone::Waiting));
    }
    for line in control::limited(controls) {
        let _ = writeln!(out, "limited       {}", output.paint(&line, Tone::Waiting));
    }
    let open = status.overview.dead_letters_open;
    let hint = if open > 0 { " (relais dead-letter list)" } else { "" };
    let _ = writeln!(out, "dead letters  {open} open{hint}");
    let _ = writeln!(out, "parked keys   {}", status.overview.parked_keys);
    for key in parked {
        let ParkedKey { origin, destination, msg_key, parked_at, backlog, .. } = key;
        let place = destination.as_deref().unwrap_or(origin.as_str());
        let line = format!("{place}: {msg_key}, for {}, {backlog} wait", age(*parked_at, *now));
        let _ = writeln!(out, "              {}", escape(&line, LineBreaks::Escape));
    }
    if !status.destinations.is_empty() {
        let _ = write!(out, "\n{}\n", destinations_table(output, &status.destinations, *now));
    }
    for destination in &status.destinations {
        for line in destination.troubles(*now) {
            let _ = writeln!(out, "{}", escape(&line, LineBreaks::Escape));
        }
    }
    if !status.handlers.is_empty() {
        let _ = write!(out, "\n{}\n", handlers_table(output, &status.handlers));
    }
    for HandlerStatus { name, guards, .. } in &status.handlers {
        if let Some(why) = guards.as_ref().and_then(DestinationGuards::suspension) {
            let _ = writeln!(out, "{}", escape(&format!("{name} {why}"), LineBreaks::Escape));
        }
    }
    if let Some(why) = &status.guards_unknown {
        let _ = writeln!(out, "breakers and API calls are unknown: {why}");
    }
    if !status.bulk_jobs.is_empty() {
        let _ = write!(out, "\n{}\n", jobs_table(output, &status.bulk_jobs, *now));
        for job in &status.bulk_jobs {
            let line = format!("bulk job of {} {}", job.destination, job_state(status, job));
            let _ = writeln!(out, "{}", escape(&line, LineBreaks::Escape));
        }
    }
    let _ = write!(out, "\n{}", workers(output, &status.overview, status.lost_workers.len()));
    out
}

/// Returns the lines about processes, if there are any.
fn processes(output: &Output, overview: &Overview) -> String {
    let mut out = String::new();
    let processes: Vec<Count> =
        overview.processes.iter().filter(|count| count.rows > 0).cloned().collect();
    if !processes.is_empty() {
        let due = match overview.timers_due {
            0 => String::new(),
            due => format!(", {due} timers due"),
        };
        let _ = writeln!(out, "processes     {}{due}", counts(&processes));
    }
    let waiting = overview.processes_need_operator;
    if waiting > 0 {
        let need = if waiting == 1 { "needs" } else { "need" };
        let text = format!("{waiting} {need} an operator (relais dead-letter list)");
        let _ = writeln!(out, "              {}", output.paint(&text, Tone::Bad));
    }
    out
}

/// Returns a line for each event type and inbox that no worker serves.
fn without_worker(overview: &Overview) -> impl Iterator<Item = String> {
    let types = overview.unknown_types.iter().map(|Count { name, rows }| {
        format!("{rows} wait for a worker that knows event type {name}")
    });
    types.chain(
        overview.unserved_inboxes.iter().map(|Count { name, rows }| {
            format!("{rows} wait in inbox {name}, which no worker serves")
        }),
    )
}

impl DestinationStatus {
    fn limit(&self) -> Option<String> {
        limit(self.guards.as_ref(), self.rate.as_deref(), self.operator_limits.as_ref())
    }

    /// Returns the reason why deliveries are suspended, and the time of the next call.
    fn suspension(&self) -> Option<String> {
        self.guards.as_ref().and_then(DestinationGuards::suspension)
    }

    /// Returns the lines about the breaker and about failing keys.
    fn troubles(&self, now: Timestamp) -> impl Iterator<Item = String> {
        let Backlog { destination, failing_keys, failing, .. } = &self.backlog;
        let contact = self.guards.as_ref().and_then(DestinationGuards::contact);
        let open = self.suspension().or(contact).map(|why| format!("{destination} {why}"));
        let failing = failing_text(*failing_keys, failing.as_ref(), now);
        let more = self.conflict.clone().into_iter().chain(failing);
        let undefined = (!self.defined).then(|| format!("{destination} {UNDEFINED}"));
        let open = undefined.into_iter().chain(open);
        open.chain(more.map(move |text| format!("{destination}: {text}")))
    }
}

impl HandlerStatus {
    fn limit(&self) -> Option<String> {
        limit(self.guards.as_ref(), self.rate.as_deref(), self.operator_limits.as_ref())
    }
}

/// Returns the rate in force, or the configured one if no running process answers, and the concurrency if an
/// operator has set it.
fn limit(
    guards: Option<&DestinationGuards>,
    configured: Option<&str>,
    operator: Option<&OperatorLimits>,
) -> Option<String> {
    let rate = guards.and_then(|guards| guards.rate.as_deref()).or(configured);
    operator.map_or_else(|| rate.map(str::to_owned), |limits| Some(limits.text(rate)))
}

/// Returns the state of a job and the next step.
fn job_state(status: &Status, job: &BulkJob) -> String {
    let mut of = status.destinations.iter();
    let of = of.find(|destination| destination.backlog.destination == job.destination);
    if let Some(why) = of.and_then(DestinationStatus::suspension) {
        return why;
    }
    let last =
        job.error_message.as_ref().map(|why| format!("; last error: {why}")).unwrap_or_default();
    let state = match (&job.owner, job.phase) {
        (None, _) => "waits for a worker; a running relais continues it within one lease",
        (Some(_), Phase::Closed) => "is in progress at the target, which is polled",
        (Some(_), _) => "is in progress at its worker",
    };
    format!("{state}{last}")
}

/// Breaks a line that is wider than the terminal. Colours take no room, and a broken line keeps none.
fn wrap_line(line: &str, width: usize) -> String {
    let plain = strip_colours(line);
    if plain.chars().count() <= width { line.to_owned() } else { wrap(&plain, width) }
}

fn strip_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(
            part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest),
        );
    }
    plain
}

/// Returns the rows by state. The number of finished rows of a large table is an estimate.
fn counts(counts: &[Count]) -> String {
    const FINISHED: [&str; 3] = ["PROCESSED", "DISPATCHED", "SUCCEEDED"];
    let estimated = is_estimated(counts);
    let part = |Count { name, rows }: &Count| {
        let about = if estimated && FINISHED.contains(&name.as_str()) { "about " } else { "" };
        format!("{about}{rows} {name}")
    };
    counts.iter().map(part).collect::<Vec<_>>().join(", ")
}
