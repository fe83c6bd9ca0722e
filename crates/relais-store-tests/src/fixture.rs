//! A real database under test, reached in two ways: through the seam, and with plain SQL as a
//! program in another language would.
//!
//! Invariant: a fixture is one database of its own; dropping it leaves nothing behind.

use std::{fmt, sync::Arc};

use relais_core::{
    BoxFuture,
    credential::Credentials,
    store::{MigrationOutcome, StoreDriver, StoreError},
    time::Timestamp,
};
pub use relais_testkit::database::{Dialect, TextRows, quote};

/// One of the two nodes of a fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixtureNode {
    First,
    Second,
}

/// One empty database; the checks migrate it.
pub trait Fixture: Send + Sync {
    /// A node's store.
    fn store(&self) -> Arc<dyn StoreDriver>;

    /// Another node's store on the same database.
    fn second(&self) -> Arc<dyn StoreDriver>;

    /// Calls `once` of the driver on a node, in a transaction of its own.
    fn once(
        &self,
        node: FixtureNode,
        handler: String,
        message_id: String,
    ) -> BoxFuture<'static, Result<bool, StoreError>>;

    /// The secrets of a node.
    fn credentials(&self) -> Arc<dyn Credentials>;

    /// Two nodes that may change the schema, if the others may not.
    fn migrators(&self) -> BoxFuture<'_, [Arc<dyn StoreDriver>; 2]> {
        Box::pin(async move { [self.store(), self.second()] })
    }

    /// Makes the tables, and whatever the nodes need to use them.
    fn migrate(&self) -> BoxFuture<'_, Result<MigrationOutcome, StoreError>> {
        Box::pin(async move { self.store().migrate().await })
    }

    fn dialect(&self) -> Dialect;

    /// Runs one statement outside relais; how many rows it touched.
    fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<u64, String>>;

    /// Reads outside relais.
    fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<TextRows, String>>;

    /// A transaction of another program, on a connection of its own.
    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn RawTransaction>, String>>;
}

/// A transaction outside relais that stays open until it is ended.
pub trait RawTransaction: Send {
    fn execute<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<u64, String>>;
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), String>>;
    fn rollback(self: Box<Self>) -> BoxFuture<'static, Result<(), String>>;
}

impl dyn Fixture + '_ {
    /// An hour ago: expired, due.
    pub fn past(&self) -> String {
        self.dialect().ago(3_600)
    }

    /// In an hour: not due.
    pub fn future(&self) -> String {
        self.dialect().ahead(3_600)
    }

    /// Runs a statement that must succeed.
    ///
    /// # Panics
    /// If it does not.
    pub async fn run(&self, sql: &str) -> u64 {
        self.execute(sql).await.unwrap_or_else(|e| panic!("{e}\n in: {}", head(sql)))
    }

    /// Runs a statement that the schema must refuse.
    ///
    /// # Panics
    /// If it does not.
    pub async fn refuses(&self, sql: &str) {
        if let Ok(rows) = self.execute(sql).await {
            panic!("accepted ({rows} rows) what the schema must refuse: {}", head(sql));
        }
    }

    /// Reads rows.
    ///
    /// # Panics
    /// If the query fails.
    pub async fn rows(&self, sql: &str) -> TextRows {
        self.query(sql).await.unwrap_or_else(|e| panic!("{e}\n in: {}", head(sql)))
    }

    /// The first column of the first row.
    ///
    /// # Panics
    /// If there is no row.
    pub async fn value(&self, sql: &str) -> Option<String> {
        let rows = self.rows(sql).await;
        let first = rows.into_iter().next().and_then(|row| row.into_iter().next());
        first.unwrap_or_else(|| panic!("no row from: {}", head(sql)))
    }

    /// A whole number, such as a count.
    ///
    /// # Panics
    /// If it is none.
    pub async fn number(&self, sql: &str) -> i64 {
        let value = self.value(sql).await;
        let number = value.as_deref().and_then(|text| text.parse().ok());
        number.unwrap_or_else(|| panic!("not a number: {value:?} from: {}", head(sql)))
    }

    /// The database's now.
    ///
    /// # Panics
    /// If the database does not return it.
    pub async fn now(&self) -> Timestamp {
        let text = self.value(&format!("SELECT {}", self.dialect().now())).await;
        text.as_deref().and_then(Timestamp::parse).expect("the database returns its time")
    }
}

impl fmt::Debug for dyn Fixture + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fixture({:?})", self.dialect())
    }
}

/// Enough of a statement to recognise it in a failure.
fn head(sql: &str) -> String {
    const SHOWN_MAX: usize = 300;
    sql.chars().take(SHOWN_MAX).collect()
}
