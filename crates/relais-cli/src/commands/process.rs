//! `relais process …`: list, show, verify, act and diagram.

mod act;
mod orphans;
mod show;
mod verify;

use relais_core::{
    control::ControlChange,
    inspect::InspectExt,
    process::{Process, ProcessFilter, ProcessRef, ProcessStatus},
    query::PAGE_MAX,
    store::StoreDriver,
    time::Timestamp,
};
use serde_json::json;

use super::{
    CommandContext, control, ids,
    rows::{plain, print_list, print_page_json, seconds},
};
use crate::{
    args::{Diagram, ProcessCommand, ProcessList, ProcessMatching, ProcessName},
    failure::{CommandError, Done},
    output::{LineBreaks, TableColumn, Tone, age, escape, table},
    settings::Settings,
};

pub(crate) use self::orphans::undeclared;

pub(crate) async fn process(context: &CommandContext, command: ProcessCommand) -> Done {
    let (action, args) = match command {
        ProcessCommand::List(args) => return list(context, args).await,
        ProcessCommand::Show(args) => return show::show(context, args).await,
        ProcessCommand::Log(args) => return show::log(context, args).await,
        ProcessCommand::Verify(args) => return verify::verify(context, args).await,
        ProcessCommand::Diagram(args) => return diagram(context, &args),
        ProcessCommand::PauseType(args) => {
            return control::process_type(context, ControlChange::Pause, args).await;
        }
        ProcessCommand::ResumeType(args) => {
            return control::process_type(context, ControlChange::Resume, args).await;
        }
        ProcessCommand::Pause(args) => (act::PAUSE, args),
        ProcessCommand::Resume(args) => (act::RESUME, args),
        ProcessCommand::Retry(args) => (act::RETRY, args),
        ProcessCommand::Skip(args) => (act::SKIP, args),
        ProcessCommand::Compensate(args) => (act::COMPENSATE, args),
        ProcessCommand::Cancel(args) => (act::CANCEL, args),
    };
    act::act(context, action, &args).await
}

async fn list(context: &CommandContext, list: ProcessList) -> Done {
    let (_, store) = context.store().await?;
    let before = match &list.before {
        Some(prefix) => Some(ids::only(store.as_ref(), prefix).await?),
        None => None,
    };
    let filter = ProcessFilter { before, limit: list.limit, ..filter(&list.matching) };
    let processes = store.list_processes(filter).await?;
    let last = processes.last().map(|process| process.process_id);
    if context.output.json {
        return print_page_json(context, &processes, list.limit, last);
    }
    let shown = processes_table(context, &processes, store.overview().await?.now);
    print_list(context, &shown, processes.len(), list.limit, last)
}

/// Returns the filter for the first page.
fn filter(matching: &ProcessMatching) -> ProcessFilter {
    ProcessFilter {
        status: matching.status,
        process_type: matching.process_type.clone(),
        business_key: matching.key.clone(),
        since_seconds: matching.since.map(seconds),
        before: None,
        limit: PAGE_MAX,
    }
}

fn processes_table(context: &CommandContext, processes: &[Process], now: Timestamp) -> String {
    const COLUMNS: [TableColumn; 9] = [
        TableColumn::Id("ID"),
        TableColumn::Word("STATUS"),
        TableColumn::Text("TYPE"),
        TableColumn::Number("VER"),
        TableColumn::Text("KEY"),
        TableColumn::Text("STEP"),
        TableColumn::Number("FAILURES"),
        TableColumn::Number("AGE"),
        TableColumn::Number("CHANGED"),
    ];
    let lines = processes.iter().map(|process| {
        vec![
            plain(process.process_id),
            (status(process), tone(process)),
            plain(&process.process_type),
            plain(process.definition),
            plain(process.business_key.as_deref().unwrap_or("-")),
            plain(process.current_step.as_deref().unwrap_or("-")),
            plain(process.retries),
            plain(age(process.created_at, now)),
            plain(age(process.updated_at, now)),
        ]
    });
    let shown = table(&context.output, &COLUMNS, lines);
    if processes.iter().any(Process::needs_operator) {
        return format!("{shown}\n! needs an operator; `relais process show ID` lists the actions");
    }
    shown
}

/// Returns the status, marked if the process waits for a decision of an operator.
fn status(process: &Process) -> String {
    let mark = if process.needs_operator() { "! " } else { "" };
    format!("{mark}{}", process.status.as_str())
}

fn tone(process: &Process) -> Tone {
    if process.needs_operator() {
        return Tone::Bad;
    }
    match process.status {
        ProcessStatus::Succeeded => Tone::Good,
        ProcessStatus::Failed => Tone::Bad,
        ProcessStatus::Compensating | ProcessStatus::Compensated | ProcessStatus::Paused => {
            Tone::Waiting
        }
        ProcessStatus::New | ProcessStatus::Running => Tone::Plain,
    }
}

/// Returns the named process, or a failure if it does not exist.
async fn find(store: &dyn StoreDriver, wanted: &ProcessName) -> Result<Process, CommandError> {
    let wanted = &match wanted {
        ProcessName::Exact(exact) => exact.clone(),
        ProcessName::Prefix(prefix) => ProcessRef::Id(ids::only(store, prefix).await?),
    };
    let found = store.load_processes(vec![wanted.clone()]).await?.into_iter().next().flatten();
    found.ok_or_else(|| match wanted {
        ProcessRef::Id(id) => CommandError::failed(format!("no process has the id {id}")),
        ProcessRef::Key { process_type, business_key } => CommandError::failed(format!(
            "no process of type `{process_type}` has the business key `{business_key}`"
        )),
    })
}

/// Returns `order o-1`, or the id of a process without a business key, escaped for a terminal.
fn name(process: &Process) -> String {
    let name = match &process.business_key {
        Some(key) => format!("{} {key}", process.process_type),
        None => format!("{} {}", process.process_type, process.process_id),
    };
    escape(&name, LineBreaks::Escape)
}

fn diagram(context: &CommandContext, args: &Diagram) -> Done {
    let (settings, _) = context.settings()?;
    let Diagram { process_type, definition: version } = args;
    let definitions = settings.processes.iter().map(|process| &process.definition);
    let found = definitions
        .filter(|definition| definition.process_type() == process_type)
        .filter(|definition| version.is_none_or(|version| definition.version() == version))
        .max_by_key(|definition| definition.version());
    let Some(definition) = found else { return Err(unknown_type(&settings, args)) };
    let drawn = definition.diagram();
    if context.output.json {
        let version = definition.version();
        return context
            .output
            .print_json(&json!({ "type": process_type, "version": version, "mermaid": drawn }));
    }
    context.output.print(&drawn)
}

fn unknown_type(settings: &Settings, wanted: &Diagram) -> CommandError {
    let version =
        wanted.definition.map(|version| format!(" version {version}")).unwrap_or_default();
    let known: Vec<String> = settings.processes.iter().map(|process| process.title()).collect();
    let known = match known.as_slice() {
        [] => "the configuration has none".to_owned(),
        known => format!("the configuration has {}", known.join(", ")),
    };
    let wanted = &wanted.process_type;
    CommandError::failed(format!("no [[process]] has the type `{wanted}`{version}; {known}"))
}
