//! A file in a directory of its own, and what tests do with it.

use std::{path::PathBuf, time::Duration};

use relais_core::{
    handler::HandlerWork,
    inbox::{Content, NewInbox},
    inspect::InspectExt,
    lane::{Fence, LaneRequest, OwnedLane, Scope},
    message::{Headers, NewMessage},
    store::{Fetch, Store},
};
use relais_store::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) const DESTINATION: &str = "orders";

pub(crate) struct Bed {
    dir: TempDir,
    pub(crate) store: SqliteStore,
}

impl Bed {
    pub(crate) async fn new() -> Self {
        Self::with(SqliteOptions::default()).await
    }

    pub(crate) async fn with(options: SqliteOptions) -> Self {
        let bed = Self::empty(options).await;
        bed.store.migrate().await.unwrap();
        bed.raw().execute_batch("CREATE TABLE orders (id TEXT PRIMARY KEY)").unwrap();
        bed
    }

    pub(crate) async fn empty(options: SqliteOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("relais.db"), options).await.unwrap();
        Self { dir, store }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("relais.db")
    }

    /// Another node on the same file.
    pub(crate) async fn second(&self) -> SqliteStore {
        SqliteStore::open(&self.path(), SqliteOptions::default()).await.unwrap()
    }

    /// A connection that knows nothing of relais.
    pub(crate) fn raw(&self) -> Connection {
        let db = Connection::open(self.path()).unwrap();
        db.busy_timeout(Duration::from_secs(10)).unwrap();
        db
    }

    pub(crate) fn count(&self, table_and_where: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table_and_where}");
        self.raw().query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    pub(crate) async fn lease(&self, scope: Scope, worker: &str) -> Vec<OwnedLane> {
        let fence = Fence { scope, worker: worker.into() };
        let request = LaneRequest::new(fence, Duration::from_secs(60));
        self.store.lease_lanes(request).await.unwrap().lanes
    }

    pub(crate) async fn fetch(&self, lanes: &[OwnedLane], limit: usize) -> Vec<Uuid> {
        let scope = Scope::Outbox(DESTINATION.into());
        let fetch = Fetch::new(scope, lanes.to_vec(), limit);
        let rows = self.store.fetch_outbox(fetch).await.unwrap();
        rows.into_iter().map(|row| row.message_id).collect()
    }

    /// Stores one event and gives the work to handle it.
    pub(crate) async fn work(&self, payload: &str) -> HandlerWork {
        let lanes = self.lease(Scope::Inbox, "w1").await;
        self.store.accept(vec![received("m-1", payload)], Vec::new()).await.unwrap();
        let row = self.store.find_inbox("m-1".into()).await.unwrap().unwrap();
        let epoch = lanes.iter().find(|lane| lane.lane == row.lane).unwrap().epoch;
        HandlerWork { row, fence: Fence { scope: Scope::Inbox, worker: "w1".into() }, epoch }
    }
}

pub(crate) fn received(id: &str, payload: &str) -> NewInbox {
    NewInbox {
        source_system: "crm".into(),
        message_id: id.into(),
        topic: "hook".into(),
        partition_num: 0,
        offset_num: 0,
        key_str: None,
        msg_key: id.into(),
        aggregate_id: None,
        event_type: Some("OrderCreated".into()),
        content: Content::Json(payload.into()),
        headers: Headers::default(),
        event_ts: None,
    }
}

pub(crate) fn message(key: &str) -> NewMessage {
    let payload = format!("{{\"key\":\"{key}\"}}");
    NewMessage::new(Uuid::new_v4(), ("Order", key), "OrderCreated", DESTINATION, payload)
}
