//! PostgreSQL: questions over a connection of the store's pool.

use std::{ops::Deref, sync::Arc};

use relais_core::{BoxFuture, store::StoreDriver};
use relais_store::postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::SimpleQueryMessage;
use uuid::Uuid;

use super::{Database, Dialect, TestDatabaseError, TextRows};

impl Database for PostgresStore {
    fn store(&self) -> Arc<dyn StoreDriver> {
        Arc::new(self.clone())
    }

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<u64, TestDatabaseError>> {
        Box::pin(async move {
            let answers = ask(self, sql).await?;
            let touched = answers.iter().rev().find_map(|answer| match answer {
                SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
                _ => None,
            });
            Ok(touched.unwrap_or(0))
        })
    }

    fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<TextRows, TestDatabaseError>> {
        Box::pin(async move {
            let answers = ask(self, sql).await?;
            let rows = answers.iter().filter_map(|answer| match answer {
                SimpleQueryMessage::Row(row) => {
                    Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
                }
                _ => None,
            });
            Ok(rows.collect())
        })
    }
}

async fn ask(
    store: &PostgresStore,
    sql: &str,
) -> Result<Vec<SimpleQueryMessage>, TestDatabaseError> {
    let client = store.pool().get().await.map_err(|error| TestDatabaseError(error.to_string()))?;
    client.simple_query(sql).await.map_err(|error| match error.as_db_error() {
        Some(answer) => TestDatabaseError(answer.to_string()),
        None => TestDatabaseError(error.to_string()),
    })
}

/// See [`scratch::postgres`](super::scratch::postgres). Can be used wherever a `&PostgresStore` is
/// wanted.
pub struct PostgresScratch {
    store: PostgresStore,
    server_url: String,
    schema: String,
}

impl PostgresScratch {
    pub(super) async fn create(server_url: &str) -> Self {
        let schema = format!("relais_{}", Uuid::now_v7().simple());
        let server = connect(server_url).await.expect("the server answers");
        super::run(&server, &format!("CREATE SCHEMA {schema}")).await;
        let store = connect(&within(server_url, &schema)).await.expect("the server answers");
        let scratch = Self { store, server_url: server_url.to_owned(), schema };
        scratch.store.migrate().await.expect("relais's tables");
        scratch
    }

    /// Returns its URL, for a pool of the test's own: its connections see this schema only.
    pub fn url(&self) -> String {
        within(&self.server_url, &self.schema)
    }

    /// Runs SQL of the test's own, such as the making of its tables.
    ///
    /// # Panics
    /// If the database refuses it.
    pub async fn run(&self, sql: &str) -> u64 {
        super::run(self, sql).await
    }
}

async fn connect(url: &str) -> Result<PostgresStore, relais_core::store::StoreError> {
    let options = PostgresOptions::default().unsafe_durability(true);
    PostgresStore::connect(url, options).await
}

fn within(server_url: &str, schema: &str) -> String {
    let separator = if server_url.contains('?') { '&' } else { '?' };
    // Nothing of it need survive a power cut: that makes it fast.
    let options = format!("-c%20search_path%3D{schema}%20-c%20synchronous_commit%3Doff");
    format!("{server_url}{separator}options={options}")
}

impl std::fmt::Debug for PostgresScratch {
    /// Without the address: it may carry a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresScratch").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Deref for PostgresScratch {
    type Target = PostgresStore;

    fn deref(&self) -> &PostgresStore {
        &self.store
    }
}

impl Drop for PostgresScratch {
    fn drop(&mut self) {
        let (url, schema) = (self.server_url.clone(), self.schema.clone());
        // A thread with a runtime of its own: this may run inside a runtime, or while unwinding.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            let sql = format!("DROP SCHEMA {schema} CASCADE");
            let dropped = runtime.block_on(async {
                let server =
                    connect(&url).await.map_err(|error| TestDatabaseError(error.to_string()))?;
                server.execute(&sql).await
            });
            if let Err(error) = dropped {
                eprintln!("schema {schema} is left behind: {error}");
            }
        });
        // A panic there was printed there; nothing depends on it.
        drop(dropping.join());
    }
}

impl Database for PostgresScratch {
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
