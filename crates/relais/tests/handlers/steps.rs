//! Steps of a process in Rust that a handler in another process carries out, through a running `App`: on each
//! store, in an inbox of its own, with answers that are lost.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use relais::{
    App, Delivery, DestinationSettings, InboxRow, NewInbox, Outcome, RemoteHandler, RemoteReply,
    RetryPolicy,
    core::async_trait,
    process::{Definition, KeyUse, define, handler_command},
};
use relais_testkit::{Database, scratch};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{postgres as server, rows, until};

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
    payment: Option<String>,
}

#[derive(Deserialize)]
struct Placed {
    id: String,
}

fn order() -> Definition {
    let charge = handler_command("shop", "Charge", |order: &Order| json!({"order": order.id}))
        .on_done(|order: &mut Order, payment: String| order.payment = Some(payment));
    let refund = handler_command("shop", "Refund", |order: &Order| json!({"of": order.payment}));
    let ship = handler_command("shop", "Ship", |order: &Order| json!({"order": order.id}));
    define::<Order>("order", 1)
        .starts_on_named("Placed", |placed: Placed| {
            (placed.id.clone(), Order { id: placed.id, payment: None })
        })
        .key_use(KeyUse::WhileOpen)
        .reversible_step("payment", charge, refund)
        .step("shipment", ship)
        .build()
        .unwrap()
}

/// A service with a memory of its own; its first answer to each command is lost.
#[derive(Default)]
struct Shop {
    lost: Mutex<HashSet<String>>,
    effects: Mutex<BTreeMap<String, usize>>,
}

#[async_trait]
impl RemoteHandler for Shop {
    async fn call(&self, row: &InboxRow) -> RemoteReply {
        let body: Value = serde_json::from_str(row.payload.as_deref().unwrap()).unwrap();
        let command = row.event_type.clone().unwrap();
        if command == "Ship" && body["order"] == "o-2" {
            return RemoteReply::Refused(Outcome::fail("NO_STREET", "no such street"));
        }
        if self.lost.lock().unwrap().insert(row.message_id.clone()) {
            let name = format!("{command} {}", row.headers.get("idempotency-key").unwrap());
            *self.effects.lock().unwrap().entry(name).or_default() += 1;
            return RemoteReply::Failed(Delivery::retry("CONNECTION_CUT", "no answer"));
        }
        let data = (command == "Charge").then(|| json!(format!("p-{}", body["order"])).to_string());
        RemoteReply::Done { messages: Vec::new(), data }
    }
}

async fn check(database: &dyn Database) {
    let store = database.store();
    let quick = RetryPolicy::default()
        .attempts_max(1_000)
        .first(Duration::from_millis(1))
        .max(Duration::from_millis(1));
    let service = Arc::<Shop>::default();
    let handler = Arc::clone(&service) as Arc<dyn RemoteHandler>;
    let app = App::new(Arc::clone(&store)).inbox("orders").process(order()).remote_handler(
        "shop",
        [],
        handler,
        DestinationSettings::default().retry(quick),
    );
    assert!(app.outline().destinations.iter().any(|(name, _)| name == "inbox:orders"));
    let operator = app.operator();
    let placed = |id: &str| {
        let payload = json!({"id": id}).to_string();
        NewInbox::new("orders::web", id, "Placed", &payload)
    };
    store.accept(vec![placed("o-1"), placed("o-2")], Vec::new()).await.unwrap();
    let running = app.start();
    let ended = "SELECT status, count(*) FROM relais_process GROUP BY 1 ORDER BY 1";
    until(database, ended, &["COMPENSATED 1", "SUCCEEDED 1"]).await;
    // An action of an operator uses the same way.
    let started = operator.start("order", Some("o-2"), r#"{"id":"o-3"}"#, "ann", "by hand").await;
    started.unwrap();
    until(database, ended, &["COMPENSATED 1", "SUCCEEDED 2"]).await;
    running.stop().await;

    let effects = service.effects.lock().unwrap().clone();
    assert!(effects.values().all(|times| *times == 1), "{effects:?}");
    assert_eq!(effects.len(), 6, "{effects:?}");
    let inboxes =
        "SELECT source_system, status, count(*) FROM relais_inbox GROUP BY 1, 2 ORDER BY 1";
    assert_eq!(
        rows(database, inboxes).await,
        [
            "orders::relais PROCESSED 7",
            "orders::web PROCESSED 2",
            "orders@shop::relais PROCESSED 7"
        ]
    );
    let sent = "SELECT destination, status, count(*) FROM relais_outbox GROUP BY 1, 2";
    assert_eq!(rows(database, sent).await, ["inbox:orders DISPATCHED 14"]);
    let data =
        "SELECT data FROM relais_process WHERE status = 'SUCCEEDED' ORDER BY created_at LIMIT 1";
    assert!(rows(database, data).await[0].contains("p-\\\"o-1\\\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_carries_out_the_steps_of_a_process_on_postgresql() {
    let Some(scratch) = server().await else { return };
    check(&scratch).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_carries_out_the_steps_of_a_process_on_sqlite() {
    check(&scratch::sqlite().await).await;
}

#[tokio::test]
async fn a_step_without_its_handler_is_refused_at_the_start() {
    let app = App::new(scratch::sqlite().await.store()).process(order());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| app.start()));
    let text = caught.err().unwrap().downcast::<String>().unwrap();
    assert!(text.contains("a step of process `order` names handler `shop`"), "{text}");
}
