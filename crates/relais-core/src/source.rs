//! The seam to what we read from.

use std::sync::Arc;

use crate::{
    BoxFuture,
    inbox::{Accepted, NewInbox, SourcePosition},
    store::StoreFuture,
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

/// How far a source has been read, by the store that keeps its rows: what it says goes before what
/// the broker remembers.
pub trait Positions: Send + Sync {
    /// The stored positions of a source, by partition; asked again whenever partitions change hands.
    fn positions(&self, source: String) -> StoreFuture<'_, Vec<SourcePosition>>;
}

/// Reads messages. One batch is out at a time: `next`, then `acknowledge` or `refuse`.
pub trait Source: Send {
    /// Called once, before the first `next`.
    fn attach(&mut self, _positions: Arc<dyn Positions>) {}

    /// The next batch, at most `max` messages; waits until there is one. Cancelling the future
    /// loses nothing: a message not acknowledged comes again.
    fn next(&mut self, max: usize) -> BoxFuture<'_, Result<SourceBatch, SourceError>>;

    /// The batch is durable. One result for each message, in order.
    fn acknowledge(&mut self, accepted: Vec<Accepted>) -> BoxFuture<'_, Result<(), SourceError>>;

    /// The batch could not be stored: the source must give it again, or tell its sender.
    fn refuse(&mut self, reason: String) -> BoxFuture<'_, ()>;

    /// An operator paused the source: no batch is asked for until [`Source::resume`]. A source whose
    /// senders wait for an answer tells them to send again later.
    fn pause(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// The pause is over.
    fn resume(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Called once, after the last batch: tell the broker what was acknowledged and leave.
    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
