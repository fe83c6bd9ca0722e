//! Steps of handlers in other processes: their commands, and their answers as replies.

use super::*;
use crate::{
    message::Headers,
    outbox::{OutboxRow, OutboxStatus},
    process::{
        KeyHold,
        handler_step::{
            HANDLER_DONE, HANDLER_FAILED, address, done, failed, into_inbox, is_command, step_key,
        },
    },
};

/// `pay` (undone by `refund`) and `ship`, both by the handler `shop`.
fn by_handler() -> DeclaredProcess {
    let call = |name: &str| DeclaredCall {
        target: CallTarget::Handler("shop".to_owned()),
        completed: Vec::new(),
        failed: Vec::new(),
        retryable: Vec::new(),
        error: None,
        ..call(name)
    };
    let step = |name: &str, undo: Option<&str>| DeclaredStep {
        name: name.to_owned(),
        call: call(name),
        compensation: undo.map(call),
    };
    DeclaredProcess { steps: vec![step("pay", Some("refund")), step("ship", None)], ..declared() }
}

fn start_by_handler() -> World {
    let start = row("m-0", "Placed", r#"{"id":"O-1"}"#);
    World::start_with(by_handler().build().unwrap(), &start)
}

/// The row that the relay sends for a message.
fn sent(message: &NewMessage) -> OutboxRow {
    OutboxRow {
        id: 1,
        message_id: message.message_id,
        category: message.category,
        aggregate_type: message.aggregate_type.clone(),
        aggregate_id: message.aggregate_id.clone(),
        event_type: message.event_type.clone(),
        event_version: 1,
        payload: message.payload.clone(),
        headers: message.headers.clone(),
        destination: message.destination.clone(),
        msg_key: message.msg_key.clone(),
        lane: 0,
        created_at: Timestamp(0),
        status: OutboxStatus::Pending,
        attempts: 0,
        lost_workers: 0,
        next_attempt_at: None,
        dispatched_at: None,
        job_id: None,
        causation_id: message.causation_id.clone(),
        correlation_id: message.correlation_id.clone(),
        error_code: None,
        error_message: None,
    }
}

fn received(message: &NewMessage, inbox: &str) -> InboxRow {
    InboxRow::received(1, into_inbox(&sent(message), inbox))
}

/// Lets the handler answer the last command.
fn answer(world: &mut World, reply: impl Fn(&InboxRow) -> NewMessage) {
    let command = received(world.sent.last().unwrap(), "");
    let reply = received(&reply(&command), "");
    world.take(&Input::Reply(&reply)).unwrap();
}

#[test]
fn the_answers_of_a_handler_complete_its_steps() {
    let mut world = start_by_handler();
    answer(&mut world, |command| done(command, Some(r#"{"paymentId": "p-7"}"#)));
    assert_eq!(world.commands(), ["pay", "ship"]);
    answer(&mut world, |command| done(command, None));
    assert_eq!(world.status(), ProcessStatus::Succeeded);
    let steps = r#""steps":{"pay":{"paymentId": "p-7"},"ship":null}"#;
    assert!(world.process.data.contains(steps), "{}", world.process.data);
}

#[test]
fn a_failure_of_a_handler_compensates_the_steps_before() {
    let mut world = start_by_handler();
    answer(&mut world, |command| done(command, None));
    answer(&mut world, |command| failed(command, &Problem::new("NO_ADDRESS", "no such street")));
    assert_eq!(world.commands(), ["pay", "ship", "refund"]);
    answer(&mut world, |command| done(command, None));
    assert_eq!(world.status(), ProcessStatus::Compensated);
    assert!(world.told().contains(&"StepFailed ship".to_owned()));
}

#[test]
fn a_repeated_answer_changes_nothing() {
    let mut world = start_by_handler();
    let command = received(&world.sent[0].clone(), "");
    let reply = received(&done(&command, None), "");
    world.take(&Input::Reply(&reply)).unwrap();
    world.take(&Input::Reply(&reply)).unwrap();
    assert!(world.only_logged());
}

#[test]
fn a_command_goes_to_the_inbox_of_its_handler_and_the_answer_to_that_of_the_process() {
    for (inbox, to, source, back) in [
        ("", "inbox", "@shop::relais", "relais"),
        ("orders", "inbox:orders", "orders@shop::relais", "orders::relais"),
    ] {
        let mut message = start_by_handler().sent[0].clone();
        address(&mut message, inbox);
        assert_eq!(message.destination, to);
        let command = received(&message, inbox);
        assert_eq!((command.source_system.as_str(), is_command(&command)), (source, true));
        assert_eq!(command.message_id, message.message_id.to_string());
        assert_eq!(command.headers.get("correlation-id"), message.correlation_id.as_deref());
        let reply = done(&command, None);
        assert_eq!(reply.destination, to);
        assert_eq!(reply.causation_id.as_deref(), Some(command.message_id.as_str()));
        let reply = received(&reply, inbox);
        assert_eq!((reply.source_system.as_str(), is_command(&reply)), (back, false));
        assert_eq!(reply.msg_key, command.msg_key, "in order with the timers of its process");
    }
}

#[test]
fn every_attempt_of_a_step_has_the_same_key_and_every_answer_its_own_id() {
    let mut world = start_by_handler();
    world.fire().fire();
    let [first, second] = [0, 1].map(|nth| received(&world.sent[nth], ""));
    assert_ne!(first.message_id, second.message_id);
    assert_eq!(step_key(&first), step_key(&second));
    assert_ne!(done(&first, None).message_id, done(&second, None).message_id);
    let again = done(&first, Some("1")).message_id;
    assert_eq!(done(&first, None).message_id, again, "one answer for each command");
}

#[test]
fn reply_types_and_handlers_exclude_each_other() {
    let mut declared = by_handler();
    declared.steps[0].call.completed = vec!["payDone".to_owned()];
    let errors = declared.build().unwrap_err();
    assert_eq!(
        errors,
        ["step `pay`: the answer of a handler is the reply; remove the reply types"]
    );
    for event_type in [HANDLER_DONE, HANDLER_FAILED] {
        let mut declared = by_handler();
        declared.steps[0].call = call("pay");
        declared.steps[0].call.failed = vec![event_type.to_owned()];
        assert!(declared.build().is_err(), "{event_type}");
        let starts = vec![event_type.to_owned()];
        assert!(DeclaredProcess { starts, ..by_handler() }.build().is_err(), "{event_type}");
    }
}

#[test]
fn a_business_key_is_released_when_its_process_ends_for_the_first_time() {
    let definition = DeclaredProcess { key_use: KeyUse::WhileOpen, ..declared() }.build().unwrap();
    let mut world = World::start_with(definition, &row("m-0", "Placed", r#"{"id":"O-1"}"#));
    assert_eq!(world.process.key_hold, KeyHold::Open);
    world.reply("payFailed");
    assert_eq!(world.process.key_hold, KeyHold::Released);
    world.act(Action::RetryStep);
    assert_eq!(world.status(), ProcessStatus::Running);
    assert_eq!(world.process.key_hold, KeyHold::Released, "another process may have the key");
    let mut once = World::start();
    once.reply("payFailed");
    assert_eq!(once.process.key_hold, KeyHold::Once);
}

#[test]
fn a_header_of_relais_stays_in_its_tables() {
    let mut message = start_by_handler().sent[0].clone();
    message.headers.set_received_at(Timestamp(5));
    let command = into_inbox(&sent(&message), "");
    assert_eq!(command.headers.received_at(), None);
    let mut foreign = Headers::default();
    foreign.receive("relais-handler", crate::message::HeaderValue::Text("shop".into()));
    assert_eq!(foreign.get("relais-handler"), None, "a source cannot write it");
}
