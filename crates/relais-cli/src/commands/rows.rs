//! `relais inbox …` and `relais outbox …`.
//!
//! - this file: lists, and rows with all fields
//! - `find`: finds a row by its id

mod find;

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use relais::dead_letters::{DecisionAuthor, DecisionOutcome};
use relais_core::{
    dead_letter::{Origin, Resolution},
    id_prefix::{CHARACTERS_MIN, is_too_short},
    inbox::InboxRow,
    inspect::InspectExt,
    outbox::{OutboxRow, OutboxStatus},
    query::{Filter, PAGE_MAX},
    repair::original,
    time::Timestamp,
};
use serde::Serialize;
use serde_json::json;

pub(super) use self::find::{inbox_row, outbox_row};
use super::{
    CommandContext,
    control::unknown_destination,
    dead_letter::{DeadLetterContext, Selection, ask, decide, unchanged_text},
    status::UNDEFINED,
};
use crate::{
    args::{DecisionArgs, InboxCommand, OutboxCommand, PageArgs, RetryRow, RowFilters},
    failure::{CommandError, Done},
    output::{TableColumn, Tone, age, fields, hex, table},
};

pub(crate) async fn inbox(context: &CommandContext, command: InboxCommand) -> Done {
    let (settings, store) = context.store().await?;
    match command {
        InboxCommand::List(list) => {
            let filter = Filter {
                source: list.source,
                ..filter(upper(list.status), None, &list.matching, Some(&list.page))
            };
            let rows = store.list_inbox(filter).await?;
            let last = rows.last().map(|row| row.id);
            if context.output.json {
                return print_page_json(context, &rows, list.page.limit, last);
            }
            let now = store.overview().await?.now;
            let lines = rows.iter().map(|row| inbox_line(row, now));
            let shown = table(&context.output, &INBOX_COLUMNS, lines);
            print_list(context, &shown, rows.len(), list.page.limit, last)
        }
        InboxCommand::Show(wanted) => {
            show_inbox(context, inbox_row(store.as_ref(), &wanted.id).await?)
        }
        InboxCommand::Retry(args) => {
            let row = inbox_row(store.as_ref(), &args.id).await?;
            let status = row.status.as_str();
            let failed = FailedRow { origin: Origin::Inbox, id: row.id, key: row.msg_key, status };
            let at = DeadLetterContext::new(context, &settings, &store);
            retry(&at, failed, &args).await
        }
    }
}

pub(crate) async fn outbox(context: &CommandContext, command: OutboxCommand) -> Done {
    let (settings, store) = context.store().await?;
    match command {
        OutboxCommand::List(list) => {
            let destination = list.destination.clone();
            let filter =
                filter(upper(list.status), list.destination, &list.matching, Some(&list.page));
            let rows = store.list_outbox(filter).await?;
            if rows.is_empty() {
                let named = destination.as_deref();
                let unknown = unknown_destination(&settings, store.as_ref(), named).await?;
                unknown.iter().for_each(|text| eprintln!("{text}"));
            }
            let last = rows.last().map(|row| row.id);
            if context.output.json {
                return print_page_json(context, &rows, list.page.limit, last);
            }
            let now = store.overview().await?.now;
            let lines = rows.iter().map(|row| {
                let waits = !row.status.is_terminal() && !settings.delivers_to(&row.destination);
                outbox_line(row, now, waits.then_some(UNDEFINED))
            });
            let shown = table(&context.output, &OUTBOX_COLUMNS, lines);
            print_list(context, &shown, rows.len(), list.page.limit, last)
        }
        OutboxCommand::Show(wanted) => {
            show(context, &outbox_row(store.as_ref(), &wanted.id).await?)
        }
        OutboxCommand::Retry(args) => {
            let row = outbox_row(store.as_ref(), &args.id).await?;
            if row.status == OutboxStatus::Pending {
                let at = DeadLetterContext::new(context, &settings, &store);
                return send_now(&at, &row, &args.decision).await;
            }
            let status = row.status.as_str();
            let failed = FailedRow { origin: Origin::Outbox, id: row.id, key: row.msg_key, status };
            let at = DeadLetterContext::new(context, &settings, &store);
            retry(&at, failed, &args).await
        }
        OutboxCommand::Fail(args) => {
            let row = outbox_row(store.as_ref(), &args.id).await?;
            let at = DeadLetterContext::new(context, &settings, &store);
            fail(&at, &row, &args.decision).await
        }
    }
}

/// Converts a state to upper case, which the store expects.
fn upper(status: Option<String>) -> Option<String> {
    status.map(|status| status.to_uppercase())
}

/// Builds the store's filter from the arguments.
pub(super) fn filter(
    status: Option<String>,
    destination: Option<String>,
    matching: &RowFilters,
    page: Option<&PageArgs>,
) -> Filter {
    Filter {
        status,
        event_type: matching.event_type.clone(),
        key: matching.key.clone(),
        code: matching.code.clone(),
        destination,
        since_seconds: matching.since.map(seconds),
        before: page.and_then(|page| page.before.clone()),
        limit: page.map_or(PAGE_MAX, |page| page.limit),
        ..Filter::default()
    }
}

/// Converts a duration for the store's filters.
pub(super) fn seconds(since: Duration) -> i64 {
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

const INBOX_COLUMNS: [TableColumn; 8] = [
    TableColumn::Id("ID"),
    TableColumn::Text("STATUS"),
    TableColumn::Text("TYPE"),
    TableColumn::Text("KEY"),
    TableColumn::Text("MESSAGE"),
    TableColumn::Number("ATTEMPTS"),
    TableColumn::Number("AGE"),
    TableColumn::Text("ERROR"),
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

const OUTBOX_COLUMNS: [TableColumn; 8] = [
    TableColumn::Id("ID"),
    TableColumn::Text("STATUS"),
    TableColumn::Text("TYPE"),
    TableColumn::Text("KEY"),
    TableColumn::Text("DESTINATION"),
    TableColumn::Number("ATTEMPTS"),
    TableColumn::Number("AGE"),
    TableColumn::Text("ERROR"),
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

/// Prints the table, and the option for the next page if there may be one.
pub(super) fn print_list(
    context: &CommandContext,
    shown: &str,
    rows: usize,
    limit: usize,
    last: Option<impl ToString>,
) -> Done {
    match last {
        None => context.output.print("none"),
        Some(last) if rows >= limit => {
            context.output.print(&format!("{shown}\n{}", more_results(last.to_string())))
        }
        Some(_) => context.output.print(shown),
    }
}

/// Prints a page as a JSON array. That more rows may match is reported on stderr, so that stdout stays an array.
pub(super) fn print_page_json<T: Serialize>(
    context: &CommandContext,
    rows: &[T],
    limit: usize,
    last: Option<impl ToString>,
) -> Done {
    context.output.print_json(&rows)?;
    if let Some(last) = last.filter(|_| rows.len() >= limit) {
        eprintln!("{}", more_results(last));
    }
    Ok(())
}

fn more_results(last: impl ToString) -> String {
    format!("possibly more results: add --before {}", last.to_string())
}

/// Prints one row with all fields.
fn show(context: &CommandContext, row: &impl Serialize) -> Done {
    if context.output.json {
        return context.output.print_json(row);
    }
    context.output.print(&fields(&context.output, row).map_err(CommandError::failed)?)
}

/// Prints an inbox row; undecodable bytes are shown in hexadecimal instead of Base64.
fn show_inbox(context: &CommandContext, mut row: InboxRow) -> Done {
    let raw = row.raw_payload_base64.as_ref().and_then(|_| original(&row).ok());
    let Some(raw) = raw.filter(|_| !context.output.json) else {
        return show(context, &row);
    };
    row.raw_payload_base64 = Some(format!("{} bytes, at the end", raw.len()));
    show(context, &row)?;
    context.output.print(&format!("raw\n{}", hex(&raw)))
}

pub(super) fn not_found(what: &str, id: &str) -> CommandError {
    let next = match is_too_short(id) {
        true => format!("; pass at least {CHARACTERS_MIN} characters of a longer ID"),
        false => String::new(),
    };
    CommandError::failed(format!("no {what} entry has the ID {id}{next}"))
}

/// A row whose dead letter is retried.
struct FailedRow {
    origin: Origin,
    id: i64,
    key: String,
    status: &'static str,
}

/// Turns a pending row into a dead letter.
async fn fail(at: &DeadLetterContext<'_>, row: &OutboxRow, decision: &DecisionArgs) -> Done {
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
        return Err(CommandError::failed(text));
    }
    if io::stdin().is_terminal() && !decision.yes {
        ask(&format!("Turn outbox row {id} into a dead letter?"))?;
    }
    let by = DecisionAuthor::new(&decision.actor()?, &decision.reason);
    // A worker may have settled the row meanwhile.
    carried_out(at.dead_letters.fail(row, &by).await?, &format!("cannot fail outbox row {id}"))?;
    let letter = at.dead_letters.letter_of(Origin::Outbox, id, &row.msg_key).await?;
    let letter = letter.map(|letter| letter.id);
    if output.json {
        return output.print_json(&json!({ "failed": [id], "dead_letter": letter }));
    }
    let next = letter.map_or_else(String::new, |letter| {
        format!(": dead letter {letter}; `relais dead-letter discard {letter}` discards it")
    });
    output.print(&format!("outbox row {id} is FAILED{next}"))
}

/// Ends the backoff of a pending row.
async fn send_now(at: &DeadLetterContext<'_>, row: &OutboxRow, decision: &DecisionArgs) -> Done {
    let output = &at.context.output;
    let id = row.id;
    if decision.dry_run {
        return match output.json {
            true => output.print_json(&json!({ "dry_run": true, "sent_now": [id] })),
            false => output.print(&format!("dry run: would send outbox row {id} now")),
        };
    }
    let by = DecisionAuthor::new(&decision.actor()?, &decision.reason);
    let answer = at.dead_letters.send_now(row, &by).await?;
    carried_out(answer, &format!("cannot send outbox row {id} now"))?;
    if output.json {
        return output.print_json(&json!({ "sent_now": [id] }));
    }
    output.print(&format!("outbox row {id} is due now; attempts used: {}", row.attempts))
}

/// Returns an error that begins with `cannot` if the decision was not carried out.
fn carried_out(answer: DecisionOutcome, cannot: &str) -> Done {
    let why = match &answer {
        DecisionOutcome::Done => return Ok(()),
        DecisionOutcome::Refused { problem } => problem.message.clone(),
        other => unchanged_text(other),
    };
    Err(CommandError::failed(format!("{cannot}: {why}")))
}

async fn retry(at: &DeadLetterContext<'_>, row: FailedRow, args: &RetryRow) -> Done {
    let letter = at.dead_letters.letter_of(row.origin, row.id, &row.key).await?;
    let Some(letter) = letter else {
        let FailedRow { origin, id, status, .. } = row;
        return Err(CommandError::failed(format!(
            "cannot retry {} row {id}: it is {status} and has no open dead letter; only a failed row can be \
             retried",
            origin.as_str()
        )));
    };
    let selection = Selection::named(vec![letter], Resolution::Retried);
    decide(at, selection, &args.decision).await
}
