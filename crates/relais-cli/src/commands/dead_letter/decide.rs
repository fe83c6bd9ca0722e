//! Retry and discard: by id, by filter and by key, with dry run and confirmation.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    ops::ControlFlow,
};

use relais::dead_letters::{
    DecisionAuthor, DecisionOutcome, DecisionReport, KeyLetters, Pace, SelectedLetter,
    many::in_order,
};
use relais_core::{
    dead_letter::{Origin, Resolution},
    id_prefix::IdPrefix,
    inspect::InspectExt,
};
use serde_json::json;
use uuid::Uuid;

use super::{DeadLetterContext, letters_table, place};
use crate::{
    args::{DecisionArgs, KeyArgs, Resolve},
    commands::{control::unknown_destination, ids, rows::filter},
    failure::{CommandError, Done},
    output::{CommandProgress, LineBreaks, Output, escape},
    settings::quantity::Rate,
};

/// Most dead letters that a dry run shows.
const SHOWN_MAX: usize = 50;

/// The dead letters of a decision.
pub(in crate::commands) struct Selection {
    pub(in crate::commands) picked: Vec<SelectedLetter>,
    pub(in crate::commands) resolution: Resolution,
    pub(in crate::commands) by: SelectedBy,
    pub(in crate::commands) pace: Pace,
}

/// The way the dead letters were selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum SelectedBy {
    /// By their ids or their key: no confirmation is needed without a terminal.
    Name,
    /// By a filter, which may match many.
    Filter,
}

impl Selection {
    pub(in crate::commands) fn named(picked: Vec<SelectedLetter>, resolution: Resolution) -> Self {
        Self { picked, resolution, by: SelectedBy::Name, pace: Pace::AtOnce }
    }
}

pub(super) async fn selected(
    at: &DeadLetterContext<'_>,
    resolution: Resolution,
    args: &Resolve,
    rate: Option<Rate>,
) -> Done {
    let filters = filter(None, args.destination.clone(), &args.matching, None);
    let filtered = args.destination.is_some()
        || args.matching.event_type.is_some()
        || args.matching.key.is_some()
        || args.matching.code.is_some()
        || args.matching.since.is_some();
    if filtered && !args.all {
        return Err(CommandError::Usage("filters go with --all, not with ids".to_owned()));
    }
    let (picked, by) = if args.all {
        (at.dead_letters.pick(&filters).await?, SelectedBy::Filter)
    } else {
        (by_ids(at, &args.ids).await?, SelectedBy::Name)
    };
    if picked.is_empty()
        && let Some(text) =
            unknown_destination(at.settings, at.store, args.destination.as_deref()).await?
    {
        return Err(CommandError::failed(text));
    }
    let pace = rate.map_or(Pace::AtOnce, |rate| Pace::Rate(rate.calls, rate.period));
    decide(at, Selection { picked, resolution, by, pace }, &args.decision).await
}

async fn by_ids(
    at: &DeadLetterContext<'_>,
    ids: &[IdPrefix],
) -> Result<Vec<SelectedLetter>, CommandError> {
    let mut picked = Vec::with_capacity(ids.len());
    for id in ids {
        let id = ids::only(at.store, id).await?;
        let letter = at.store.find_dead_letter(id).await?;
        let letter = letter.ok_or_else(|| {
            CommandError::failed(format!("no dead letter has the ID {id}; nothing was changed"))
        })?;
        picked.push(SelectedLetter::from(&letter));
    }
    in_order(&mut picked);
    Ok(picked)
}

pub(super) async fn key(
    at: &DeadLetterContext<'_>,
    resolution: Resolution,
    args: &KeyArgs,
) -> Done {
    let mut held = at.dead_letters.of_key(&args.key).await?;
    if args.inbox {
        held.retain(|key| key.origin == Origin::Inbox);
    } else if let Some(destination) = &args.destination {
        held.retain(|key| key.destination.as_ref() == Some(destination));
    }
    match held.len() {
        0 => Err(CommandError::failed(format!(
            "the key {} is not parked there; `relais dead-letter keys` lists the parked keys",
            args.key
        ))),
        1 => {
            if resolution == Resolution::Discarded && !args.decision.dry_run {
                args.decision.needs_reason("discard all dead letters of a key")?;
            }
            let KeyLetters { letters, .. } = held.remove(0);
            decide(at, Selection::named(letters, resolution), &args.decision).await
        }
        _ => {
            let places = held.iter().map(|key| place(key.origin, key.destination.as_deref()));
            let places = escape(&places.collect::<Vec<_>>().join(", "), LineBreaks::Escape);
            Err(CommandError::Usage(format!(
                "the key {} is parked in several places ({places}); pass --inbox or --destination",
                args.key
            )))
        }
    }
}

/// Shows the selection, asks for confirmation, decides and prints the result.
pub(in crate::commands) async fn decide(
    at: &DeadLetterContext<'_>,
    selection: Selection,
    decision: &DecisionArgs,
) -> Done {
    if decision.dry_run {
        return dry_run(at, &selection).await;
    }
    if (selection.by, selection.resolution) == (SelectedBy::Filter, Resolution::Discarded) {
        decision.needs_reason("discard many dead letters")?;
    }
    if !selection.picked.is_empty() && !decision.yes {
        confirm(&selection)?;
    }
    let actor = DecisionAuthor::new(&decision.actor()?, &decision.reason);
    let Selection { picked, resolution, by, pace } = selection;
    let mut log = DecisionLog::new(at.context.output, resolution, picked.len());
    let mut printed = Ok(());
    let each = |report| {
        printed = log.add(report);
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let decided = at.dead_letters.decide_all(&picked, resolution, pace, &actor, each).await;
    printed?;
    log.finish()?;
    decided?;
    // Other operators may decide dead letters of a filter first; a named one that is unchanged is a failure.
    let failed = !log.refused.is_empty() || (by == SelectedBy::Name && !log.unchanged.is_empty());
    if failed { Err(CommandError::Printed) } else { Ok(()) }
}

/// Returns the result in the past tense.
fn past(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Retried => "retried",
        Resolution::Discarded => "discarded",
    }
}

/// Returns the field of `--json`, whose names are stable.
fn field(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Retried => "replayed",
        Resolution::Discarded => "discarded",
    }
}

async fn dry_run(at: &DeadLetterContext<'_>, selection: &Selection) -> Done {
    let (word, field) = (past(selection.resolution), field(selection.resolution));
    let output = &at.context.output;
    let ids: Vec<Uuid> = selection.picked.iter().map(|picked| picked.id).collect();
    if output.json {
        return output.print_json(&json!({ "dry_run": true, field: ids }));
    }
    if ids.is_empty() {
        return output.print("none");
    }
    let mut letters = Vec::new();
    for id in ids.iter().take(SHOWN_MAX) {
        letters.extend(at.store.find_dead_letter(*id).await?);
    }
    output.print(&letters_table(at.context, &letters, at.store.overview().await?.now))?;
    if ids.len() > SHOWN_MAX {
        output.print(&format!("… and {} more", ids.len() - SHOWN_MAX))?;
    }
    output.print(&format!("{} would be {word}", ids.len()))
}

/// Asks on a terminal. Without one, a selection by name continues and a filter is refused.
fn confirm(selection: &Selection) -> Result<(), CommandError> {
    if !io::stdin().is_terminal() {
        return match selection.by {
            SelectedBy::Name => Ok(()),
            SelectedBy::Filter => Err(CommandError::Usage(
                "cannot ask for confirmation: stdin is not a terminal; pass --yes to change all matching \
                 dead letters, or check with --dry-run"
                    .to_owned(),
            )),
        };
    }
    let what = match selection.resolution {
        Resolution::Retried => "Retry",
        Resolution::Discarded => "Discard",
    };
    let count = selection.picked.len();
    let plural = if count == 1 { "" } else { "s" };
    let warning = match selection.resolution {
        Resolution::Retried => "",
        Resolution::Discarded => " This cannot be undone.",
    };
    ask(&format!("{what} {count} dead letter{plural}?{warning}"))
}

/// Asks a question and fails without a yes.
pub(in crate::commands) fn ask(question: &str) -> Result<(), CommandError> {
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        Ok(())
    } else {
        Err(CommandError::failed("not confirmed; nothing was changed"))
    }
}

/// Prints unchanged dead letters as they occur, and the number of changed ones at the end.
struct DecisionLog {
    output: Output,
    resolution: Resolution,
    progress: CommandProgress,
    done: Vec<Uuid>,
    unchanged: Vec<DecisionReport>,
    refused: Vec<DecisionReport>,
}

impl DecisionLog {
    fn new(output: Output, resolution: Resolution, total: usize) -> Self {
        Self {
            output,
            resolution,
            progress: CommandProgress::new("dead letters", Some(total as u64), true),
            done: Vec::new(),
            unchanged: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn add(&mut self, report: DecisionReport) -> Done {
        self.progress.step();
        if report.answer == DecisionOutcome::Done {
            self.done.push(report.id);
            return Ok(());
        }
        if !self.output.json {
            self.output.print(&escape(&unchanged(&report), LineBreaks::Escape))?;
        }
        let refused = matches!(
            report.answer,
            DecisionOutcome::Refused { .. } | DecisionOutcome::WouldFail { .. }
        );
        if refused { &mut self.refused } else { &mut self.unchanged }.push(report);
        Ok(())
    }

    fn finish(&self) -> Done {
        self.progress.finish();
        if self.output.json {
            let Self { done, unchanged, refused, .. } = self;
            let field = field(self.resolution);
            let result = json!({ field: done, "unchanged": unchanged, "refused": refused });
            return self.output.print_json(&result);
        }
        self.output.print(&format!("{} {}", past(self.resolution), self.done.len()))
    }
}

fn unchanged(DecisionReport { id, answer }: &DecisionReport) -> String {
    format!("{id} {}", unchanged_text(answer))
}

/// Returns the reason why nothing was changed.
pub(in crate::commands) fn unchanged_text(answer: &DecisionOutcome) -> String {
    match answer {
        DecisionOutcome::Done => "done".to_owned(),
        DecisionOutcome::NotFound => "does not exist (any more); nothing was changed".to_owned(),
        DecisionOutcome::ResolvedBefore { resolution, by, at } => {
            format!("is already {resolution} by {by} at {at}; nothing was changed")
        }
        DecisionOutcome::EditedMeanwhile { by, at } => format!(
            "was edited by {by} at {at}, after you read it; nothing was changed; read it again"
        ),
        DecisionOutcome::WouldFail { problem } => format!(
            "would fail again: {} ({}); nothing was changed; --force saves it anyway",
            problem.message, problem.code
        ),
        DecisionOutcome::Refused { problem } => {
            format!("was refused: {} ({}); nothing was changed", problem.message, problem.code)
        }
    }
}
