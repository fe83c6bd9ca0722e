//! `relais dead-letter …`: look, retry, skip.

use std::io::{self, BufRead, IsTerminal, Write};

use relais_core::{
    dead_letter::{DeadLetter, Resolution, Verdict},
    query::PAGE_MAX,
    store::Store,
    time::Timestamp,
};
use serde_json::json;
use uuid::Uuid;

use super::{
    Context,
    rows::{filter, plain, print_list, problem, show},
};
use crate::{
    args::{DeadLetterCommand, DeadLetterList, Decision, Resolve},
    failure::{Done, Failure},
    output::{Column, Tone, age, table},
};

/// Most dead letters one `--all` takes; run it again for more.
const RESOLVED_MAX: usize = 100_000;

pub(crate) async fn dead_letter(context: &Context, command: DeadLetterCommand) -> Done {
    let (_, store) = context.store().await?;
    match command {
        DeadLetterCommand::List(list) => list_dead_letters(context, store.as_ref(), list).await,
        DeadLetterCommand::Show { id } => {
            show(context, "dead letter", &id.to_string(), store.find_dead_letter(id).await?)
        }
        DeadLetterCommand::Retry(args) => {
            resolve_selected(context, store.as_ref(), Resolution::Retried, &args).await
        }
        DeadLetterCommand::Skip(args) => {
            resolve_selected(context, store.as_ref(), Resolution::Skipped, &args).await
        }
    }
}

async fn list_dead_letters(context: &Context, store: &dyn Store, list: DeadLetterList) -> Done {
    let status = Some(list.status.to_lowercase()).filter(|status| status != "all");
    let filter = filter(status, list.destination, &list.matching, Some(&list.page));
    let letters = store.list_dead_letters(filter).await?;
    if context.output.json {
        return context.output.print_json(&letters);
    }
    let now = store.overview().await?.now;
    let shown = letters_table(context, &letters, now);
    print_list(context, &shown, letters.len(), list.page.limit, letters.last().map(|l| l.id))
}

fn letters_table(context: &Context, letters: &[DeadLetter], now: Timestamp) -> String {
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
                Some(id) => format!("{} {id}", letter.origin.as_str()),
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

async fn resolve_selected(
    context: &Context,
    store: &dyn Store,
    resolution: Resolution,
    args: &Resolve,
) -> Done {
    let matching = &args.matching;
    let filtered = matching.event_type.is_some()
        || matching.key.is_some()
        || matching.since.is_some()
        || args.destination.is_some();
    if filtered && !args.all {
        return Err(Failure::Usage("filters go with --all, not with ids".to_owned()));
    }
    let letters =
        if args.all { all_open(store, args).await? } else { by_ids(store, &args.ids).await? };
    let decided = Decided { resolution, all: args.all };
    resolve(context, store, letters, decided, &args.decision).await
}

/// Every open one the filters match, oldest first.
async fn all_open(store: &dyn Store, args: &Resolve) -> Result<Vec<DeadLetter>, Failure> {
    let destination = args.destination.clone();
    let mut filter = filter(Some("open".to_owned()), destination, &args.matching, None);
    let mut letters: Vec<DeadLetter> = Vec::new();
    while letters.len() < RESOLVED_MAX {
        let page = store.list_dead_letters(filter.clone()).await?;
        let full = page.len() == PAGE_MAX;
        filter.before = page.last().map(|letter| letter.id.to_string());
        letters.extend(page);
        if !full {
            break;
        }
    }
    letters.reverse();
    Ok(letters)
}

async fn by_ids(store: &dyn Store, ids: &[Uuid]) -> Result<Vec<DeadLetter>, Failure> {
    let mut letters = Vec::with_capacity(ids.len());
    for id in ids {
        let letter = store.find_dead_letter(*id).await?;
        letters.push(letter.ok_or_else(|| {
            Failure::failed(format!("no dead letter has the id {id}; nothing was changed"))
        })?);
    }
    Ok(letters)
}

/// What is to be done, and whether each was named.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) resolution: Resolution,
    pub(super) all: bool,
}

/// Shows, asks, does, says what was done.
pub(super) async fn resolve(
    context: &Context,
    store: &dyn Store,
    letters: Vec<DeadLetter>,
    decided: Decided,
    decision: &Decision,
) -> Done {
    let resolution = decided.resolution;
    if decision.dry_run {
        return dry_run(context, store, &letters, resolution).await;
    }
    if !letters.is_empty() && !decision.yes {
        confirm(letters.len(), decided)?;
    }
    let (mut changed, mut left) = (Vec::new(), Vec::new());
    for letter in &letters {
        let verdict =
            Verdict { resolution, actor: decision.actor.clone(), reason: decision.reason.clone() };
        let list = if store.resolve(letter.id, verdict).await? { &mut changed } else { &mut left };
        list.push(letter.id);
    }
    let word = resolution.as_str();
    if context.output.json {
        context.output.print_json(&json!({ word: changed, "unchanged": left }))?;
    } else {
        for id in &left {
            context.output.print(&format!("{id} was resolved before; nothing was changed"))?;
        }
        context.output.print(&format!("{word} {}", changed.len()))?;
    }
    // With --all somebody else may have been faster; a named one that did not change is a failure.
    if left.is_empty() || decided.all { Ok(()) } else { Err(Failure::Said) }
}

async fn dry_run(
    context: &Context,
    store: &dyn Store,
    letters: &[DeadLetter],
    resolution: Resolution,
) -> Done {
    let word = resolution.as_str();
    if context.output.json {
        let ids: Vec<Uuid> = letters.iter().map(|letter| letter.id).collect();
        return context.output.print_json(&json!({ "dry_run": true, word: ids }));
    }
    if letters.is_empty() {
        return context.output.print("none");
    }
    let shown = letters_table(context, letters, store.overview().await?.now);
    context.output.print(&format!("{shown}\n{} would be {word}", letters.len()))
}

/// Asks on a terminal. Where nobody can answer, what was named by id goes on; `--all` does not.
fn confirm(count: usize, decided: Decided) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return if decided.all {
            Err(Failure::Usage(
                "--all changes many at once and nobody is here to ask; add --yes, or look with \
                 --dry-run"
                    .to_owned(),
            ))
        } else {
            Ok(())
        };
    }
    let what = match decided.resolution {
        Resolution::Retried => "retry",
        Resolution::Skipped => "skip for good",
    };
    let plural = if count == 1 { "" } else { "s" };
    ask(&format!("{what} {count} dead letter{plural}?"))
}

/// Goes on only after a yes.
pub(super) fn ask(question: &str) -> Result<(), Failure> {
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        Ok(())
    } else {
        Err(Failure::failed("not confirmed; nothing was changed"))
    }
}
