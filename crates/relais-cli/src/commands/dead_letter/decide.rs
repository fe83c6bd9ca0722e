//! Replay and discard: by id, by filter, by key. Shows, asks, does, says what was done.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    ops::ControlFlow,
};

use relais::desk::{Answer, By, HeldKey, Pace, Picked, Report, many::in_order};
use relais_core::{
    dead_letter::{Origin, Resolution},
    desk::IdKind,
};
use serde_json::json;
use uuid::Uuid;

use super::{At, letters_table, place};
use crate::{
    args::{Decision, IdPrefix, KeyArgs, Resolve},
    commands::{ids, rows::filter},
    failure::{Done, Failure},
    output::{Lines, Output, Progress, escape},
    settings::quantity::Rate,
};

/// Most dead letters that a dry run shows.
const SHOWN_MAX: usize = 50;

/// What is decided.
pub(in crate::commands) struct Selection {
    pub(in crate::commands) picked: Vec<Picked>,
    pub(in crate::commands) resolution: Resolution,
    pub(in crate::commands) named: Named,
    pub(in crate::commands) pace: Pace,
}

/// How they were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Named {
    /// One by one, or all of one key: whoever did that knows what they do.
    Named,
    /// By a filter that may match many.
    Filtered,
}

impl Selection {
    pub(in crate::commands) fn named(picked: Vec<Picked>, resolution: Resolution) -> Self {
        Self { picked, resolution, named: Named::Named, pace: Pace::AtOnce }
    }
}

pub(super) async fn selected(
    at: &At<'_>,
    resolution: Resolution,
    args: &Resolve,
    rate: Option<Rate>,
) -> Done {
    let filters = filter(None, args.destination.clone(), &args.matching, None);
    let filtered = args.destination.is_some()
        || args.matching.event_type.is_some()
        || args.matching.key.is_some()
        || args.matching.since.is_some();
    if filtered && !args.all {
        return Err(Failure::Usage("filters go with --all, not with ids".to_owned()));
    }
    let (picked, named) = if args.all {
        (at.desk.pick(&filters).await?, Named::Filtered)
    } else {
        (by_ids(at, &args.ids).await?, Named::Named)
    };
    let pace = rate.map_or(Pace::AtOnce, |rate| Pace::Rate(rate.calls, rate.period));
    decide(at, Selection { picked, resolution, named, pace }, &args.decision).await
}

async fn by_ids(at: &At<'_>, ids: &[IdPrefix]) -> Result<Vec<Picked>, Failure> {
    let mut picked = Vec::with_capacity(ids.len());
    for id in ids {
        let id = ids::only(at.store, IdKind::DeadLetter, id).await?;
        let letter = at.store.find_dead_letter(id).await?;
        let letter = letter.ok_or_else(|| {
            Failure::failed(format!("no dead letter has the id {id}; nothing was changed"))
        })?;
        picked.push(Picked::from(&letter));
    }
    in_order(&mut picked);
    Ok(picked)
}

pub(super) async fn key(at: &At<'_>, resolution: Resolution, args: &KeyArgs) -> Done {
    let mut held = at.desk.held(&args.key).await?;
    if args.inbox {
        held.retain(|key| key.origin == Origin::Inbox);
    } else if let Some(destination) = &args.destination {
        held.retain(|key| key.destination.as_ref() == Some(destination));
    }
    match held.len() {
        0 => Err(Failure::failed(format!(
            "no open dead letter holds the key {} there; `relais dead-letter keys` lists those that are \
             held",
            args.key
        ))),
        1 => {
            if resolution == Resolution::Discarded && !args.decision.dry_run {
                args.decision.needs_reason("discard all dead letters of a key")?;
            }
            let HeldKey { letters, .. } = held.remove(0);
            decide(at, Selection::named(letters, resolution), &args.decision).await
        }
        _ => {
            let places = held.iter().map(|key| place(key.origin, key.destination.as_deref()));
            let places = escape(&places.collect::<Vec<_>>().join(", "), Lines::Escape);
            Err(Failure::Usage(format!(
                "the key {} is held in several places ({places}); say which with --inbox or \
                 --destination",
                args.key
            )))
        }
    }
}

/// Shows, asks, does, says what was done.
pub(in crate::commands) async fn decide(
    at: &At<'_>,
    selection: Selection,
    decision: &Decision,
) -> Done {
    if decision.dry_run {
        return dry_run(at, &selection).await;
    }
    if (selection.named, selection.resolution) == (Named::Filtered, Resolution::Discarded) {
        decision.needs_reason("discard many dead letters")?;
    }
    if !selection.picked.is_empty() && !decision.yes {
        confirm(&selection)?;
    }
    let by = By::new(&decision.actor()?, &decision.reason);
    let Selection { picked, resolution, named, pace } = selection;
    let mut log = Log::new(at.context.output, resolution, picked.len());
    let mut printed = Ok(());
    let each = |report| {
        printed = log.add(report);
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let decided = at.desk.decide_all(&picked, resolution, pace, &by, each).await;
    printed?;
    log.finish()?;
    decided?;
    // By a filter somebody else may have been faster; a named one that did not change is a failure.
    let failed = !log.refused.is_empty() || (named == Named::Named && !log.unchanged.is_empty());
    if failed { Err(Failure::Said) } else { Ok(()) }
}

/// What was done, in the past tense.
fn past(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Retried => "replayed",
        Resolution::Discarded => "discarded",
    }
}

async fn dry_run(at: &At<'_>, selection: &Selection) -> Done {
    let word = past(selection.resolution);
    let output = &at.context.output;
    let ids: Vec<Uuid> = selection.picked.iter().map(|picked| picked.id).collect();
    if output.json {
        return output.print_json(&json!({ "dry_run": true, word: ids }));
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

/// Asks on a terminal. Where nobody can answer, what was named goes on; a filter does not.
fn confirm(selection: &Selection) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return match selection.named {
            Named::Named => Ok(()),
            Named::Filtered => Err(Failure::Usage(
                "--all changes many at once and nobody is here to ask; add --yes, or look with \
                 --dry-run"
                    .to_owned(),
            )),
        };
    }
    let what = match selection.resolution {
        Resolution::Retried => "replay",
        Resolution::Discarded => "discard",
    };
    let count = selection.picked.len();
    let plural = if count == 1 { "" } else { "s" };
    let warning = match selection.resolution {
        Resolution::Retried => "",
        Resolution::Discarded => " This cannot be undone.",
    };
    ask(&format!("{what} {count} dead letter{plural}?{warning}"))
}

/// Goes on only after a yes.
pub(in crate::commands) fn ask(question: &str) -> Result<(), Failure> {
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

/// Says what did not change as it goes, and at the end what did.
struct Log {
    output: Output,
    resolution: Resolution,
    progress: Progress,
    done: Vec<Uuid>,
    unchanged: Vec<Report>,
    refused: Vec<Report>,
}

impl Log {
    fn new(output: Output, resolution: Resolution, total: usize) -> Self {
        Self {
            output,
            resolution,
            progress: Progress::new("dead letters", Some(total as u64), true),
            done: Vec::new(),
            unchanged: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn add(&mut self, report: Report) -> Done {
        self.progress.step()?;
        if report.answer == Answer::Done {
            self.done.push(report.id);
            return Ok(());
        }
        if !self.output.json {
            self.output.print(&escape(&unchanged(&report), Lines::Escape))?;
        }
        let refused = matches!(report.answer, Answer::Refused { .. } | Answer::WouldFail { .. });
        if refused { &mut self.refused } else { &mut self.unchanged }.push(report);
        Ok(())
    }

    fn finish(&self) -> Done {
        self.progress.finish();
        let word = past(self.resolution);
        if self.output.json {
            let Self { done, unchanged, refused, .. } = self;
            let said = json!({ word: done, "unchanged": unchanged, "refused": refused });
            return self.output.print_json(&said);
        }
        self.output.print(&format!("{word} {}", self.done.len()))
    }
}

fn unchanged(Report { id, answer }: &Report) -> String {
    format!("{id} {}", said(answer))
}

/// Why nothing was changed, for people.
pub(in crate::commands) fn said(answer: &Answer) -> String {
    match answer {
        Answer::Done => "done".to_owned(),
        Answer::NotFound => "is not there (any more); nothing was changed".to_owned(),
        Answer::ResolvedBefore { resolution, by, at } => {
            format!("was resolved before: {resolution} by {by} at {at}; nothing was changed")
        }
        Answer::EditedMeanwhile { by, at } => format!(
            "was edited by {by} at {at}, after you looked at it; nothing was changed; look again"
        ),
        Answer::WouldFail { problem } => format!(
            "would fail again: {} ({}); nothing was changed; --force takes it all the same",
            problem.message, problem.code
        ),
        Answer::Refused { problem } => {
            format!("is refused: {} ({}); nothing was changed", problem.message, problem.code)
        }
    }
}
