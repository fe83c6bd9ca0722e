//! The seam to the database.
//!
//! Unstable: drivers implement these traits; they are not public API and change with any release.
//!
//! Every method is one transaction (or one bounded read); no transaction crosses the seam. The
//! user's own transaction is served beside it, by each driver's `send` and `handler`.
//!
//! - [`Store`]: the calls of the engine
//! - [`Inspect`]: the reads of operators; [`DeadLetterStore`]: their decisions
//! - [`StoreDriver`]: all of them, as a driver implements them

use serde::Serialize;
use uuid::Uuid;

use crate::{
    BoxFuture, async_trait,
    bulk::{Advance, BulkLease, JobFence, JobTakeover},
    control::Control,
    dead_letter::DeadLetterStore,
    delivery::Problem,
    inbox::{AcceptOutcome, InboxRow, InboxSettlement, NewInbox, SourcePosition},
    inspect::Inspect,
    lane::{Fence, LaneGrant, LaneRelease, LaneRequest, LeaseRenewal, OwnedLane, Scope},
    message::NewMessage,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement},
    process::{FiredTimers, Process, ProcessRef, TimerOwner},
    query::{CleanupCounts, CleanupMode, Retention},
    report::ReportUpdate,
};

/// The result of a store method.
pub type StoreResult<T> = Result<T, StoreError>;

/// The future of a store method.
pub type StoreFuture<'a, T> = BoxFuture<'a, StoreResult<T>>;

pub use crate::store_error::{DriverError, StoreError, StoreErrorText};

/// A request for rows of lanes.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// The inbox, or a destination.
    pub scope: Scope,
    /// The lanes that the worker owns.
    pub lanes: Vec<OwnedLane>,
    /// Keys the worker has enough rows of (few): their rows are left out, so that one slow key with
    /// a long backlog does not crowd out the others.
    pub skip_keys: Vec<String>,
    /// Rows that the worker holds already: left out.
    pub skip_ids: Vec<i64>,
    /// Most rows.
    pub limit: usize,
    /// The payloads to read. Inbox rows are not read without theirs.
    pub payloads: Payloads,
    /// The rows of earlier fetches that need not be returned again. A store may ignore it.
    pub kept: KeptRows,
}

/// Outbox rows that a worker holds or has settled, so that a store need not walk over them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptRows {
    /// Rows may be returned any number of times.
    #[default]
    None,
    /// The worker keeps all rows from this fetch on. Those of earlier fetches may be returned again.
    FromNow,
    /// The worker has kept all rows since the last fetch with [`KeptRows::FromNow`].
    All,
}

impl Fetch {
    /// A request for at most `limit` rows with their payloads, without rows to leave out.
    pub fn new(scope: Scope, lanes: Vec<OwnedLane>, limit: usize) -> Self {
        let payloads = Payloads::UpTo(usize::MAX);
        let (skip_keys, skip_ids) = (Vec::new(), Vec::new());
        Self { scope, lanes, skip_keys, skip_ids, limit, payloads, kept: KeptRows::None }
    }

    /// Returns the bytes of payloads at which the rows of an inbox end.
    pub fn inbox_bytes(&self) -> StoreResult<usize> {
        let missing = || StoreError::invalid("a fetch of inbox rows must include their payloads");
        self.payloads.bytes().ok_or_else(missing)
    }
}

/// The part of the payloads that a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payloads {
    /// The rows end with the one whose payload reaches this number of bytes, so that the first row comes
    /// however large it is. Rows with fewer bytes together were not cut by this.
    UpTo(usize),
    /// Rows come with empty payloads, and those of the outbox without headers, however large these are.
    Omitted,
}

impl Payloads {
    /// Returns the number of bytes at which the rows end, if payloads are read.
    pub fn bytes(self) -> Option<usize> {
        match self {
            Self::UpTo(bytes) => Some(bytes),
            Self::Omitted => None,
        }
    }
}

/// Numbers that [`Store::changes`] returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Moves with every new inbox row, and with `decisions`.
    pub rows: u64,
    /// Moves with every decision of an operator and every bulk job that sets rows free.
    pub decisions: u64,
    /// The highest outbox id drawn so far. Its row may become visible later, or never.
    pub outbox: i64,
    /// Moves when a worker comes or leaves.
    pub workers: u64,
    /// Moves when a worker hands lanes over to workers that know an event type.
    pub handed_over: u64,
}

/// A range of outbox ids, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The lowest id.
    pub first: i64,
    /// The highest id.
    pub last: i64,
}

/// A search for work in the outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkQuery {
    /// Ids whose rows are new to the caller.
    pub new_ids: Vec<IdRange>,
    /// Most rows of each range.
    pub rows_max: usize,
    /// Destinations to search for due rows.
    pub destinations: Vec<String>,
}

/// Work that [`Store::find_work`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxWork {
    /// The visible rows with the new ids, lowest ids of each range first.
    pub arrivals: Vec<OutboxArrival>,
    /// Those of the destinations that may have due rows: fresh ones, or rows whose time has come. Rows of
    /// blocked keys count too.
    pub destinations: Vec<String>,
}

/// An outbox row that has become visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxArrival {
    /// The id of the row.
    pub id: i64,
    /// `None` if the row is not pending any more.
    pub destination: Option<String>,
}

/// Numbers of rows that a settlement reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SettleOutcome {
    /// Rows that were settled.
    pub settled: u64,
    /// Refused by the fence, or no longer open: another worker or an operator was faster.
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
    /// The id of the inbox row.
    pub id: i64,
    /// The number of its messages that were not sent.
    pub messages: u64,
    /// The reason, with the first of these messages.
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

/// The result of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MigrationOutcome {
    /// The version before.
    pub from: i64,
    /// The version afterwards.
    pub to: i64,
    /// Names of the scripts applied now.
    pub applied: Vec<String>,
}

/// A change of rows that settles none of them.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowMark {
    /// Records a lost worker on each row before it is worked on: [`crate::quarantine`].
    LostWorker { fence: Fence, rows: Vec<(i64, OwnedLane)> },
    /// Makes rows of these lanes due that are held in quarantine, because another worker was lost meanwhile:
    /// [`crate::quarantine`].
    EndQuarantine { fence: Fence, lanes: Vec<OwnedLane> },
    /// Makes inbox rows of paused process types due
    /// ([`PROCESS_TYPE_PAUSED`](crate::control::PROCESS_TYPE_PAUSED)), after a worker has noticed a resume.
    /// Rows of types that are still paused wait again.
    ResumedProcessTypes,
    /// Handles rows of adopted tables that applications changed, and writes results that could not be written
    /// when the rows were settled; all of them count as settled. A store without adopted tables has none.
    AdoptedTables,
}

/// The calls of the engine, and of applications that write in a transaction of relais's own. A driver
/// implements it; it changes with the engine, without notice.
#[async_trait]
pub trait Store: Send + Sync {
    // ---- schema -------------------------------------------------------------------------------

    /// Brings the schema up to date. Safe against other nodes and interruption.
    async fn migrate(&self) -> StoreResult<MigrationOutcome>;

    /// Fails, with the next step for the operator, on wrong versions, unsafe durability, missing privileges
    /// and a schema that does not fit this program. Changes nothing.
    async fn check(&self) -> StoreResult<()>;

    /// Returns numbers that differ from the last answer when rows may have come, or workers came or left;
    /// cheap enough to ask a hundred times a second. Rows may become visible a moment later.
    async fn changes(&self) -> StoreResult<Changes>;

    /// Finds the outbox rows of new ids, and destinations with due rows. Cheap enough for once a second and
    /// a thousand destinations.
    async fn find_work(&self, query: WorkQuery) -> StoreResult<OutboxWork>;

    // ---- lanes --------------------------------------------------------------------------------

    /// Renews the lease of a worker and announces the scopes that it serves; returns the term of the lease. A
    /// new term means that the lease had expired: lanes may have another owner, and the worker asks for the
    /// lanes of all its scopes again.
    async fn renew_lease(&self, renewal: LeaseRenewal) -> StoreResult<i64>;

    /// Renews the lease of a worker, takes free lanes of the scope and lanes of lost workers up to its fair
    /// share, and those that were handed over for one of its event types. Returns all its lanes of the scope,
    /// and how many it should give back.
    async fn lease_lanes(&self, request: LaneRequest) -> StoreResult<LaneGrant>;

    /// Gives lanes back at once.
    async fn release_lanes(&self, fence: Fence, release: LaneRelease) -> StoreResult<()>;

    // ---- inbox --------------------------------------------------------------------------------

    /// Stores received messages and positions in one transaction. One answer for each, in order.
    async fn accept(
        &self,
        messages: Vec<NewInbox>,
        positions: Vec<SourcePosition>,
    ) -> StoreResult<Vec<AcceptOutcome>>;

    /// Returns the stored positions of a source, by partition.
    async fn positions(&self, source: String) -> StoreResult<Vec<SourcePosition>>;

    /// Returns open, due rows of the lanes, by id; none whose key waits behind an earlier row that is not
    /// due yet, or is parked.
    async fn fetch_inbox(&self, fetch: Fetch) -> StoreResult<Vec<InboxRow>>;

    /// Settles rows whose lane epoch is still current, all in one transaction with the messages and
    /// dead letters that follow from them.
    async fn settle_inbox(
        &self,
        fence: Fence,
        rows: Vec<InboxSettlement>,
    ) -> StoreResult<SettleOutcome>;

    // ---- outbox -------------------------------------------------------------------------------

    /// Writes outbox rows in a transaction of their own; their ids, in order. A message that its
    /// destination has already, by its message id, is not written again: its row's id comes back. If
    /// that row has another payload, event type or key, the whole batch is refused.
    async fn enqueue(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<i64>>;

    /// Returns pending, due rows of the scope's destination in the lanes, by id; none whose key waits behind
    /// an earlier row in backoff, or is parked.
    async fn fetch_outbox(&self, fetch: Fetch) -> StoreResult<Vec<OutboxRow>>;

    /// Settles rows whose lane epoch is still current, all in one transaction. A row that an operator failed
    /// meanwhile is refused; if the target has accepted it, that is recorded as an attempt of the row
    /// (`delivered`).
    async fn settle_outbox(
        &self,
        fence: Fence,
        rows: Vec<OutboxSettlement>,
    ) -> StoreResult<SettleOutcome>;

    // ---- quarantine and pauses ----------------------------------------------------------------

    /// Marks rows without settling them. Returns how many were marked, and how many were refused because
    /// their lane is lost.
    async fn mark_rows(&self, mark: RowMark) -> StoreResult<SettleOutcome>;

    /// Returns every control, by kind and name; at most [`CONTROLS_MAX`](crate::control::CONTROLS_MAX).
    /// Cheap enough for once a second.
    async fn controls(&self) -> StoreResult<Vec<Control>>;

    // ---- bulk jobs ----------------------------------------------------------------------------

    /// Plans, takes, renews or gives back a bulk job. Returns the job if the worker holds it now.
    async fn lease_bulk(&self, lease: BulkLease) -> StoreResult<Option<JobTakeover>>;

    /// Moves the job on if the fence holds and it is still in `from`. `ABANDONED` also sets its rows
    /// free as they were.
    async fn advance_bulk(&self, fence: JobFence, advance: Advance) -> StoreResult<bool>;

    /// Returns the job's rows that are still pending, by id, behind `after`. Empty only if there is none.
    async fn bulk_rows(
        &self,
        job: Uuid,
        after: i64,
        limit: usize,
        payloads: Payloads,
    ) -> StoreResult<Vec<OutboxRow>>;

    /// Settles rows of the job if the fence holds. `Untouched` sets a row free without penalty. Every fate
    /// but `Wait` clears the lost workers of its row: it did not kill this one. The job is `RECONCILED` in
    /// the same transaction as its last pending row.
    async fn settle_bulk(
        &self,
        fence: JobFence,
        rows: Vec<(i64, OutboxFate)>,
    ) -> StoreResult<SettleOutcome>;

    // ---- processes ----------------------------------------------------------------------------

    /// Returns each process as it is now, in the order asked for.
    async fn load_processes(&self, wanted: Vec<ProcessRef>) -> StoreResult<Vec<Option<Process>>>;

    /// Turns at most `limit` due timers of the owner into inbox rows of its inbox
    /// ([`TIMER_FIRED`](crate::process::TIMER_FIRED), message id `timer:<id>`, with a random end where that
    /// is taken; key the process id), and removes them. Each becomes one row, however many workers ask at
    /// once.
    async fn fire_timers(&self, owner: TimerOwner, limit: usize) -> StoreResult<FiredTimers>;

    // ---- upkeep -------------------------------------------------------------------------------

    /// Removes, or counts, finished rows past their retention.
    async fn cleanup(&self, retention: Retention, mode: CleanupMode) -> StoreResult<CleanupCounts>;

    /// Replaces or removes the report of a process, and removes expired ones.
    async fn report(&self, update: ReportUpdate) -> StoreResult<()>;
}

/// A database as a driver implements it: for the engine, and for operators.
pub trait StoreDriver: Store + Inspect + DeadLetterStore {}

impl<S: Store + Inspect + DeadLetterStore> StoreDriver for S {}
