//! One process: its current state and its log.

use relais_core::{
    inspect::InspectExt,
    process::{LogEntry, Process, ProcessEvent},
    query::PAGE_MAX,
};
use serde::Serialize;

use super::{super::CommandContext, find};
use crate::{
    args::{ProcessId, ProcessLog},
    commands::rows::{plain, print_list, print_page_json},
    failure::{CommandError, Done},
    output::{LineBreaks, TableColumn, Tone, escape, fields, table},
};

/// The output of `--json`.
#[derive(Serialize)]
struct ProcessWithLog<'a> {
    #[serde(flatten)]
    process: &'a Process,
    /// Oldest first; at most a page of the newest.
    log: &'a [LogEntry],
}

pub(super) async fn show(context: &CommandContext, args: ProcessId) -> Done {
    let (_, store) = context.store().await?;
    let process = find(store.as_ref(), &args.id).await?;
    let mut log = store.process_log(process.process_id, None, PAGE_MAX).await?;
    log.reverse();
    if context.output.json {
        return context.output.print_json(&ProcessWithLog { process: &process, log: &log });
    }
    context.output.print(&head(context, &process)?)?;
    if log.first().is_some_and(|entry| entry.seq > 1) {
        let id = process.process_id;
        context.output.print(&format!(
            "\nlast {PAGE_MAX} of {} entries; more: `relais process log {id} --before {}`",
            process.version, log[0].seq
        ))?;
    }
    context.output.print(&format!("\n{}", log_table(context, &log)))
}

pub(super) async fn log(context: &CommandContext, args: ProcessLog) -> Done {
    let (_, store) = context.store().await?;
    let process = find(store.as_ref(), &args.process.id).await?;
    let entries = store.process_log(process.process_id, args.before, args.limit).await?;
    let last = entries.last().map(|entry| entry.seq);
    if context.output.json {
        return print_page_json(context, &entries, args.limit, last);
    }
    print_list(context, &log_table(context, &entries), entries.len(), args.limit, last)
}

/// Returns the fields of the row, with the unchanged data last.
fn head(context: &CommandContext, process: &Process) -> Result<String, CommandError> {
    #[derive(Serialize)]
    struct ProcessFields<'a> {
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
    let shown = ProcessFields {
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
    let fields = fields(&context.output, &shown).map_err(CommandError::failed)?;
    let data = if context.output.terminal {
        escape(&process.data, LineBreaks::Keep)
    } else {
        process.data.clone()
    };
    Ok(format!("{fields}data\n{data}"))
}

fn log_table(context: &CommandContext, entries: &[LogEntry]) -> String {
    const COLUMNS: [TableColumn; 6] = [
        TableColumn::Number("SEQ"),
        TableColumn::Text("AT"),
        TableColumn::Text("EVENT"),
        TableColumn::Text("STEP"),
        TableColumn::Prose("DETAIL"),
        TableColumn::Text("ACTOR"),
    ];
    let lines = entries.iter().map(|entry| {
        let line = event_line(&entry.entry.event);
        let by = line.by.or(entry.entry.actor.as_deref()).unwrap_or_default();
        vec![
            plain(entry.seq),
            plain(entry.at),
            (entry.entry.event.name().to_owned(), line.tone),
            plain(line.step.unwrap_or("-")),
            plain(detail(entry, line.what)),
            plain(by),
        ]
    });
    table(&context.output, &COLUMNS, lines)
}

/// The shown parts of an event.
struct EventLine<'a> {
    step: Option<&'a str>,
    what: &'a str,
    by: Option<&'a str>,
    tone: Tone,
}

fn event_line(event: &ProcessEvent) -> EventLine<'_> {
    use ProcessEvent as E;
    let line = |step, what, tone| EventLine { step, what, by: None, tone };
    match event {
        E::ProcessStarted { business_key, .. } => {
            line(None, business_key.as_deref().unwrap_or_default(), Tone::Plain)
        }
        E::StepStarted { step, .. } | E::CompensationStarted { step, .. } => {
            line(Some(step), "", Tone::Plain)
        }
        E::StepCompleted { step, .. } | E::CompensationCompleted { step, .. } => {
            line(Some(step), "", Tone::Good)
        }
        E::StepFailed { step, error, retryable: true, .. }
        | E::StepTimedOut { step, error, .. } => line(Some(step), error, Tone::Waiting),
        E::StepFailed { step, error, .. } | E::CompensationFailed { step, error, .. } => {
            line(Some(step), error, Tone::Bad)
        }
        E::ProcessCompleted { reason } => line(None, reason, Tone::Good),
        E::ProcessFailed { reason } => line(None, reason, Tone::Bad),
        E::ProcessPaused { reason, paused_by: by }
        | E::ProcessResumed { reason, resumed_by: by } => {
            EventLine { by: Some(by), ..line(None, reason, Tone::Waiting) }
        }
    }
}

/// Returns the text of the event, its note and the operator's reason.
fn detail(entry: &LogEntry, what: &str) -> String {
    let parts = [Some(what), entry.entry.note.as_deref(), entry.entry.reason.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}
