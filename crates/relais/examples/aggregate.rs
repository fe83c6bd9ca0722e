//! An aggregate records its events; saving it writes state and events in one transaction.
//!
//! `cargo run -p relais --features sqlite --example aggregate`

use relais::{
    Aggregate, Events, Inspect, Message, PersistBlocking, Repository, SaveError, Store,
    sqlite::{SqliteOptions, SqliteStore},
};
use rusqlite::{Connection, Transaction};

#[derive(Message, serde::Serialize)]
#[message(aggregate = "Account", key = "account")]
struct Deposited {
    account: String,
    cents: i64,
}

struct Account {
    id: String,
    cents: i64,
    events: Events,
}

impl Account {
    fn deposit(&mut self, cents: i64) {
        self.cents += cents;
        self.events.record(&Deposited { account: self.id.clone(), cents });
    }
}

impl Aggregate for Account {
    const TYPE: &'static str = "Account";
    fn id(&self) -> String {
        self.id.clone()
    }
    fn events(&self) -> &Events {
        &self.events
    }
    fn events_mut(&mut self) -> &mut Events {
        &mut self.events
    }
}

impl PersistBlocking<Transaction<'_>> for Account {
    type Error = rusqlite::Error;

    fn persist(&self, tx: &Transaction<'_>, version: i64) -> rusqlite::Result<usize> {
        let sql = match version {
            0 => "INSERT INTO accounts VALUES (?1, ?2, 1 + ?3) ON CONFLICT DO NOTHING",
            _ => {
                "UPDATE accounts SET cents = ?2, version = version + 1 WHERE id = ?1 AND version = ?3"
            }
        };
        tx.execute(sql, (&self.id, self.cents, version))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bank.db");
    let store = SqliteStore::open(&file, SqliteOptions::default()).await?;
    store.migrate().await?;
    let mut db = Connection::open(&file)?;
    db.execute_batch(
        "CREATE TABLE accounts (id TEXT PRIMARY KEY, cents INTEGER, version INTEGER)",
    )?;

    let repository = Repository::new().event::<Deposited>("books"); // which event goes where
    let mut account = Account { id: "a-1".into(), cents: 0, events: Events::new() };
    account.deposit(500);
    account.deposit(250);
    let tx = db.transaction()?;
    repository.save_blocking(&tx, &mut account)?;
    tx.commit()?;

    // Another transaction was faster: the version does not fit, and nothing is written.
    let mut stale = Account { id: "a-1".into(), cents: 0, events: Events::new() };
    stale.deposit(1);
    let tx = db.transaction()?;
    let refused = repository.save_blocking(&tx, &mut stale);
    drop(tx);

    let events = store.overview().await?.backlogs[0].pending;
    println!("events: {events}; second save: {refused:?}");
    anyhow::ensure!(events == 2 && matches!(refused, Err(SaveError::Conflict { .. })));
    Ok(())
}
