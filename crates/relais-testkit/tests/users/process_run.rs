//! A process run without a database.

use std::time::Duration;

use relais::{
    RetryPolicy,
    core::process::{
        Action, Definition, ProcessStatus,
        definition::Meaning,
        typed::{command_named, define},
    },
};
use relais_testkit::ProcessRun;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: String,
    payment: Option<String>,
}

fn definition() -> Definition {
    let field = |reply: &Value| reply["payment"].as_str().map(str::to_owned);
    let once = RetryPolicy::default().attempts_max(1);
    let take = command_named("payments", "TakePayment", |order: &Order| json!({"order": order.id}))
        .on_named("PaymentTaken", move |order, taken: Value| order.payment = field(&taken))
        .on_named("PaymentDeclined", |_, _: Value| Meaning::failed("declined"))
        .timeout(MINUTE);
    let refund =
        command_named("payments", "Refund", |order: &Order| json!({"payment": order.payment}))
            .on_named("Refunded", |_, _: Value| ());
    let ship = command_named("shipping", "Ship", |order: &Order| json!({"order": order.id}))
        .on_named("Shipped", |_, _: Value| ())
        .timeout(MINUTE)
        .retry(once);
    define::<Order>("Order", 1)
        .starts_on_named("OrderPlaced", |placed: Value| {
            let id = placed["id"].as_str().unwrap_or_default().to_owned();
            (id.clone(), Order { id, payment: None })
        })
        .reversible_step("payment", take, refund)
        .step("shipment", ship)
        .build()
        .unwrap()
}

fn placed() -> ProcessRun {
    ProcessRun::start(&definition(), "OrderPlaced", json!({"id": "o-1"})).unwrap()
}

fn names(run: &mut ProcessRun) -> Vec<String> {
    run.commands().into_iter().map(|command| command.event_type).collect()
}

#[test]
fn replies_take_it_to_its_end() {
    let mut order = placed();
    assert_eq!((order.status(), order.step()), (ProcessStatus::Running, Some("payment")));
    let commands = order.commands();
    assert_eq!((commands.len(), commands[0].payload.as_str()), (1, r#"{"order":"o-1"}"#));
    order.reply("PaymentTaken", json!({"payment": "p-1"})).unwrap();
    assert_eq!(order.data::<Order>(), Order { id: "o-1".into(), payment: Some("p-1".into()) });
    assert_eq!(names(&mut order), ["Ship"]);
    order.reply("Shipped", json!({})).unwrap();
    assert_eq!((order.status(), order.timer()), (ProcessStatus::Succeeded, None));
    let events: Vec<_> = order.log().iter().map(|entry| entry.event.name()).collect();
    assert_eq!(events.first().zip(events.last()), Some((&"ProcessStarted", &"ProcessCompleted")));
}

#[test]
fn time_that_passes_a_time_out_undoes_what_was_done_and_a_late_reply_is_harmless() {
    let mut order = placed();
    order.reply("PaymentTaken", json!({"payment": "p-1"})).unwrap();
    let ship = order.commands().pop().unwrap();
    order.advance(MINUTE - Duration::from_secs(1)).unwrap();
    assert_eq!((names(&mut order).len(), order.timer()), (0, Some(Duration::from_secs(1))));
    order.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(order.status(), ProcessStatus::Compensating);
    let refund = order.commands();
    assert_eq!(refund[0].payload, r#"{"payment":"p-1"}"#);
    order.reply("Refunded", json!({})).unwrap();
    assert_eq!(order.status(), ProcessStatus::Compensated);
    let before = order.log().len();
    order.reply_to(&ship, "Shipped", json!({})).unwrap();
    assert!(order.log().len() > before, "it is logged");
}

#[test]
fn a_step_without_an_answer_is_tried_as_often_as_its_policy_says() {
    let mut order = placed();
    order.advance(24 * 60 * MINUTE).unwrap();
    let commands = names(&mut order);
    assert_eq!(commands, ["TakePayment"; 5]);
    assert_eq!(order.status(), ProcessStatus::Failed);
    assert!(order.dead_letter().is_some());
}

#[test]
fn operators_act_on_it() {
    let mut order = placed();
    order.act(Action::Pause, "ann", "stocktaking").unwrap();
    order.reply("PaymentTaken", json!({"payment": "p-1"})).unwrap();
    assert_eq!((order.status(), names(&mut order).len()), (ProcessStatus::Paused, 1));
    order.act(Action::Resume, "ann", "done").unwrap();
    assert_eq!(names(&mut order), ["Ship"]);
    let refused = order.act(Action::Resume, "ann", "again").unwrap_err();
    assert_eq!(refused.code, "PROCESS_ACTION");
}

#[test]
#[should_panic(expected = "`PaymentLost` means nothing to `Order`")]
fn a_reply_without_a_process_panics() {
    let _ = placed().reply("PaymentLost", json!({}));
}
