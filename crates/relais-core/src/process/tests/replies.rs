//! Replies that are late, repeated, out of order, ambiguous, or for no process.

use super::*;
use crate::process::{
    PROCESS_DEFINITION, PROCESS_REPLY, PROCESS_STATE, PROCESS_UNKNOWN, ProcessRef,
    definition::Concern,
};

#[test]
fn a_repeated_success_is_logged_and_moves_nothing() {
    let mut world = World::start();
    world.reply("payDone").reply("payDone");
    assert!(world.only_logged());
    assert_eq!(world.note(), "ignored: the step was completed before");
    assert_eq!(world.commands(), ["pay", "pack"]);
    world.completed(&["pack", "ship"]).reply("shipDone");
    assert!(world.only_logged());
    assert_eq!(world.status(), ProcessStatus::Succeeded);
}

#[test]
fn a_late_success_of_an_earlier_attempt_completes_the_step() {
    let mut world = World::start();
    world.fire().fire().reply_to(0, "payDone");
    assert_eq!(world.process.current_step.as_deref(), Some("pack"));
    world.reply_to(1, "payDone");
    assert!(world.only_logged());
}

#[test]
fn a_success_during_the_pause_before_the_next_attempt_ends_the_pause() {
    let mut world = World::start();
    world.reply("payBusy");
    let pause = world.timer.clone().unwrap();
    world.reply_to(0, "payDone");
    assert_eq!(world.commands(), ["pay", "pack"]);
    world.fire_again(&pause);
    assert!(world.only_logged());
}

#[test]
fn a_late_failure_of_an_earlier_attempt_is_only_logged() {
    let mut world = World::start();
    world.fire().reply_to(0, "payFailed");
    assert!(world.only_logged(), "during the pause");
    world.fire().reply_to(0, "payFailed");
    assert!(world.only_logged(), "during the next attempt");
    assert_eq!((world.status(), world.process.retries), (ProcessStatus::Running, 1));
    world.reply("payDone").reply_to(1, "payFailed");
    assert!(world.only_logged(), "after the step");
    assert_eq!(world.process.current_step.as_deref(), Some("pack"));
}

#[test]
fn a_reply_for_a_step_that_has_not_begun_is_logged_and_does_not_count() {
    let mut world = World::start();
    world.reply("shipDone");
    assert!(world.only_logged());
    assert_eq!(world.note(), "ignored: the step has not been begun");
    world.reply("shipFailed");
    assert!(world.only_logged());
    world.reply("refundDone");
    assert!(world.only_logged());
    world.completed(&["pay", "pack"]);
    assert_eq!(world.commands().last(), Some(&"ship"));
}

#[test]
fn a_success_after_the_process_has_failed_is_undone() {
    let mut world = World::start();
    world.fire().fire().fire();
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Failed, Some("TIMED_OUT")));
    world.reply_to(0, "payDone");
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Compensating, None));
    assert!(world.note().starts_with("late: "));
    assert_eq!(world.commands(), ["pay", "pay", "refund"]);
    world.reply_to(1, "payDone");
    assert!(world.only_logged());
    world.reply("refundDone");
    assert_eq!(world.status(), ProcessStatus::Compensated);
}

#[test]
fn a_success_after_the_process_was_compensated_is_undone_with_what_it_brought() {
    let mut world = World::start();
    world.completed(&["pay", "pack"]).fire().fire().fire().reply("refundDone");
    assert_eq!(world.status(), ProcessStatus::Compensated);
    world.reply("shipDone");
    assert_eq!(
        (world.status(), world.commands().pop()),
        (ProcessStatus::Compensating, Some("recall"))
    );
    assert!(world.sent.last().unwrap().payload.contains(r#""ship":{"#));
    world.reply("recallDone");
    assert_eq!(world.status(), ProcessStatus::Compensated);
}

#[test]
fn a_success_while_the_process_is_compensating_is_undone_too() {
    let mut world = World::start();
    world.completed(&["pay", "pack"]).fire().fire().fire();
    assert_eq!(world.commands().pop(), Some("refund"));
    world.reply("shipDone");
    assert_eq!(world.sent.len(), 5, "one compensation at a time");
    world.reply("refundDone");
    assert_eq!(
        (world.status(), world.commands().pop()),
        (ProcessStatus::Compensating, Some("recall"))
    );
    world.reply("recallDone");
    assert_eq!(world.status(), ProcessStatus::Compensated);
}

#[test]
fn a_late_success_that_cannot_be_undone_stands() {
    let mut world = World::start();
    world.reply("payDone").fire().fire().fire().reply("refundDone");
    assert_eq!(world.status(), ProcessStatus::Compensated);
    world.reply("packDone");
    assert_eq!((world.status(), world.sent.len()), (ProcessStatus::Compensated, 4));
    assert_eq!(world.note(), "late: the step has no compensation, so it stands");
}

#[test]
fn a_late_failure_after_the_end_is_only_logged() {
    let mut world = World::start();
    world.fire().fire().fire().reply_to(0, "payFailed");
    assert!(world.only_logged());
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Failed, Some("TIMED_OUT")));
}

#[test]
fn a_reply_type_of_several_steps_needs_to_name_its_command() {
    let mut declared = declared();
    declared.steps[0].call.completed = vec!["Ack".to_owned()];
    declared.steps[1].call.completed = vec!["Ack".to_owned()];
    let definition = declared.build().unwrap();
    let mut world = World::start_with(definition, &row("m-0", "Placed", r#"{"id":"O-1"}"#));
    let problem = world.try_reply("Ack", None).unwrap_err();
    assert_eq!(problem.code, PROCESS_REPLY);
    assert!(problem.message.contains("causation-id"), "{}", problem.message);
    world.reply_to(0, "Ack").reply_to(0, "Ack");
    assert!(world.only_logged(), "the first one again does not complete the second step");
    world.reply_to(1, "Ack");
    assert_eq!(world.process.current_step.as_deref(), Some("ship"));
}

#[test]
fn a_command_id_of_another_system_counts_as_none() {
    let mut world = World::start();
    world.try_reply("payDone", Some(Uuid::from_u128(5))).unwrap();
    assert_eq!(world.process.current_step.as_deref(), Some("pack"));
}

#[test]
fn unknown_reply_types_and_replies_of_another_step_say_so() {
    let mut world = World::start();
    let problem = world.try_reply("payMaybe", None).unwrap_err();
    assert_eq!(problem.code, PROCESS_REPLY);
    assert!(problem.message.contains("`payMaybe`"));
    let pay = world.sent[0].message_id;
    let problem = world.try_reply("shipDone", Some(pay)).unwrap_err();
    assert!(problem.message.contains("step `pay`"), "{}", problem.message);
    assert_eq!(world.process.version, 2, "nothing has changed");
}

#[test]
fn a_reply_that_does_not_say_for_whom_is_a_problem() {
    let definition = declared().build().unwrap();
    let problem = |row: &InboxRow| definition.concern(row).unwrap().unwrap_err();
    let mut reply = row("m-1", "payDone", "{}");
    assert_eq!(problem(&reply).code, PROCESS_UNKNOWN);
    assert!(problem(&reply).message.contains("header `correlation-id` is absent"));
    reply.headers.set("correlation-id", "order 7");
    assert!(problem(&reply).message.contains("`order 7` is not a process id"));
    assert_eq!(definition.concern(&row("m-1", "somethingElse", "{}")), None);
}

#[test]
fn a_definition_distinguishes_starts_from_replies() {
    let mut declared = declared();
    declared.steps[0].call.correlate = Correlate::BusinessKey("payload:/order".parse().unwrap());
    let definition = declared.build().unwrap();
    let placed = row("m-0", "Placed", r#"{"id":"O-1"}"#);
    let process_id = start(&definition, &placed).unwrap().process.process_id;
    assert_eq!(definition.concern(&placed), Some(Ok(Concern::Start { process_id })));
    let reply = row("m-1", "payDone", r#"{"order":"O-1"}"#);
    let key = ProcessRef::Key { process_type: "Order".into(), business_key: "O-1".into() };
    assert_eq!(definition.concern(&reply), Some(Ok(Concern::Reply(key))));
    assert_eq!(definition.event_types().len(), 16);
    assert_eq!(
        definition.destinations().into_iter().collect::<Vec<_>>(),
        ["packs", "pays", "recalls", "refunds", "ships"]
    );
}

#[test]
fn a_long_business_key_is_the_same_in_the_process_and_in_its_replies() {
    let key = "x".repeat(500);
    let mut declared = declared();
    declared.steps[0].call.correlate = Correlate::BusinessKey("payload:/id".parse().unwrap());
    let definition = declared.build().unwrap();
    let payload = json!({"id": key}).to_string();
    let change = start(&definition, &row("m-0", "Placed", &payload)).unwrap();
    let business_key = change.process.business_key.unwrap();
    let wanted = ProcessRef::Key { process_type: "Order".into(), business_key };
    let found = definition.concern(&row("m-1", "payDone", &payload));
    assert_eq!(found, Some(Ok(Concern::Reply(wanted))));
}

#[test]
fn an_invalid_state_is_a_problem_and_no_panic() {
    let mut world = World::start();
    let good = world.process.clone();
    let at = r#"{"at":{"way":"undo","step":"pay","now":"sent","failed":0}}"#;
    for progress in
        ["", "{}", "null", "[]", "{\"at\":\"new\"}", "{\"at\":\"later\",\"paused\":false}", at]
    {
        world.process.progress = progress.to_owned();
        let problem = world.try_reply("payDone", None).unwrap_err();
        assert_eq!(problem.code, PROCESS_STATE, "{progress}");
    }
    world.process = Process { status: ProcessStatus::Failed, ..good.clone() };
    let problem = world.try_reply("payDone", None).unwrap_err();
    assert_eq!(problem.code, PROCESS_STATE);
    assert!(problem.message.contains("changed by hand"));
    world.process = Process { data: "{}".to_owned(), ..good };
    assert_eq!(world.try_reply("payDone", None).unwrap_err().code, PROCESS_STATE);
}

#[test]
fn progress_with_a_field_of_a_newer_program_is_a_problem_and_stays_as_it_is() {
    let mut world = World::start();
    let good: serde_json::Value = serde_json::from_str(&world.process.progress).unwrap();
    for place in ["", "/at/at", "/steps/pay"] {
        let mut newer = good.clone();
        let fields = newer.pointer_mut(place).and_then(serde_json::Value::as_object_mut);
        fields.unwrap_or_else(|| panic!("{place}: {good}")).insert("later".into(), json!(1));
        world.process.progress = newer.to_string();
        let problem = world.try_reply("payDone", None).unwrap_err();
        assert_eq!(problem.code, PROCESS_STATE, "{newer}");
        assert_eq!(world.process.progress, newer.to_string());
    }
}

#[test]
fn a_definition_without_the_step_or_of_another_version_is_a_problem() {
    let mut world = World::start();
    world.reply("payDone");
    let mut without = declared();
    without.steps.remove(1);
    world.definition = without.build().unwrap();
    let problem = world.try_reply("packDone", None).unwrap_err();
    assert_eq!(problem.code, PROCESS_DEFINITION);
    assert!(problem.message.contains("no step `pack`"), "{}", problem.message);
    world.definition = DeclaredProcess { version: 2, ..declared() }.build().unwrap();
    assert_eq!(world.try_reply("packDone", None).unwrap_err().code, PROCESS_DEFINITION);
    world.definition = declared().build().unwrap();
    world.reply("packDone");
    assert_eq!(world.process.current_step.as_deref(), Some("ship"));
}

#[test]
fn a_start_without_its_business_key_is_a_problem() {
    let definition = declared().build().unwrap();
    let problem = start(&definition, &row("m-0", "Placed", "{}")).unwrap_err();
    assert_eq!(problem.code, "BUSINESS_KEY_MISSING");
    let problem = start(&definition, &row("m-0", "Cancelled", "{}")).unwrap_err();
    assert_eq!(problem.code, PROCESS_DEFINITION);
}
