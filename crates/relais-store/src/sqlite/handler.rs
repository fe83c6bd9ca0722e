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
    async_trait,
    cause::Cause,
    handler::{HandleOutcome, Handler, HandlerWork, IntoOutcome, Outcome, Received, panicked},
    inbox::InboxRow,
    store::StoreError,
};
use rusqlite::Transaction;
use serde::de::DeserializeOwned;

use super::{
    SqliteStore,
    adopt::{self, SqliteAdoptions},
    inbox,
    writer::{Ending, Writer},
};
use crate::adopt::SettledCopies;

/// Runs `function` with a state as [`handler`] does, for example a method. The state may be an `Arc` that
/// other handlers share.
pub fn handler_with<M, O, S, F>(
    store: &SqliteStore,
    state: impl Into<Arc<S>>,
    function: F,
) -> Arc<dyn Handler>
where
    M: DeserializeOwned + Send + 'static,
    O: IntoOutcome + 'static,
    S: Send + Sync + 'static,
    F: Fn(&S, &Transaction<'_>, Received<M>) -> O + Send + Sync + 'static,
{
    let state = state.into();
    handler(store, move |tx: &Transaction<'_>, message: Received<M>| function(&state, tx, message))
}

/// Runs `function` on the store's writer thread, inside its transaction. It must be quick: nothing
/// else is written meanwhile.
pub fn handler<M, O, F>(store: &SqliteStore, function: F) -> Arc<dyn Handler>
where
    M: DeserializeOwned + Send + 'static,
    O: IntoOutcome + 'static,
    F: Fn(&Transaction<'_>, Received<M>) -> O + Send + Sync + 'static,
{
    let (writer, adopted) = (store.writer().clone(), Arc::clone(&store.inner.adopted));
    let (function, message) = (Arc::new(function), PhantomData::<fn(M) -> O>);
    Arc::new(OnWriter { writer, adopted, function, message })
}

struct OnWriter<M, O, F> {
    writer: Writer,
    adopted: Arc<SqliteAdoptions>,
    function: Arc<F>,
    message: PhantomData<fn(M) -> O>,
}

#[async_trait]
impl<M, O, F> Handler for OnWriter<M, O, F>
where
    M: DeserializeOwned + Send + 'static,
    O: IntoOutcome + 'static,
    F: Fn(&Transaction<'_>, Received<M>) -> O + Send + Sync + 'static,
{
    async fn handle(&self, work: HandlerWork) -> HandleOutcome {
        let message = match Received::<M>::decode(&work.row) {
            Ok(message) => message,
            Err(outcome) => return HandleOutcome::RolledBack(outcome),
        };
        let (function, adopted) = (Arc::clone(&self.function), Arc::clone(&self.adopted));

        let handled = self.writer.run_to_end(move |tx| {
            let outcome = Cause::of(&work.row).with(|| run(tx, &*function, message));
            conclude(tx, &adopted, &work, outcome)
        });
        handled.await.unwrap_or_else(not_committed)
    }

    async fn validate(&self, row: InboxRow) -> Result<Outcome, StoreError> {
        let message = match Received::<M>::decode(&row) {
            Ok(message) => message,
            Err(outcome) => return Ok(outcome),
        };
        let function = Arc::clone(&self.function);
        self.writer
            .run_to_end(move |tx| {
                let outcome = run(tx, &*function, message);
                // A handler that ended the transaction itself would have changed something.
                if tx.is_autocommit() { Err(transaction_lost()) } else { Ok(Ending::Undo(outcome)) }
            })
            .await
    }
}

fn run<M, O: IntoOutcome>(
    tx: &Transaction<'_>,
    function: &impl Fn(&Transaction<'_>, Received<M>) -> O,
    message: Received<M>,
) -> Outcome {
    let run = AssertUnwindSafe(|| function(tx, message).into_outcome());
    catch_unwind(run).unwrap_or_else(|panic| panicked(&*panic))
}

fn conclude(
    tx: &Transaction<'_>,
    adopted: &SqliteAdoptions,
    work: &HandlerWork,
    outcome: Outcome,
) -> Result<Ending<HandleOutcome>, StoreError> {
    if tx.is_autocommit() {
        // Without this the mark would commit alone, and the user's changes would be missing.
        return Err(transaction_lost());
    }
    if outcome != Outcome::Done {
        return Ok(Ending::Undo(HandleOutcome::RolledBack(outcome)));
    }
    crate::fail_point!("handler.after_change");
    let scope = work.fence.scope.to_string();
    match inbox::mark_processed(tx, work.row.id, &scope, &work.fence.worker, work.epoch)? {
        0 => Ok(Ending::Undo(HandleOutcome::Refused)),
        _ => {
            adopt::write_back(tx, &adopted.all(), SettledCopies::Inbox, &[work.row.id])?;
            crate::fail_point!("handler.before_commit");
            Ok(Ending::Keep(HandleOutcome::Committed))
        }
    }
}

pub(super) fn transaction_lost() -> StoreError {
    StoreError::unavailable(
        "the handler's transaction ended before the handler did: the disk is full, or the handler \
         ended it itself",
    )
}

/// A commit that the database refused for its content is the handler's failure; any other is not.
pub(super) fn not_committed(error: StoreError) -> HandleOutcome {
    match error {
        StoreError::Invalid(text) => {
            HandleOutcome::RolledBack(Outcome::retry("COMMIT_REFUSED", &text))
        }
        other => HandleOutcome::Unavailable(other),
    }
}
