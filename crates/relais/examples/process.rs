//! A process (saga): two steps in two systems, and a compensation when the second one fails.
//!
//! `cargo run -p relais --features sqlite --example process`

use std::sync::Arc;

use relais::{
    App, Delivery, NewInbox, OutboxRow, Publisher, Store, StoreError, async_trait,
    process::{Definition, Meaning, ProcessFilter, command_named, define},
    sqlite::SqliteStore,
};
use relais_testkit::{Database, scratch};
use serde_json::{Value, json};

fn order() -> anyhow::Result<Definition> {
    let id = |order: &Value| json!({"order": order["id"]});
    let take = command_named("services", "Take", id).on_named("Taken", |_, _: Value| ());
    let refund = command_named("services", "Refund", id).on_named("Refunded", |_, _: Value| ());
    let ship = command_named("services", "Ship", id)
        .on_named("Shipped", |_, _: Value| ())
        .on_named("OutOfStock", |_, _: Value| Meaning::failed("out of stock"));
    let order = define::<Value>("order", 1)
        .starts_on_named("OrderPlaced", |o: Value| (o["id"].as_str().map(str::to_owned), o))
        .reversible_step("payment", take, refund)
        .step("shipment", ship);
    Ok(order.build()?)
}

/// Stands for the two services: answers each command at once, through the inbox.
struct Services(SqliteStore);

#[async_trait]
impl Publisher for Services {
    async fn publish(&self, commands: &[OutboxRow]) -> Vec<Delivery> {
        let command = &commands[0];
        let reply = match command.event_type.as_str() {
            "Take" => "Taken",
            "Ship" if command.payload.contains("o-2") => "OutOfStock",
            "Ship" => "Shipped",
            _ => "Refunded",
        };
        // The reply names the process by the correlation id of the command.
        let process = command.correlation_id.as_deref().unwrap_or_default();
        let reply = NewInbox::new("services", &format!("reply-{}", command.id), reply, "{}");
        let stored = self.0.accept(vec![reply.header("correlation-id", process)], vec![]).await;
        let refused = |error: StoreError| Delivery::outage("REPLY", &error.to_string());
        vec![stored.map_or_else(refused, |_| Delivery::Accepted)]
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = scratch::sqlite().await; // a service opens a `SqliteStore`
    let services = Arc::new(Services(SqliteStore::clone(&db)));
    let app = App::new(db.store()).process(order()?).destination("services", services);
    let (operator, running) = (app.operator(), app.start());
    for id in ["o-1", "o-2"] {
        let placed = NewInbox::new("shop", id, "OrderPlaced", &json!({"id": id}).to_string());
        db.accept(vec![placed], vec![]).await?;
    }
    running.idle().await?;
    running.stop().await;
    let all = operator.list(ProcessFilter { limit: 10, ..ProcessFilter::default() }).await?;
    let mut ended: Vec<_> = all.iter().map(|p| (p.business_key.as_deref(), p.status)).collect();
    ended.sort();
    let ended = format!("{ended:?}");
    anyhow::ensure!(
        ended == r#"[(Some("o-1"), Succeeded), (Some("o-2"), Compensated)]"#,
        "{ended}"
    );
    Ok(())
}
