//! The SQLite store: one file beside the user's own tables, one writer thread, a few readers.
//!
//! Invariant: every change goes through the writer's `BEGIN IMMEDIATE ... COMMIT`; an answer leaves
//! only after the commit. Readers see what was committed and never write.
//!
//! Read in this order: [`connect`] opens and [`check`] judges a file, [`migrate`] makes the tables,
//! [`writer`] and [`reader`] run the work, [`row`] reads what comes back, and the rest is one file a
//! topic, named like the part of the seam it serves.

mod attempt;
mod bulk;
mod check;
mod cleanup;
mod connect;
mod control;
mod credential;
mod desk;
mod error;
mod handler;
mod hydrate;
mod inbox;
mod lanes;
mod mark;
mod migrate;
mod outbox;
mod people;
mod process;
mod quarantine;
mod reader;
mod repair;
mod row;
#[cfg(feature = "sqlx-sqlite")]
mod sqlx_handler;
mod transaction;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use relais_core::{
    browse::{Browse, Listed, Reach},
    dead_letter::{DeadLetter, Verdict},
    inbox::{Accepted, InboxRow, InboxSettlement, NewInbox, SourcePosition},
    lane::{Fence, LaneGrant, LaneHandOver, LaneRequest, OwnedLane, Scope},
    message::NewMessage,
    outbox::{OutboxRow, OutboxSettlement},
    query::{Cleaned, Filter, Overview, Retention, SerdeErrors},
    repair::{Mode, Repair, Repaired},
    store::{Changes, Fetch, Migrated, Settled, Store, StoreError, StoreFuture},
};
use rusqlite::Connection;
use uuid::Uuid;

use self::people::Part;
#[cfg(feature = "sqlx-sqlite")]
pub use self::sqlx_handler::{SqlxHandlerFn, SqlxStateHandlerFn, sqlx_handler, sqlx_handler_with};
pub use self::{
    connect::SqliteOptions,
    handler::{handler, handler_with},
    hydrate::SqlHydrator,
    migrate::{SCRIPTS, schema_sql},
    transaction::ENQUEUE_SQL,
};
use self::{mark::Marks, reader::Readers, writer::Writer};
use crate::Script;

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
}

impl SqliteStore {
    /// Opens the file, makes it if it is missing, and sets it up for safe writing. Neither migrates
    /// nor judges it: that is [`Store::migrate`] and [`Store::check`].
    pub async fn open(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || Self::open_blocking(path, options));
        opened.await.map_err(|stopped| StoreError::unavailable(stopped.to_string()))?
    }

    fn open_blocking(path: PathBuf, options: SqliteOptions) -> Result<Self, StoreError> {
        // SQLite says of it only that the file cannot be opened, which may also pass.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let folder = folder.display();
            let why = format!("there is no folder {folder}; create it, or correct `store.url`");
            return Err(StoreError::setup(why));
        }
        let writer = Writer::start(connect::writer(&path, &options)?)?;
        let readers = Readers::new(&path, &options, options.readers);
        let visitors = Readers::new(&path, &options, options.readers);
        let watcher = Readers::new(&path, &options, 1);
        let marks = Arc::default();
        let inner = Inner { path, options, writer, readers, visitors, watcher, marks };
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

    async fn fetch<T: Send + 'static>(
        &self,
        rows: impl FnOnce(&Connection, &Marks) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let marks = Arc::clone(&self.inner.marks);
        self.readers().read(move |db| rows(db, &marks)).await
    }

    /// Where the next fetch of a scope starts: for tests of what a fetch reads.
    #[doc(hidden)]
    pub fn mark(&self, scope: &Scope) -> i64 {
        self.inner.marks.at(&scope.to_string())
    }
}

impl Browse for SqliteStore {
    fn browse_inbox(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<InboxRow>>> {
        let list = move |db: &Connection| people::list_inbox(db, &filter, Part::Preview);
        Box::pin(self.readers().read(list))
    }

    fn browse_outbox(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<OutboxRow>>> {
        let list = move |db: &Connection| people::list_outbox(db, &filter, Part::Preview);
        Box::pin(self.readers().read(list))
    }

    fn browse_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<DeadLetter>>> {
        let list = move |db: &Connection| people::list_dead_letters(db, &filter, Part::Preview);
        Box::pin(self.readers().read(list))
    }

    fn reach_inbox(&self, filter: Filter) -> StoreFuture<'_, Reach> {
        Box::pin(self.readers().read(move |db| people::reach_inbox(db, &filter)))
    }

    fn reach_outbox(&self, filter: Filter) -> StoreFuture<'_, Reach> {
        Box::pin(self.readers().read(move |db| people::reach_outbox(db, &filter)))
    }

    fn reach_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Reach> {
        Box::pin(self.readers().read(move |db| people::reach_dead_letters(db, &filter)))
    }
}

/// Without what only lists show.
fn rows<T>(listed: Vec<Listed<T>>) -> Vec<T> {
    listed.into_iter().map(|listed| listed.row).collect()
}

impl Store for SqliteStore {
    fn describe(&self) -> StoreFuture<'_, String> {
        Box::pin(async { Ok(format!("sqlite {}", rusqlite::version())) })
    }

    fn migrate(&self) -> StoreFuture<'_, Migrated> {
        Box::pin(migrate::migrate(self.writer(), self.scripts))
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        let path = self.path().to_owned();
        Box::pin(check::check(self.writer(), path, self.inner.options, self.scripts))
    }

    fn changes(&self) -> StoreFuture<'_, Changes> {
        Box::pin(self.inner.watcher.read(people::changes))
    }

    fn lease_lanes(&self, request: LaneRequest) -> StoreFuture<'_, LaneGrant> {
        Box::pin(self.writer().run(move |tx| lanes::lease(tx, &request)))
    }

    fn release_lanes(&self, fence: Fence, lanes: Vec<i16>, leaving: bool) -> StoreFuture<'_, ()> {
        Box::pin(self.writer().run(move |tx| lanes::release(tx, &fence, &lanes, leaving)))
    }

    fn hand_over_lanes(&self, fence: Fence, lanes: Vec<LaneHandOver>) -> StoreFuture<'_, ()> {
        Box::pin(self.writer().run(move |tx| lanes::hand_over(tx, &fence, &lanes)))
    }

    fn accept(
        &self,
        messages: Vec<NewInbox>,
        positions: Vec<SourcePosition>,
    ) -> StoreFuture<'_, Vec<Accepted>> {
        Box::pin(self.writer().run(move |tx| inbox::accept(tx, &messages, &positions)))
    }

    fn positions(&self, source: String) -> StoreFuture<'_, Vec<SourcePosition>> {
        Box::pin(self.readers().read(move |db| inbox::positions(db, &source)))
    }

    fn fetch_inbox(&self, fetch: Fetch) -> StoreFuture<'_, Vec<InboxRow>> {
        Box::pin(self.fetch(move |db, marks| inbox::fetch(db, marks, &fetch)))
    }

    fn settle_inbox(&self, fence: Fence, rows: Vec<InboxSettlement>) -> StoreFuture<'_, Settled> {
        Box::pin(self.writer().run(move |tx| inbox::settle(tx, &fence, &rows)))
    }

    fn once(&self, handler: String, message_id: String) -> StoreFuture<'_, bool> {
        Box::pin(self.writer().run(move |tx| transaction::once(tx, &handler, &message_id)))
    }

    fn enqueue(&self, messages: Vec<NewMessage>) -> StoreFuture<'_, Vec<i64>> {
        Box::pin(self.writer().run(move |tx| transaction::enqueue(tx, &messages)))
    }

    fn fetch_outbox(&self, fetch: Fetch) -> StoreFuture<'_, Vec<OutboxRow>> {
        Box::pin(self.fetch(move |db, marks| outbox::fetch(db, marks, &fetch)))
    }

    fn settle_outbox(&self, fence: Fence, rows: Vec<OutboxSettlement>) -> StoreFuture<'_, Settled> {
        Box::pin(self.writer().run(move |tx| outbox::settle(tx, &fence, &rows)))
    }

    fn note_loss(&self, fence: Fence, rows: Vec<(i64, OwnedLane)>) -> StoreFuture<'_, Settled> {
        Box::pin(self.writer().run(move |tx| quarantine::note(tx, &fence, &rows)))
    }

    fn end_quarantine(&self, fence: Fence, lanes: Vec<OwnedLane>) -> StoreFuture<'_, u64> {
        Box::pin(self.writer().run(move |tx| quarantine::end(tx, &fence, &lanes)))
    }

    fn overview(&self) -> StoreFuture<'_, Overview> {
        Box::pin(self.readers().read(people::overview))
    }

    fn list_inbox(&self, filter: Filter) -> StoreFuture<'_, Vec<InboxRow>> {
        Box::pin(
            self.readers().read(move |db| Ok(rows(people::list_inbox(db, &filter, Part::Whole)?))),
        )
    }

    fn list_outbox(&self, filter: Filter) -> StoreFuture<'_, Vec<OutboxRow>> {
        Box::pin(
            self.readers().read(move |db| Ok(rows(people::list_outbox(db, &filter, Part::Whole)?))),
        )
    }

    fn list_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Vec<DeadLetter>> {
        Box::pin(
            self.readers()
                .read(move |db| Ok(rows(people::list_dead_letters(db, &filter, Part::Whole)?))),
        )
    }

    fn find_inbox(&self, id: String) -> StoreFuture<'_, Option<InboxRow>> {
        Box::pin(self.readers().read(move |db| people::find_inbox(db, &id)))
    }

    fn find_outbox(&self, id: String) -> StoreFuture<'_, Option<OutboxRow>> {
        Box::pin(self.readers().read(move |db| people::find_outbox(db, &id)))
    }

    fn find_dead_letter(&self, id: Uuid) -> StoreFuture<'_, Option<DeadLetter>> {
        Box::pin(self.readers().read(move |db| people::find_dead_letter(db, id)))
    }

    fn resolve(&self, dead_letter: Uuid, verdict: Verdict) -> StoreFuture<'_, bool> {
        Box::pin(self.writer().run(move |tx| people::resolve(tx, dead_letter, &verdict)))
    }

    fn serde_errors(&self, wanted: SerdeErrors) -> StoreFuture<'_, Vec<i64>> {
        Box::pin(self.readers().read(move |db| repair::serde_errors(db, &wanted)))
    }

    fn repair(&self, id: i64, repair: Repair, mode: Mode) -> StoreFuture<'_, Repaired> {
        Box::pin(self.writer().run(move |tx| repair::repair(tx, id, &repair, mode)))
    }

    fn cleanup(&self, retention: Retention, rows_max: usize) -> StoreFuture<'_, Cleaned> {
        Box::pin(self.writer().run(move |tx| cleanup::cleanup(tx, &retention, rows_max)))
    }

    fn expired(&self, retention: Retention) -> StoreFuture<'_, Cleaned> {
        Box::pin(self.readers().read(move |db| cleanup::expired(db, &retention)))
    }
}
