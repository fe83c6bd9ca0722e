//! Queries of operators: filters, the overview and retention.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{dead_letter::Origin, time::Timestamp};

/// Most rows one page may have.
pub const PAGE_MAX: usize = 500;

/// Finished rows are counted one by one in tables of at most this size. In larger tables their number is an
/// estimate, so that history costs nothing.
pub const EXACT_COUNT_MAX: u32 = 20_000;

/// A filter of rows. Every set field must match; newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The `status` column, or for dead letters `open` / `resolved`.
    pub status: Option<String>,
    /// Only this event type.
    pub event_type: Option<String>,
    /// Only this key.
    pub key: Option<String>,
    /// Only this destination.
    pub destination: Option<String>,
    /// The source system of inbox rows, and of dead letters of the inbox.
    pub source: Option<String>,
    /// The error code of rows, and of dead letters.
    pub code: Option<String>,
    /// Not older than this long before the database's now, in seconds.
    pub since_seconds: Option<i64>,
    /// Only rows with a smaller id than this: the next page. For dead letters: parked before the
    /// entry with this id.
    pub before: Option<String>,
    /// At most [`PAGE_MAX`].
    pub limit: usize,
}

/// A filter of undecodable (`SERDE_ERROR`) rows. Every set field must match; oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SerdeErrors {
    /// Only this source system.
    pub source_system: Option<String>,
    /// Only this error code.
    pub error_code: Option<String>,
    /// Only this key.
    pub key: Option<String>,
    /// Not older than this long before the database's now, in seconds.
    pub since_seconds: Option<i64>,
    /// Only rows with a larger id than this: the next page.
    pub after: i64,
    /// At most [`PAGE_MAX`].
    pub limit: usize,
}

/// A number of rows by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The state.
    pub name: String,
    /// The number of rows in it.
    pub rows: u64,
}

/// Returns true if the number of finished rows among the counts of a table is an estimate.
pub fn is_estimated(counts: &[Count]) -> bool {
    counts.iter().map(|count| count.rows).sum::<u64>() > u64::from(EXACT_COUNT_MAX)
}

/// The pending rows of one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Backlog {
    /// The name of the destination.
    pub destination: String,
    /// The number of rows that are not delivered yet.
    pub pending: u64,
    /// Creation time of the oldest pending row that does not wait behind a parked key.
    pub oldest: Option<Timestamp>,
    /// Pending rows that wait behind a parked key: among the first 100,000, so at least this many.
    pub parked: u64,
    /// Keys that are failing: a row of theirs waits in backoff after a failed call. Among the first
    /// [`FAILING_READ_MAX`] rows that wait for their time, so at least this many.
    pub failing_keys: u64,
    /// The oldest of these rows.
    pub failing: Option<FailingRow>,
}

/// Most rows of a destination that are read to find its failing keys.
pub const FAILING_READ_MAX: usize = 10_000;

/// A pending row that waits in backoff after a failed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingRow {
    /// The id of the outbox row.
    pub id: i64,
    /// Its key, whose later rows wait.
    pub msg_key: String,
    /// The time of its first attempt; while none is used, the time at which it was created.
    pub since: Timestamp,
    /// The number of used attempts.
    pub attempts: u32,
    /// The time of the next attempt.
    pub next_attempt_at: Option<Timestamp>,
    /// The code of its last error.
    pub error_code: Option<String>,
    /// The text of its last error.
    pub error_message: Option<String>,
}

/// A live worker of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerRow {
    /// The scope of its lanes.
    pub scope: String,
    /// The name of the worker.
    pub worker: String,
    /// The number of lanes that it holds.
    pub lanes: u64,
    /// True if its last heartbeat still counts.
    pub alive: bool,
}

/// A parked key: later rows wait behind a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParkedKey {
    /// Inbox or outbox.
    pub origin: Origin,
    /// The destination; absent for the inbox.
    pub destination: Option<String>,
    /// The key.
    pub msg_key: String,
    /// The time at which it was parked.
    pub parked_at: Timestamp,
    /// The dead letter it waits behind.
    pub dead_letter_id: Uuid,
    /// Open rows of the key that wait.
    pub backlog: u64,
}

/// The store at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Overview {
    /// The database's now.
    pub now: Timestamp,
    /// The version of the tables.
    pub schema_version: i64,
    /// Rows by `status`; every status appears.
    pub inbox: Vec<Count>,
    /// Reception time of the oldest open inbox row that does not wait behind a parked key.
    pub inbox_oldest: Option<Timestamp>,
    /// Open inbox rows that wait behind a parked key: among the first 100,000, so at least this many.
    pub inbox_parked: u64,
    /// Rows by `status`; every status appears.
    pub outbox: Vec<Count>,
    /// The backlog of each destination.
    pub backlogs: Vec<Backlog>,
    /// The number of dead letters without a decision.
    pub dead_letters_open: u64,
    /// The number of parked keys.
    pub parked_keys: u64,
    /// Processes by `status`; every status appears.
    pub processes: Vec<Count>,
    /// Processes that need an operator: those with an open dead letter of their own.
    pub processes_need_operator: u64,
    /// Timers that are due and have not fired.
    pub timers_due: u64,
    /// Inbox rows that wait because no live worker knows their event type, by event type.
    pub unknown_types: Vec<Count>,
    /// Open rows of subscribers and named inboxes that no live worker serves, by inbox: among the first
    /// 100,000, so at least this many. A subscriber's inbox is `@name`.
    pub unserved_inboxes: Vec<Count>,
    /// All workers with lanes.
    pub workers: Vec<WorkerRow>,
}

/// The time that finished rows stay, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Handled inbox rows.
    pub processed_seconds: i64,
    /// Delivered outbox rows.
    pub dispatched_seconds: i64,
    /// Marks of `once`.
    pub handled_seconds: i64,
    /// Resolved dead letters only; open ones stay.
    pub resolved_seconds: i64,
    /// Processes that have ended, with their logs.
    pub processes_seconds: i64,
    /// The last versions of aggregates that routes have seen.
    pub versions_seconds: i64,
}

impl Retention {
    /// A retention that does not end: a thousand years.
    pub const NEVER_SECONDS: i64 = 1_000 * 365 * 86_400;

    /// Returns a retention that removes nothing.
    pub fn never() -> Self {
        Self {
            processed_seconds: Self::NEVER_SECONDS,
            dispatched_seconds: Self::NEVER_SECONDS,
            handled_seconds: Self::NEVER_SECONDS,
            resolved_seconds: Self::NEVER_SECONDS,
            processes_seconds: Self::NEVER_SECONDS,
            versions_seconds: Self::NEVER_SECONDS,
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: i64 = 86_400;
        Self {
            processed_seconds: 30 * DAY,
            dispatched_seconds: 7 * DAY,
            handled_seconds: 30 * DAY,
            resolved_seconds: 90 * DAY,
            processes_seconds: 90 * DAY,
            versions_seconds: 365 * DAY,
        }
    }
}

crate::setters!(Retention {
    /// Sets how long handled inbox rows stay.
    processed_seconds: = i64,
    /// Sets how long delivered outbox rows stay.
    dispatched_seconds: = i64,
    /// Sets how long marks of `once` stay: a message that arrives later is handled again.
    handled_seconds: = i64,
    /// Sets how long resolved dead letters stay.
    resolved_seconds: = i64,
    /// Sets how long processes that have ended stay, with their logs.
    processes_seconds: = i64,
    /// Sets how long the last version of an aggregate is known: an older event that arrives later is sent.
    versions_seconds: = i64,
});

/// The work of [`Store::cleanup`](crate::store::Store::cleanup).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupMode {
    /// Removes at most `rows_max` rows of each table.
    Remove {
        /// Most rows of each table.
        rows_max: usize,
    },
    /// Removes nothing and counts the rows that would be removed, in as many passes as that takes. Reads
    /// whole tables: only for an operator who asks.
    Count,
}

/// Numbers of rows that one cleanup removed or counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CleanupCounts {
    /// The number of inbox rows.
    pub inbox: u64,
    /// The number of outbox rows.
    pub outbox: u64,
    /// The number of marks of `once`.
    pub handled: u64,
    /// Resolved ones; the failed row of a discarded one goes with it and is not counted apart.
    pub dead_letters: u64,
    /// The number of finished processes.
    pub processes: u64,
    /// The number of aggregates whose last version was forgotten.
    pub versions: u64,
}

impl std::ops::AddAssign for CleanupCounts {
    fn add_assign(&mut self, other: Self) {
        self.inbox += other.inbox;
        self.outbox += other.outbox;
        self.handled += other.handled;
        self.dead_letters += other.dead_letters;
        self.processes += other.processes;
        self.versions += other.versions;
    }
}

impl CleanupCounts {
    /// Returns the number of all rows.
    pub fn total(self) -> u64 {
        self.tables().iter().map(|(_, rows)| rows).sum()
    }

    /// Returns whether a pass that removes at most `rows_max` rows of each table has reached the end: fewer than half
    /// of them were old enough. The rest can wait for the next minute, however fast rows are written.
    #[doc(hidden)]
    pub fn reached_the_end(self, rows_max: usize) -> bool {
        self.tables().iter().all(|(_, rows)| *rows < (rows_max / 2).max(1) as u64)
    }

    /// Returns the numbers with the names of what was removed.
    pub fn tables(self) -> [(&'static str, u64); 6] {
        let Self { inbox, outbox, handled, dead_letters, processes, versions } = self;
        [
            ("inbox", inbox),
            ("outbox", outbox),
            ("handled", handled),
            ("dead_letters", dead_letters),
            ("processes", processes),
            ("versions", versions),
        ]
    }
}
