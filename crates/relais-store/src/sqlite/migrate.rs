//! Brings the file's schema up to date.
//!
//! Invariant: a script and its line in `relais_schema` commit together, under the write lock, after
//! looking again at what is there. So two processes do not apply it twice, and a process that dies
//! leaves either all of a script or nothing.

use std::time::{Duration, Instant};

use relais_core::store::{MigrationOutcome, StoreError};
use rusqlite::{
    Connection, ErrorCode, Transaction,
    ffi::{SQLITE_BUSY, SQLITE_LOCKED},
};

use super::{error, writer::Writer};
use crate::migration::{self, AppliedScript, Script};

/// The scripts of this driver, in order.
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

const CREATE_SCHEMA: &str = include_str!("sql/create_schema.sql");
const APPLIED: &str = include_str!("sql/applied_scripts.sql");
const RECORD: &str = include_str!("sql/record_script.sql");

/// Longest wait for another process that migrates the same file, as on PostgreSQL. The busy time-out of the
/// file is shorter than a migration on a slow disk.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Returns the scripts as one text, for an operator who applies them by hand.
pub fn schema_sql() -> String {
    migration::as_one_transaction(CREATE_SCHEMA, RECORD, SCRIPTS)
}

/// Applies what is missing.
pub(super) async fn migrate(
    writer: &Writer,
    scripts: &'static [Script],
) -> Result<MigrationOutcome, StoreError> {
    let found = when_unlocked(writer, |tx| applied(tx)).await?;
    let mut now = Vec::new();
    for script in migration::missing(scripts, &found)? {
        if when_unlocked(writer, move |tx| apply(tx, scripts, script)).await? == Turn::First {
            now.push(script);
        }
    }
    let after = when_unlocked(writer, |tx| applied(tx)).await?;
    Ok(migration::migrated(&found, &now, &after))
}

/// Runs a job of the writer; waits while another process migrates the file.
async fn when_unlocked<T, F>(writer: &Writer, job: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Fn(&Transaction<'_>) -> Result<T, StoreError> + Copy + Send + 'static,
{
    let started = Instant::now();
    loop {
        match writer.run(job).await {
            Err(error) if is_locked(&error) && started.elapsed() < LOCK_TIMEOUT => {
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Returns true if another process holds the write lock. The low byte of SQLite's extended code is the
/// code itself.
fn is_locked(error: &StoreError) -> bool {
    let code = error.code().and_then(|code| code.parse::<i32>().ok());
    code.is_some_and(|code| [SQLITE_BUSY, SQLITE_LOCKED].contains(&(code & 0xff)))
}

/// Returns the rows of `relais_schema`; none if there is no such table.
pub(super) fn applied(db: &Connection) -> Result<Vec<AppliedScript>, StoreError> {
    let read = || {
        let mut statement = db.prepare_cached(APPLIED)?;
        let lines = statement.query_map([], |row| {
            Ok(AppliedScript {
                version: row.get(0)?,
                name: row.get(1)?,
                needs: row.get(2)?,
                checksum: row.get(3)?,
            })
        })?;
        lines.collect::<Result<Vec<_>, _>>()
    };
    read().or_else(|failed: rusqlite::Error| match failed.to_string() {
        text if text.contains("no such table: relais_schema") => Ok(Vec::new()),
        text if text.contains("no such column") => {
            Err(migration::unreadable(&StoreError::setup(text)))
        }
        _ => Err(error::store(&failed)),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    /// Another process was faster.
    Late,
}

fn apply(tx: &Transaction<'_>, all: &[Script], script: &Script) -> Result<Turn, StoreError> {
    if migration::missing(all, &applied(tx)?)?.first().map(|next| next.number)
        != Some(script.number)
    {
        return Ok(Turn::Late);
    }
    let Script { number, name, needs, sql } = script;
    tx.execute_batch(CREATE_SCHEMA)
        .and_then(|()| tx.execute_batch(sql))
        .and_then(|()| tx.execute(RECORD, (number, name, needs, script.checksum())))
        .map_err(|error| failed(script, &error))?;
    crate::fail_point!("migrate.before_commit");
    Ok(Turn::First)
}

fn failed(script: &Script, failed: &rusqlite::Error) -> StoreError {
    let text = failed.to_string();
    let next = if text.contains("already exists") { migration::IN_THE_WAY } else { "" };
    let error = match failed.sqlite_error_code() {
        // A statement that SQLite cannot run in this file: trying again does not help.
        Some(ErrorCode::Unknown) => StoreError::setup(text),
        _ => error::store(failed),
    };
    migration::failed(script, error, next)
}
