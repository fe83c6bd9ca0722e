//! Handlers whose transaction is sqlx's.
//!
//! sqlx 0.9.0 leaves a transaction open in the pool when `begin` is dropped half-way, and the next
//! user's writes are lost with it. So begin and commit run in tasks of their own: the caller may go
//! away, they do not. Invariant otherwise as in [`super::handler`].

use std::{future::Future, marker::PhantomData, sync::Arc};

use relais_core::{
    async_trait,
    handler::{HandleOutcome, Handler, HandlerWork, Outcome, Received},
    inbox::InboxRow,
    store::StoreError,
};
use serde::de::DeserializeOwned;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use super::{
    error::Failure,
    handler::{
        after_the_call, not_committed, not_validated, outcome, session_lost, transaction_lost,
    },
};
use crate::{
    sqlx_function::{SqlxHandlerFn, SqlxStateHandlerFn},
    with_state::WithState,
};

/// Runs `function` with a state for each message, in a transaction of `pool`. The state may be an `Arc` that
/// other handlers share.
pub fn sqlx_handler_with<M, S, F>(
    pool: PgPool,
    state: impl Into<Arc<S>>,
    function: F,
) -> Arc<dyn Handler>
where
    M: DeserializeOwned + Send + 'static,
    S: Send + Sync + 'static,
    F: for<'a> SqlxStateHandlerFn<'a, PgConnection, S, M> + 'static,
{
    sqlx_handler(pool, WithState { state: state.into(), function })
}

/// Runs `function` for each message, in a transaction of `pool`.
pub fn sqlx_handler<M, F>(pool: PgPool, function: F) -> Arc<dyn Handler>
where
    M: DeserializeOwned + Send + 'static,
    F: for<'a> SqlxHandlerFn<'a, PgConnection, M> + 'static,
{
    Arc::new(SqlxHandler { pool, function, message: PhantomData::<fn(M)> })
}

struct SqlxHandler<M, F> {
    pool: PgPool,
    function: F,
    message: PhantomData<fn(M)>,
}

#[async_trait]
impl<M, F> Handler for SqlxHandler<M, F>
where
    M: DeserializeOwned + Send + 'static,
    F: for<'a> SqlxHandlerFn<'a, PgConnection, M> + 'static,
{
    async fn handle(&self, work: HandlerWork) -> HandleOutcome {
        match Received::decode(&work.row) {
            Ok(message) => self.run(work, message).await.unwrap_or_else(not_committed),
            Err(outcome) => HandleOutcome::RolledBack(outcome),
        }
    }

    async fn validate(&self, row: InboxRow) -> Result<Outcome, StoreError> {
        match Received::decode(&row) {
            Ok(message) => self.try_out(message).await.or_else(not_validated),
            Err(outcome) => Ok(outcome),
        }
    }
}

impl<M, F> SqlxHandler<M, F>
where
    M: DeserializeOwned + Send + 'static,
    F: for<'a> SqlxHandlerFn<'a, PgConnection, M> + 'static,
{
    async fn run(&self, work: HandlerWork, message: Received<M>) -> Result<HandleOutcome, Failure> {
        let (mut transaction, started) = in_task(begin(self.pool.clone())).await??;
        let outcome = outcome(self.function.clone().call(&mut transaction, message)).await;
        in_task(finish(transaction, started, work, outcome)).await?
    }

    async fn try_out(&self, message: Received<M>) -> Result<Outcome, Failure> {
        let (mut transaction, started) = in_task(begin(self.pool.clone())).await??;
        let outcome = outcome(self.function.clone().call(&mut transaction, message)).await;
        in_task(take_back(transaction, started, outcome)).await?
    }
}

/// A transaction and its start.
async fn begin(pool: PgPool) -> Result<(Transaction<'static, Postgres>, i64), Failure> {
    let mut transaction = pool.begin_with(sql!("begin_handler")).await?;
    let started = start(&mut transaction).await?;
    Ok((transaction, started))
}

async fn start(transaction: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(sql!("transaction_start")).fetch_one(transaction).await
}

/// Commits what is done and still ours, rolls back everything else.
async fn finish(
    transaction: Transaction<'static, Postgres>,
    started: i64,
    work: HandlerWork,
    outcome: Outcome,
) -> Result<HandleOutcome, Failure> {
    end(transaction, started, work, outcome).await.or_else(|error| {
        let code =
            error.as_database_error().map(|answer| answer.code().unwrap_or_default().into_owned());
        after_the_call(code.as_deref(), error.into())
    })
}

async fn end(
    mut transaction: Transaction<'static, Postgres>,
    started: i64,
    work: HandlerWork,
    outcome: Outcome,
) -> Result<HandleOutcome, sqlx::Error> {
    if outcome != Outcome::Done {
        // Without a connection the user's code could not but fail: no attempt is used.
        transaction.rollback().await?;
        return Ok(HandleOutcome::RolledBack(outcome));
    }
    let marked = sqlx::query(sql!("mark_processed"))
        .bind(work.fence.scope.to_string())
        .bind(work.row.lane)
        .bind(&work.fence.worker)
        .bind(work.epoch)
        .bind(work.row.id)
        .bind(started)
        .execute(&mut *transaction)
        .await?;
    if marked.rows_affected() == 0 {
        let now = start(&mut transaction).await?;
        transaction.rollback().await?;
        let is_ours = now == started;
        return Ok(if is_ours { HandleOutcome::Refused } else { session_lost(transaction_lost()) });
    }
    transaction.commit().await?;
    Ok(HandleOutcome::Committed)
}

/// Rolls a validation back, after the checks of a commit.
async fn take_back(
    mut transaction: Transaction<'static, Postgres>,
    started: i64,
    outcome: Outcome,
) -> Result<Outcome, Failure> {
    if outcome == Outcome::Done {
        sqlx::query(sql!("check_constraints")).execute(&mut *transaction).await?;
        if start(&mut transaction).await? != started {
            return Err(transaction_lost());
        }
    }
    transaction.rollback().await?;
    Ok(outcome)
}

async fn in_task<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Failure> {
    tokio::spawn(work).await.map_err(|error| {
        Failure::Final(StoreError::unavailable(format!("database task ended early: {error}")))
    })
}
