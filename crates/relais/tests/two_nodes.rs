//! Two nodes share one store while one of them is killed again and again: nothing is lost, order per
//! key holds, and everything drains afterwards.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use relais::{
    App, Delivery, DestinationSettings, OutboxRow, Publisher, RetryPolicy, Route, RunningApp,
    StoreDriver,
    core::{
        async_trait,
        inbox::{Content, NewInbox},
        message::Headers,
    },
    postgres::{PostgresOptions, PostgresStore},
    sqlite::{SqliteOptions, SqliteStore},
};

const KEYS: usize = 12;
const STEPS: usize = 40;
const KILLS: usize = 4;

/// A publisher that records its messages, fails every seventh call, and is unavailable every thirty-first.
#[derive(Default)]
struct Ledger(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    calls: usize,
    /// Steps of each key in the order of their first delivery.
    firsts: HashMap<String, Vec<usize>>,
    ids: HashSet<uuid::Uuid>,
}

impl Ledger {
    fn take(&self, row: &OutboxRow) -> Delivery {
        let mut entries = self.0.lock().unwrap();
        entries.calls += 1;
        if entries.calls.is_multiple_of(31) {
            return Delivery::outage("DOWN", "on purpose");
        }
        let fails = entries.calls.is_multiple_of(7);
        if entries.ids.insert(row.message_id) {
            let step =
                row.payload.rsplit(':').next().unwrap().trim_end_matches('}').parse().unwrap();
            entries.firsts.entry(row.msg_key.clone()).or_default().push(step);
        }
        // The message was recorded, the answer is a failure: a lost reply.
        if fails { Delivery::retry("LOST", "on purpose") } else { Delivery::Accepted }
    }
}

#[async_trait]
impl Publisher for Ledger {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        messages.iter().map(|row| self.take(row)).collect()
    }
}

fn start(store: &Arc<dyn StoreDriver>, ledger: &Arc<Ledger>) -> RunningApp {
    let settings = DestinationSettings::default()
        .retry(RetryPolicy::default().attempts_max(50).first(Duration::from_millis(5)));
    let route = Route::new("Stepped", "ledger").aggregate_type("Thing");
    App::new(Arc::clone(store))
        .route(route)
        .destination_with("ledger", Arc::clone(ledger) as Arc<dyn Publisher>, settings)
        .lease(Duration::from_millis(400))
        .start()
}

fn received(key: usize, step: usize) -> NewInbox {
    NewInbox {
        source_system: "test".into(),
        message_id: format!("{key}-{step}"),
        topic: "t".into(),
        partition_num: 0,
        offset_num: 0,
        key_str: None,
        msg_key: format!("key-{key}"),
        aggregate_id: Some(format!("key-{key}")),
        event_type: Some("Stepped".into()),
        content: Content::Json(format!(r#"{{"step":{step}}}"#)),
        headers: Headers::default(),
        event_ts: None,
    }
}

async fn check(store: Arc<dyn StoreDriver>) {
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    let ledger = Arc::<Ledger>::default();
    let steady = start(&store, &ledger);
    let mut victim = Some(start(&store, &ledger));
    for step in 0..STEPS {
        let batch: Vec<_> = (0..KEYS).map(|key| received(key, step)).collect();
        store.accept(batch.clone(), Vec::new()).await.unwrap();
        store.accept(batch, Vec::new()).await.unwrap();
        if step % (STEPS / KILLS) == 5 {
            drop(victim.take());
            victim = Some(start(&store, &ledger));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drained(&store).await;
    steady.stop().await;
    victim.take().unwrap().stop().await;
    let entries = ledger.0.lock().unwrap();
    assert_eq!(entries.firsts.len(), KEYS);
    for (key, steps) in &entries.firsts {
        assert_eq!(*steps, (0..STEPS).collect::<Vec<_>>(), "order of {key}");
    }
}

/// Waits until nothing is open, up to a time that no slow machine needs.
async fn drained(store: &Arc<dyn StoreDriver>) {
    const POLLS_MAX: usize = 1_200;
    for _ in 0..POLLS_MAX {
        let overview = store.overview().await.unwrap();
        let counts = overview.inbox.iter().chain(&overview.outbox);
        let open = ["RECEIVED", "RETRY", "PENDING"];
        if counts.filter(|c| open.contains(&c.name.as_str())).all(|c| c.rows == 0) {
            assert_eq!(overview.dead_letters_open, 0);
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not drained: {:#?}", store.overview().await.unwrap());
}

/// The lease is too long to wait for: only a release hands the lanes over.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_releases_its_lanes_without_waiting_for_the_lease() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relais.db");
    let sqlite = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let store: Arc<dyn StoreDriver> = Arc::new(sqlite);
    store.migrate().await.unwrap();
    let ledger = Arc::<Ledger>::default();
    let publisher = || Arc::clone(&ledger) as Arc<dyn Publisher>;
    let app = || App::new(Arc::clone(&store)).lease(Duration::from_secs(3_600));
    let first = app().destination("ledger", publisher()).start();
    lanes_owned(&store, 64).await;
    let second = app().destination("ledger", publisher()).start();
    first.stop().await;
    lanes_owned(&store, 64).await;
    second.stop().await;
}

/// Waits until the live workers own this many lanes.
async fn lanes_owned(store: &Arc<dyn StoreDriver>, lanes: u64) {
    const POLLS_MAX: usize = 1_200;
    for _ in 0..POLLS_MAX {
        let workers = store.overview().await.unwrap().workers;
        if workers.iter().filter(|w| w.alive).map(|w| w.lanes).sum::<u64>() == lanes {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("lanes are not owned: {:#?}", store.overview().await.unwrap().workers);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relais.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    check(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_on_postgres() {
    let Ok(url) = std::env::var("RELAIS_TEST_POSTGRES") else {
        assert!(std::env::var_os("CI").is_none(), "RELAIS_TEST_POSTGRES must be set in CI");
        eprintln!("NOT TESTED: two nodes on PostgreSQL; set RELAIS_TEST_POSTGRES");
        return;
    };
    let schema = format!("two_nodes_{}", uuid::Uuid::new_v4().simple());
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    let joint = if url.contains('?') { '&' } else { '?' };
    let own = format!("{url}{joint}options=-c%20search_path%3D{schema}");
    let store = PostgresStore::connect(&own, PostgresOptions::default()).await.unwrap();
    check(Arc::new(store)).await;
    // The last statement of a worker may still run and block it.
    let dropped = client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await;
    if let Err(error) = dropped {
        eprintln!("schema {schema} is left behind: {error}");
    }
    drop(client);
    let _ = connection.await;
}
