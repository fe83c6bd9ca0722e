//! SQLite: a file in cargo's scratch folder for each fixture, one writer, every commit synced.

mod adopt;
mod process;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use relais::{
    Outbox, StoreDriver,
    sqlite::{SqliteOptions, SqliteStore},
};
use rusqlite::{Connection, TransactionBehavior, params};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;
use uuid::Uuid;

use crate::{
    cost::ServerReading,
    fixture::{Database, Fixture, Hold, PlainRow, RAW_BATCH, Rows, Sender, Spread, Table, Write},
    workload::{DESTINATION, KEYS, OrderChanged, Received, order_id, payload},
};

/// The time that a connection waits for another writer.
const BUSY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Sqlite {
    folder: TempDir,
}

impl Sqlite {
    pub(crate) fn new() -> Result<Self> {
        let scratch = env!("CARGO_TARGET_TMPDIR");
        std::fs::create_dir_all(scratch)?;
        Ok(Self { folder: tempfile::tempdir_in(scratch).context(scratch)? })
    }
}

impl Database for Sqlite {
    const NAME: &'static str = "sqlite";
    const CLIENTS: &'static [usize] = &[1];
    const WAYS: &'static [(Write, &'static str)] =
        &[(Write::Outbox, "rusqlite"), (Write::Elsewhere, "plain INSERT")];
    const LOAD_SENDERS: usize = 1;
    const ELSEWHERE_TARGET_MS: Option<f64> = None;
    const HOLDS: &'static [Hold] = &[];
    type Fixture = SqliteFixture;

    async fn describe(&self) -> Result<String> {
        Ok(format!("sqlite {}", rusqlite::version()))
    }

    async fn fixture(&self, name: &str) -> Result<SqliteFixture> {
        // A folder for each fixture: a store that is still closing must not meet the next one of its name.
        let folder = tempfile::Builder::new().prefix(name).tempdir_in(self.folder.path())?.keep();
        let path = folder.join("relais.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).await?;
        store.migrate().await?;
        store.check().await?;
        connect(&path)?.execute_batch(include_str!("sql/sqlite/plain.sql"))?;
        Ok(SqliteFixture { folder, path, store })
    }
}

#[derive(Debug)]
pub(crate) struct SqliteFixture {
    folder: PathBuf,
    path: PathBuf,
    store: SqliteStore,
}

impl SqliteFixture {
    /// Runs work on a thread that may block, with a connection of its own.
    async fn on_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || work(&mut connect(&path)?)).await?
    }
}

impl Fixture for SqliteFixture {
    type Sender = SqliteSender;
    type Held = ();

    fn store(&self) -> Arc<dyn StoreDriver> {
        Arc::new(self.store.clone())
    }

    async fn another_store(&self) -> Result<Arc<dyn StoreDriver>> {
        Ok(Arc::new(SqliteStore::open(&self.path, SqliteOptions::default()).await?))
    }

    async fn sender(&self, write: Write) -> Result<SqliteSender> {
        Ok(SqliteSender {
            db: connect(&self.path)?,
            write,
            outbox: Outbox::to(DESTINATION),
            payload: payload(),
        })
    }

    async fn clear(&self) -> Result<()> {
        self.on_connection(|db| {
            for table in ["relais_outbox", "relais_inbox", "plain_send", "plain_inbox", "business"]
            {
                db.execute(&format!("DELETE FROM {table}"), [])?;
            }
            Ok(())
        })
        .await
    }

    async fn add(&self, rows: u64, what: Rows, spread: Spread) -> Result<()> {
        let (status, attempts) = match what {
            Rows::Pending => ("PENDING", 0),
            Rows::Finished => ("DISPATCHED", 1),
        };
        self.on_connection(move |db| {
            let values = params![
                rows.cast_signed(),
                spread.keys.cast_signed(),
                DESTINATION,
                payload(),
                status,
                attempts,
                spread.destinations.cast_signed()
            ];
            db.execute(include_str!("sql/sqlite/fill.sql"), values)?;
            Ok(())
        })
        .await
    }

    async fn calm(&self) -> Result<()> {
        self.on_connection(|db| {
            db.execute_batch("ANALYZE")?;
            db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            Ok(())
        })
        .await
    }

    async fn settled(&self, ids: &[i64]) -> Result<bool> {
        let ids = ids.to_vec();
        self.on_connection(move |db| {
            let mut status = db.prepare("SELECT status FROM relais_outbox WHERE id = ?1")?;
            for id in &ids {
                let found: String = status.query_row([id], |row| row.get(0))?;
                if found == "PENDING" {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    async fn fill_console(&self, rows: u64) -> Result<()> {
        let fill = include_str!("sql/sqlite/console_fill.sql");
        let fill = fill.replace("{rows}", &rows.to_string()).replace("{payload}", &payload());
        self.on_connection(move |db| Ok(db.execute_batch(&fill)?)).await
    }

    async fn fill_plain(&self, rows: u64) -> Result<()> {
        self.on_connection(move |db| {
            db.execute("DELETE FROM plain_relay", [])?;
            let values = params![rows.cast_signed(), KEYS.cast_signed(), DESTINATION, payload()];
            db.execute(include_str!("sql/sqlite/fill_plain.sql"), values)?;
            Ok(())
        })
        .await
    }

    async fn relay_plain(&self) -> Result<Duration> {
        self.on_connection(|db| {
            let started = Instant::now();
            while relay_batch(db)? > 0 {}
            Ok(started.elapsed())
        })
        .await
    }

    async fn read_plain(&self) -> Result<Vec<PlainRow>> {
        self.on_connection(|db| {
            let mut read = db.prepare_cached(include_str!("sql/sqlite/read_plain.sql"))?;
            let plain = read.query_map([RAW_BATCH], |row| {
                Ok(PlainRow { id: row.get(0)?, payload: row.get(5)?, key: row.get(7)? })
            })?;
            Ok(plain.collect::<Result<_, _>>()?)
        })
        .await
    }

    async fn mark_plain(&self, ids: Vec<i64>) -> Result<()> {
        self.on_connection(move |db| {
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut mark = tx.prepare_cached(include_str!("sql/sqlite/mark_plain.sql"))?;
                for id in &ids {
                    mark.execute([id])?;
                }
            }
            Ok(tx.commit()?)
        })
        .await
    }

    async fn insert(&self, rows: Arc<[Received]>, table: Table) -> Result<Duration> {
        let sql = match table {
            Table::Plain => include_str!("sql/sqlite/insert_plain.sql"),
            Table::Inbox => include_str!("sql/sqlite/insert_inbox.sql"),
        };
        self.on_connection(move |db| {
            let started = Instant::now();
            for rows in rows.chunks(usize::try_from(RAW_BATCH)?) {
                let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
                {
                    let mut insert = tx.prepare_cached(sql)?;
                    for Received { id, key, payload } in rows {
                        insert.execute(params![id, key, payload])?;
                    }
                }
                tx.commit()?;
            }
            Ok(started.elapsed())
        })
        .await
    }

    async fn insert_batches(&self, mut batches: Receiver<Vec<Received>>) -> Result<()> {
        self.on_connection(move |db| {
            while let Some(rows) = batches.blocking_recv() {
                let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
                {
                    let mut insert =
                        tx.prepare_cached(include_str!("sql/sqlite/insert_plain.sql"))?;
                    for Received { id, key, payload } in &rows {
                        insert.execute(params![id, key, payload])?;
                    }
                    let position = include_str!("sql/sqlite/plain_position.sql");
                    tx.prepare_cached(position)?.execute([i64::try_from(rows.len())?])?;
                }
                tx.commit()?;
            }
            Ok(())
        })
        .await
    }

    async fn hold(&self, _what: Hold) -> Result<()> {
        anyhow::bail!("not measured with sqlite")
    }

    async fn let_go(&self, (): ()) -> Result<()> {
        Ok(())
    }

    async fn server(&self) -> Result<Option<ServerReading>> {
        Ok(None)
    }

    async fn hot_share(&self) -> Result<Option<f64>> {
        Ok(None)
    }

    async fn vacuum(&self) -> Result<()> {
        Ok(())
    }

    async fn remove(self) -> Result<()> {
        drop(self.store);
        Ok(std::fs::remove_dir_all(&self.folder)?)
    }
}

/// One batch of the bare loop; how many rows.
fn relay_batch(db: &mut Connection) -> Result<usize> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut published = Vec::new();
    {
        let mut read = tx.prepare_cached(include_str!("sql/sqlite/read_plain.sql"))?;
        let mut rows = read.query([RAW_BATCH])?;
        while let Some(row) = rows.next()? {
            let columns: Vec<String> = (1..8).map(|n| row.get(n)).collect::<Result<_, _>>()?;
            published.push((row.get::<_, i64>(0)?, columns));
        }
        let mut mark = tx.prepare_cached(include_str!("sql/sqlite/mark_plain.sql"))?;
        for (id, _) in &published {
            mark.execute([id])?;
        }
    }
    tx.commit()?;
    Ok(published.len())
}

/// With the settings relais uses itself.
fn connect(path: &Path) -> Result<Connection> {
    let db = Connection::open(path)?;
    db.busy_timeout(BUSY)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "cache_size", -16 * 1024)?;
    Ok(db)
}

#[derive(Debug)]
pub(crate) struct SqliteSender {
    db: Connection,
    write: Write,
    outbox: Outbox,
    payload: String,
}

impl SqliteSender {
    /// Sends messages from this key on, in one transaction, after the user's own row if there is one.
    fn send_now(&mut self, key: u64, count: u64, business: Option<&str>) -> Result<Uuid> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(sql) = business {
            tx.prepare_cached(sql)?.execute(params![order_id(key), self.payload])?;
        }
        let mut id = Uuid::nil();
        for key in key..key + count {
            let values = params![DESTINATION, order_id(key), "OrderChanged", self.payload];
            match self.write {
                Write::Outbox => id = self.outbox.send_blocking(&tx, &OrderChanged::new(key))?,
                Write::Minimal => {
                    tx.prepare_cached(include_str!("sql/sqlite/send_plain.sql"))?
                        .execute(values)?;
                }
                Write::Elsewhere => {
                    let mut insert =
                        tx.prepare_cached(include_str!("sql/sqlite/send_elsewhere.sql"))?;
                    let text: String = insert.query_row(values, |row| row.get(0))?;
                    id = text.parse()?;
                }
                Write::Sqlx => anyhow::bail!("not measured with sqlite"),
            }
        }
        tx.commit()?;
        Ok(id)
    }
}

impl Sender for SqliteSender {
    const BLOCKS: bool = true;

    fn send(&mut self, key: u64) -> impl Future<Output = Result<Uuid>> + Send {
        let business = Some(include_str!("sql/sqlite/send_business.sql"));
        std::future::ready(self.send_now(key, 1, business))
    }

    fn send_many(&mut self, count: u64) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(self.send_now(0, count, None).map(drop))
    }
}
