//! Applies the numbered scripts that are missing.
//!
//! Invariant: a script and its record commit together, under a lock that ends with the transaction.
//! So an interrupted script leaves nothing behind, and two nodes apply each script once. Who finds
//! nothing missing writes nothing, and needs no right to.

use deadpool_postgres::Transaction;
use relais_core::{
    BoxFuture,
    store::{MigrationOutcome, StoreError},
};
use tokio_postgres::{Error, Row, error::SqlState};

use super::{error::Failure, session::Client};
use crate::migration::{self, AppliedScript, Script};

/// All scripts, in order.
pub const SCRIPTS: &[Script] = &[
    Script { number: 1, name: "relais", needs: 1, sql: include_str!("migrations/0001_relais.sql") },
    Script {
        number: 2,
        name: "worker_lease",
        needs: 2,
        sql: include_str!("migrations/0002_worker_lease.sql"),
    },
    Script { number: 3, name: "adopt", needs: 2, sql: include_str!("migrations/0003_adopt.sql") },
    Script {
        number: 4,
        name: "lean_outbox",
        needs: 4,
        sql: include_str!("migrations/0004_lean_outbox.sql"),
    },
    Script {
        number: 5,
        name: "sql_interface",
        needs: 4,
        sql: include_str!("migrations/0005_sql_interface.sql"),
    },
    Script {
        number: 6,
        name: "business_keys",
        needs: 4,
        sql: include_str!("migrations/0006_business_keys.sql"),
    },
    Script {
        number: 7,
        name: "adopted_inbox",
        needs: 4,
        sql: include_str!("migrations/0007_adopted_inbox.sql"),
    },
    Script {
        number: 8,
        name: "other_programs",
        needs: 4,
        sql: include_str!("migrations/0008_other_programs.sql"),
    },
];

/// Returns the scripts as one text, for an operator who applies them by hand.
pub fn schema_sql() -> String {
    migration::as_one_transaction(sql!("create_schema"), sql!("record_script"), SCRIPTS)
}

/// The longest wait of one node for another one's migration, or for readers of a table.
const LOCK_TIMEOUT: &str = "60s";

pub(super) async fn migrate(
    client: &mut Client<'_>,
    scripts: &[Script],
) -> Result<MigrationOutcome, Failure> {
    let found = applied(client).await?;
    let mut now = Vec::new();
    for script in migration::missing(scripts, &found)? {
        if apply(client, scripts, script).await? == Turn::First {
            now.push(script);
        }
    }
    Ok(migration::migrated(&found, &now, &applied(client).await?))
}

/// Returns the rows of `relais_schema`; none if there is no such table.
pub(super) async fn applied<R: Reads>(client: &R) -> Result<Vec<AppliedScript>, Failure> {
    let exists = client.read(sql!("schema_exists")).await?;
    if !exists.first().is_some_and(|row| row.get(0)) {
        return Ok(Vec::new());
    }
    // Only an error of the server or of the rows means another table; a lost connection does not.
    let rows = client.read(sql!("applied_scripts")).await.map_err(|error| {
        let odd = error.code() == Some(&SqlState::UNDEFINED_COLUMN);
        match Failure::from(error) {
            Failure::Final(error) if odd => migration::unreadable(&error).into(),
            failure => failure,
        }
    })?;
    let line = |row: &tokio_postgres::Row| {
        Ok(AppliedScript {
            version: row.try_get(0)?,
            name: row.try_get(1)?,
            needs: row.try_get(2)?,
            checksum: row.try_get(3)?,
        })
    };
    rows.iter().map(line).collect::<Result<_, _>>().map_err(|error: tokio_postgres::Error| {
        migration::unreadable(&StoreError::setup(error.to_string())).into()
    })
}

/// Reads without values, inside and outside the transaction of a script.
pub(super) trait Reads: Sync {
    fn read(&self, sql: &'static str) -> BoxFuture<'_, Result<Vec<Row>, Error>>;
}

impl Reads for Client<'_> {
    fn read(&self, sql: &'static str) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(self.query(sql, &[]))
    }
}

impl Reads for Transaction<'_> {
    fn read(&self, sql: &'static str) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(self.query(sql, &[]))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    /// Another node was faster.
    Late,
}

async fn apply(client: &mut Client<'_>, all: &[Script], script: &Script) -> Result<Turn, Failure> {
    let transaction = client.transaction().await?;
    transaction.query_one(sql!("migration_limits"), &[&LOCK_TIMEOUT]).await?;
    transaction.query_one(sql!("lock_schema"), &[]).await?;
    // Again, now that no other process can change them: the first read was without the lock.
    let found = applied(&transaction).await?;
    if migration::missing(all, &found)?.first().map(|next| next.number) != Some(script.number) {
        return Ok(Turn::Late);
    }
    let apply = async {
        transaction.batch_execute(sql!("create_schema")).await?;
        transaction.batch_execute(script.sql).await?;
        let Script { number, name, needs, .. } = script;
        let line = [number as &(dyn tokio_postgres::types::ToSql + Sync), name, needs];
        let checksum = script.checksum();
        let line: Vec<_> = line.into_iter().chain([&checksum as _]).collect();
        transaction.execute(sql!("record_script"), &line).await
    };
    apply.await.map_err(|error| failed(script, error))?;
    crate::fail_point!("migrate.before_commit");
    transaction.commit().await?;
    Ok(Turn::First)
}

/// With what to do about it, where that is known.
fn failed(script: &Script, error: tokio_postgres::Error) -> Failure {
    let code = error.code().cloned();
    let text = error.as_db_error().map(|answer| answer.message().to_owned()).unwrap_or_default();
    // Rolled back because of a concurrent transaction: the caller runs the migration again.
    let error = match Failure::from(error) {
        Failure::Final(error) => error,
        other => return other,
    };
    let in_the_way =
        [SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT, SqlState::DUPLICATE_FUNCTION];
    let (error, next) = match code {
        Some(code) if in_the_way.contains(&code) => {
            (StoreError::setup(error.to_string()), migration::IN_THE_WAY)
        }
        Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
            (StoreError::setup(text), migration::MIGRATE_AS_OWNER)
        }
        _ => (error, ""),
    };
    migration::failed(script, error, next).into()
}
