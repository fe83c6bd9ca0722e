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
mod roles;
mod row;

mod fence;
mod lanes;
mod mark;

mod accept;
mod bulk;
mod enqueue;
mod exact;
mod hydrate;
mod inbox;
mod outbox;

mod cleanup;
mod people;
mod process;
mod repair;
mod resolve;

mod handler;
#[cfg(feature = "sqlx-postgres")]
mod sqlx_handler;
mod transaction;

use std::{fmt, sync::Arc};

use deadpool_postgres::{Client, Pool};
use relais_core::{
    BoxFuture,
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
pub use self::sqlx_handler::{SqlxHandlerFn, sqlx_handler};
use self::{
    accept::Caution, check::Durability, cleanup::Places, error::Failure, mark::Marks, people::Part,
};
pub use self::{
    connect::PostgresOptions,
    enqueue::ENQUEUE_SQL,
    handler::{HandlerFn, handler},
    hydrate::SqlHydrator,
    migrate::{SCRIPTS, schema_sql},
    roles::roles_sql,
};
use crate::Script;

/// How often a transaction is run when others make it fail.
const TRIES_MAX: usize = 5;

/// A store in a PostgreSQL database. Cheap to clone.
#[derive(Clone)]
pub struct PostgresStore {
    pool: Pool,
    shared: Arc<Shared>,
    scripts: &'static [Script],
}

/// What the methods remember between calls; all of it can be lost without harm.
struct Shared {
    durability: Durability,
    marks: Marks,
    caution: Caution,
    places: Places,
}

impl PostgresStore {
    /// Connects to `postgres://user:password@host:port/database?sslmode=…`. Does not migrate.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let pool = connect::connect(url, options).await?;
        let durability =
            if options.unsafe_durability { Durability::Waived } else { Durability::Required };
        let (marks, caution, places) = Default::default();
        let shared = Shared { durability, marks, caution, places };
        Ok(Self { pool, shared: Arc::new(shared), scripts: SCRIPTS })
    }

    /// As a program of another version, which knows other scripts: for tests of upgrades.
    #[doc(hidden)]
    pub fn knowing(self, scripts: &'static [Script]) -> Self {
        Self { scripts, ..self }
    }

    /// The pool, for [`handler`] and the user's own transactions in the same database.
    pub fn pool(&self) -> Pool {
        self.pool.clone()
    }

    /// Runs one transaction, in a task that goes on when the caller does not.
    fn run<A, T, F>(&self, arguments: A, transaction: F) -> StoreFuture<'_, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'a> Fn(&'a mut Client, &'a Shared, &'a A) -> BoxFuture<'a, Result<T, Failure>>,
        F: Send + Sync + 'static,
    {
        let store = self.clone();
        Box::pin(async move {
            let task = tokio::spawn(async move { store.repeat(&arguments, &transaction).await });
            task.await.unwrap_or_else(|error| {
                Err(StoreError::Unavailable(format!("database task ended early: {error}")))
            })
        })
    }

    async fn repeat<A, T, F>(&self, arguments: &A, transaction: &F) -> Result<T, StoreError>
    where
        F: for<'a> Fn(&'a mut Client, &'a Shared, &'a A) -> BoxFuture<'a, Result<T, Failure>>,
    {
        let mut client =
            self.pool.get().await.map_err(|error| Failure::from(error).into_store())?;
        let mut tries = 1;
        loop {
            match transaction(&mut client, &self.shared, arguments).await {
                Err(Failure::Again(_)) if tries < TRIES_MAX => {
                    // Plans from before a migration fail for as long as the session keeps them.
                    client.statement_cache.clear();
                    tries += 1;
                }
                Err(Failure::Final(error @ StoreError::Unavailable(_))) => {
                    // Perhaps ended by the server, and not noticed by the pool yet: not used again.
                    drop(Client::take(client));
                    return Err(error);
                }
                result => return result.map_err(Failure::into_store),
            }
        }
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
        self.run(filter, |client, _, filter| {
            Box::pin(people::list_inbox(client, filter, Part::Preview))
        })
    }

    fn browse_outbox(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<OutboxRow>>> {
        self.run(filter, |client, _, filter| {
            Box::pin(people::list_outbox(client, filter, Part::Preview))
        })
    }

    fn browse_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Vec<Listed<DeadLetter>>> {
        self.run(filter, |client, _, filter| {
            Box::pin(people::list_dead_letters(client, filter, Part::Preview))
        })
    }

    fn reach_inbox(&self, filter: Filter) -> StoreFuture<'_, Reach> {
        self.run(filter, |client, _, filter| Box::pin(people::reach_inbox(client, filter)))
    }

    fn reach_outbox(&self, filter: Filter) -> StoreFuture<'_, Reach> {
        self.run(filter, |client, _, filter| Box::pin(people::reach_outbox(client, filter)))
    }

    fn reach_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Reach> {
        self.run(filter, |client, _, filter| Box::pin(people::reach_dead_letters(client, filter)))
    }
}

/// Without what only lists show.
fn rows<T>(listed: Vec<Listed<T>>) -> Vec<T> {
    listed.into_iter().map(|listed| listed.row).collect()
}

impl Store for PostgresStore {
    fn describe(&self) -> StoreFuture<'_, String> {
        self.run((), |client, _, ()| Box::pin(check::describe(client)))
    }

    fn migrate(&self) -> StoreFuture<'_, Migrated> {
        self.run(self.scripts, |client, _, scripts| Box::pin(migrate::migrate(client, scripts)))
    }

    fn check(&self) -> StoreFuture<'_, ()> {
        self.run(self.scripts, |client, shared, scripts| {
            Box::pin(check::check(client, shared.durability, scripts))
        })
    }

    fn changes(&self) -> StoreFuture<'_, Changes> {
        self.run((), |client, _, ()| Box::pin(check::changes(client)))
    }

    fn lease_lanes(&self, request: LaneRequest) -> StoreFuture<'_, LaneGrant> {
        self.run(request, |client, _, request| Box::pin(lanes::lease(client, request)))
    }

    fn release_lanes(&self, fence: Fence, lanes: Vec<i16>, leaving: bool) -> StoreFuture<'_, ()> {
        self.run((fence, lanes), move |client, _, (fence, lanes)| {
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

    fn once(&self, message_id: String, handler: String) -> StoreFuture<'_, bool> {
        self.run((message_id, handler), |client, _, (message_id, handler)| {
            Box::pin(inbox::once(client, message_id, handler))
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

    fn count_attempt(&self, fence: Fence, rows: Vec<(i64, OwnedLane)>) -> StoreFuture<'_, Settled> {
        self.run((fence, rows), |client, _, (fence, rows)| match fence.scope {
            Scope::Inbox | Scope::NamedInbox(_) => {
                Box::pin(inbox::count_attempt(client, fence, rows))
            }
            Scope::Outbox(_) => Box::pin(outbox::count_attempt(client, fence, rows)),
        })
    }

    fn overview(&self) -> StoreFuture<'_, Overview> {
        self.run((), |client, _, ()| Box::pin(people::overview(client)))
    }

    fn list_inbox(&self, filter: Filter) -> StoreFuture<'_, Vec<InboxRow>> {
        self.run(filter, |client, _, filter| {
            Box::pin(async { Ok(rows(people::list_inbox(client, filter, Part::Whole).await?)) })
        })
    }

    fn list_outbox(&self, filter: Filter) -> StoreFuture<'_, Vec<OutboxRow>> {
        self.run(filter, |client, _, filter| {
            Box::pin(async { Ok(rows(people::list_outbox(client, filter, Part::Whole).await?)) })
        })
    }

    fn list_dead_letters(&self, filter: Filter) -> StoreFuture<'_, Vec<DeadLetter>> {
        self.run(filter, |client, _, filter| {
            Box::pin(async {
                Ok(rows(people::list_dead_letters(client, filter, Part::Whole).await?))
            })
        })
    }

    fn find_inbox(&self, id: String) -> StoreFuture<'_, Option<InboxRow>> {
        self.run(id, |client, _, id| Box::pin(people::find_inbox(client, id)))
    }

    fn find_outbox(&self, id: String) -> StoreFuture<'_, Option<OutboxRow>> {
        self.run(id, |client, _, id| Box::pin(people::find_outbox(client, id)))
    }

    fn find_dead_letter(&self, id: Uuid) -> StoreFuture<'_, Option<DeadLetter>> {
        self.run(id, |client, _, id| Box::pin(people::find_dead_letter(client, *id)))
    }

    fn resolve(&self, dead_letter: Uuid, verdict: Verdict) -> StoreFuture<'_, bool> {
        self.run((dead_letter, verdict), |client, _, (id, verdict)| {
            Box::pin(resolve::resolve(client, *id, verdict))
        })
    }

    fn serde_errors(&self, wanted: SerdeErrors) -> StoreFuture<'_, Vec<i64>> {
        self.run(wanted, |client, _, wanted| Box::pin(repair::serde_errors(client, wanted)))
    }

    fn repair(&self, id: i64, repair: Repair, mode: Mode) -> StoreFuture<'_, Repaired> {
        self.run(repair, move |client, _, repair| {
            Box::pin(repair::repair(client, id, repair, mode))
        })
    }

    fn cleanup(&self, retention: Retention, rows_max: usize) -> StoreFuture<'_, Cleaned> {
        self.run((retention, rows_max), |client, shared, (retention, rows_max)| {
            Box::pin(cleanup::cleanup(client, &shared.places, retention, *rows_max))
        })
    }

    fn expired(&self, retention: Retention) -> StoreFuture<'_, Cleaned> {
        self.run(retention, |client, _, retention| Box::pin(cleanup::expired(client, retention)))
    }
}
