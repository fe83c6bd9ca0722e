//! The reads of operators: pages of rows, single rows, the trail of a message, and figures.
//!
//! Unstable: drivers implement [`Inspect`]; it is not public API and changes with any release.
//!
//! Lists show rows whose payloads may be of any size, so a list reads whole payloads only where it is
//! asked to ([`PayloadPart`]).

mod typed;

use serde::Serialize;
use uuid::Uuid;

use crate::{
    async_trait,
    bulk::BulkJob,
    dead_letter::{DeadLetter, Origin},
    id_prefix::IdPrefix,
    inbox::InboxRow,
    outbox::OutboxRow,
    process::{LogEntry, Process, ProcessFilter},
    query::{Filter, Overview, ParkedKey},
    report::Report,
    store::StoreResult,
    time::Timestamp,
};

pub use self::typed::InspectExt;

/// Characters that a preview has of each payload.
pub const PREVIEW_CHARS: i64 = 200;

/// Most rows that one bounded page reads. Rare rows are found page by page, and no page takes long however
/// long the history is.
pub const SCAN_MAX: i64 = 5_000;

/// The part of each payload that a page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadPart {
    /// The whole payload.
    Whole,
    /// The first [`PREVIEW_CHARS`] characters, also of the raw bytes and of the payload before an edit.
    Preview,
    /// As `Preview`, and the page reads at most [`SCAN_MAX`] rows: of those in trouble or open if it filters
    /// for these. Rows that wait have an index of their own and are all read while they are no more.
    BoundedPreview,
}

/// A row of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedRow<T> {
    /// The row.
    #[serde(flatten)]
    pub row: T,
    /// Bytes of the whole payload, or of the raw bytes of an undecodable row.
    pub payload_bytes: u64,
}

/// Rows of one page, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPage<T> {
    /// The rows, in the order of the list.
    pub rows: Vec<ListedRow<T>>,
    /// The row up to which a bounded page has read, for [`Filter::before`] of the next one. Absent if no
    /// older row can match.
    pub next: Option<String>,
}

/// A page to read: a table with the filter that the table has. At most [`crate::query::PAGE_MAX`] rows.
#[derive(Clone, Debug)]
pub enum PageQuery {
    /// Inbox rows, newest first.
    Inbox(Filter, PayloadPart),
    /// Outbox rows, newest first.
    Outbox(Filter, PayloadPart),
    /// Dead letters, newest first.
    DeadLetters(Filter, PayloadPart),
    /// Processes, newest first.
    Processes(ProcessFilter),
    /// The log of one process. `before` is a sequence number: the next page.
    ProcessLog {
        /// The process.
        process_id: Uuid,
        /// The sequence number behind which the page starts.
        before: Option<i64>,
        /// Most entries.
        limit: usize,
    },
    /// Entries of the audit log, newest first.
    Audit(AuditFilter),
    /// Open jobs before all others.
    BulkJobs {
        /// Only jobs of this destination.
        destination: Option<String>,
        /// Most jobs.
        limit: usize,
    },
    /// Parked keys, those parked longest first.
    ParkedKeys {
        /// Most keys.
        limit: usize,
    },
}

/// The rows of a page, in the variant of its query.
#[derive(Clone, Debug)]
pub enum PageRows {
    /// Inbox rows.
    Inbox(RowPage<InboxRow>),
    /// Outbox rows.
    Outbox(RowPage<OutboxRow>),
    /// Dead letters.
    DeadLetters(RowPage<DeadLetter>),
    /// Processes.
    Processes(Vec<Process>),
    /// Log entries of a process.
    ProcessLog(Vec<LogEntry>),
    /// Entries of the audit log.
    Audit(Vec<AuditEntry>),
    /// Bulk jobs.
    BulkJobs(Vec<BulkJob>),
    /// Parked keys.
    ParkedKeys(Vec<ParkedKey>),
}

/// A table that has messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageTable {
    /// `relais_inbox`.
    Inbox,
    /// `relais_outbox`.
    Outbox,
    /// `relais_dead_letter`.
    DeadLetters,
}

/// One row, in the variant of its table.
#[derive(Clone, Debug)]
pub enum MessageRow {
    /// An inbox row.
    Inbox(InboxRow),
    /// An outbox row.
    Outbox(OutboxRow),
    /// A dead letter.
    DeadLetter(DeadLetter),
}

/// Everything that is stored about one message id. Each list is oldest first and has at most
/// [`crate::query::PAGE_MAX`] entries.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// Inbox rows of the id, one for each source system that has it.
    pub received: Vec<InboxRow>,
    /// Outbox rows of the id, one for each destination that has it.
    pub sent: Vec<OutboxRow>,
    /// Outbox rows that the message caused (`causation_id`).
    pub caused: Vec<OutboxRow>,
    /// Dead letters of the message or of the process with this id, open or resolved.
    pub dead_letters: Vec<DeadLetter>,
    /// Log entries that the message caused, in any process.
    pub process_log: Vec<LogEntry>,
    /// Failed attempts of the rows in `received` and `sent`.
    pub attempts: Vec<Attempt>,
}

impl Trail {
    /// Returns the failed attempts of one row, oldest first.
    pub fn attempts_of(&self, origin: Origin, origin_id: i64) -> Vec<Attempt> {
        let of_row = |a: &&Attempt| (a.origin, a.origin_id) == (origin, origin_id);
        self.attempts.iter().filter(of_row).cloned().collect()
    }
}

/// One attempt that did not succeed. Those that succeed leave only the row's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// The table of the row.
    pub origin: Origin,
    /// The id of the row.
    pub origin_id: i64,
    /// 1 for the first since the row came, or since its dead letter was last retried.
    pub attempt: u32,
    /// The time at which the attempt ended.
    pub at: Timestamp,
    /// `retry`, `failed`, `ignored` if messages of the row were not sent because they were out of order, or
    /// `delivered` if the target accepted it after an operator had failed it.
    pub outcome: String,
    /// The error code.
    pub error_code: Option<String>,
    /// The error text.
    pub error_message: Option<String>,
    /// The worker that made the attempt.
    pub worker: String,
}

/// One entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// The number of the entry.
    pub id: i64,
    /// The time of the action.
    pub at: Timestamp,
    /// The operator.
    pub actor: String,
    /// The action, such as `retry`.
    pub action: String,
    /// The row, process or destination that was acted on.
    pub target: String,
    /// The operator's reason.
    pub reason: String,
}

/// A filter of the audit log. Every set field must match; newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only actions of this operator.
    pub actor: Option<String>,
    /// Only actions on this target.
    pub target: Option<String>,
    /// Only entries with a smaller id: the next page.
    pub before: Option<i64>,
    /// At most [`crate::query::PAGE_MAX`].
    pub limit: usize,
}

/// An adopted table, with what is wrong with it: a missing column or right, a missing or disabled trigger, results
/// that cannot be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdoptedProblems {
    /// The table as the configuration names it.
    pub table: String,
    /// Each with the next step; none if the adoption works.
    pub problems: Vec<String>,
}

/// A database server as operators see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreDescription {
    /// `sqlite 3.51.3`, `postgresql 15.8`
    pub server: String,
    /// Warnings about the connection for the operator, as sentences for the log.
    pub warnings: Vec<String>,
    /// The adopted tables, compared with their configuration; none if no table is adopted.
    pub adopted: Vec<AdoptedProblems>,
}

/// The reads that operators use. Every method is one bounded read.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// Returns the server, warnings about its connection, and what is wrong with adopted tables. Changes
    /// nothing.
    async fn describe(&self) -> StoreResult<StoreDescription>;

    /// Returns the numbers of rows by state, the backlogs, parked keys and workers.
    async fn overview(&self) -> StoreResult<Overview>;

    /// Reads one page of a table. [`InspectExt`] has a typed method for each table.
    async fn page(&self, query: PageQuery) -> StoreResult<PageRows>;

    /// Reads one row of the inbox or the outbox by its id, else by its message id: the newest of the inbox,
    /// the oldest of the outbox. A dead letter is read by its id only. [`InspectExt`] has typed methods.
    async fn get(&self, table: MessageTable, id: String) -> StoreResult<Option<MessageRow>>;

    /// Reads everything that is stored about one message id, or about the process with this id.
    async fn trail(&self, message_id: String) -> StoreResult<Trail>;

    /// Returns the ids with this prefix, each once and in order: at most [`IDS_MAX`](crate::id_prefix::IDS_MAX).
    async fn ids_with(&self, prefix: IdPrefix) -> StoreResult<Vec<String>>;

    /// Returns the reports of all processes, the process that started first first; at most
    /// [`crate::report::REPORTS_MAX`].
    async fn reports(&self) -> StoreResult<Vec<Report>>;
}
