//! Connections by what they are for, so that slow statements of one kind delay none of another.
//!
//! Invariant: handlers, hydration and what operators read never hold the last two connections. One is
//! left for leases and heartbeats, one to accept, fetch and settle.
//!
//! The driver never shrinks the buffers of a connection, so one that carried large rows is closed once
//! they stop coming. Otherwise each connection would keep the memory of its largest batch.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
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

/// A call that carries this many bytes of payloads makes the buffers of its connection large.
const LARGE_BYTES: usize = 1024 * 1024;
/// A connection with large buffers is closed this long after it last carried large rows.
const LARGE_FOR: Duration = Duration::from_secs(2);

/// The number of connections of each kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) lanes: usize,
    pub(super) work: usize,
    pub(super) others: usize,
}

impl Shares {
    pub(super) fn of(connections: usize) -> Result<Self, StoreError> {
        if connections < CONNECTIONS_MIN {
            return Err(StoreError::setup(format!(
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
    /// The connections of handlers.
    pub(super) handlers: Pool,
}

impl Pools {
    /// The user's own pool. The connections of the engine are taken out of it now, and kept: otherwise the
    /// user's code could take the last ones.
    pub(super) async fn of_user(pool: Pool, wait: Duration) -> Result<Self, StoreError> {
        let Shares { lanes, work, others } = Shares::of(pool.status().max_size)?;
        let lender = |seats: usize| Lender {
            pool: pool.clone(),
            seats: Some(Arc::new(Semaphore::new(seats))),
            idle: None,
            wait,
        };
        let keeping = |seats: usize| Lender { idle: Some(Idle::default()), ..lender(seats) };
        let pools = Self {
            lanes: keeping(lanes),
            work: keeping(work),
            others: lender(others),
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

/// Connections that no call uses, kept out of their pool. The last one used is lent first.
type Idle = Arc<Mutex<Vec<Connection>>>;

struct Connection {
    client: Client,
    /// When it last carried large rows.
    large_at: Option<Instant>,
}

impl Connection {
    fn is_worth_keeping(&self) -> bool {
        !self.client.is_closed() && self.large_at.is_none_or(|at| at.elapsed() < LARGE_FOR)
    }
}

/// Lends connections for one kind of work.
#[derive(Clone)]
pub(super) struct Lender {
    pool: Pool,
    /// The most that are lent at once, if the pool is not for this work alone.
    seats: Option<Arc<Semaphore>>,
    /// Connections that do not go back into the pool, where user code could take them.
    idle: Option<Idle>,
    wait: Duration,
}

impl Lender {
    /// Returns a lender of a pool that other code uses too.
    pub(super) fn shared(pool: Pool, wait: Duration) -> Self {
        Self { pool, seats: None, idle: None, wait }
    }

    /// Returns a lender of a pool that it has for itself.
    pub(super) fn owned(pool: Pool, wait: Duration) -> Self {
        let seats = Some(Arc::new(Semaphore::new(pool.status().max_size)));
        Self { pool, seats, idle: Some(Idle::default()), wait }
    }

    pub(super) async fn get(&self) -> Result<LentConnection, Failure> {
        let lend = async {
            let seat = match &self.seats {
                Some(seats) => Arc::clone(seats).acquire_owned().await.ok(),
                None => None,
            };
            let idle = self.idle.as_ref().and_then(|idle| {
                let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
                // A closed connection is dropped, and its place in the pool is free.
                std::iter::from_fn(|| idle.pop()).find(|one| !one.client.is_closed())
            });
            let connection = match idle {
                Some(connection) => connection,
                None => Connection { client: self.pool.get().await?, large_at: None },
            };
            Ok(LentConnection {
                connection: Some(connection),
                home: self.idle.clone(),
                _seat: seat,
            })
        };
        match tokio::time::timeout(self.wait, lend).await {
            Ok(lent) => lent,
            Err(_) => Err(Failure::no_connection()),
        }
    }
}

/// A connection that was lent; dropped, it goes back.
pub(super) struct LentConnection {
    connection: Option<Connection>,
    home: Option<Idle>,
    _seat: Option<OwnedSemaphorePermit>,
}

impl LentConnection {
    /// Closes the connection: it is not used again.
    pub(super) fn close(mut self) {
        self.connection.take().map(|connection| Client::take(connection.client));
    }

    /// Notes the bytes of the payloads that a call carried.
    pub(super) fn carried(&mut self, bytes: usize) {
        if let (Some(connection), LARGE_BYTES..) = (&mut self.connection, bytes) {
            connection.large_at = Some(Instant::now());
        }
    }
}

const HELD: &str = "only `close` and `drop` take it";

impl Deref for LentConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.connection.as_ref().expect(HELD).client
    }
}

impl DerefMut for LentConnection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.connection.as_mut().expect(HELD).client
    }
}

impl Drop for LentConnection {
    fn drop(&mut self) {
        let (Some(connection), Some(home)) = (self.connection.take(), &self.home) else { return };
        let mut idle = home.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(connection);
        for closed in idle.extract_if(.., |one| !one.is_worth_keeping()) {
            drop(Client::take(closed.client));
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
