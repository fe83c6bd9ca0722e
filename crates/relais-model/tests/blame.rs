//! Who suffers for a lost worker, a refused settlement or a message that is put off: the models hold, and
//! every planted bug is found.

use relais_model::{inbox, outbox};

/// Two keys in one lane, with two rows of the first.
const TWO_KEYS: &[u8] = &[0, 1, 0];

fn relay(keys: &'static [u8], moves: u8, answers: u8) -> outbox::RelayConfig {
    outbox::RelayConfig {
        workers: 2,
        keys,
        attempts_max: 2,
        batch: keys.len(),
        budget: outbox::RelayBudget { moves, answers, lost: 0, decisions: 0, given_up: 0 },
        refused: None,
        bug: None,
    }
}

/// One worker that is lost as often as one message that kills its workers can cause.
fn suspects() -> outbox::RelayConfig {
    outbox::RelayConfig { workers: 1, ..relay(&[0, 1], 4, 0) }
}

fn refused(moves: u8, answers: u8) -> outbox::RelayConfig {
    outbox::RelayConfig { refused: Some(0), ..relay(TWO_KEYS, moves, answers) }
}

fn receiver() -> inbox::ReceiverConfig {
    inbox::ReceiverConfig {
        keys: TWO_KEYS,
        known_by: &[],
        hand_overs_max: 0,
        attempts_max: 2,
        reading: inbox::SourceReading::InTurn,
        budget: inbox::ReceiverBudget { moves: 1, outcomes: 1, repeats: 0, decisions: 0 },
        bug: None,
    }
}

/// Checks that the machine holds and that the bug breaks the property.
fn assert_found(config: outbox::RelayConfig, bug: outbox::RelayBug, property: &'static str) {
    assert_holds(config, 50);
    let report = outbox::hunt(outbox::RelayConfig { bug: Some(bug), ..config }, property);
    let path = report.broken.get(property);
    println!("{bug:?} breaks `{property}`: {}", path.expect("the planted bug must be found"));
}

fn assert_holds(config: outbox::RelayConfig, states_min: usize) {
    let report = outbox::exhaust("the correct relay", config);
    assert!(report.broken.is_empty(), "broken: {:#?}", report.broken);
    assert!(report.unique_states >= states_min, "only {} states", report.unique_states);
}

#[test]
fn an_attempt_is_counted_at_the_read() {
    let config = relay(&[0, 0], 1, 1);
    assert_found(config, outbox::RelayBug::AttemptAtRead, outbox::BLAME);
}

#[test]
fn an_attempt_that_is_counted_at_the_read_exceeds_the_maximum() {
    assert_found(relay(&[0], 1, 2), outbox::RelayBug::AttemptAtRead, outbox::ATTEMPTS);
}

#[test]
fn suspects_are_sent_together_after_their_quarantine() {
    assert_found(suspects(), outbox::RelayBug::SuspectsTogether, outbox::BLAME);
}

#[test]
fn a_refused_settlement_concerns_its_own_row_only() {
    assert_holds(refused(1, 1), 10_000);
}

#[test]
fn a_refused_settlement_is_repeated_with_its_neighbours() {
    assert_found(refused(0, 0), outbox::RelayBug::RefusedTogether, outbox::PROGRESS);
}

#[test]
fn a_message_that_is_put_off_does_not_hold_its_key() {
    let sound = inbox::exhaust("put off", receiver());
    assert!(sound.broken.is_empty(), "broken: {:#?}", sound.broken);
    let bug = Some(inbox::ReceiverBug::PutOffHoldsNoKey);
    let report = inbox::hunt(inbox::ReceiverConfig { bug, ..receiver() }, inbox::ORDER);
    assert!(report.broken.contains_key(inbox::ORDER), "the planted bug must be found");
}
