//! A handler with tokio-postgres, on PostgreSQL.
//!
//! `DATABASE_URL=postgres://… cargo run -p relais --features postgres,log --example tokio_postgres_handler`

use std::sync::Arc;

use relais::{App, Message, NewInbox, Outbox, Received, log::LogPublisher, postgres};
use relais_testkit::{Database, scratch};
use tokio_postgres::Transaction;

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

async fn on_payment(
    mut tx: &Transaction<'_>,
    message: Received<PaymentReceived>,
) -> anyhow::Result<()> {
    let PaymentReceived { order_id, cents } = message.payload;
    tx.execute("UPDATE orders SET paid = paid + $1 WHERE id = $2", &[&cents, &order_id]).await?;
    Outbox::to("warehouse").send(&mut tx, &OrderPaid { order_id }).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DATABASE_URL").or_else(|_| std::env::var("RELAIS_TEST_POSTGRES"));
    let Ok(url) = url else {
        println!("not run: set DATABASE_URL to a PostgreSQL server");
        return Ok(());
    };
    // A schema of its own, removed at the end. A service connects with `PostgresStore::connect`.
    let db = scratch::postgres(&url).await;
    db.run("CREATE TABLE orders (id text PRIMARY KEY, paid bigint NOT NULL)").await;
    db.run("INSERT INTO orders VALUES ('o-1', 0)").await;
    let running = App::new(db.store())
        .handle("PaymentReceived", postgres::handler(db.pool(), on_payment))
        .destination("warehouse", Arc::new(LogPublisher::stdout()))
        .start();
    let payload = r#"{"order_id": "o-1", "cents": 500}"#;
    let payment = NewInbox::new("bank", "p-1", "PaymentReceived", payload);
    for _ in 0..2 {
        let accepted = db.accept(vec![payment.clone()], vec![]).await?;
        println!("p-1: {:?}", accepted[0]); // Stored, then Duplicate
    }
    running.stop_when_idle().await?;
    let row = db.pool().get().await?.query_one("SELECT paid FROM orders", &[]).await?;
    let paid: i64 = row.get(0);
    anyhow::ensure!(paid == 500, "the payment counts once");
    Ok(())
}
