//! Connections: where, how safe, how many, and for how long one may wait.
//!
//! Invariant: a connection from a pool is never inside a transaction. All transactions are
//! `tokio_postgres::Transaction`, which sends its ROLLBACK when dropped, before anything else can be
//! sent on the connection; a dropped BEGIN or COMMIT does the same or has been sent already.

use std::{sync::Arc, time::Duration};

use deadpool_postgres::{Client, Hook, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use relais_core::{InvalidSettings, store::StoreError};
use rustls::ClientConfig;
use tokio_postgres::{
    Config, NoTls, SimpleQueryMessage,
    config::{Host, SslMode},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    error::Failure,
    low_water_mark::Marks,
    pools::{Lender, Pools, Shares},
    session::{self, Sessions},
    tls,
    words::{self, Trust},
};

/// Longest name of a schema, in bytes.
const SCHEMA_MAX: usize = 63;
/// Comparisons of two connections that show whether they share sessions.
const COMPARISONS: usize = 4;

/// Options of a [`PostgresStore`](super::PostgresStore).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// Work even where a power cut may lose what was acknowledged (`fsync`, `full_page_writes` or
    /// `synchronous_commit` off). For tests.
    pub unsafe_durability: bool,
    /// The schema of the tables. It must exist. Without it, the first of the `search_path`.
    pub schema: Option<String>,
    /// Most connections to the server, at least 4; 14 unless you say otherwise. Up to 2 are for leases
    /// and heartbeats, up to 4 to accept, fetch and settle. Handlers, hydration, your own transactions
    /// ([`PostgresStore::pool`](super::PostgresStore::pool)) and what operators read share the others.
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

relais_core::setters!(PostgresOptions {
    /// Allows a server whose configuration may lose commits in a power cut. For tests.
    unsafe_durability: = bool,
    /// Sets the number of connections to the server, at least 4.
    connections_max: = usize,
    /// Sets the longest wait for a connection.
    connect_timeout: = Duration,
    /// Sets the longest time of one statement.
    statement_timeout: = Duration,
    /// Sets the longest wait for a lock.
    lock_timeout: = Duration,
    /// Sets the longest idle time inside a transaction.
    idle_in_transaction_timeout: = Duration,
});

impl PostgresOptions {
    /// Sets the schema of the tables. It must exist.
    #[must_use]
    pub fn schema(mut self, schema: &str) -> Self {
        self.schema = Some(schema.to_owned());
        self
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            unsafe_durability: false,
            schema: None,
            connections_max: 14,
            connect_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(10),
            idle_in_transaction_timeout: Duration::from_secs(30),
        }
    }
}

/// A store's connections, and what is known of them.
pub(super) struct StoreConnections {
    pub(super) pools: Pools,
    pub(super) sessions: Arc<Sessions>,
    /// Warnings for the operator, as sentences.
    pub(super) warnings: Vec<String>,
}

/// Connects to what a URL names, in libpq's words.
pub(super) async fn by_url(
    url: &str,
    options: &PostgresOptions,
    marks: &Arc<Marks>,
) -> Result<StoreConnections, StoreError> {
    let (config, encryption) = words::parse(url)?;
    if encryption.mode == SslMode::Disable || is_local(&config) {
        return by_config(config, None, options, marks).await;
    }
    let tls = tls::client(&encryption)?;
    let text = match by_config(config.clone(), Some(tls), options, marks).await {
        Err(StoreError::Unavailable(text)) if text.contains(NO_TLS) => text,
        // As libpq does: the server may have a rule for plain connections only.
        Err(StoreError::Setup(text))
            if encryption.mode == SslMode::Prefer && text.contains(NO_RULE) =>
        {
            text
        }
        other => return other,
    };
    if encryption.mode != SslMode::Prefer {
        return Err(StoreError::setup(format!("{text}; {}", tls_next(encryption.trust, &text))));
    }
    let mut connected = by_config(config, None, options, marks).await?;
    connected.warnings.push(format!(
        "connected to PostgreSQL without encryption ({text}); use `sslmode=verify-full`, or \
         `sslmode=disable` if that is intended"
    ));
    Ok(connected)
}

/// The driver's words for a handshake that failed, and for a server without TLS.
const NO_TLS: &str = "error performing TLS handshake";
/// The server's words for a connection that no rule allows.
const NO_RULE: &str = "no pg_hba.conf entry";

/// The driver's words for a server that has TLS turned off.
const TLS_OFF: &str = "server does not support TLS";

fn tls_next(trust: Trust, text: &str) -> &'static str {
    match trust {
        Trust::Unchecked => "turn `ssl` on in the server, or set `sslmode=disable`",
        _ if text.contains(TLS_OFF) => "turn `ssl` on in the server",
        _ if text.contains("CaUsedAsEndEntity") => {
            "the certificate of the server is one of an authority (`CA:TRUE`); issue one with `CA:FALSE` for \
             the server, signed by this authority, and name the authority in `sslrootcert`"
        }
        _ if text.contains("UnsupportedCertVersion") => {
            "the certificate of the server is X.509 version 1; issue one of version 3, with the host in its \
             subjectAltName"
        }
        _ => {
            "`sslrootcert` must name the file with the authority that issued the server's \
             certificate; `sslmode=verify-full` also needs the host of the URL in it"
        }
    }
}

/// Connections inside one machine, by socket files.
fn is_local(config: &Config) -> bool {
    let hosts = config.get_hosts();
    !hosts.is_empty() && !hosts.iter().any(|host| matches!(host, Host::Tcp(_)))
}

/// Connects by the driver's configuration. With a TLS configuration the connection is encrypted, or
/// fails.
pub(super) async fn by_config(
    mut config: Config,
    tls: Option<ClientConfig>,
    options: &PostgresOptions,
    marks: &Arc<Marks>,
) -> Result<StoreConnections, StoreError> {
    check_schema(options)?;
    let shares = Shares::of(options.connections_max)?;
    config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
    complete(&mut config, options);
    let bare = config.clone();
    let theirs = config.get_options().unwrap_or_default().to_owned();
    config.options(format!("{theirs} {}", session::startup_options(options)).trim());
    let tls = tls.map(MakeRustlsConnect::new);
    let open = |config: &Config| open(config, tls.as_ref(), shares, options, marks);
    let pools = open(&config)?;
    let pools = match probe(&pools.handlers).await {
        // A pooler that takes no options; those of the URL cannot be left out.
        Err(StoreError::Unavailable(text)) if text.contains(NO_OPTIONS) => {
            if !theirs.is_empty() {
                return Err(StoreError::setup(format!(
                    "{text}; remove `options` from the database URL, or set \
                     `ignore_startup_parameters = options` in pgbouncer.ini"
                )));
            }
            open(&bare)?
        }
        Err(error) => return Err(error),
        Ok(_) => pools,
    };
    judge(pools, options).await
}

/// PgBouncer's words for a connection with options.
const NO_OPTIONS: &str = "unsupported startup parameter";

/// Uses the user's own pool.
pub(super) async fn by_pool(
    pool: Pool,
    options: &PostgresOptions,
) -> Result<StoreConnections, StoreError> {
    check_schema(options)?;
    judge(Pools::of_user(pool, options.connect_timeout).await?, options).await
}

fn check_schema(options: &PostgresOptions) -> Result<(), StoreError> {
    match &options.schema {
        Some(name) if name.is_empty() || name.len() > SCHEMA_MAX || name.contains('\0') => {
            Err(StoreError::setup(format!(
                "`schema` must be a name of 1 to {SCHEMA_MAX} bytes, without quotes around it"
            )))
        }
        _ => Ok(()),
    }
}

/// Checks a database URL without a connection.
///
/// # Errors
/// Returns what to change in it. The text holds no part of a password.
pub fn check_url(url: &str) -> Result<(), InvalidSettings> {
    let error = match words::parse(url) {
        Ok(_) => return Ok(()),
        Err(error) => error.to_string(),
    };
    let why = error.split_once("cannot read the database URL: ").map(|(_, why)| why.to_owned());
    Err(InvalidSettings::new(why.unwrap_or(error)))
}

/// Returns hosts and ports of a database URL, as in `db:5432`; empty if it is invalid. Nothing else of it is
/// in the text.
pub fn addresses(url: &str) -> String {
    let Ok((config, _)) = words::parse(url) else { return String::new() };
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432);
    let named = config.get_hosts().iter().enumerate().map(|(at, host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(at)),
        #[cfg(unix)]
        Host::Unix(folder) => format!("{}/.s.PGSQL.{}", folder.display(), port(at)),
    });
    named.collect::<Vec<_>>().join(", ")
}

fn complete(config: &mut Config, options: &PostgresOptions) {
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
}

/// A new connection for fetches forgets the marks: the server may be another one than before, with other
/// rows.
fn open(
    config: &Config,
    tls: Option<&MakeRustlsConnect>,
    shares: Shares,
    options: &PostgresOptions,
    marks: &Arc<Marks>,
) -> Result<Pools, StoreError> {
    let pool = |config: &Config, connections: usize, created: Option<Hook>| {
        let method = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match tls {
            Some(tls) => Manager::from_config(config.clone(), tls.clone(), method),
            None => Manager::from_config(config.clone(), NoTls, method),
        };
        let mut builder = Pool::builder(manager)
            .max_size(connections)
            .wait_timeout(Some(options.connect_timeout))
            .create_timeout(Some(options.connect_timeout))
            .recycle_timeout(Some(options.connect_timeout))
            .runtime(Runtime::Tokio1);
        if let Some(hook) = created {
            builder = builder.post_create(hook);
        }
        builder.build().map_err(|error| StoreError::setup(error.to_string()))
    };
    let marks = Arc::clone(marks);
    let forget = Hook::sync_fn(move |_, _| {
        marks.forget_all();
        Ok(())
    });
    let engine = session::of_engine(config);
    let others = pool(config, shares.others, None)?;
    // Waiting and connecting have a limit each.
    let wait = options.connect_timeout * 2;
    Ok(Pools {
        lanes: Lender::owned(pool(&engine, shares.lanes, None)?, wait),
        work: Lender::owned(pool(&engine, shares.work, Some(forget))?, wait),
        others: Lender::shared(others.clone(), wait),
        handlers: others,
    })
}

/// Finds out whose the sessions are, and whether they see the schema.
async fn judge(pools: Pools, options: &PostgresOptions) -> Result<StoreConnections, StoreError> {
    let sessions = Sessions::new(options);
    let seen = probe(&pools.handlers).await?;
    if seen.started {
        sessions.set_ours();
    }
    if share_sessions(&pools).await? {
        sessions.set_shared();
    }
    match &options.schema {
        Some(schema) if seen.schema.as_deref() != Some(schema) => {
            let why = if seen.started {
                format!(
                    "cannot use the schema `{schema}`: it does not exist, or this role may not use \
                     it; run CREATE SCHEMA \"{schema}\" or GRANT USAGE ON SCHEMA \"{schema}\" TO {}",
                    seen.role
                )
            } else {
                format!(
                    "cannot use the schema `{schema}`: sessions of this pool begin in {}; run ALTER \
                     ROLE {} SET search_path = \"{schema}\", or connect without a pooler",
                    seen.schema.as_deref().unwrap_or("no schema"),
                    seen.role
                )
            };
            Err(StoreError::setup(why))
        }
        _ => Ok(StoreConnections { pools, sessions: Arc::new(sessions), warnings: Vec::new() }),
    }
}

/// Facts about a session.
struct SessionFacts {
    /// It began with our options.
    started: bool,
    schema: Option<String>,
    role: String,
}

async fn probe(pool: &Pool) -> Result<SessionFacts, StoreError> {
    let client = pool.get().await.map_err(|error| Failure::from(error).into_store())?;
    let values = ask(&client, sql!("probe")).await?;
    let [started, schema, role] = &values[..] else {
        return Err(StoreError::unavailable("the server answered something else"));
    };
    Ok(SessionFacts {
        started: started.as_deref() == Some("on"),
        schema: schema.clone(),
        role: role.clone().unwrap_or_default(),
    })
}

/// Compares the sessions behind two connections that are open at the same time. In one session each, they
/// never meet in the same one, and neither ever changes.
async fn share_sessions(pools: &Pools) -> Result<bool, StoreError> {
    let first = pools.handlers.get().await.map_err(|error| Failure::from(error).into_store())?;
    let second = pools.lanes.get().await.map_err(Failure::into_store)?;
    let mut seen: Option<(String, String)> = None;
    for _ in 0..COMPARISONS {
        let one = backend(&first).await?;
        let two = backend(&second).await?;
        let same = seen.get_or_insert_with(|| (one.clone(), two.clone()));
        if one == two || *same != (one, two) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn backend(client: &Client) -> Result<String, StoreError> {
    let mut values = ask(client, sql!("backend")).await?;
    Ok(values.pop().flatten().unwrap_or_default())
}

/// The first row of a statement, as text, without preparing it.
async fn ask(client: &Client, sql: &str) -> Result<Vec<Option<String>>, StoreError> {
    let answers =
        client.simple_query(sql).await.map_err(|error| Failure::from(error).into_store())?;
    let row = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let values = row.map(|row| (0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
    Ok(values.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{Trust, addresses, check_url, tls_next};

    #[test]
    fn an_error_of_tls_names_its_own_next_step() {
        let cause = "error performing TLS handshake: invalid peer certificate: Other(OtherError(";
        for (text, next) in [
            ("error performing TLS handshake: server does not support TLS", "turn `ssl` on"),
            (&*format!("{cause}CaUsedAsEndEntity))"), "`CA:FALSE`"),
            (&*format!("{cause}UnsupportedCertVersion))"), "version 3"),
            (
                "error performing TLS handshake: invalid peer certificate: UnknownIssuer",
                "`sslrootcert` must",
            ),
        ] {
            assert!(tls_next(Trust::Host, text).contains(next), "{text}");
            assert!(tls_next(Trust::Unchecked, text).contains("`sslmode=disable`"));
        }
    }

    #[test]
    fn hosts_and_ports_are_named_and_nothing_else() {
        assert_eq!(addresses("postgres://relais:CANARY@db/app"), "db:5432");
        assert_eq!(addresses("postgres://u:CANARY@a:1,b:2/app?sslmode=verify-full"), "a:1, b:2");
        assert_eq!(addresses("postgres://u@a,b:7/app?password=CANARY"), "a:5432, b:7");
        assert_eq!(addresses("nonsense CANARY"), "");
    }

    #[test]
    fn a_wrong_url_is_refused_with_what_to_change() {
        assert_eq!(check_url("postgres://relais:CANARY@db/app?sslmode=allow"), Ok(()));
        for (query, part) in [
            ("sslmode=verifyfull", "`sslmode` must be"),
            ("passfile=x", "`passfile` is not supported"),
            ("target_session_attrs=standby", "`target_session_attrs` must be"),
        ] {
            let url = format!("postgres://relais:CANARY@db/app?{query}");
            let why = check_url(&url).unwrap_err().to_string();
            assert!(why.starts_with(part) && !why.contains("CANARY"), "{why}");
        }
    }
}
