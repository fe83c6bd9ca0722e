//! The protocol holds in every state of the models, and every planted bug is found.

#[path = "model/waiting_bugs.rs"]
mod waiting_bugs;

use std::collections::HashMap;

use relais_model::{ModelReport, inbox, lease, outbox, process, waiting};
use stateright::Model;

/// Two rows of one key.
const ONE_KEY: &[u8] = &[0, 0];
/// Two keys in one lane, with two rows of the first.
const TWO_KEYS: &[u8] = &[0, 1, 0];

fn relay(keys: &'static [u8], budget: [u8; 4]) -> outbox::RelayConfig {
    let [moves, answers, lost, decisions] = budget;
    outbox::RelayConfig {
        workers: 2,
        keys,
        attempts_max: 2,
        batch: keys.len(),
        budget: outbox::RelayBudget { moves, answers, lost, decisions, given_up: 0 },
        refused: None,
        bug: None,
    }
}

/// The same with an operator who makes a pending row a dead letter at any moment.
fn relay_with_operator(keys: &'static [u8], budget: [u8; 4]) -> outbox::RelayConfig {
    let mut config = relay(keys, budget);
    config.budget.given_up = 1;
    config
}

fn receiver() -> inbox::ReceiverConfig {
    inbox::ReceiverConfig {
        keys: TWO_KEYS,
        known_by: &[],
        hand_overs_max: 0,
        attempts_max: 2,
        reading: inbox::SourceReading::InTurn,
        budget: inbox::ReceiverBudget { moves: 2, outcomes: 1, repeats: 1, decisions: 1 },
        bug: None,
    }
}

/// A receiver that reads the next message while one is stored.
fn receiver_ahead() -> inbox::ReceiverConfig {
    inbox::ReceiverConfig {
        reading: inbox::SourceReading::Ahead,
        budget: inbox::ReceiverBudget { moves: 2, outcomes: 1, repeats: 1, decisions: 0 },
        ..receiver()
    }
}

/// Two programs that each know one of two types; the first key has both.
fn mixed_fleet() -> inbox::ReceiverConfig {
    inbox::ReceiverConfig {
        known_by: &[0b01, 0b10, 0b10],
        hand_overs_max: 5,
        budget: inbox::ReceiverBudget { moves: 1, outcomes: 1, repeats: 0, decisions: 1 },
        ..receiver()
    }
}

fn saga(attempts_max: u32, budget: [u8; 4]) -> process::SagaConfig {
    let [slow, failures, channel, decisions] = budget;
    let budget = process::SagaBudget { slow, failures, channel, decisions };
    let target = process::SagaTarget::Destination;
    process::SagaConfig { attempts_max, target, budget, bug: None }
}

/// The same with steps of a handler.
fn handler_saga(attempts_max: u32, budget: [u8; 4]) -> process::SagaConfig {
    process::SagaConfig { target: process::SagaTarget::Handler, ..saga(attempts_max, budget) }
}

fn waiting_rows() -> waiting::WaitingConfig {
    waiting::WaitingConfig { failures: 2, reopened: 1, takeovers: 1, bug: None }
}

fn leases(expiries: u8, moves: u8) -> lease::LeaseConfig {
    lease::LeaseConfig { expiries, moves, bug: None }
}

mod correct {
    use super::*;

    fn assert_holds(report: &ModelReport, states_min: usize, unreachable: &[&str]) {
        assert!(report.broken.is_empty(), "broken: {:#?}", report.broken);
        assert_eq!(report.unreached, unreachable, "the model is easier than it should be");
        assert!(report.unique_states >= states_min, "only {} states", report.unique_states);
    }

    #[test]
    fn waiting_rows_are_released_and_the_position_hides_none() {
        let report = waiting::exhaust("waiting", waiting_rows());
        assert!(report.broken.is_empty(), "{:?}", report.broken);
        assert!(report.unreached.is_empty(), "{:?}", report.unreached);
    }

    #[test]
    fn one_worker_uses_a_lane_however_leases_expire() {
        let report = lease::exhaust("leases", leases(2, 2));
        assert_holds(&report, 1_000_000, &[]);
    }

    #[test]
    fn the_relay_holds_with_every_kind_of_fault_once() {
        let report = outbox::exhaust("every fault once", relay(TWO_KEYS, [1, 1, 1, 1]));
        assert_holds(&report, 180_000, &[]);
    }

    #[test]
    fn the_relay_holds_with_two_moves_and_two_bad_answers() {
        let report = outbox::exhaust("two moves, two answers", relay(ONE_KEY, [2, 2, 0, 1]));
        assert_holds(&report, 330_000, &["two keys in flight together"]);
    }

    #[test]
    fn a_message_that_kills_its_worker_ends_as_a_dead_letter() {
        let config = outbox::RelayConfig { attempts_max: 1, ..relay(&[0], [6, 0, 0, 0]) };
        let report = outbox::exhaust("killer", config);
        let of_two_rows = [
            "a late duplicate",
            "a key waits behind its dead letter",
            "two keys in flight together",
            outbox::KEY_CONTINUES,
            outbox::UNSETTLED_REPEATED,
        ];
        assert_holds(&report, 1_000, &of_two_rows);
    }

    #[test]
    fn the_relay_holds_with_two_moves_and_two_keys() {
        let report = outbox::exhaust("two moves, two keys", relay(TWO_KEYS, [2, 0, 0, 0]));
        // A bad answer too makes 42 million states, which takes minutes. It is in the other models.
        let after_bad_answers = ["a dead letter", "a key waits behind its dead letter"];
        assert_holds(&report, 2_500_000, &after_bad_answers);
    }

    #[test]
    fn the_relay_holds_with_two_bad_answers_and_two_keys() {
        let report = outbox::exhaust("two answers, two keys", relay(TWO_KEYS, [1, 2, 0, 0]));
        assert_holds(&report, 700_000, &[]);
    }

    #[test]
    fn the_relay_holds_with_three_workers() {
        let config = outbox::RelayConfig { workers: 3, ..relay(ONE_KEY, [2, 2, 0, 1]) };
        let report = outbox::exhaust("three workers", config);
        assert_holds(&report, 800_000, &["two keys in flight together"]);
    }

    #[test]
    fn the_relay_holds_with_three_rows_of_a_key() {
        let report = outbox::exhaust("three rows", relay(&[0, 0, 0], [2, 1, 1, 1]));
        assert_holds(&report, 500_000, &["two keys in flight together"]);
    }

    #[test]
    fn the_relay_holds_when_an_operator_fails_a_pending_row() {
        let report = outbox::exhaust("failed row", relay_with_operator(ONE_KEY, [1, 1, 0, 1]));
        assert_holds(&report, 50_000, &["two keys in flight together"]);
    }

    #[test]
    fn the_receiver_holds() {
        assert_holds(&inbox::exhaust("inbox", receiver()), 100_000, &[]);
    }

    #[test]
    fn a_receiver_that_reads_ahead_holds() {
        assert_holds(&inbox::exhaust("read ahead", receiver_ahead()), 50_000, &[]);
    }

    #[test]
    fn a_mixed_fleet_holds_and_lanes_do_not_go_back_and_forth_without_work() {
        let report = inbox::exhaust("mixed fleet", mixed_fleet());
        assert_holds(&report, 10_000, &["a handler that comes too late"]);
    }

    #[test]
    fn a_process_holds_with_a_slow_worker_a_failure_and_an_operator() {
        let report = process::exhaust("process, three faults", saga(1, [1, 1, 0, 1]));
        assert_holds(&report, 35_000, &[]);
    }

    #[test]
    fn a_process_holds_when_steps_are_tried_twice() {
        let report = process::exhaust("process, two attempts", saga(2, [0, 0, 0, 0]));
        assert_holds(&report, 55_000, &["is stuck", "a decision comes too late"]);
    }

    #[test]
    fn a_process_holds_when_commands_and_replies_come_twice() {
        let report = process::exhaust("process, repetitions", saga(1, [0, 1, 1, 1]));
        assert_holds(&report, 12_000, &["a decision comes too late"]);
    }

    #[test]
    fn a_process_holds_when_a_handler_is_called_again_after_lost_answers_and_crashes() {
        let report = process::exhaust("process, handler", handler_saga(1, [0, 1, 1, 1]));
        assert_holds(&report, 10_000, &["a decision comes too late"]);
    }

    #[test]
    fn no_step_leads_back_so_what_is_never_stuck_drains() {
        assert_acyclic(&outbox::RelayModel(relay(ONE_KEY, [1, 1, 1, 1])));
        assert_acyclic(&outbox::RelayModel(relay_with_operator(ONE_KEY, [1, 0, 0, 1])));
        let budget = inbox::ReceiverBudget { moves: 1, outcomes: 1, repeats: 1, decisions: 1 };
        assert_acyclic(&inbox::ReceiverModel(inbox::ReceiverConfig {
            keys: ONE_KEY,
            budget,
            ..receiver()
        }));
        assert_acyclic(&process::Saga::new(saga(1, [1, 1, 0, 1])));
        assert_acyclic(&process::Saga::new(handler_saga(1, [0, 1, 1, 0])));
    }

    fn assert_acyclic<M: Model>(model: &M)
    where
        M::State: Clone + Eq + std::hash::Hash,
    {
        let mut on_path = HashMap::new();
        for state in model.init_states() {
            walk(model, &state, &mut on_path);
        }
        assert!(on_path.len() > 1_000, "only {} states", on_path.len());
    }

    /// Depth first; the value says whether the state is on the current path.
    fn walk<M: Model>(model: &M, state: &M::State, on_path: &mut HashMap<M::State, bool>)
    where
        M::State: Clone + Eq + std::hash::Hash,
    {
        on_path.insert(state.clone(), true);
        for next in model.next_states(state) {
            match on_path.get(&next) {
                Some(true) => panic!("a step leads back to an earlier state"),
                Some(false) => {}
                None => walk(model, &next, on_path),
            }
        }
        on_path.insert(state.clone(), false);
    }
}

mod relay_bugs {
    use outbox::RelayBug as Bug;

    use super::*;

    fn assert_found(config: outbox::RelayConfig, bug: Bug, property: &'static str) {
        let sound = outbox::exhaust(&format!("without {bug:?}"), config);
        assert!(sound.broken.is_empty(), "the bounds alone break it: {:#?}", sound.broken);
        let report = outbox::hunt(outbox::RelayConfig { bug: Some(bug), ..config }, property);
        let path = report.broken.get(property);
        println!("{bug:?} breaks `{property}`: {}", path.expect("the planted bug must be found"));
    }

    #[test]
    fn no_fence() {
        assert_found(relay(ONE_KEY, [1, 0, 0, 0]), Bug::NoFence, outbox::FENCE);
    }

    #[test]
    fn fence_by_a_shared_name() {
        assert_found(relay(ONE_KEY, [1, 0, 0, 0]), Bug::FenceByName, outbox::FENCE);
    }

    #[test]
    fn fence_accepts_null() {
        assert_found(relay(ONE_KEY, [2, 1, 0, 0]), Bug::FenceAcceptsNull, outbox::FENCE);
    }

    #[test]
    fn stale_sweeper() {
        assert_found(relay(ONE_KEY, [0, 0, 0, 0]), Bug::StaleSweeper, outbox::TERMINAL);
    }

    #[test]
    fn mark_before_publish() {
        assert_found(relay(ONE_KEY, [1, 0, 0, 0]), Bug::MarkBeforePublish, outbox::NO_LOSS);
    }

    #[test]
    fn dead_letter_skips_its_key() {
        assert_found(relay(ONE_KEY, [0, 1, 0, 0]), Bug::DeadLetterSkipsKey, outbox::ORDER);
    }

    #[test]
    fn no_key_guard() {
        assert_found(relay(ONE_KEY, [0, 0, 0, 0]), Bug::NoKeyGuard, outbox::ORDER);
        assert_found(relay(ONE_KEY, [0, 0, 0, 0]), Bug::NoKeyGuard, outbox::ONE_IN_FLIGHT);
    }

    #[test]
    fn batch_continues_after_a_failure() {
        assert_found(relay(ONE_KEY, [0, 1, 0, 0]), Bug::BatchGoesOn, outbox::ORDER);
    }

    #[test]
    fn outage_counts_as_an_attempt() {
        assert_found(relay(ONE_KEY, [0, 2, 0, 0]), Bug::OutageCounts, outbox::BLAME);
    }

    #[test]
    fn a_noted_loss_is_kept_when_the_call_came_back() {
        let config = outbox::RelayConfig { workers: 1, ..relay(&[0], [5, 2, 0, 0]) };
        assert_found(config, Bug::NoteKept, outbox::BLAME);
    }

    #[test]
    fn a_row_that_waits_without_an_attempt_does_not_hold_its_key() {
        assert_found(relay(ONE_KEY, [0, 1, 0, 0]), Bug::UncountedHoldsNoKey, outbox::ORDER);
    }

    #[test]
    fn a_row_in_quarantine_is_blamed_for_a_loss() {
        let config = outbox::RelayConfig { workers: 1, ..relay(&[0], [6, 0, 0, 0]) };
        assert_found(config, Bug::HeldRowsAreBlamed, outbox::BLAME);
    }

    #[test]
    fn release_while_in_flight() {
        assert_found(relay(ONE_KEY, [1, 0, 0, 0]), Bug::ReleaseInFlight, outbox::CAUSE);
    }

    #[test]
    fn release_before_caution_is_worked_off() {
        let config = outbox::RelayConfig { attempts_max: 1, ..relay(&[0], [6, 0, 0, 0]) };
        assert_found(config, Bug::ReleaseBeforeCaution, outbox::KILLER);
    }

    #[test]
    fn a_suspect_is_forgotten_when_its_deadline_passes() {
        let config = outbox::RelayConfig { attempts_max: 1, ..relay(&[0], [6, 0, 0, 0]) };
        assert_found(config, Bug::DroppedSuspectForgotten, outbox::KILLER);
    }

    #[test]
    fn no_caution_after_an_unclean_take_over() {
        let config = outbox::RelayConfig { attempts_max: 1, ..relay(&[0], [6, 0, 0, 0]) };
        assert_found(config, Bug::NoCaution, outbox::KILLER);
    }

    #[test]
    fn fetch_past_a_row_in_backoff() {
        assert_found(relay(ONE_KEY, [0, 1, 0, 0]), Bug::FetchPastBackoff, outbox::ORDER);
    }

    #[test]
    fn fetch_past_a_parked_key() {
        assert_found(relay(ONE_KEY, [0, 1, 0, 0]), Bug::FetchPastParked, outbox::ORDER);
    }

    #[test]
    fn fetched_rows_older_than_the_own_settlement() {
        assert_found(relay(ONE_KEY, [0, 0, 0, 0]), Bug::StaleFetch, outbox::CAUSE);
    }

    #[test]
    fn a_read_past_a_failure_that_is_not_settled() {
        assert_found(relay(ONE_KEY, [0, 1, 0, 0]), Bug::ReadPastFailure, outbox::ORDER);
    }

    #[test]
    fn a_read_that_arrives_after_its_key_was_dropped() {
        let failed = outbox::RelayConfig { batch: 2, ..relay(&[0, 0, 0], [0, 1, 0, 0]) };
        assert_found(failed, Bug::LateReadKept, outbox::ORDER);
        let expired = outbox::RelayConfig { batch: 1, ..relay(&[0, 0, 0], [1, 0, 0, 0]) };
        assert_found(expired, Bug::LateReadKept, outbox::ORDER);
    }

    #[test]
    fn a_worker_continues_after_a_refused_settlement() {
        assert_found(relay(ONE_KEY, [1, 0, 0, 0]), Bug::ContinuesAfterRefusal, outbox::STOPS);
    }

    #[test]
    fn dead_letter_settled_twice() {
        assert_found(relay(ONE_KEY, [0, 1, 1, 1]), Bug::DeadLetterRepeated, outbox::BLAME);
    }

    #[test]
    fn a_row_that_an_operator_failed_lets_its_key_continue() {
        let bug = Bug::FailedByOperatorHoldsNoKey;
        assert_found(relay_with_operator(ONE_KEY, [0, 0, 0, 0]), bug, outbox::ORDER);
    }

    #[test]
    fn a_row_that_an_operator_failed_in_flight_is_settled() {
        let config = relay_with_operator(ONE_KEY, [0, 0, 0, 0]);
        assert_found(config, Bug::SettlesWhatWasFailed, outbox::TERMINAL);
    }

    #[test]
    fn no_take_over_of_a_crashed_owner() {
        assert_found(relay(ONE_KEY, [1, 0, 0, 0]), Bug::NoTakeOver, outbox::PROGRESS);
    }
}

mod receiver_bugs {
    use inbox::ReceiverBug as Bug;

    use super::*;

    fn assert_found(bug: Bug, property: &'static str) {
        let report = inbox::hunt(inbox::ReceiverConfig { bug: Some(bug), ..receiver() }, property);
        let path = report.broken.get(property);
        println!("{bug:?} breaks `{property}`: {}", path.expect("the planted bug must be found"));
    }

    fn assert_found_ahead(bug: Bug, property: &'static str) {
        let report =
            inbox::hunt(inbox::ReceiverConfig { bug: Some(bug), ..receiver_ahead() }, property);
        assert!(report.broken.contains_key(property), "{bug:?} does not break `{property}`");
    }

    #[test]
    fn message_read_ahead_is_stored_past_a_failure() {
        assert_found_ahead(Bug::AheadPastAFailure, inbox::NO_LOSS);
    }

    #[test]
    fn message_read_ahead_is_acknowledged_with_the_one_before() {
        assert_found_ahead(Bug::AheadAcknowledged, inbox::NO_LOSS);
    }

    fn assert_found_in_fleet(bug: Bug, property: &'static str) {
        let report =
            inbox::hunt(inbox::ReceiverConfig { bug: Some(bug), ..mixed_fleet() }, property);
        assert!(report.broken.contains_key(property), "{bug:?} does not break `{property}`");
    }

    #[test]
    fn unknown_type_fails_its_row() {
        assert_found_in_fleet(Bug::UnknownFails, inbox::VERDICT);
    }

    #[test]
    fn unknown_type_lets_its_key_continue() {
        assert_found_in_fleet(Bug::UnknownPassed, inbox::ORDER);
    }

    #[test]
    fn handed_over_lane_taken_by_any_worker() {
        assert_found_in_fleet(Bug::WantedByAny, inbox::PROGRESS);
    }

    #[test]
    fn lane_handed_over_before_its_work_is_done() {
        assert_found_in_fleet(Bug::HandedOverEarly, inbox::PROGRESS);
    }

    #[test]
    fn acknowledged_before_the_commit() {
        assert_found(Bug::AckBeforeCommit, inbox::NO_LOSS);
    }

    #[test]
    fn position_stored_apart_from_its_rows() {
        assert_found(Bug::PositionApart, inbox::NO_LOSS);
    }

    #[test]
    fn effect_and_mark_in_two_commits() {
        assert_found(Bug::EffectApartFromMark, inbox::ONE_EFFECT);
    }

    #[test]
    fn mark_that_looks_at_nothing() {
        assert_found(Bug::BlindMark, inbox::ONE_EFFECT);
    }

    #[test]
    fn no_fence() {
        assert_found(Bug::NoFence, inbox::FENCE);
    }

    #[test]
    fn dedupe_row_purged_early() {
        assert_found(Bug::PurgedEarly, inbox::ONE_EFFECT);
    }

    #[test]
    fn no_dedupe() {
        assert_found(Bug::NoDedupe, inbox::ONE_EFFECT);
    }

    #[test]
    fn no_key_guard() {
        assert_found(Bug::NoKeyGuard, inbox::ORDER);
    }
}

mod process_bugs {
    use process::SagaBug as Bug;

    use super::*;

    fn assert_found(config: process::SagaConfig, bug: Bug, property: &'static str) {
        let report = process::hunt(process::SagaConfig { bug: Some(bug), ..config }, property);
        assert!(report.broken.contains_key(property), "{bug:?} does not break `{property}`");
    }

    #[test]
    fn acknowledged_before_the_commit() {
        assert_found(saga(1, [1, 0, 0, 1]), Bug::AckBeforeCommit, process::OUTCOME);
    }

    #[test]
    fn committed_over_a_newer_version() {
        assert_found(saga(1, [1, 0, 0, 1]), Bug::NoVersionCheck, process::ENDS);
    }

    #[test]
    fn commands_sent_apart_from_the_commit() {
        assert_found(saga(1, [1, 0, 0, 1]), Bug::CommandsApart, process::OUTCOME);
    }

    #[test]
    fn late_replies_ignored_after_the_end() {
        assert_found(saga(1, [0, 0, 0, 0]), Bug::LateIgnored, process::OUTCOME);
    }

    #[test]
    fn replies_dropped_while_paused() {
        assert_found(saga(1, [0, 0, 0, 1]), Bug::PauseDrops, process::OUTCOME);
    }

    #[test]
    fn messages_to_an_inbox_marked_before_they_are_stored() {
        let config = handler_saga(1, [0, 0, 1, 0]);
        assert_found(config, Bug::MarkedBeforeStored, process::OUTCOME);
    }

    #[test]
    fn answers_committed_apart_from_the_row_of_their_handler() {
        assert_found(handler_saga(1, [0, 0, 1, 0]), Bug::AnswerApart, process::OUTCOME);
    }

    #[test]
    fn calls_without_an_answer_taken_for_a_failure() {
        assert_found(handler_saga(1, [0, 0, 1, 0]), Bug::NoAnswerFails, process::OUTCOME);
    }

    #[test]
    fn timers_that_mean_nothing() {
        assert_found(saga(2, [0, 1, 0, 0]), Bug::TimerLost, process::ENDS);
    }
}

mod lease_bugs {
    use relais_model::lease::{EPOCH, EXCLUSIVE, LeaseBug, LeaseConfig, UNCLEAN};

    use super::*;

    fn assert_found(bug: LeaseBug, property: &'static str) {
        let report = lease::hunt(LeaseConfig { bug: Some(bug), ..leases(2, 2) }, property);
        assert!(report.broken.contains_key(property), "{bug:?} was not found");
    }

    #[test]
    fn an_expired_lease_renewed_in_the_same_term() {
        assert_found(LeaseBug::TermKept, EXCLUSIVE);
    }

    #[test]
    fn a_lost_worker_that_is_not_locked() {
        assert_found(LeaseBug::NoLock, EXCLUSIVE);
    }

    #[test]
    fn a_forgotten_worker_whose_lanes_are_clean() {
        assert_found(LeaseBug::ForgottenIsClean, UNCLEAN);
    }

    #[test]
    fn an_owner_without_a_lease_that_is_lost_by_its_name() {
        assert_found(LeaseBug::OrphanByName, EXCLUSIVE);
    }

    #[test]
    fn a_take_over_without_a_new_epoch() {
        assert_found(LeaseBug::EpochKept, EPOCH);
    }
}
