//! Forward: steps, attempts, time-outs, and the ends a process can come to.

use serde_json::{Value, json};

use super::*;
use crate::process::{TIMER_FIRED, create, definition::ProcessStart};

#[test]
fn a_process_sends_one_command_after_the_other_and_succeeds() {
    let mut world = World::start();
    assert_eq!(
        (world.status(), world.process.current_step.as_deref()),
        (ProcessStatus::Running, Some("pay"))
    );
    world.completed(&["pay", "pack", "ship"]);
    assert_eq!(world.commands(), ["pay", "pack", "ship"]);
    assert_eq!(
        world.told(),
        [
            "ProcessStarted",
            "StepStarted pay",
            "StepCompleted pay",
            "StepStarted pack",
            "StepCompleted pack",
            "StepStarted ship",
            "StepCompleted ship",
            "ProcessCompleted",
        ]
    );
    assert_eq!(
        (world.status(), world.process.current_step.as_deref()),
        (ProcessStatus::Succeeded, None)
    );
    assert_eq!((world.timer.as_ref(), world.dead_letter), (None, None));
    assert_eq!(world.process.version, 8);
}

#[test]
fn a_start_is_the_same_process_with_the_same_commands_however_often_it_is_read() {
    let definition = declared().build().unwrap();
    let placed = row("m-0", "Placed", r#"{"id":"O-1"}"#);
    let change = start(&definition, &placed).unwrap();
    assert_eq!(change, start(&definition, &placed).unwrap());
    assert_eq!((change.from, change.process.version), (0, 2));
    assert_eq!(change.process.business_key.as_deref(), Some("O-1"));
    let other = start(&definition, &row("m-1", "Placed", r#"{"id":"O-1"}"#)).unwrap();
    assert_ne!(change.process.process_id, other.process.process_id);
}

#[test]
fn a_command_says_what_it_belongs_to_and_what_caused_it() {
    let definition = declared().build().unwrap();
    let mut placed = row("m-0", "Placed", r#"{"id":"O-1"}"#);
    placed.headers.set("traceparent", "00-a-b-01");
    let world = World::start_with(definition, &placed);
    let (process_id, command) = (world.process.process_id.to_string(), &world.sent[0]);
    assert_eq!((command.destination.as_str(), command.event_type.as_str()), ("pays", "pay"));
    assert_eq!(command.category.as_str(), "command");
    assert_eq!(command.correlation_id.as_deref(), Some(process_id.as_str()));
    assert_eq!(command.causation_id.as_deref(), Some("m-0"));
    assert_eq!(
        (command.msg_key.as_str(), command.aggregate_id.as_str()),
        (process_id.as_str(), process_id.as_str())
    );
    assert_eq!(command.aggregate_type, "Order");
    assert_eq!(command.headers.get("idempotency-key"), Some(format!("{process_id}/pay").as_str()));
    assert_eq!(command.headers.get("traceparent"), Some("00-a-b-01"));
    assert_eq!(world.last.message_id.as_deref(), Some("m-0"));
}

#[test]
fn a_process_that_is_created_waits_until_it_is_begun() {
    let definition = declared().build().unwrap();
    let begun = definition.begun(Some("O-1"), r#"{"id":"O-1"}"#).unwrap();
    let change = create(&definition, Uuid::from_u128(7), begun, None);
    let mut world = World::of(definition, change);
    assert_eq!((world.status(), world.sent.len()), (ProcessStatus::New, 0));
    world.reply("payDone");
    assert!(world.only_logged());
    assert_eq!(world.status(), ProcessStatus::New);
    world.act(Action::Resume);
    assert_eq!((world.status(), world.commands()), (ProcessStatus::Running, vec!["pay"]));
    assert_eq!(world.process.data, r#"{"input":{"id":"O-1"},"steps":{}}"#);
}

#[test]
fn a_process_can_be_begun_without_an_event() {
    let definition = declared().build().unwrap();
    let begun = ProcessStart { business_key: None, ..definition.begun(None, "{}").unwrap() };
    let change = crate::process::begin(&definition, Uuid::from_u128(7), begun, Some("cli"));
    assert_eq!(change.process.status, ProcessStatus::Running);
    assert_eq!((change.messages.len(), change.message_id.as_deref()), (1, Some("cli")));
}

#[test]
fn a_retryable_failure_is_tried_again_after_a_pause_under_a_new_id_and_the_same_idempotency_key() {
    let mut world = World::start();
    world.reply_to(0, "payBusy");
    assert_eq!((world.status(), world.process.retries), (ProcessStatus::Running, 1));
    assert_eq!(world.sent.len(), 1);
    assert!(world.timer.as_ref().unwrap().after < Duration::from_secs(1));
    world.fire();
    let (first, second) = (world.sent[0].clone(), world.sent[1].clone());
    assert_ne!(first.message_id, second.message_id);
    assert_eq!(first.headers, second.headers);
    assert_eq!(second.causation_id, world.last.message_id);
    assert_eq!(world.timer.as_ref().unwrap().after, Duration::from_secs(30));
    world.reply_to(1, "payDone");
    assert_eq!((world.process.current_step.as_deref(), world.process.retries), (Some("pack"), 0));
    let failed = world.log.iter().find(|entry| entry.event.name() == "StepFailed").unwrap();
    assert_eq!(
        serde_json::to_value(&failed.event).unwrap(),
        json!({"type": "StepFailed", "step": "pay", "commandId": first.message_id,
               "error": "no luck", "retryable": true})
    );
}

#[test]
fn the_timer_of_a_pause_never_has_the_id_of_a_time_out() {
    // The store makes message ids of them; the second of two equal ones would count as a duplicate.
    let mut world = World::start();
    let time_out = world.timer.clone().unwrap();
    world.reply("payBusy");
    let pause = world.timer.clone().unwrap();
    world.fire();
    let next = world.timer.clone().unwrap();
    assert_ne!(time_out.command_id, pause.command_id);
    assert_ne!(pause.command_id, next.command_id);
    assert_eq!(next.command_id, world.sent[1].message_id);
}

#[test]
fn a_first_step_that_fails_for_good_leaves_nothing_to_undo_and_a_dead_letter() {
    let mut world = World::start();
    world.reply("payFailed");
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Failed, Some("FAILED")));
    assert_eq!(world.told()[2..], ["StepFailed pay", "ProcessFailed"]);
    assert_eq!(world.process.current_step.as_deref(), Some("pay"));
    let DeadLetterChange::Open { problem, attempts, .. } = &world.last.dead_letter else {
        panic!("a dead letter is opened")
    };
    assert_eq!((problem.code.as_str(), *attempts), ("STEP_FAILED", 1));
    assert!(problem.message.contains("`pay`") && problem.message.contains("no luck"));
    assert_eq!(world.timer, None);
}

#[test]
fn a_permanent_failure_uses_no_further_attempts_and_a_retryable_one_all_of_them() {
    let mut world = World::start();
    world.reply("payBusy").fire().reply("payBusy");
    assert_eq!((world.status(), world.sent.len()), (ProcessStatus::Failed, 2));
    assert_eq!(world.process.retries, 2);
    let mut world = World::start();
    world.reply("payFailed");
    assert_eq!((world.status(), world.sent.len()), (ProcessStatus::Failed, 1));
}

#[test]
fn a_step_without_a_reply_times_out_is_tried_again_and_then_given_up() {
    let mut world = World::start();
    world.fire();
    assert_eq!(world.told()[2..], ["StepTimedOut pay"]);
    world.fire();
    assert_eq!(world.told()[3..], ["StepStarted pay"]);
    world.fire();
    assert_eq!(world.told()[4..], ["StepTimedOut pay", "ProcessFailed"]);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Failed, Some("TIMED_OUT")));
    let DeadLetterChange::Open { problem, attempts, .. } = &world.last.dead_letter else {
        panic!("a dead letter is opened")
    };
    assert_eq!((problem.code.as_str(), *attempts), ("STEP_TIMED_OUT", 2));
    assert!(problem.message.contains("no reply within 30s"), "{}", problem.message);
}

#[test]
fn an_old_timer_changes_nothing() {
    let mut world = World::start();
    let first = world.timer.clone().unwrap();
    world.reply("payDone").fire_again(&first);
    assert!(world.only_logged());
    assert_eq!(world.told().last().unwrap(), "StepTimedOut pay");
    assert_eq!((world.process.current_step.as_deref(), world.process.retries), (Some("pack"), 0));
    assert_eq!(world.timer.as_ref().unwrap().step, "pack");
    world.completed(&["pack", "ship"]).fire_again(&first);
    assert!(world.only_logged());
    assert_eq!(world.status(), ProcessStatus::Succeeded);
}

#[test]
fn a_step_without_a_time_out_has_no_timer() {
    let mut declared = declared();
    declared.steps[1].call.timeout = None;
    let definition = declared.build().unwrap();
    let mut world = World::start_with(definition, &row("m-0", "Placed", r#"{"id":"O-1"}"#));
    world.reply("payDone");
    assert_eq!(world.timer, None);
}

#[test]
fn a_command_that_cannot_be_made_pauses_the_process_and_is_tried_again_on_resume() {
    let mut declared = declared();
    declared.steps[0].call.payload = Some(r#"{"to": {{/input/iban}}}"#.to_owned());
    let definition = declared.clone().build().unwrap();
    let mut world = World::start_with(definition, &row("m-0", "Placed", r#"{"id":"O-1"}"#));
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Paused, Some("PAUSED")));
    assert_eq!(
        (world.told(), world.sent.len()),
        (vec!["ProcessStarted".to_owned(), "ProcessPaused".to_owned()], 0)
    );
    let ProcessEvent::ProcessPaused { reason, paused_by } = &world.log[1].event else {
        panic!("it is paused")
    };
    assert_eq!(paused_by, "relais");
    assert!(reason.contains("step `pay`") && reason.contains("/input/iban"), "{reason}");

    world.act(Action::Resume);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Paused, Some("PAUSED")));
    declared.steps[0].call.payload = Some(r#"{"to": {{/input/id}}}"#.to_owned());
    world.definition = declared.build().unwrap();
    world.act(Action::Resume);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Running, None));
    assert_eq!(world.sent[0].payload, r#"{"to": "O-1"}"#);
}

#[test]
fn every_entry_of_a_log_can_be_read_back() {
    let mut world = World::start();
    world.act(Action::Pause).act(Action::Resume).reply("payBusy").fire().reply("payDone");
    world.reply("packDone").reply("shipFailed").reply("refundFailed").act(Action::SkipStep);
    for entry in &world.log {
        let json = serde_json::to_string(entry).unwrap();
        assert_eq!(&serde_json::from_str::<Entry>(&json).unwrap(), entry);
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["type"], entry.event.name());
    }
    assert_eq!(world.status(), ProcessStatus::Compensated);
}

#[test]
fn timers_are_no_concern_of_a_definition() {
    let definition = declared().build().unwrap();
    assert_eq!(definition.concern(&row("timer:x", TIMER_FIRED, "{}")), None);
}
