//! Handlers whose transaction is sqlx's. Invariant as in [`super::handler`].

use std::{
    marker::PhantomData,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use relais_core::{
    async_trait,
    handler::{HandleOutcome, Handler, HandlerWork, IntoOutcome, Outcome, Received, panicked},
    inbox::InboxRow,
    store::StoreError,
};
use serde::de::DeserializeOwned;
use sqlx::{Sqlite, SqliteConnection, SqlitePool, Transaction, query};

use super::{
    error,
    handler::{not_committed, transaction_lost},
    row::millis,
    writer::{EXTEND_LEASES, HEARTBEAT_DELAY_MAX},
};
use crate::{
    sqlx_function::{SqlxHandlerFn, SqlxStateHandlerFn},
    with_state::WithState,
};

/// Runs `function` with a state, as [`sqlx_handler`] does. The state may be an `Arc` that other handlers
/// share.
pub fn sqlx_handler_with<M, S, F>(
    pool: SqlitePool,
    state: impl Into<Arc<S>>,
    function: F,
) -> Arc<dyn Handler>
where
    M: DeserializeOwned + Send + 'static,
    S: Send + Sync + 'static,
    F: for<'a> SqlxStateHandlerFn<'a, SqliteConnection, S, M> + 'static,
{
    sqlx_handler(pool, WithState { state: state.into(), function })
}

/// Runs `function` in a transaction of the user's own pool, which must be on the store's file.
pub fn sqlx_handler<M, F>(pool: SqlitePool, function: F) -> Arc<dyn Handler>
where
    M: DeserializeOwned + Send + 'static,
    F: for<'a> SqlxHandlerFn<'a, SqliteConnection, M> + 'static,
{
    Arc::new(OnPool { pool, function, message: PhantomData::<fn(M)> })
}

struct OnPool<M, F> {
    pool: SqlitePool,
    function: F,
    message: PhantomData<fn(M)>,
}

#[async_trait]
impl<M, F> Handler for OnPool<M, F>
where
    M: DeserializeOwned + Send + 'static,
    F: for<'a> SqlxHandlerFn<'a, SqliteConnection, M> + 'static,
{
    async fn handle(&self, work: HandlerWork) -> HandleOutcome {
        let message = match Received::<M>::decode(&work.row) {
            Ok(message) => message,
            Err(outcome) => return HandleOutcome::RolledBack(outcome),
        };
        self.run(&work, message).await.unwrap_or_else(not_committed)
    }

    async fn validate(&self, row: InboxRow) -> Result<Outcome, StoreError> {
        let message = match Received::<M>::decode(&row) {
            Ok(message) => message,
            Err(outcome) => return Ok(outcome),
        };
        let mut tx = begin(self.pool.clone()).await?;
        let outcome = self.ask(&mut tx, message).await;
        rollback(tx).await;
        outcome
    }
}

impl<M, F> OnPool<M, F>
where
    F: for<'a> SqlxHandlerFn<'a, SqliteConnection, M> + 'static,
{
    async fn run(
        &self,
        work: &HandlerWork,
        message: Received<M>,
    ) -> Result<HandleOutcome, StoreError> {
        let mut tx = begin(self.pool.clone()).await?;
        let begun = Instant::now();
        match self.run_in(&mut tx, work, message).await {
            Ok(HandleOutcome::Committed) => {
                extend_leases(&mut tx, begun.elapsed()).await;
                commit(tx).await.map(|()| HandleOutcome::Committed)
            }
            other => {
                rollback(tx).await;
                if begun.elapsed() > HEARTBEAT_DELAY_MAX
                    && let Ok(mut tx) = begin(self.pool.clone()).await
                {
                    extend_leases(&mut tx, begun.elapsed()).await;
                    // Without it the leases expire, as they would have.
                    drop(commit(tx).await);
                }
                other
            }
        }
    }

    /// `Committed` when everything is ready for the commit.
    async fn run_in(
        &self,
        tx: &mut SqliteConnection,
        work: &HandlerWork,
        message: Received<M>,
    ) -> Result<HandleOutcome, StoreError> {
        match self.ask(tx, message).await? {
            Outcome::Done => {}
            other => return Ok(HandleOutcome::RolledBack(other)),
        }
        match mark_processed(tx, work).await? {
            0 => Ok(HandleOutcome::Refused),
            _ => write_back_later(tx, work.row.id).await.map(|()| HandleOutcome::Committed),
        }
    }

    /// Returns the result of the function, with everything it wrote still open.
    async fn ask(
        &self,
        tx: &mut SqliteConnection,
        message: Received<M>,
    ) -> Result<Outcome, StoreError> {
        control(tx, "SAVEPOINT relais_handler").await?;
        let function = async { self.function.clone().call(&mut *tx, message).await.into_outcome() };
        let outcome = AssertUnwindSafe(function).catch_unwind().await;
        match outcome.unwrap_or_else(|panic| panicked(&*panic)) {
            Outcome::Done => {}
            other => return Ok(other),
        }
        // Fails when the transaction ended behind our back; then the mark would commit alone.
        control(tx, "RELEASE relais_handler").await.map_err(|_| transaction_lost())?;
        Ok(Outcome::Done)
    }
}

/// In a task of its own: sqlx 0.9 leaves a transaction open when its `begin` is cancelled.
async fn begin(pool: SqlitePool) -> Result<Transaction<'static, Sqlite>, StoreError> {
    let begun = tokio::spawn(async move { pool.begin_with("BEGIN IMMEDIATE").await });
    begun.await.map_err(|_| transaction_lost())?.map_err(|e| error::sqlx(&e))
}

/// Runs in a task of its own, so that a dropped caller does not cancel it half-way.
async fn commit(tx: Transaction<'static, Sqlite>) -> Result<(), StoreError> {
    let committed = tokio::spawn(async move { tx.commit().await });
    committed.await.map_err(|_| transaction_lost())?.map_err(|e| error::sqlx(&e))
}

/// Rolls back at once, so that the write lock is free for the worker that settles the row. A failed rollback
/// closes the connection, and its transaction with it.
async fn rollback(tx: Transaction<'static, Sqlite>) {
    let rolled_back = tokio::spawn(async move { tx.rollback().await });
    drop(rolled_back.await);
}

/// As the writer does: no heartbeat was written while the transaction was open.
async fn extend_leases(db: &mut SqliteConnection, held: Duration) {
    if held <= HEARTBEAT_DELAY_MAX {
        return;
    }
    for extend in EXTEND_LEASES {
        drop(query(extend).bind(millis(held)).execute(&mut *db).await);
    }
}

async fn control(db: &mut SqliteConnection, statement: &'static str) -> Result<(), StoreError> {
    query(statement).execute(db).await.map(drop).map_err(|e| error::sqlx(&e))
}

/// Leaves the result of a row of an adopted table for the store.
async fn write_back_later(db: &mut SqliteConnection, id: i64) -> Result<(), StoreError> {
    let left = query(include_str!("adopt/inbox_unwritten.sql"))
        .bind(format!("[{id}]"))
        .bind("[]")
        .bind(None::<String>)
        .execute(db)
        .await;
    left.map(drop).map_err(|e| error::sqlx(&e))
}

async fn mark_processed(db: &mut SqliteConnection, work: &HandlerWork) -> Result<u64, StoreError> {
    let marked = query(include_str!("sql/mark_processed.sql"))
        .bind(work.row.id)
        .bind(work.fence.scope.to_string())
        .bind(&work.fence.worker)
        .bind(work.epoch)
        .execute(db)
        .await;
    marked.map(|marked| marked.rows_affected()).map_err(|e| error::sqlx(&e))
}
