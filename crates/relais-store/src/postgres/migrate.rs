//! Applies the numbered scripts that are missing.
//!
//! Invariant: a script and its record commit together, under a lock that ends with the transaction.
//! So an interrupted script leaves nothing behind, and two nodes apply each script once.

use deadpool_postgres::{Client, Transaction};
use relais_core::store::Migrated;

use super::{check, error::Failure};
use crate::{
    SCHEMA_VERSION,
    migration::{self, Script},
};

/// All scripts, in order.
pub const SCRIPTS: &[Script] =
    &[Script { number: 1, name: "relais", sql: include_str!("migrations/0001_relais.sql") }];

/// The scripts as one text, for somebody who applies them by hand.
pub fn schema_sql() -> String {
    migration::as_one_transaction(sql!("create_schema"), sql!("record_script"), SCRIPTS)
}

/// How long one node waits for another one's migration, or for readers of a table.
const LOCK_TIMEOUT: &str = "60s";

pub(super) async fn migrate(client: &mut Client) -> Result<Migrated, Failure> {
    let mut migrated = Migrated::default();
    for (nth, script) in SCRIPTS.iter().enumerate() {
        let transaction = client.transaction().await?;
        let version = lock(&transaction).await?;
        check::newer(version)?;
        if nth == 0 {
            migrated.from = version;
        }
        if version < script.number {
            transaction.batch_execute(script.sql).await?;
            transaction.execute(sql!("record_script"), &[&script.number, &script.name]).await?;
            migrated.applied.push(script.name.to_owned());
        }
        transaction.commit().await?;
    }
    migrated.to = SCHEMA_VERSION;
    Ok(migrated)
}

/// Waits for its turn; the version found then.
async fn lock(transaction: &Transaction<'_>) -> Result<i64, Failure> {
    transaction.query_one(sql!("lock_schema"), &[&LOCK_TIMEOUT]).await?;
    transaction.batch_execute(sql!("create_schema")).await?;
    Ok(transaction.query_one(sql!("schema_version"), &[]).await?.get(0))
}
