//! An order service: each order and its `OrderCreated` event are written in one transaction, and
//! relais publishes the event.
//!
//! Run it with `cargo run -p orders`. It works in a temporary directory and ends by itself.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use relais::{
    App, DestinationSettings, Message, Outbox, Retention, RetryPolicy, Store,
    log::LogPublisher,
    sqlite::{SqliteOptions, SqliteStore},
};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
use uuid::Uuid;

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

struct OrderService {
    pool: SqlitePool,
    outbox: Outbox,
}

impl OrderService {
    /// The order and its event exist together or not at all.
    async fn place(&self, customer: &str, total_cents: i64) -> anyhow::Result<Uuid> {
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
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("orders.db");

    // relais keeps its tables beside the service's own.
    let store = SqliteStore::open(&path, SqliteOptions::default()).await?;
    store.migrate().await?;
    store.check().await?;

    let options = SqliteConnectOptions::new().filename(&path).busy_timeout(Duration::from_secs(5));
    let pool = SqlitePool::connect_with(options).await?;
    sqlx::query("CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT, total_cents INTEGER)")
        .execute(&pool)
        .await?;

    let service = OrderService { pool, outbox: Outbox::to("orders") };
    for (customer, total_cents) in [("ann", 1_999), ("bob", 4_200), ("ann", 350)] {
        let id = service.place(customer, total_cents).await?;
        eprintln!("order {id} of {customer} placed");
    }
    let refused = service.place("eve", -1).await.expect_err("a negative total is refused");
    eprintln!("order of eve refused: {refused}");

    // The publisher runs in the same process here; `relais run` could do it as well.
    let settings = DestinationSettings {
        retry: RetryPolicy::default(), // 5 attempts, 100 ms doubling to 1.6 s
        ..DestinationSettings::default()
    };
    let retention = Retention { dispatched_seconds: 30 * 86_400, ..Retention::default() };
    let running = App::new(Arc::new(store.clone()))
        .destination_with("orders", Arc::new(LogPublisher::stdout()), settings)
        .retention(retention)
        .start();
    let published = wait_until_published(&store).await;
    running.stop().await;
    eprintln!("{} events published, none for the refused order", published?);
    service.pool.close().await;
    Ok(())
}

/// How many events were published, once none is pending.
async fn wait_until_published(store: &SqliteStore) -> anyhow::Result<u64> {
    const LOOKS_MAX: usize = 600;
    for _ in 0..LOOKS_MAX {
        let outbox = store.overview().await?.outbox;
        let rows = |status: &str| outbox.iter().find(|c| c.name == status).map_or(0, |c| c.rows);
        if rows("PENDING") == 0 {
            return Ok(rows("DISPATCHED"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None.context("the events were not published in time")
}
