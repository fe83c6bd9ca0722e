//! The order service: each order and its `OrderCreated` event are written in one transaction, and
//! relais publishes the event.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use relais::{
    App, DestinationSettings, Message, Outbox, Publisher, Retention, RetryPolicy,
    sqlite::SqliteStore,
};
use sqlx::SqlitePool;
use uuid::Uuid;

use crate::database;

/// Complete: a consumer never has to ask the order service for more. The event's id is the
/// message's id, so that a consumer can recognise a repeated delivery.
#[derive(Message, serde::Serialize)]
#[message(aggregate = "Order", key = "order_id", id = "event_id")]
#[serde(rename_all = "camelCase")]
struct OrderCreated {
    event_id: Uuid,
    order_id: Uuid,
    customer: String,
    total_cents: i64,
}

pub(crate) struct OrderService {
    pool: SqlitePool,
    store: SqliteStore,
    outbox: Outbox,
}

impl OrderService {
    pub(crate) async fn open(path: &Path) -> anyhow::Result<Self> {
        let (pool, store) = database::open(path).await?;
        sqlx::query(
            "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT, total_cents INTEGER)",
        )
        .execute(&pool)
        .await?;
        Ok(Self { pool, store, outbox: Outbox::to("orders") })
    }

    /// The order and its event exist together or not at all.
    pub(crate) async fn place(&self, customer: &str, total_cents: i64) -> anyhow::Result<Uuid> {
        let order_id = Uuid::now_v7();
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query("INSERT INTO orders (id, customer, total_cents) VALUES (?, ?, ?)")
            .bind(order_id.to_string())
            .bind(customer)
            .bind(total_cents)
            .execute(&mut *tx)
            .await?;
        let event = OrderCreated {
            event_id: Uuid::now_v7(),
            order_id,
            customer: customer.to_owned(),
            total_cents,
        };
        self.outbox.send(&mut *tx, &event).await?;
        if total_cents < 0 {
            bail!("an order cannot have a negative total"); // tx rolls back: no order, no event
        }
        tx.commit().await?;
        Ok(order_id)
    }

    /// Publishes what is waiting. The publisher runs in the same process here; `relais run` could do
    /// it as well.
    pub(crate) async fn publish(&self, publisher: Arc<dyn Publisher>) -> anyhow::Result<u64> {
        // 5 attempts, 100 ms doubling to 1.6 s.
        let settings = DestinationSettings::default().retry(RetryPolicy::default());
        let retention = Retention::default().dispatched_seconds(30 * 86_400);
        let running = App::new(Arc::new(self.store.clone()))
            .destination_with("orders", publisher, settings)
            .retention(retention)
            .start();
        let published = self.wait_until_published().await;
        running.stop().await;
        published
    }

    /// Returns the number of published events, once none is pending.
    async fn wait_until_published(&self) -> anyhow::Result<u64> {
        const LOOKS_MAX: usize = 600;
        for _ in 0..LOOKS_MAX {
            let outbox = self.store.overview().await?.outbox;
            let rows =
                |status: &str| outbox.iter().find(|c| c.name == status).map_or(0, |c| c.rows);
            if rows("FAILED") > 0 {
                bail!("an event could not be published");
            }
            if rows("PENDING") == 0 {
                return Ok(rows("DISPATCHED"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        None.context("the events were not published in time")
    }

    /// A backup of the database as it is now, as an operator would take it.
    #[cfg(feature = "kafka")]
    pub(crate) async fn back_up(&self, path: &Path) -> anyhow::Result<()> {
        let path = path.to_str().context("the path is no text")?;
        sqlx::query("VACUUM INTO ?").bind(path).execute(&self.pool).await?;
        Ok(())
    }

    pub(crate) async fn close(self) {
        self.pool.close().await;
    }
}
