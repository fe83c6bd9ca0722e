//! The seam to systems that messages are read from.

use std::sync::Arc;

use crate::{
    async_trait,
    inbox::{AcceptOutcome, NewInbox, SourcePosition},
    store::StoreFuture,
};

/// Messages that are stored in one transaction and then acknowledged.
#[derive(Debug, Default)]
pub struct SourceBatch {
    /// The messages, in the order of the source.
    pub messages: Vec<NewInbox>,
    /// The positions behind these messages.
    pub positions: Vec<SourcePosition>,
}

/// The reason why a source returned no messages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It may work again later; the worker waits and asks again.
    #[error("source unavailable: {0}")]
    Unavailable(String),
    /// It returns no more messages.
    #[error("source closed")]
    Closed,
}

/// The positions of a source in the store that has its rows. They have priority over those of the
/// broker.
pub trait Positions: Send + Sync {
    /// Returns the stored positions of a source, by partition. Called again whenever partitions are
    /// assigned.
    fn positions(&self, source: String) -> StoreFuture<'_, Vec<SourcePosition>>;
}

/// Reads messages. A batch is returned by `next`, stored, and settled by `acknowledge` or `refuse`.
///
/// One batch is in flight at a time, unless the source implements [`Source::read_ahead`]. Then it has two: one
/// that is being stored, and the next one. They are settled in the order in which they were returned.
#[async_trait]
pub trait Source: Send {
    /// Called once, before the first `next`.
    fn attach(&mut self, _positions: Arc<dyn Positions>) {}

    /// Returns the next batch of at most `max` messages; waits until there is one. Must be safe to
    /// cancel: a message that was not acknowledged is returned again.
    async fn next(&mut self, max: usize) -> Result<SourceBatch, SourceError>;

    /// Returns the batch after one that is being stored. Called instead of [`Source::next`] while the batch
    /// before is not settled, and dropped when that is stored first; the next call of `next` then returns the
    /// messages. The default never returns.
    async fn read_ahead(&mut self, _max: usize) -> Result<SourceBatch, SourceError> {
        std::future::pending().await
    }

    /// Called when the oldest batch is durable, with one result per message, in order.
    async fn acknowledge(&mut self, accepted: Vec<AcceptOutcome>) -> Result<(), SourceError>;

    /// Called when a batch could not be stored: the source must return it again, or report the failure to its
    /// sender. The same holds for a batch that was read ahead: it is not stored either.
    async fn refuse(&mut self, reason: String);

    /// Called when an operator paused the source: no batch is requested until [`Source::resume`]. A
    /// source whose senders wait for a response asks them to send again later.
    async fn pause(&mut self) {}

    /// Called when the pause ends.
    async fn resume(&mut self) {}

    /// Called once, after the last batch: commit what was acknowledged and disconnect.
    async fn close(&mut self) {}
}
