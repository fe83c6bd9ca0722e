//! The tables of `relais status`.

use std::fmt::Write;

use relais_core::{
    bulk::BulkJob,
    query::{Backlog, Overview, WorkerRow},
    time::Timestamp,
};

use super::{DestinationStatus, HandlerStatus, guards};
use crate::{
    commands::rows::plain,
    output::{Output, TableColumn, Tone, age, table},
};

pub(super) fn destinations_table(
    output: &Output,
    all: &[DestinationStatus],
    now: Timestamp,
) -> String {
    const COLUMNS: [TableColumn; 9] = [
        TableColumn::Text("DESTINATION"),
        TableColumn::Number("PENDING"),
        TableColumn::Number("PARKED"),
        TableColumn::Number("FAILING"),
        TableColumn::Number("OLDEST"),
        TableColumn::Text("BREAKER"),
        TableColumn::Text("LIMIT"),
        TableColumn::Text("API CALLS"),
        TableColumn::Text(""),
    ];
    let lines = all.iter().map(|destination| {
        let DestinationStatus { backlog, defined, external, guards, .. } = destination;
        let (breaker, calls) = guards::show(guards.as_ref());
        let note = match (defined, external) {
            // The reason is in a line below, where it has room.
            (false, _) => "waits",
            (true, true) => "external",
            (true, false) => "",
        };
        vec![
            plain(&backlog.destination),
            plain(backlog.pending),
            plain(backlog.parked),
            (backlog.failing_keys.to_string(), failing_tone(backlog)),
            plain(backlog.oldest.map_or_else(|| "-".to_owned(), |at| age(at, now))),
            breaker,
            plain(destination.limit().unwrap_or_else(|| "-".to_owned())),
            plain(calls),
            (note.to_owned(), Tone::Waiting),
        ]
    });
    table(output, &COLUMNS, lines)
}

fn failing_tone(backlog: &Backlog) -> Tone {
    if backlog.failing_keys > 0 { Tone::Bad } else { Tone::Plain }
}

pub(super) fn handlers_table(output: &Output, all: &[HandlerStatus]) -> String {
    const COLUMNS: [TableColumn; 3] =
        [TableColumn::Text("HANDLER"), TableColumn::Text("BREAKER"), TableColumn::Text("LIMIT")];
    let lines = all.iter().map(|handler| {
        let (breaker, _) = guards::show(handler.guards.as_ref());
        let limit = handler.limit().unwrap_or_else(|| "-".to_owned());
        vec![plain(&handler.name), breaker, plain(limit)]
    });
    table(output, &COLUMNS, lines)
}

pub(super) fn jobs_table(output: &Output, jobs: &[BulkJob], now: Timestamp) -> String {
    const COLUMNS: [TableColumn; 6] = [
        TableColumn::Text("BULK JOB"),
        TableColumn::Text("PHASE"),
        TableColumn::Number("ROWS"),
        TableColumn::Number("AGE"),
        TableColumn::Text("REMOTE ID"),
        TableColumn::Text("WORKER"),
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

pub(super) fn workers(output: &Output, overview: &Overview, lost: usize) -> String {
    const COLUMNS: [TableColumn; 3] =
        [TableColumn::Text("SCOPE"), TableColumn::Text("WORKER"), TableColumn::Number("LANES")];
    if overview.workers.is_empty() {
        return "no worker was active in the last hour; `relais run` starts one".to_owned();
    }
    let alive: Vec<&WorkerRow> = overview.workers.iter().filter(|worker| worker.alive).collect();
    let lines = alive
        .iter()
        .map(|worker| vec![plain(&worker.scope), plain(&worker.worker), plain(worker.lanes)]);
    let mut out = match alive.len() {
        0 => "no worker is running; `relais run` starts one".to_owned(),
        _ => table(output, &COLUMNS, lines),
    };
    if lost > 0 {
        let plural = if lost == 1 { "" } else { "s" };
        let lost =
            format!("{lost} worker{plural} lost in the last ten minutes (no clean shutdown)");
        let _ = write!(out, "\n{}", output.paint(&lost, Tone::Waiting));
    }
    out
}
