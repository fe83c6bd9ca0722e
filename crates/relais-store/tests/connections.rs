//! Ways to a PostgreSQL server: poolers, TLS, several hosts, the user's own pool. Each test starts the
//! servers it needs, in a directory of its own.

#![cfg(feature = "postgres")]
// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used)]

#[path = "connections/cluster.rs"]
mod cluster;
#[path = "connections/own_pool.rs"]
mod own_pool;
#[path = "connections/pooler.rs"]
mod pooler;
#[path = "connections/standby.rs"]
mod standby;
#[path = "connections/tls.rs"]
mod tls;
#[path = "connections/work.rs"]
mod work;
