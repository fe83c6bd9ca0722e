//! SQLite: a connection for each question.

use std::{ops::Deref, path::Path, sync::Arc, time::Duration};

use relais_core::{BoxFuture, store::StoreDriver};
use relais_store::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::{Connection, types::ValueRef};
use tempfile::TempDir;

use super::{Database, Dialect, TestDatabaseError, TextRows};

/// Longest wait of a statement for a writer.
const BUSY: Duration = Duration::from_secs(30);

impl Database for SqliteStore {
    fn store(&self) -> Arc<dyn StoreDriver> {
        Arc::new(self.clone())
    }

    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<u64, TestDatabaseError>> {
        Box::pin(with(self.path(), sql, |db, sql| {
            db.execute_batch(sql)?;
            Ok(db.changes())
        }))
    }

    fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<TextRows, TestDatabaseError>> {
        Box::pin(with(self.path(), sql, |db, sql| {
            let mut statement = db.prepare(sql)?;
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| {
                (0..columns).map(|column| Ok(text(row.get_ref(column)?))).collect()
            })?;
            rows.collect()
        }))
    }
}

/// On a thread that may block.
async fn with<T: Send + 'static>(
    path: &Path,
    sql: &str,
    work: impl FnOnce(&Connection, &str) -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, TestDatabaseError> {
    let (path, sql) = (path.to_owned(), sql.to_owned());
    let asked = tokio::task::spawn_blocking(move || {
        let db = Connection::open(path)?;
        db.busy_timeout(BUSY)?;
        work(&db, &sql)
    });
    let answer = asked.await.map_err(|stopped| TestDatabaseError(stopped.to_string()))?;
    answer.map_err(|error| TestDatabaseError(error.to_string()))
}

fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
    }
}

/// See [`scratch::sqlite`](super::scratch::sqlite). Can be used wherever a `&SqliteStore` is wanted.
#[derive(Debug)]
pub struct SqliteScratch {
    store: SqliteStore,
    _directory: TempDir,
}

impl SqliteScratch {
    pub(super) async fn create() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("relais.db");
        let options = SqliteOptions::default().unsafe_durability(true);
        let store = SqliteStore::open(&path, options).await.expect("a database file");
        store.migrate().await.expect("relais's tables");
        Self { store, _directory: directory }
    }

    /// Runs SQL of the test's own, such as the making of its tables.
    ///
    /// # Panics
    /// If the database refuses it.
    pub async fn run(&self, sql: &str) -> u64 {
        super::run(self, sql).await
    }
}

impl Deref for SqliteScratch {
    type Target = SqliteStore;

    fn deref(&self) -> &SqliteStore {
        &self.store
    }
}

impl Database for SqliteScratch {
    fn store(&self) -> Arc<dyn StoreDriver> {
        self.store.store()
    }

    fn dialect(&self) -> Dialect {
        self.store.dialect()
    }

    fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<u64, TestDatabaseError>> {
        self.store.execute(sql)
    }

    fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<TextRows, TestDatabaseError>> {
        self.store.query(sql)
    }
}
