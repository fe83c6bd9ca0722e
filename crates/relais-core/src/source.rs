//! The seam to what we read from.

use crate::{
    BoxFuture,
    inbox::{Accepted, NewInbox, SourcePosition},
};

/// Messages that belong together: stored in one transaction, then acknowledged.
#[derive(Debug, Default)]
pub struct SourceBatch {
    pub messages: Vec<NewInbox>,
    pub positions: Vec<SourcePosition>,
}

/// Why a source could not give messages.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It may work again later; the worker waits and asks again.
    #[error("source unavailable: {0}")]
    Unavailable(String),
    /// It will give no more messages.
    #[error("source closed")]
    Closed,
}

/// Reads messages. One batch is out at a time: `next`, then `acknowledge` or `refuse`.
pub trait Source: Send {
    /// The next batch, at most `max` messages; waits until there is one. Cancelling the future
    /// loses nothing: a message not acknowledged comes again.
    fn next(&mut self, max: usize) -> BoxFuture<'_, Result<SourceBatch, SourceError>>;

    /// The batch is durable. One result for each message, in order.
    fn acknowledge(&mut self, accepted: Vec<Accepted>) -> BoxFuture<'_, Result<(), SourceError>>;

    /// The batch could not be stored: the source must give it again, or tell its sender.
    fn refuse(&mut self, reason: String) -> BoxFuture<'_, ()>;
}
