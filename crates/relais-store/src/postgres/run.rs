//! Runs the transactions of the store, each in a task of its own and on connections of its kind.

use std::sync::Arc;

use relais_core::{
    BoxFuture,
    store::{StoreError, StoreResult},
};

use super::{
    PostgresStore, StoreState,
    error::Failure,
    pools::Lender,
    session::{Client, View},
};

/// Most runs of a transaction that concurrent ones make fail.
const TRIES_MAX: usize = 5;

/// Runs transactions on the connections of one kind.
pub(super) struct TransactionRunner<'s> {
    store: &'s PostgresStore,
    lender: &'s Lender,
    view: View,
}

impl PostgresStore {
    /// The connections of the engine.
    pub(super) fn engine(&self) -> TransactionRunner<'_> {
        TransactionRunner { store: self, lender: &self.pools.work, view: View::Current }
    }

    /// The connections of leases and heartbeats.
    pub(super) fn leases(&self) -> TransactionRunner<'_> {
        TransactionRunner { lender: &self.pools.lanes, ..self.engine() }
    }

    /// The connections for what may take long and must not delay the engine.
    pub(super) fn others(&self) -> TransactionRunner<'_> {
        TransactionRunner { lender: &self.pools.others, ..self.engine() }
    }

    /// As [`Self::others`], for what reads one snapshot.
    pub(super) fn snapshots(&self) -> TransactionRunner<'_> {
        TransactionRunner { view: View::Snapshot, ..self.others() }
    }
}

impl TransactionRunner<'_> {
    /// Runs one transaction in a task that continues when the caller is dropped.
    pub(super) async fn run<A, T, F>(self, arguments: A, transaction: F) -> StoreResult<T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'a, 'c> Fn(
            &'a mut Client<'c>,
            &'a StoreState,
            &'a A,
        ) -> BoxFuture<'a, Result<T, Failure>>,
        F: Send + Sync + 'static,
    {
        let Self { store, lender, view } = self;
        let (lender, shared) = (lender.clone(), Arc::clone(&store.shared));
        let task = tokio::spawn(async move {
            repeat((&lender, view), &shared, &arguments, &transaction).await
        });
        task.await.unwrap_or_else(|error| {
            Err(StoreError::unavailable(format!("database task ended early: {error}")))
        })
    }
}

async fn repeat<A, T, F>(
    (lender, view): (&Lender, View),
    shared: &StoreState,
    arguments: &A,
    transaction: &F,
) -> Result<T, StoreError>
where
    F: for<'a, 'c> Fn(
        &'a mut Client<'c>,
        &'a StoreState,
        &'a A,
    ) -> BoxFuture<'a, Result<T, Failure>>,
{
    let sessions = &shared.sessions;
    let mut lent = lender.get().await.map_err(Failure::into_store)?;
    let mut tries = 1;
    loop {
        let mut carried = 0;
        let result = async {
            let mut client = Client::begin(&mut lent, sessions, &shared.marks, view).await?;
            let result = transaction(&mut client, shared, arguments).await;
            carried = client.carried();
            match result {
                Ok(done) => client.end(sessions).await.map(|()| done).map_err(Failure::from),
                Err(failure) => {
                    client.give_up(sessions);
                    Err(failure)
                }
            }
        };
        let result = result.await;
        lent.carried(carried);
        match result {
            Err(Failure::Again(_)) if tries < TRIES_MAX => {
                // Plans from before a migration fail for as long as the session keeps them.
                lent.statement_cache.clear();
                tries += 1;
            }
            Err(Failure::SessionChanged(_)) if tries < TRIES_MAX => {
                sessions.set_shared();
                lent.statement_cache.clear();
                tries += 1;
            }
            Err(Failure::Final(error @ StoreError::Unavailable(_))) => {
                // Perhaps ended by the server, and not noticed by the pool yet: not used again.
                lent.close();
                return Err(error);
            }
            result => return result.map_err(Failure::into_store),
        }
    }
}
