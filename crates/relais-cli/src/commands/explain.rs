//! `relais explain ID`: the story of a message, a process or a dead letter.

use relais::explain::{
    EventDetail, ExplainOutcome, Explanation, Thing, ThingKind, ThingRole, TimelineEvent, explain,
};
use relais_core::process::ProcessEvent;
use serde_json::json;

use super::{
    Context, ids,
    rows::{plain, problem},
};
use crate::{
    args::{ExplainArgs, IdPrefix},
    failure::{Done, Failure},
    output::{Column, Lines, Tone, escape, table},
};

pub(crate) async fn run(context: &Context, args: &ExplainArgs) -> Done {
    let (_, store) = context.store().await?;
    let mut found = explain(store.as_ref(), &args.id).await?;
    if let (ExplainOutcome::Nothing, Some(prefix)) = (&found, IdPrefix::parse(&args.id))
        && let Some(id) = ids::any(store.as_ref(), &prefix).await?
    {
        found = explain(store.as_ref(), &id.to_string()).await?;
    }
    match found {
        ExplainOutcome::Nothing => Err(Failure::failed(format!(
            "nothing here has the id {}: no message, inbox or outbox row, process (by id or \
             TYPE/BUSINESS-KEY) or dead letter",
            args.id
        ))),
        ExplainOutcome::Ambiguous(things) => ambiguous(context, &args.id, &things),
        ExplainOutcome::One(explanation) if context.output.json => {
            context.output.print_json(&explanation)
        }
        ExplainOutcome::One(explanation) => tell(context, &explanation),
    }
}

fn ambiguous(context: &Context, id: &str, things: &[Thing]) -> Done {
    if context.output.json {
        context.output.print_json(&json!({ "ambiguous": things }))?;
    } else {
        context.output.print(&things_table(context, things))?;
    }
    let names: Vec<_> = things.iter().map(|thing| thing.name.to_string()).collect();
    Err(Failure::Usage(format!("{id} is several things; ask for one: {}", names.join(" or "))))
}

fn tell(context: &Context, story: &Explanation) -> Done {
    let output = &context.output;
    output.print(&timeline(context, &story.events))?;
    let now: Vec<_> =
        story.things.iter().filter(|thing| thing.role != ThingRole::Cause).cloned().collect();
    output.print(&format!("\nnow\n{}", things_table(context, &now)))?;
    for note in &story.notes {
        output.print(&format!("\nnote: {}", escape(note, Lines::Escape)))?;
    }
    if story.cut {
        output.print(
            "\nthere is more than is told here; ask for one of the things above by its name",
        )?;
    }
    Ok(())
}

fn timeline(context: &Context, events: &[TimelineEvent]) -> String {
    const COLUMNS: [Column; 3] = [Column::Id("TIME"), Column::Id("WHAT"), Column::Id("EVENT")];
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

fn things_table(context: &Context, things: &[Thing]) -> String {
    const COLUMNS: [Column; 6] = [
        Column::Id("WHAT"),
        Column::Text("STATUS"),
        Column::Text("TYPE"),
        Column::Text("KEY"),
        Column::Text("WHERE"),
        Column::Id("NEXT"),
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
    table(&context.output, &COLUMNS, lines)
}

/// A process that needs an operator is as bad as one that failed.
fn tone_of(thing: &Thing) -> Tone {
    match (thing.name.kind, &thing.problem, thing.status.as_str()) {
        (ThingKind::Process, Some(_), "COMPENSATING") => Tone::Bad,
        _ => Tone::of_status(&thing.status),
    }
}

/// What it waits for, or what was wrong with it last.
fn next(thing: &Thing) -> String {
    if let Some(letter) = thing.held_by {
        return format!("its key waits behind dead letter {letter}");
    }
    if let (ThingKind::Process, Some(why)) = (thing.name.kind, &thing.problem) {
        let id = &thing.name.id;
        return match thing.status.as_str() {
            "PAUSED" => format!("{}; relais process resume {id}", why.message),
            "COMPENSATING" => format!(
                "needs an operator: {}; relais process retry {id}, or skip {id}",
                why.message
            ),
            _ => format!("{}; relais process show {id}", why.message),
        };
    }
    let last = thing.problem.as_ref();
    let last = problem(last.map(|p| p.code.as_str()), last.map(|p| p.message.as_str()));
    let waits = thing.waits_for.clone();
    let again = thing.next_attempt_at.map(|at| format!("again at {at}"));
    let parts = [waits, again, Some(last).filter(|last| !last.is_empty())];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
