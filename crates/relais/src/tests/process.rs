//! Processes from the inbox to their end: the test sends each reply, time-out and decision.

use std::collections::BTreeSet;

use relais_core::{
    dead_letter::Resolution,
    handler::Outcome,
    inbox::Content,
    inspect::InspectExt,
    process::{ProcessFilter, ProcessStatus},
};
use serde::{Deserialize, Serialize};

use super::{
    process_support::{Hand, call, message, order, placed, reply, step},
    support::Bench,
};
use crate::process::{Action, Correlate, Definition, command_named, define};

#[tokio::test]
async fn three_replies_complete_three_steps() {
    let mut hand = Hand::order().await;
    assert_eq!(hand.state(), "RUNNING payment");
    hand.answer("Charge", "Charged").await;
    assert_eq!(hand.state(), "RUNNING stock");
    hand.answer("Reserve", "Reserved").await;
    hand.answer("Ship", "Shipped").await;
    assert_eq!(hand.state(), "SUCCEEDED -");
    assert_eq!(hand.commands(), ["Charge", "Reserve", "Ship"]);
    let log = [
        "ProcessStarted",
        "StepStarted payment",
        "StepCompleted payment",
        "StepStarted stock",
        "StepCompleted stock",
        "StepStarted shipment",
        "StepCompleted shipment",
        "ProcessCompleted",
    ];
    assert_eq!(hand.log(), log);
    assert_eq!(hand.process().await.version, 8);
    assert!(hand.bench.texts("SELECT step FROM relais_timer").is_empty());
    let counted = hand.bench.observer.snapshot().processes;
    let order = &counted.types["order"];
    assert_eq!((order.started, order.steps, order.succeeded, counted.stale), (1, 3, 1, 0));
}

#[tokio::test]
async fn a_command_names_its_process_and_attempt() {
    let hand = Hand::order().await;
    let sent = hand.bench.texts(
        "SELECT category || ' ' || msg_key || ' ' || correlation_id || ' ' || causation_id || ' '
             || json_extract(headers, '$.idempotency-key') || ' ' || payload FROM relais_outbox",
    );
    let id = hand.process_id();
    assert_eq!(sent, [format!("command {id} {id} placed-o-1 {id}/payment {{\"order\":\"o-1\"}}")]);
}

#[tokio::test]
async fn a_retryable_failure_is_tried_again_after_its_pause() {
    let mut hand = Hand::order().await;
    hand.answer("Charge", "ChargeBusy").await;
    assert_eq!((hand.state(), hand.process().await.retries), ("RUNNING payment".into(), 1));
    assert_eq!(hand.commands(), ["Charge"], "the pause is not over");
    hand.time_passes().await;
    assert_eq!(hand.commands(), ["Charge", "Charge"]);
    let ids = hand.bench.texts("SELECT DISTINCT message_id FROM relais_outbox");
    let keys = hand
        .bench
        .texts("SELECT DISTINCT json_extract(headers, '$.idempotency-key') FROM relais_outbox");
    assert_eq!(
        (ids.len(), keys.len()),
        (2, 1),
        "each attempt is a message, all have one idempotency key"
    );
    hand.answer("Charge", "Charged").await;
    assert_eq!(hand.state(), "RUNNING stock");
    assert_eq!(hand.bench.observer.snapshot().processes.timers, 1);
}

#[tokio::test]
async fn a_step_without_a_reply_fails_after_its_last_attempt() {
    let mut hand = Hand::order().await;
    for _ in 0..3 {
        // The time-out of an attempt, then the pause before the next.
        hand.time_passes().await;
        hand.time_passes().await;
    }
    assert_eq!(hand.commands(), ["Charge"; 3]);
    assert_eq!(hand.state(), "FAILED payment");
    assert_eq!(hand.dead_letters(), ["TIMED_OUT STEP_TIMED_OUT"]);
    assert!(hand.failures().is_empty());
}

#[tokio::test]
async fn a_late_success_of_a_failed_step_is_compensated() {
    let mut hand = Hand::order().await;
    for _ in 0..6 {
        hand.time_passes().await;
    }
    hand.answer("Charge", "Charged").await;
    assert_eq!(hand.state(), "COMPENSATING payment");
    assert!(hand.dead_letters().is_empty(), "it continues by itself");
    hand.answer("Refund", "Refunded").await;
    assert_eq!(hand.state(), "COMPENSATED -");
}

#[tokio::test]
async fn a_permanent_failure_compensates_completed_steps_in_reverse() {
    let mut hand = Hand::order().await;
    hand.answer("Charge", "Charged").await;
    hand.answer("Reserve", "Reserved").await;
    hand.answer("Ship", "ShipFailed").await;
    assert_eq!(hand.state(), "COMPENSATING stock");
    hand.answer("Release", "Released").await;
    assert_eq!(hand.state(), "COMPENSATING payment");
    hand.answer("Refund", "Refunded").await;
    assert_eq!(hand.state(), "COMPENSATED -");
    assert_eq!(hand.commands(), ["Charge", "Reserve", "Ship", "Release", "Refund"]);
    assert_eq!(hand.bench.observer.snapshot().processes.types["order"].compensated, 1);
    assert!(hand.dead_letters().is_empty());
}

#[tokio::test]
async fn a_compensation_that_fails_waits_for_an_operator() {
    let mut hand = Hand::order().await;
    hand.answer("Charge", "Charged").await;
    hand.answer("Reserve", "ReserveFailed").await;
    hand.answer("Refund", "RefundFailed").await;
    assert_eq!(hand.state(), "COMPENSATING payment");
    assert_eq!(hand.dead_letters(), ["COMPENSATION_FAILED COMPENSATION_FAILED"]);
    hand.time_passes().await;
    assert_eq!(hand.commands(), ["Charge", "Reserve", "Refund"], "nothing continues by itself");
    hand.act(Action::RetryStep).await;
    assert!(hand.dead_letters().is_empty());
    hand.answer("Refund", "Refunded").await;
    assert_eq!(hand.state(), "COMPENSATED -");
}

#[tokio::test]
async fn replies_to_a_paused_process_are_kept_and_count_when_it_continues() {
    let mut hand = Hand::order().await;
    hand.act(Action::Pause).await;
    hand.answer("Charge", "Charged").await;
    assert_eq!(hand.state(), "PAUSED payment");
    assert_eq!(hand.commands(), ["Charge"]);
    hand.act(Action::Resume).await;
    assert_eq!(hand.state(), "RUNNING stock");
    assert_eq!(hand.commands(), ["Charge", "Reserve"]);
    let by = hand.bench.texts(
        "SELECT coalesce(json_extract(event, '$.pausedBy'), json_extract(event, '$.resumedBy'))
             || ' ' || json_extract(event, '$.reason')
         FROM relais_process_log WHERE event_type IN ('ProcessPaused', 'ProcessResumed')",
    );
    assert_eq!(by, ["ann because", "ann because"]);
}

#[tokio::test]
async fn repeated_and_early_replies_are_logged_and_harmless() {
    let mut hand = Hand::order().await;
    let id = hand.process_id().to_string();
    hand.receive(vec![reply("early", "Shipped", &id, None)]).await;
    hand.answer("Charge", "Charged").await;
    hand.answer("Charge", "Charged").await;
    hand.answer("Charge", "ChargeFailed").await;
    assert_eq!(hand.state(), "RUNNING stock");
    assert!(hand.failures().is_empty());
    let log = [
        "ProcessStarted",
        "StepStarted payment",
        "StepCompleted shipment (ignored: the step has not been begun)",
        "StepCompleted payment",
        "StepStarted stock",
        "StepCompleted payment (ignored: the step was completed before)",
        "StepFailed payment (ignored: the step was done before)",
    ];
    assert_eq!(hand.log(), log);
}

#[tokio::test]
async fn a_reply_for_no_process_is_a_dead_letter_and_its_key_continues() {
    let mut hand = Hand::order().await;
    let unknown = uuid::Uuid::nil().to_string();
    let mut lost = reply("lost", "Charged", &unknown, None);
    let mut found = reply("found", "Charged", &hand.process_id().to_string(), None);
    (lost.msg_key, found.msg_key) = ("k".into(), "k".into());
    let silent = message("silent", "Charged", "{}");
    let broken = reply("broken", "Charged", "no uuid", None);
    hand.receive(vec![lost, found, silent, broken]).await;
    assert_eq!(
        hand.failures(),
        [
            "lost FAILED PROCESS_UNKNOWN",
            "silent FAILED PROCESS_UNKNOWN",
            "broken FAILED PROCESS_UNKNOWN"
        ]
    );
    assert_eq!(hand.state(), "RUNNING stock");
}

#[tokio::test]
async fn a_business_key_is_used_once() {
    let mut hand = Hand::order().await;
    let mut again = placed("o-1");
    again.message_id = "again".into();
    hand.receive(vec![again]).await;
    assert_eq!(hand.failures(), ["again FAILED BUSINESS_KEY_TAKEN"]);
    let reason =
        hand.bench.texts("SELECT error_message FROM relais_inbox WHERE message_id = 'again'");
    assert!(reason[0].contains(&hand.process_id().to_string()), "{reason:?}");
    // Two at once, in one settlement.
    let (mut one, mut two) = (placed("o-2"), placed("o-2"));
    (one.message_id, two.message_id) = ("one".into(), "two".into());
    hand.receive(vec![one, two]).await;
    assert_eq!(hand.failures().last().unwrap(), "two FAILED BUSINESS_KEY_TAKEN");
    assert_eq!(hand.commands(), ["Charge", "Charge"]);
}

#[tokio::test]
async fn a_start_that_arrives_again_after_its_row_was_removed_starts_nothing() {
    let mut hand = Hand::order().await;
    hand.bench.sql("DELETE FROM relais_inbox");
    hand.receive(vec![placed("o-1")]).await;
    assert_eq!(hand.commands(), ["Charge"]);
    assert!(hand.failures().is_empty());
    assert_eq!(hand.log().len(), 2);
}

#[tokio::test]
async fn many_rows_of_one_process_are_decided_one_after_the_other() {
    let mut hand = Hand::order().await;
    let id = hand.process_id().to_string();
    let replies = (0..40).map(|n| reply(&format!("r-{n}"), "Charged", &id, None)).collect();
    hand.receive(replies).await;
    assert!(hand.failures().is_empty());
    assert_eq!(hand.commands(), ["Charge", "Reserve"]);
    assert_eq!(hand.log().len(), 2 + 40 + 1);
    assert_eq!(hand.bench.observer.snapshot().processes.stale, 0, "no other worker interferes");
}

#[tokio::test]
async fn one_row_may_concern_several_processes() {
    let mut other = order();
    other.process_type = "points".into();
    other.steps = vec![step("credit", "Credit", "Credited")];
    other.steps[0].call.completed.push("Charged".into());
    let mut hand = Hand::new(vec![order().build().unwrap(), other.build().unwrap()]).await;
    hand.receive(vec![placed("o-1")]).await;
    assert_eq!(hand.state(), "RUNNING payment, RUNNING credit");
    let charge =
        hand.bench.texts("SELECT correlation_id FROM relais_outbox WHERE event_type = 'Charge'");
    hand.receive(vec![reply("r", "Charged", &charge[0], None)]).await;
    let states =
        hand.bench.texts("SELECT process_type || current_step FROM relais_process ORDER BY 1");
    assert_eq!(states, ["orderstock", "pointscredit"], "a reply is for the process it names");
    let mut by_key = call("Notify", "Delivered");
    by_key.correlate = Correlate::BusinessKey("payload:/orderId".parse().unwrap());
    let of = |name: &str| {
        let mut definition = order();
        definition.process_type = name.into();
        definition.steps = vec![step("wait", "Notify", "Delivered")];
        definition.steps[0].call = by_key.clone();
        definition.build().unwrap()
    };
    let mut hand = Hand::new(vec![of("a"), of("b")]).await;
    hand.receive(vec![placed("o-9")]).await;
    hand.receive(vec![message("d", "Delivered", r#"{"orderId":"o-9"}"#)]).await;
    assert_eq!(hand.state(), "SUCCEEDED -, SUCCEEDED -");
}

#[tokio::test]
async fn a_process_id_that_was_only_passed_on_changes_nothing() {
    let of = |name: &str, correlate: Correlate| {
        let mut definition = order();
        definition.process_type = name.into();
        definition.starts = vec![format!("{name}Placed")];
        definition.steps = vec![step("wait", "Notify", "Delivered")];
        definition.steps[0].call.correlate = correlate;
        definition.build().unwrap()
    };
    let by_key = of("keyed", Correlate::BusinessKey("payload:/orderId".parse().unwrap()));
    let by_id = of("named", Correlate::default());
    let mut hand = Hand::new(vec![order().build().unwrap(), by_key, by_id]).await;
    hand.receive(vec![placed("o-1")]).await;
    let order_id = hand.process_id().to_string();
    hand.receive(vec![message("k", "keyedPlaced", r#"{"orderId":"o-1"}"#)]).await;
    // `order` does not wait for it, but the service passes on the id it got.
    let mut delivered = message("d", "Delivered", r#"{"orderId":"o-1"}"#);
    delivered.headers.set("correlation-id", &order_id);
    hand.receive(vec![delivered, reply("e", "Delivered", &order_id, None)]).await;
    assert_eq!(hand.state(), "RUNNING payment, SUCCEEDED -");
    assert_eq!(hand.failures(), ["e FAILED PROCESS_REPLY"]);
}

#[tokio::test]
async fn two_versions_run_side_by_side_each_to_its_own_end() {
    let mut second = order();
    second.version = 2;
    second.steps.insert(2, step("wrap", "Wrap", "Wrapped"));
    let (first, second) = (order().build().unwrap(), second.build().unwrap());
    let mut hand = Hand::new(vec![first.clone()]).await;
    hand.receive(vec![placed("old")]).await;
    let mut hand = Hand::on(hand.bench, vec![first, second]).await;
    hand.receive(vec![placed("new")]).await;
    for _ in 0..2 {
        for (command, done) in [
            ("Charge", "Charged"),
            ("Reserve", "Reserved"),
            ("Wrap", "Wrapped"),
            ("Ship", "Shipped"),
        ] {
            let waiting = hand.bench.texts(&format!(
                "SELECT correlation_id || ' ' || message_id FROM relais_outbox WHERE event_type = '{command}'"
            ));
            for sent in waiting {
                let (process, id) = sent.split_once(' ').unwrap();
                let message = reply(&format!("{id}-answer"), done, process, Some(id));
                hand.receive(vec![message]).await;
            }
        }
    }
    let ended = hand.bench.texts(
        "SELECT business_key || definition || status || version FROM relais_process ORDER BY definition",
    );
    assert_eq!(ended, ["old1SUCCEEDED8", "new2SUCCEEDED10"]);
}

#[tokio::test]
async fn without_its_definition_a_reply_waits_as_a_dead_letter() {
    let hand = Hand::order().await;
    let mut second = order();
    second.version = 2;
    let id = hand.process_id().to_string();
    let mut hand = Hand::on(hand.bench, vec![second.build().unwrap()]).await;
    hand.receive(vec![reply("r", "Charged", &id, None)]).await;
    assert_eq!(hand.failures(), ["r FAILED PROCESS_DEFINITION"]);
    let reason = hand.bench.texts("SELECT error_message FROM relais_inbox WHERE message_id = 'r'");
    assert!(
        reason[0].contains("version 1 of `order`") && reason[0].contains("then retry"),
        "{reason:?}"
    );
    hand.time_passes().await;
    assert_eq!(hand.failures().len(), 2, "its timer too");
    // With the definition, a retry continues as if nothing had happened.
    let letters = hand.bench.texts("SELECT id FROM relais_dead_letter ORDER BY msg_key = 'r' DESC");
    let mut hand = Hand::on(hand.bench, vec![order().build().unwrap()]).await;
    for letter in letters {
        assert!(hand.bench.resolve(letter.parse().unwrap(), Resolution::Retried).await);
        hand.receive(Vec::new()).await;
    }
    assert_eq!(hand.state(), "RUNNING stock");
}

#[tokio::test]
async fn a_timer_that_meets_no_definition_at_all_is_no_lost_timer() {
    let hand = Hand::order().await;
    let mut hand = Hand::on(hand.bench, Vec::new()).await;
    hand.time_passes().await;
    let failure = hand.failures().remove(0);
    assert!(
        failure.starts_with("timer:") && failure.ends_with("FAILED UNKNOWN_EVENT_TYPE"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_source_may_not_send_fired_timers() {
    let mut hand = Hand::order().await;
    let command = hand.bench.texts("SELECT command_id FROM relais_timer").remove(0);
    let body = format!(
        r#"{{"processId":"{}","step":"payment","commandId":"{command}"}}"#,
        hand.process_id()
    );
    hand.receive(vec![message("forged", "relais.TimerFired", &body)]).await;
    assert_eq!(hand.failures(), ["forged FAILED RESERVED_EVENT_TYPE"]);
    assert_eq!(hand.log().len(), 2);
}

#[tokio::test]
async fn a_definition_without_the_current_step_of_a_process_is_reported() {
    let mut hand = Hand::order().await;
    hand.answer("Charge", "Charged").await;
    let mut shorter = order();
    shorter.steps.remove(1);
    shorter.steps[0].call.completed.push("Reserved".into());
    let mut hand = Hand::on(hand.bench, vec![shorter.build().unwrap()]).await;
    hand.answer("Reserve", "Reserved").await;
    assert_eq!(hand.failures(), ["reply-2 FAILED PROCESS_DEFINITION"]);
}

#[tokio::test]
async fn state_that_no_longer_parses_fails_the_row_and_nothing_else() {
    let mut hand = Hand::order().await;
    hand.bench.sql("UPDATE relais_process SET data = '[]'");
    hand.answer("Charge", "Charged").await;
    assert_eq!(hand.failures(), ["reply-1 FAILED PROCESS_STATE"]);
    hand.bench.sql("UPDATE relais_process SET progress = '{\"at\":\"nowhere\"}'");
    hand.answer("Charge", "Charged").await;
    hand.time_passes().await;
    assert_eq!(hand.failures().len(), 3);
    hand.receive(vec![placed("o-2")]).await;
    assert_eq!(hand.commands(), ["Charge", "Charge"], "others continue");
    // It can still be cancelled.
    let lost = hand.bench.texts("SELECT process_id FROM relais_process WHERE business_key = 'o-1'");
    let id = lost[0].parse().unwrap();
    let ended = hand.operator.act(id, Action::Cancel, "ann", "hopeless").await.unwrap();
    assert_eq!(ended.status, ProcessStatus::Failed);
}

#[tokio::test]
async fn a_command_that_cannot_be_rendered_pauses_its_process_also_at_the_start() {
    let mut definition = order();
    definition.steps[0].call.payload = Some(r#"{"to":{{/input/customer}}}"#.into());
    let mut hand = Hand::new(vec![definition.build().unwrap()]).await;
    hand.receive(vec![placed("o-1")]).await;
    assert_eq!(hand.state(), "PAUSED payment");
    assert_eq!(hand.dead_letters().len(), 1);
    assert!(hand.failures().is_empty() && hand.commands().is_empty());
    let letter = hand.bench.texts("SELECT id FROM relais_dead_letter").remove(0);
    let mut hand = Hand::on(hand.bench, vec![order().build().unwrap()]).await;
    hand.operator.retry(letter.parse().unwrap(), "ann", "template fixed").await.unwrap();
    assert_eq!(
        (hand.state().as_str(), hand.commands()),
        ("RUNNING payment", vec!["Charge".to_owned()])
    );
    assert!(hand.dead_letters().is_empty());
    hand.answer("Charge", "Charged").await;
    assert_eq!(hand.state(), "RUNNING stock");
}

#[tokio::test]
async fn a_start_without_its_business_key_is_a_dead_letter() {
    let mut hand = Hand::order().await;
    hand.receive(vec![message("bare", "OrderPlaced", "{}")]).await;
    assert_eq!(hand.failures(), ["bare FAILED BUSINESS_KEY_MISSING"]);
}

#[tokio::test]
async fn processes_are_found_by_type_status_and_business_key() {
    let mut hand = Hand::order().await;
    hand.receive(vec![placed("o-2"), placed("o-3")]).await;
    hand.answer("Charge", "ChargeFailed").await;
    let list = async |filter: ProcessFilter| {
        let found = hand.operator.list(ProcessFilter { limit: 10, ..filter }).await.unwrap();
        // Those of one millisecond come in any order.
        found.into_iter().map(|process| process.business_key.unwrap()).collect::<BTreeSet<_>>()
    };
    let keys = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let none = ProcessFilter::default();
    let failed = ProcessFilter { status: Some(ProcessStatus::Failed), ..none.clone() };
    assert_eq!(list(failed).await, keys(&["o-3"]));
    let keyed = ProcessFilter { business_key: Some("o-2".into()), ..none.clone() };
    assert_eq!(list(keyed).await, keys(&["o-2"]));
    assert_eq!(list(none.clone()).await, keys(&["o-1", "o-2", "o-3"]));
    assert!(list(ProcessFilter { process_type: Some("x".into()), ..none }).await.is_empty());
}

#[derive(Serialize, Deserialize)]
struct Trip {
    seats: u32,
}

#[derive(Deserialize)]
struct Seats {
    seats: u32,
}

/// Returns `trip`: a command that panics for 13 seats, a reply that panics for none.
fn trip() -> Definition {
    let book = command_named("d", "Book", |trip: &Trip| {
        assert_ne!(trip.seats, 13, "a bug in user code");
        trip.seats
    });
    let book = book.on_named("Booked", |trip: &mut Trip, booked: Seats| {
        trip.seats = booked.seats.checked_sub(1).expect("a bug in user code");
    });
    define::<Trip>("trip", 1)
        .starts_on_named("TripPlanned", |planned: Seats| {
            (None::<String>, Trip { seats: planned.seats })
        })
        .step("book", book)
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_definition_that_panics_fails_its_row_and_no_other() {
    let mut hand = Hand::new(vec![trip()]).await;
    let planned =
        |id: &str, seats: u32| message(id, "TripPlanned", &format!("{{\"seats\":{seats}}}"));
    hand.receive(vec![planned("a", 13), planned("b", 2)]).await;
    assert_eq!(hand.failures(), ["a FAILED PROCESS_PANIC"]);
    assert_eq!(hand.state(), "RUNNING book");
    let id = hand.process_id().to_string();
    let mut bad = reply("bad", "Booked", &id, None);
    bad.content = Content::Json("{\"seats\":0}".into());
    let mut odd = reply("odd", "Booked", &id, None);
    odd.content = Content::Json("{\"seats\":\"many\"}".into());
    hand.receive(vec![bad, odd]).await;
    assert_eq!(hand.failures()[1..], ["bad FAILED PROCESS_PANIC", "odd FAILED PAYLOAD_SHAPE"]);
    let mut good = reply("good", "Booked", &id, None);
    good.content = Content::Json("{\"seats\":3}".into());
    hand.receive(vec![good]).await;
    assert_eq!(
        (hand.state().as_str(), hand.process().await.data),
        ("SUCCEEDED -", "{\"seats\":2}".into())
    );
}

#[tokio::test]
#[should_panic(
    expected = "event type `OrderPlaced` of process `order` has a handler or route already"
)]
async fn an_event_type_has_a_handler_or_processes_but_not_both() {
    let bench = Bench::new().await;
    let route = crate::Route::new("OrderPlaced", "d");
    let app = crate::App::new(bench.store.clone()).route(route);
    drop(app.process(order().build().unwrap()));
}

#[tokio::test]
#[should_panic(expected = "its messages would have the ids of the first")]
async fn two_routes_whose_messages_would_share_ids_are_refused() {
    let bench = Bench::new().await;
    let route = crate::Route::new("T", "d");
    let other = route.clone().payload("{}");
    drop(crate::App::new(bench.store.clone()).route(route).route(other));
}

#[tokio::test]
#[should_panic(expected = "version 1 of process `order` is registered already")]
async fn a_version_is_registered_once() {
    drop(Hand::new(vec![order().build().unwrap(), order().build().unwrap()]).await);
}

#[tokio::test]
async fn a_row_can_be_validated_without_handling_it() {
    let mut hand = Hand::order().await;
    let id = hand.process_id().to_string();
    let mut again = placed("o-1");
    again.message_id = "again".into();
    let lost = reply("lost", "Charged", &uuid::Uuid::nil().to_string(), None);
    hand.receive(vec![again, lost]).await;
    for (message, code) in [("again", "BUSINESS_KEY_TAKEN"), ("lost", "PROCESS_UNKNOWN")] {
        let row = hand.bench.store.find_inbox(message.into()).await.unwrap().unwrap();
        let outcome = hand.operator.validate(&row).await.unwrap();
        assert!(
            matches!(&outcome, Outcome::Fail { problem } if problem.code == code),
            "{outcome:?}"
        );
        let mut fixed = row;
        fixed.headers.set("correlation-id", &id);
        fixed.payload = Some(r#"{"orderId":"o-2"}"#.into());
        assert_eq!(hand.operator.validate(&fixed).await.unwrap(), Outcome::Done);
    }
    assert_eq!(hand.log().len(), 2);
}
