//! The user's own transaction. The traits live here, beside the drivers' types they are for.

use relais_core::{
    message::NewMessage,
    store::{StoreError, StoreFuture},
};

/// A connection inside the user's own transaction, in an asynchronous driver. What is written here
/// exists if and only if that transaction commits; outside a transaction it is refused.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that relais can write to",
    label = "expected a transaction, found `{Self}`",
    note = "begin a transaction on the pool, connection or client and pass it: `let mut tx = \
            pool.begin().await?; outbox.send(&mut *tx, &message).await?; tx.commit().await?`",
    note = "with rusqlite use the methods that end in `_blocking`, for example `outbox.send_blocking(&tx, \
            &message)?`",
    note = "the driver needs its feature: `sqlx-postgres`, `sqlx-sqlite`, `postgres` or `sqlite`, in the \
            version that docs/library.md names; for other drivers use `ENQUEUE_SQL`"
)]
pub trait Transaction: Send {
    /// Writes outbox rows; their ids, in order. A message id that is there already is not written
    /// again: its row's id comes back.
    fn enqueue<'a>(&'a mut self, messages: &'a [NewMessage]) -> StoreFuture<'a, Vec<i64>>;

    /// `true` the first time for this handler and message.
    fn once<'a>(&'a mut self, handler: &'a str, message_id: &'a str) -> StoreFuture<'a, bool>;
}

/// The same in a driver that blocks.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that relais can write to",
    label = "expected a `rusqlite::Transaction`, found `{Self}`",
    note = "begin a transaction: `let tx = db.transaction()?; outbox.send_blocking(&tx, &message)?; \
            tx.commit()?`",
    note = "with sqlx and tokio-postgres use the methods without `_blocking`, for example \
            `outbox.send(&mut *tx, &message).await?`"
)]
pub trait BlockingTransaction {
    /// Writes outbox rows in this transaction. Returns their ids, in order.
    fn enqueue(&self, messages: &[NewMessage]) -> Result<Vec<i64>, StoreError>;
    /// Returns `true` the first time for this message and handler.
    fn once(&self, handler: &str, message_id: &str) -> Result<bool, StoreError>;
}

/// The answer to a write outside a transaction: it would be committed by itself, whatever becomes of the
/// change it belongs to.
#[cfg(any(feature = "sqlite", feature = "sqlx-postgres"))]
pub(crate) fn not_in_transaction() -> StoreError {
    StoreError::invalid(
        "cannot write outside a transaction: it would be committed apart from your own changes; begin a \
         transaction on this connection first",
    )
}
