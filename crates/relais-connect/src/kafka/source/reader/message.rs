//! The messages between the source and its reader thread.

use relais_core::{inbox::SourcePosition, source::SourceBatch};

/// A command of the source to the thread. When the channel closes, the thread ends.
#[derive(Debug)]
pub(in crate::kafka::source) enum ReaderCommand {
    /// Requests the next batch; with the positions if the thread asked for them.
    Collect { max: usize, positions: Option<Vec<SourcePosition>> },
    /// The last batch is stored.
    Acknowledge,
    /// The last batch is not stored.
    Refuse,
    /// Read nothing until the next command.
    Pause,
}

/// The reply to `Collect`.
#[derive(Debug)]
pub(in crate::kafka::source) enum ReaderReply {
    Batch(SourceBatch),
    /// Partitions were assigned: the positions in the database are needed.
    AskPositions,
    Unavailable(String),
    /// The source is about to be paused.
    Paused,
    Closed,
}
