//! Handlers as a service writes them: with state, with several for one event type, and with errors worth
//! reading. The same scenarios on each store, through a running `App`.

#![cfg(all(feature = "sqlx-sqlite", feature = "sqlx-postgres", feature = "log"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod forms;
mod remote;
mod several;
mod steps;
mod trouble;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use relais::{NewInbox, StoreDriver};
use relais_testkit::{Database, database::PostgresScratch, scratch};

/// The time limit of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that a handler needs beside the transaction.
#[derive(Clone)]
struct Rates {
    euro_cents: Arc<BTreeMap<&'static str, i64>>,
}

impl Rates {
    fn new() -> Self {
        Self { euro_cents: Arc::new(BTreeMap::from([("EUR", 100), ("CHF", 107)])) }
    }

    /// Converts an amount; awaited as the call of an HTTP client would be.
    async fn convert(&self, amount: i64, currency: &str) -> anyhow::Result<i64> {
        tokio::task::yield_now().await;
        self.look_up(amount, currency)
    }

    fn look_up(&self, amount: i64, currency: &str) -> anyhow::Result<i64> {
        let rate = self.euro_cents.get(currency);
        rate.map(|rate| amount * rate).ok_or_else(|| anyhow::anyhow!("no rate of {currency}"))
    }
}

#[derive(serde::Deserialize)]
struct Payment {
    order_id: String,
    amount: i64,
    currency: String,
}

#[derive(relais::Message, serde::Serialize)]
#[message(aggregate = "Order", key = "order_id")]
struct OrderPaid {
    order_id: String,
    cents: i64,
}

const TABLE: &str = "CREATE TABLE paid (order_id TEXT PRIMARY KEY, cents BIGINT NOT NULL)";

/// Returns a schema on the server; `None` without a server.
async fn postgres() -> Option<PostgresScratch> {
    let Ok(url) = std::env::var("RELAIS_TEST_POSTGRES") else {
        assert!(std::env::var_os("CI").is_none(), "RELAIS_TEST_POSTGRES must be set in CI");
        eprintln!("NOT TESTED: handlers on PostgreSQL; set RELAIS_TEST_POSTGRES");
        return None;
    };
    Some(scratch::postgres(&url).await)
}

fn payment(message_id: &str, event_type: &str, key: &str) -> NewInbox {
    let payload = format!(r#"{{"order_id": "{message_id}", "amount": 3, "currency": "CHF"}}"#);
    NewInbox::new("bank", message_id, event_type, &payload).key(key)
}

async fn accept(store: &dyn StoreDriver, messages: Vec<NewInbox>) {
    store.accept(messages, Vec::new()).await.unwrap();
}

async fn rows(database: &dyn Database, sql: &str) -> Vec<String> {
    let rows = database.query(sql).await.unwrap();
    let text = |row: Vec<Option<String>>| {
        let values: Vec<_> = row.into_iter().map(|v| v.unwrap_or_else(|| "-".into())).collect();
        values.join(" ")
    };
    rows.into_iter().map(text).collect()
}

/// Waits until a query returns this.
async fn until(database: &dyn Database, sql: &str, expected: &[&str]) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = rows(database, sql).await;
        if found == expected {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{sql}\n{found:?}\nexpected {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
