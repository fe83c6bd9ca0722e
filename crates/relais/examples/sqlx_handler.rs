//! A handler with sqlx and state: its changes, its messages and its mark are one commit.
//!
//! `cargo run -p relais --features sqlx-sqlite,log --example sqlx_handler`

use std::{sync::Arc, time::Duration};

use relais::{
    App, Inspect, Message, NewInbox, Outbox, Outcome, Received, Store,
    log::LogPublisher,
    sqlite::{self, SqliteOptions, SqliteStore},
};
use sqlx::{SqliteConnection, SqlitePool, sqlite::SqliteConnectOptions};

#[derive(serde::Deserialize)]
struct PaymentReceived {
    order_id: String,
    cents: i64,
}

#[derive(Message, serde::Serialize)]
#[message(aggregate = "Order", key = "order_id")]
struct OrderPaid {
    order_id: String,
}

/// The state of the service: clients, caches, configuration.
struct Billing {
    smallest_cents: i64,
}

impl Billing {
    async fn on_payment(
        &self,
        tx: &mut SqliteConnection,
        message: Received<PaymentReceived>,
    ) -> anyhow::Result<Outcome> {
        let PaymentReceived { order_id, cents } = message.payload;
        if cents < self.smallest_cents {
            return Ok(Outcome::fail("TOO_SMALL", "the amount is too small")); // a dead letter
        }
        sqlx::query("UPDATE orders SET paid = paid + ? WHERE id = ?")
            .bind(cents)
            .bind(&order_id)
            .execute(&mut *tx)
            .await?; // an error rolls back and is tried again
        Outbox::to("warehouse").send(&mut *tx, &OrderPaid { order_id }).await?;
        Ok(Outcome::Done)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let store = SqliteStore::open(&file, SqliteOptions::default()).await?;
    store.migrate().await?;
    let options = SqliteConnectOptions::new().filename(&file);
    let pool = SqlitePool::connect_with(options.busy_timeout(Duration::from_secs(5))).await?;
    sqlx::raw_sql(
        "CREATE TABLE orders (id TEXT, paid INTEGER); INSERT INTO orders VALUES ('o-1', 0)",
    )
    .execute(&pool)
    .await?;

    let billing = Arc::new(Billing { smallest_cents: 100 });
    let handler = sqlite::sqlx_handler_with(pool.clone(), billing, Billing::on_payment);
    let running = App::new(Arc::new(store.clone()))
        .handle("PaymentReceived", handler)
        .destination("warehouse", Arc::new(LogPublisher::stdout()))
        .start();
    for (id, cents) in [("p-1", 500), ("p-2", 1)] {
        let payload = format!(r#"{{"order_id": "o-1", "cents": {cents}}}"#);
        store.accept(vec![NewInbox::new("bank", id, "PaymentReceived", &payload)], vec![]).await?;
    }
    running.idle().await?;
    running.stop().await;

    let paid: i64 = sqlx::query_scalar("SELECT paid FROM orders").fetch_one(&pool).await?;
    let dead = store.overview().await?.dead_letters_open;
    println!("paid: {paid}, dead letters: {dead}");
    anyhow::ensure!((paid, dead) == (500, 1), "one is handled, one is refused");
    Ok(())
}
