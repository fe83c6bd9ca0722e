//! The state of a process from its log. Every change of every other test is replayed too (`World::apply`).

use super::*;
use crate::process::ReplayDifference;

#[test]
fn the_log_alone_leads_to_the_stored_state() {
    let mut world = World::start();
    world.reply("payDone").reply("packBusy").fire().reply("packFailed").reply("refundDone");
    let replayed = replay(&world.definition, &world.numbered_log()).unwrap();
    assert_eq!(replayed.status, ProcessStatus::Compensated);
    assert_eq!((replayed.steps["pay"].state, replayed.steps["pack"].sent), ("undone", 2));
    assert_eq!(replayed.data.unwrap()["steps"]["pay"]["n"], 1);
}

#[test]
fn numbers_that_are_too_long_for_a_log_entry_are_no_difference() {
    let payload = r#"{"id":"O-1","n":123456789012345678901234567890}"#;
    let definition = declared().build().unwrap();
    let mut world = World::start_with(definition, &row("m-0", "Placed", payload));
    let mut reply = world.reply_row("payDone", None);
    reply.payload = Some("98765432109876543210.12345678901234567890".to_owned());
    world.take(&Input::Reply(&reply)).unwrap();
}

#[test]
fn a_row_that_was_changed_by_hand_differs_from_its_log() {
    let mut world = World::start();
    world.reply("payDone");
    let stored = &mut world.process;
    stored.data = stored.data.replace("O-1", "O-2");
    stored.retries = 3;
    stored.progress = stored.progress.replace(r#""state":"completed""#, r#""state":"skipped""#);
    let replayed = replay(&world.definition, &world.numbered_log()).unwrap();
    let differences = replayed.differences(&world.definition, &world.process);
    let fields: Vec<&str> = differences.iter().map(|found| found.field.as_str()).collect();
    assert_eq!(fields, ["retries", "data", "step pay"]);
    let ReplayDifference { log, stored, .. } = &differences[0];
    assert_eq!((log.as_str(), stored.as_str()), ("0", "3"));
}

#[test]
fn an_incomplete_log_is_refused() {
    let mut world = World::start();
    world.reply("payDone");
    let mut log = world.numbered_log();
    log.remove(1);
    let refused = replay(&world.definition, &log).unwrap_err();
    assert_eq!(refused.message, "entry 2 of the log is missing");
    let refused = replay(&world.definition, &[]).unwrap_err();
    assert_eq!(refused.message, "the log does not begin with `ProcessStarted`");
}
