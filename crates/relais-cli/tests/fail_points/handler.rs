//! A service with handlers in Rust: business change, message and the row's mark in one commit.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    sync::Arc,
    time::Duration,
};

use relais::{
    App, BlockingTransaction, Delivery, DestinationSettings, NewMessage, OutboxRow, Outcome,
    Publisher, Received, RetryPolicy, StoreDriver, Transaction,
    core::{
        async_trait,
        inbox::{Content, NewInbox},
        message::Headers,
    },
    postgres::{self, PostgresOptions, PostgresStore},
    sqlite::{self, SqliteOptions, SqliteStore},
};
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    harness::{CrashHarness, Program},
    http::letters,
};

/// Names of payments; the last is refused by the handler.
const PAYMENTS: [&str; 4] = ["p-1", "p-2", "p-3", "bad"];
/// The file of the publisher, one message per line.
const PUBLISHED: &str = "published";

pub(crate) fn change_and_message(harness: &mut CrashHarness, service: &'static str) {
    harness.play(Program::Service(service));
    harness.base.execute("CREATE TABLE ledger (payment TEXT NOT NULL)");
    let done = "SELECT status FROM relais_outbox WHERE status = 'DISPATCHED'";
    harness.until("the tables are there", |harness| harness.said().contains("running"));
    harness.until("all are handled", |harness| harness.base.texts(done).len() == 3);
    harness.until("one is refused", |harness| letters(harness).len() == 1);
    harness.drain();
    harness.finish();

    let ledger = harness.base.texts("SELECT payment FROM ledger ORDER BY payment");
    assert_eq!(ledger, PAYMENTS[..3], "one change for each payment");
    assert_eq!(letters(harness), ["bad OPEN"]);
    let published = fs::read_to_string(harness.site.path(PUBLISHED)).unwrap();
    let mut firsts: Vec<&str> = published.lines().collect();
    assert!(
        firsts.len() <= 3 * (1 + harness.crashes),
        "more copies than crashes can make: {firsts:?}"
    );
    firsts.sort_unstable();
    firsts.dedup();
    // The same id each time.
    assert_eq!(firsts.len(), 3, "{published}");
}

#[derive(Deserialize)]
struct Paid {
    payment: String,
}

/// The service, in a process of its own: until it is asked to stop.
pub(crate) fn serve(url: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut stop = signal(SignalKind::terminate()).unwrap();
        let app = match url.strip_prefix("sqlite:") {
            Some(path) => on_sqlite(path).await,
            None => on_postgres(url).await,
        };
        let retry = RetryPolicy::default().first(Duration::from_millis(10));
        let settings = DestinationSettings::default().retry(retry);
        let running = app
            .destination_with("books", Arc::new(Books), settings)
            .lease(Duration::from_secs(2))
            .start();
        eprintln!("{{\"message\":\"running\"}}");
        stop.recv().await;
        running.stop().await;
    });
}

async fn on_sqlite(path: &str) -> App {
    let store = SqliteStore::open(Path::new(path), SqliteOptions::default()).await.unwrap();
    let handler =
        sqlite::handler(&store, |tx: &rusqlite::Transaction<'_>, paid: Received<Paid>| {
            if paid.payload.payment == "bad" {
                return Outcome::fail("BAD", "on purpose");
            }
            tx.execute("INSERT INTO ledger VALUES (?1)", [&paid.payload.payment]).unwrap();
            tx.enqueue(&[message(&paid.payload.payment)]).unwrap();
            Outcome::Done
        });
    let store: Arc<dyn StoreDriver> = Arc::new(store);
    receive(&store).await;
    App::new(store).handle("Paid", handler)
}

async fn on_postgres(url: &str) -> App {
    let store = PostgresStore::connect(url, PostgresOptions::default()).await.unwrap();
    let handler = postgres::handler(store.pool(), pay);
    let store: Arc<dyn StoreDriver> = Arc::new(store);
    receive(&store).await;
    App::new(store).handle("Paid", handler)
}

async fn pay(tx: &tokio_postgres::Transaction<'_>, paid: Received<Paid>) -> Outcome {
    if paid.payload.payment == "bad" {
        return Outcome::fail("BAD", "on purpose");
    }
    tx.execute("INSERT INTO ledger VALUES ($1)", &[&paid.payload.payment]).await.unwrap();
    let mut tx = tx;
    tx.enqueue(&[message(&paid.payload.payment)]).await.unwrap();
    Outcome::Done
}

/// Accepts messages as a source does: duplicates of an earlier run are recognized.
async fn receive(store: &Arc<dyn StoreDriver>) {
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    let payments = PAYMENTS.map(|payment| NewInbox {
        source_system: "bank".into(),
        message_id: payment.into(),
        topic: String::new(),
        partition_num: 0,
        offset_num: 0,
        key_str: None,
        msg_key: payment.into(),
        aggregate_id: Some(payment.into()),
        event_type: Some("Paid".into()),
        content: Content::Json(serde_json::json!({ "payment": payment }).to_string()),
        headers: Headers::default(),
        event_ts: None,
    });
    store.accept(payments.into(), Vec::new()).await.unwrap();
}

fn message(payment: &str) -> NewMessage {
    let aggregate = ("Payment", payment);
    NewMessage::new(uuid::Uuid::now_v7(), aggregate, "Booked", "books", "{}".to_owned())
}

/// Writes down what it is given.
struct Books;

#[async_trait]
impl Publisher for Books {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let mut file = OpenOptions::new().append(true).create(true).open(PUBLISHED).unwrap();
        for row in messages {
            let line = format!("{} {}\n", row.aggregate_id, row.message_id);
            file.write_all(line.as_bytes()).unwrap();
        }
        vec![Delivery::Accepted; messages.len()]
    }
}
