//! The interface of a database that is measured.
//!
//! A fixture is one set of fresh tables: relais's own, and beside them the plain tables of the raw limit.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use relais::StoreDriver;
use uuid::Uuid;

use crate::workload::Received;

/// Rows that a raw loop handles in one transaction; as many as relais holds at most.
pub(crate) const RAW_BATCH: i64 = 1_000;

pub(crate) trait Database {
    const NAME: &'static str;
    /// The numbers of clients that send at once, one figure each.
    const CLIENTS: &'static [usize];
    /// The number of senders of the latency measurement.
    const LOAD_SENDERS: usize;
    /// The target of p50 from another process, in milliseconds.
    const ELSEWHERE_TARGET_MS: Option<f64>;
    /// Transactions that may stay open while relais works.
    const HOLDS: &'static [Hold];
    type Fixture: Fixture;

    async fn describe(&self) -> Result<String>;
    async fn fixture(&self, name: &str) -> Result<Self::Fixture>;
}

/// A transaction that stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// A snapshot of the database.
    Snapshot,
    /// Wrote into a table of the user's.
    Writer,
    /// Wrote into the outbox.
    Sender,
}

/// The statement of a sender, each message in a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A bare INSERT into a plain table: the raw limit.
    Plain,
    /// `Outbox::send`.
    Outbox,
    /// A bare INSERT into relais's table, as a program without relais does it.
    Elsewhere,
}

/// The tables for received messages without relais.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// A plain table: the raw limit.
    Plain,
    /// relais's inbox, which knows each message id once.
    Inbox,
}

/// The purpose of inserted rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    Pending,
    Finished,
}

pub(crate) trait Fixture {
    type Sender: Sender + 'static;
    /// Kept while a transaction stays open.
    type Held;

    fn store(&self) -> Arc<dyn StoreDriver>;
    async fn sender(&self, write: Write) -> Result<Self::Sender>;

    /// Empties relais's outbox and inbox, and the plain tables.
    async fn clear(&self) -> Result<()>;
    /// Puts rows into relais's outbox.
    async fn add(&self, rows: u64, what: Rows) -> Result<()>;
    /// Lets the database finish the work that loading caused, so that no round pays for it.
    async fn calm(&self) -> Result<()>;
    /// Returns whether none of these rows is pending.
    async fn settled(&self, ids: &[i64]) -> Result<bool>;

    /// Inserts this many rows into each large table of relais, nearly all of them finished.
    async fn fill_console(&self, rows: u64) -> Result<()>;

    /// Empties and fills the plain table of the raw relay.
    async fn fill_plain(&self, rows: u64) -> Result<()>;
    /// The bare loop over it: read a batch, mark it, commit, until nothing is pending.
    async fn relay_plain(&self) -> Result<Duration>;

    /// A bare loop: [`RAW_BATCH`] rows, commit, until all are in.
    async fn insert(&self, rows: Arc<[Received]>, table: Table) -> Result<Duration>;

    async fn hold(&self, what: Hold) -> Result<Self::Held>;
    async fn let_go(&self, held: Self::Held) -> Result<()>;

    /// Processes of the database that serve relais, if it has any.
    async fn backends(&self) -> Result<Vec<u32>>;
    /// Drops the tables.
    async fn remove(self) -> Result<()>;
}

/// One connection that sends.
pub(crate) trait Sender: Send {
    /// `true` if `send` blocks its thread.
    const BLOCKS: bool;

    /// Sends and commits one message; its id.
    fn send(&mut self, key: u64) -> impl Future<Output = Result<Uuid>> + Send;
}
