//! The messages between the source and its reader thread.

use relais_core::{inbox::SourcePosition, source::SourceBatch};

/// A command of the source to the thread. When the channel closes, the thread ends.
#[derive(Debug)]
pub(in crate::kafka::source) enum ReaderCommand {
    /// Requests the next batch; with the positions if the thread asked for them.
    Collect { max: usize, positions: Option<Vec<SourcePosition>> },
    /// The oldest batch is stored. May come during a `Collect`.
    Acknowledge,
    /// No batch is stored that is not settled. May come during a `Collect`.
    Refuse,
    /// Read nothing until the next command.
    Pause,
}

/// The reply to `Collect`.
#[derive(Debug)]
pub(in crate::kafka::source) enum ReaderReply {
    /// A batch, with the number of refusals before it. A batch from before the last one is void.
    Batch {
        batch: SourceBatch,
        refusals: u64,
    },
    /// Partitions were assigned: the positions in the database are needed.
    AskPositions,
    Unavailable(String),
    /// The source is about to be paused.
    Paused,
    Closed,
}
