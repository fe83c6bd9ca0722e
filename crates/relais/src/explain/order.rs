//! Sorts events by time, and at one time causes before effects. Pure.
//!
//! Rows of one commit have one time, and two commits may have the same millisecond: then cause and effect
//! decide, as far as they are known, and otherwise the order in which the events were listed.

use std::collections::HashMap;

use relais_core::process::ProcessEvent;

use super::{EventDetail, ThingKind, ThingName, TimelineEvent, events::command_of};

/// The prefix of the message id of a fired timer; its command follows.
const TIMER: &str = "timer:";

/// Sorts events; those of one thing keep their order.
pub(super) fn by_time(mut events: Vec<TimelineEvent>) -> Vec<TimelineEvent> {
    events.sort_by_key(|event| event.at);
    let received = events.iter().filter_map(|event| match &event.what {
        EventDetail::Received { message_id, .. } => Some((&event.about, message_id.as_str())),
        _ => None,
    });
    let messages: HashMap<&ThingName, &str> = received.collect();
    let message_of = |event: &TimelineEvent| messages.get(&event.about).copied();
    let mut sorted = Vec::with_capacity(events.len());
    for moment in events.chunk_by(|a, b| a.at == b.at) {
        let mut left: Vec<&TimelineEvent> = moment.iter().collect();
        while !left.is_empty() {
            let free = (0..left.len()).find(|&at| {
                let mut others = left.iter().enumerate().filter(|(other, _)| *other != at);
                !others.any(|(other, event)| {
                    let place = if other < at { ListPlace::Before } else { ListPlace::After };
                    precedes(event, message_of(event), left[at], place)
                })
            });
            // In a cycle, the first one.
            sorted.push(left.remove(free.unwrap_or(0)).clone());
        }
    }
    sorted
}

/// The place of an event in the list, relative to another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListPlace {
    Before,
    After,
}

/// Returns whether `first` must come before `event`; `message_id` is that of the inbox row of `first`.
fn precedes(
    first: &TimelineEvent,
    message_id: Option<&str>,
    event: &TimelineEvent,
    place: ListPlace,
) -> bool {
    if first.about == event.about {
        let (one, other) = (rank(first), rank(event));
        return one < other || (one == other && place == ListPlace::Before);
    }
    match &event.what {
        // A reply, or the timer of the command.
        EventDetail::Received { message_id: came, .. } => match &first.what {
            EventDetail::Created { message_id: sent, .. } => {
                let sent = sent.to_string();
                *came == sent || came.strip_prefix(TIMER) == Some(&sent)
            }
            _ => false,
        },
        EventDetail::Step { message_id: Some(cause), .. } => message_id == Some(cause),
        EventDetail::Created { message_id: sent, causation_id, .. } => match &first.what {
            EventDetail::Step { entry, .. } => begins(entry) && command_of(entry) == Some(*sent),
            _ => causation_id.is_some() && message_id == causation_id.as_deref(),
        },
        _ => false,
    }
}

fn begins(entry: &ProcessEvent) -> bool {
    matches!(entry, ProcessEvent::StepStarted { .. } | ProcessEvent::CompensationStarted { .. })
}

/// Returns the rank within one moment of one thing. Of a process: actions of operators, log entries by
/// number, dead letters. Of an inbox row: that it was handled comes last. Other events keep their order.
fn rank(event: &TimelineEvent) -> i64 {
    match (&event.what, event.about.kind) {
        (EventDetail::Step { seq, .. }, _) => *seq,
        (EventDetail::DeadLetter { .. }, ThingKind::Process) | (EventDetail::Processed, _) => {
            i64::MAX
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use relais_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    const COMMAND: Uuid = Uuid::from_u128(7);

    fn at(moment: i64, kind: ThingKind, id: &str, what: EventDetail) -> TimelineEvent {
        TimelineEvent { at: Timestamp(moment), about: ThingName::new(kind, id), what }
    }

    fn received(id: &str, message_id: &str) -> TimelineEvent {
        let what = EventDetail::Received {
            source_system: "shop".into(),
            topic: "hook".into(),
            partition: None,
            offset: None,
            event_ts: None,
            event_type: None,
            message_id: message_id.into(),
            key: "k".into(),
        };
        at(1, ThingKind::Inbox, id, what)
    }

    fn created(cause: &str) -> TimelineEvent {
        let what = EventDetail::Created {
            destination: "d".into(),
            event_type: "e".into(),
            message_id: COMMAND,
            key: "k".into(),
            causation_id: Some(cause.into()),
            correlation_id: None,
        };
        at(1, ThingKind::Outbox, "1", what)
    }

    fn step(seq: i64, cause: &str, entry: ProcessEvent) -> TimelineEvent {
        let what = EventDetail::Step {
            process_type: "order".into(),
            seq,
            entry,
            message_id: Some(cause.into()),
            note: None,
            actor: None,
            reason: None,
        };
        at(1, ThingKind::Process, "p", what)
    }

    fn dead() -> TimelineEvent {
        let what = EventDetail::DeadLetter {
            dead_letter: Uuid::nil(),
            failed_status: "FAILED".into(),
            code: None,
            message: None,
            attempts: 1,
            worker: "w".into(),
        };
        at(1, ThingKind::Process, "p", what)
    }

    fn names(events: Vec<TimelineEvent>) -> Vec<String> {
        let name = |event: &TimelineEvent| match &event.what {
            EventDetail::Step { entry, .. } => entry.name().to_owned(),
            EventDetail::Received { message_id, .. } => format!("received {message_id}"),
            EventDetail::Processed => "processed".to_owned(),
            EventDetail::Created { .. } => "created".to_owned(),
            EventDetail::DeadLetter { .. } => "dead".to_owned(),
            EventDetail::Attempt { outcome, .. } => outcome.clone(),
            other => panic!("{other:?}"),
        };
        by_time(events).iter().map(name).collect()
    }

    #[test]
    fn at_one_time_causes_come_before_effects_however_they_were_listed() {
        let started = ProcessEvent::StepStarted { step: "s".into(), command_id: COMMAND };
        let failed = ProcessEvent::StepFailed {
            step: "s".into(),
            command_id: Some(COMMAND),
            error: "no".into(),
            retryable: false,
        };
        let listed = vec![
            dead(),
            step(2, "timer:00000000-0000-0000-0000-000000000007", failed),
            created("m-1"),
            step(1, "m-1", started),
            received("2", "timer:00000000-0000-0000-0000-000000000007"),
            received("1", "m-1"),
            at(1, ThingKind::Inbox, "1", EventDetail::Processed),
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
        assert_eq!(names(listed), wanted);
    }

    #[test]
    fn an_ignored_message_comes_before_the_end_of_its_commit() {
        let what = EventDetail::Attempt {
            attempt: 1,
            outcome: "ignored".into(),
            code: None,
            message: None,
            worker: "w".into(),
        };
        let ignored = || at(1, ThingKind::Inbox, "1", what.clone());
        let processed = || at(1, ThingKind::Inbox, "1", EventDetail::Processed);
        for listed in [[processed(), ignored()], [ignored(), processed()]] {
            assert_eq!(names(listed.to_vec()), ["ignored", "processed"]);
        }
    }

    #[test]
    fn time_has_priority() {
        let mut early = created("m-1");
        early.at = Timestamp(0);
        assert_eq!(names(vec![received("1", "m-1"), early]), ["created", "received m-1"]);
    }
}
