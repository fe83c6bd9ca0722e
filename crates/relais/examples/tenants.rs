//! One PostgreSQL schema per tenant, each with its own tables and its own workers.
//!
//! `DATABASE_URL=postgres://… cargo run -p relais --features postgres --example tenants`

use std::{collections::BTreeMap, sync::Arc};

use relais::{
    App, Delivery, Inspect, Message, Outbox, OutboxRow, Publisher, Store, async_trait,
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

    let mut running = BTreeMap::new();
    for tenant in ["relais_example_north", "relais_example_south"] {
        client
            .batch_execute(&format!(
                "DROP SCHEMA IF EXISTS {tenant} CASCADE; CREATE SCHEMA {tenant}"
            ))
            .await?;
        let options = PostgresOptions::default().schema(tenant).connections_max(4);
        let store = PostgresStore::connect(&url, options).await?;
        store.migrate().await?;

        // The sender chooses the tenant with the `search_path` of its transaction.
        let mut tx = client.transaction().await?;
        tx.batch_execute(&format!("SET LOCAL search_path = {tenant}")).await?;
        let order = OrderPlaced { order_id: format!("order of {tenant}") };
        Outbox::to("orders").send(&mut tx, &order).await?;
        tx.commit().await?;

        let app =
            App::new(Arc::new(store.clone())).destination("orders", Arc::new(Printer(tenant)));
        running.insert(tenant, (store, app.start()));
    }
    for (tenant, (store, workers)) in running {
        workers.idle().await?;
        workers.stop().await;
        let delivered =
            store.overview().await?.outbox.iter().any(|n| n.name == "DISPATCHED" && n.rows == 1);
        anyhow::ensure!(delivered, "{tenant} has delivered its own message");
        client.batch_execute(&format!("DROP SCHEMA {tenant} CASCADE")).await?;
    }
    Ok(())
}
