//! The database of a run, as the writers and the checker use it: never through relais.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio_postgres::NoTls;

use crate::faults::LEASE;

/// Longest wait of SQLite for its one writer.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// Number of polls, and their interval, for the end of a session whose program has ended.
const LEAVING_MAX: usize = 50;
const LEAVING: Duration = Duration::from_millis(100);

/// The database of the rows.
#[derive(Clone, Debug)]
pub(crate) enum Base {
    /// A file.
    Sqlite(PathBuf),
    /// A server and a schema of our own in it.
    Postgres { server: String, schema: String },
}

/// One connection.
pub(crate) enum DatabaseClient {
    Sqlite(rusqlite::Connection),
    Postgres(tokio_postgres::Client),
}

impl Base {
    pub(crate) fn sqlite(folder: &Path) -> Self {
        Self::Sqlite(folder.join("relais.db"))
    }

    /// Makes the schema.
    pub(crate) async fn postgres(server: String) -> Result<Self> {
        let schema = format!("torture_{}", uuid::Uuid::new_v4().simple());
        let client = connect(&server).await?;
        // When it is killed, it has to recover no more than what happens here.
        client.batch_execute("CHECKPOINT").await?;
        client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
        Ok(Self::Postgres { server, schema })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres { .. } => "postgres",
        }
    }

    /// For `relais.toml`; `through` replaces the server's address by that of a proxy.
    pub(crate) fn url(&self, through: Option<std::net::SocketAddr>) -> Result<String> {
        Ok(match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Postgres { server, schema } => {
                let mut server = server.clone();
                if let Some(proxy) = through {
                    server = server.replace(&self.address()?.to_string(), &proxy.to_string());
                }
                // Under this name its sessions are found when they are to end.
                let options = format!("sslmode=disable&options=-c%20search_path%3D{schema}");
                format!("{server}?{options}&application_name={schema}")
            }
        })
    }

    /// Returns the address of the server.
    pub(crate) fn address(&self) -> Result<std::net::SocketAddr> {
        let Self::Postgres { server, .. } = self else { anyhow::bail!("SQLite is no server") };
        let behind = server.rsplit('@').next().unwrap_or_default();
        let host = behind.split('/').next().unwrap_or_default();
        host.parse().with_context(|| format!("no address and port in the URL: {host}"))
    }

    pub(crate) async fn connect(&self) -> Result<DatabaseClient> {
        match self {
            Self::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path)?;
                connection.busy_timeout(BUSY_MAX)?;
                connection.pragma_update(None, "synchronous", "FULL")?;
                Ok(DatabaseClient::Sqlite(connection))
            }
            Self::Postgres { .. } => Ok(DatabaseClient::Postgres(connect(&self.url(None)?).await?)),
        }
    }

    /// Tables of the shop, and triggers that write down what must not happen (a change to a row that has
    /// come to its end) and what the checker cannot see afterwards.
    pub(crate) async fn prepare(&self) -> Result<()> {
        self.connect()
            .await?
            .run(match self {
                Self::Sqlite(_) => include_str!("sql/prepare_sqlite.sql"),
                Self::Postgres { .. } => include_str!("sql/prepare_postgres.sql"),
            })
            .await
    }

    /// Ends every session of the run but the one that asks.
    pub(crate) async fn end_sessions(&self) -> Result<u64> {
        let DatabaseClient::Postgres(client) = self.connect().await? else { return Ok(0) };
        let Self::Postgres { schema, .. } = self else { return Ok(0) };
        let rows = client.query(include_str!("sql/end_sessions.sql"), &[schema]).await?;
        Ok(rows.len() as u64)
    }

    /// Returns sessions and locks that are left although every process has ended.
    pub(crate) async fn left_locked(&self) -> Result<Vec<String>> {
        match (self, self.connect().await?) {
            (Self::Sqlite(_), DatabaseClient::Sqlite(connection)) => {
                connection.busy_timeout(Duration::ZERO)?;
                let free = connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
                Ok(free.err().map(|error| error.to_string()).into_iter().collect())
            }
            (Self::Postgres { schema, .. }, DatabaseClient::Postgres(client)) => {
                let sql = include_str!("sql/left_sessions.sql");
                let mut rows = client.query(sql, &[schema]).await?;
                for _ in 0..LEAVING_MAX {
                    if rows.is_empty() {
                        break;
                    }
                    tokio::time::sleep(LEAVING).await;
                    rows = client.query(sql, &[schema]).await?;
                }
                Ok(rows.iter().map(|row| row.get(0)).collect())
            }
            (Self::Sqlite(_) | Self::Postgres { .. }, _) => Ok(Vec::new()),
        }
    }

    /// Returns lanes that are still leased when every process has ended. A lane taken over from a lost worker
    /// and not read since is not released, so that its next owner quarantines too: its lease expires.
    pub(crate) async fn leased(&self, client: &mut DatabaseClient) -> Result<Vec<String>> {
        let sql = match self {
            Self::Sqlite(_) => include_str!("sql/leased_sqlite.sql"),
            Self::Postgres { .. } => include_str!("sql/leased_postgres.sql"),
        };
        if !client.texts(sql).await?.is_empty() {
            tokio::time::sleep(LEASE).await;
        }
        client.texts(sql).await
    }

    /// Returns the findings of SQLite's integrity check.
    pub(crate) async fn damage(&self) -> Result<Vec<String>> {
        let Self::Sqlite(_) = self else { return Ok(Vec::new()) };
        let mut said = self.connect().await?.texts("PRAGMA integrity_check").await?;
        said.retain(|line| line != "ok");
        Ok(said)
    }

    /// Keeps the tables for inspection, as a file in `folder`: the disk of the run ends with the program.
    pub(crate) fn keep(&self, folder: &Path) -> Result<String> {
        match self {
            Self::Sqlite(path) => {
                let kept = folder.join("kept.db");
                std::fs::copy(path, &kept)?;
                Ok(kept.display().to_string())
            }
            Self::Postgres { schema, .. } => Ok(format!("the schema {schema}")),
        }
    }

    /// Removes the schema of the run; a file is removed with its folder.
    pub(crate) async fn remove(&self) -> Result<()> {
        let Self::Postgres { server, schema } = self else { return Ok(()) };
        Ok(connect(server).await?.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?)
    }
}

impl DatabaseClient {
    pub(crate) async fn run(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(connection) => Ok(connection.execute_batch(sql)?),
            Self::Postgres(client) => Ok(client.batch_execute(sql).await?),
        }
    }

    /// The first column of every row, as text.
    pub(crate) async fn texts(&mut self, sql: &str) -> Result<Vec<String>> {
        match self {
            Self::Sqlite(connection) => {
                let mut statement = connection.prepare(sql)?;
                let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
                Ok(rows.collect::<rusqlite::Result<_>>()?)
            }
            Self::Postgres(client) => {
                let rows = client.query(sql, &[]).await?;
                Ok(rows.iter().map(|row| row.get::<_, String>(0)).collect())
            }
        }
    }

    /// The one number a statement asks for.
    pub(crate) async fn number(&mut self, sql: &str) -> Result<u64> {
        let texts = self.texts(sql).await?;
        let [text] = texts.as_slice() else { anyhow::bail!("not one row: {sql}") };
        text.parse().with_context(|| format!("not a number: {text}"))
    }
}

async fn connect(url: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
