//! A store in a temporary directory, a publisher that follows a script, and raw SQL.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use relais_core::{
    async_trait,
    dead_letter::{DecisionAction, DecisionResult, OperatorDecision, Resolution},
    delivery::Delivery,
    lane::{Fence, Scope},
    message::NewMessage,
    outbox::OutboxRow,
    publisher::{Batching, Publisher},
    retry::RetryPolicy,
    store::StoreDriver,
};
use relais_store::sqlite::{SqliteOptions, SqliteStore};
use relais_testkit::{
    Database,
    database::{PostgresScratch, scratch},
};
use tempfile::TempDir;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{
    DestinationSettings, lanes::LaneKeeper, observe::Observer, publish_guard::PublishGuard,
    relay::Relay, worker::run_until_idle,
};

pub(super) struct Bench {
    place: Place,
    pub(super) store: Arc<dyn StoreDriver>,
    pub(super) observer: Observer,
}

/// The database of a bench.
enum Place {
    Sqlite(TempDir, SqliteStore),
    Postgres(PostgresScratch),
}

/// Runs a scenario on SQLite, and on PostgreSQL if there is one.
pub(super) async fn on_both(scenario: impl AsyncFn(Bench)) {
    scenario(Bench::new().await).await;
    let Ok(url) = std::env::var("RELAIS_TEST_POSTGRES") else {
        assert!(std::env::var_os("CI").is_none(), "RELAIS_TEST_POSTGRES must be set in CI");
        eprintln!("NOT TESTED: workers on PostgreSQL; set RELAIS_TEST_POSTGRES");
        return;
    };
    scenario(Bench::on(Place::Postgres(scratch::postgres(&url).await))).await;
}

impl Bench {
    /// Returns a bench on SQLite.
    pub(super) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("relais.db");
        let sqlite = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
        sqlite.migrate().await.unwrap();
        Self::on(Place::Sqlite(dir, sqlite))
    }

    fn on(place: Place) -> Self {
        let store: Arc<dyn StoreDriver> = match &place {
            Place::Sqlite(_, store) => Arc::new(store.clone()),
            Place::Postgres(scratch) => scratch.store(),
        };
        Self { place, store, observer: Observer::default() }
    }

    /// Returns the store of a bench on SQLite.
    pub(super) fn sqlite(&self) -> &SqliteStore {
        match &self.place {
            Place::Sqlite(_, store) => store,
            Place::Postgres(_) => panic!("this test is for SQLite"),
        }
    }

    /// Returns the database of a bench on PostgreSQL.
    pub(super) fn postgres(&self) -> Option<&PostgresScratch> {
        match &self.place {
            Place::Sqlite(..) => None,
            Place::Postgres(scratch) => Some(scratch),
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        match &self.place {
            Place::Sqlite(dir, _) => dir.path().join("relais.db"),
            Place::Postgres(_) => panic!("this test is for SQLite"),
        }
    }

    /// Runs SQL as another program would.
    pub(super) fn sql(&self, sql: &str) {
        if let Place::Postgres(scratch) = &self.place {
            ask(scratch, sql);
            return;
        }
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection.execute_batch(sql).unwrap();
    }

    /// Returns one column of text from SQL.
    pub(super) fn texts(&self, sql: &str) -> Vec<String> {
        if let Place::Postgres(scratch) = &self.place {
            return ask(scratch, sql);
        }
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| {
            row.get::<_, rusqlite::types::Value>(0).map(|value| match value {
                rusqlite::types::Value::Text(text) => text,
                rusqlite::types::Value::Integer(number) => number.to_string(),
                rusqlite::types::Value::Null => "NULL".to_owned(),
                other => format!("{other:?}"),
            })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Makes the database refuse the changes of the outbox row with this key to some statuses.
    pub(super) fn refuse(&self, key: &str, statuses: &str) {
        let condition = format!(
            "NEW.status IN ({statuses}) AND coalesce(NEW.msg_key, NEW.aggregate_id) = '{key}'"
        );
        self.sql(&match &self.place {
            Place::Sqlite(..) => format!(
                "CREATE TRIGGER refuse BEFORE UPDATE OF status ON relais_outbox WHEN {condition}
                 BEGIN SELECT raise(ABORT, 'not this one'); END"
            ),
            Place::Postgres(_) => format!(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
                     AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
                 CREATE TRIGGER refuse BEFORE UPDATE OF status ON relais_outbox FOR EACH ROW
                     WHEN ({condition}) EXECUTE FUNCTION refuse()"
            ),
        });
    }

    /// Lets the database accept all changes again.
    pub(super) fn accept_changes(&self) {
        self.sql(match &self.place {
            Place::Sqlite(..) => "DROP TRIGGER refuse",
            Place::Postgres(_) => "DROP TRIGGER refuse ON relais_outbox",
        });
    }

    /// Expires every lease, as if its worker were lost.
    pub(super) fn expire_leases(&self) {
        self.sql(
            "UPDATE relais_lease SET lease_until = '2000-01-01T00:00:00.000Z';
             UPDATE relais_bulk_job SET lease_until = '2000-01-01T00:00:00.000Z';",
        );
    }

    /// Decides about a dead letter; `false` if it is not open.
    pub(super) async fn resolve(&self, dead_letter: Uuid, resolution: Resolution) -> bool {
        let action = DecisionAction::Resolve { dead_letter, resolution };
        let (actor, reason) = ("ann".to_owned(), "fixed the target".to_owned());
        let decision = OperatorDecision { action, actor, reason };
        self.store.decide(decision).await.unwrap() == DecisionResult::Done
    }

    /// Makes every waiting row due.
    pub(super) fn make_due(&self) {
        for table in ["relais_outbox", "relais_inbox"] {
            self.sql(&format!(
                "UPDATE {table} SET next_attempt_at = '2000-01-01T00:00:00.000Z'
                 WHERE next_attempt_at IS NOT NULL;"
            ));
        }
        self.sql(
            "UPDATE relais_waiting SET due_at = '2000-01-01T00:00:00.000Z' WHERE due_at IS NOT NULL",
        );
    }

    /// Enqueues messages `key:payload` to the destination `d`, in order.
    pub(super) async fn enqueue(&self, messages: &[(&str, &str)]) -> Vec<i64> {
        let rows = messages.iter().map(|(key, name)| message(key, name)).collect();
        self.store.enqueue(rows).await.unwrap()
    }

    pub(super) fn keeper(&self, scope: Scope, worker: &str) -> LaneKeeper {
        let fence = Fence { scope, worker: worker.to_owned() };
        LaneKeeper::new(self.store.clone(), fence, Duration::from_secs(60))
    }

    /// Returns a relay of the destination `d` that owns its lanes.
    pub(super) async fn relay(&self, worker: &str, publisher: &Arc<Script>) -> Relay {
        let settings = DestinationSettings {
            retry: RetryPolicy::default().jitter(false).first(Duration::from_secs(60)),
            ..DestinationSettings::default()
        };
        self.relay_with(worker, publisher, settings).await
    }

    pub(super) async fn relay_with(
        &self,
        worker: &str,
        publisher: &Arc<Script>,
        settings: DestinationSettings,
    ) -> Relay {
        let keeper = self.keeper(Scope::Outbox("d".into()), worker);
        let guard = PublishGuard::new(Arc::clone(publisher) as Arc<dyn Publisher>, &settings);
        let counters = self.observer.destination("d");
        let mut relay = Relay::new(self.store.clone(), keeper, guard, settings, counters);
        relay.reader().keeper().beat().await.unwrap();
        relay.reader().keeper().changed().await;
        relay
    }

    pub(super) fn statuses(&self) -> Vec<String> {
        self.texts("SELECT status || ' ' || attempts FROM relais_outbox ORDER BY id")
    }
}

/// Runs SQL on a connection of its own, as another program would; returns the first column as text.
fn ask(scratch: &PostgresScratch, sql: &str) -> Vec<String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&scratch.url(), tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.simple_query(sql).await.unwrap_or_else(|error| panic!("{error:?}\n in: {sql}"))
        })
    };
    // A thread, because the caller is in a runtime.
    let answers = std::thread::scope(|threads| threads.spawn(run).join().unwrap());
    let rows = answers.into_iter().filter_map(|answer| match answer {
        tokio_postgres::SimpleQueryMessage::Row(row) => {
            Some(row.get(0).unwrap_or("NULL").to_owned())
        }
        _ => None,
    });
    rows.collect()
}

pub(super) fn message(key: &str, name: &str) -> NewMessage {
    NewMessage::new(Uuid::now_v7(), ("Thing", key), "Happened", "d", format!("\"{name}\""))
}

pub(super) async fn drain(relay: &mut Relay) {
    run_until_idle(relay).await;
}

/// A publisher that answers by payload name, and accepts payloads without an answer.
pub(super) struct Script {
    answers: Mutex<HashMap<String, Vec<Delivery>>>,
    seen: Mutex<Vec<String>>,
    batching: Batching,
    /// Payloads whose calls do not return.
    stuck: Mutex<Vec<String>>,
    /// Some of them may return now.
    unstuck: Notify,
    /// A payload that fails every call it is in, and how.
    spoiler: Mutex<Option<(String, Delivery)>>,
    outage: Mutex<Option<(usize, Delivery)>>,
    /// The number of messages of each call.
    sizes: Mutex<Vec<usize>>,
}

impl Script {
    pub(super) fn new(answers: &[(&str, Vec<Delivery>)]) -> Arc<Self> {
        Self::batching(Batching::Single, answers)
    }

    pub(super) fn batching(batching: Batching, answers: &[(&str, Vec<Delivery>)]) -> Arc<Self> {
        let answers = answers.iter().map(|(name, list)| ((*name).to_owned(), list.clone()));
        Arc::new(Self {
            answers: Mutex::new(answers.collect()),
            seen: Mutex::default(),
            batching,
            stuck: Mutex::default(),
            unstuck: Notify::new(),
            spoiler: Mutex::default(),
            outage: Mutex::default(),
            sizes: Mutex::default(),
        })
    }

    pub(super) fn spoil(&self, name: &str, delivery: Delivery) {
        *self.spoiler.lock().unwrap() = Some((name.to_owned(), delivery));
    }

    /// Makes the next calls end with this delivery.
    pub(super) fn fail_calls(&self, calls: usize, delivery: Delivery) {
        *self.outage.lock().unwrap() = Some((calls, delivery));
    }

    fn outage(&self) -> Option<Delivery> {
        let mut outage = self.outage.lock().unwrap();
        let (calls, delivery) = outage.as_mut().filter(|(calls, _)| *calls > 0)?;
        *calls -= 1;
        Some(delivery.clone())
    }

    pub(super) fn stick(&self, name: &str) {
        self.stuck.lock().unwrap().push(name.to_owned());
    }

    /// Lets the call of a stuck payload return.
    pub(super) fn release(&self, name: &str) {
        self.stuck.lock().unwrap().retain(|stuck| stuck != name);
        self.unstuck.notify_waiters();
    }

    /// Returns payload names in the order they were published.
    pub(super) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the number of messages of each call, in order.
    pub(super) fn sizes(&self) -> Vec<usize> {
        self.sizes.lock().unwrap().clone()
    }

    fn answer(&self, row: &OutboxRow) -> Delivery {
        let name = row.payload.trim_matches('"').to_owned();
        self.seen.lock().unwrap().push(name.clone());
        let mut answers = self.answers.lock().unwrap();
        match answers.get_mut(&name) {
            Some(list) if !list.is_empty() => list.remove(0),
            _ => Delivery::Accepted,
        }
    }
}

#[async_trait]
impl Publisher for Script {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        self.sizes.lock().unwrap().push(messages.len());
        let answers: Vec<_> = messages.iter().map(|row| self.answer(row)).collect();
        if let Some(delivery) = self.outage() {
            return vec![delivery; messages.len()];
        }
        if let Some((name, delivery)) = &*self.spoiler.lock().unwrap()
            && messages.iter().any(|row| row.payload.trim_matches('"') == name)
        {
            return vec![delivery.clone(); messages.len()];
        }
        let is_stuck = |row: &OutboxRow| {
            self.stuck.lock().unwrap().contains(&row.payload.trim_matches('"').to_owned())
        };
        loop {
            let unstuck = self.unstuck.notified();
            if !messages.iter().any(is_stuck) {
                break;
            }
            unstuck.await;
        }
        answers
    }

    fn batching(&self) -> Batching {
        self.batching
    }
}
