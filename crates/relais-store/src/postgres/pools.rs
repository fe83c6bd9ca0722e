//! Connections by what they are for, so that slow statements of one kind delay none of another.
//!
//! Invariant: handlers, hydration and what operators read never hold the last two connections. One is
//! left for leases and heartbeats, one to accept, fetch and settle.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use deadpool_postgres::{Client, Pool};
use relais_core::store::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::Failure;

/// The fewest connections a store works with.
pub(super) const CONNECTIONS_MIN: usize = 4;
/// Most connections for leases and heartbeats.
const LANES_MAX: usize = 2;
/// Most connections for accepting, fetching and settling.
const WORK_MAX: usize = 4;

/// How many connections each kind of work has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) lanes: usize,
    pub(super) work: usize,
    pub(super) others: usize,
}

impl Shares {
    pub(super) fn of(connections: usize) -> Result<Self, StoreError> {
        if connections < CONNECTIONS_MIN {
            return Err(StoreError::Setup(format!(
                "cannot work with {connections} connections to PostgreSQL; allow at least \
                 {CONNECTIONS_MIN}"
            )));
        }
        let lanes = if connections < 8 { 1 } else { LANES_MAX };
        let work = ((connections - lanes) / 3).clamp(1, WORK_MAX);
        Ok(Self { lanes, work, others: connections - lanes - work })
    }
}

/// Connections by what they are for. A pool opens them when they are needed first.
#[derive(Clone)]
pub(super) struct Pools {
    /// Leases, heartbeats and what wakes workers: short statements that must never wait.
    pub(super) lanes: Lender,
    /// Accepting, fetching and settling.
    pub(super) work: Lender,
    /// Code and statements of users (handlers, hydration), and what operators read: may take long.
    pub(super) others: Lender,
    /// Where handlers take their connections.
    pub(super) handlers: Pool,
}

impl Pools {
    /// The user's own pool. The connections of the engine are taken out of it now, and kept: otherwise the
    /// user's code could take the last ones.
    pub(super) async fn of_user(pool: Pool, wait: Duration) -> Result<Self, StoreError> {
        let Shares { lanes, work, others } = Shares::of(pool.status().max_size)?;
        let lender = |seats: usize, kept: Option<Kept>| Lender {
            pool: pool.clone(),
            seats: Some(Arc::new(Semaphore::new(seats))),
            kept,
            wait,
        };
        let pools = Self {
            lanes: lender(lanes, Some(Kept::default())),
            work: lender(work, Some(Kept::default())),
            others: lender(others, None),
            handlers: pool.clone(),
        };
        for (lender, seats) in [(&pools.lanes, lanes), (&pools.work, work)] {
            let mut taken = Vec::new();
            for _ in 0..seats {
                taken.push(lender.get().await.map_err(Failure::into_store)?);
            }
        }
        Ok(pools)
    }
}

/// Connections that are kept out of their pool.
type Kept = Arc<Mutex<Vec<Client>>>;

/// Lends connections for one kind of work.
#[derive(Clone)]
pub(super) struct Lender {
    pool: Pool,
    /// The most that are lent at once, if the pool is not for this work alone.
    seats: Option<Arc<Semaphore>>,
    /// Connections that do not go back into the pool, where others could take them.
    kept: Option<Kept>,
    wait: Duration,
}

impl Lender {
    pub(super) fn new(pool: Pool, wait: Duration) -> Self {
        Self { pool, seats: None, kept: None, wait }
    }

    pub(super) async fn get(&self) -> Result<Lent, Failure> {
        let lend = async {
            let seat = match &self.seats {
                Some(seats) => Arc::clone(seats).acquire_owned().await.ok(),
                None => None,
            };
            let kept = self.kept.as_ref().and_then(|kept| {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                // One that is closed is dropped, and its place in the pool is free.
                std::iter::from_fn(|| kept.pop()).find(|client| !client.is_closed())
            });
            let client = match kept {
                Some(client) => client,
                None => self.pool.get().await?,
            };
            Ok(Lent { client: Some(client), home: self.kept.clone(), _seat: seat })
        };
        match tokio::time::timeout(self.wait, lend).await {
            Ok(lent) => lent,
            Err(_) => Err(Failure::no_connection()),
        }
    }
}

/// A connection that was lent; dropped, it goes back.
pub(super) struct Lent {
    client: Option<Client>,
    home: Option<Kept>,
    _seat: Option<OwnedSemaphorePermit>,
}

impl Lent {
    /// Closes the connection: it is not used again.
    pub(super) fn close(mut self) {
        self.client.take().map(Client::take);
    }
}

const HELD: &str = "only `close` and `drop` take it";

impl Deref for Lent {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect(HELD)
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().expect(HELD)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(client), Some(home)) = (self.client.take(), &self.home) {
            home.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_work_has_a_share_of_any_number_of_connections() {
        for connections in CONNECTIONS_MIN..200 {
            let Shares { lanes, work, others } = Shares::of(connections).unwrap();
            assert_eq!(lanes + work + others, connections);
            assert!(lanes >= 1 && work >= 1 && others >= 2, "{connections}");
        }
        assert_eq!(Shares::of(4).unwrap(), Shares { lanes: 1, work: 1, others: 2 });
        assert_eq!(Shares::of(14).unwrap(), Shares { lanes: 2, work: 4, others: 8 });
        assert!(Shares::of(3).unwrap_err().to_string().contains("at least 4"));
    }
}
