//! The seam to what we deliver to.

use crate::{BoxFuture, delivery::Delivery, outbox::OutboxRow};

/// Delivers messages to one destination.
pub trait Publisher: Send + Sync {
    /// One [`Delivery`] for each message, in order. Must not fail and must not panic; must say
    /// `Accepted` only when the target has the message for good.
    ///
    /// With [`Batching::Single`] the slice has one message. With [`Batching::Distinct`] it has up to
    /// `max` messages of different keys. With [`Batching::InOrder`] one key may appear repeatedly,
    /// in order; the publisher must then not accept a message behind a refused one of its key.
    fn publish<'a>(&'a self, messages: &'a [OutboxRow]) -> BoxFuture<'a, Vec<Delivery>>;

    /// How many messages one call takes.
    fn batching(&self) -> Batching {
        Batching::Single
    }

    /// Called once before the process ends: flush what the client library holds.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// How a publisher wants its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    Single,
    Distinct { max: usize },
    InOrder { max: usize },
}

impl Batching {
    pub fn max(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Distinct { max } | Self::InOrder { max } => max.max(1),
        }
    }
}
