//! The seam to systems that messages are delivered to.

use crate::{async_trait, delivery::Delivery, outbox::OutboxRow};

/// Delivers messages to one destination.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Delivers the messages. Returns one [`Delivery`] per message, in order. Must not panic.
    /// `Accepted` means that the target has stored the message.
    ///
    /// With [`Batching::Single`] the slice has one message. With [`Batching::Distinct`] it has up
    /// to `max` messages of different keys. With [`Batching::InOrder`] one key may appear
    /// repeatedly, in order; the publisher must then not accept a message after a refused one of
    /// its key.
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery>;

    /// Returns how many messages one call accepts.
    fn batching(&self) -> Batching {
        Batching::Single
    }

    /// Called once before the process ends: flush the client library.
    async fn close(&self) {}
}

/// The messages that a publisher accepts in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// One row for each call.
    Single,
    /// Rows of different keys in one call.
    Distinct {
        /// Most rows.
        max: usize,
    },
    /// Rows of any keys in one call, which the target applies in order.
    InOrder {
        /// Most rows.
        max: usize,
    },
}

impl Batching {
    /// Returns the most rows of one call.
    pub fn max(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Distinct { max } | Self::InOrder { max } => max.max(1),
        }
    }

    /// Returns the same for at most this many rows.
    #[must_use]
    pub fn at_most(self, most: usize) -> Self {
        match self {
            Self::Single => Self::Single,
            Self::Distinct { max } => Self::Distinct { max: max.min(most) },
            Self::InOrder { max } => Self::InOrder { max: max.min(most) },
        }
    }
}
