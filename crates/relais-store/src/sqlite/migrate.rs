//! Brings the file's schema up to date.
//!
//! Invariant: a script and its line in `relais_schema` commit together, under the write lock, after
//! looking again at what is there. So two processes do not apply it twice, and a process that dies
//! leaves either all of a script or nothing.

use relais_core::store::{Migrated, StoreError};
use rusqlite::{Connection, Transaction};

use super::{check, error, writer::Writer};
use crate::{
    SCHEMA_VERSION,
    migration::{self, Script},
};

/// The scripts of this driver, in order.
pub const SCRIPTS: &[Script] =
    &[Script { number: 1, name: "relais", sql: include_str!("migrations/0001_relais.sql") }];

const CREATE_SCHEMA: &str = include_str!("sql/create_schema.sql");
const VERSION: &str = include_str!("sql/schema_version.sql");
const RECORD: &str = include_str!("sql/record_script.sql");

/// The scripts as one text, for somebody who applies them by hand.
pub fn schema_sql() -> String {
    migration::as_one_transaction(CREATE_SCHEMA, RECORD, SCRIPTS)
}

/// Applies what is missing.
pub(super) async fn migrate(writer: &Writer) -> Result<Migrated, StoreError> {
    let from = writer.run(begin).await?;
    let mut migrated = Migrated { from, to: from, applied: Vec::new() };
    for script in SCRIPTS {
        if writer.run(move |tx| apply(tx, script)).await? == Applied::Now {
            migrated.applied.push(script.name.to_owned());
        }
        migrated.to = migrated.to.max(script.number);
    }
    Ok(migrated)
}

/// The number of the last script applied; 0 for a file without relais's tables.
pub(super) fn version(db: &Connection) -> Result<i64, StoreError> {
    match db.prepare_cached(VERSION).and_then(|mut s| s.query_row([], |row| row.get(0))) {
        Ok(version) => Ok(version),
        Err(missing) if missing.to_string().contains("no such table") => Ok(0),
        Err(other) => Err(error::store(&other)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Applied {
    Now,
    Before,
}

fn begin(tx: &Transaction<'_>) -> Result<i64, StoreError> {
    let found = version(tx)?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::Setup(check::newer_schema(found)));
    }
    tx.execute_batch(CREATE_SCHEMA).map_err(|e| error::store(&e))?;
    Ok(found)
}

fn apply(tx: &Transaction<'_>, script: &Script) -> Result<Applied, StoreError> {
    if version(tx)? >= script.number {
        return Ok(Applied::Before);
    }
    let failed = |e: rusqlite::Error| {
        let why = error::store(&e);
        StoreError::Setup(format!("migration {} `{}`: {why}", script.number, script.name))
    };
    tx.execute_batch(script.sql).map_err(failed)?;
    tx.execute(RECORD, (script.number, script.name)).map_err(failed)?;
    Ok(Applied::Now)
}
