//! A process (saga): two steps in two systems, and a compensation when the second one fails.
//!
//! `cargo run -p relais --features sqlite --example process`

use std::sync::Arc;

use relais::process::{self, ProcessRef, ProcessStatus};
use relais::{App, Delivery, OutboxRow, Publisher, async_trait, sqlite::SqliteStore};
use relais_testkit::{Database, arrived, scratch};
use serde_json::{Value, json};

fn order() -> Result<process::Definition, process::InvalidDefinition> {
    let command = |name| process::command_named("services", name, Value::clone);
    let take = command("Take").on_named("Taken", |_, _: Value| ());
    let refund = command("Refund").on_named("Refunded", |_, _: Value| ());
    let ship = command("Ship")
        .on_named("Shipped", |_, _: Value| ())
        .on_named("OutOfStock", |_, _: Value| process::Meaning::failed("out of stock"));
    process::define::<Value>("order", 1)
        .starts_on_named("OrderPlaced", |o: Value| (o["id"].as_str().map(str::to_owned), o))
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
            "Take" => "Taken",
            "Ship" if command.payload.contains("o-2") => "OutOfStock",
            "Ship" => "Shipped",
            _ => "Refunded",
        };
        match self.0.accept(vec![command.reply(reply, "{}")], vec![]).await {
            Ok(_) => vec![Delivery::Accepted],
            Err(error) => vec![Delivery::outage("REPLY", &error.to_string())],
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = scratch::sqlite().await; // a service opens a `SqliteStore`
    let services = Arc::new(Services(SqliteStore::clone(&db)));
    let app = App::new(db.store()).process(order()?).destination("services", services);
    let (operator, running) = (app.operator(), app.start());
    let placed = |id| arrived(id, "OrderPlaced", json!({"id": id}));
    db.store().accept(vec![placed("o-1"), placed("o-2")], vec![]).await?;
    running.stop_when_idle().await?;
    for (id, end) in [("o-1", ProcessStatus::Succeeded), ("o-2", ProcessStatus::Compensated)] {
        let process = operator.find(ProcessRef::key("order", id)).await?;
        anyhow::ensure!(process.is_some_and(|process| process.status == end), "{id}");
    }
    Ok(())
}
