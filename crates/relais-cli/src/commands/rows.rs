//! `relais inbox …` and `relais outbox …`.
//!
//! - here: lists and rows in full
//! - `find`: which row an id means

mod find;

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use relais::desk::{Answer, By};
use relais_core::{
    dead_letter::{Origin, Resolution},
    inbox::InboxRow,
    outbox::{OutboxRow, OutboxStatus},
    query::{Filter, PAGE_MAX},
    repair::original,
    time::Timestamp,
};
use serde_json::json;

pub(super) use self::find::{inbox_row, outbox_row};
use super::{
    Context,
    dead_letter::{At, Selection, ask, decide, said},
};
use crate::{
    args::{Decision, InboxCommand, Matching, OutboxCommand, Page, RetryRow},
    failure::{Done, Failure},
    output::{Column, Tone, age, fields, hex, table},
    wire,
};

pub(crate) async fn inbox(context: &Context, command: InboxCommand) -> Done {
    let (settings, store) = context.store().await?;
    match command {
        InboxCommand::List(list) => {
            let filter = Filter {
                source: list.source,
                ..filter(upper(list.status), None, &list.matching, Some(&list.page))
            };
            let rows = store.list_inbox(filter).await?;
            if context.output.json {
                return context.output.print_json(&rows);
            }
            let now = store.overview().await?.now;
            let lines = rows.iter().map(|row| inbox_line(row, now));
            let shown = table(&context.output, &INBOX_COLUMNS, lines);
            print_list(context, &shown, rows.len(), list.page.limit, rows.last().map(|r| r.id))
        }
        InboxCommand::Show(wanted) => {
            show_inbox(context, inbox_row(store.as_ref(), &wanted.id).await?)
        }
        InboxCommand::Retry(args) => {
            let row = inbox_row(store.as_ref(), &args.id).await?;
            let status = row.status.as_str();
            let wanted = Wanted { origin: Origin::Inbox, id: row.id, key: row.msg_key, status };
            let desk = wire::desk(&settings, store.clone());
            retry(&At { context, store: store.as_ref(), desk }, wanted, &args).await
        }
    }
}

pub(crate) async fn outbox(context: &Context, command: OutboxCommand) -> Done {
    let (settings, store) = context.store().await?;
    match command {
        OutboxCommand::List(list) => {
            let filter =
                filter(upper(list.status), list.destination, &list.matching, Some(&list.page));
            let rows = store.list_outbox(filter).await?;
            if context.output.json {
                return context.output.print_json(&rows);
            }
            let now = store.overview().await?.now;
            let lines = rows.iter().map(|row| {
                let waits = !row.status.is_terminal() && !settings.defines(&row.destination);
                outbox_line(row, now, waits.then_some("waits: no [[destination]] names it"))
            });
            let shown = table(&context.output, &OUTBOX_COLUMNS, lines);
            print_list(context, &shown, rows.len(), list.page.limit, rows.last().map(|r| r.id))
        }
        OutboxCommand::Show(wanted) => {
            show(context, &outbox_row(store.as_ref(), &wanted.id).await?)
        }
        OutboxCommand::Retry(args) => {
            let row = outbox_row(store.as_ref(), &args.id).await?;
            let status = row.status.as_str();
            let wanted = Wanted { origin: Origin::Outbox, id: row.id, key: row.msg_key, status };
            let desk = wire::desk(&settings, store.clone());
            retry(&At { context, store: store.as_ref(), desk }, wanted, &args).await
        }
        OutboxCommand::Fail(args) => {
            let row = outbox_row(store.as_ref(), &args.id).await?;
            let desk = wire::desk(&settings, store.clone());
            fail(&At { context, store: store.as_ref(), desk }, &row, &args.decision).await
        }
    }
}

/// States are written in capitals; people need not.
fn upper(status: Option<String>) -> Option<String> {
    status.map(|status| status.to_uppercase())
}

/// The store's filter from what the command line says.
pub(super) fn filter(
    status: Option<String>,
    destination: Option<String>,
    matching: &Matching,
    page: Option<&Page>,
) -> Filter {
    Filter {
        status,
        event_type: matching.event_type.clone(),
        key: matching.key.clone(),
        destination,
        since_seconds: matching.since.map(seconds),
        before: page.and_then(|page| page.before.clone()),
        limit: page.map_or(PAGE_MAX, |page| page.limit),
        ..Filter::default()
    }
}

/// A duration as the store's filters take it.
pub(super) fn seconds(since: Duration) -> i64 {
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

const INBOX_COLUMNS: [Column; 8] = [
    Column::Id("ID"),
    Column::Text("STATUS"),
    Column::Text("TYPE"),
    Column::Text("KEY"),
    Column::Text("MESSAGE"),
    Column::Number("ATTEMPTS"),
    Column::Number("AGE"),
    Column::Text("PROBLEM"),
];

fn inbox_line(row: &InboxRow, now: Timestamp) -> Vec<(String, Tone)> {
    let status = row.status.as_str();
    vec![
        plain(row.id),
        (status.to_owned(), Tone::of_status(status)),
        plain(row.event_type.as_deref().unwrap_or("-")),
        plain(&row.msg_key),
        plain(&row.message_id),
        plain(row.attempts),
        plain(age(row.received_at, now)),
        plain(problem(row.error_code.as_deref(), row.error_message.as_deref())),
    ]
}

const OUTBOX_COLUMNS: [Column; 8] = [
    Column::Id("ID"),
    Column::Text("STATUS"),
    Column::Text("TYPE"),
    Column::Text("KEY"),
    Column::Text("DESTINATION"),
    Column::Number("ATTEMPTS"),
    Column::Number("AGE"),
    Column::Text("PROBLEM"),
];

fn outbox_line(row: &OutboxRow, now: Timestamp, note: Option<&str>) -> Vec<(String, Tone)> {
    let status = row.status.as_str();
    let problem = problem(row.error_code.as_deref(), row.error_message.as_deref());
    vec![
        plain(row.id),
        (status.to_owned(), Tone::of_status(status)),
        plain(&row.event_type),
        plain(&row.msg_key),
        plain(&row.destination),
        plain(row.attempts),
        plain(age(row.created_at, now)),
        note.map_or_else(|| plain(problem), |note| (note.to_owned(), Tone::Waiting)),
    ]
}

pub(super) fn plain(text: impl ToString) -> (String, Tone) {
    (text.to_string(), Tone::Plain)
}

pub(super) fn problem(code: Option<&str>, message: Option<&str>) -> String {
    match (code, message) {
        (None, None) => String::new(),
        (Some(code), None) => code.to_owned(),
        (None, Some(message)) => message.to_owned(),
        (Some(code), Some(message)) => format!("{code}: {message}"),
    }
}

/// The table, and how to get the next page if there may be one.
pub(super) fn print_list(
    context: &Context,
    shown: &str,
    rows: usize,
    limit: usize,
    last: Option<impl ToString>,
) -> Done {
    match last {
        None => context.output.print("none"),
        Some(last) if rows >= limit => context.output.print(&format!(
            "{shown}\nperhaps more: --before {} shows the next page",
            last.to_string()
        )),
        Some(_) => context.output.print(shown),
    }
}

/// One row in full.
fn show(context: &Context, row: &impl serde::Serialize) -> Done {
    if context.output.json {
        return context.output.print_json(row);
    }
    context.output.print(&fields(&context.output, row).map_err(Failure::failed)?)
}

/// For people, bytes that could not be decoded show as such, not as Base64.
fn show_inbox(context: &Context, mut row: InboxRow) -> Done {
    let raw = row.raw_payload_base64.as_ref().and_then(|_| original(&row).ok());
    let Some(raw) = raw.filter(|_| !context.output.json) else {
        return show(context, &row);
    };
    row.raw_payload_base64 = Some(format!("{} bytes, at the end", raw.len()));
    show(context, &row)?;
    context.output.print(&format!("raw\n{}", hex(&raw)))
}

pub(super) fn not_found(what: &str, id: &str) -> Failure {
    Failure::failed(format!("no {what} entry has the id {id}"))
}

/// A row whose dead letter is looked for.
struct Wanted {
    origin: Origin,
    id: i64,
    key: String,
    status: &'static str,
}

/// Makes a dead letter of a pending row.
async fn fail(at: &At<'_>, row: &OutboxRow, decision: &Decision) -> Done {
    let output = &at.context.output;
    let id = row.id;
    decision.needs_reason("fail a row, whose error it becomes,")?;
    if decision.dry_run {
        let pending = row.status == OutboxStatus::Pending;
        let failed: Vec<i64> = pending.then_some(id).into_iter().collect();
        return match output.json {
            true => output.print_json(&json!({ "dry_run": true, "failed": failed })),
            false => output.print(&format!("dry run: would fail {} rows", failed.len())),
        };
    }
    if row.status != OutboxStatus::Pending {
        let status = row.status.as_str();
        let text =
            format!("cannot fail outbox row {id}: it is {status}; only a pending row can be");
        return Err(Failure::failed(text));
    }
    if io::stdin().is_terminal() && !decision.yes {
        ask(&format!("make a dead letter of outbox row {id}?"))?;
    }
    let by = By::new(&decision.actor()?, &decision.reason);
    let answer = at.desk.fail(row, &by).await?;
    if answer != Answer::Done {
        // A worker was faster.
        let why = match &answer {
            Answer::Refused { problem } => problem.message.clone(),
            other => said(other),
        };
        let text = format!("cannot fail outbox row {id}: {why}");
        return Err(Failure::failed(text));
    }
    let letter = at.desk.letter_of(Origin::Outbox, id, &row.msg_key).await?;
    let letter = letter.map(|letter| letter.id);
    if output.json {
        return output.print_json(&json!({ "failed": [id], "dead_letter": letter }));
    }
    let next = letter.map_or_else(String::new, |letter| {
        format!(": dead letter {letter}; `relais dead-letter discard {letter}` closes it")
    });
    output.print(&format!("outbox row {id} is FAILED{next}"))
}

async fn retry(at: &At<'_>, wanted: Wanted, args: &RetryRow) -> Done {
    let letter = at.desk.letter_of(wanted.origin, wanted.id, &wanted.key).await?;
    let Some(letter) = letter else {
        let Wanted { origin, id, status, .. } = wanted;
        return Err(Failure::failed(format!(
            "{} row {id} is {status} and has no open dead letter; only a failed row can be retried",
            origin.as_str()
        )));
    };
    let selection = Selection::named(vec![letter], Resolution::Retried);
    decide(at, selection, &args.decision).await
}
