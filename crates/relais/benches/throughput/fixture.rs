//! The interface of a database that is measured.
//!
//! A fixture is one set of fresh tables: relais's own, and beside them the plain tables of the raw limit.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use relais::StoreDriver;
use tokio::sync::mpsc::Receiver;
use uuid::Uuid;

use crate::{cost::ServerReading, workload::Received};

/// Rows that a raw loop handles in one transaction; as many as relais holds at most.
pub(crate) const RAW_BATCH: i64 = 1_000;

pub(crate) trait Database {
    const NAME: &'static str;
    /// The numbers of clients that send at once, one figure each.
    const CLIENTS: &'static [usize];
    /// The ways to send that are measured, by the name of the driver.
    const WAYS: &'static [(Write, &'static str)];
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

/// The statement of a sender, in one transaction with a row of the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A prepared INSERT into a table of five columns with a primary key: the raw limit.
    Minimal,
    /// `Outbox::send` with the first driver of the database.
    Outbox,
    /// `Outbox::send` with sqlx.
    Sqlx,
    /// A prepared INSERT of five columns into relais's table, as a program without relais does it.
    Elsewhere,
}

/// The keys and destinations of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) keys: u64,
    /// With one it is [`crate::workload::DESTINATION`], with more of them a number is added.
    pub(crate) destinations: u64,
}

/// The tables for received messages without relais.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// A plain table: the raw limit.
    Plain,
    /// relais's inbox, which knows each message id once.
    Inbox,
}

/// One row of the plain table, as a bare loop delivers it.
pub(crate) struct PlainRow {
    pub(crate) id: i64,
    pub(crate) key: String,
    pub(crate) payload: String,
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
    /// Opens another store on the same tables, with connections of its own.
    async fn another_store(&self) -> Result<Arc<dyn StoreDriver>>;
    async fn sender(&self, write: Write) -> Result<Self::Sender>;

    /// Empties relais's outbox and inbox, and the plain tables.
    async fn clear(&self) -> Result<()>;
    /// Puts rows into relais's outbox.
    async fn add(&self, rows: u64, what: Rows, spread: Spread) -> Result<()>;
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
    /// Reads [`RAW_BATCH`] pending rows of it, for a loop that delivers them.
    async fn read_plain(&self) -> Result<Vec<PlainRow>>;
    /// Marks rows of it as delivered, in one commit.
    async fn mark_plain(&self, ids: Vec<i64>) -> Result<()>;

    /// A bare loop: [`RAW_BATCH`] rows, commit, until all are in.
    async fn insert(&self, rows: Arc<[Received]>, table: Table) -> Result<Duration>;

    /// A bare loop: each batch into the plain table, with the position of its source, one commit each.
    async fn insert_batches(&self, batches: Receiver<Vec<Received>>) -> Result<()>;

    async fn hold(&self, what: Hold) -> Result<Self::Held>;
    async fn let_go(&self, held: Self::Held) -> Result<()>;

    /// Returns the counters of the server; `None` without one on this machine.
    async fn server(&self) -> Result<Option<ServerReading>>;
    /// Returns the share of updates of the outbox that left its indexes alone, where that is known.
    async fn hot_share(&self) -> Result<Option<f64>>;
    /// Removes old versions of rows from the outbox, where the database keeps them.
    async fn vacuum(&self) -> Result<()>;

    /// Drops the tables.
    async fn remove(self) -> Result<()>;
}

/// One connection that sends.
pub(crate) trait Sender: Send {
    /// `true` if `send` blocks its thread.
    const BLOCKS: bool;

    /// Sends and commits one message with a row of the user's; its id.
    fn send(&mut self, key: u64) -> impl Future<Output = Result<Uuid>> + Send;

    /// Sends this many messages and nothing else, in one commit.
    fn send_many(&mut self, count: u64) -> impl Future<Output = Result<()>> + Send;
}
