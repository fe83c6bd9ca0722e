//! Your own consumer: `once` makes its change happen one time per message.
//!
//! `cargo run -p relais --features sqlite --example idempotent_consumer`

use relais::{
    BlockingTransaction,
    sqlite::{SqliteOptions, SqliteStore},
};
use rusqlite::{Connection, TransactionBehavior};

/// Called for each delivery of a queue that relais does not read. The mark and the change are one commit.
fn on_payment(db: &mut Connection, message_id: &str, cents: i64) -> anyhow::Result<bool> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_first = tx.once("billing", message_id)?;
    if is_first {
        tx.execute("UPDATE till SET cents = cents + ?1", [cents])?;
    }
    anyhow::ensure!(cents > 0, "not a payment"); // rolls back: the mark too
    tx.commit()?;
    Ok(is_first)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let store = SqliteStore::open(&file, SqliteOptions::default()).await?;
    store.migrate().await?;
    let mut db = Connection::open(&file)?;
    db.execute_batch("CREATE TABLE till (cents INTEGER); INSERT INTO till VALUES (0)")?;

    for (id, cents) in [("m-1", 500), ("m-1", 500), ("m-2", -1), ("m-2", 250)] {
        match on_payment(&mut db, id, cents) {
            Ok(true) => println!("{id}: counted"),
            Ok(false) => println!("{id}: a duplicate, left out"),
            Err(error) => println!("{id}: {error}"),
        }
    }
    let cents: i64 = db.query_row("SELECT cents FROM till", (), |row| row.get(0))?;
    println!("in the till: {cents} cents");
    anyhow::ensure!(cents == 750, "each message counts once");
    Ok(())
}
