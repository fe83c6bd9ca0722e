//! A database file of its own.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use relais_core::{
    BoxFuture,
    store::{StoreDriver, StoreError},
};
use relais_store::sqlite::{SqliteOptions, SqliteStore};
use relais_store_tests::fixture::{Dialect, Fixture, FixtureNode, RawTransaction, TextRows};
use rusqlite::{Connection, types::ValueRef};
use tempfile::TempDir;

/// The longest wait of another program for the write lock.
const BUSY: Duration = Duration::from_secs(30);

/// An empty file in a directory that goes away with it.
pub struct SqliteFixture {
    store: SqliteStore,
    second: SqliteStore,
    raw: Mutex<Connection>,
    path: PathBuf,
    _directory: TempDir,
}

/// Opens an empty database.
pub async fn open() -> Option<Box<dyn Fixture>> {
    Some(Box::new(SqliteFixture::new().await))
}

impl SqliteFixture {
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("relais.db");
        let node = async || SqliteStore::open(&path, SqliteOptions::default()).await.expect("open");
        let (store, second) = (node().await, node().await);
        let raw = Mutex::new(connect(&path).expect("connect"));
        Self { store, second, raw, path, _directory: directory }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn sqlite(&self) -> &SqliteStore {
        &self.store
    }

    fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, String> {
        // A failed check must not hide behind a poisoned lock.
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        work(&raw).map_err(|e| e.to_string())
    }
}

impl Fixture for SqliteFixture {
    fn store(&self) -> Arc<dyn StoreDriver> {
        Arc::new(self.store.clone())
    }

    fn second(&self) -> Arc<dyn StoreDriver> {
        Arc::new(self.second.clone())
    }

    fn once(
        &self,
        node: FixtureNode,
        handler: String,
        message_id: String,
    ) -> BoxFuture<'static, Result<bool, StoreError>> {
        let store = match node {
            FixtureNode::First => self.store.clone(),
            FixtureNode::Second => self.second.clone(),
        };
        Box::pin(async move { store.once(handler, message_id).await })
    }

    fn credentials(&self) -> Arc<dyn relais_core::credential::Credentials> {
        Arc::new(self.store.clone())
    }

    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<u64, String>> {
        Box::pin(async move { self.with(|raw| execute(raw, sql)) })
    }

    fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<TextRows, String>> {
        Box::pin(async move { self.with(|raw| query(raw, sql)) })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn RawTransaction>, String>> {
        Box::pin(async move {
            let raw = connect(&self.path).map_err(|e| e.to_string())?;
            execute(&raw, "BEGIN IMMEDIATE").map_err(|e| e.to_string())?;
            Ok(Box::new(Open(raw)) as Box<dyn RawTransaction>)
        })
    }
}

struct Open(Connection);

impl Open {
    fn end(self: Box<Self>, sql: &'static str) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { execute(&self.0, sql).map(drop).map_err(|e| e.to_string()) })
    }
}

impl RawTransaction for Open {
    fn execute<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<u64, String>> {
        let done = execute(&self.0, sql).map_err(|e| e.to_string());
        Box::pin(async move { done })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        self.end("COMMIT")
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        self.end("ROLLBACK")
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let raw = Connection::open(path)?;
    raw.busy_timeout(BUSY)?;
    Ok(raw)
}

fn execute(raw: &Connection, sql: &str) -> rusqlite::Result<u64> {
    let mut statement = raw.prepare(sql)?;
    if statement.column_count() > 0 {
        let rows = query(raw, sql)?;
        return Ok(rows.len() as u64);
    }
    Ok(statement.execute([])? as u64)
}

fn query(raw: &Connection, sql: &str) -> rusqlite::Result<TextRows> {
    let mut statement = raw.prepare(sql)?;
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        (0..columns).map(|n| Ok(text(row.get_ref(n)?))).collect::<rusqlite::Result<Vec<_>>>()
    })?;
    rows.collect()
}

fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => Some(format!("{bytes:02x?}")),
    }
}
