//! Runs the transactions of the store, each in a task of its own and on connections of its kind.

use std::sync::Arc;

use deadpool_postgres::{Client, Pool};
use relais_core::{
    BoxFuture,
    store::{StoreError, StoreFuture},
};

use super::{PostgresStore, Shared, error::Failure};

/// How often a transaction is run when others make it fail.
const TRIES_MAX: usize = 5;

impl PostgresStore {
    /// Runs one transaction of the engine, in a task that goes on when the caller does not.
    pub(super) fn run<A, T, F>(&self, arguments: A, transaction: F) -> StoreFuture<'_, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'a> Fn(&'a mut Client, &'a Shared, &'a A) -> BoxFuture<'a, Result<T, Failure>>,
        F: Send + Sync + 'static,
    {
        self.run_on(&self.pools.work, arguments, transaction)
    }

    /// As [`Self::run`], on the connections of leases and heartbeats.
    pub(super) fn run_lease<A, T, F>(&self, arguments: A, transaction: F) -> StoreFuture<'_, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'a> Fn(&'a mut Client, &'a Shared, &'a A) -> BoxFuture<'a, Result<T, Failure>>,
        F: Send + Sync + 'static,
    {
        self.run_on(&self.pools.lanes, arguments, transaction)
    }

    /// As [`Self::run`], for what may take long and must not delay the engine.
    pub(super) fn run_other<A, T, F>(&self, arguments: A, transaction: F) -> StoreFuture<'_, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'a> Fn(&'a mut Client, &'a Shared, &'a A) -> BoxFuture<'a, Result<T, Failure>>,
        F: Send + Sync + 'static,
    {
        self.run_on(&self.pools.others, arguments, transaction)
    }

    fn run_on<A, T, F>(&self, pool: &Pool, arguments: A, transaction: F) -> StoreFuture<'_, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'a> Fn(&'a mut Client, &'a Shared, &'a A) -> BoxFuture<'a, Result<T, Failure>>,
        F: Send + Sync + 'static,
    {
        let (pool, shared) = (pool.clone(), Arc::clone(&self.shared));
        Box::pin(async move {
            let task =
                tokio::spawn(async move { repeat(&pool, &shared, &arguments, &transaction).await });
            task.await.unwrap_or_else(|error| {
                Err(StoreError::Unavailable(format!("database task ended early: {error}")))
            })
        })
    }
}

async fn repeat<A, T, F>(
    pool: &Pool,
    shared: &Shared,
    arguments: &A,
    transaction: &F,
) -> Result<T, StoreError>
where
    F: for<'a> Fn(&'a mut Client, &'a Shared, &'a A) -> BoxFuture<'a, Result<T, Failure>>,
{
    let mut client = pool.get().await.map_err(|error| Failure::from(error).into_store())?;
    let mut tries = 1;
    loop {
        match transaction(&mut client, shared, arguments).await {
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
