//! A schema of its own on the server of `RELAIS_TEST_POSTGRES`.

use std::{env, sync::Arc};

use relais_core::{BoxFuture, store::Store};
use relais_store::postgres::{PostgresOptions, PostgresStore};
use relais_testkit::fixture::{Dialect, Fixture, RawTransaction, TextRows};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// The environment variable with the server's URL.
pub const URL_VARIABLE: &str = "RELAIS_TEST_POSTGRES";

/// The server for tests. Without one, says so; in CI it must be there.
///
/// # Panics
/// In CI (variable `CI`) without a server.
pub fn server_url() -> Option<String> {
    if let Ok(url) = env::var(URL_VARIABLE) {
        return Some(url);
    }
    assert!(env::var_os("CI").is_none(), "in CI the PostgreSQL tests must run: set {URL_VARIABLE}");
    eprintln!("NOT TESTED: PostgreSQL; set {URL_VARIABLE} to the URL of a server");
    None
}

/// An empty schema, dropped with the value.
pub struct PostgresSchema {
    server: String,
    name: String,
}

impl PostgresSchema {
    /// Makes one; `None` without a server.
    pub async fn create() -> Option<Self> {
        let server = server_url()?;
        let name = format!("relais_{}", uuid::Uuid::now_v7().simple());
        let client = connect(&server).await.expect("the test server answers");
        client.batch_execute(&format!("CREATE SCHEMA {name}")).await.expect("create schema");
        Some(Self { server, name })
    }

    /// A URL whose connections see only this schema.
    pub fn url(&self) -> String {
        let separator = if self.server.contains('?') { '&' } else { '?' };
        format!("{}{separator}options=-c%20search_path%3D{}", self.server, self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// One node's store.
    pub async fn store(&self) -> PostgresStore {
        PostgresStore::connect(&self.url(), PostgresOptions::default()).await.expect("connect")
    }

    /// A plain connection.
    pub async fn client(&self) -> Client {
        connect(&self.url()).await.expect("connect")
    }
}

impl Drop for PostgresSchema {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // A thread with a runtime of its own: this may run inside a runtime, or while unwinding.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                let sql = format!("SET lock_timeout = '10s'; DROP SCHEMA {name} CASCADE");
                let dropped = async { connect(&server).await?.batch_execute(&sql).await };
                if let Err(error) = dropped.await {
                    eprintln!("schema {name} is left behind: {}", text(error));
                }
            });
        });
        // A panic there was printed there; nothing depends on it.
        drop(dropping.join());
    }
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

struct PostgresFixture {
    store: PostgresStore,
    second: PostgresStore,
    raw: Client,
    schema: PostgresSchema,
}

/// Opens an empty database; `None` without a server.
pub async fn open() -> Option<Box<dyn Fixture>> {
    let schema = PostgresSchema::create().await?;
    let (store, second) = (schema.store().await, schema.store().await);
    let raw = schema.client().await;
    Some(Box::new(PostgresFixture { store, second, raw, schema }))
}

impl Fixture for PostgresFixture {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn second(&self) -> Arc<dyn Store> {
        Arc::new(self.second.clone())
    }

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<u64, String>> {
        Box::pin(execute(&self.raw, sql))
    }

    fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<TextRows, String>> {
        Box::pin(async move {
            let answers = self.raw.simple_query(sql).await.map_err(text)?;
            let rows = answers.iter().filter_map(|answer| match answer {
                SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            });
            let columns = |row: &tokio_postgres::SimpleQueryRow| {
                (0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect()
            };
            Ok(rows.map(columns).collect())
        })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn RawTransaction>, String>> {
        Box::pin(async move {
            let client = connect(&self.schema.url()).await.map_err(text)?;
            execute(&client, "BEGIN").await?;
            Ok(Box::new(Open(client)) as Box<dyn RawTransaction>)
        })
    }
}

struct Open(Client);

impl RawTransaction for Open {
    fn execute<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<u64, String>> {
        Box::pin(execute(&self.0, sql))
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { execute(&self.0, "COMMIT").await.map(drop) })
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { execute(&self.0, "ROLLBACK").await.map(drop) })
    }
}

async fn execute(client: &Client, sql: &str) -> Result<u64, String> {
    let answers = client.simple_query(sql).await.map_err(text)?;
    let touched = answers.iter().rev().find_map(|answer| match answer {
        SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
        _ => None,
    });
    Ok(touched.unwrap_or(0))
}

/// What the server said, not only that it said something.
fn text(error: tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(answer) => answer.to_string(),
        None => error.to_string(),
    }
}
