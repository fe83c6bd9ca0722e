//! A process (saga): two steps in two systems, and a compensation when the second one fails.
//!
//! `cargo run -p relais --features sqlite --example process`

use std::{sync::Arc, time::Duration};

use relais::{
    App, Delivery, NewInbox, OutboxRow, Publisher, Store, async_trait,
    process::{Definition, InvalidDefinition, Meaning, ProcessFilter, command_named, define},
    sqlite::{SqliteOptions, SqliteStore},
};
use serde_json::{Value, json};

fn order() -> Result<Definition, InvalidDefinition> {
    let id = |order: &Value| json!({"order": order["id"]});
    let take = command_named("services", "TakePayment", id)
        .on_named("PaymentTaken", |_, _: Value| ())
        .timeout(Duration::from_secs(30));
    let refund = command_named("services", "Refund", id).on_named("Refunded", |_, _: Value| ());
    let ship = command_named("services", "Ship", id)
        .on_named("Shipped", |_, _: Value| ())
        .on_named("OutOfStock", |_, _: Value| Meaning::failed("out of stock"));
    define::<Value>("order", 1)
        .starts_on_named("OrderPlaced", |order: Value| {
            (order["id"].as_str().map(str::to_owned), order)
        })
        .reversible_step("payment", take, refund)
        .step("shipment", ship)
        .build()
}

/// Stands for the two services: answers each command at once, through the inbox.
struct Services(SqliteStore);

#[async_trait]
impl Publisher for Services {
    async fn publish(&self, commands: &[OutboxRow]) -> Vec<Delivery> {
        let command = &commands[0];
        let reply = match command.event_type.as_str() {
            "TakePayment" => "PaymentTaken",
            "Ship" if command.payload.contains("o-2") => "OutOfStock",
            "Ship" => "Shipped",
            _ => "Refunded",
        };
        println!("{} {} → {reply}", command.event_type, command.payload);
        // The reply names the process by the correlation id of the command.
        let correlation = command.correlation_id.as_deref().unwrap_or_default();
        let id = format!("reply-{}", command.message_id);
        let reply =
            NewInbox::new("services", &id, reply, "{}").header("correlation-id", correlation);
        match self.0.accept(vec![reply], vec![]).await {
            Ok(_) => vec![Delivery::Accepted],
            Err(error) => vec![Delivery::outage("REPLY", &error.to_string())],
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let store = SqliteStore::open(&file, SqliteOptions::default()).await?;
    store.migrate().await?;

    let app = App::new(Arc::new(store.clone()))
        .process(order()?)
        .destination("services", Arc::new(Services(store.clone())));
    let (operator, running) = (app.operator(), app.start());
    for id in ["o-1", "o-2"] {
        let placed = NewInbox::new("shop", id, "OrderPlaced", &json!({"id": id}).to_string());
        store.accept(vec![placed], vec![]).await?;
    }
    running.idle().await?;
    running.stop().await;

    let all = operator.list(ProcessFilter { limit: 10, ..ProcessFilter::default() }).await?;
    let mut ended: Vec<_> = all
        .iter()
        .map(|process| {
            format!("{}: {:?}", process.business_key.as_deref().unwrap_or_default(), process.status)
        })
        .collect();
    ended.sort();
    println!("{ended:?}");
    anyhow::ensure!(ended == ["o-1: Succeeded", "o-2: Compensated"], "o-2 is paid back");
    Ok(())
}
