//! Connections: where, how safe, how many, and for how long one may wait.
//!
//! Statements of three kinds have connections of their own, so that slow ones of one kind delay none of
//! another: see [`Pools`].
//!
//! Invariant: a connection from a pool is never inside a transaction. All transactions are
//! `tokio_postgres::Transaction`, which sends its ROLLBACK when dropped, before anything else can be
//! sent on the connection; a dropped BEGIN or COMMIT does the same or has been sent already.

use std::{sync::Arc, time::Duration};

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Pool, PoolBuilder, RecyclingMethod, Runtime,
};
use relais_core::store::StoreError;
use tokio_postgres::{
    Config, NoTls,
    config::{Host, SslMode},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{error::Failure, mark::Marks};

/// Most connections for leases and heartbeats.
const LANES_MAX: usize = 2;
/// Most connections for accepting, fetching and settling.
const WORK_MAX: usize = 4;

/// How the store uses its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Work even where a power cut may lose what was acknowledged (`fsync`, `full_page_writes` or
    /// `synchronous_commit` off). For tests.
    pub unsafe_durability: bool,
    /// Most connections of [`PostgresStore::pool`](super::PostgresStore::pool): handlers, hydration,
    /// your own transactions, and what operators read. relais opens up to 4 more to accept, fetch and
    /// settle, and up to 2 for leases and heartbeats, but no more of either than this number.
    pub connections_max: usize,
    /// Longest wait for a connection, new or from its pool.
    pub connect_timeout: Duration,
    /// Longest time of one statement, kept by the server.
    pub statement_timeout: Duration,
    /// Longest wait for a lock, kept by the server.
    pub lock_timeout: Duration,
    /// Longest silence inside a transaction, kept by the server.
    pub idle_in_transaction_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            unsafe_durability: false,
            connections_max: 8,
            connect_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(10),
            idle_in_transaction_timeout: Duration::from_secs(30),
        }
    }
}

/// Connections by what they are for. A pool opens them when they are needed first.
#[derive(Clone)]
pub(super) struct Pools {
    /// Leases, heartbeats and what wakes workers: short statements that must never wait.
    pub(super) lanes: Pool,
    /// Accepting, fetching and settling.
    pub(super) work: Pool,
    /// Code and statements of users (handlers, hydration), and what operators read: may take long.
    pub(super) others: Pool,
}

/// Pools of which the first connection has been made. A new connection for fetches forgets the marks: the
/// server may be another one than before, with other rows.
///
/// `sslmode` in the URL: `disable` never encrypts; `require` encrypts and checks the certificate
/// against the machine's roots (`SSL_CERT_FILE` names others); `prefer`, the default, encrypts when
/// the server can prove who it is, and promises nothing.
pub(super) async fn connect(
    url: &str,
    options: PostgresOptions,
    marks: &Arc<Marks>,
) -> Result<Pools, StoreError> {
    if options.connections_max == 0 {
        return Err(StoreError::Setup("connections_max must be at least 1".into()));
    }
    let config = parse(url, &options)?;
    let mode = config.get_ssl_mode();
    if mode == SslMode::Disable {
        return open(|| Ok(plain(config.clone())), options, marks).await;
    }
    match open(|| encrypted(config.clone()), options, marks).await {
        Err(StoreError::Unavailable(_)) if mode == SslMode::Prefer => {
            open(|| Ok(plain(config.clone())), options, marks).await
        }
        other => other,
    }
}

/// Hosts and ports of a database URL, as in `db:5432`; empty if it cannot be read. Nothing else of it is
/// in the text.
pub fn addresses(url: &str) -> String {
    let Ok(config) = url.parse::<Config>() else { return String::new() };
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432);
    let named = config.get_hosts().iter().enumerate().map(|(at, host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(at)),
        #[cfg(unix)]
        Host::Unix(folder) => format!("{}/.s.PGSQL.{}", folder.display(), port(at)),
    });
    named.collect::<Vec<_>>().join(", ")
}

fn parse(url: &str, options: &PostgresOptions) -> Result<Config, StoreError> {
    // The parser's error names the wrong part, never a value.
    let mut config: Config = url.parse().map_err(|error| {
        StoreError::Setup(format!(
            "database URL not understood: {error}; \
             use postgres://user:password@host:5432/database?sslmode=disable|prefer|require"
        ))
    })?;
    if config.get_application_name().is_none() {
        config.application_name("relais");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.connect_timeout);
    }
    // A server that vanished without a word is noticed, and its connection given up.
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(options.statement_timeout.saturating_add(options.connect_timeout));
    }
    Ok(config)
}

fn plain(mut config: Config) -> Manager {
    config.ssl_mode(SslMode::Disable);
    Manager::from_config(config, NoTls, MANAGER)
}

fn encrypted(config: Config) -> Result<Manager, StoreError> {
    // Two providers in one build make rustls panic unless one is chosen; a choice made earlier stays.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (tls, _unreadable) = MakeRustlsConnect::with_native_certs().map_err(|_| {
        StoreError::Unavailable(
            "no root certificates on this machine; install them or set SSL_CERT_FILE".into(),
        )
    })?;
    Ok(Manager::from_config(config, tls, MANAGER))
}

const MANAGER: ManagerConfig = ManagerConfig { recycling_method: RecyclingMethod::Fast };

async fn open(
    manager: impl Fn() -> Result<Manager, StoreError>,
    options: PostgresOptions,
    marks: &Arc<Marks>,
) -> Result<Pools, StoreError> {
    let at_most = |connections: usize| connections.min(options.connections_max);
    let build = |builder: PoolBuilder| {
        builder.build().map_err(|error| StoreError::Setup(error.to_string()))
    };
    let others = build(builder(manager()?, options.connections_max, options))?;
    // The first connection is made now: a wrong address or password shows at once.
    if let Err(error) = others.get().await {
        return Err(Failure::from(error).into_store());
    }
    let marks = Arc::clone(marks);
    let forget = Hook::sync_fn(move |_, _| {
        marks.forget_all();
        Ok(())
    });
    let work = builder(manager()?, at_most(WORK_MAX), options).post_create(forget);
    let lanes = builder(manager()?, at_most(LANES_MAX), options);
    Ok(Pools { lanes: build(lanes)?, work: build(work)?, others })
}

fn builder(manager: Manager, connections: usize, options: PostgresOptions) -> PoolBuilder {
    Pool::builder(manager)
        .max_size(connections)
        .wait_timeout(Some(options.connect_timeout))
        .create_timeout(Some(options.connect_timeout))
        .recycle_timeout(Some(options.connect_timeout))
        .runtime(Runtime::Tokio1)
        .post_create(session_hook(options))
}

/// Sets the limits of each new session.
fn session_hook(options: PostgresOptions) -> Hook {
    let limits =
        [options.statement_timeout, options.lock_timeout, options.idle_in_transaction_timeout]
            .map(|limit| limit.as_millis().to_string());
    Hook::async_fn(move |client, _| {
        let limits = limits.clone();
        Box::pin(async move {
            let [statement, lock, idle] = &limits;
            client
                .query_one(sql!("session"), &[statement, lock, idle])
                .await
                .map(drop)
                .map_err(HookError::Backend)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::addresses;

    #[test]
    fn hosts_and_ports_are_named_and_nothing_else() {
        assert_eq!(addresses("postgres://relais:CANARY@db/app"), "db:5432");
        assert_eq!(addresses("postgres://u:CANARY@a:1,b:2/app?sslmode=require"), "a:1, b:2");
        assert_eq!(addresses("postgres://u@a,b:7/app?password=CANARY"), "a:5432, b:7");
        assert_eq!(addresses("nonsense CANARY"), "");
    }
}
