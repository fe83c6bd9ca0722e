//! The texts that an operator reads about a failed handler, and the errors that a sender gets.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use relais::{
    App, BlockingTransaction, Outbox, Received, SendError,
    explain::{ExplainOutcome, ThingRole},
    postgres, sqlite,
};
use relais_testkit::{Database, database::SqliteScratch, scratch};
use sqlx::{Connection, PgConnection, PgPool, SqliteConnection, SqlitePool};

use super::{OrderPaid, Payment, accept, payment, postgres as server, until};

pub(crate) async fn pool(scratch: &SqliteScratch) -> SqlitePool {
    let path = scratch.path();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    SqlitePool::connect_with(options.busy_timeout(Duration::from_secs(30))).await.unwrap()
}

fn fails() -> anyhow::Result<()> {
    Err(std::io::Error::other("disk full")).context("write the receipt").context("save the payment")
}

const RECORDED: &str = "SELECT message_id, error_code, error_message FROM relais_inbox \
                        WHERE status = 'RETRY' ORDER BY message_id";
const CHAIN: &str = "HANDLER_ERROR save the payment: write the receipt: disk full";
const PANIC: &str = "HANDLER_PANIC the handler panicked: order panic is odd";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_causes_of_an_error_and_the_text_of_a_panic_are_recorded_on_postgresql() {
    let Some(scratch) = server().await else { return };
    let pool = PgPool::connect(&scratch.url()).await.unwrap();
    let errs = async |_: &mut PgConnection, _: Received<Payment>| fails();
    let panics = async |_: &mut PgConnection, m: Received<Payment>| {
        assert!(m.message_id == "x", "order {} is odd", m.message_id);
    };
    let errs_tokio = async |_: &tokio_postgres::Transaction<'_>, _: Received<Payment>| fails();
    let running = App::new(scratch.store())
        .handle("Errs", postgres::sqlx_handler(pool.clone(), errs))
        .handle("Panics", postgres::sqlx_handler(pool, panics))
        .handle("ErrsTokio", postgres::handler(scratch.pool(), errs_tokio))
        .start();
    let messages = [("error", "Errs"), ("panic", "Panics"), ("tokio", "ErrsTokio")]
        .map(|(id, event_type)| payment(id, event_type, id));
    accept(&*scratch.store(), messages.to_vec()).await;
    let expected =
        [&format!("error {CHAIN}")[..], &format!("panic {PANIC}"), &format!("tokio {CHAIN}")];
    until(&scratch, RECORDED, &expected).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_causes_of_an_error_and_the_text_of_a_panic_are_recorded_on_sqlite() {
    let scratch = scratch::sqlite().await;
    let errs = async |_: &mut SqliteConnection, _: Received<Payment>| fails();
    let panics = |_: &rusqlite::Transaction<'_>, m: Received<Payment>| {
        assert!(m.message_id == "x", "order {} is odd", m.message_id);
    };
    let running = App::new(scratch.store())
        .handle("Errs", sqlite::sqlx_handler(pool(&scratch).await, errs))
        .handle("Panics", sqlite::handler(&scratch, panics))
        .start();
    let messages = [payment("error", "Errs", "a"), payment("panic", "Panics", "b")];
    accept(&*scratch, messages.to_vec()).await;
    until(&scratch, RECORDED, &[&format!("error {CHAIN}"), &format!("panic {PANIC}")]).await;
    running.stop().await;
}

fn paid() -> OrderPaid {
    OrderPaid { order_id: "o-1".into(), cents: 5 }
}

fn assert_refused<T: std::fmt::Debug>(answer: Result<T, SendError>) {
    let text = answer.unwrap_err().to_string();
    assert!(text.contains("cannot write outside a transaction"), "{text}");
    assert!(text.contains("begin a transaction"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_outside_a_transaction_is_refused_on_postgresql() {
    let Some(scratch) = server().await else { return };
    let pool = PgPool::connect(&scratch.url()).await.unwrap();
    let orders = Outbox::to("orders");
    let mut connection = pool.acquire().await.unwrap();
    assert_refused(orders.send(&mut *connection, &paid()).await);
    let once = relais::inbox::once(&mut *connection, "billing", "m-1").await.unwrap_err();
    assert!(once.to_string().contains("cannot write outside a transaction"), "{once}");
    // A transaction that sqlx does not know of is found too.
    sqlx::raw_sql("BEGIN").execute(&mut *connection).await.unwrap();
    orders.send(&mut *connection, &paid()).await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut *connection).await.unwrap();
    assert_refused(orders.send(&mut *connection, &paid()).await);
    let mut tx = connection.begin().await.unwrap();
    orders.send(&mut tx, &paid()).await.unwrap();
    orders.send(&mut *tx, &paid()).await.unwrap();
    assert!(relais::inbox::once(&mut tx, "billing", "m-1").await.unwrap());
    tx.commit().await.unwrap();
    until(&scratch, "SELECT count(*) FROM relais_outbox", &["3"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_outside_a_transaction_is_refused_on_sqlite() {
    let scratch = scratch::sqlite().await;
    let orders = Outbox::to("orders");
    let mut connection = pool(&scratch).await.acquire().await.unwrap();
    assert_refused(orders.send(&mut *connection, &paid()).await);
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await.unwrap();
    orders.send(&mut *connection, &paid()).await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut *connection).await.unwrap();
    assert_refused(orders.send(&mut *connection, &paid()).await);
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
    orders.send(&mut tx, &paid()).await.unwrap();
    tx.commit().await.unwrap();

    let mut db = rusqlite::Connection::open(scratch.path()).unwrap();
    assert_refused(orders.send_blocking(&db, &paid()));
    let once = db.once("billing", "m-1").unwrap_err();
    assert!(once.to_string().contains("cannot write outside a transaction"), "{once}");
    let tx = db.transaction().unwrap();
    orders.send_blocking(&tx, &paid()).unwrap();
    tx.commit().unwrap();
    until(&scratch, "SELECT count(*) FROM relais_outbox", &["3"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_with_a_limit_does_not_wait_for_a_handler_that_hangs() {
    let scratch = scratch::sqlite().await;
    let started = Arc::new(tokio::sync::Notify::new());
    let hangs = {
        let started = Arc::clone(&started);
        async move |_: &mut SqliteConnection, _: Received<Payment>| {
            started.notify_one();
            std::future::pending::<()>().await;
        }
    };
    let app = App::new(scratch.store());
    let running = app.handle("Hangs", sqlite::sqlx_handler(pool(&scratch).await, hangs)).start();
    accept(&*scratch, vec![payment("m-1", "Hangs", "k")]).await;
    started.notified().await;
    // The handler would be waited for 30 s, and its own limit is 25 s.
    let began = std::time::Instant::now();
    assert!(running.stop_within(Duration::from_millis(100)).await, "everything else ended in time");
    assert!(began.elapsed() < Duration::from_secs(20), "waited for the handler");
    until(&scratch, "SELECT status, attempts FROM relais_inbox", &["RECEIVED 0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_without_a_worker_is_noted_at_start() {
    let scratch = scratch::sqlite().await;
    let mut db = rusqlite::Connection::open(scratch.path()).unwrap();
    let tx = db.transaction().unwrap();
    for destination in ["orders", "oders"] {
        Outbox::to(destination).send_blocking(&tx, &paid()).unwrap();
    }
    tx.commit().unwrap();
    let slow = Arc::new(relais::log::LogPublisher::stdout());
    let running = App::new(scratch.store()).destination("orders", slow).start();
    expect_note(&running, "1 messages wait for destination oders, which no worker serves").await;
    running.stop().await;
}

/// Waits until the process has exactly this note.
async fn expect_note(running: &relais::RunningApp, note: &str) {
    let deadline = tokio::time::Instant::now() + super::PATIENCE;
    loop {
        let health = running.health().await;
        assert!(health.ready, "{health:?}");
        if !health.notes.is_empty() {
            assert_eq!(health.notes, [note]);
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "no note");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_without_a_worker_is_noted_at_start() {
    let scratch = scratch::sqlite().await;
    let store = scratch.store();
    let refuses = |_: &rusqlite::Transaction<'_>, _: Received<Payment>| -> anyhow::Result<()> {
        anyhow::bail!("search is unavailable")
    };
    let handler = || sqlite::handler(&scratch, refuses);
    let app = |name: &str| App::new(Arc::clone(&store)).subscribe(name, "Paid", handler());
    accept(&*store, vec![payment("m-1", "Paid", "k"), payment("m-2", "Paid", "k")]).await;
    let running = app("search").start();
    let copies = "SELECT count(*) FROM relais_inbox WHERE source_system = '@search::bank'";
    until(&scratch, copies, &["2"]).await;
    running.stop().await;
    // The next version has renamed it.
    let running = app("find").start();
    let note = "2 messages wait for subscriber search, which no worker serves";
    expect_note(&running, note).await;
    let id =
        super::rows(&scratch, "SELECT id FROM relais_inbox WHERE source_system = '@search::bank'");
    let id = format!("inbox:{}", id.await[0]);
    let ExplainOutcome::One(story) = relais::explain::explain(&*store, &id).await.unwrap() else {
        panic!("no story of {id}")
    };
    let subject = story.things.iter().find(|thing| thing.role == ThingRole::Subject).unwrap();
    let waits = subject.waits_for.as_deref().unwrap_or_default();
    assert!(waits.starts_with("waits for subscriber search, which no worker serves"), "{waits}");
    running.stop().await;
}
