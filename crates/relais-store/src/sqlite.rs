//! The SQLite store: one file beside the user's own tables, one writer thread, a few readers.
//!
//! Invariant: every change goes through the writer's `BEGIN IMMEDIATE ... COMMIT`; an answer leaves
//! only after the commit. Readers see what was committed and never write.
//!
//! Read in this order: [`connect`] opens and [`check`] judges a file, [`migrate`] makes the tables,
//! [`writer`] and [`reader`] run the work, [`row`] reads what comes back, and the rest is one file a
//! topic, named like the part of the seam it serves.

mod adopt;
mod attempt;
mod bulk;
mod check;
mod cleanup;
mod connect;
mod control;
mod credential;
mod dead_letters;
mod error;
mod handler;
mod hydrate;
mod inbox;
mod inspect;
mod lane;
mod lanes;
mod low_water_mark;
mod migrate;
mod outbox;
mod outbox_fetch;
mod outbox_position;
mod process;
mod quarantine;
mod reader;
mod repair;
mod row;
#[cfg(feature = "sqlx-sqlite")]
mod sqlx_handler;
mod transaction;
mod waiting;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use relais_core::{
    async_trait,
    bulk::{Advance, BulkLease, JobFence, JobTakeover},
    control::Control,
    inbox::{AcceptOutcome, InboxRow, InboxSettlement, NewInbox, SourcePosition},
    inspect::Inspect,
    lane::{Fence, LaneGrant, LaneRelease, LaneRequest, LeaseRenewal, Scope},
    message::NewMessage,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement},
    process::{FiredTimers, Process, ProcessRef, TimerOwner},
    query::{CleanupCounts, CleanupMode, Overview, Retention},
    report::ReportUpdate,
    store::{
        Changes, Fetch, MigrationOutcome, OutboxWork, Payloads, RowMark, SettleOutcome, Store,
        StoreError, StoreResult, WorkQuery,
    },
};
use rusqlite::Transaction;
use uuid::Uuid;

#[cfg(feature = "sqlx-sqlite")]
pub use self::sqlx_handler::{sqlx_handler, sqlx_handler_with};
use self::{
    adopt::SqliteAdoptions,
    low_water_mark::Marks,
    outbox_fetch::{FetchProgress, FetchedPart},
    outbox_position::OutboxPositions,
    reader::Readers,
    waiting::SweepPlace,
    writer::Writer,
};
pub use self::{
    connect::SqliteOptions,
    handler::{handler, handler_with},
    hydrate::SqlHydrator,
    migrate::{SCRIPTS, schema_sql},
    transaction::ENQUEUE_SQL,
};
use crate::Script;
#[cfg(feature = "sqlx-sqlite")]
pub use crate::sqlx_function::{SqlxHandlerFn, SqlxStateHandlerFn};

/// relais's rows in a SQLite file. Cheap to clone; all clones share one writer.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    inner: Arc<Inner>,
    scripts: &'static [Script],
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    options: SqliteOptions,
    writer: Writer,
    readers: Readers,
    /// For the user's statements (hydration), which may take long: the engine does not wait for them.
    visitors: Readers,
    /// Asked often, so it never waits behind a long list; see [`Store::changes`].
    watcher: Readers,
    marks: Arc<Marks>,
    positions: Arc<OutboxPositions>,
    sweep: Arc<SweepPlace>,
    adopted: Arc<SqliteAdoptions>,
}

impl SqliteStore {
    /// Returns `true` the first time for this handler and message, in a transaction of its own. In your own
    /// transaction use [`BlockingTransaction::once`](crate::BlockingTransaction::once).
    pub async fn once(&self, handler: String, message_id: String) -> Result<bool, StoreError> {
        self.writer().run(move |tx| transaction::once(tx, &handler, &message_id)).await
    }

    /// Opens the file, makes it if it is missing, and sets it up for safe writing. Neither migrates
    /// nor judges it: that is [`Store::migrate`] and [`Store::check`].
    pub async fn open(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || Self::open_blocking(path, options));
        opened.await.map_err(|stopped| StoreError::unavailable(stopped.to_string()))?
    }

    fn open_blocking(path: PathBuf, options: SqliteOptions) -> Result<Self, StoreError> {
        // SQLite reports only that the file cannot be opened, which may also be temporary.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let folder = folder.display();
            let why = format!(
                "cannot open the database: there is no folder {folder}; create it, or correct `store.url`"
            );
            return Err(StoreError::setup(why));
        }
        let writer = Writer::start(connect::writer(&path, &options)?)?;
        let readers = Readers::new(&path, &options, options.readers);
        let visitors = Readers::new(&path, &options, options.readers);
        let watcher = Readers::new(&path, &options, 1);
        let (marks, positions, sweep, adopted) = Default::default();
        let inner = Inner {
            path,
            options,
            writer,
            readers,
            visitors,
            watcher,
            marks,
            positions,
            sweep,
            adopted,
        };
        Ok(Self { inner: Arc::new(inner), scripts: SCRIPTS })
    }

    /// As a program of another version, which knows other scripts: for tests of upgrades.
    #[doc(hidden)]
    pub fn knowing(self, scripts: &'static [Script]) -> Self {
        Self { scripts, ..self }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    fn writer(&self) -> &Writer {
        &self.inner.writer
    }

    fn readers(&self) -> &Readers {
        &self.inner.readers
    }

    fn visitors(&self) -> &Readers {
        &self.inner.visitors
    }

    /// Fetches outbox rows. Writes only if it meets rows that have to wait, and the position once a second.
    async fn fetch_and_pass(&self, fetch: Fetch) -> StoreResult<Vec<OutboxRow>> {
        let fetch = Arc::new(fetch);
        let mut progress = FetchProgress::default();
        loop {
            let (request, positions) = (Arc::clone(&fetch), Arc::clone(&self.inner.positions));
            let part = self
                .readers()
                .read(move |db| outbox_fetch::fetch(db, &positions, &request, progress));
            match part.await? {
                FetchedPart::All { rows, passed, position } => {
                    if !passed.is_empty() || position.is_some() {
                        self.pass(&fetch, passed, position).await?;
                    }
                    return Ok(rows);
                }
                FetchedPart::Cut { progress: found, passed } => {
                    let all_wait = self.pass(&fetch, passed, None).await?;
                    // A row whose obstacle was removed goes before later rows of its key: walk again.
                    progress = if all_wait { found } else { FetchProgress::default() };
                }
            }
        }
    }

    async fn pass(
        &self,
        fetch: &Arc<Fetch>,
        passed: Vec<i64>,
        position: Option<i64>,
    ) -> StoreResult<bool> {
        let fetch = Arc::clone(fetch);
        let pass = move |tx: &Transaction<'_>| {
            outbox_fetch::pass(tx, outbox::destination(&fetch.scope)?, &passed, position)
        };
        self.writer().run(pass).await
    }

    /// Returns the id behind which the next fetch of a scope starts: for tests of what a fetch reads.
    #[doc(hidden)]
    pub fn mark(&self, scope: &Scope) -> i64 {
        match scope {
            Scope::Outbox(destination) => self.inner.positions.of_lanes(destination),
            Scope::Inbox | Scope::NamedInbox(_) => self.inner.marks.at(&scope.to_string()),
        }
    }
}

application_methods!(SqliteStore);

#[async_trait]
impl Store for SqliteStore {
    async fn migrate(&self) -> StoreResult<MigrationOutcome> {
        migrate::migrate(self.writer(), self.scripts).await
    }

    async fn check(&self) -> StoreResult<()> {
        let path = self.path().to_owned();
        check::check(self.writer(), path, self.inner.options, self.scripts).await?;
        self.check_adopted().await
    }

    async fn changes(&self) -> StoreResult<Changes> {
        self.inner.watcher.read(check::changes).await
    }

    async fn find_work(&self, query: WorkQuery) -> StoreResult<OutboxWork> {
        let positions = Arc::clone(&self.inner.positions);
        self.inner.watcher.read(move |db| check::find_work(db, &positions, &query)).await
    }

    async fn renew_lease(&self, renewal: LeaseRenewal) -> StoreResult<i64> {
        self.writer().run(move |tx| lanes::renew(tx, &renewal)).await
    }

    async fn lease_lanes(&self, request: LaneRequest) -> StoreResult<LaneGrant> {
        self.writer().run(move |tx| lanes::lease(tx, &request)).await
    }

    async fn release_lanes(&self, fence: Fence, release: LaneRelease) -> StoreResult<()> {
        self.writer().run(move |tx| lanes::release(tx, &fence, &release)).await
    }

    async fn accept(
        &self,
        messages: Vec<NewInbox>,
        positions: Vec<SourcePosition>,
    ) -> StoreResult<Vec<AcceptOutcome>> {
        self.writer().run(move |tx| inbox::accept(tx, &messages, &positions)).await
    }

    async fn positions(&self, source: String) -> StoreResult<Vec<SourcePosition>> {
        self.readers().read(move |db| inbox::positions(db, &source)).await
    }

    async fn fetch_inbox(&self, fetch: Fetch) -> StoreResult<Vec<InboxRow>> {
        let marks = Arc::clone(&self.inner.marks);
        self.readers().read(move |db| inbox::fetch(db, &marks, &fetch)).await
    }

    async fn settle_inbox(
        &self,
        fence: Fence,
        rows: Vec<InboxSettlement>,
    ) -> StoreResult<SettleOutcome> {
        let adopted = Arc::clone(&self.inner.adopted);
        self.writer().run(move |tx| inbox::settle(tx, &adopted, &fence, &rows)).await
    }

    async fn enqueue(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<i64>> {
        self.writer().run(move |tx| transaction::enqueue(tx, &messages)).await
    }

    async fn fetch_outbox(&self, fetch: Fetch) -> StoreResult<Vec<OutboxRow>> {
        self.fetch_and_pass(fetch).await
    }

    async fn settle_outbox(
        &self,
        fence: Fence,
        rows: Vec<OutboxSettlement>,
    ) -> StoreResult<SettleOutcome> {
        let adopted = Arc::clone(&self.inner.adopted);
        self.writer().run(move |tx| outbox::settle(tx, &adopted, &fence, &rows)).await
    }

    async fn mark_rows(&self, mark: RowMark) -> StoreResult<SettleOutcome> {
        match mark {
            RowMark::LostWorker { fence, rows } => {
                self.writer().run(move |tx| quarantine::note(tx, &fence, &rows)).await
            }
            RowMark::EndQuarantine { fence, lanes } => {
                self.writer().run(move |tx| quarantine::end(tx, &fence, &lanes)).await
            }
            RowMark::ResumedProcessTypes => self.writer().run(control::wake_paused).await,
            RowMark::AdoptedTables => adopt::follow(self).await,
        }
    }

    async fn controls(&self) -> StoreResult<Vec<Control>> {
        self.inner.watcher.read(control::controls).await
    }

    async fn lease_bulk(&self, lease: BulkLease) -> StoreResult<Option<JobTakeover>> {
        self.writer().run_to_end(move |tx| bulk::lease(tx, lease)).await
    }

    async fn advance_bulk(&self, fence: JobFence, advance: Advance) -> StoreResult<bool> {
        self.writer().run(move |tx| bulk::advance(tx, &fence, &advance)).await
    }

    async fn bulk_rows(
        &self,
        job: Uuid,
        after: i64,
        limit: usize,
        payloads: Payloads,
    ) -> StoreResult<Vec<OutboxRow>> {
        self.readers().read(move |db| bulk::rows_of(db, (job, after), limit, payloads)).await
    }

    async fn settle_bulk(
        &self,
        fence: JobFence,
        rows: Vec<(i64, OutboxFate)>,
    ) -> StoreResult<SettleOutcome> {
        let adopted = Arc::clone(&self.inner.adopted);
        self.writer().run(move |tx| bulk::settle(tx, &adopted, &fence, &rows)).await
    }

    async fn load_processes(&self, wanted: Vec<ProcessRef>) -> StoreResult<Vec<Option<Process>>> {
        self.readers().read(move |db| process::load(db, &wanted)).await
    }

    async fn fire_timers(&self, owner: TimerOwner, limit: usize) -> StoreResult<FiredTimers> {
        process::fire_timers(self, owner, limit).await
    }

    async fn cleanup(&self, retention: Retention, mode: CleanupMode) -> StoreResult<CleanupCounts> {
        match mode {
            CleanupMode::Remove { rows_max } => {
                let sweep = Arc::clone(&self.inner.sweep);
                let clean = move |tx: &Transaction<'_>| {
                    let removed = cleanup::cleanup(tx, &retention, rows_max)?;
                    if removed.reached_the_end(rows_max) {
                        sweep.sweep(tx)?;
                    }
                    Ok(removed)
                };
                self.writer().run(clean).await
            }
            CleanupMode::Count => {
                self.readers().read(move |db| cleanup::count(db, &retention)).await
            }
        }
    }

    async fn report(&self, update: ReportUpdate) -> StoreResult<()> {
        self.writer().run(move |tx| control::report(tx, &update)).await
    }
}
