//! A handler with sqlx and state: its changes, its messages and its mark are one commit.
//!
//! `cargo run -p relais --features sqlx-sqlite,log --example sqlx_handler`

use std::sync::Arc;

use relais::{App, Message, Outbox, Outcome, Received, log::LogPublisher, sqlite};
use relais_testkit::{Database, arrived, scratch};
use serde_json::json;
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

/// The state of the service: the smallest amount, in cents.
struct Billing(i64);

async fn on_payment(
    billing: &Billing,
    tx: &mut SqliteConnection,
    message: Received<PaymentReceived>,
) -> anyhow::Result<Outcome> {
    let PaymentReceived { order_id, cents } = message.payload;
    if cents < billing.0 {
        return Ok(Outcome::fail("TOO_SMALL", "the amount is too small")); // a dead letter
    }
    let update = sqlx::query("UPDATE orders SET paid = paid + ? WHERE id = ?");
    update.bind(cents).bind(&order_id).execute(&mut *tx).await?; // an error is tried again
    Outbox::to("warehouse").send(&mut *tx, &OrderPaid { order_id }).await?;
    Ok(Outcome::Done)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = scratch::sqlite().await; // a service opens a `SqliteStore`
    db.run("CREATE TABLE orders (id, paid INTEGER); INSERT INTO orders VALUES ('o-1', 0)").await;
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(db.path())).await?;
    let billing = Arc::new(Billing(100));
    let running = App::new(db.store())
        .handle("PaymentReceived", sqlite::sqlx_handler_with(pool.clone(), billing, on_payment))
        .destination("warehouse", Arc::new(LogPublisher::stdout()))
        .start();
    for (id, cents) in [("p-1", 500), ("p-2", 1)] {
        let payment = json!({"order_id": "o-1", "cents": cents});
        db.accept(vec![arrived(id, "PaymentReceived", payment)], vec![]).await?;
    }
    running.stop_when_idle().await?;
    let paid: i64 = sqlx::query_scalar("SELECT paid FROM orders").fetch_one(&pool).await?;
    anyhow::ensure!(paid == 500 && db.overview().await?.dead_letters_open == 1);
    Ok(())
}
