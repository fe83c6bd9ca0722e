//! `relais dead-letter …`: look, edit, replay, discard.
//!
//! - here: what there is to see
//! - `decide`: replay and discard, by id, filter and key
//! - `edit`: another payload; `editor`: written by a person now

mod decide;
mod edit;
mod editor;

use relais::desk::{Desk, Shown};
use relais_core::{
    dead_letter::{DeadLetter, Origin, Resolution},
    desk::{Attempt, IdKind},
    query::ParkedKey,
    store::Store,
    time::Timestamp,
};

pub(super) use self::decide::{Selection, ask, decide, said};
use super::{
    Context, ids,
    rows::{filter, not_found, plain, print_list, problem},
};
use crate::{
    args::{DeadLetterCommand, DeadLetterList},
    failure::{Done, Failure},
    output::{Column, Lines, Tone, age, escape, fields, table},
    wire,
};

/// The desk, and the store it is about.
pub(super) struct At<'a> {
    pub(super) context: &'a Context,
    pub(super) store: &'a dyn Store,
    pub(super) desk: Desk,
}

pub(crate) async fn dead_letter(context: &Context, command: DeadLetterCommand) -> Done {
    let (settings, store) = context.store().await?;
    let desk = wire::desk(&settings, store.clone());
    let at = At { context, store: store.as_ref(), desk };
    match command {
        DeadLetterCommand::List(list) => list_dead_letters(&at, list).await,
        DeadLetterCommand::Show { id } => {
            let id = ids::only(at.store, IdKind::DeadLetter, &id).await?;
            let shown = at.desk.show(id).await?;
            show(&at, shown.ok_or_else(|| not_found("dead letter", &id.to_string()))?).await
        }
        DeadLetterCommand::Edit(args) => edit::edit(&at, args).await,
        DeadLetterCommand::Replay(args) => {
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

async fn list_dead_letters(at: &At<'_>, list: DeadLetterList) -> Done {
    let status = Some(list.status.to_lowercase()).filter(|status| status != "all");
    let filter = filter(status, list.destination, &list.matching, Some(&list.page));
    let letters = at.desk.list(filter).await?;
    if at.context.output.json {
        return at.context.output.print_json(&letters);
    }
    let now = at.store.overview().await?.now;
    let shown = letters_table(at.context, &letters, now);
    print_list(at.context, &shown, letters.len(), list.page.limit, letters.last().map(|l| l.id))
}

pub(super) fn letters_table(context: &Context, letters: &[DeadLetter], now: Timestamp) -> String {
    const COLUMNS: [Column; 8] = [
        Column::Id("ID"),
        Column::Text("ORIGIN"),
        Column::Text("STATUS"),
        Column::Text("TYPE"),
        Column::Text("KEY"),
        Column::Text("WHERE"),
        Column::Number("AGE"),
        Column::Text("PROBLEM"),
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

/// For people: the fields, what was tried, what waits.
async fn show(at: &At<'_>, shown: Shown) -> Done {
    let output = &at.context.output;
    if output.json {
        return output.print_json(&shown);
    }
    let Shown { letter, history, parked_key } = &shown;
    output.print(&fields(output, letter).map_err(Failure::failed)?)?;
    if !history.is_empty() {
        output.print(&format!("\n{}", attempts_table(at.context, history)))?;
    }
    if let Some(parked) = parked_key {
        let age = age(parked.parked_at, at.store.overview().await?.now);
        let ParkedKey { msg_key, backlog, .. } = parked;
        let line = format!("key {msg_key} is held back for {age}; {backlog} wait behind it");
        output.print(&format!("\n{}", escape(&line, Lines::Escape)))?;
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
    format!("relais dead-letter replay {id} (or {other}); relais explain {id} tells all of it")
}

fn attempts_table(context: &Context, history: &[Attempt]) -> String {
    const COLUMNS: [Column; 5] = [
        Column::Number("ATTEMPT"),
        Column::Id("AT"),
        Column::Text("OUTCOME"),
        Column::Id("PROBLEM"),
        Column::Text("WORKER"),
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

async fn keys(at: &At<'_>, limit: usize) -> Done {
    const COLUMNS: [Column; 5] = [
        Column::Key("KEY"),
        Column::Text("WHERE"),
        Column::Number("AGE"),
        Column::Number("WAITING"),
        Column::Id("DEAD LETTER"),
    ];
    let keys = at.desk.parked_keys(limit).await?;
    if at.context.output.json {
        return at.context.output.print_json(&keys);
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
        rows if rows >= limit => {
            at.context.output.print(&format!("{shown}\nperhaps more: raise --limit"))
        }
        _ => at.context.output.print(&shown),
    }
}

/// Where a key is ordered, for people.
fn place(origin: Origin, destination: Option<&str>) -> String {
    match destination {
        Some(destination) => format!("to {destination}"),
        None => origin.as_str().to_owned(),
    }
}
