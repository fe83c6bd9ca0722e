//! What a person does to processes: shows which, asks, does it, says what became of each.

use std::io::{self, IsTerminal};

use relais::process::ActError;
use relais_core::{
    delivery::Problem,
    process::{Action, Process, ProcessFilter},
    query::PAGE_MAX,
    store::Store,
};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::{super::Context, filter, find, name, processes_table};
use crate::{
    args::Act,
    commands::dead_letter::ask,
    failure::{Done, Failure},
    output::{Lines, Progress, escape},
    wire,
};

/// Most processes one `--all` takes; run it again for more.
const ACTED_MAX: usize = 10_000;

/// An action and how it is said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deed {
    action: Action,
    /// The word of the command line.
    word: &'static str,
    /// What the question asks.
    question: &'static str,
}

pub(super) const PAUSE: Deed = Deed { action: Action::Pause, word: "pause", question: "pause" };
pub(super) const RESUME: Deed = Deed { action: Action::Resume, word: "resume", question: "resume" };
pub(super) const RETRY: Deed =
    Deed { action: Action::RetryStep, word: "retry", question: "send the command again of" };
pub(super) const SKIP: Deed =
    Deed { action: Action::SkipStep, word: "skip", question: "take the current step for done in" };
pub(super) const COMPENSATE: Deed = Deed {
    action: Action::Compensate,
    word: "compensate",
    question: "undo the completed steps of",
};
pub(super) const CANCEL: Deed = Deed {
    action: Action::Cancel,
    word: "cancel",
    question: "end for good, without undoing anything,",
};

/// A process that is as it was, and why.
#[derive(Debug, Serialize)]
struct Unchanged {
    process_id: Uuid,
    #[serde(flatten)]
    problem: Problem,
}

pub(super) async fn act(context: &Context, deed: Deed, args: &Act) -> Done {
    let decision = &args.decision;
    check(args)?;
    let actor = decision.actor()?;
    let (settings, store) = context.store().await?;
    let processes = selected(store.as_ref(), args).await?;
    if decision.dry_run {
        return dry_run(context, store.as_ref(), deed, &processes).await;
    }
    if !processes.is_empty() && !decision.yes {
        confirm(deed, args.all, processes.len())?;
    }
    let operator = wire::operator(&settings, store);
    let mut progress = Progress::new("processes", Some(processes.len() as u64), true);
    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    for process in processes {
        let acted = operator.act(process.process_id, deed.action, &actor, &decision.reason).await;
        match acted {
            Ok(process) => changed.push(process),
            Err(error) => {
                let problem = refusal(error)?;
                unchanged
                    .push((name(&process), Unchanged { process_id: process.process_id, problem }));
            }
        }
        progress.step()?;
    }
    progress.finish();
    say(context, deed, &changed, &unchanged)?;
    // With --all some may have moved on meanwhile; a named one that did not change is a failure.
    if unchanged.is_empty() || args.all { Ok(()) } else { Err(Failure::Said) }
}

fn check(args: &Act) -> Done {
    let matching = &args.matching;
    let filtered = matching.status.is_some()
        || matching.process_type.is_some()
        || matching.key.is_some()
        || matching.since.is_some();
    if filtered && !args.all {
        return Err(Failure::Usage("filters go with --all, not with ids".to_owned()));
    }
    if args.decision.reason.trim().is_empty() && !args.decision.dry_run {
        let message = "say why with --reason: it goes into the log of the process";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(())
}

/// Those that are named, or every one the filters match, oldest first.
async fn selected(store: &dyn Store, args: &Act) -> Result<Vec<Process>, Failure> {
    let mut processes = Vec::new();
    for wanted in &args.ids {
        processes.push(find(store, wanted).await?);
    }
    let mut page = filter(&args.matching);
    while args.all && processes.len() < ACTED_MAX {
        let found = store.list_processes(page.clone()).await?;
        let full = found.len() == PAGE_MAX;
        page = ProcessFilter { before: found.last().map(|last| last.process_id), ..page };
        processes.extend(found);
        if !full {
            break;
        }
    }
    if args.all {
        processes.reverse();
    }
    Ok(processes)
}

async fn dry_run(context: &Context, store: &dyn Store, deed: Deed, processes: &[Process]) -> Done {
    if context.output.json {
        let ids: Vec<Uuid> = processes.iter().map(|process| process.process_id).collect();
        return context
            .output
            .print_json(&json!({ "dry_run": true, "action": deed.word, "processes": ids }));
    }
    if processes.is_empty() {
        return context.output.print("none");
    }
    let shown = processes_table(context, processes, store.overview().await?.now);
    let count = counted(processes.len());
    context.output.print(&format!("{shown}\nwould {} {count}", deed.question))
}

/// Asks on a terminal. Where nobody can answer, what was named goes on; `--all` does not.
fn confirm(deed: Deed, all: bool, count: usize) -> Done {
    if io::stdin().is_terminal() {
        return ask(&format!("{} {}?", deed.question, counted(count)));
    }
    if all {
        let message = "--all changes many at once and nobody is here to ask; add --yes, or look with \
                       --dry-run";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(())
}

fn counted(count: usize) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}

/// What speaks against it; a database that is away ends the command.
fn refusal(error: ActError) -> Result<Problem, Failure> {
    match error {
        ActError::Refused(problem) => Ok(problem),
        ActError::Store(error) => Err(error.into()),
        ActError::NotFound(_) => Ok(Problem::new("NOT_FOUND", &error.to_string())),
        _ => Ok(Problem::new("BUSY", &error.to_string())),
    }
}

fn say(
    context: &Context,
    deed: Deed,
    changed: &[Process],
    unchanged: &[(String, Unchanged)],
) -> Done {
    if context.output.json {
        let unchanged: Vec<&Unchanged> = unchanged.iter().map(|(_, why)| why).collect();
        return context.output.print_json(
            &json!({ "action": deed.word, "changed": changed, "unchanged": unchanged }),
        );
    }
    for (name, Unchanged { problem, .. }) in unchanged {
        let why = escape(&problem.message, Lines::Escape);
        context.output.print(&format!("{name} is unchanged: {why}"))?;
    }
    for process in changed {
        let step = process.current_step.as_deref();
        let step = step.map(|step| format!(", step {step}")).unwrap_or_default();
        context.output.print(&format!("{} is {}{step}", name(process), process.status.as_str()))?;
    }
    if changed.is_empty() && unchanged.is_empty() { context.output.print("none") } else { Ok(()) }
}
