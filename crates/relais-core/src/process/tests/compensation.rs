//! Backwards: in order, once, retried, stuck, and never reported as done when it is not.

use super::*;

/// `pay` and `pack` done, `ship` failed for good: `refund` is in flight.
fn turned_back() -> World {
    let mut world = World::start();
    world.completed(&["pay", "pack"]).reply("shipFailed");
    world
}

/// The compensation of `pay` has failed for good.
fn stuck() -> World {
    let mut world = turned_back();
    world.reply("refundFailed");
    world
}

#[test]
fn completed_steps_are_undone_last_first_and_those_without_a_compensation_are_passed_over() {
    let mut declared = declared();
    declared.steps.push(step("bill", None));
    let definition = declared.build().unwrap();
    let mut world = World::start_with(definition, &row("m-0", "Placed", r#"{"id":"O-1"}"#));
    world.completed(&["pay", "pack", "ship"]).reply("billFailed");
    assert_eq!(
        (world.status(), world.process.current_step.as_deref()),
        (ProcessStatus::Compensating, Some("ship"))
    );
    world.reply("recallDone").reply("refundDone");
    assert_eq!(world.commands()[4..], ["recall", "refund"]);
    assert_eq!(
        world.told()[8..],
        [
            "StepFailed bill",
            "CompensationStarted ship",
            "CompensationCompleted ship",
            "CompensationStarted pay",
            "CompensationCompleted pay",
        ]
    );
    assert_eq!(
        (world.status(), world.process.current_step.as_deref()),
        (ProcessStatus::Compensated, None)
    );
    assert_eq!((world.timer.as_ref(), world.dead_letter), (None, None));
    assert_eq!(world.note(), "every completed step is compensated");
}

#[test]
fn a_compensation_has_an_idempotency_key_of_its_own() {
    let world = turned_back();
    let key = format!("{}/pay/undo", world.process.process_id);
    assert_eq!(world.sent.last().unwrap().headers.get("idempotency-key"), Some(key.as_str()));
}

#[test]
fn a_process_whose_completed_steps_all_stand_has_failed() {
    let mut declared = declared();
    declared.steps[0].compensation = None;
    let definition = declared.build().unwrap();
    let mut world = World::start_with(definition, &row("m-0", "Placed", r#"{"id":"O-1"}"#));
    world.reply("payDone").reply("packFailed");
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Failed, Some("FAILED")));
}

#[test]
fn a_repeated_undone_is_harmless() {
    let mut world = turned_back();
    world.reply("refundDone").reply("refundDone");
    assert!(world.only_logged());
    world.reply("payDone");
    assert!(world.only_logged(), "a compensated step is not done again");
    assert_eq!(world.status(), ProcessStatus::Compensated);
}

#[test]
fn a_compensation_that_fails_for_now_or_times_out_is_tried_again() {
    let mut world = turned_back();
    world.reply("refundBusy");
    assert_eq!(
        (world.note(), world.status()),
        ("it will be tried again", ProcessStatus::Compensating)
    );
    world.fire();
    assert_eq!(world.commands()[3..], ["refund", "refund"]);
    assert_eq!(world.sent[3].headers, world.sent[4].headers);
    world.reply("refundDone");
    assert_eq!(world.status(), ProcessStatus::Compensated);
    let mut world = turned_back();
    world.fire();
    assert_eq!(world.told().last().unwrap(), "CompensationFailed pay");
    world.fire().reply_to(3, "refundDone");
    assert_eq!(world.status(), ProcessStatus::Compensated);
}

#[test]
fn a_compensation_that_fails_for_good_is_stuck_and_visible() {
    let mut world = stuck();
    assert_eq!(
        (world.status(), world.dead_letter),
        (ProcessStatus::Compensating, Some("COMPENSATION_FAILED"))
    );
    assert_eq!((world.timer.as_ref(), world.process.current_step.as_deref()), (None, Some("pay")));
    assert_eq!(world.told().last().unwrap(), "CompensationFailed pay");
    world.reply_to(3, "refundFailed");
    assert!(world.only_logged());
    let mut world = turned_back();
    world.reply("refundBusy").fire().reply("refundBusy");
    assert_eq!(
        (world.status(), world.dead_letter),
        (ProcessStatus::Compensating, Some("COMPENSATION_FAILED"))
    );
}

#[test]
fn a_stuck_compensation_is_tried_again_with_all_its_attempts() {
    let mut world = stuck();
    world.act(Action::RetryStep);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Compensating, None));
    assert_eq!(
        (world.commands()[3..].to_vec(), world.process.retries),
        (vec!["refund", "refund"], 0)
    );
    world.reply("refundBusy").fire();
    assert_eq!(world.sent.len(), 6);
    world.reply("refundDone");
    assert_eq!(world.status(), ProcessStatus::Compensated);
}

#[test]
fn a_stuck_compensation_that_is_skipped_is_taken_for_undone() {
    let mut world = stuck();
    world.act(Action::SkipStep);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Compensated, None));
    assert_eq!(world.note(), "skipped");
    assert_eq!(world.last.log[0].actor.as_deref(), Some("ann"));
}

#[test]
fn a_late_undone_frees_what_is_stuck() {
    let mut world = turned_back();
    world.fire().fire().fire();
    assert_eq!(world.dead_letter, Some("COMPENSATION_FAILED"));
    world.reply_to(3, "refundDone");
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Compensated, None));
}

#[test]
fn what_is_stuck_stays_visible_through_pause_and_resume() {
    let mut world = stuck();
    world.act(Action::Pause).act(Action::Resume);
    assert_eq!(
        (world.status(), world.dead_letter),
        (ProcessStatus::Compensating, Some("COMPENSATION_FAILED"))
    );
}

#[test]
fn a_success_that_comes_while_another_undo_is_stuck_waits_its_turn() {
    let mut world = World::start();
    world.completed(&["pay", "pack"]).fire().fire().fire().reply("refundFailed").reply("shipDone");
    assert_eq!(
        (world.status(), world.dead_letter),
        (ProcessStatus::Compensating, Some("COMPENSATION_FAILED"))
    );
    world.act(Action::SkipStep);
    assert_eq!(
        (world.status(), world.commands().pop()),
        (ProcessStatus::Compensating, Some("recall"))
    );
}

#[test]
fn a_compensation_that_cannot_be_made_pauses_the_process() {
    let mut declared = declared();
    let undo = declared.steps[0].compensation.as_mut().unwrap();
    undo.payload = Some(r#"{"payment": {{/steps/pay/id}}}"#.to_owned());
    let definition = declared.build().unwrap();
    let mut world = World::start_with(definition, &row("m-0", "Placed", r#"{"id":"O-1"}"#));
    world.reply("payDone").reply("packFailed");
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Paused, Some("PAUSED")));
    world.act(Action::SkipStep).act(Action::Resume);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Compensated, None));
}
