//! The memory of the real program is bounded by bytes, not by rows.
#![cfg(target_os = "linux")]
// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Shared with tests that use more of it.
#[allow(dead_code)]
mod support;

use std::fs;

use support::{Site, Target, postgres::PostgresSchema};

const ROWS: usize = 40;
const BYTES: usize = 3 * 1024 * 1024;
/// Reading all rows at once takes 2.5 times their bytes: 300 MiB.
const RESIDENT_MAX_KIB: u64 = 220 * 1024;

fn resident_max_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_backlog_of_large_rows_is_delivered_in_little_memory_on_sqlite() {
    let target = Target::start();
    let site = site("sqlite:relais.db", &target);
    let insert = format!(
        "INSERT INTO relais_outbox {COLUMNS} WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 \
         FROM n WHERE i < {ROWS}) SELECT 'a', i, 'E', 'out', ?1 FROM n"
    );
    let payload = format!("\"{}\"", "x".repeat(BYTES - 2));
    let database = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    database.execute(&insert, [payload]).unwrap();
    drop(database);
    delivers_in_little_memory(&site, &target);
}

#[test]
fn a_backlog_of_large_rows_is_delivered_in_little_memory_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    let target = Target::start();
    let site = site(&schema.url, &target);
    schema.execute(&format!(
        "INSERT INTO {}.relais_outbox {COLUMNS} SELECT 'a', i, 'E', 'out', \
         '\"' || repeat('x', {BYTES} - 2) || '\"' FROM generate_series(1, {ROWS}) AS n (i)",
        schema.name
    ));
    delivers_in_little_memory(&site, &target);
}

const COLUMNS: &str = "(aggregate_type, aggregate_id, event_type, destination, payload)";

fn site(store: &str, target: &Target) -> Site {
    let site = Site::with(&format!(
        "[store]\nurl = \"{store}\"\n\
         [[destination]]\nname = \"out\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n",
        target.address
    ));
    assert_eq!(site.relais(&["migrate"]).code, 0);
    site
}

fn delivers_in_little_memory(site: &Site, target: &Target) {
    let running = site.run();
    for _ in 0..ROWS {
        target.next();
    }
    let resident = resident_max_kib(running.pid());
    println!("{resident} KiB were resident");
    assert!(resident <= RESIDENT_MAX_KIB, "{resident} KiB were resident");
}
