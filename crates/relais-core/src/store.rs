//! The seam to the database.
//!
//! Every method is one transaction (or one bounded read); no transaction crosses the seam. The
//! user's own transaction is served beside it, by each driver's `send` and `handler`.

use serde::Serialize;
use uuid::Uuid;

use crate::{
    BoxFuture,
    browse::Browse,
    bulk::BulkJobs,
    control::Controls,
    dead_letter::{DeadLetter, Verdict},
    delivery::Problem,
    desk::Desk,
    inbox::{Accepted, InboxRow, InboxSettlement, NewInbox, SourcePosition},
    lane::{Fence, LaneGrant, LaneHandOver, LaneRequest, OwnedLane, Scope},
    message::NewMessage,
    outbox::{OutboxRow, OutboxSettlement},
    process::Processes,
    query::{Cleaned, Filter, Overview, Retention, SerdeErrors},
    repair::{Mode, Repair, Repaired},
    report::Reports,
};

/// What a store method gives back.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

pub use crate::store_error::{DriverError, StoreError, StoreErrorText};

/// The rows wanted, and in which lanes.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub scope: Scope,
    pub lanes: Vec<OwnedLane>,
    /// Keys the worker has enough rows of (few): their rows are left out, so that one slow key with
    /// a long backlog does not crowd out the others.
    pub skip_keys: Vec<String>,
    /// Rows the worker has in its hands already: left out.
    pub skip_ids: Vec<i64>,
    pub limit: usize,
    /// Most bytes of payloads: the rows end with the one that reaches them, so that the first row
    /// comes however large it is. Rows with fewer bytes together were not cut by this.
    pub bytes: usize,
}

/// How much of the payloads a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payloads {
    /// The rows end with the one whose payload reaches so many bytes.
    UpTo(usize),
    /// Rows come with empty payloads, however large these are.
    Omitted,
}

/// What [`Store::changes`] answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Moves with every new row and every decision of a person.
    pub rows: u64,
    /// Moves when a worker comes or leaves.
    pub workers: u64,
    /// Moves when a worker hands lanes over to workers that know an event type.
    pub handed_over: u64,
}

/// How many rows a settlement reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settled {
    pub settled: u64,
    /// Refused by the fence, or no longer open: another worker or a person was faster.
    pub refused: u64,
    /// Inbox rows left as they were, because a process of theirs has moved on since it was read:
    /// decide again. Not counted above.
    pub stale: Vec<i64>,
    /// Settled inbox rows of which messages were not sent, because they were out of order.
    pub ignored: Vec<OutOfOrder>,
}

/// An inbox row of which messages were not sent: newer versions of their aggregates had been seen. It is
/// recorded as an attempt of the row with the outcome `ignored`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutOfOrder {
    pub id: i64,
    pub messages: u64,
    pub problem: Problem,
}

impl OutOfOrder {
    /// `older` are the messages that were not sent; at least one.
    pub fn new(id: i64, older: &[&NewMessage]) -> Self {
        let first = older.first().map_or_else(String::new, |message| {
            let NewMessage { aggregate_type, aggregate_id, destination, .. } = message;
            let version = message.as_of_version.unwrap_or_default();
            format!(
                "version {version} of {aggregate_type} {aggregate_id} came after a newer one and was not \
                 sent to {destination}"
            )
        });
        let text = match older.len() {
            0 | 1 => first,
            more => format!("{first}, and {} more messages", more - 1),
        };
        let problem = Problem::new("OUT_OF_ORDER", &text).fitted();
        Self { id, messages: older.len() as u64, problem }
    }
}

/// What migration did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Migrated {
    pub from: i64,
    pub to: i64,
    /// Names of the scripts applied now.
    pub applied: Vec<String>,
}

/// A database that keeps relais's rows.
pub trait Store: Browse + BulkJobs + Controls + Desk + Processes + Reports + Send + Sync {
    /// What it is, for people: `sqlite 3.51.3`, `postgresql 15.8`.
    fn describe(&self) -> StoreFuture<'_, String>;

    /// Returns what an operator should know of the connection, as sentences for the log.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    // ---- schema -------------------------------------------------------------------------------

    /// Brings the schema up to date. Safe against other nodes and interruption.
    fn migrate(&self) -> StoreFuture<'_, Migrated>;

    /// Refuses, with what to do, wrong versions, unsafe durability, missing privileges and a schema
    /// that does not fit this program. Changes nothing.
    fn check(&self) -> StoreFuture<'_, ()>;

    /// Numbers that differ from the last answer when rows may have come, or workers came or left;
    /// cheap enough to ask a hundred times a second. Rows may become visible a moment later.
    fn changes(&self) -> StoreFuture<'_, Changes>;

    // ---- lanes --------------------------------------------------------------------------------

    /// One heartbeat: renews what the worker holds, takes free and expired lanes up to its fair
    /// share and those that were handed over for one of its event types, and says how many it should
    /// give back.
    fn lease_lanes(&self, request: LaneRequest) -> StoreFuture<'_, LaneGrant>;

    /// Gives lanes back at once. With `leaving`, the worker also leaves the scope.
    fn release_lanes(&self, fence: Fence, lanes: Vec<i16>, leaving: bool) -> StoreFuture<'_, ()>;

    /// Gives lanes back for workers that know an event type which this worker does not know. They take
    /// them at their next heartbeat, also beyond their share; other workers do not while one of them is
    /// alive.
    fn hand_over_lanes(&self, fence: Fence, lanes: Vec<LaneHandOver>) -> StoreFuture<'_, ()>;

    // ---- inbox --------------------------------------------------------------------------------

    /// Stores received messages and positions in one transaction. One answer for each, in order.
    fn accept(
        &self,
        messages: Vec<NewInbox>,
        positions: Vec<SourcePosition>,
    ) -> StoreFuture<'_, Vec<Accepted>>;

    /// The stored positions of a source, by partition.
    fn positions(&self, source: String) -> StoreFuture<'_, Vec<SourcePosition>>;

    /// Open, due rows of the lanes, by id; none whose key waits behind an earlier row that is not
    /// due yet, or is parked.
    fn fetch_inbox(&self, fetch: Fetch) -> StoreFuture<'_, Vec<InboxRow>>;

    /// Settles rows whose lane epoch is still current, all in one transaction with the messages and
    /// dead letters that follow from them.
    fn settle_inbox(&self, fence: Fence, rows: Vec<InboxSettlement>) -> StoreFuture<'_, Settled>;

    /// `true` the first time for this message and handler. In a transaction of its own; inside the
    /// user's transaction use the driver's `once`.
    fn once(&self, handler: String, message_id: String) -> StoreFuture<'_, bool>;

    // ---- outbox -------------------------------------------------------------------------------

    /// Writes outbox rows in a transaction of their own; their ids, in order. A message that its
    /// destination has already, by its message id, is not written again: its row's id comes back. If
    /// that row has another payload, event type or key, the whole batch is refused.
    fn enqueue(&self, messages: Vec<NewMessage>) -> StoreFuture<'_, Vec<i64>>;

    /// Pending, due rows of the scope's destination in the lanes, by id; none whose key waits behind
    /// an earlier row in backoff, or is parked.
    fn fetch_outbox(&self, fetch: Fetch) -> StoreFuture<'_, Vec<OutboxRow>>;

    /// Settles rows whose lane epoch is still current, all in one transaction.
    fn settle_outbox(&self, fence: Fence, rows: Vec<OutboxSettlement>) -> StoreFuture<'_, Settled>;

    /// Notes a lost worker on each row before it is worked on: [`crate::quarantine`]. Refused like a
    /// settlement if the lane is lost.
    fn note_loss(&self, fence: Fence, rows: Vec<(i64, OwnedLane)>) -> StoreFuture<'_, Settled>;

    /// Lets the held rows of these lanes go again, because another worker was lost meanwhile:
    /// [`crate::quarantine`]. Returns how many.
    fn end_quarantine(&self, fence: Fence, lanes: Vec<OwnedLane>) -> StoreFuture<'_, u64>;

    // ---- people -------------------------------------------------------------------------------

    fn overview(&self) -> StoreFuture<'_, Overview>;
    fn list_inbox(&self, filter: Filter) -> StoreFuture<'_, Vec<InboxRow>>;
    fn list_outbox(&self, filter: Filter) -> StoreFuture<'_, Vec<OutboxRow>>;
    fn list_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Vec<DeadLetter>>;

    /// One row by id, or by message id.
    fn find_inbox(&self, id: String) -> StoreFuture<'_, Option<InboxRow>>;
    /// By message id, the oldest row: [`Desk::sent_as`] returns all of them.
    fn find_outbox(&self, id: String) -> StoreFuture<'_, Option<OutboxRow>>;
    fn find_dead_letter(&self, id: Uuid) -> StoreFuture<'_, Option<DeadLetter>>;

    /// Carries out a person's decision and records it; `false` if it was resolved before or is not
    /// there. Frees the key unless another open dead letter holds it.
    fn resolve(&self, dead_letter: Uuid, verdict: Verdict) -> StoreFuture<'_, bool>;

    /// Ids of the `SERDE_ERROR` rows that match, lowest first. Only ids: their bytes may be many.
    fn serde_errors(&self, wanted: SerdeErrors) -> StoreFuture<'_, Vec<i64>>;

    /// Writes what a second reading made of a `SERDE_ERROR` row, promotes it to `RECEIVED` and
    /// records who and why; its original bytes stay. If its message is there already under another
    /// row, it is settled as a duplicate of that row, or left alone where the contents differ.
    fn repair(&self, id: i64, repair: Repair, mode: Mode) -> StoreFuture<'_, Repaired>;

    /// Removes at most `rows_max` finished rows of each table past their retention.
    fn cleanup(&self, retention: Retention, rows_max: usize) -> StoreFuture<'_, Cleaned>;

    /// How many rows [`Store::cleanup`] would remove now, in as many passes as it takes. Reads whole
    /// tables: for a person who asks.
    fn expired(&self, retention: Retention) -> StoreFuture<'_, Cleaned>;
}
