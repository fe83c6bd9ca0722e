//! User code for one inbox row, in one transaction with the row's `PROCESSED`.
//!
//! Invariant: the mark is the last statement before the commit, and it holds only while the lane is
//! ours and the row is open; otherwise everything the user's code wrote is rolled back.

use std::{
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use relais_core::{
    BoxFuture,
    handler::{Handled, Handler, HandlerWork, IntoOutcome, Outcome, Received},
    inbox::InboxRow,
    store::StoreError,
};
use rusqlite::Transaction;
use serde::de::DeserializeOwned;

#[cfg(feature = "sqlx-sqlite")]
pub use self::with_sqlx::{SqlxHandlerFn, sqlx_handler};
use super::{
    SqliteStore, inbox,
    writer::{Ending, Writer},
};

/// Runs `function` on the store's writer thread, inside its transaction. It must be quick: nothing
/// else is written meanwhile.
pub fn handler<M, O, F>(store: &SqliteStore, function: F) -> Arc<dyn Handler>
where
    M: DeserializeOwned + Send + 'static,
    O: IntoOutcome + 'static,
    F: Fn(&Transaction<'_>, Received<M>) -> O + Send + Sync + 'static,
{
    let writer = store.writer().clone();
    Arc::new(OnWriter { writer, function: Arc::new(function), message: PhantomData::<fn(M) -> O> })
}

struct OnWriter<M, O, F> {
    writer: Writer,
    function: Arc<F>,
    message: PhantomData<fn(M) -> O>,
}

impl<M, O, F> Handler for OnWriter<M, O, F>
where
    M: DeserializeOwned + Send + 'static,
    O: IntoOutcome + 'static,
    F: Fn(&Transaction<'_>, Received<M>) -> O + Send + Sync + 'static,
{
    fn handle(&self, work: HandlerWork) -> BoxFuture<'_, Handled> {
        let message = match Received::<M>::decode(&work.row) {
            Ok(message) => message,
            Err(outcome) => return Box::pin(async { Handled::RolledBack(outcome) }),
        };
        let function = Arc::clone(&self.function);
        Box::pin(async move {
            let handled = self.writer.run_to_end(move |tx| {
                let outcome = run(tx, &*function, message);
                conclude(tx, &work, outcome)
            });
            handled.await.unwrap_or_else(not_committed)
        })
    }

    fn rehearse(&self, row: InboxRow) -> BoxFuture<'_, Result<Outcome, StoreError>> {
        let message = match Received::<M>::decode(&row) {
            Ok(message) => message,
            Err(outcome) => return Box::pin(async { Ok(outcome) }),
        };
        let function = Arc::clone(&self.function);
        Box::pin(self.writer.run_to_end(move |tx| {
            let outcome = run(tx, &*function, message);
            // A handler that ended the transaction itself would have changed something.
            if tx.is_autocommit() { Err(transaction_gone()) } else { Ok(Ending::Undo(outcome)) }
        }))
    }
}

fn run<M, O: IntoOutcome>(
    tx: &Transaction<'_>,
    function: &impl Fn(&Transaction<'_>, Received<M>) -> O,
    message: Received<M>,
) -> Outcome {
    let run = AssertUnwindSafe(|| function(tx, message).into_outcome());
    catch_unwind(run).unwrap_or_else(|_| panicked())
}

fn conclude(
    tx: &Transaction<'_>,
    work: &HandlerWork,
    outcome: Outcome,
) -> Result<Ending<Handled>, StoreError> {
    if tx.is_autocommit() {
        // Without this the mark would commit alone, and the user's changes would be missing.
        return Err(transaction_gone());
    }
    if outcome != Outcome::Done {
        return Ok(Ending::Undo(Handled::RolledBack(outcome)));
    }
    crate::fail_point!("handler.after_change");
    let scope = work.fence.scope.to_string();
    match inbox::mark_processed(tx, work.row.id, &scope, &work.fence.worker, work.epoch)? {
        0 => Ok(Ending::Undo(Handled::Refused)),
        _ => {
            crate::fail_point!("handler.before_commit");
            Ok(Ending::Keep(Handled::Committed))
        }
    }
}

fn panicked() -> Outcome {
    Outcome::retry("HANDLER_PANIC", "the handler panicked; see the log of the program")
}

fn transaction_gone() -> StoreError {
    StoreError::Unavailable(
        "the handler's transaction ended before the handler did: the disk is full, or the handler \
         ended it itself"
            .into(),
    )
}

/// A commit that the database refused for its content is the handler's failure; any other is not.
fn not_committed(error: StoreError) -> Handled {
    match error {
        StoreError::Invalid(text) => Handled::RolledBack(Outcome::retry("COMMIT_REFUSED", &text)),
        other => Handled::Unavailable(other),
    }
}

#[cfg(feature = "sqlx-sqlite")]
mod with_sqlx {
    use std::{future::Future, marker::PhantomData, panic::AssertUnwindSafe, sync::Arc};

    use futures_util::FutureExt;
    use relais_core::{
        BoxFuture,
        handler::{Handled, Handler, HandlerWork, IntoOutcome, Outcome, Received},
        inbox::InboxRow,
        store::StoreError,
    };
    use serde::de::DeserializeOwned;
    use sqlx::{Sqlite, SqliteConnection, SqlitePool, Transaction, query};

    use super::{not_committed, panicked, transaction_gone};
    use crate::sqlite::error;

    /// An `async fn(&mut SqliteConnection, Received<M>) -> impl IntoOutcome`.
    pub trait SqlxHandlerFn<'a, M>: Send + Sync {
        type Output: IntoOutcome;
        type Future: Future<Output = Self::Output> + Send + 'a;

        fn call(&self, tx: &'a mut SqliteConnection, message: Received<M>) -> Self::Future;
    }

    impl<'a, M, O, R, F> SqlxHandlerFn<'a, M> for F
    where
        O: IntoOutcome,
        R: Future<Output = O> + Send + 'a,
        F: Fn(&'a mut SqliteConnection, Received<M>) -> R + Send + Sync,
    {
        type Output = O;
        type Future = R;

        fn call(&self, tx: &'a mut SqliteConnection, message: Received<M>) -> R {
            self(tx, message)
        }
    }

    /// Runs `function` in a transaction of the user's own pool, which must be on the store's file.
    pub fn sqlx_handler<M, F>(pool: SqlitePool, function: F) -> Arc<dyn Handler>
    where
        M: DeserializeOwned + Send + 'static,
        F: for<'a> SqlxHandlerFn<'a, M> + 'static,
    {
        Arc::new(OnPool { pool, function, message: PhantomData::<fn(M)> })
    }

    struct OnPool<M, F> {
        pool: SqlitePool,
        function: F,
        message: PhantomData<fn(M)>,
    }

    impl<M, F> Handler for OnPool<M, F>
    where
        M: DeserializeOwned + Send + 'static,
        F: for<'a> SqlxHandlerFn<'a, M> + 'static,
    {
        fn handle(&self, work: HandlerWork) -> BoxFuture<'_, Handled> {
            Box::pin(async move {
                let message = match Received::<M>::decode(&work.row) {
                    Ok(message) => message,
                    Err(outcome) => return Handled::RolledBack(outcome),
                };
                self.run(&work, message).await.unwrap_or_else(not_committed)
            })
        }

        fn rehearse(&self, row: InboxRow) -> BoxFuture<'_, Result<Outcome, StoreError>> {
            Box::pin(async move {
                let message = match Received::<M>::decode(&row) {
                    Ok(message) => message,
                    Err(outcome) => return Ok(outcome),
                };
                let mut tx = begin(self.pool.clone()).await?;
                let outcome = self.ask(&mut tx, message).await;
                rollback(tx).await;
                outcome
            })
        }
    }

    impl<M, F> OnPool<M, F>
    where
        F: for<'a> SqlxHandlerFn<'a, M> + 'static,
    {
        async fn run(
            &self,
            work: &HandlerWork,
            message: Received<M>,
        ) -> Result<Handled, StoreError> {
            let mut tx = begin(self.pool.clone()).await?;
            match self.run_in(&mut tx, work, message).await {
                Ok(Handled::Committed) => commit(tx).await.map(|()| Handled::Committed),
                other => {
                    rollback(tx).await;
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
        ) -> Result<Handled, StoreError> {
            match self.ask(tx, message).await? {
                Outcome::Done => {}
                other => return Ok(Handled::RolledBack(other)),
            }
            match mark_processed(tx, work).await? {
                0 => Ok(Handled::Refused),
                _ => Ok(Handled::Committed),
            }
        }

        /// What the function says, with everything it wrote still open.
        async fn ask(
            &self,
            tx: &mut SqliteConnection,
            message: Received<M>,
        ) -> Result<Outcome, StoreError> {
            control(tx, "SAVEPOINT relais_handler").await?;
            let function = async { self.function.call(&mut *tx, message).await.into_outcome() };
            let outcome = AssertUnwindSafe(function).catch_unwind().await;
            match outcome.unwrap_or_else(|_| panicked()) {
                Outcome::Done => {}
                other => return Ok(other),
            }
            // Fails when the transaction ended behind our back; then the mark would commit alone.
            control(tx, "RELEASE relais_handler").await.map_err(|_| transaction_gone())?;
            Ok(Outcome::Done)
        }
    }

    /// In a task of its own: sqlx 0.9 leaves a transaction open when its `begin` is cancelled.
    async fn begin(pool: SqlitePool) -> Result<Transaction<'static, Sqlite>, StoreError> {
        let begun = tokio::spawn(async move { pool.begin_with("BEGIN IMMEDIATE").await });
        begun.await.map_err(|_| transaction_gone())?.map_err(|e| error::sqlx(&e))
    }

    /// In a task of its own, so that nobody cancels it half-way.
    async fn commit(tx: Transaction<'static, Sqlite>) -> Result<(), StoreError> {
        let committed = tokio::spawn(async move { tx.commit().await });
        committed.await.map_err(|_| transaction_gone())?.map_err(|e| error::sqlx(&e))
    }

    /// At once, so that the write lock is free for whoever settles the row. A rollback that fails is
    /// the end of the connection, and of its transaction with it.
    async fn rollback(tx: Transaction<'static, Sqlite>) {
        let rolled_back = tokio::spawn(async move { tx.rollback().await });
        drop(rolled_back.await);
    }

    async fn control(db: &mut SqliteConnection, statement: &'static str) -> Result<(), StoreError> {
        query(statement).execute(db).await.map(drop).map_err(|e| error::sqlx(&e))
    }

    async fn mark_processed(
        db: &mut SqliteConnection,
        work: &HandlerWork,
    ) -> Result<u64, StoreError> {
        let marked = query(include_str!("sql/mark_processed.sql"))
            .bind(work.row.id)
            .bind(work.fence.scope.to_string())
            .bind(&work.fence.worker)
            .bind(work.epoch)
            .execute(db)
            .await;
        marked.map(|marked| marked.rows_affected()).map_err(|e| error::sqlx(&e))
    }
}
