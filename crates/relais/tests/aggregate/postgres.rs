//! PostgreSQL with sqlx.

use relais::{
    Persist, SaveError,
    postgres::{PostgresOptions, PostgresStore},
};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use crate::order::{Fault, Order, TABLE, repository};

#[path = "scenarios.rs"]
mod scenarios;

type Connection = PgConnection;

/// A schema with relais's tables and the user's; dropped with it.
pub(crate) struct Fixture {
    pub(crate) store: PostgresStore,
    pool: PgPool,
    schema: String,
    server: PgPool,
}

impl Fixture {
    /// `None` without a server.
    pub(crate) async fn new() -> Option<Self> {
        let Ok(url) = std::env::var("RELAIS_TEST_POSTGRES") else {
            assert!(std::env::var_os("CI").is_none(), "RELAIS_TEST_POSTGRES must be set in CI");
            eprintln!("NOT TESTED: aggregates on PostgreSQL; set RELAIS_TEST_POSTGRES");
            return None;
        };
        let server = PgPool::connect(&url).await.unwrap();
        let schema = format!("relais_{}", uuid::Uuid::now_v7().simple());
        execute(&server, format!("CREATE SCHEMA {schema}")).await;
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{separator}options=-c%20search_path%3D{schema}");
        let store = PostgresStore::connect(&url, PostgresOptions::default()).await.unwrap();
        store.migrate().await.unwrap();
        let pool = PgPool::connect(&url).await.unwrap();
        sqlx::query(TABLE).execute(&pool).await.unwrap();
        Some(Self { store, pool, schema, server })
    }

    async fn begin(&self) -> Transaction<'static, Postgres> {
        self.pool.begin().await.unwrap()
    }

    /// Makes the outbox refuse events of this type from now on.
    async fn refuse(&self, event_type: &str) {
        let sql = format!(
            "ALTER TABLE relais_outbox ADD CONSTRAINT refuse CHECK (event_type <> '{event_type}')"
        );
        execute(&self.pool, sql).await;
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let (server, schema) = (self.server.clone(), self.schema.clone());
        let handle = tokio::runtime::Handle::current();
        // A thread of its own: this runs inside the test's runtime, which waits for it.
        let dropped = std::thread::spawn(move || {
            handle.block_on(execute(&server, format!("DROP SCHEMA {schema} CASCADE")));
        });
        drop(dropped.join());
    }
}

async fn execute(pool: &PgPool, sql: String) {
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(pool).await.unwrap();
}

impl Persist<PgConnection> for Order {
    type Error = sqlx::Error;

    async fn persist(&self, tx: &mut PgConnection, version: i64) -> sqlx::Result<u64> {
        let query = sqlx::query(self.statement(version));
        let done = query.bind(&self.id).bind(self.lines).bind(version).execute(&mut *tx).await?;
        if self.fault == Some(Fault::ConnectionDies) {
            let died = sqlx::query("SELECT pg_terminate_backend(pg_backend_pid())").execute(tx);
            assert!(died.await.is_err());
        }
        Ok(done.rows_affected())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_continues_after_a_failed_save_commits_nothing() {
    let Some(fixture) = Fixture::new().await else { return };
    fixture.refuse("LineAdded").await;
    let mut order = Order::place("o-1");
    order.add_line();
    let mut tx = fixture.begin().await;
    let refused = repository().save(&mut *tx, &mut order).await.unwrap_err();
    assert!(matches!(refused, SaveError::Events { .. }), "{refused}");
    tx.commit().await.unwrap();
    assert_eq!(scenarios::both(&fixture, "o-1").await, (None, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_dies_before_the_commit_leaves_neither() {
    let Some(fixture) = Fixture::new().await else { return };
    let mut order = Order::place("o-1");
    let mut tx = fixture.begin().await;
    repository().save(&mut *tx, &mut order).await.unwrap();
    let died = sqlx::query("SELECT pg_terminate_backend(pg_backend_pid())").execute(&mut *tx);
    assert!(died.await.is_err());
    assert!(tx.commit().await.is_err());
    assert_eq!(scenarios::both(&fixture, "o-1").await, (None, 0));
}

/// Two transactions read the same version and write at the same time: the second waits for the first, and
/// then has a conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_that_waits_for_another_one_conflicts_when_that_one_commits() {
    let Some(fixture) = Fixture::new().await else { return };
    scenarios::save(&fixture, &mut Order::place("o-1")).await.unwrap();
    let (mut first, mut second) =
        (scenarios::read(&fixture, "o-1").await, scenarios::read(&fixture, "o-1").await);
    first.add_line();
    second.add_line();
    let repository = repository();
    let (mut early, mut late) = (fixture.begin().await, fixture.begin().await);
    repository.save(&mut *early, &mut first).await.unwrap();
    let waiting = async {
        let saved = repository.save(&mut *late, &mut second).await;
        late.rollback().await.unwrap();
        saved
    };
    let (waited, committed) = tokio::join!(waiting, early.commit());
    committed.unwrap();
    assert!(matches!(waited, Err(SaveError::Conflict { version: 1, .. })), "{waited:?}");
    assert_eq!(scenarios::both(&fixture, "o-1").await, (Some((1, 2)), 2));
}
