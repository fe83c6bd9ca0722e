//! One process: what it is now, and what happened to it.

use relais_core::{
    process::{LogEntry, Process, ProcessEvent},
    query::PAGE_MAX,
};
use serde::Serialize;

use super::{super::Context, find};
use crate::{
    args::{ProcessId, ProcessLog},
    commands::rows::{plain, print_list},
    failure::{Done, Failure},
    output::{Column, Lines, Tone, escape, fields, table},
};

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    process: &'a Process,
    /// Oldest first; at most a page of the newest.
    log: &'a [LogEntry],
}

pub(super) async fn show(context: &Context, args: ProcessId) -> Done {
    let (_, store) = context.store().await?;
    let process = find(store.as_ref(), &args.id).await?;
    let mut log = store.process_log(process.process_id, None, PAGE_MAX).await?;
    log.reverse();
    if context.output.json {
        return context.output.print_json(&Shown { process: &process, log: &log });
    }
    context.output.print(&head(context, &process)?)?;
    if log.first().is_some_and(|entry| entry.seq > 1) {
        let id = process.process_id;
        context.output.print(&format!(
            "\nthe last {PAGE_MAX} of {} entries; `relais process log {id} --before {}` has more",
            process.version, log[0].seq
        ))?;
    }
    context.output.print(&format!("\n{}", log_table(context, &log)))
}

pub(super) async fn log(context: &Context, args: ProcessLog) -> Done {
    let (_, store) = context.store().await?;
    let process = find(store.as_ref(), &args.process.id).await?;
    let entries = store.process_log(process.process_id, args.before, args.limit).await?;
    if context.output.json {
        return context.output.print_json(&entries);
    }
    let last = entries.last().map(|entry| entry.seq);
    print_list(context, &log_table(context, &entries), entries.len(), args.limit, last)
}

/// The row without what only relais reads; the data last, as it is.
fn head(context: &Context, process: &Process) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Head<'a> {
        process_id: String,
        process_type: &'a str,
        definition: i32,
        business_key: Option<&'a str>,
        status: &'a str,
        current_step: Option<&'a str>,
        step_failures: u32,
        version: i64,
        created_at: String,
        updated_at: String,
    }
    let shown = Head {
        process_id: process.process_id.to_string(),
        process_type: &process.process_type,
        definition: process.definition,
        business_key: process.business_key.as_deref(),
        status: process.status.as_str(),
        current_step: process.current_step.as_deref(),
        step_failures: process.retries,
        version: process.version,
        created_at: process.created_at.to_string(),
        updated_at: process.updated_at.to_string(),
    };
    let fields = fields(&context.output, &shown).map_err(Failure::failed)?;
    let data = if context.output.terminal {
        escape(&process.data, Lines::Keep)
    } else {
        process.data.clone()
    };
    Ok(format!("{fields}data\n{data}"))
}

fn log_table(context: &Context, entries: &[LogEntry]) -> String {
    const COLUMNS: [Column; 6] = [
        Column::Number("SEQ"),
        Column::Text("AT"),
        Column::Text("EVENT"),
        Column::Text("STEP"),
        Column::Id("WHAT"),
        Column::Text("BY"),
    ];
    let lines = entries.iter().map(|entry| {
        let told = tell(&entry.entry.event);
        let by = told.by.or(entry.entry.actor.as_deref()).unwrap_or_default();
        vec![
            plain(entry.seq),
            plain(entry.at),
            (entry.entry.event.name().to_owned(), told.tone),
            plain(told.step.unwrap_or("-")),
            plain(what(entry, told.what)),
            plain(by),
        ]
    });
    table(&context.output, &COLUMNS, lines)
}

/// The parts of an event that people look at.
struct Told<'a> {
    step: Option<&'a str>,
    what: &'a str,
    by: Option<&'a str>,
    tone: Tone,
}

fn tell(event: &ProcessEvent) -> Told<'_> {
    use ProcessEvent as E;
    let told = |step, what, tone| Told { step, what, by: None, tone };
    match event {
        E::ProcessStarted { business_key, .. } => {
            told(None, business_key.as_deref().unwrap_or_default(), Tone::Plain)
        }
        E::StepStarted { step, .. } | E::CompensationStarted { step, .. } => {
            told(Some(step), "", Tone::Plain)
        }
        E::StepCompleted { step, .. } | E::CompensationCompleted { step, .. } => {
            told(Some(step), "", Tone::Good)
        }
        E::StepFailed { step, error, retryable: true, .. }
        | E::StepTimedOut { step, error, .. } => told(Some(step), error, Tone::Waiting),
        E::StepFailed { step, error, .. } | E::CompensationFailed { step, error, .. } => {
            told(Some(step), error, Tone::Bad)
        }
        E::ProcessCompleted { reason } => told(None, reason, Tone::Good),
        E::ProcessFailed { reason } => told(None, reason, Tone::Bad),
        E::ProcessPaused { reason, paused_by: by }
        | E::ProcessResumed { reason, resumed_by: by } => {
            Told { by: Some(by), ..told(None, reason, Tone::Waiting) }
        }
    }
}

/// What the event says, why it changed nothing, and why a person wanted it.
fn what(entry: &LogEntry, said: &str) -> String {
    let parts = [Some(said), entry.entry.note.as_deref(), entry.entry.reason.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}
