//! A store that breaks one rule of its contract and keeps all others, to prove that the crash tests find
//! what the rule prevents. Used by the program `faulty` of `cargo xtask torture` and by the tests of the
//! fail points of `relais-cli`.
//!
//! - `RELAIS_PLANTED_BUG` names the rule that is broken; without it, the store is not changed.
//! - `RELAIS_PLANTED_DATABASE` is the database, `sqlite:PATH` or `postgres://…`, for the bug that bypasses the
//!   store.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use relais_core::{
    async_trait,
    bulk::{Advance, BulkLease, JobFence, JobTakeover},
    control::{Control, ControlOrder},
    dead_letter::{DeadLetterStore, DecisionResult, OperatorDecision},
    id_prefix::IdPrefix,
    inbox::{AcceptOutcome, InboxRow, InboxSettlement, NewInbox, SourcePosition},
    inspect::{Inspect, MessageRow, MessageTable, PageQuery, PageRows, StoreDescription, Trail},
    lane::{Fence, LaneGrant, LaneRelease, LaneRequest, LeaseRenewal},
    message::NewMessage,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement},
    process::{Change, ChangeOutcome, FiredTimers, Process, ProcessRef, TimerOwner},
    query::{CleanupCounts, CleanupMode, Overview, Retention, SerdeErrors},
    repair::{Mode, Repair, ReprocessOutcome},
    report::{Report, ReportUpdate},
    store::{
        Changes, Fetch, MigrationOutcome, OutboxWork, Payloads, RowMark, SettleOutcome, Store,
        StoreDriver, StoreError, StoreFuture, StoreResult, WorkQuery,
    },
};
use uuid::Uuid;

const BUG: &str = "RELAIS_PLANTED_BUG";
const DATABASE: &str = "RELAIS_PLANTED_DATABASE";
/// Delay of the commit of a message that was acknowledged too early.
const LATE: Duration = Duration::from_millis(50);
/// Time limit of a statement that bypasses the store.
const RAW_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlantedBug {
    /// A worker settles rows of lanes it has lost.
    NoFence,
    /// Rows are settled as delivered when they are read.
    MarkFirst,
    /// Rows of one key are delivered side by side.
    NoKeyGuard,
    /// A message is acknowledged before it is committed.
    AcknowledgeFirst,
    /// Rows that a bulk job did not process count as delivered.
    DropUnprocessed,
    /// Every failure counts against its message, and the first one makes a dead letter.
    BlameMessage,
}

impl PlantedBug {
    const ALL: [(&'static str, Self); 6] = [
        ("no-fence", Self::NoFence),
        ("mark-first", Self::MarkFirst),
        ("no-key-guard", Self::NoKeyGuard),
        ("acknowledge-first", Self::AcknowledgeFirst),
        ("drop-unprocessed", Self::DropUnprocessed),
        ("blame-message", Self::BlameMessage),
    ];

    fn from_environment() -> Option<Self> {
        let name = std::env::var(BUG).ok()?;
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        Some(found.unwrap_or_else(|| panic!("{BUG}: unknown bug `{name}`")).1)
    }
}

/// Returns a store that breaks the rule named by the environment, or the store itself if it names none.
///
/// # Panics
/// If the environment names an unknown bug.
pub fn plant(store: Arc<dyn StoreDriver>) -> Arc<dyn StoreDriver> {
    let Some(bug) = PlantedBug::from_environment() else { return store };
    Arc::new(FaultyStore { store, bug, fences: Mutex::default() })
}

struct FaultyStore {
    store: Arc<dyn StoreDriver>,
    bug: PlantedBug,
    /// The fences of the workers of this process.
    fences: Mutex<Vec<Fence>>,
}

macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name<'s, 'f>(&'s self, $($arg: $type),*) -> StoreFuture<'f, $out>
        where
            's: 'f,
            Self: 'f,
        {
            self.store.$name($($arg),*)
        })*
    };
}

#[async_trait]
impl Store for FaultyStore {
    async fn lease_lanes(&self, request: LaneRequest) -> StoreResult<LaneGrant> {
        self.remember(&request.fence);
        self.store.lease_lanes(request).await
    }

    async fn accept(
        &self,
        messages: Vec<NewInbox>,
        positions: Vec<SourcePosition>,
    ) -> StoreResult<Vec<AcceptOutcome>> {
        if self.bug != PlantedBug::AcknowledgeFirst {
            return self.store.accept(messages, positions).await;
        }
        let accepted = vec![AcceptOutcome::Stored; messages.len()];
        let store = Arc::clone(&self.store);
        tokio::spawn(async move {
            tokio::time::sleep(LATE).await;
            if let Err(error) = store.accept(messages, positions).await {
                tracing::warn!(%error, "acknowledged a message that was not stored, as planted");
            }
        });
        Ok(accepted)
    }

    async fn fetch_outbox(&self, fetch: Fetch) -> StoreResult<Vec<OutboxRow>> {
        let mut rows = self.store.fetch_outbox(fetch.clone()).await?;
        if fetch.payloads == Payloads::Omitted {
            // They are read to plan a bulk job, not to be delivered.
            return Ok(rows);
        }
        match self.bug {
            PlantedBug::MarkFirst => self.mark(&fetch, &rows).await?,
            PlantedBug::NoKeyGuard => {
                rows.iter_mut().for_each(|row| row.msg_key = format!("{}#{}", row.msg_key, row.id));
            }
            PlantedBug::NoFence
            | PlantedBug::AcknowledgeFirst
            | PlantedBug::DropUnprocessed
            | PlantedBug::BlameMessage => {}
        }
        Ok(rows)
    }

    async fn settle_outbox(
        &self,
        fence: Fence,
        mut rows: Vec<OutboxSettlement>,
    ) -> StoreResult<SettleOutcome> {
        match self.bug {
            PlantedBug::NoFence => {}
            // They were settled when they were read.
            PlantedBug::MarkFirst => {
                let settled = rows.len() as u64;
                return Ok(SettleOutcome { settled, ..SettleOutcome::default() });
            }
            PlantedBug::BlameMessage => {
                rows.iter_mut().for_each(blame);
                return self.store.settle_outbox(fence, rows).await;
            }
            PlantedBug::NoKeyGuard | PlantedBug::AcknowledgeFirst | PlantedBug::DropUnprocessed => {
                return self.store.settle_outbox(fence, rows).await;
            }
        }
        let (done, others): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.fate == OutboxFate::Dispatched);
        let ids: Vec<i64> = done.iter().map(|row| row.id).collect();
        let dispatch = tokio::time::timeout(RAW_MAX, dispatch(&ids));
        let late = |_| StoreError::unavailable("no answer in time");
        dispatch.await.map_err(late)?.map_err(StoreError::unavailable)?;
        let mut settled = self.store.settle_outbox(fence, others).await?;
        settled.settled += ids.len() as u64;
        Ok(settled)
    }

    async fn settle_bulk(
        &self,
        fence: JobFence,
        mut rows: Vec<(i64, OutboxFate)>,
    ) -> StoreResult<SettleOutcome> {
        if self.bug == PlantedBug::DropUnprocessed {
            for (_, fate) in &mut rows {
                if matches!(fate, OutboxFate::Untouched | OutboxFate::Retry { .. }) {
                    *fate = OutboxFate::Dispatched;
                }
            }
        }
        self.store.settle_bulk(fence, rows).await
    }

    forward! {
        migrate() -> MigrationOutcome;
        check() -> ();
        changes() -> Changes;
        find_work(query: WorkQuery) -> OutboxWork;
        renew_lease(renewal: LeaseRenewal) -> i64;
        release_lanes(fence: Fence, release: LaneRelease) -> ();
        positions(source: String) -> Vec<SourcePosition>;
        fetch_inbox(fetch: Fetch) -> Vec<InboxRow>;
        settle_inbox(fence: Fence, rows: Vec<InboxSettlement>) -> SettleOutcome;
        enqueue(messages: Vec<NewMessage>) -> Vec<i64>;
        mark_rows(mark: RowMark) -> SettleOutcome;
        controls() -> Vec<Control>;
        lease_bulk(lease: BulkLease) -> Option<JobTakeover>;
        advance_bulk(fence: JobFence, advance: Advance) -> bool;
        bulk_rows(job: Uuid, after: i64, limit: usize, payloads: Payloads) -> Vec<OutboxRow>;
        load_processes(wanted: Vec<ProcessRef>) -> Vec<Option<Process>>;
        fire_timers(owner: TimerOwner, limit: usize) -> FiredTimers;
        cleanup(retention: Retention, mode: CleanupMode) -> CleanupCounts;
        report(update: ReportUpdate) -> ();
    }
}

/// Makes a dead letter of a row that only has to wait for its target; not of one in quarantine.
fn blame(row: &mut OutboxSettlement) {
    if let OutboxFate::Wait { problem, lost_workers: 0, .. } = &row.fate {
        row.fate = OutboxFate::Dead { attempts: 1, problem: problem.clone(), park: true };
    }
}

impl FaultyStore {
    fn remember(&self, fence: &Fence) {
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        if !fences.contains(fence) {
            fences.push(fence.clone());
        }
    }

    async fn mark(&self, fetch: &Fetch, rows: &[OutboxRow]) -> Result<(), StoreError> {
        let fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(fence) = fences.into_iter().find(|fence| fence.scope == fetch.scope) else {
            return Ok(());
        };
        let settlements = rows.iter().filter_map(|row| {
            let lane = fetch.lanes.iter().find(|lane| lane.lane == row.lane)?;
            let fate = OutboxFate::Dispatched;
            Some(OutboxSettlement { id: row.id, lane: row.lane, epoch: lane.epoch, fate })
        });
        self.store.settle_outbox(fence, settlements.collect()).await.map(drop)
    }
}

/// Marks rows as delivered without a fence, past the store.
async fn dispatch(ids: &[i64]) -> Result<(), String> {
    let database = std::env::var(DATABASE).map_err(|_| format!("{DATABASE} is not set"))?;
    if let Some(path) = database.strip_prefix("sqlite:") {
        let connection = rusqlite::Connection::open(path).map_err(|e| e.to_string())?;
        connection.busy_timeout(Duration::from_secs(60)).map_err(|e| e.to_string())?;
        for id in ids {
            let sql = include_str!("faulty/dispatch_sqlite.sql");
            connection.execute(sql, [id]).map_err(|e| e.to_string())?;
        }
        return Ok(());
    }
    let connected = tokio_postgres::connect(&database, tokio_postgres::NoTls).await;
    let (client, connection) = connected.map_err(|e| e.to_string())?;
    tokio::spawn(connection);
    let sql = include_str!("faulty/dispatch_postgres.sql");
    client.execute(sql, &[&ids]).await.map(drop).map_err(|e| e.to_string())
}

impl Inspect for FaultyStore {
    forward! {
        describe() -> StoreDescription;
        overview() -> Overview;
        page(query: PageQuery) -> PageRows;
        get(table: MessageTable, id: String) -> Option<MessageRow>;
        trail(message_id: String) -> Trail;
        ids_with(prefix: IdPrefix) -> Vec<String>;
        reports() -> Vec<Report>;
    }
}

impl DeadLetterStore for FaultyStore {
    forward! {
        decide(decision: OperatorDecision) -> DecisionResult;
        undecodable_rows(filter: SerdeErrors) -> Vec<i64>;
        reprocess(row: i64, repair: Repair, mode: Mode) -> ReprocessOutcome;
        change_process(change: Change) -> ChangeOutcome;
        control(order: ControlOrder) -> bool;
    }
}
