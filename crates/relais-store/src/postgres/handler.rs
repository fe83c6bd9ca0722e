//! User code for one inbox message, in one transaction of the user's own driver.
//!
//! Invariant: the statement that marks the row is the last one before the commit; it proves that the
//! lane is still ours and the transaction still the one the user's code worked in. Whatever else
//! happens, the transaction is rolled back.

use std::{future::Future, marker::PhantomData, panic::AssertUnwindSafe, sync::Arc};

use deadpool_postgres::Pool;
use futures_util::{FutureExt, future::join};
use relais_core::{
    BoxFuture, async_trait,
    handler::{HandleOutcome, Handler, HandlerWork, IntoOutcome, Outcome, Received, panicked},
    inbox::InboxRow,
    store::StoreError,
};
use serde::de::DeserializeOwned;
use tokio_postgres::{
    IsolationLevel, Transaction,
    types::{ToSql, Type},
};

use super::error::Failure;
use crate::with_state::WithState;

/// A function of a transaction and a message: `async fn(&Transaction<'_>, Received<M>) -> Outcome`, or an
/// async closure, which is cloned for each message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler for tokio-postgres",
    label = "expected `async fn(&tokio_postgres::Transaction<'_>, Received<M>) -> impl IntoOutcome`",
    note = "annotate the parameters of a closure: `async move |tx: &Transaction<'_>, message: \
            Received<Payment>| {{ … }}`",
    note = "captured values must be `Clone + Send + Sync`: wrap a shared value in `Arc`, and use no `Rc` or \
            `RefCell`",
    note = "the future must be `Send`, and its output an `Outcome`, `()` or a `Result` of these",
    note = "a method, or a function whose first argument is a state, goes to `handler_with`"
)]
pub trait HandlerFn<'a, M>: Clone + Send + Sync {
    /// The future of the function.
    type Future: Future<Output = Self::Output> + Send + 'a;
    /// The return value of the function.
    type Output: IntoOutcome;

    /// Calls the function.
    fn call(self, transaction: &'a Transaction<'a>, message: Received<M>) -> Self::Future;
}

#[diagnostic::do_not_recommend]
impl<'a, M, F, R> HandlerFn<'a, M> for F
where
    F: FnOnce(&'a Transaction<'a>, Received<M>) -> R + Clone + Send + Sync,
    R: Future + Send + 'a,
    R::Output: IntoOutcome,
{
    type Future = R;
    type Output = R::Output;

    fn call(self, transaction: &'a Transaction<'a>, message: Received<M>) -> R {
        self(transaction, message)
    }
}

/// A function of a state, a transaction and a message, such as a method:
/// `async fn(&S, &Transaction<'_>, Received<M>) -> Outcome`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler with the state `{S}` for tokio-postgres",
    label = "expected `async fn(&{S}, &tokio_postgres::Transaction<'_>, Received<M>) -> impl IntoOutcome`",
    note = "the order is: state, transaction, message",
    note = "the future must be `Send`, and its output an `Outcome`, `()` or a `Result` of these"
)]
pub trait StateHandlerFn<'a, S, M>: Clone + Send + Sync {
    /// The future of the function.
    type Future: Future<Output = Self::Output> + Send + 'a;
    /// The return value of the function.
    type Output: IntoOutcome;

    /// Calls the function.
    fn call(
        self,
        state: &'a S,
        transaction: &'a Transaction<'a>,
        message: Received<M>,
    ) -> Self::Future;
}

#[diagnostic::do_not_recommend]
impl<'a, S: 'a, M, F, R> StateHandlerFn<'a, S, M> for F
where
    F: FnOnce(&'a S, &'a Transaction<'a>, Received<M>) -> R + Clone + Send + Sync,
    R: Future + Send + 'a,
    R::Output: IntoOutcome,
{
    type Future = R;
    type Output = R::Output;

    fn call(self, state: &'a S, transaction: &'a Transaction<'a>, message: Received<M>) -> R {
        self(state, transaction, message)
    }
}

/// Runs `function` with a state for each message, in a transaction of `pool`. The state may be an `Arc` that
/// other handlers share.
pub fn handler_with<M, S, F>(pool: Pool, state: impl Into<Arc<S>>, function: F) -> Arc<dyn Handler>
where
    M: DeserializeOwned + Send + 'static,
    S: Send + Sync + 'static,
    F: for<'a> StateHandlerFn<'a, S, M> + 'static,
{
    handler(pool, WithState { state: state.into(), function })
}

impl<'a, S, M, F> HandlerFn<'a, M> for WithState<S, F>
where
    M: Send + 'a,
    S: Send + Sync + 'static,
    F: for<'b> StateHandlerFn<'b, S, M> + 'static,
{
    type Future = BoxFuture<'a, Outcome>;
    type Output = Outcome;

    fn call(self, transaction: &'a Transaction<'a>, message: Received<M>) -> Self::Future {
        Box::pin(async move {
            self.function.call(&self.state, transaction, message).await.into_outcome()
        })
    }
}

/// Runs `function` for each message, in a transaction of `pool`.
pub fn handler<M, F>(pool: Pool, function: F) -> Arc<dyn Handler>
where
    M: DeserializeOwned + Send + 'static,
    F: for<'a> HandlerFn<'a, M> + 'static,
{
    Arc::new(PoolHandler { pool, function, message: PhantomData::<fn(M)> })
}

struct PoolHandler<M, F> {
    pool: Pool,
    function: F,
    message: PhantomData<fn(M)>,
}

#[async_trait]
impl<M, F> Handler for PoolHandler<M, F>
where
    M: DeserializeOwned + Send + 'static,
    F: for<'a> HandlerFn<'a, M> + 'static,
{
    async fn handle(&self, work: HandlerWork) -> HandleOutcome {
        match Received::decode(&work.row) {
            Ok(message) => self.run(&work, message).await.unwrap_or_else(not_committed),
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

impl<M, F> PoolHandler<M, F>
where
    M: DeserializeOwned + Send + 'static,
    F: for<'a> HandlerFn<'a, M> + 'static,
{
    /// Dropped half-way, the transaction rolls itself back; dropped inside the commit, the commit
    /// has been sent and stands, or falls, as a whole.
    async fn run(
        &self,
        work: &HandlerWork,
        message: Received<M>,
    ) -> Result<HandleOutcome, Failure> {
        let mut client = self.pool.get().await?;
        let transaction = begin(&mut client).await?;
        // The user's first statement need not wait for the answer to ours.
        let called = self.function.clone().call(&transaction, message);
        let (started, outcome) = join(start(&transaction), outcome(called)).await;
        let ended = async {
            if outcome != Outcome::Done {
                // Without a connection the user's code could not but fail: no attempt is used.
                transaction.rollback().await?;
                return Ok(HandleOutcome::RolledBack(outcome));
            }
            crate::fail_point!("handler.after_change");
            let started = started?;
            let scope = work.fence.scope.to_string();
            let (row, worker) = (&work.row, &work.fence.worker);
            let values: [(&(dyn ToSql + Sync), Type); 6] = [
                (&scope, Type::TEXT),
                (&row.lane, Type::INT2),
                (worker, Type::TEXT),
                (&work.epoch, Type::INT8),
                (&row.id, Type::INT8),
                (&started, Type::INT8),
            ];
            let marked = transaction.execute_typed(sql!("mark_processed"), &values).await?;
            if marked == 0 {
                let is_ours = start(&transaction).await? == started;
                transaction.rollback().await?;
                return Ok(if is_ours {
                    HandleOutcome::Refused
                } else {
                    session_lost(transaction_lost())
                });
            }
            crate::fail_point!("handler.before_commit");
            transaction.commit().await?;
            Ok(HandleOutcome::Committed)
        };
        ended.await.or_else(|error: tokio_postgres::Error| {
            let code = error.code().map(|code| code.code().to_owned());
            after_the_call(code.as_deref(), error.into())
        })
    }

    /// As [`Self::run`], up to the commit; dropped half-way, the transaction rolls itself back too.
    async fn try_out(&self, message: Received<M>) -> Result<Outcome, Failure> {
        let mut client = self.pool.get().await?;
        let transaction = begin(&mut client).await?;
        let started = start(&transaction).await?;
        let outcome = outcome(self.function.clone().call(&transaction, message)).await;
        if outcome == Outcome::Done {
            transaction.execute(sql!("check_constraints"), &[]).await?;
            if start(&transaction).await? != started {
                return Err(transaction_lost());
            }
        }
        transaction.rollback().await?;
        Ok(outcome)
    }
}

/// Each statement sees what was committed before it, whatever the default of the database or role. Under
/// a stricter level the mark of a slow handler fails, because its lane was renewed meanwhile.
async fn begin(
    client: &mut deadpool_postgres::Client,
) -> Result<deadpool_postgres::Transaction<'_>, tokio_postgres::Error> {
    let level = IsolationLevel::ReadCommitted;
    deadpool_postgres::ClientWrapper::build_transaction(client).isolation_level(level).start().await
}

/// When the transaction began. No statement of ours is prepared by name: a pooler may give the next
/// transaction another session.
async fn start(transaction: &Transaction<'_>) -> Result<i64, tokio_postgres::Error> {
    let rows = transaction.query_typed(sql!("transaction_start"), &[]).await?;
    Ok(rows.first().map_or(0, |row| row.get(0)))
}

/// Runs the user's code; a panic means a retry.
pub(super) async fn outcome<R>(called: R) -> Outcome
where
    R: Future<Output: IntoOutcome>,
{
    match AssertUnwindSafe(called).catch_unwind().await {
        Ok(said) => said.into_outcome(),
        Err(panic) => panicked(&*panic),
    }
}

/// Codes that end a session: idle too long, ended by an operator, restart.
const ENDS_SESSION: [&str; 3] = ["25P03", "57P01", "57P05"];

/// A failure after the handler began: without a code the connection is lost, and its session with it.
pub(super) fn after_the_call(
    code: Option<&str>,
    failure: Failure,
) -> Result<HandleOutcome, Failure> {
    if code.is_none_or(|code| ENDS_SESSION.contains(&code)) {
        return Ok(session_lost(failure));
    }
    Err(failure)
}

pub(super) fn session_lost(failure: Failure) -> HandleOutcome {
    HandleOutcome::SessionLost(failure.into_store())
}

pub(super) fn transaction_lost() -> Failure {
    Failure::Final(StoreError::unavailable(
        "the handler ended its transaction itself; it must leave that to relais",
    ))
}

/// A commit that the database refused for its content is the handler's failure; any other is not.
pub(super) fn not_committed(failure: Failure) -> HandleOutcome {
    not_validated(failure).map_or_else(HandleOutcome::Unavailable, HandleOutcome::RolledBack)
}

/// The same for a validation.
pub(super) fn not_validated(failure: Failure) -> Result<Outcome, StoreError> {
    match failure.into_store() {
        StoreError::Invalid(text) => Ok(Outcome::retry("COMMIT_REFUSED", &text)),
        other => Err(other),
    }
}
