//! Ways to a PostgreSQL server: poolers, TLS, several hosts, the user's own pool. Each test starts the
//! servers it needs, in a directory of its own.

#![cfg(feature = "postgres")]
// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used)]

mod cluster;
mod own_pool;
mod pooler;
mod standby;
mod tls;
mod work;
