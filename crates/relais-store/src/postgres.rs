//! PostgreSQL 13 or newer, over tokio-postgres and a pool.
//!
//! Invariant: each method is one transaction, run in a task of its own: a caller that goes away
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
mod desk;
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
mod mark;

mod accept;
mod bulk;
mod control;
mod credential;
mod enqueue;
mod exact;
mod hydrate;
mod inbox;
mod outbox;

mod cleanup;
mod people;
mod process;
mod quarantine;
mod repair;
mod resolve;

mod handler;
#[cfg(feature = "sqlx-postgres")]
mod sqlx_handler;
mod transaction;

use std::{fmt, sync::Arc};

use deadpool_postgres::Pool;
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
use uuid::Uuid;

#[cfg(feature = "sqlx-postgres")]
pub use self::sqlx_handler::{SqlxHandlerFn, SqlxStateHandlerFn, sqlx_handler, sqlx_handler_with};
use self::{
    accept::Caution, check::Durability, cleanup::Places, connect::Connected, mark::Marks,
    people::Part, pools::Pools, session::Sessions,
};
pub use self::{
    connect::{PostgresOptions, addresses},
    enqueue::ENQUEUE_SQL,
    handler::{HandlerFn, StateHandlerFn, handler, handler_with},
    hydrate::SqlHydrator,
    migrate::{SCRIPTS, schema_sql},
    roles::roles_sql,
};
use crate::Script;

/// A store in a PostgreSQL database. Cheap to clone.
#[derive(Clone)]
pub struct PostgresStore {
    pools: Arc<Pools>,
    shared: Arc<Shared>,
    scripts: &'static [Script],
}

/// What the methods remember between calls; all of it can be lost without harm.
struct Shared {
    durability: Durability,
    marks: Arc<Marks>,
    sessions: Arc<Sessions>,
    /// What an operator should know of the connection.
    warnings: Vec<String>,
    caution: Caution,
    places: Places,
}

impl PostgresStore {
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

    fn new(connected: Connected, options: &PostgresOptions, marks: Arc<Marks>) -> Self {
        let durability =
            if options.unsafe_durability { Durability::Waived } else { Durability::Required };
        let (caution, places) = Default::default();
        let Connected { pools, sessions, warnings } = connected;
        let shared = Shared { durability, marks, sessions, warnings, caution, places };
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

impl Browse for PostgresStore {
    fn browse_inbox(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<InboxRow>>> {
        self.run_other(filter, |client, _, filter| {
            Box::pin(people::list_inbox(client, filter, Part::Preview))
        })
    }

    fn browse_outbox(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<OutboxRow>>> {
        self.run_other(filter, |client, _, filter| {
            Box::pin(people::list_outbox(client, filter, Part::Preview))
        })
    }

    fn browse_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<DeadLetter>>> {
        self.run_other(filter, |client, _, filter| {
            Box::pin(people::list_dead_letters(client, filter, Part::Preview))
        })
    }

    fn reach_inbox(&self, filter: Filter) -> StoreFuture<'_, Reach> {
        self.run_other(filter, |client, _, filter| Box::pin(people::reach_inbox(client, filter)))
    }

    fn reach_outbox(&self, filter: Filter) -> StoreFuture<'_, Reach> {
        self.run_other(filter, |client, _, filter| Box::pin(people::reach_outbox(client, filter)))
    }

    fn reach_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Reach> {
        self.run_other(filter, |client, _, filter| {
            Box::pin(people::reach_dead_letters(client, filter))
        })
    }
}

/// Without what only lists show.
fn rows<T>(listed: Vec<Listed<T>>) -> Vec<T> {
    listed.into_iter().map(|listed| listed.row).collect()
}

impl Store for PostgresStore {
    fn describe(&self) -> StoreFuture<'_, String> {
        self.run_other((), |client, _, ()| Box::pin(check::describe(client)))
    }

    fn warnings(&self) -> Vec<String> {
        self.shared.warnings.clone()
    }

    fn migrate(&self) -> StoreFuture<'_, Migrated> {
        self.run_other(self.scripts, |client, _, scripts| {
            Box::pin(migrate::migrate(client, scripts))
        })
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        self.run_other(self.scripts, |client, shared, scripts| {
            Box::pin(check::check(client, shared.durability, scripts))
        })
    }

    fn changes(&self) -> StoreFuture<'_, Changes> {
        self.run_lease((), |client, _, ()| Box::pin(check::changes(client)))
    }

    fn lease_lanes(&self, request: LaneRequest) -> StoreFuture<'_, LaneGrant> {
        self.run_lease(request, |client, _, request| Box::pin(lanes::lease(client, request)))
    }

    fn release_lanes(&self, fence: Fence, lanes: Vec<i16>, leaving: bool) -> StoreFuture<'_, ()> {
        self.run_lease((fence, lanes), move |client, _, (fence, lanes)| {
            if leaving {
                Box::pin(lanes::leave(client, fence))
            } else {
                Box::pin(lanes::release(client, fence, lanes))
            }
        })
    }

    fn hand_over_lanes(&self, fence: Fence, lanes: Vec<LaneHandOver>) -> StoreFuture<'_, ()> {
        self.run((fence, lanes), |client, _, (fence, lanes)| {
            Box::pin(lanes::hand_over(client, fence, lanes))
        })
    }

    fn accept(
        &self,
        messages: Vec<NewInbox>,
        positions: Vec<SourcePosition>,
    ) -> StoreFuture<'_, Vec<Accepted>> {
        self.run((messages, positions), |client, shared, (messages, positions)| {
            Box::pin(accept::accept(client, &shared.caution, messages, positions))
        })
    }

    fn positions(&self, source: String) -> StoreFuture<'_, Vec<SourcePosition>> {
        self.run(source, |client, _, source| Box::pin(accept::positions(client, source)))
    }

    fn fetch_inbox(&self, fetch: Fetch) -> StoreFuture<'_, Vec<InboxRow>> {
        self.run(fetch, |client, shared, fetch| {
            Box::pin(inbox::fetch(client, &shared.marks, fetch))
        })
    }

    fn settle_inbox(&self, fence: Fence, rows: Vec<InboxSettlement>) -> StoreFuture<'_, Settled> {
        self.run((fence, rows), |client, _, (fence, rows)| {
            Box::pin(inbox::settle(client, fence, rows))
        })
    }

    fn once(&self, handler: String, message_id: String) -> StoreFuture<'_, bool> {
        self.run((handler, message_id), |client, _, (handler, message_id)| {
            Box::pin(inbox::once(client, handler, message_id))
        })
    }

    fn enqueue(&self, messages: Vec<NewMessage>) -> StoreFuture<'_, Vec<i64>> {
        self.run(messages, |client, _, messages| Box::pin(outbox::write(client, messages)))
    }

    fn fetch_outbox(&self, fetch: Fetch) -> StoreFuture<'_, Vec<OutboxRow>> {
        self.run(fetch, |client, shared, fetch| {
            Box::pin(outbox::fetch(client, &shared.marks, fetch))
        })
    }

    fn settle_outbox(&self, fence: Fence, rows: Vec<OutboxSettlement>) -> StoreFuture<'_, Settled> {
        self.run((fence, rows), |client, _, (fence, rows)| {
            Box::pin(outbox::settle(client, fence, rows))
        })
    }

    fn note_loss(&self, fence: Fence, rows: Vec<(i64, OwnedLane)>) -> StoreFuture<'_, Settled> {
        self.run((fence, rows), |client, _, (fence, rows)| match fence.scope {
            Scope::Inbox | Scope::NamedInbox(_) => {
                Box::pin(quarantine::note_inbox(client, fence, rows))
            }
            Scope::Outbox(_) => Box::pin(quarantine::note_outbox(client, fence, rows)),
        })
    }

    fn end_quarantine(&self, fence: Fence, lanes: Vec<OwnedLane>) -> StoreFuture<'_, u64> {
        self.run((fence, lanes), |client, _, (fence, lanes)| {
            Box::pin(quarantine::end(client, fence, lanes))
        })
    }

    fn overview(&self) -> StoreFuture<'_, Overview> {
        self.run_other((), |client, _, ()| Box::pin(people::overview(client)))
    }

    fn list_inbox(&self, filter: Filter) -> StoreFuture<'_, Vec<InboxRow>> {
        self.run_other(filter, |client, _, filter| {
            Box::pin(async { Ok(rows(people::list_inbox(client, filter, Part::Whole).await?)) })
        })
    }

    fn list_outbox(&self, filter: Filter) -> StoreFuture<'_, Vec<OutboxRow>> {
        self.run_other(filter, |client, _, filter| {
            Box::pin(async { Ok(rows(people::list_outbox(client, filter, Part::Whole).await?)) })
        })
    }

    fn list_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Vec<DeadLetter>> {
        self.run_other(filter, |client, _, filter| {
            Box::pin(async {
                Ok(rows(people::list_dead_letters(client, filter, Part::Whole).await?))
            })
        })
    }

    fn find_inbox(&self, id: String) -> StoreFuture<'_, Option<InboxRow>> {
        self.run_other(id, |client, _, id| Box::pin(people::find_inbox(client, id)))
    }

    fn find_outbox(&self, id: String) -> StoreFuture<'_, Option<OutboxRow>> {
        self.run_other(id, |client, _, id| Box::pin(people::find_outbox(client, id)))
    }

    fn find_dead_letter(&self, id: Uuid) -> StoreFuture<'_, Option<DeadLetter>> {
        self.run_other(id, |client, _, id| Box::pin(people::find_dead_letter(client, *id)))
    }

    fn resolve(&self, dead_letter: Uuid, verdict: Verdict) -> StoreFuture<'_, bool> {
        self.run_other((dead_letter, verdict), |client, _, (id, verdict)| {
            Box::pin(resolve::resolve(client, *id, verdict))
        })
    }

    fn serde_errors(&self, wanted: SerdeErrors) -> StoreFuture<'_, Vec<i64>> {
        self.run_other(wanted, |client, _, wanted| Box::pin(repair::serde_errors(client, wanted)))
    }

    fn repair(&self, id: i64, repair: Repair, mode: Mode) -> StoreFuture<'_, Repaired> {
        self.run_other(repair, move |client, _, repair| {
            Box::pin(repair::repair(client, id, repair, mode))
        })
    }

    fn cleanup(&self, retention: Retention, rows_max: usize) -> StoreFuture<'_, Cleaned> {
        self.run_other((retention, rows_max), |client, shared, (retention, rows_max)| {
            Box::pin(cleanup::cleanup(client, &shared.places, retention, *rows_max))
        })
    }

    fn expired(&self, retention: Retention) -> StoreFuture<'_, Cleaned> {
        self.run_other(retention, |client, _, retention| {
            Box::pin(cleanup::expired(client, retention))
        })
    }
}
