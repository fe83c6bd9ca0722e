//! Processes over a type of the user's.

use serde::{Deserialize, Serialize};

use super::*;
use crate::{
    message::Message,
    process::{
        PROCESS_STATE,
        definition::Meaning,
        typed::{Define, command, command_named, define},
    },
};

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
    payment: Option<u32>,
}

/// A message named like its type.
macro_rules! message {
    ($name:ident { $($field:ident: $type:ty),* }) => {
        #[derive(Serialize, Deserialize)]
        struct $name { $($field: $type),* }

        impl Message for $name {
            const NAME: &'static str = stringify!($name);
            const AGGREGATE: &'static str = "Order";
            fn aggregate_id(&self) -> String {
                "1".to_owned()
            }
        }
    };
}

message!(Placed { id: String });
message!(TakePayment { order: String });
message!(PaymentTaken { payment: u32 });
message!(Declined { reason: String, final_word: bool });
message!(Refund { payment: u32 });
message!(Refunded {});

#[derive(Deserialize)]
struct Shipped {}

fn order() -> Define<Order> {
    let take = command("payments", |order: &Order| TakePayment { order: order.id.clone() })
        .on(|order: &mut Order, taken: PaymentTaken| order.payment = Some(taken.payment))
        .on(|_: &mut Order, declined: Declined| match declined.final_word {
            true => Meaning::failed(declined.reason),
            false => Meaning::retryable(declined.reason),
        })
        .timeout(Duration::from_secs(5))
        .retry(RetryPolicy { attempts_max: 3, ..RetryPolicy::default() });
    let refund = command("payments", |order: &Order| {
        order.payment.map(|payment| Refund { payment }).ok_or("there is no payment")
    })
    .on(|_: &mut Order, _: Refunded| ());
    let ship = command_named("shipping", "Ship", |order: &Order| json!({"order": order.id}))
        .on_named("Shipped", |_, _: Shipped| ())
        .on_named("NotShipped", |_, _: serde_json::Value| Meaning::failed("no van"))
        .correlate(Correlate::BusinessKey("payload:/order".parse().unwrap()));
    define::<Order>("Order", 3)
        .starts_on(|placed: Placed| (placed.id.clone(), Order { id: placed.id, payment: None }))
        .reversible_step("payment", take, refund)
        .step("shipment", ship)
}

fn world() -> World {
    World::start_with(order().build().unwrap(), &row("m-0", "Placed", r#"{"id":"O-1"}"#))
}

fn reply(world: &mut World, event_type: &str, payload: &str) -> Result<(), Problem> {
    let mut row = world.reply_row(event_type, None);
    row.payload = Some(payload.to_owned());
    world.take(&Input::Reply(&row))
}

#[test]
fn a_typed_process_runs_like_any_other() {
    let mut world = world();
    assert_eq!(world.process.business_key.as_deref(), Some("O-1"));
    assert_eq!(world.sent[0].payload, r#"{"order":"O-1"}"#);
    reply(&mut world, "Declined", r#"{"reason":"later","final_word":false}"#).unwrap();
    world.fire();
    reply(&mut world, "PaymentTaken", r#"{"payment":7}"#).unwrap();
    assert_eq!(world.process.data, r#"{"id":"O-1","payment":7}"#);
    reply(&mut world, "NotShipped", "{}").unwrap();
    assert_eq!(world.sent.last().unwrap().payload, r#"{"payment":7}"#);
    reply(&mut world, "Refunded", "{}").unwrap();
    assert_eq!(world.status(), ProcessStatus::Compensated);
    assert_eq!(world.commands(), ["TakePayment", "TakePayment", "Ship", "Refund"]);
}

#[test]
fn a_function_that_cannot_make_its_command_pauses_the_process() {
    let mut world = world();
    world.act(Action::SkipStep).act(Action::Compensate);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Paused, Some("PAUSED")));
    let DeadLetterChange::Open { problem, .. } = &world.last.dead_letter else {
        panic!("a dead letter is opened")
    };
    assert_eq!(problem.code, "PROCESS_COMMAND");
    assert!(problem.message.ends_with("there is no payment"), "{}", problem.message);
    reply(&mut world, "PaymentTaken", r#"{"payment":7}"#).unwrap();
    world.act(Action::Resume);
    assert_eq!((world.status(), world.dead_letter), (ProcessStatus::Compensating, None));
}

#[test]
fn payloads_and_data_of_another_shape_are_problems() {
    let mut world = world();
    let problem = reply(&mut world, "PaymentTaken", r#"{"payment":"seven"}"#).unwrap_err();
    assert_eq!(problem.code, "PAYLOAD_SHAPE");
    assert!(problem.message.contains("`PaymentTaken`"));
    world.process.data = r#"{"name":"old"}"#.to_owned();
    let problem = reply(&mut world, "PaymentTaken", r#"{"payment":7}"#).unwrap_err();
    assert_eq!(problem.code, PROCESS_STATE);
    let problem = start(&world.definition, &row("m-0", "Placed", "[]")).unwrap_err();
    assert_eq!(problem.code, "PAYLOAD_SHAPE");
    assert_eq!(world.definition.begun(None, "{}").unwrap_err().code, PROCESS_STATE);
}

#[test]
fn the_same_checks_hold_for_typed_ones() {
    let error = define::<Order>("Order", 0).build().unwrap_err();
    assert_eq!(error.problems, ["version 0 must be at least 1", "has no steps"]);
    assert_eq!(error.to_string(), "process `Order`: version 0 must be at least 1; has no steps");
    let silent = command_named("shipping", "Ship", |_: &Order| ());
    let error = order().step("again", silent).build().unwrap_err();
    assert_eq!(error.problems, ["step `again`: waits for no reply, so it would never end"]);
}

#[test]
fn a_process_may_have_no_business_key() {
    let ship =
        command_named("shipping", "Ship", |_: &Order| ()).on_named("Shipped", |_, _: Shipped| ());
    let definition = define::<Order>("Order", 1)
        .starts_on(|placed: Placed| (None::<String>, Order { id: placed.id, payment: None }))
        .step("shipment", ship)
        .build()
        .unwrap();
    let change = start(&definition, &row("m-0", "Placed", r#"{"id":"O-1"}"#)).unwrap();
    assert_eq!(change.process.business_key, None);
}
