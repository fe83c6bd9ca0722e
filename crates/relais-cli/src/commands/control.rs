//! `relais destination …`, `relais source …`, `relais process pause-type`: pauses, limits and resets.

use relais::control::{ControlError, control};
use relais_core::control::{Control, ControlChange, ControlKind, ControlOrder, LimitChange};
use relais_core::time::Timestamp;
use serde_json::json;

use super::Context;
use crate::{
    args::{ControlArgs, DestinationCommand, SourceCommand},
    failure::{Done, Failure},
    output::{Lines, age, escape},
};

pub(crate) async fn destination(context: &Context, command: DestinationCommand) -> Done {
    let kind = ControlKind::Destination;
    let (args, change) = match command {
        DestinationCommand::Pause(args) => (args, ControlChange::Pause),
        DestinationCommand::Resume(args) => (args, ControlChange::Resume),
        DestinationCommand::ResetBreaker(args) => (args, ControlChange::ResetBreaker),
        DestinationCommand::Limit(args) => {
            let rate = args.rate.map(|rate| (rate.calls, rate.period));
            let limits = LimitChange { rate, concurrency: args.concurrency };
            (args.control, ControlChange::Limit(limits))
        }
    };
    act(context, kind, change, args).await
}

pub(crate) async fn source(context: &Context, command: SourceCommand) -> Done {
    let (args, change) = match command {
        SourceCommand::Pause(args) => (args, ControlChange::Pause),
        SourceCommand::Resume(args) => (args, ControlChange::Resume),
    };
    act(context, ControlKind::Source, change, args).await
}

pub(crate) async fn process_type(
    context: &Context,
    change: ControlChange,
    args: ControlArgs,
) -> Done {
    act(context, ControlKind::ProcessType, change, args).await
}

async fn act(
    context: &Context,
    kind: ControlKind,
    change: ControlChange,
    args: ControlArgs,
) -> Done {
    let ControlArgs { name, decision } = args;
    if decision.reason.trim().is_empty() {
        let text = "a reason is needed for the audit; add --reason \"WHY\"";
        return Err(Failure::Usage(text.to_owned()));
    }
    let (settings, store) = context.store().await?;
    let declared: Vec<String> = match kind {
        ControlKind::Destination => settings.destinations.iter().map(|d| d.name.clone()).collect(),
        ControlKind::Source => settings.sources.iter().map(|s| s.name.clone()).collect(),
        ControlKind::ProcessType => {
            let types = settings.processes.iter().map(|p| p.definition.process_type());
            types.map(str::to_owned).collect()
        }
    };
    let thing = escape(&format!("{} {name}", kind.words()), Lines::Escape);
    if decision.dry_run {
        let known = relais::control::known(store.as_ref(), kind, &declared).await?;
        if !known.contains(&name) {
            return Err(Failure::failed(format!("no {} is `{name}`", kind.words())));
        }
        return print(context, "dry run", &format!("dry run: {thing} would be {}", words(change)));
    }
    let (actor, reason) = (decision.actor()?, decision.reason);
    let order = ControlOrder { kind, name, change, actor, reason };
    let changed = control(store.as_ref(), order, &declared).await.map_err(|error| match error {
        ControlError::Store(error) => error.into(),
        other => Failure::failed(other),
    })?;
    if !changed {
        return print(context, "unchanged", &format!("{thing} was {} before", words(change)));
    }
    let when = "; every process obeys within 2 seconds";
    print(context, "done", &format!("{thing} is {}{when}", words(change)))
}

fn words(change: ControlChange) -> &'static str {
    match change {
        ControlChange::Pause => "paused",
        ControlChange::Resume => "resumed",
        ControlChange::Limit(_) => "limited until restart",
        ControlChange::ResetBreaker => "reset: its circuit breaker is closed",
    }
}

fn print(context: &Context, result: &str, text: &str) -> Done {
    if context.output.json {
        return context.output.print_json(&json!({ "result": result }));
    }
    context.output.print(text)
}

/// Returns one line for each thing that is paused, for `status` and `top`.
pub(crate) fn paused(controls: &[Control], now: Timestamp) -> Vec<String> {
    let line = |control: &Control| {
        let pause = control.pause.as_ref()?;
        let (kind, name) = (control.kind.words(), &control.name);
        let since = age(pause.at, now);
        let text = format!("{kind} {name}, for {since}, by {}: {}", pause.by, pause.reason);
        Some(escape(&text, Lines::Escape))
    };
    controls.iter().filter_map(line).collect()
}
