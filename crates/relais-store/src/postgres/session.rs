//! One connection, for as long as one call of the store uses it.
//!
//! The statements of relais need settings: time limits, READ COMMITTED, plans by index. Where the session
//! is ours alone they come with the start of the connection. Where it is not (a pooler, or the user's own
//! pool), the whole call is one transaction, in which they are set.
//!
//! Invariant: relais sets nothing that outlives the transaction. Behind a pooler that shares sessions
//! between transactions, no prepared statement outlives the transaction either.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use deadpool_postgres::Transaction;
use tokio_postgres::{
    Config, Error, IsolationLevel, Row, RowStream, Statement, ToStatement,
    types::{BorrowToSql, ToSql, Type},
};

use super::{connect::PostgresOptions, low_water_mark::Marks};

/// Whose the sessions are.
#[derive(Debug)]
pub(super) struct Sessions {
    /// They are ours alone, and started with the settings.
    ours: AtomicBool,
    /// Each transaction may have another one.
    shared: AtomicBool,
    limits: [String; 3],
    /// When the server was started that answered last, where sessions are not ours.
    server: Mutex<Option<String>>,
}

impl Sessions {
    pub(super) fn new(options: &PostgresOptions) -> Self {
        Self {
            ours: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            limits: limits(options),
            server: Mutex::new(None),
        }
    }

    pub(super) fn set_ours(&self) {
        self.ours.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_shared(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    pub(super) fn are_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    fn are_ours(&self) -> bool {
        self.ours.load(Ordering::Relaxed) && !self.are_shared()
    }

    /// Behind a pooler this is the only sign that the server is another one, with other rows.
    fn answered_by(&self, server: String, marks: &Marks) {
        let mut last = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(&server) {
            marks.forget_all();
            *last = Some(server);
        }
    }
}

/// Statement, lock and silence inside a transaction, in milliseconds.
fn limits(options: &PostgresOptions) -> [String; 3] {
    [options.statement_timeout, options.lock_timeout, options.idle_in_transaction_timeout]
        .map(|limit| limit.as_millis().to_string())
}

/// The settings as options of a new connection.
pub(super) fn startup_options(options: &PostgresOptions) -> String {
    let [statement, lock, idle] = limits(options);
    let mut text = format!(
        "-c statement_timeout={statement} -c lock_timeout={lock} \
         -c idle_in_transaction_session_timeout={idle} \
         -c default_transaction_isolation=read\\ committed -c enable_seqscan=off \
         -c enable_bitmapscan=off -c enable_sort=off -c jit=off \
         -c {STARTED}=on"
    );
    if let Some(schema) = &options.schema {
        let quoted = format!("\"{}\"", schema.replace('"', "\"\""));
        let escaped = quoted.replace('\\', "\\\\").replace(' ', "\\ ");
        text.push_str(&format!(" -c search_path={escaped}"));
    }
    text
}

/// Returns the configuration of connections that only the engine uses. Its statements are written so that one plan
/// serves all values; the server would otherwise plan a fetch again for each of them, which costs a
/// millisecond. What operators read and the statements of users are planned as the server likes.
pub(super) fn of_engine(config: &Config) -> Config {
    let mut engine = config.clone();
    if let Some(options) = config.get_options().filter(|options| options.contains(STARTED)) {
        engine.options(format!("{options} -c plan_cache_mode=force_generic_plan"));
    }
    engine
}

/// The setting that shows that the options of the connection arrived.
pub(super) const STARTED: &str = "relais.started";

/// The view that the statements of a call have of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Each sees what was committed before it.
    Current,
    /// All see the same, and change nothing.
    Snapshot,
}

/// A connection, with the settings that the statements of relais need.
pub(super) struct Client<'c> {
    held: HeldSession<'c>,
    /// The bytes of the payloads that the call sent and read.
    carried: AtomicUsize,
}

enum HeldSession<'c> {
    /// The session has the settings.
    Session(&'c mut deadpool_postgres::Client),
    /// The transaction has the settings; everything happens in it.
    Transaction(Transaction<'c>),
}

/// Calls the same method of what is held.
macro_rules! held {
    ($client:expr, $inner:ident => $call:expr) => {
        match &$client.held {
            HeldSession::Session($inner) => $call,
            HeldSession::Transaction($inner) => $call,
        }
    };
}

impl<'c> Client<'c> {
    /// Begins a call.
    pub(super) async fn begin(
        client: &'c mut deadpool_postgres::Client,
        sessions: &Sessions,
        marks: &Marks,
        view: View,
    ) -> Result<Self, Error> {
        if sessions.are_ours() {
            return Ok(Self::of(HeldSession::Session(client)));
        }
        let builder = deadpool_postgres::ClientWrapper::build_transaction(client);
        let builder = match view {
            View::Current => builder.isolation_level(IsolationLevel::ReadCommitted),
            View::Snapshot => {
                builder.isolation_level(IsolationLevel::RepeatableRead).read_only(true)
            }
        };
        let transaction = builder.start().await?;
        let [statement, lock, idle] = &sessions.limits;
        let values: [(&(dyn ToSql + Sync), Type); 3] =
            [(statement, Type::TEXT), (lock, Type::TEXT), (idle, Type::TEXT)];
        let rows = transaction.query_typed(sql!("session"), &values).await?;
        if let Some(row) = rows.first() {
            sessions.answered_by(row.get(0), marks);
        }
        Ok(Self::of(HeldSession::Transaction(transaction)))
    }

    fn of(held: HeldSession<'c>) -> Self {
        Self { held, carried: AtomicUsize::new(0) }
    }

    /// Notes payloads that the call sends or has read.
    pub(super) fn carries(&self, bytes: usize) {
        self.carried.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of the payloads that the call sent and read.
    pub(super) fn carried(&self) -> usize {
        self.carried.load(Ordering::Relaxed)
    }

    /// Ends a call that succeeded.
    pub(super) async fn end(self, sessions: &Sessions) -> Result<(), Error> {
        match self.held {
            HeldSession::Session(_) => Ok(()),
            HeldSession::Transaction(transaction) => {
                forget_statements(&transaction, sessions);
                transaction.commit().await
            }
        }
    }

    /// Ends a call that failed: what it did is rolled back.
    pub(super) fn give_up(self, sessions: &Sessions) {
        if let HeldSession::Transaction(transaction) = self.held {
            forget_statements(&transaction, sessions);
        }
    }

    /// Returns true if everything happens in one transaction, so that a statement that fails ends the call.
    pub(super) fn is_in_transaction(&self) -> bool {
        matches!(self.held, HeldSession::Transaction(_))
    }

    /// A transaction inside the call.
    pub(super) async fn transaction(&mut self) -> Result<Transaction<'_>, Error> {
        match &mut self.held {
            HeldSession::Session(client) => client.transaction().await,
            HeldSession::Transaction(transaction) => transaction.transaction().await,
        }
    }

    /// A transaction that reads one snapshot; the call must have begun as [`View::Snapshot`].
    pub(super) async fn snapshot(&mut self) -> Result<Transaction<'_>, Error> {
        match &mut self.held {
            HeldSession::Session(client) => {
                let builder = deadpool_postgres::ClientWrapper::build_transaction(client);
                let level = IsolationLevel::RepeatableRead;
                builder.isolation_level(level).read_only(true).start().await
            }
            HeldSession::Transaction(transaction) => transaction.transaction().await,
        }
    }

    pub(super) async fn prepare_cached(&self, sql: &str) -> Result<Statement, Error> {
        held!(self, held => held.prepare_cached(sql).await)
    }

    pub(super) async fn prepare(&self, sql: &str) -> Result<Statement, Error> {
        held!(self, held => held.prepare(sql).await)
    }

    pub(super) async fn query<T: ?Sized + ToStatement>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        held!(self, held => held.query(statement, values).await)
    }

    pub(super) async fn query_typed(
        &self,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        held!(self, held => held.query_typed(sql, values).await)
    }

    pub(super) async fn query_one<T: ?Sized + ToStatement>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Error> {
        held!(self, held => held.query_one(statement, values).await)
    }

    pub(super) async fn query_opt<T: ?Sized + ToStatement>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Error> {
        held!(self, held => held.query_opt(statement, values).await)
    }

    pub(super) async fn query_raw<T, P, I>(
        &self,
        statement: &T,
        values: I,
    ) -> Result<RowStream, Error>
    where
        T: ?Sized + ToStatement,
        P: BorrowToSql,
        I: IntoIterator<Item = P>,
        I::IntoIter: ExactSizeIterator,
    {
        held!(self, held => held.query_raw(statement, values).await)
    }

    pub(super) async fn execute<T: ?Sized + ToStatement>(
        &self,
        statement: &T,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        held!(self, held => held.execute(statement, values).await)
    }
}

/// Sent to the server before the end of the transaction: afterwards the session may be another one.
fn forget_statements(transaction: &Transaction<'_>, sessions: &Sessions) {
    if sessions.are_shared() {
        transaction.statement_cache.clear();
    }
}
