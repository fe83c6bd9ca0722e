//! `relais destination …`, `relais source …`, `relais process pause-type`: pauses, limits and resets.

use std::collections::{BTreeMap, BTreeSet};

use relais::control::{ControlError, control};
use relais_core::{
    control::{Control, ControlChange, ControlKind, ControlOrder, LimitChange},
    store::{StoreDriver, StoreError},
    time::Timestamp,
};
use serde::Serialize;
use serde_json::json;

use super::CommandContext;
use crate::{
    args::{ControlArgs, DestinationCommand, SourceCommand},
    failure::{CommandError, Done},
    output::{LineBreaks, age, escape},
    settings::{
        HandlerConfig, Settings,
        quantity::{Rate, show_rate},
    },
};

/// Limits that an operator has set; the others stay as configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OperatorLimits {
    rate: Option<String>,
    concurrency: Option<u32>,
}

impl OperatorLimits {
    fn of(limits: LimitChange) -> Option<Self> {
        let LimitChange { rate, concurrency } = limits;
        let rate = rate.map(|(calls, period)| show_rate(Rate { calls, period }));
        (rate.is_some() || concurrency.is_some()).then_some(Self { rate, concurrency })
    }

    /// Formats them as in `5/s, 1 at a time`; without a rate of its own, with the given one.
    pub(crate) fn text(&self, rate: Option<&str>) -> String {
        let rate = self.rate.as_deref().or(rate).map(str::to_owned);
        let calls = self.concurrency.map(|calls| format!("{calls} at a time"));
        rate.into_iter().chain(calls).collect::<Vec<_>>().join(", ")
    }
}

pub(crate) async fn destination(context: &CommandContext, command: DestinationCommand) -> Done {
    let kind = ControlKind::Destination;
    let (args, change) = match command {
        DestinationCommand::Pause(args) => (args, ControlChange::Pause),
        DestinationCommand::Resume(args) => (args, ControlChange::Resume),
        DestinationCommand::ResetBreaker(args) => (args, ControlChange::ResetBreaker),
        DestinationCommand::Limit(args) => {
            if args.rate.is_none() && args.concurrency.is_none() && !args.reset {
                let text = "cannot change limits: none is given; pass --rate, --concurrency, or --reset \
                            to restore the configured limits";
                return Err(CommandError::Usage(text.to_owned()));
            }
            let rate = args.rate.map(|rate| (rate.calls, rate.period));
            let limits = LimitChange { rate, concurrency: args.concurrency };
            (args.control, ControlChange::Limit(limits))
        }
    };
    act(context, kind, change, args).await
}

pub(crate) async fn source(context: &CommandContext, command: SourceCommand) -> Done {
    let (args, change) = match command {
        SourceCommand::Pause(args) => (args, ControlChange::Pause),
        SourceCommand::Resume(args) => (args, ControlChange::Resume),
    };
    act(context, ControlKind::Source, change, args).await
}

pub(crate) async fn process_type(
    context: &CommandContext,
    change: ControlChange,
    args: ControlArgs,
) -> Done {
    act(context, ControlKind::ProcessType, change, args).await
}

async fn act(
    context: &CommandContext,
    kind: ControlKind,
    change: ControlChange,
    args: ControlArgs,
) -> Done {
    let ControlArgs { name, decision } = args;
    if decision.reason.trim().is_empty() {
        let text = "cannot act without a reason; pass --reason TEXT";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let (settings, store) = context.store().await?;
    let declared = declared(&settings, kind);
    let thing = escape(&format!("{} {name}", kind.words()), LineBreaks::Escape);
    if decision.dry_run {
        let known = relais::control::known(store.as_ref(), kind, &declared).await?;
        if !known.contains(&name) {
            return Err(CommandError::failed(unknown(kind, &name, &known)));
        }
        return print(context, "dry run", &format!("dry run: {thing} would be {}", words(change)));
    }
    let (actor, reason) = (decision.actor()?, decision.reason);
    let order = ControlOrder { kind, name, change, actor, reason };
    let changed = control(store.as_ref(), order, &declared).await.map_err(|error| match error {
        ControlError::Store(error) => error.into(),
        other => CommandError::failed(other),
    })?;
    if !changed {
        return print(context, "unchanged", &format!("{thing} is already {}", words(change)));
    }
    let when = "; all processes apply it within 2 seconds";
    print(context, "done", &format!("{thing} is {}{when}", words(change)))
}

fn words(change: ControlChange) -> &'static str {
    match change {
        ControlChange::Pause => "paused",
        ControlChange::Resume => "resumed",
        ControlChange::Limit(LimitChange { rate: None, concurrency: None }) => {
            "reset to its configured limits"
        }
        ControlChange::Limit(_) => "limited until it is reset",
        ControlChange::ResetBreaker => "reset: its circuit breaker lets the next call through",
    }
}

fn print(context: &CommandContext, result: &str, text: &str) -> Done {
    if context.output.json {
        return context.output.print_json(&json!({ "result": result }));
    }
    context.output.print(text)
}

/// Returns the configured names of a kind.
fn declared(settings: &Settings, kind: ControlKind) -> Vec<String> {
    match kind {
        ControlKind::Destination => {
            let names = settings.destinations.iter().map(|d| d.name.clone());
            names.chain(settings.handlers.iter().map(HandlerConfig::target)).collect()
        }
        ControlKind::Source => settings.sources.iter().map(|s| s.name.clone()).collect(),
        ControlKind::ProcessType => {
            let types = settings.processes.iter().map(|p| p.definition.process_type());
            types.map(str::to_owned).collect()
        }
    }
}

/// Returns an error text with the nearest name if a filter names an unknown destination.
pub(super) async fn unknown_destination(
    settings: &Settings,
    store: &dyn StoreDriver,
    destination: Option<&str>,
) -> Result<Option<String>, StoreError> {
    let Some(name) = destination else { return Ok(None) };
    let kind = ControlKind::Destination;
    let known = relais::control::known(store, kind, &declared(settings, kind)).await?;
    let is_known = known.contains(name) || settings.delivers_to(name);
    Ok((!is_known).then(|| unknown(kind, name, &known)))
}

fn unknown(kind: ControlKind, name: &str, known: &BTreeSet<String>) -> String {
    let nearest = nearest(name, known);
    let hint = nearest.map_or_else(
        || "`relais status` lists the names".to_owned(),
        |nearest| format!("did you mean `{nearest}`?"),
    );
    escape(&format!("no {} is `{name}`; {hint}", kind.words()), LineBreaks::Escape)
}

/// Returns the known name with the fewest edits, if these are few enough for a typo.
fn nearest<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a String> {
    let tolerated = (name.chars().count() / 3).max(1);
    let edits = |known: &&String| strsim::osa_distance(name, known);
    known.iter().min_by_key(edits).filter(|nearest| edits(nearest) <= tolerated)
}

/// Returns the limits that operators have set, by destination.
pub(crate) fn limits(controls: &[Control]) -> BTreeMap<&str, OperatorLimits> {
    let limited = controls.iter().filter(|control| control.kind == ControlKind::Destination);
    limited.filter_map(|c| Some((c.name.as_str(), OperatorLimits::of(c.limits)?))).collect()
}

/// Returns one line per destination that an operator has limited, for `status` and `top`.
pub(crate) fn limited(controls: &[Control]) -> Vec<String> {
    let line = |(name, limits): (&str, OperatorLimits)| {
        let text = format!("destination {name}, by an operator: {}", limits.text(None));
        escape(&text, LineBreaks::Escape)
    };
    limits(controls).into_iter().map(line).collect()
}

/// Returns one line per paused destination, source and process type, for `status` and `top`.
pub(crate) fn paused(controls: &[Control], now: Timestamp) -> Vec<String> {
    let line = |control: &Control| {
        let pause = control.pause.as_ref()?;
        let (kind, name) = (control.kind.words(), &control.name);
        let since = age(pause.at, now);
        let text = format!("{kind} {name}, for {since}, by {}: {}", pause.by, pause.reason);
        Some(escape(&text, LineBreaks::Escape))
    };
    controls.iter().filter_map(line).collect()
}
