//! PostgreSQL 13 or newer, over tokio-postgres and a pool.
//!
//! Invariant: each method is one transaction, run in a task of its own: a caller that is dropped
//! leaves nothing half done. A transaction that fails because of others is run again as a whole, a
//! bounded number of times; one whose commit got no answer is not.

/// The statement in `sql/<name>.sql`.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/sql/", $name, ".sql"))
    };
}
mod check;
mod connect;
mod error;
mod migrate;
mod pools;
mod roles;
mod row;
mod run;
mod session;
mod tls;
mod words;

mod fence;
mod lanes;
mod low_water_mark;

mod accept;
mod adopt;
mod bulk;
mod connection_key;
mod control;
mod credential;
mod enqueue;
mod exact_json;
mod hydrate;
mod inbox;
mod outbox;
mod prepared;

mod cleanup;
mod dead_letters;
mod inspect;
mod process;
mod quarantine;
mod repair;

mod handler;
#[cfg(feature = "sqlx-postgres")]
mod sqlx_handler;
mod transaction;

use std::{fmt, sync::Arc};

use deadpool_postgres::Pool;
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
use uuid::Uuid;

#[cfg(feature = "sqlx-postgres")]
pub use self::sqlx_handler::{sqlx_handler, sqlx_handler_with};
use self::{
    accept::DuplicateHint, adopt::PostgresAdoptions, check::Durability, cleanup::Places,
    connect::StoreConnections, low_water_mark::Marks, pools::Pools, session::Sessions,
};
pub use self::{
    connect::{PostgresOptions, addresses, check_url},
    enqueue::ENQUEUE_SQL,
    handler::{HandlerFn, StateHandlerFn, handler, handler_with},
    hydrate::SqlHydrator,
    migrate::{SCRIPTS, schema_sql},
    roles::roles_sql,
};
use crate::Script;
#[cfg(feature = "sqlx-postgres")]
pub use crate::sqlx_function::{SqlxHandlerFn, SqlxStateHandlerFn};

/// A store in a PostgreSQL database. Cheap to clone.
#[derive(Clone)]
pub struct PostgresStore {
    pools: Arc<Pools>,
    shared: Arc<StoreState>,
    scripts: &'static [Script],
}

/// State that the methods keep between calls; all of it can be lost without harm.
struct StoreState {
    durability: Durability,
    marks: Arc<Marks>,
    sessions: Arc<Sessions>,
    /// Remarks about the connection for an operator.
    warnings: Vec<String>,
    duplicates: DuplicateHint,
    places: Places,
    adopted: PostgresAdoptions,
}

impl PostgresStore {
    /// Returns `true` the first time for this handler and message, in a transaction of its own. In your own
    /// transaction use [`Transaction::once`](crate::Transaction::once).
    pub async fn once(&self, handler: String, message_id: String) -> Result<bool, StoreError> {
        self.engine()
            .run((handler, message_id), |client, _, (handler, message_id)| {
                Box::pin(inbox::once(client, handler, message_id))
            })
            .await
    }

    /// Connects to `postgres://user:password@host:port/database?sslmode=…`, in libpq's words. Does not
    /// migrate.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let marks = Arc::new(Marks::default());
        let connected = connect::by_url(url, &options, &marks).await?;
        Ok(Self::new(connected, &options, marks))
    }

    /// Connects by the driver's own configuration, whose `ssl_mode` is not used: with a TLS configuration
    /// the connections are encrypted, without one they are not. Does not migrate.
    pub async fn from_config(
        config: tokio_postgres::Config,
        tls: Option<rustls::ClientConfig>,
        options: PostgresOptions,
    ) -> Result<Self, StoreError> {
        let marks = Arc::new(Marks::default());
        let connected = connect::by_config(config, tls, &options, &marks).await?;
        Ok(Self::new(connected, &options, marks))
    }

    /// Uses a pool of your own, of at least 4 connections. relais keeps two of them (six of 14 and more) for
    /// leases, heartbeats, accepting, fetching and settling, so that your own code cannot take the last
    /// ones. It sets nothing in a session that outlives its transaction. `connections_max` is that of the
    /// pool. Does not migrate.
    pub async fn from_pool(pool: Pool, options: PostgresOptions) -> Result<Self, StoreError> {
        let connected = connect::by_pool(pool, &options).await?;
        Ok(Self::new(connected, &options, Arc::default()))
    }

    fn new(connected: StoreConnections, options: &PostgresOptions, marks: Arc<Marks>) -> Self {
        let durability =
            if options.unsafe_durability { Durability::Waived } else { Durability::Required };
        let (duplicates, places, adopted) = Default::default();
        let StoreConnections { pools, sessions, warnings } = connected;
        let shared =
            StoreState { durability, marks, sessions, warnings, duplicates, places, adopted };
        Self { pools: Arc::new(pools), shared: Arc::new(shared), scripts: SCRIPTS }
    }

    /// As a program of another version, which knows other scripts: for tests of upgrades.
    #[doc(hidden)]
    pub fn knowing(self, scripts: &'static [Script]) -> Self {
        Self { scripts, ..self }
    }

    /// The low-water mark of a scope: for tests of what a fetch reads.
    #[doc(hidden)]
    pub fn mark(&self, scope: &Scope) -> i64 {
        self.shared.marks.at(&scope.to_string())
    }

    /// The pool, for [`handler`] and the user's own transactions in the same database.
    pub fn pool(&self) -> Pool {
        self.pools.handlers.clone()
    }
}

impl fmt::Debug for PostgresStore {
    /// Without the address: it may carry a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

application_methods!(PostgresStore);

#[async_trait]
impl Store for PostgresStore {
    async fn migrate(&self) -> StoreResult<MigrationOutcome> {
        self.others()
            .run(self.scripts, |client, _, scripts| Box::pin(migrate::migrate(client, scripts)))
            .await
    }

    async fn check(&self) -> StoreResult<()> {
        self.others()
            .run(self.scripts, |client, shared, scripts| {
                Box::pin(async {
                    check::check(client, shared.durability, scripts).await?;
                    adopt::check(&shared.adopted, client).await
                })
            })
            .await
    }

    async fn changes(&self) -> StoreResult<Changes> {
        self.leases().run((), |client, _, ()| Box::pin(check::changes(client))).await
    }

    async fn find_work(&self, query: WorkQuery) -> StoreResult<OutboxWork> {
        let marks = self.shared.marks.for_search(&query.destinations);
        self.leases()
            .run((query, marks), |client, _, (query, marks)| {
                Box::pin(check::find_work(client, query, marks))
            })
            .await
    }

    async fn renew_lease(&self, renewal: LeaseRenewal) -> StoreResult<i64> {
        self.leases()
            .run(renewal, |client, _, renewal| Box::pin(lanes::renew(client, renewal)))
            .await
    }

    async fn lease_lanes(&self, request: LaneRequest) -> StoreResult<LaneGrant> {
        self.leases()
            .run(request, |client, _, request| Box::pin(lanes::lease(client, request)))
            .await
    }

    async fn release_lanes(&self, fence: Fence, release: LaneRelease) -> StoreResult<()> {
        self.leases()
            .run((fence, release), |client, _, (fence, release)| {
                Box::pin(lanes::release(client, fence, release))
            })
            .await
    }

    async fn accept(
        &self,
        messages: Vec<NewInbox>,
        positions: Vec<SourcePosition>,
    ) -> StoreResult<Vec<AcceptOutcome>> {
        self.engine()
            .run((messages, positions), |client, shared, (messages, positions)| {
                Box::pin(accept::accept(client, &shared.duplicates, messages, positions))
            })
            .await
    }

    async fn positions(&self, source: String) -> StoreResult<Vec<SourcePosition>> {
        self.engine()
            .run(source, |client, _, source| Box::pin(accept::positions(client, source)))
            .await
    }

    async fn fetch_inbox(&self, fetch: Fetch) -> StoreResult<Vec<InboxRow>> {
        self.engine()
            .run(fetch, |client, shared, fetch| {
                Box::pin(inbox::fetch(client, &shared.marks, fetch))
            })
            .await
    }

    async fn settle_inbox(
        &self,
        fence: Fence,
        rows: Vec<InboxSettlement>,
    ) -> StoreResult<SettleOutcome> {
        self.engine()
            .run((fence, rows), |client, shared, (fence, rows)| {
                Box::pin(inbox::settle(client, &shared.adopted, fence, rows))
            })
            .await
    }

    async fn enqueue(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<i64>> {
        self.engine()
            .run(messages, |client, _, messages| Box::pin(outbox::write(client, messages)))
            .await
    }

    async fn fetch_outbox(&self, fetch: Fetch) -> StoreResult<Vec<OutboxRow>> {
        self.engine()
            .run(fetch, |client, shared, fetch| {
                Box::pin(outbox::fetch(client, &shared.marks, fetch))
            })
            .await
    }

    async fn settle_outbox(
        &self,
        fence: Fence,
        rows: Vec<OutboxSettlement>,
    ) -> StoreResult<SettleOutcome> {
        self.engine()
            .run((fence, rows), |client, shared, (fence, rows)| {
                Box::pin(outbox::settle(client, shared, fence, rows))
            })
            .await
    }

    async fn mark_rows(&self, mark: RowMark) -> StoreResult<SettleOutcome> {
        // Tables of the application may be slow or locked, so they get no connection of the engine.
        let pool = match mark {
            RowMark::AdoptedTables => self.others(),
            _ => self.engine(),
        };
        pool.run(mark, |client, shared, mark| match mark {
            RowMark::LostWorker { fence, rows } => {
                Box::pin(quarantine::note_loss(client, fence, rows))
            }
            RowMark::EndQuarantine { fence, lanes } => {
                Box::pin(quarantine::end(client, fence, lanes))
            }
            RowMark::ResumedProcessTypes => Box::pin(control::wake_paused(client)),
            RowMark::AdoptedTables => Box::pin(adopt::follow(client, shared)),
        })
        .await
    }

    async fn controls(&self) -> StoreResult<Vec<Control>> {
        self.leases().run((), |client, _, ()| Box::pin(control::controls(client))).await
    }

    async fn lease_bulk(&self, lease: BulkLease) -> StoreResult<Option<JobTakeover>> {
        if matches!(lease, BulkLease::Plan { .. }) {
            return self
                .engine()
                .run(lease, |client, _, lease| Box::pin(bulk::lease(client, lease)))
                .await;
        }
        self.leases().run(lease, |client, _, lease| Box::pin(bulk::lease(client, lease))).await
    }

    async fn advance_bulk(&self, fence: JobFence, advance: Advance) -> StoreResult<bool> {
        self.engine()
            .run((fence, advance), |client, _, (fence, step)| {
                Box::pin(bulk::advance(client, fence, step))
            })
            .await
    }

    async fn bulk_rows(
        &self,
        job: Uuid,
        after: i64,
        limit: usize,
        payloads: Payloads,
    ) -> StoreResult<Vec<OutboxRow>> {
        self.engine()
            .run((job, after, limit, payloads), |client, _, (job, after, limit, payloads)| {
                Box::pin(bulk::rows_of(client, (*job, *after), *limit, *payloads))
            })
            .await
    }

    async fn settle_bulk(
        &self,
        fence: JobFence,
        rows: Vec<(i64, OutboxFate)>,
    ) -> StoreResult<SettleOutcome> {
        self.engine()
            .run((fence, rows), |client, shared, (fence, rows)| {
                Box::pin(bulk::settle(client, &shared.adopted, fence, rows))
            })
            .await
    }

    async fn load_processes(&self, wanted: Vec<ProcessRef>) -> StoreResult<Vec<Option<Process>>> {
        self.engine().run(wanted, |client, _, wanted| Box::pin(process::load(client, wanted))).await
    }

    async fn fire_timers(&self, owner: TimerOwner, limit: usize) -> StoreResult<FiredTimers> {
        self.engine()
            .run((owner, limit), |client, _, (owner, limit)| {
                Box::pin(process::fire_timers(client, owner, *limit))
            })
            .await
    }

    async fn cleanup(&self, retention: Retention, mode: CleanupMode) -> StoreResult<CleanupCounts> {
        self.others()
            .run((retention, mode), |client, shared, (retention, mode)| {
                Box::pin(cleanup::cleanup(client, &shared.places, retention, *mode))
            })
            .await
    }

    async fn report(&self, update: ReportUpdate) -> StoreResult<()> {
        self.leases()
            .run(update, |client, _, update| Box::pin(control::report(client, update)))
            .await
    }
}
