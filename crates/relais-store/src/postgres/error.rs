//! Classifies errors of the client by what the caller may do.
//!
//! Invariant: only the server's one-line message gets into an error, never its detail, which may
//! quote a row.

use deadpool_postgres::{HookError, PoolError};
use relais_core::store::{DriverError, StoreError};
use tokio_postgres::error::SqlState;

/// Why a transaction did not happen.
#[derive(Debug)]
pub(super) enum Failure {
    /// Rolled back because of others (deadlock, serialisation): run the whole transaction again.
    Again(StoreError),
    /// A statement was prepared in another session: a pooler gives each transaction one.
    SessionChanged(StoreError),
    Final(StoreError),
}

impl Failure {
    pub(super) fn into_store(self) -> StoreError {
        match self {
            Self::Again(error) | Self::SessionChanged(error) | Self::Final(error) => error,
        }
    }
}

impl Failure {
    pub(super) fn no_connection() -> Self {
        Self::Final(StoreError::unavailable(
            "no free connection in time: the server does not answer, or all connections are in use; check \
             the server and slow queries, or raise `store.connections`",
        ))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Final(error)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) => {
                let cause = DriverError::new(db.code().code(), db.message());
                of_server(cause.constraint(db.constraint()))
            }
            None => Self::Final(StoreError::unavailable(with_sources(&error)).caused_by(error)),
        }
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                error.into()
            }
            PoolError::Timeout(_) => Self::no_connection(),
            other => Self::Final(StoreError::unavailable(other.to_string()).caused_by(other)),
        }
    }
}

#[cfg(feature = "sqlx-postgres")]
impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        match error.as_database_error() {
            Some(db) => {
                let cause = DriverError::new(db.code().unwrap_or_default(), db.message());
                of_server(cause.constraint(db.constraint()))
            }
            None => Self::Final(StoreError::unavailable(error.to_string()).caused_by(error)),
        }
    }
}

/// Classifies an error that the server reported, and keeps it as the cause.
fn of_server(cause: DriverError) -> Failure {
    let failure = by_constraint(cause.constraint.as_deref());
    match failure.unwrap_or_else(|| by_code(&cause.code, &cause.message)) {
        Failure::Again(error) => Failure::Again(error.caused_by(cause)),
        Failure::SessionChanged(error) => Failure::SessionChanged(error.caused_by(cause)),
        Failure::Final(error) => Failure::Final(error.caused_by(cause)),
    }
}

/// Ids are drawn from a sequence and cannot be there already, unless the sequence is behind its table.
/// That is no fault of the message.
fn by_constraint(constraint: Option<&str>) -> Option<Failure> {
    let (_, table) = BY_SEQUENCE.into_iter().find(|(name, _)| Some(*name) == constraint)?;
    Some(Failure::Final(StoreError::setup(format!(
        "cannot store a row: the sequence of {table}.id is behind its table, as after a logical \
         replication switch-over; run SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT \
         max(id) FROM {table}))"
    ))))
}

/// Primary keys whose values are drawn from a sequence.
const BY_SEQUENCE: [(&str, &str); 3] = [
    ("relais_inbox_pkey", "relais_inbox"),
    ("relais_outbox_pkey", "relais_outbox"),
    ("relais_audit_pkey", "relais_audit"),
];

/// PgBouncer's words for a transaction in a mode that has none.
const STATEMENT_MODE: &str = "not allowed in statement pooling mode";

/// The consequence of a server's error code.
fn by_code(code: &str, message: &str) -> Failure {
    let state = SqlState::from_code(code);
    let text = format!("{message} (SQLSTATE {code})");
    let again = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        // A plan from before a migration: the next try plans again.
        SqlState::FEATURE_NOT_SUPPORTED,
    ];
    if again.contains(&state) {
        return Failure::Again(StoreError::unavailable(text));
    }
    let changed = [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT];
    if changed.contains(&state) {
        return Failure::SessionChanged(StoreError::unavailable(text));
    }
    if message.contains(STATEMENT_MODE) {
        let next = "set `pool_mode = transaction` or `session` in pgbouncer.ini";
        return Failure::Final(StoreError::setup(format!("{text}; {next}")));
    }
    let missing = [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN];
    Failure::Final(if missing.contains(&state) {
        StoreError::setup(format!("{text}; run `relais migrate`"))
    } else if state == SqlState::INSUFFICIENT_PRIVILEGE {
        StoreError::setup(format!(
            "{text}; grant it (`relais migrate --roles` prints what each role needs), or connect as \
             another role"
        ))
    } else if matches!(code.get(..2), Some("28" | "3D" | "3F")) {
        StoreError::setup(format!("{text}; check user, password, database and schema in the URL"))
    } else if state == SqlState::IN_FAILED_SQL_TRANSACTION
        || matches!(code.get(..2), Some("09" | "22" | "23" | "27" | "44" | "54" | "P0"))
    {
        StoreError::invalid(text)
    } else {
        StoreError::unavailable(text)
    })
}

/// The error with what lies behind it: the outer text alone is often only "error connecting".
pub(super) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, expected: &str) {
        let failure = by_code(code, "message");
        let kind = match &failure {
            Failure::Again(_) => "again",
            Failure::SessionChanged(_) => "session changed",
            Failure::Final(StoreError::Unavailable(_)) => "unavailable",
            Failure::Final(StoreError::Invalid(_)) => "invalid",
            Failure::Final(StoreError::Setup(_)) => "setup",
            Failure::Final(_) => "unknown",
        };
        assert_eq!(kind, expected, "SQLSTATE {code}");
    }

    #[test]
    fn a_code_becomes_what_the_caller_may_do() {
        for code in ["40001", "40P01"] {
            check(code, "again");
        }
        for code in ["26000", "42P05"] {
            check(code, "session changed");
        }
        for code in ["57P01", "53300", "53100", "55P03", "57014", "08006", "25006", "XX000", "?"] {
            check(code, "unavailable");
        }
        for code in ["22P02", "22021", "23505", "23514", "54000", "25P02"] {
            check(code, "invalid");
        }
        // `RAISE EXCEPTION` of a trigger of the application, and what else refuses a change.
        for code in ["P0001", "P0004", "09000", "27000", "44000"] {
            check(code, "invalid");
        }
        for code in ["42P01", "42501", "28P01", "3D000"] {
            check(code, "setup");
        }
        let text = by_code("42P01", "relation \"relais_outbox\" does not exist").into_store();
        assert!(text.to_string().contains("run `relais migrate`"));
        let words = "transaction blocks not allowed in statement pooling mode";
        let pooler = by_code("08P01", words).into_store();
        assert!(
            matches!(&pooler, StoreError::Setup(text) if text.contains("pool_mode")),
            "{pooler}"
        );
    }

    #[test]
    fn the_code_of_the_server_stays_readable_for_programs() {
        let cause = DriverError::new("23505", "duplicate key").constraint(Some("orders_pkey"));
        assert_eq!(of_server(cause).into_store().code(), Some("23505"));
        let cause = DriverError::new("23505", "duplicate").constraint(Some("relais_inbox_pkey"));
        let behind = of_server(cause).into_store();
        assert!(matches!(&behind, StoreError::Setup(text) if text.contains("setval")), "{behind}");
        assert_eq!(behind.code(), Some("23505"));
    }
}
