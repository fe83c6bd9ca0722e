//! Planted bugs of rows that wait: each must be found.

use relais_model::waiting::{FOUND, RELEASED, WAITS, WaitingBug, WaitingConfig};

use super::*;

fn assert_found(bug: WaitingBug, property: &'static str) {
    let report = waiting::hunt(WaitingConfig { bug: Some(bug), ..waiting_rows() }, property);
    assert!(report.broken.contains_key(property), "{bug:?} was not found");
}

#[test]
fn a_position_past_an_open_writer() {
    assert_found(WaitingBug::PositionPastWriter, FOUND);
}

#[test]
fn a_pass_that_locks_nothing() {
    assert_found(WaitingBug::PassWithoutLock, RELEASED);
}

#[test]
fn a_release_with_the_snapshot_of_the_settlement() {
    assert_found(WaitingBug::ReleaseInSameStatement, RELEASED);
}

#[test]
fn a_row_that_is_fresh_below_the_position() {
    assert_found(WaitingBug::ReopenedFresh, FOUND);
}

#[test]
fn a_pass_without_the_fence() {
    assert_found(WaitingBug::PassWithoutFence, WAITS);
}
