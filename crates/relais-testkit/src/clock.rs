//! Time passes when the test says so.
//!
//! Only database time decides in relais, and a database's clock cannot be set. So everything that
//! relais has written down is made older instead: what was due in an hour is due, a lease of ten
//! seconds has run out, a row of yesterday is past its retention.

use std::time::Duration;

use crate::database::{Database, Dialect};

/// Every time that relais keeps, by table, except the sender's own `event_ts`.
const TIMES: &[(&str, &[&str])] = &[
    ("relais_inbox", &["received_at", "next_attempt_at", "processed_at"]),
    ("relais_outbox", &["created_at", "next_attempt_at", "dispatched_at"]),
    ("relais_waiting", &["due_at"]),
    ("relais_handled", &["processed_at"]),
    ("relais_dead_letter", &["parked_at", "edited_at", "resolved_at"]),
    ("relais_parked_key", &["parked_at"]),
    ("relais_lease", &["lease_until"]),
    ("relais_control", &["paused_at"]),
    ("relais_report", &["reported_at", "started_at"]),
    ("relais_bulk_job", &["lease_until", "created_at", "finished_at"]),
    ("relais_credential", &["lease_until"]),
    ("relais_process", &["created_at", "updated_at"]),
    ("relais_process_log", &["at"]),
    ("relais_timer", &["due_at"]),
    ("relais_attempt", &["at"]),
    ("relais_source_position", &["updated_at"]),
    ("relais_adopted_change", &["created_at"]),
    ("relais_version", &["seen_at"]),
    ("relais_audit", &["at"]),
];

/// The clock of a test's database.
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock;

impl VirtualClock {
    /// Lets time pass for everything that relais has stored. Milliseconds are the smallest step.
    ///
    /// A running `App` finds out when it looks next; `RunningApp::wake` makes it look at once.
    ///
    /// # Panics
    /// If the database refuses it.
    pub async fn advance(database: &(impl Database + ?Sized), by: Duration) {
        let dialect = database.dialect();
        let by_ms = by.as_millis();
        let all = TIMES.iter().map(|(table, columns)| older(dialect, table, columns, by_ms));
        let batches: Vec<String> = match dialect {
            // One transaction each: workers that are at it are not locked out in a circle.
            Dialect::Postgres => all.collect(),
            Dialect::Sqlite => {
                vec![format!("BEGIN IMMEDIATE; {}; COMMIT", all.collect::<Vec<_>>().join("; "))]
            }
        };
        for sql in batches {
            let done = database.execute(&sql).await;
            done.unwrap_or_else(|error| panic!("time does not pass: {error}\n in: {sql}"));
        }
    }
}

fn older(dialect: Dialect, table: &str, columns: &[&str], by_ms: u128) -> String {
    let shifted = |column: &&str| match dialect {
        Dialect::Postgres => {
            format!("{column} = {column} - {by_ms} * INTERVAL '1 millisecond'")
        }
        Dialect::Sqlite => {
            let (seconds, millis) = (by_ms / 1_000, by_ms % 1_000);
            let format = "%Y-%m-%dT%H:%M:%fZ";
            format!("{column} = strftime('{format}', {column}, '-{seconds}.{millis:03} seconds')")
        }
    };
    let columns: Vec<_> = columns.iter().map(shifted).collect();
    format!("UPDATE {table} SET {}", columns.join(", "))
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::database::scratch;

    #[tokio::test]
    async fn every_time_column_of_every_table_takes_part() {
        let db = scratch::sqlite().await;
        let sql = "SELECT t.name || '.' || c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
                   WHERE t.type = 'table' AND t.name GLOB 'relais_*' AND c.type = 'TEXT'
                     AND (c.name = 'at' OR c.name GLOB '*_at' OR c.name GLOB '*_until' OR c.name GLOB '*_ts')";
        let found = db.query(sql).await.expect("the schema");
        let mut found: Vec<String> = found.into_iter().flatten().flatten().collect();
        found.retain(|name| name != "relais_inbox.event_ts" && !name.starts_with("relais_schema."));
        found.sort();
        let known = TIMES.iter().flat_map(|(table, columns)| {
            columns.iter().map(move |column| format!("{table}.{column}"))
        });
        let mut known: Vec<String> = known.collect();
        known.sort();
        assert_eq!(found, known);
    }
}
