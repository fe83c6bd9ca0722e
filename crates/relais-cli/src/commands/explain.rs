//! `relais explain ID`: the history of a message, a process, a dead letter or a bulk job.

use relais::explain::{
    EventDetail, ExplainOutcome, Explanation, Thing, ThingKind, ThingRole, TimelineEvent, explain,
};
use relais_core::{
    control::Control,
    id_prefix::{CHARACTERS_MIN, IDS_MAX, is_too_short},
    process::ProcessEvent,
};
use serde_json::json;

use super::{
    CommandContext,
    control::{OperatorLimits, limits},
    rows::{plain, problem},
};
use crate::{
    args::ExplainArgs,
    failure::{CommandError, Done},
    output::{LineBreaks, TableColumn, Tone, escape, table, wrap},
};

pub(crate) async fn run(context: &CommandContext, args: &ExplainArgs) -> Done {
    let (_, store) = context.store().await?;
    match explain(store.as_ref(), &args.id).await? {
        ExplainOutcome::Nothing if is_too_short(&args.id) => {
            let id = &args.id;
            Err(CommandError::failed(format!(
                "nothing has the ID {id}; pass at least {CHARACTERS_MIN} characters of a longer ID"
            )))
        }
        ExplainOutcome::Nothing => Err(CommandError::failed(format!(
            "no message, inbox or outbox row, process (by ID or TYPE/BUSINESS-KEY), dead letter or bulk job \
             has the ID {}; it may have been removed by retention",
            args.id
        ))),
        ExplainOutcome::Ambiguous(things) => ambiguous(context, &args.id, &things),
        ExplainOutcome::One(mut explanation) => {
            let notes = limit_notes(&store.controls().await?, &explanation.things);
            explanation.notes.extend(notes);
            if context.output.json {
                return context.output.print_json(&explanation);
            }
            print_history(context, &explanation)
        }
    }
}

/// Returns a note for each destination of a pending message that an operator has limited.
fn limit_notes(controls: &[Control], things: &[Thing]) -> Vec<String> {
    let pending = |name: &str| {
        let mut rows = things.iter().filter(|thing| thing.name.kind == ThingKind::Outbox);
        rows.any(|row| row.status == "PENDING" && row.place.as_deref() == Some(name))
    };
    let limits = limits(controls).into_iter().filter(|(name, _)| pending(name));
    let note = |(name, limits): (&str, OperatorLimits)| {
        format!("an operator has limited destination {name} to {}", limits.text(None))
    };
    limits.map(note).collect()
}

fn ambiguous(context: &CommandContext, id: &str, things: &[Thing]) -> Done {
    // Of each kind, at most this many IDs are read.
    let more = things.len() >= IDS_MAX;
    if context.output.json {
        context.output.print_json(&json!({ "ambiguous": things, "more": more }))?;
    } else {
        context.output.print(&things_table(context, things))?;
    }
    let names: Vec<_> = things.iter().map(|thing| thing.name.to_string()).collect();
    let names = names.join(", ");
    Err(CommandError::Usage(match things.len() {
        1 => format!("nothing has the ID {id}; one message ID begins with it; pass {names}"),
        _ if more => format!(
            "{id} is ambiguous; pass one of {names}, or more characters: there may be more matches"
        ),
        _ => format!("{id} is ambiguous; pass one of {names}"),
    }))
}

fn print_history(context: &CommandContext, story: &Explanation) -> Done {
    let output = &context.output;
    output.print(&timeline(context, &story.events))?;
    let now: Vec<_> =
        story.things.iter().filter(|thing| thing.role != ThingRole::Cause).cloned().collect();
    output.print(&format!("\nnow\n{}", things_table(context, &now)))?;
    if let Some(width) = output.width {
        for thing in now.iter().filter(|thing| !next(thing).is_empty()) {
            let line = format!("{}: {}", thing.name, next(thing));
            output.print(&wrap(&escape(&line, LineBreaks::Escape), width))?;
        }
    }
    for note in &story.notes {
        let note = format!("note: {}", escape(note, LineBreaks::Escape));
        output.print("")?;
        output.print(&output.width.map_or_else(|| note.clone(), |width| wrap(&note, width)))?;
    }
    if story.cut {
        output.print(
            "\nthe history is incomplete; run `relais explain` with one of the names above",
        )?;
    }
    Ok(())
}

fn timeline(context: &CommandContext, events: &[TimelineEvent]) -> String {
    const COLUMNS: [TableColumn; 3] =
        [TableColumn::Id("TIME"), TableColumn::Id("ITEM"), TableColumn::Prose("EVENT")];
    let lines = events.iter().map(|event| {
        vec![plain(event.at), plain(&event.about), (event.what.to_string(), tone(&event.what))]
    });
    table(&context.output, &COLUMNS, lines)
}

fn tone(what: &EventDetail) -> Tone {
    match what {
        EventDetail::Processed | EventDetail::Dispatched { .. } => Tone::Good,
        EventDetail::DeadLetter { .. } => Tone::Bad,
        EventDetail::Attempt { outcome, .. } if outcome == "failed" => Tone::Bad,
        EventDetail::Attempt { outcome, .. } if outcome == "delivered" => Tone::Good,
        EventDetail::Attempt { .. } | EventDetail::Action { .. } => Tone::Waiting,
        EventDetail::Step { entry, .. } => tone_of_step(entry),
        EventDetail::Received { .. }
        | EventDetail::Created { .. }
        | EventDetail::JobPlanned { .. }
        | EventDetail::JobEnded { .. } => Tone::Plain,
    }
}

fn tone_of_step(entry: &ProcessEvent) -> Tone {
    match entry {
        ProcessEvent::StepCompleted { .. }
        | ProcessEvent::CompensationCompleted { .. }
        | ProcessEvent::ProcessCompleted { .. } => Tone::Good,
        ProcessEvent::StepFailed { .. }
        | ProcessEvent::StepTimedOut { .. }
        | ProcessEvent::CompensationFailed { .. }
        | ProcessEvent::ProcessFailed { .. } => Tone::Bad,
        ProcessEvent::ProcessPaused { .. } | ProcessEvent::ProcessResumed { .. } => Tone::Waiting,
        ProcessEvent::ProcessStarted { .. }
        | ProcessEvent::StepStarted { .. }
        | ProcessEvent::CompensationStarted { .. } => Tone::Plain,
    }
}

fn things_table(context: &CommandContext, things: &[Thing]) -> String {
    const COLUMNS: [TableColumn; 6] = [
        TableColumn::Id("ITEM"),
        TableColumn::Text("STATUS"),
        TableColumn::Text("TYPE"),
        TableColumn::Text("KEY"),
        TableColumn::Text("WHERE"),
        TableColumn::Prose("NEXT"),
    ];
    let lines = things.iter().map(|thing| {
        let or_dash = |text: &Option<String>| plain(text.as_deref().unwrap_or("-"));
        vec![
            plain(&thing.name),
            (thing.status.clone(), tone_of(thing)),
            or_dash(&thing.event_type),
            or_dash(&thing.key),
            or_dash(&thing.place),
            plain(next(thing)),
        ]
    });
    // On a terminal the next steps follow below, where commands and ids have room.
    let columns = if context.output.width.is_some() { &COLUMNS[..5] } else { &COLUMNS[..] };
    let lines = lines.map(|line: Vec<_>| line.into_iter().take(columns.len()).collect());
    table(&context.output, columns, lines)
}

/// Shows a process that needs an operator in the colour of a failed one.
fn tone_of(thing: &Thing) -> Tone {
    match (thing.name.kind, &thing.problem, thing.status.as_str()) {
        (ThingKind::Process, Some(_), "COMPENSATING") => Tone::Bad,
        _ => Tone::of_status(&thing.status),
    }
}

/// Returns the reason why it waits, the next step, or its last error.
fn next(thing: &Thing) -> String {
    if let Some(letter) = thing.held_by {
        return format!("its key is parked behind dead letter {letter}");
    }
    if let (ThingKind::Process, Some(why)) = (thing.name.kind, &thing.problem) {
        let id = &thing.name.id;
        return match thing.status.as_str() {
            "PAUSED" => format!("{}; relais process resume {id}", why.message),
            "COMPENSATING" | "FAILED" if thing.waits_for.is_some() => format!(
                "needs an operator: {}; relais process retry {id}, or relais process skip {id}",
                why.message
            ),
            _ => format!("{}; relais process show {id}", why.message),
        };
    }
    let last = thing.problem.as_ref();
    let last = problem(last.map(|p| p.code.as_str()), last.map(|p| p.message.as_str()));
    let waits = thing.waits_for.clone();
    let again = thing.next_attempt_at.map(|at| format!("next attempt at {at}"));
    let parts = [waits, again, Some(last).filter(|last| !last.is_empty())];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
