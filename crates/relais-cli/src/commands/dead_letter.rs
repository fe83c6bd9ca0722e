//! `relais dead-letter …`: list, show, edit, retry and discard.
//!
//! - this file: list, show and parked keys
//! - `decide`: retry and discard, by id, filter and key
//! - `edit`: changes a payload; `editor`: opens the operator's editor

mod decide;
mod edit;
mod editor;

use std::sync::Arc;

use relais::dead_letters::{DeadLetterDetail, DeadLetters};
use relais_core::{
    dead_letter::{DeadLetter, Origin, Resolution},
    id_prefix::IdKind,
    inspect::Attempt,
    query::ParkedKey,
    store::StoreDriver,
    time::Timestamp,
};

pub(super) use self::decide::{Selection, ask, decide, unchanged_text};
use super::{
    CommandContext,
    control::unknown_destination,
    ids,
    rows::{filter, not_found, plain, print_list, print_page_json, problem},
};
use crate::{
    args::{DeadLetterCommand, DeadLetterList},
    failure::{CommandError, Done},
    output::{LineBreaks, TableColumn, Tone, age, escape, fields, table},
    settings::Settings,
    wire,
};

/// The context of a command about dead letters.
pub(super) struct DeadLetterContext<'a> {
    pub(super) context: &'a CommandContext,
    pub(super) settings: &'a Settings,
    pub(super) store: &'a dyn StoreDriver,
    pub(super) dead_letters: DeadLetters,
}

impl<'a> DeadLetterContext<'a> {
    pub(super) fn new(
        context: &'a CommandContext,
        settings: &'a Settings,
        store: &'a Arc<dyn StoreDriver>,
    ) -> Self {
        let dead_letters = wire::dead_letters(settings, Arc::clone(store));
        Self { context, settings, store: store.as_ref(), dead_letters }
    }
}

pub(crate) async fn dead_letter(context: &CommandContext, command: DeadLetterCommand) -> Done {
    let (settings, store) = context.store().await?;
    let at = DeadLetterContext::new(context, &settings, &store);
    match command {
        DeadLetterCommand::List(list) => list_dead_letters(&at, list).await,
        DeadLetterCommand::Show { id } => {
            let id = ids::only(at.store, &id).await?;
            let shown = at.dead_letters.show(id).await?;
            show(&at, shown.ok_or_else(|| not_found("dead letter", &id.to_string()))?).await
        }
        DeadLetterCommand::Edit(args) => edit::edit(&at, args).await,
        DeadLetterCommand::Retry(args) => {
            decide::selected(&at, Resolution::Retried, &args.resolve, args.rate).await
        }
        DeadLetterCommand::Discard(args) => {
            decide::selected(&at, Resolution::Discarded, &args, None).await
        }
        DeadLetterCommand::Keys(args) => keys(&at, args.limit).await,
        DeadLetterCommand::Release(args) => decide::key(&at, Resolution::Retried, &args).await,
        DeadLetterCommand::SkipKey(args) => decide::key(&at, Resolution::Discarded, &args).await,
    }
}

async fn list_dead_letters(at: &DeadLetterContext<'_>, mut list: DeadLetterList) -> Done {
    if let Some(before) = list.page.before.take() {
        list.page.before = Some(ids::or_given(at.store, IdKind::DeadLetter, before).await?);
    }
    let status = Some(list.status.to_lowercase()).filter(|status| status != "all");
    let destination = list.destination.clone();
    let filter = filter(status, list.destination, &list.matching, Some(&list.page));
    let letters = at.dead_letters.list(filter).await?;
    if letters.is_empty() {
        let unknown = unknown_destination(at.settings, at.store, destination.as_deref()).await?;
        unknown.iter().for_each(|text| eprintln!("{text}"));
    }
    let last = letters.last().map(|letter| letter.id);
    if at.context.output.json {
        return print_page_json(at.context, &letters, list.page.limit, last);
    }
    let now = at.store.overview().await?.now;
    let shown = letters_table(at.context, &letters, now);
    print_list(at.context, &shown, letters.len(), list.page.limit, last)
}

pub(super) fn letters_table(
    context: &CommandContext,
    letters: &[DeadLetter],
    now: Timestamp,
) -> String {
    const COLUMNS: [TableColumn; 8] = [
        TableColumn::Id("ID"),
        TableColumn::Text("ORIGIN"),
        TableColumn::Text("STATUS"),
        TableColumn::Text("TYPE"),
        TableColumn::Text("KEY"),
        TableColumn::Text("WHERE"),
        TableColumn::Number("AGE"),
        TableColumn::Text("ERROR"),
    ];
    let lines = letters.iter().map(|letter| {
        let status = letter.resolution.as_deref().unwrap_or(&letter.failed_status);
        let place = match (&letter.destination, &letter.source_system) {
            (Some(destination), _) => format!("to {destination}"),
            (None, Some(source)) => format!("from {source}"),
            (None, None) => "-".to_owned(),
        };
        vec![
            plain(letter.id),
            plain(match letter.origin_id {
                Some(id) => format!("{}:{id}", letter.origin.as_str()),
                None => letter.origin.as_str().to_owned(),
            }),
            (status.to_owned(), Tone::of_status(status)),
            plain(letter.event_type.as_deref().unwrap_or("-")),
            plain(&letter.msg_key),
            plain(place),
            plain(age(letter.parked_at, now)),
            plain(problem(letter.error_class.as_deref(), letter.error_message.as_deref())),
        ]
    });
    table(&context.output, &COLUMNS, lines)
}

/// Prints the fields, the attempts and the parked key.
async fn show(at: &DeadLetterContext<'_>, shown: DeadLetterDetail) -> Done {
    let output = &at.context.output;
    if output.json {
        return output.print_json(&shown);
    }
    let DeadLetterDetail { letter, history, parked_key } = &shown;
    output.print(&fields(output, letter).map_err(CommandError::failed)?)?;
    if !history.is_empty() {
        output.print(&format!("\n{}", attempts_table(at.context, history)))?;
    }
    if let Some(parked) = parked_key {
        let age = age(parked.parked_at, at.store.overview().await?.now);
        let ParkedKey { msg_key, backlog, .. } = parked;
        let line =
            format!("key {msg_key} is parked since {age}; {backlog} messages wait behind it");
        output.print(&format!("\n{}", escape(&line, LineBreaks::Escape)))?;
    }
    if letter.resolution.is_none() {
        output.print(&format!("\nnext: {}", next(letter)))?;
    }
    Ok(())
}

fn next(letter: &DeadLetter) -> String {
    let other = match letter.origin {
        Origin::Inbox | Origin::Outbox => "edit, discard",
        Origin::Process => "discard",
    };
    let id = letter.id;
    format!("relais dead-letter retry {id} (or {other}); relais explain {id} shows its history")
}

fn attempts_table(context: &CommandContext, history: &[Attempt]) -> String {
    const COLUMNS: [TableColumn; 5] = [
        TableColumn::Number("ATTEMPT"),
        TableColumn::Id("AT"),
        TableColumn::Text("OUTCOME"),
        TableColumn::Prose("ERROR"),
        TableColumn::Text("WORKER"),
    ];
    let lines = history.iter().map(|attempt| {
        let tone = if attempt.outcome == "failed" { Tone::Bad } else { Tone::Waiting };
        vec![
            plain(attempt.attempt),
            plain(attempt.at),
            (attempt.outcome.clone(), tone),
            plain(problem(attempt.error_code.as_deref(), attempt.error_message.as_deref())),
            plain(&attempt.worker),
        ]
    });
    table(&context.output, &COLUMNS, lines)
}

const MORE_KEYS: &str = "possibly more results: raise --limit";

async fn keys(at: &DeadLetterContext<'_>, limit: usize) -> Done {
    const COLUMNS: [TableColumn; 5] = [
        TableColumn::Key("KEY"),
        TableColumn::Text("WHERE"),
        TableColumn::Number("AGE"),
        TableColumn::Number("WAITING"),
        TableColumn::Id("DEAD LETTER"),
    ];
    let keys = at.dead_letters.parked_keys(limit).await?;
    if at.context.output.json {
        at.context.output.print_json(&keys)?;
        if keys.len() >= limit {
            eprintln!("{MORE_KEYS}");
        }
        return Ok(());
    }
    let now = at.store.overview().await?.now;
    let lines = keys.iter().map(|key| {
        vec![
            plain(&key.msg_key),
            plain(place(key.origin, key.destination.as_deref())),
            plain(age(key.parked_at, now)),
            plain(key.backlog),
            plain(key.dead_letter_id),
        ]
    });
    let shown = table(&at.context.output, &COLUMNS, lines);
    match keys.len() {
        0 => at.context.output.print("none"),
        rows if rows >= limit => at.context.output.print(&format!("{shown}\n{MORE_KEYS}")),
        _ => at.context.output.print(&shown),
    }
}

/// Returns the place of a parked key.
fn place(origin: Origin, destination: Option<&str>) -> String {
    match destination {
        Some(destination) => format!("to {destination}"),
        None => origin.as_str().to_owned(),
    }
}
