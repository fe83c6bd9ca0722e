//! Actions of operators on processes, with dry run and confirmation.

use std::io::{self, IsTerminal};

use relais::process::ActError;
use relais_core::{
    delivery::Problem,
    inspect::InspectExt,
    process::{Action, Process, ProcessFilter, ProcessStatus},
    query::PAGE_MAX,
    store::StoreDriver,
};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::{super::CommandContext, filter, find, name, processes_table};
use crate::{
    args::Act,
    commands::dead_letter::ask,
    failure::{CommandError, Done},
    output::{CommandProgress, LineBreaks, escape},
    wire,
};

/// Most processes of one `--all`; run it again for more.
const ACTED_MAX: usize = 10_000;

/// An action with its texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActionText {
    action: Action,
    /// The name of the command.
    word: &'static str,
    /// The beginning of the question.
    question: &'static str,
}

pub(super) const PAUSE: ActionText =
    ActionText { action: Action::Pause, word: "pause", question: "Pause" };
pub(super) const RESUME: ActionText =
    ActionText { action: Action::Resume, word: "resume", question: "Resume" };
pub(super) const RETRY: ActionText =
    ActionText { action: Action::RetryStep, word: "retry", question: "Retry the current step of" };
pub(super) const SKIP: ActionText =
    ActionText { action: Action::SkipStep, word: "skip", question: "Skip the current step of" };
pub(super) const COMPENSATE: ActionText = ActionText {
    action: Action::Compensate,
    word: "compensate",
    question: "Compensate the completed steps of",
};
pub(super) const CANCEL: ActionText = ActionText {
    action: Action::Cancel,
    word: "cancel",
    question: "Cancel, without compensation,",
};

/// An unchanged process, and the reason.
#[derive(Debug, Serialize)]
struct UnchangedProcess {
    process_id: Uuid,
    #[serde(flatten)]
    problem: Problem,
}

pub(super) async fn act(context: &CommandContext, deed: ActionText, args: &Act) -> Done {
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
    let progress = CommandProgress::new("processes", Some(processes.len() as u64), true);
    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    for process in processes {
        let acted = operator.act(process.process_id, deed.action, &actor, &decision.reason).await;
        match acted {
            Ok(process) => changed.push(process),
            Err(error) => {
                let problem = refusal(error)?;
                unchanged.push((
                    name(&process),
                    UnchangedProcess { process_id: process.process_id, problem },
                ));
            }
        }
        progress.step();
    }
    progress.finish();
    print_results(context, deed, &changed, &unchanged)?;
    // Processes of --all may have changed meanwhile; a named one that is unchanged is a failure.
    if unchanged.is_empty() || args.all { Ok(()) } else { Err(CommandError::Printed) }
}

fn check(args: &Act) -> Done {
    let matching = &args.matching;
    let filtered = matching.status.is_some()
        || matching.process_type.is_some()
        || matching.key.is_some()
        || matching.since.is_some();
    if filtered && !args.all {
        return Err(CommandError::Usage("filters go with --all, not with ids".to_owned()));
    }
    if args.decision.reason.trim().is_empty() && !args.decision.dry_run {
        let message = "cannot act without a reason; pass --reason TEXT";
        return Err(CommandError::Usage(message.to_owned()));
    }
    Ok(())
}

/// Returns the named processes, or all that match the filters, oldest first.
async fn selected(store: &dyn StoreDriver, args: &Act) -> Result<Vec<Process>, CommandError> {
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

async fn dry_run(
    context: &CommandContext,
    store: &dyn StoreDriver,
    deed: ActionText,
    processes: &[Process],
) -> Done {
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
    context.output.print(&format!("{shown}\ndry run: would {} {count}", deed.word))
}

/// Asks on a terminal. Without one, named processes continue and `--all` is refused.
fn confirm(deed: ActionText, all: bool, count: usize) -> Done {
    if io::stdin().is_terminal() {
        return ask(&format!("{} {}?", deed.question, counted(count)));
    }
    if all {
        let message = "cannot ask for confirmation: stdin is not a terminal; pass --yes to change all \
                       matching processes, or check with --dry-run";
        return Err(CommandError::Usage(message.to_owned()));
    }
    Ok(())
}

fn counted(count: usize) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}

/// Returns the reason of a refusal; an unavailable database ends the command.
fn refusal(error: ActError) -> Result<Problem, CommandError> {
    match error {
        ActError::Refused(problem) => Ok(problem),
        ActError::Store(error) => Err(error.into()),
        ActError::NotFound(_) => Ok(Problem::new("NOT_FOUND", &error.to_string())),
        _ => Ok(Problem::new("BUSY", &error.to_string())),
    }
}

/// Returns the next step after an action that leaves the process paused, although its aim was to continue.
fn resume_hint(action: Action, process: &Process) -> String {
    match (action, process.status) {
        (Action::SkipStep | Action::Compensate, ProcessStatus::Paused) => {
            format!("; it continues after `relais process resume {}`", process.process_id)
        }
        _ => String::new(),
    }
}

fn print_results(
    context: &CommandContext,
    deed: ActionText,
    changed: &[Process],
    unchanged: &[(String, UnchangedProcess)],
) -> Done {
    if context.output.json {
        let unchanged: Vec<&UnchangedProcess> = unchanged.iter().map(|(_, why)| why).collect();
        return context.output.print_json(
            &json!({ "action": deed.word, "changed": changed, "unchanged": unchanged }),
        );
    }
    for (name, UnchangedProcess { problem, .. }) in unchanged {
        let why = escape(&problem.message, LineBreaks::Escape);
        context.output.print(&format!("{name} is unchanged: {why}"))?;
    }
    for process in changed {
        let step = process.current_step.as_deref();
        let step = step.map(|step| format!(", step {step}")).unwrap_or_default();
        let (name, status) = (name(process), process.status.as_str());
        let next = resume_hint(deed.action, process);
        context.output.print(&format!("{name}: {} done; now {status}{step}{next}", deed.word))?;
    }
    if changed.is_empty() && unchanged.is_empty() { context.output.print("none") } else { Ok(()) }
}
