//! Expectations about the outbox, and the message when they fail.

use relais::{Message, Outbox, StoreDriver};
use relais_testkit::{
    assert_outbox,
    database::SqliteScratch,
    outbox_assert::{ExpectedMessage, ListOrder, check},
    scratch, sent,
};
use serde::Serialize;
use serde_json::json;

use crate::shop;

#[derive(Message, Serialize)]
#[message(aggregate = "Order", key = "order_id")]
struct OrderPlaced {
    order_id: &'static str,
    lines: Vec<i64>,
    customer: Customer,
}

#[derive(Serialize)]
struct Customer {
    name: &'static str,
    vip: bool,
}

#[derive(Message, Serialize)]
#[message(aggregate = "Mail", key = "to")]
struct MailRequested {
    to: &'static str,
}

fn placed(order_id: &'static str, lines: &[i64]) -> OrderPlaced {
    OrderPlaced { order_id, lines: lines.to_vec(), customer: Customer { name: "Ann", vip: true } }
}

async fn fill(store: &dyn StoreDriver) {
    let orders = Outbox::to("orders").header("tenant", "t-1");
    let rows = vec![
        orders.message(&placed("o-1", &[1, 2])).unwrap(),
        orders.message(&placed("o-2", &[])).unwrap(),
        Outbox::to("mail").message(&MailRequested { to: "ann" }).unwrap(),
        Outbox::to("mail").message(&MailRequested { to: "ann" }).unwrap(),
    ];
    store.enqueue(rows).await.unwrap();
}

async fn filled() -> SqliteScratch {
    let db = scratch::sqlite().await;
    fill(&*db).await;
    db
}

fn expected() -> [ExpectedMessage; 3] {
    [
        sent("OrderPlaced").to("orders").key("o-1").payload(json!({"customer": {"name": "Ann"}})),
        sent("OrderPlaced").header("tenant", "t-1").payload(json!({"lines": []})),
        sent("MailRequested").to("mail").times(2),
    ]
}

/// Returns the message of the failed check.
async fn complaint(expected: Vec<ExpectedMessage>, order: ListOrder) -> String {
    let db = filled().await;
    let checked = tokio::spawn(async move { check(&*db, &expected, order).await }).await;
    let panicked = checked.unwrap_err().into_panic();
    *panicked.downcast::<String>().unwrap()
}

#[tokio::test]
async fn what_is_there_is_found_on_each_store() {
    let [first, second, mails] = expected();
    let db = filled().await;
    assert_outbox!(db, [first, second, mails]);
    let Some(db) = shop::postgres().await else { return };
    fill(&*db).await;
    let [first, second, mails] = expected();
    assert_outbox!(db, in any order [mails, second, first]);
}

#[tokio::test]
async fn an_empty_outbox_is_empty() {
    let db = scratch::sqlite().await;
    assert_outbox!(db, []);
    let store = relais_testkit::Database::store(&db);
    assert_outbox!(store, in any order []);
}

#[tokio::test]
async fn a_difference_is_named_field_by_field() {
    let [_, second, mails] = expected();
    let part = json!({"lines": [1, 3], "customer": {"vip": false, "age": 7}});
    let wrong = sent("OrderPlaced").to("shop").key("o-9").payload(part).header("tenant", "t-2");
    let text = complaint(vec![wrong, second, mails], ListOrder::AsListed).await;
    for line in [
        "the outbox is not as expected: 4 expected, 4 found",
        "   1. DIFFERS   expected OrderPlaced to shop, key o-9, with {",
        "found    OrderPlaced to orders, key o-1, {\"order_id\":\"o-1\"",
        "destination: expected \"shop\", found \"orders\"",
        "key: expected \"o-9\", found \"o-1\"",
        "header tenant: expected \"t-2\", found \"t-1\"",
        "payload/lines/1: expected 3, found 2",
        "payload/customer/vip: expected false, found true",
        "payload/customer/age: expected 7, found nothing",
        "   2. ok        OrderPlaced to orders, key o-2, ",
        "   4. ok        MailRequested to mail, key ann, ",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[tokio::test]
async fn what_is_missing_and_what_is_too_much_is_listed() {
    let [first, second, mails] = expected();
    let more = vec![first.clone(), second.clone(), mails.clone().times(3)];
    let text = complaint(more, ListOrder::AsListed).await;
    assert!(text.contains("   5. MISSING   MailRequested to mail\n"), "{text}");
    let text = complaint(vec![first, mails, sent("OrderPaid")], ListOrder::Any).await;
    assert!(text.contains("   4. MISSING   OrderPaid\n"), "{text}");
    assert!(text.contains("   5. TOO MUCH  OrderPlaced to orders, key o-2, "), "{text}");
    let text = complaint(vec![second], ListOrder::AsListed).await;
    assert!(text.contains("payload/lines: expected [], found [1,2]"), "{text}");
}

#[tokio::test]
async fn an_exact_expectation_is_not_robbed_by_a_general_one() {
    let db = filled().await;
    let [first, second, mails] = expected();
    let general = sent("OrderPlaced");
    assert_outbox!(db, in any order [general, first, mails]);
    let general = sent("OrderPlaced");
    assert_outbox!(db, in any order [general, second, sent("MailRequested").times(2)]);
}
