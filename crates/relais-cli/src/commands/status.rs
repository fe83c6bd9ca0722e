//! `relais status`: the store at a glance, and the guards of the process that runs here.

pub(super) mod guards;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use relais_core::{
    bulk::{BulkJob, Phase},
    control::{Control, Pause},
    query::{Backlog, Count, Overview, ParkedKey, WorkerRow},
    time::Timestamp,
};
use serde::Serialize;

use self::guards::Guards;
use super::{Context, control, rows::plain};
use crate::{
    args::StatusArgs,
    failure::Done,
    output::{Column, Lines, Output, Tone, age, escape, table},
    settings::{Settings, quantity::show_rate},
};

/// Parked keys shown by name.
const PARKED_SHOWN: usize = 10;
/// Bulk jobs looked at; those that are open come first.
const JOBS_MAX: usize = 50;

/// What a program reads: the overview and what the settings say about it.
#[derive(Debug, Serialize)]
struct Status {
    store: String,
    database: String,
    #[serde(flatten)]
    overview: Overview,
    destinations: Vec<DestinationStatus>,
    /// Why breakers and API calls are not known.
    guards_unknown: Option<String>,
    bulk_jobs: Vec<BulkJob>,
    paused: Vec<Paused>,
}

#[derive(Debug, Serialize)]
struct Paused {
    kind: &'static str,
    name: String,
    #[serde(flatten)]
    pause: Pause,
}

#[derive(Debug, Serialize)]
struct DestinationStatus {
    #[serde(flatten)]
    backlog: Backlog,
    /// Whether a `[[destination]]` names it; if not, its rows wait.
    defined: bool,
    /// Whether another program serves it.
    external: bool,
    /// As the settings allow it.
    rate: Option<String>,
    /// As the running process sees it; absent if none answers.
    guards: Option<Guards>,
}

/// Counts, backlogs, dead letters, parked keys and workers.
pub(crate) async fn status(context: &Context, args: &StatusArgs) -> Done {
    let (settings, store) = context.store().await?;
    let database = store.describe().await?;
    let overview = store.overview().await?;
    let parked = store.parked_keys(PARKED_SHOWN).await?;
    let mut bulk_jobs = store.list_bulk(None, JOBS_MAX).await?;
    bulk_jobs.retain(|job| !job.phase.is_terminal());
    let controls = store.controls().await?;
    let guards = guards::ask(settings.admin.as_ref(), &args.access, &overview.workers).await;
    let guards_unknown = guards.as_ref().err().cloned();
    let guards = guards.unwrap_or_default();
    let destinations = destinations(&settings, &overview.backlogs, &guards);
    let store = settings.store.url.to_string();
    let paused = controls.iter().filter_map(|control| {
        let (kind, name) = (control.kind.as_str(), control.name.clone());
        Some(Paused { kind, name, pause: control.pause.clone()? })
    });
    let paused = paused.collect();
    let status =
        Status { store, database, overview, destinations, guards_unknown, bulk_jobs, paused };
    if context.output.json {
        return context.output.print_json(&status);
    }
    context.output.print(&show(&context.output, &status, &parked, &controls))
}

/// Every destination that is defined or has rows waiting.
fn destinations(
    settings: &Settings,
    backlogs: &[Backlog],
    guards: &BTreeMap<String, Guards>,
) -> Vec<DestinationStatus> {
    let nothing =
        |name: &String| Backlog { destination: name.clone(), pending: 0, oldest: None, parked: 0 };
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
                defined: settings.defines(&backlog.destination),
                external: settings.external.contains(&backlog.destination),
                rate: defined.and_then(|d| d.limits.rate).map(show_rate),
                guards: guards.get(&backlog.destination).cloned(),
                backlog,
            }
        })
        .collect()
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
    for Count { name, rows } in &status.overview.unknown_types {
        let line = format!("{rows} wait for a worker that knows {name}");
        let _ = writeln!(out, "              {}", escape(&line, Lines::Escape));
    }
    for Count { name, rows } in &status.overview.unserved_inboxes {
        let line = format!("{rows} wait in inbox {name}, which no worker serves");
        let _ = writeln!(out, "              {}", escape(&line, Lines::Escape));
    }
    let _ = writeln!(out, "outbox        {}", counts(outbox));
    let processes: Vec<Count> =
        status.overview.processes.iter().filter(|count| count.rows > 0).cloned().collect();
    if !processes.is_empty() {
        let due = match status.overview.timers_due {
            0 => String::new(),
            due => format!(", {due} timers due"),
        };
        let _ = writeln!(out, "processes     {}{due}", counts(&processes));
    }
    let waiting = status.overview.processes_need_operator;
    if waiting > 0 {
        let text = format!("{waiting} need an operator (relais dead-letter list)");
        let _ = writeln!(out, "              {}", output.paint(&text, Tone::Bad));
    }
    for line in control::paused(controls, *now) {
        let _ = writeln!(out, "paused        {}", output.paint(&line, Tone::Waiting));
    }
    let open = status.overview.dead_letters_open;
    let hint = if open > 0 { " (relais dead-letter list)" } else { "" };
    let _ = writeln!(out, "dead letters  {open} open{hint}");
    let _ = writeln!(out, "parked keys   {}", status.overview.parked_keys);
    for key in parked {
        let ParkedKey { origin, destination, msg_key, parked_at, backlog, .. } = key;
        let place = destination.as_deref().unwrap_or(origin.as_str());
        let line = format!("{place}: {msg_key}, for {}, {backlog} wait", age(*parked_at, *now));
        let _ = writeln!(out, "              {}", escape(&line, Lines::Escape));
    }
    if !status.destinations.is_empty() {
        let _ = write!(out, "\n{}\n", destinations_table(output, &status.destinations, *now));
    }
    for destination in &status.destinations {
        if let Some(rest) = destination.rest() {
            let line = format!("{} {rest}", destination.backlog.destination);
            let _ = writeln!(out, "{}", escape(&line, Lines::Escape));
        }
    }
    if let Some(why) = &status.guards_unknown {
        let _ = writeln!(out, "breakers and API calls are not known: {why}");
    }
    if !status.bulk_jobs.is_empty() {
        let _ = write!(out, "\n{}\n", jobs_table(output, &status.bulk_jobs, *now));
        for job in &status.bulk_jobs {
            let line = format!("bulk job of {} {}", job.destination, job_state(status, job));
            let _ = writeln!(out, "{}", escape(&line, Lines::Escape));
        }
    }
    let _ = write!(out, "\n{}", workers(output, &status.overview));
    out
}

impl DestinationStatus {
    /// Why it rests and until when.
    fn rest(&self) -> Option<String> {
        self.guards.as_ref().and_then(Guards::rest)
    }
}

/// Why a job is where it is, and what happens next.
fn job_state(status: &Status, job: &BulkJob) -> String {
    let mut of = status.destinations.iter();
    let of = of.find(|destination| destination.backlog.destination == job.destination);
    if let Some(rest) = of.and_then(DestinationStatus::rest) {
        return rest;
    }
    let last = job.error_message.as_ref().map(|why| format!("; last: {why}")).unwrap_or_default();
    let state = match (&job.owner, job.phase) {
        (None, _) => "waits for a worker; a running relais takes it within one lease",
        (Some(_), Phase::Closed) => "is being worked on by the target, which is polled",
        (Some(_), _) => "is driven by its worker",
    };
    format!("{state}{last}")
}

fn counts(counts: &[Count]) -> String {
    let parts: Vec<String> = counts.iter().map(|c| format!("{} {}", c.rows, c.name)).collect();
    parts.join(", ")
}

fn destinations_table(output: &Output, all: &[DestinationStatus], now: Timestamp) -> String {
    const COLUMNS: [Column; 8] = [
        Column::Text("DESTINATION"),
        Column::Number("PENDING"),
        Column::Number("PARKED"),
        Column::Number("OLDEST"),
        Column::Text("BREAKER"),
        Column::Text("RATE"),
        Column::Text("API CALLS"),
        Column::Text(""),
    ];
    let lines = all.iter().map(|DestinationStatus { backlog, defined, external, rate, guards }| {
        let (breaker, calls) = guards::show(guards.as_ref());
        let note = match (defined, external) {
            (false, _) => "waits: no [[destination]] names it",
            (true, true) => "external",
            (true, false) => "",
        };
        vec![
            plain(&backlog.destination),
            plain(backlog.pending),
            plain(backlog.parked),
            plain(backlog.oldest.map_or_else(|| "-".to_owned(), |at| age(at, now))),
            breaker,
            plain(rate.as_deref().unwrap_or("-")),
            plain(calls),
            (note.to_owned(), Tone::Waiting),
        ]
    });
    table(output, &COLUMNS, lines)
}

fn jobs_table(output: &Output, jobs: &[BulkJob], now: Timestamp) -> String {
    const COLUMNS: [Column; 6] = [
        Column::Text("BULK JOB"),
        Column::Text("PHASE"),
        Column::Number("ROWS"),
        Column::Number("AGE"),
        Column::Text("ID THERE"),
        Column::Text("WORKER"),
    ];
    let lines = jobs.iter().map(|job| {
        vec![
            plain(&job.destination),
            plain(job.phase.as_str()),
            plain(job.row_count),
            plain(age(job.created_at, now)),
            plain(job.remote_id.as_deref().unwrap_or("-")),
            plain(job.owner.as_deref().unwrap_or("-")),
        ]
    });
    table(output, &COLUMNS, lines)
}

fn workers(output: &Output, overview: &Overview) -> String {
    const COLUMNS: [Column; 3] =
        [Column::Text("SCOPE"), Column::Text("WORKER"), Column::Number("LANES")];
    if overview.workers.is_empty() {
        return "no worker has been seen lately; `relais run` starts one".to_owned();
    }
    let (alive, gone): (Vec<&WorkerRow>, Vec<_>) = overview.workers.iter().partition(|w| w.alive);
    let lines = alive
        .iter()
        .map(|worker| vec![plain(&worker.scope), plain(&worker.worker), plain(worker.lanes)]);
    let mut out = match alive.len() {
        0 => "no worker is at work; `relais run` starts one".to_owned(),
        _ => table(output, &COLUMNS, lines),
    };
    let names: BTreeSet<&str> = gone.iter().map(|worker| worker.worker.as_str()).collect();
    if !names.is_empty() {
        let _ = write!(out, "\n{} gone lately without saying so", names.len());
    }
    out
}
