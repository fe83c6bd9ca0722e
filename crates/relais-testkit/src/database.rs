//! A test's own database, reached in two ways: through relais's store, and with plain SQL.
//!
//! Invariant: what is asked here goes over a connection of its own, never over one that the code under
//! test uses.

mod dialect;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::{fmt, sync::Arc};

use relais_core::{BoxFuture, store::StoreDriver};

pub use self::dialect::{Dialect, quote};
#[cfg(feature = "postgres")]
pub use self::postgres::PostgresScratch;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteScratch;

/// Rows as text, as any client could show them.
pub type TextRows = Vec<Vec<Option<String>>>;

/// The answer of a database that did not run a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestDatabaseError(String);

impl fmt::Display for TestDatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TestDatabaseError {}

/// A database that a test may look into and change. `SqliteStore` and `PostgresStore` are such, and
/// what [`scratch`] makes.
pub trait Database: Send + Sync {
    /// Returns the store.
    fn store(&self) -> Arc<dyn StoreDriver>;

    /// Returns the dialect of its SQL.
    fn dialect(&self) -> Dialect;

    /// Runs one statement outside relais; how many rows it touched.
    fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<u64, TestDatabaseError>>;

    /// Reads outside relais.
    fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<TextRows, TestDatabaseError>>;
}

impl<D: Database + ?Sized> Database for Arc<D> {
    fn store(&self) -> Arc<dyn StoreDriver> {
        (**self).store()
    }

    fn dialect(&self) -> Dialect {
        (**self).dialect()
    }

    fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<u64, TestDatabaseError>> {
        (**self).execute(sql)
    }

    fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<TextRows, TestDatabaseError>> {
        (**self).query(sql)
    }
}

/// Databases that exist as long as the value does.
pub mod scratch {
    /// A file in a directory of its own, with relais's tables. It does not survive a power cut: that
    /// makes it fast.
    ///
    /// # Panics
    /// If it cannot be made.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite() -> super::SqliteScratch {
        super::SqliteScratch::create().await
    }

    /// A schema of its own on this server, with relais's tables.
    ///
    /// # Panics
    /// If it cannot be made.
    #[cfg(feature = "postgres")]
    pub async fn postgres(server_url: &str) -> super::PostgresScratch {
        super::PostgresScratch::create(server_url).await
    }
}

/// Runs SQL that must succeed.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
async fn run(database: &dyn Database, sql: &str) -> u64 {
    database.execute(sql).await.unwrap_or_else(|error| panic!("{error}\n in: {sql}"))
}
