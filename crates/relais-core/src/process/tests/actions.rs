//! Actions of operators: where they are allowed, and their effects.

use super::*;
use crate::process::{PROCESS_ACTION, PROCESS_STATE, actions, cancel};

fn names(world: &World) -> Vec<&'static str> {
    actions(&world.definition, &world.process).unwrap().into_iter().map(Action::as_str).collect()
}

fn succeeded() -> World {
    let mut world = World::start();
    world.completed(&["pay", "pack", "ship"]);
    world
}

#[test]
fn every_state_has_its_actions_and_refuses_the_others() {
    let mut new = World::start();
    let begun = new.definition.begun(None, "{}").unwrap();
    let change = crate::process::create(&new.definition, Uuid::from_u128(7), begun, None);
    new = World::of(new.definition, change);
    let running = World::start();
    let mut paused = World::start();
    paused.act(Action::Pause);
    let mut failed = World::start();
    failed.reply("payFailed");
    let mut compensating = World::start();
    compensating.completed(&["pay", "pack"]).reply("shipFailed");
    let mut compensated = World::start();
    compensated.completed(&["pay", "pack"]).reply("shipFailed").reply("refundDone");

    let cases = [
        (new, vec!["pause", "resume", "compensate", "cancel"]),
        (running, vec!["pause", "retry", "skip", "compensate", "cancel"]),
        (paused, vec!["resume", "skip", "compensate", "cancel"]),
        (failed, vec!["retry", "skip"]),
        (compensating, vec!["pause", "retry", "skip", "cancel"]),
        (succeeded(), vec!["compensate"]),
        (compensated, vec![]),
    ];
    for (mut world, fitting) in cases {
        let status = world.status();
        assert_eq!(names(&world), fitting, "{status:?}");
        let before = (world.process.clone(), world.log.len());
        for action in Action::ALL.into_iter().filter(|action| !fitting.contains(&action.as_str())) {
            let problem = world.try_act(action).unwrap_err();
            assert_eq!(problem.code, PROCESS_ACTION, "{status:?} {action:?}");
            assert!(problem.message.contains(status.as_str()), "{}", problem.message);
            assert_eq!((world.process.clone(), world.log.len()), before);
        }
    }
}

#[test]
fn a_refused_action_names_those_that_fit() {
    let problem = succeeded().try_act(Action::RetryStep).unwrap_err();
    assert!(
        problem.message.ends_with("SUCCEEDED; possible now: compensate"),
        "{}",
        problem.message
    );
}

#[test]
fn actions_have_one_text_each() {
    for action in Action::ALL {
        assert_eq!(Action::parse(action.as_str()), Some(action));
        assert_eq!(serde_json::to_value(action).unwrap(), action.as_str());
    }
    assert_eq!(Action::parse("explode"), None);
}

#[test]
fn who_and_why_are_in_the_log_of_every_action() {
    let actions = [Action::RetryStep, Action::SkipStep, Action::Compensate, Action::Cancel];
    for action in actions {
        let mut world = World::start();
        world.reply("payDone").act(action);
        let first = &world.last.log[0];
        let signed = (first.actor.as_deref(), first.reason.as_deref());
        assert_eq!(signed, (Some("ann"), Some("because")), "{action:?}");
        assert_eq!(world.last.message_id, None);
    }
}

#[test]
fn retry_step_sends_the_command_again_with_all_its_attempts() {
    let mut world = World::start();
    world.reply("payBusy").fire().act(Action::RetryStep);
    assert_eq!((world.sent.len(), world.process.retries), (3, 0));
    world.reply_to(1, "payFailed");
    assert!(world.only_logged(), "the attempt before was given up");
    world.reply_to(0, "payDone");
    assert_eq!(world.process.current_step.as_deref(), Some("pack"));
}

#[test]
fn retry_step_sets_a_failed_process_going_again() {
    let mut world = World::start();
    world.reply("payFailed").act(Action::RetryStep);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Running, None));
    let closure = Closure::Action(Action::RetryStep);
    let closed = DeadLetterChange::Close { closure, actor: "ann".into(), reason: "because".into() };
    assert_eq!(world.last.dead_letter, closed);
    world.completed(&["pay", "pack", "ship"]);
    assert_eq!(world.status(), ProcessStatus::Succeeded);
}

#[test]
fn skip_step_takes_the_step_for_done_and_undoes_it_like_one_that_is() {
    let mut world = World::start();
    world.act(Action::SkipStep);
    assert_eq!((world.note(), world.commands()), ("skipped", vec!["pay", "pack"]));
    world.reply("packFailed");
    assert_eq!(world.commands().pop(), Some("refund"));
}

#[test]
fn a_success_after_a_skip_only_brings_its_data() {
    let mut world = World::start();
    world.act(Action::SkipStep).reply("payDone");
    assert!(world.process.data.contains(r#""pay":{"#));
    assert!(world.note().contains("skipped before"));
    assert_eq!(world.commands(), ["pay", "pack"]);
    world.reply("payDone");
    assert!(world.only_logged());
}

#[test]
fn skip_step_sets_a_failed_process_going_again() {
    let mut world = World::start();
    world.reply("payFailed").act(Action::SkipStep);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Running, None));
    assert_eq!(world.commands(), ["pay", "pack"]);
}

#[test]
fn skip_step_of_the_last_step_ends_the_process() {
    let mut world = World::start();
    world.completed(&["pay", "pack"]).act(Action::SkipStep);
    assert_eq!((world.status(), world.timer.as_ref()), (ProcessStatus::Succeeded, None));
}

#[test]
fn a_step_done_while_paused_cannot_be_skipped_or_sent_again() {
    let mut world = World::start();
    world.act(Action::Pause).reply("payDone");
    assert_eq!(names(&world), ["resume", "compensate", "cancel"]);
    world.act(Action::Cancel);
    assert_eq!(names(&world), ["compensate"]);
}

#[test]
fn compensate_reverses_a_running_process_and_its_step_in_flight_once_that_is_completed() {
    let mut world = World::start();
    world.completed(&["pay", "pack"]).act(Action::Compensate);
    assert_eq!(
        (world.status(), world.commands().pop()),
        (ProcessStatus::Compensating, Some("refund"))
    );
    world.reply("refundDone");
    assert_eq!(world.status(), ProcessStatus::Compensated);
    world.reply("shipDone").reply("recallDone");
    assert_eq!(
        (world.status(), world.commands().pop()),
        (ProcessStatus::Compensated, Some("recall"))
    );
}

#[test]
fn compensate_undoes_a_process_that_has_succeeded() {
    let mut world = succeeded();
    world.act(Action::Compensate).reply("recallDone").reply("refundDone");
    assert_eq!(world.commands()[3..], ["recall", "refund"]);
    assert_eq!(world.status(), ProcessStatus::Compensated);
}

#[test]
fn compensate_undoes_a_paused_process_at_once() {
    let mut world = World::start();
    world.reply("payDone").act(Action::Pause).act(Action::Compensate);
    assert_eq!(
        (world.status(), world.commands().pop()),
        (ProcessStatus::Compensating, Some("refund"))
    );
}

#[test]
fn compensate_with_nothing_to_undo_ends_the_process_without_a_dead_letter() {
    let mut world = World::start();
    world.act(Action::Compensate);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Failed, None));
    assert_eq!(world.timer, None);
    world.reply("payDone");
    assert_eq!(
        (world.status(), world.commands().pop()),
        (ProcessStatus::Compensating, Some("refund"))
    );
}

#[test]
fn cancel_ends_a_process_with_what_it_has_done_standing() {
    let mut world = World::start();
    world.reply("payDone").act(Action::Cancel);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Failed, None));
    assert_eq!((world.sent.len(), world.timer.as_ref()), (2, None));
    world.reply("packDone");
    assert_eq!((world.status(), world.sent.len()), (ProcessStatus::Failed, 2));
    assert_eq!(world.note(), "late: the process was cancelled, so it stands");
    world.act(Action::Compensate).reply("refundDone");
    assert_eq!(world.status(), ProcessStatus::Compensated);
}

#[test]
fn a_cancelled_compensation_keeps_what_is_undone_and_can_be_taken_up_again() {
    let mut world = succeeded();
    world.act(Action::Compensate).act(Action::Cancel);
    assert_eq!(world.status(), ProcessStatus::Failed);
    world.reply("recallDone");
    assert_eq!(
        (world.status(), world.note()),
        (ProcessStatus::Failed, "late: the process was cancelled")
    );
    world.act(Action::Compensate);
    assert_eq!(world.commands()[3..], ["recall", "refund"]);
}

#[test]
fn cancel_closes_the_dead_letter_of_the_process() {
    let mut world = World::start();
    world.completed(&["pay", "pack"]).reply("shipFailed").reply("refundFailed").act(Action::Cancel);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Failed, None));
}

#[test]
fn cancel_is_possible_even_if_the_state_is_invalid() {
    let mut world = World::start();
    world.process.progress = "{}".to_owned();
    world.changed_by_hand = true;
    assert_eq!(world.try_act(Action::Pause).unwrap_err().code, PROCESS_STATE);
    let change = cancel(&world.process, "ann", "lost").unwrap();
    assert_eq!(change.process.status, ProcessStatus::Failed);
    world.apply(change);
    assert_eq!(cancel(&world.process, "ann", "again").unwrap_err().code, PROCESS_ACTION);
}
