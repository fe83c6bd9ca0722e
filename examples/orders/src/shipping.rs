//! The shipping service, with a database of its own: it hears of orders through Kafka and prepares
//! one shipment for each.

use std::{path::Path, sync::Arc, time::Duration};

use relais::{
    App, Received, RunningApp, Source,
    sqlite::{self, SqliteStore},
};
use sqlx::{SqliteConnection, SqlitePool};

use crate::database;

/// As much of the event as this service needs.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct OrderCreated {
    order_id: String,
    customer: String,
}

/// The name under which relais keeps how far the topic has been read.
pub(crate) const SOURCE: &str = "orders";

pub(crate) struct ShippingService {
    pool: SqlitePool,
    store: SqliteStore,
}

impl ShippingService {
    pub(crate) async fn open(path: &Path) -> anyhow::Result<Self> {
        let (pool, store) = database::open(path).await?;
        // Nothing here keeps an order from being shipped twice, so that it would show.
        sqlx::query(
            "CREATE TABLE shipments (id INTEGER PRIMARY KEY, order_id TEXT, customer TEXT)",
        )
        .execute(&pool)
        .await?;
        Ok(Self { pool, store })
    }

    pub(crate) fn start(&self, topic: Box<dyn Source>) -> RunningApp {
        App::new(Arc::new(self.store.clone()))
            .source(SOURCE, topic)
            .handle("OrderCreated", sqlite::sqlx_handler(self.pool.clone(), on_order_created))
            .lease(Duration::from_secs(2)) // as long a crash holds its work up
            .start()
    }

    /// Returns the numbers of shipments, and of orders with one.
    pub(crate) async fn shipments(&self) -> anyhow::Result<(i64, i64)> {
        let counts = "SELECT count(*), count(DISTINCT order_id) FROM shipments";
        Ok(sqlx::query_as(counts).fetch_one(&self.pool).await?)
    }

    pub(crate) async fn close(self) {
        self.pool.close().await;
    }
}

/// The shipment and the mark that the event was handled are one commit.
async fn on_order_created(
    tx: &mut SqliteConnection,
    event: Received<OrderCreated>,
) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO shipments (order_id, customer) VALUES (?, ?)")
        .bind(event.payload.order_id)
        .bind(event.payload.customer)
        .execute(&mut *tx)
        .await?;
    Ok(())
}
