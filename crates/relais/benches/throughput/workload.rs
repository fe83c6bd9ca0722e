//! The messages that are sent, and their receiver.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use relais::{Batching, Delivery, Message, OutboxRow, Publisher, async_trait};
use serde::Serialize;
use tokio::sync::watch;
use uuid::Uuid;

use crate::fixture::Spread;

pub(crate) const DESTINATION: &str = "bench";
/// Different ordering keys.
pub(crate) const KEYS: u64 = 10_000;
/// All keys, one destination.
pub(crate) const ONE: Spread = Spread { keys: KEYS, destinations: 1 };
/// Filler that makes a payload about 400 bytes long.
const NOTE_BYTES: usize = 350;
/// Messages of one call.
const BATCH_MAX: usize = 1_000;
/// The time limit of a measurement.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);

#[derive(Debug, Serialize, Message)]
#[message(name = "OrderChanged", aggregate = "Order", key = "order_id")]
pub(crate) struct OrderChanged {
    order_id: String,
    note: String,
}

impl OrderChanged {
    pub(crate) fn new(key: u64) -> Self {
        Self { order_id: order_id(key), note: "n".repeat(NOTE_BYTES) }
    }
}

pub(crate) fn order_id(key: u64) -> String {
    format!("order-{:05}", key % KEYS)
}

/// The payload of one message, as the raw statements write it.
pub(crate) fn payload() -> String {
    serde_json::to_string(&OrderChanged::new(1)).expect("plain fields become JSON")
}

/// A message of another system.
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) payload: String,
}

impl Received {
    pub(crate) fn some(count: u64) -> Arc<[Self]> {
        let one = |n: u64| {
            // As the rows of the outbox: spread so that neighbours rarely share a key.
            let key = n * 2_654_435_761 / 128;
            Self { id: Uuid::now_v7().to_string(), key: order_id(key), payload: payload() }
        };
        (0..count).map(one).collect()
    }
}

/// Counts what its target takes and says when it is enough.
pub(crate) struct Counter {
    target: Box<dyn Publisher>,
    enough: u64,
    count: AtomicU64,
    reached: watch::Sender<Option<Vec<i64>>>,
}

impl Counter {
    /// Before a target that takes everything and does nothing.
    pub(crate) fn new(enough: u64) -> Self {
        Self::before(Box::new(Nothing { batching: Batching::InOrder { max: BATCH_MAX } }), enough)
    }

    /// The same, one message a call.
    pub(crate) fn one_a_call(enough: u64) -> Self {
        Self::before(Box::new(Nothing { batching: Batching::Single }), enough)
    }

    pub(crate) fn before(target: Box<dyn Publisher>, enough: u64) -> Self {
        Self { target, enough, count: AtomicU64::new(0), reached: watch::Sender::new(None) }
    }

    /// Returns the number of received messages.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until enough have come; the rows of the call that made it enough.
    pub(crate) async fn reached(&self) -> Result<Vec<i64>> {
        let mut reached = self.reached.subscribe();
        let found = tokio::time::timeout(PATIENCE, reached.wait_for(Option::is_some)).await;
        let found = found.with_context(|| {
            format!("{} of {} rows after {PATIENCE:?}", self.count(), self.enough)
        })?;
        Ok(found?.clone().unwrap_or_default())
    }

    fn add(&self, messages: &[OutboxRow], deliveries: &[Delivery]) {
        let accepted = deliveries.iter().filter(|d| **d == Delivery::Accepted).count() as u64;
        let before = self.count.fetch_add(accepted, Ordering::Relaxed);
        if before < self.enough && before + accepted >= self.enough {
            let ids = messages.iter().map(|row| row.id).collect();
            self.reached.send_replace(Some(ids));
        }
    }
}

#[async_trait]
impl Publisher for Counter {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let deliveries = self.target.publish(messages).await;
        self.add(messages, &deliveries);
        deliveries
    }

    fn batching(&self) -> Batching {
        self.target.batching()
    }

    async fn close(&self) {
        self.target.close().await
    }
}

/// Accepts everything.
struct Nothing {
    batching: Batching,
}

#[async_trait]
impl Publisher for Nothing {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        vec![Delivery::Accepted; messages.len()]
    }

    fn batching(&self) -> Batching {
        self.batching
    }
}

/// Accepts everything and remembers when each message came.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    came: Mutex<HashMap<Uuid, Instant>>,
    count: watch::Sender<usize>,
}

impl Recorder {
    /// Waits until this many messages were received.
    pub(crate) async fn wait_for(&self, count: usize) -> Result<()> {
        let mut counts = self.count.subscribe();
        let found = tokio::time::timeout(PATIENCE, counts.wait_for(|now| *now >= count)).await;
        found.with_context(|| format!("{count} messages did not come within {PATIENCE:?}"))??;
        Ok(())
    }

    /// When a message came first.
    pub(crate) fn came(&self, id: &Uuid) -> Option<Instant> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }
}

#[async_trait]
impl Publisher for Recorder {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        let now = Instant::now();
        let count = {
            let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
            for row in messages {
                came.entry(row.message_id).or_insert(now);
            }
            came.len()
        };
        self.count.send_replace(count);
        vec![Delivery::Accepted; messages.len()]
    }

    fn batching(&self) -> Batching {
        Batching::InOrder { max: BATCH_MAX }
    }
}
