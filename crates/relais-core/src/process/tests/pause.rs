//! Paused: what comes in is recorded, what follows waits.

use super::*;

fn paused() -> World {
    let mut world = World::start();
    world.act(Action::Pause);
    world
}

#[test]
fn a_paused_process_stores_a_reply_and_continues_when_it_is_resumed() {
    let mut world = paused();
    assert_eq!(world.status(), ProcessStatus::Paused);
    world.reply("payDone");
    assert_eq!((world.status(), world.sent.len()), (ProcessStatus::Paused, 1));
    assert!(world.process.data.contains(r#""pay":{"n":1"#));
    assert_eq!(world.timer, None);
    world.act(Action::Resume);
    assert_eq!((world.status(), world.commands()), (ProcessStatus::Running, vec!["pay", "pack"]));
    assert_eq!(
        world.told()[2..],
        ["ProcessPaused", "StepCompleted pay", "ProcessResumed", "StepStarted pack"]
    );
}

#[test]
fn resume_continues_to_wait_without_a_reply() {
    let mut world = paused();
    world.act(Action::Resume);
    assert_eq!((world.status(), world.sent.len()), (ProcessStatus::Running, 1));
    assert_eq!(world.timer.as_ref().unwrap().command_id, world.sent[0].message_id);
    world.reply("payDone");
    assert_eq!(world.process.current_step.as_deref(), Some("pack"));
}

#[test]
fn the_last_step_done_while_paused_ends_the_process_on_resume() {
    let mut world = World::start();
    world.completed(&["pay", "pack"]).act(Action::Pause).reply("shipDone");
    assert_eq!(world.status(), ProcessStatus::Paused);
    world.act(Action::Resume);
    assert_eq!(world.status(), ProcessStatus::Succeeded);
}

#[test]
fn failures_and_time_outs_are_recorded_while_paused_and_followed_on_resume() {
    let mut world = paused();
    world.fire();
    assert_eq!((world.status(), world.process.retries), (ProcessStatus::Paused, 1));
    assert_eq!(
        (world.told().pop().unwrap(), world.timer.as_ref()),
        ("StepTimedOut pay".to_owned(), None)
    );
    world.act(Action::Resume);
    assert!(world.timer.is_some(), "the pause before the next attempt");
    world.fire();
    assert_eq!(world.sent.len(), 2);

    let mut world = World::start();
    world.reply("payDone").act(Action::Pause).reply("packFailed");
    assert_eq!((world.status(), world.sent.len()), (ProcessStatus::Paused, 2));
    world.act(Action::Resume);
    assert_eq!(
        (world.status(), world.commands().pop()),
        (ProcessStatus::Compensating, Some("refund"))
    );
}

#[test]
fn a_failure_for_good_while_paused_opens_its_dead_letter_on_resume() {
    let mut world = paused();
    world.reply("payFailed");
    assert_eq!(world.dead_letter, None);
    world.act(Action::Resume);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Failed, Some("FAILED")));
}

#[test]
fn a_success_after_a_failure_wins_while_nothing_has_followed() {
    let mut world = paused();
    world.reply("payFailed").reply("payDone").act(Action::Resume);
    assert_eq!(world.commands(), ["pay", "pack"]);
}

#[test]
fn a_pause_before_an_attempt_ends_with_the_pause_of_the_process() {
    let mut world = World::start();
    world.reply("payBusy");
    let rest = world.timer.clone().unwrap();
    world.act(Action::Pause);
    assert_eq!(world.timer, None);
    world.fire_again(&rest);
    assert!(world.only_logged());
    world.act(Action::Resume);
    assert_eq!(world.commands(), ["pay", "pay"]);
}

#[test]
fn a_compensating_process_pauses_and_resumes_as_one() {
    let mut world = World::start();
    world.completed(&["pay", "pack"]).reply("shipFailed").act(Action::Pause).reply("refundDone");
    assert_eq!(world.status(), ProcessStatus::Paused);
    world.act(Action::Resume);
    assert_eq!(world.status(), ProcessStatus::Compensated);
}

#[test]
fn a_new_process_pauses_and_begins_when_it_is_resumed() {
    let definition = declared().build().unwrap();
    let begun = definition.begun(None, "{}").unwrap();
    let change = crate::process::create(&definition, Uuid::from_u128(7), begun, None);
    let mut world = World::of(definition, change);
    world.act(Action::Pause);
    assert_eq!(world.status(), ProcessStatus::Paused);
    world.act(Action::Resume);
    assert_eq!((world.status(), world.sent.len()), (ProcessStatus::Running, 1));
}

#[test]
fn pause_and_resume_say_who_and_why() {
    let mut world = paused();
    world.act(Action::Resume);
    let entries = serde_json::to_value(&world.log[2..]).unwrap();
    assert_eq!(
        entries,
        json!([
            {"type": "ProcessPaused", "reason": "because", "pausedBy": "ann"},
            {"type": "ProcessResumed", "reason": "because", "resumedBy": "ann"},
        ])
    );
}
