//! The user's own transaction. The traits live here, beside the drivers' types they are for.

use relais_core::{
    message::NewMessage,
    store::{StoreError, StoreFuture},
};

/// A connection inside the user's own transaction, in an asynchronous driver. What is written here
/// exists if and only if that transaction commits.
pub trait Transaction: Send {
    /// Writes outbox rows; their ids, in order. A message id that is there already is not written
    /// again: its row's id comes back.
    fn enqueue<'a>(&'a mut self, messages: &'a [NewMessage]) -> StoreFuture<'a, Vec<i64>>;

    /// `true` the first time for this message and handler.
    fn once<'a>(&'a mut self, message_id: &'a str, handler: &'a str) -> StoreFuture<'a, bool>;
}

/// The same in a driver that blocks.
pub trait BlockingTransaction {
    fn enqueue(&self, messages: &[NewMessage]) -> Result<Vec<i64>, StoreError>;
    fn once(&self, message_id: &str, handler: &str) -> Result<bool, StoreError>;
}
