//! SQLite with sqlx.

use std::time::Duration;

use relais::{
    Persist,
    sqlite::{SqliteOptions, SqliteStore},
};
use sqlx::{Sqlite, SqliteConnection, SqlitePool, Transaction, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use crate::order::{Fault, Order, TABLE};

#[path = "scenarios.rs"]
mod scenarios;

type Connection = SqliteConnection;

/// A file with relais's tables and the user's.
struct Fixture {
    store: SqliteStore,
    pool: SqlitePool,
    _directory: TempDir,
}

impl Fixture {
    async fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
        store.migrate().await.unwrap();
        let wait = Duration::from_secs(30);
        let options = SqliteConnectOptions::new().filename(&path).busy_timeout(wait);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        sqlx::query(TABLE).execute(&pool).await.unwrap();
        Some(Self { store, pool, _directory: directory })
    }

    async fn begin(&self) -> Transaction<'static, Sqlite> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }

    /// Makes the outbox refuse events of this type from now on.
    async fn refuse(&self, event_type: &str) {
        let sql = format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON relais_outbox
             WHEN NEW.event_type = '{event_type}'
             BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&self.pool).await.unwrap();
    }
}

impl Persist<SqliteConnection> for Order {
    type Error = sqlx::Error;

    async fn persist(&self, tx: &mut SqliteConnection, version: i64) -> sqlx::Result<u64> {
        let query = sqlx::query(self.statement(version));
        let done = query.bind(&self.id).bind(self.lines).bind(version).execute(&mut *tx).await?;
        if self.fault == Some(Fault::ConnectionDies) {
            // Like a connection whose file was removed: it cannot write any more.
            sqlx::query("PRAGMA query_only = 1").execute(tx).await?;
        }
        Ok(done.rows_affected())
    }
}

#[tokio::test]
async fn a_disk_that_is_full_between_state_and_events_leaves_neither() {
    let fixture = Fixture::new().await.unwrap();
    let mut order = Order::place("o-1");
    order.events.record(&crate::order::LineAdded { order_id: "x".repeat(1 << 22), number: 1 });
    let mut tx = fixture.begin().await;
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&mut *tx).await.unwrap();
    let sql = format!("PRAGMA max_page_count = {}", pages + 8);
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut *tx).await.unwrap();
    let refused = crate::order::repository().save(&mut *tx, &mut order).await.unwrap_err();
    assert!(matches!(refused, relais::SaveError::Events { .. }), "{refused}");
    drop(tx);
    assert_eq!(scenarios::both(&fixture, "o-1").await, (None, 0));
    assert_eq!((order.events.version(), order.events.recorded().len()), (0, 2));
}
