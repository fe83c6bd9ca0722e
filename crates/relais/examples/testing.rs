//! The test kit: is a handler idempotent, what did it send, and what happens days later?
//!
//! `cargo run -p relais --features sqlite --example testing`. In your service these are `#[tokio::test]`s.

use std::{sync::Arc, time::Duration};

use relais::{CleanupMode, Handler, Message, Outbox, Received, Retention, sqlite};
use relais_testkit::{
    VirtualClock, arrived, assert_idempotent, assert_outbox, database::SqliteScratch, scratch, sent,
};
use rusqlite::Transaction;
use serde_json::json;

#[derive(serde::Deserialize)]
struct PaymentReceived {
    account: String,
    cents: i64,
}

#[derive(Message, serde::Serialize)]
#[message(aggregate = "Account", key = "account")]
struct Credited {
    account: String,
    cents: i64,
}

fn on_payment(tx: &Transaction<'_>, message: Received<PaymentReceived>) -> anyhow::Result<()> {
    let PaymentReceived { account, cents } = message.payload;
    tx.execute("UPDATE accounts SET cents = cents + ?1 WHERE id = ?2", (cents, &account))?;
    Outbox::to("books").send_blocking(tx, &Credited { account, cents })?;
    Ok(())
}

/// A fresh database and the handler for it; called once for each run.
async fn bank() -> (SqliteScratch, Arc<dyn Handler>) {
    let db = scratch::sqlite().await;
    db.run("CREATE TABLE accounts (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)").await;
    db.run("INSERT INTO accounts VALUES ('a-1', 0)").await;
    let handler = sqlite::handler(&db, on_payment);
    (db, handler)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Duplicates, crashes at every point, failing writes: the result must be the same.
    let payment = arrived("m-1", "PaymentReceived", json!({"account": "a-1", "cents": 500}));
    assert_idempotent!(bank, payment);

    let (db, _) = bank().await;
    let credited = Credited { account: "a-1".into(), cents: 500 };
    db.enqueue(vec![Outbox::to("books").message(&credited)?]).await?;
    assert_outbox!(db, [sent("Credited").to("books").key("a-1").payload(json!({"cents": 500}))]);

    assert!(db.once("billing".into(), "m-1".into()).await?);
    VirtualClock::advance(&db, Duration::from_secs(31 * 86_400)).await;
    let mode = CleanupMode::Remove { rows_max: 100 };
    assert_eq!(db.cleanup(Retention::default(), mode).await?.handled, 1);
    Ok(())
}
