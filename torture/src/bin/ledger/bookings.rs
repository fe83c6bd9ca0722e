//! The ledger: a posted amount is added to its account and booked, and a message is sent.
//!
//! The tables (`account`, `booking`) are created by the test that starts the service; `booking` has no key, so a
//! second effect of one message is a second row.

use relais::{Message, Outbox, Received};
use serde::{Deserialize, Serialize};
use tokio_postgres::Transaction;

/// The destination of the messages.
pub(crate) const BOOKINGS: &str = "bookings";

#[derive(Debug, Deserialize)]
pub(crate) struct Posting {
    key: String,
    name: String,
    #[serde(rename = "number")]
    cents: i64,
}

#[derive(Message, Serialize)]
#[message(aggregate = "Account", key = "key")]
struct AmountBooked {
    key: String,
    name: String,
}

const BOOK: &str = "INSERT INTO account (id, balance) VALUES ($1, $2) \
                    ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance";
const WRITE_DOWN: &str = "INSERT INTO booking (account, name, cents) VALUES ($1, $2, $3)";

pub(crate) async fn on_posted(
    mut tx: &Transaction<'_>,
    message: Received<Posting>,
) -> anyhow::Result<()> {
    let Posting { key, name, cents } = message.payload;
    tx.execute(BOOK, &[&key, &cents]).await?;
    tx.execute(WRITE_DOWN, &[&key, &name, &cents]).await?;
    Outbox::to(BOOKINGS).send(&mut tx, &AmountBooked { key, name }).await?;
    Ok(())
}

pub(crate) fn on_posted_sqlite(
    tx: &rusqlite::Transaction<'_>,
    message: Received<Posting>,
) -> anyhow::Result<()> {
    let Posting { key, name, cents } = message.payload;
    tx.execute(BOOK, (&key, cents))?;
    tx.execute(WRITE_DOWN, (&key, &name, cents))?;
    Outbox::to(BOOKINGS).send_blocking(tx, &AmountBooked { key, name })?;
    Ok(())
}
