//! cure: use `relais::sqlite::sqlx_handler` for an `async fn`
use relais::{Received, sqlite::SqliteStore};
use rusqlite::Transaction;

#[derive(serde::Deserialize)]
struct Payment { cents: i64 }

async fn on_payment(_: &Transaction<'_>, payment: Received<Payment>) -> anyhow::Result<()> {
    println!("{}", payment.payload.cents);
    Ok(())
}

fn handler(store: &SqliteStore) {
    relais::sqlite::handler(store, |tx: &Transaction<'_>, m: Received<Payment>| {
        drop(on_payment(tx, m));
        async { anyhow::Ok(()) }
    });
}

fn main() {}
