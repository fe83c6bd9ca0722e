//! PostgreSQL: a schema for each fixture, in the database that `RELAIS_TEST_POSTGRES` names.

mod adopt;
mod process;
mod sender;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use relais::{
    StoreDriver,
    postgres::{PostgresOptions, PostgresStore},
};
use tokio::sync::mpsc::Receiver;
use tokio_postgres::{Client, NoTls, Row, Statement};
use uuid::Uuid;

use self::sender::PostgresSender;
use crate::{
    cost::ServerReading,
    fixture::{Database, Fixture, Hold, PlainRow, RAW_BATCH, Rows, Spread, Table, Write},
    machine,
    workload::{DESTINATION, KEYS, Received, payload},
};

/// Before rows are loaded, never after: a live row is settled seconds after it was sent, so its page is in the
/// WAL already.
const CHECKPOINT: &str = "CHECKPOINT";
/// Rows put in by one statement.
const FILL_MAX: u64 = 100_000;

pub(crate) struct Postgres {
    url: String,
    client: Client,
}

impl Postgres {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self { url: url.to_owned(), client: connect(url).await? })
    }

    /// Drops what this run left behind.
    pub(crate) async fn clean_up(&self) -> Result<()> {
        let left =
            self.client.query(include_str!("sql/postgres/schemas.sql"), &[&prefix()]).await?;
        for schema in left {
            self.drop_schema(schema.get(0)).await?;
        }
        Ok(())
    }

    async fn drop_schema(&self, schema: &str) -> Result<()> {
        Ok(self.client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await?)
    }
}

impl Database for Postgres {
    const NAME: &'static str = "postgres";
    const CLIENTS: &'static [usize] = &[1, 16];
    const WAYS: &'static [(Write, &'static str)] = &[
        (Write::Outbox, "tokio-postgres"),
        (Write::Sqlx, "sqlx"),
        (Write::Elsewhere, "plain INSERT"),
    ];
    const LOAD_SENDERS: usize = 4;
    const ELSEWHERE_TARGET_MS: Option<f64> = Some(10.0);
    const HOLDS: &'static [Hold] = &[Hold::Snapshot, Hold::Writer, Hold::Sender];
    type Fixture = PostgresFixture;

    async fn describe(&self) -> Result<String> {
        let row = self.client.query_one("SELECT version()", &[]).await?;
        Ok(row.get(0))
    }

    async fn fixture(&self, name: &str) -> Result<PostgresFixture> {
        let schema = format!("{}{name}", prefix());
        self.drop_schema(&schema).await?;
        self.client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
        let mark = if self.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{mark}options=-c%20search_path%3D{schema}", self.url);
        let store = open(&url, &schema).await?;
        store.migrate().await?;
        store.check().await?;
        let client = connect(&url).await?;
        client.batch_execute(include_str!("sql/postgres/plain.sql")).await?;
        Ok(PostgresFixture { schema, url, store, client })
    }
}

/// The prefix of the schemas of this run.
fn prefix() -> String {
    format!("relais_bench_{}_", std::process::id())
}

async fn open(url: &str, schema: &str) -> Result<PostgresStore> {
    let url = format!("{url}&application_name={schema}");
    Ok(PostgresStore::connect(&url, PostgresOptions::default()).await?)
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // Ends when the client is dropped; an error shows in the next statement.
    tokio::spawn(connection);
    Ok(client)
}

pub(crate) struct PostgresFixture {
    schema: String,
    url: String,
    store: PostgresStore,
    client: Client,
}

impl Fixture for PostgresFixture {
    type Sender = PostgresSender;
    type Held = Client;

    fn store(&self) -> Arc<dyn StoreDriver> {
        Arc::new(self.store.clone())
    }

    async fn another_store(&self) -> Result<Arc<dyn StoreDriver>> {
        Ok(Arc::new(open(&self.url, &self.schema).await?))
    }

    async fn sender(&self, write: Write) -> Result<PostgresSender> {
        PostgresSender::new(&self.url, write).await
    }

    async fn clear(&self) -> Result<()> {
        let truncate =
            "TRUNCATE relais_outbox, relais_inbox, plain_send, plain_relay, plain_inbox, business";
        self.client.batch_execute(truncate).await?;
        Ok(self.client.batch_execute(CHECKPOINT).await?)
    }

    async fn add(&self, rows: u64, what: Rows, spread: Spread) -> Result<()> {
        let (status, attempts) = match what {
            Rows::Pending => ("PENDING", 0_i32),
            Rows::Finished => ("DISPATCHED", 1),
        };
        let fill = self.client.prepare(include_str!("sql/postgres/fill.sql")).await?;
        let (keys, payload) = (spread.keys.cast_signed(), payload());
        let destinations = spread.destinations.cast_signed();
        for (from, to) in chunks(rows) {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
                [&from, &to, &keys, &DESTINATION, &payload, &status, &attempts, &destinations];
            self.client.execute(&fill, &values).await?;
        }
        Ok(())
    }

    async fn calm(&self) -> Result<()> {
        for table in ["relais_outbox", "relais_inbox", "plain_relay", "plain_inbox"] {
            self.client.batch_execute(&format!("VACUUM (ANALYZE) {table}")).await?;
        }
        Ok(())
    }

    async fn settled(&self, ids: &[i64]) -> Result<bool> {
        let settled =
            self.client.query_one(include_str!("sql/postgres/settled.sql"), &[&ids]).await?;
        Ok(settled.get(0))
    }

    async fn fill_console(&self, rows: u64) -> Result<()> {
        let fill = include_str!("sql/postgres/console_fill.sql");
        let fill = fill.replace("{rows}", &rows.to_string()).replace("{payload}", &payload());
        self.client.batch_execute(&fill).await?;
        Ok(self.client.batch_execute("VACUUM (ANALYZE)").await?)
    }

    async fn fill_plain(&self, rows: u64) -> Result<()> {
        self.client.batch_execute("TRUNCATE plain_relay").await?;
        self.client.batch_execute(CHECKPOINT).await?;
        let fill = self.client.prepare(include_str!("sql/postgres/fill_plain.sql")).await?;
        let (keys, payload) = (KEYS.cast_signed(), payload());
        for (from, to) in chunks(rows) {
            self.client.execute(&fill, &[&from, &to, &keys, &DESTINATION, &payload]).await?;
        }
        Ok(())
    }

    async fn relay_plain(&self) -> Result<Duration> {
        let mut client = connect(&self.url).await?;
        let read = client.prepare(include_str!("sql/postgres/read_plain.sql")).await?;
        let mark = client.prepare(include_str!("sql/postgres/mark_plain.sql")).await?;
        let started = Instant::now();
        while relay_batch(&mut client, &read, &mark).await? > 0 {}
        Ok(started.elapsed())
    }

    async fn read_plain(&self) -> Result<Vec<PlainRow>> {
        let read = include_str!("sql/postgres/read_plain.sql");
        let rows = self.client.query(read, &[&RAW_BATCH]).await?;
        let plain = |row: &Row| PlainRow { id: row.get(0), payload: row.get(5), key: row.get(7) };
        Ok(rows.iter().map(plain).collect())
    }

    async fn mark_plain(&self, ids: Vec<i64>) -> Result<()> {
        self.client.execute(include_str!("sql/postgres/mark_plain.sql"), &[&ids]).await?;
        Ok(())
    }

    async fn insert(&self, rows: Arc<[Received]>, table: Table) -> Result<Duration> {
        let client = connect(&self.url).await?;
        let insert = match table {
            Table::Plain => include_str!("sql/postgres/insert_plain.sql"),
            Table::Inbox => include_str!("sql/postgres/insert_inbox.sql"),
        };
        let insert = client.prepare(insert).await?;
        let started = Instant::now();
        for rows in rows.chunks(usize::try_from(RAW_BATCH)?) {
            let column = |part: fn(&Received) -> &str| rows.iter().map(part).collect::<Vec<_>>();
            let (ids, keys) = (column(|row| &row.id), column(|row| &row.key));
            client.execute(&insert, &[&ids, &keys, &column(|row| &row.payload)]).await?;
        }
        Ok(started.elapsed())
    }

    async fn insert_batches(&self, mut batches: Receiver<Vec<Received>>) -> Result<()> {
        let mut client = connect(&self.url).await?;
        let insert = client.prepare(include_str!("sql/postgres/insert_plain.sql")).await?;
        let position = client.prepare(include_str!("sql/postgres/plain_position.sql")).await?;
        while let Some(rows) = batches.recv().await {
            let column = |part: fn(&Received) -> &str| rows.iter().map(part).collect::<Vec<_>>();
            let (ids, keys) = (column(|row| &row.id), column(|row| &row.key));
            let tx = client.transaction().await?;
            tx.execute(&insert, &[&ids, &keys, &column(|row| &row.payload)]).await?;
            tx.execute(&position, &[&i64::try_from(rows.len())?]).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    async fn hold(&self, what: Hold) -> Result<Client> {
        let client = connect(&self.url).await?;
        client
            .batch_execute(match what {
                Hold::Snapshot => include_str!("sql/postgres/hold_snapshot.sql"),
                Hold::Writer => include_str!("sql/postgres/hold_writer.sql"),
                Hold::Sender => include_str!("sql/postgres/hold_sender.sql"),
            })
            .await?;
        Ok(client)
    }

    async fn let_go(&self, held: Client) -> Result<()> {
        Ok(held.batch_execute("ROLLBACK").await?)
    }

    async fn server(&self) -> Result<Option<ServerReading>> {
        let row = self.client.query_one(include_str!("sql/postgres/server.sql"), &[]).await?;
        let session: i32 = row.get(2);
        // A server elsewhere has other processes.
        let Ok(first) = machine::parent(session.try_into()?) else { return Ok(None) };
        let cpu = machine::family_cpu_time(first)?;
        Ok(Some(ServerReading { cpu, wal_bytes: row.get(0), commits: row.get(1) }))
    }

    async fn hot_share(&self) -> Result<Option<f64>> {
        let hot = include_str!("sql/postgres/hot.sql");
        Ok(self.client.query_one(hot, &[&self.schema]).await?.get(0))
    }

    async fn vacuum(&self) -> Result<()> {
        Ok(self.client.batch_execute("VACUUM (INDEX_CLEANUP ON) relais_outbox").await?)
    }

    async fn remove(self) -> Result<()> {
        drop(self.store);
        let drop_schema = format!("DROP SCHEMA {} CASCADE", self.schema);
        self.client.batch_execute(&drop_schema).await.context(self.schema)
    }
}

/// Numbers from 1 to `rows` in pieces: first and last of each.
fn chunks(rows: u64) -> impl Iterator<Item = (i64, i64)> {
    (0..rows)
        .step_by(usize::try_from(FILL_MAX).unwrap_or(usize::MAX))
        .map(move |from| ((from + 1).cast_signed(), (from + FILL_MAX).min(rows).cast_signed()))
}

/// One batch of the bare loop; how many rows.
async fn relay_batch(client: &mut Client, read: &Statement, mark: &Statement) -> Result<usize> {
    let tx = client.transaction().await?;
    let rows = tx.query(read, &[&RAW_BATCH]).await?;
    let published: Vec<_> = rows.iter().map(publish_plain).collect();
    let ids: Vec<i64> = published.iter().map(|(id, ..)| *id).collect();
    tx.execute(mark, &[&ids]).await?;
    tx.commit().await?;
    Ok(ids.len())
}

/// Takes the columns out of a row, as any publisher has to.
fn publish_plain(row: &Row) -> (i64, Uuid, [String; 6]) {
    (row.get(0), row.get(1), [2, 3, 4, 5, 6, 7].map(|n| row.get(n)))
}
