//! Events by time, and at one time causes before effects. Pure.
//!
//! Rows of one commit have one time, and two commits may fall into one millisecond: then what is known of
//! cause and effect decides, and where nothing is known the order in which the events were told.

use std::collections::HashMap;

use relais_core::process::ProcessEvent;

use super::{Event, Kind, Name, What, events::command_of};

/// What the message id of a timer that has fired begins with; its command follows.
const TIMER: &str = "timer:";

/// Sorts; events of one thing come in their order.
pub(super) fn by_time(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|event| event.at);
    let received = events.iter().filter_map(|event| match &event.what {
        What::Received { message_id, .. } => Some((&event.about, message_id.as_str())),
        _ => None,
    });
    let messages: HashMap<&Name, &str> = received.collect();
    let message_of = |event: &Event| messages.get(&event.about).copied();
    let mut sorted = Vec::with_capacity(events.len());
    for moment in events.chunk_by(|a, b| a.at == b.at) {
        let mut left: Vec<&Event> = moment.iter().collect();
        while !left.is_empty() {
            let free = (0..left.len()).find(|&at| {
                let mut others = left.iter().enumerate().filter(|(other, _)| *other != at);
                !others.any(|(other, event)| {
                    let told = if other < at { Told::Before } else { Told::After };
                    precedes(event, message_of(event), left[at], told)
                })
            });
            // A circle says nothing: then the first.
            sorted.push(left.remove(free.unwrap_or(0)).clone());
        }
    }
    sorted
}

/// Which of two events was told first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Before,
    After,
}

/// Whether `first` must stand before `event`; `message_id` is that of the inbox row `first` is about.
fn precedes(first: &Event, message_id: Option<&str>, event: &Event, told: Told) -> bool {
    if first.about == event.about {
        let (one, other) = (rank(first), rank(event));
        return one < other || (one == other && told == Told::Before);
    }
    match &event.what {
        // What came back, or a timer that watched it.
        What::Received { message_id: came, .. } => match &first.what {
            What::Created { message_id: sent, .. } => {
                let sent = sent.to_string();
                *came == sent || came.strip_prefix(TIMER) == Some(&sent)
            }
            _ => false,
        },
        What::Step { message_id: Some(cause), .. } => message_id == Some(cause),
        What::Created { message_id: sent, causation_id, .. } => match &first.what {
            What::Step { entry, .. } => begins(entry) && command_of(entry) == Some(*sent),
            _ => causation_id.is_some() && message_id == causation_id.as_deref(),
        },
        _ => false,
    }
}

fn begins(entry: &ProcessEvent) -> bool {
    matches!(entry, ProcessEvent::StepStarted { .. } | ProcessEvent::CompensationStarted { .. })
}

/// Within one moment of one process: what a person did, what came of it by number, what needs a person.
/// That an inbox row was handled is its last event. Everything else comes as it was told.
fn rank(event: &Event) -> i64 {
    match (&event.what, event.about.kind) {
        (What::Step { seq, .. }, _) => *seq,
        (What::DeadLetter { .. }, Kind::Process) | (What::Processed, _) => i64::MAX,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use relais_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    const COMMAND: Uuid = Uuid::from_u128(7);

    fn at(moment: i64, kind: Kind, id: &str, what: What) -> Event {
        Event { at: Timestamp(moment), about: Name::new(kind, id), what }
    }

    fn received(id: &str, message_id: &str) -> Event {
        let what = What::Received {
            source_system: "shop".into(),
            topic: "hook".into(),
            partition: None,
            offset: None,
            event_ts: None,
            event_type: None,
            message_id: message_id.into(),
            key: "k".into(),
        };
        at(1, Kind::Inbox, id, what)
    }

    fn created(cause: &str) -> Event {
        let what = What::Created {
            destination: "d".into(),
            event_type: "e".into(),
            message_id: COMMAND,
            key: "k".into(),
            causation_id: Some(cause.into()),
            correlation_id: None,
        };
        at(1, Kind::Outbox, "1", what)
    }

    fn step(seq: i64, cause: &str, entry: ProcessEvent) -> Event {
        let what = What::Step {
            process_type: "order".into(),
            seq,
            entry,
            message_id: Some(cause.into()),
            note: None,
            actor: None,
            reason: None,
        };
        at(1, Kind::Process, "p", what)
    }

    fn dead() -> Event {
        let what = What::DeadLetter {
            dead_letter: Uuid::nil(),
            failed_status: "FAILED".into(),
            code: None,
            message: None,
            attempts: 1,
            worker: "w".into(),
        };
        at(1, Kind::Process, "p", what)
    }

    fn names(events: Vec<Event>) -> Vec<String> {
        let name = |event: &Event| match &event.what {
            What::Step { entry, .. } => entry.name().to_owned(),
            What::Received { message_id, .. } => format!("received {message_id}"),
            What::Processed => "processed".to_owned(),
            What::Created { .. } => "created".to_owned(),
            What::DeadLetter { .. } => "dead".to_owned(),
            What::Attempt { outcome, .. } => outcome.clone(),
            other => panic!("{other:?}"),
        };
        by_time(events).iter().map(name).collect()
    }

    #[test]
    fn at_one_time_causes_stand_before_effects_however_they_were_told() {
        let started = ProcessEvent::StepStarted { step: "s".into(), command_id: COMMAND };
        let failed = ProcessEvent::StepFailed {
            step: "s".into(),
            command_id: Some(COMMAND),
            error: "no".into(),
            retryable: false,
        };
        let told = vec![
            dead(),
            step(2, "timer:00000000-0000-0000-0000-000000000007", failed),
            created("m-1"),
            step(1, "m-1", started),
            received("2", "timer:00000000-0000-0000-0000-000000000007"),
            received("1", "m-1"),
            at(1, Kind::Inbox, "1", What::Processed),
        ];
        let wanted = [
            "received m-1",
            "processed",
            "StepStarted",
            "created",
            "received timer:00000000-0000-0000-0000-000000000007",
            "StepFailed",
            "dead",
        ];
        assert_eq!(names(told), wanted);
    }

    #[test]
    fn what_was_ignored_stands_before_the_end_of_the_commit_that_says_so() {
        let what = What::Attempt {
            attempt: 1,
            outcome: "ignored".into(),
            code: None,
            message: None,
            worker: "w".into(),
        };
        let ignored = || at(1, Kind::Inbox, "1", what.clone());
        let processed = || at(1, Kind::Inbox, "1", What::Processed);
        for told in [[processed(), ignored()], [ignored(), processed()]] {
            assert_eq!(names(told.to_vec()), ["ignored", "processed"]);
        }
    }

    #[test]
    fn time_goes_before_everything() {
        let mut early = created("m-1");
        early.at = Timestamp(0);
        assert_eq!(names(vec![received("1", "m-1"), early]), ["created", "received m-1"]);
    }
}
