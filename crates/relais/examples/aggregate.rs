//! An aggregate records its events; saving it writes state and events in one transaction.
//!
//! `cargo run -p relais --features sqlite --example aggregate`

use relais::{Aggregate, Events, Message, PersistBlocking, Repository, SaveError};
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

impl Aggregate for Account {
    const TYPE: &'static str = "Account";
    fn id(&self) -> String {
        self.id.clone()
    }
    fn events_mut(&mut self) -> &mut Events {
        &mut self.events
    }
}

impl PersistBlocking<Transaction<'_>> for Account {
    type Error = rusqlite::Error;
    /// Returns the number of rows written; 0 means that the stored version is another one.
    fn persist(&self, tx: &Transaction<'_>, version: i64) -> rusqlite::Result<usize> {
        let sql = "INSERT INTO accounts VALUES (?1, ?2, 1) ON CONFLICT (id) DO UPDATE
                   SET cents = ?2, version = version + 1 WHERE version = ?3";
        tx.execute(sql, (&self.id, self.cents, version))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = relais_testkit::scratch::sqlite().await; // a service opens a `SqliteStore`
    db.run("CREATE TABLE accounts (id TEXT PRIMARY KEY, cents INTEGER, version INTEGER)").await;
    let repository = Repository::new().event::<Deposited>("books"); // which event goes where
    let mut connection = Connection::open(db.path())?;
    let mut save = |cents| {
        let mut account = Account { id: "a-1".into(), cents, events: Events::new() };
        account.events.record(&Deposited { account: "a-1".into(), cents });
        let tx = connection.transaction()?;
        repository.save_blocking(&tx, &mut account)?;
        anyhow::Ok(tx.commit()?)
    };
    save(500)?;
    let refused = save(1).expect_err("a conflict"); // the id exists: nothing is written
    anyhow::ensure!(matches!(refused.downcast_ref(), Some(SaveError::Conflict { .. })));
    anyhow::ensure!(db.overview().await?.backlogs[0].pending == 1);
    Ok(())
}
