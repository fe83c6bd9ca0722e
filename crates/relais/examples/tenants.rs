//! One PostgreSQL schema per tenant, each with its own tables and its own workers.
//!
//! `DATABASE_URL=postgres://… cargo run -p relais --features postgres --example tenants`

use std::sync::Arc;

use relais::{
    App, Delivery, Message, Outbox, OutboxRow, Publisher, async_trait,
    postgres::{PostgresOptions, PostgresStore},
};
use tokio_postgres::NoTls;

#[derive(Message, serde::Serialize)]
#[message(aggregate = "Order", key = "order_id", destination = "orders")]
struct OrderPlaced {
    order_id: String,
}

/// Prints messages with the name of the tenant.
struct Printer(&'static str);

#[async_trait]
impl Publisher for Printer {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        messages.iter().for_each(|row| println!("{}: {}", self.0, row.payload));
        vec![Delivery::Accepted; messages.len()]
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DATABASE_URL").or_else(|_| std::env::var("RELAIS_TEST_POSTGRES"));
    let Ok(url) = url else {
        println!("not run: set DATABASE_URL to a PostgreSQL server");
        return Ok(());
    };
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    let mut running = Vec::new();
    for tenant in ["relais_example_north", "relais_example_south"] {
        let sql = format!("DROP SCHEMA IF EXISTS {tenant} CASCADE; CREATE SCHEMA {tenant}");
        client.batch_execute(&sql).await?;
        let options = PostgresOptions::default().schema(tenant).connections_max(4);
        let store = PostgresStore::connect(&url, options).await?;
        store.migrate().await?;
        // The sender chooses the tenant with the `search_path` of its transaction.
        let mut tx = client.transaction().await?;
        tx.batch_execute(&format!("SET LOCAL search_path = {tenant}")).await?;
        let order_id = format!("order of {tenant}");
        Outbox::to("orders").send(&mut tx, &OrderPlaced { order_id }).await?;
        tx.commit().await?;
        let app = App::new(Arc::new(store)).destination("orders", Arc::new(Printer(tenant)));
        running.push((tenant, app.start()));
    }
    for (tenant, workers) in running {
        workers.stop_when_idle().await?; // all its messages are delivered
        client.batch_execute(&format!("DROP SCHEMA {tenant} CASCADE")).await?;
    }
    Ok(())
}
