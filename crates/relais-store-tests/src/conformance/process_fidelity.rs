//! What a process holds comes back as it was: nested data, every kind of event, long values, nothing.

use std::collections::BTreeSet;

use relais_core::process::{Change, Entry, ProcessEvent, ProcessStatus};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Start,
    process_build::{TYPE, after, applied, begun, failed, found, log, running, step_started},
};
use crate::{build::wide_text, fixture::Fixture};

pub const START: Start = Start::Migrated;

/// Everything that text goes wrong with somewhere.
const SPECIAL: &str =
    "'\"\\/ \t\r\n \u{1} \u{7f} é ü 日本 😀 \u{202e} ; DROP TABLE -- $1 ?1 :x %s {{y}}";

fn nested() -> Value {
    json!({
        "order": { "lines": [{ "sku": "A", "n": 1 }, { "sku": SPECIAL, "n": -0.5 }], "empty": {} },
        SPECIAL: [null, true, false, [], [[1]], 9_007_199_254_740_993_i64, 1e-7],
        "": "",
    })
}

pub async fn nested_data_with_special_characters_comes_back_byte_for_byte(f: &dyn Fixture) {
    let mut change = begun(TYPE, Some(SPECIAL));
    // Not as serde would write it: white space, a number beyond 64 bits, a name that comes twice.
    change.process.data =
        format!("{{ \"a\" : {},\n\"n\": 1e400, \"n\": 123456789012345678901234567890 }}", nested());
    change.process.progress = json!({ "completed": [SPECIAL] }).to_string();
    change.process.current_step = Some(SPECIAL.to_owned());
    change.log[0] = Entry::of(ProcessEvent::ProcessStarted {
        process_type: SPECIAL.to_owned(),
        business_key: Some(SPECIAL.to_owned()),
        initial_data: nested(),
    });
    let process = applied(f, change.clone()).await;
    assert_eq!(process.data, change.process.data);
    assert_eq!(process.progress, change.process.progress);
    assert_eq!(process.business_key.as_deref(), Some(SPECIAL));
    assert_eq!(process.current_step.as_deref(), Some(SPECIAL));
    assert_eq!(log(f, process.process_id).await[0].entry, change.log[0]);
}

fn every_event() -> Vec<ProcessEvent> {
    let text = str::to_owned;
    let (step, command_id) = (|| text("reserve"), Uuid::new_v4());
    let (error, reason) = (|| text(SPECIAL), || text(SPECIAL));
    vec![
        ProcessEvent::ProcessStarted {
            process_type: text(TYPE),
            business_key: None,
            initial_data: nested(),
        },
        ProcessEvent::StepStarted { step: step(), command_id },
        ProcessEvent::StepCompleted {
            step: step(),
            command_id: Some(command_id),
            result_data: nested(),
        },
        ProcessEvent::StepFailed {
            step: step(),
            command_id: None,
            error: error(),
            retryable: true,
        },
        ProcessEvent::StepTimedOut { step: step(), command_id, error: error() },
        ProcessEvent::CompensationStarted { step: step(), command_id },
        ProcessEvent::CompensationCompleted { step: step(), command_id: Some(command_id) },
        ProcessEvent::CompensationFailed { step: step(), command_id: None, error: error() },
        ProcessEvent::ProcessCompleted { reason: reason() },
        ProcessEvent::ProcessFailed { reason: reason() },
        ProcessEvent::ProcessPaused { reason: reason(), paused_by: text("ann") },
        ProcessEvent::ProcessResumed { reason: reason(), resumed_by: text("ann") },
    ]
}

pub async fn all_twelve_event_types_come_back_from_the_log(f: &dyn Fixture) {
    let events = every_event();
    let names: BTreeSet<_> = events.iter().map(ProcessEvent::name).collect();
    assert_eq!(names.len(), 12);
    let process = applied(f, begun(TYPE, None)).await;
    applied(f, after(&process, ProcessStatus::Running, events.clone())).await;
    let log = log(f, process.process_id).await;
    let found: Vec<_> = log.iter().rev().skip(1).map(|e| e.entry.event.clone()).collect();
    assert_eq!(found, events);
    let stored = f.rows("SELECT event_type FROM relais_process_log WHERE seq > 1 ORDER BY seq");
    let stored: Vec<_> = stored.await.into_iter().flatten().flatten().collect();
    assert_eq!(stored, events.iter().map(ProcessEvent::name).collect::<Vec<_>>());
}

pub async fn an_entry_keeps_who_why_and_what_else_there_is_to_say(f: &dyn Fixture) {
    let process = running(f, None).await;
    let mut change = after(&process, ProcessStatus::Running, vec![step_started("reserve")]);
    change.message_id = Some("m-1".to_owned());
    change.log[0] = Entry {
        note: Some("late: the step was completed before".to_owned()),
        actor: Some("ann".to_owned()),
        reason: Some(SPECIAL.to_owned()),
        ..change.log[0].clone()
    };
    applied(f, change.clone()).await;
    let log = log(f, process.process_id).await;
    assert_eq!((&log[0].entry, &log[0].message_id), (&change.log[0], &change.message_id));
}

pub async fn entries_of_one_message_are_found_in_every_process(f: &dyn Fixture) {
    let mut processes = Vec::new();
    for _ in 0..2 {
        let process = running(f, None).await;
        let events = vec![step_started("a"), step_started("b")];
        let change = after(&process, ProcessStatus::Running, events);
        let message_id = Some("m-1".to_owned());
        processes.push(applied(f, Change { message_id, ..change }).await.process_id);
    }
    let change = begun(TYPE, None);
    applied(f, Change { message_id: Some("m-10".to_owned()), ..change }).await;
    let caused = f.store().trail("m-1".to_owned()).await.expect("trail").process_log;
    let found: Vec<_> = caused.iter().map(|entry| (entry.process_id, entry.seq)).collect();
    let wanted = [(processes[0], 3), (processes[0], 4), (processes[1], 3), (processes[1], 4)];
    assert_eq!(found, wanted);
    assert!(f.store().trail("nobody".to_owned()).await.expect("trail").process_log.is_empty());
}

pub async fn long_values_of_a_process_are_kept_whole(f: &dyn Fixture) {
    let long = wide_text(50_000, 7);
    let key = wide_text(1_000, 8);
    let mut change = begun(TYPE, Some(&key));
    change.process.data = json!({ "long": long }).to_string();
    let process = applied(f, change.clone()).await;
    assert_eq!(process.data, change.process.data);
    assert_eq!(process.business_key, Some(key));
    let change = after(&process, ProcessStatus::Failed, vec![failed(&long)]);
    applied(f, Change { message_id: Some(wide_text(200, 9)), ..change.clone() }).await;
    let log = log(f, process.process_id).await;
    assert_eq!((&log[0].entry, &log[0].message_id), (&change.log[0], &Some(wide_text(200, 9))));
}

pub async fn what_a_process_does_not_have_is_null(f: &dyn Fixture) {
    let first = applied(f, begun(TYPE, None)).await;
    let second = applied(f, begun(TYPE, None)).await;
    assert_ne!(first.process_id, second.process_id, "no key is no key, not the same one");
    for process in [first, second] {
        assert_eq!((&process.business_key, &process.current_step), (&None, &None));
        let mut change = after(&process, ProcessStatus::Running, vec![step_started("a")]);
        change.process.current_step = Some("a".to_owned());
        let mut process = applied(f, change).await;
        process.current_step = None;
        let change = after(&process, ProcessStatus::Succeeded, vec![step_started("b")]);
        applied(f, change).await;
        let process = found(f, process.process_id).await.expect("the process");
        assert_eq!(process.current_step, None, "the last step is over");
    }
    let nulls = "SELECT count(*) FROM relais_process WHERE business_key IS NULL";
    assert_eq!(f.number(nulls).await, 2);
}

pub async fn only_the_seven_states_are_accepted(f: &dyn Fixture) {
    let process = running(f, None).await;
    for status in ProcessStatus::ALL {
        let status = status.as_str();
        f.run(&format!("UPDATE relais_process SET status = '{status}'")).await;
        let found = found(f, process.process_id).await.expect("the process");
        assert_eq!(found.status.as_str(), status);
    }
    for wrong in ["'running'", "'DONE'", "''", "NULL"] {
        f.refuses(&format!("UPDATE relais_process SET status = {wrong}")).await;
    }
}
