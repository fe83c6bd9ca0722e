//! The memory of the real program is bounded by bytes, not by rows.
#![cfg(target_os = "linux")]
// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Shared with tests that use more of it.
#[allow(dead_code)]
mod support;

use std::fs;

use support::{Site, Target};

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
fn a_backlog_of_large_rows_is_delivered_in_little_memory() {
    let target = Target::start();
    let site = Site::with(&format!(
        "[store]\nurl = \"sqlite:relais.db\"\n\
         [[destination]]\nname = \"out\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n",
        target.address
    ));
    assert_eq!(site.relais(&["migrate"]).code, 0);
    let mut database = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    let filling = database.transaction().unwrap();
    let insert = "INSERT INTO relais_outbox (message_id, aggregate_type, aggregate_id, event_type, \
                  destination, payload) VALUES (?1, 'a', ?2, 'E', 'out', ?3)";
    let payload = format!("\"{}\"", "x".repeat(BYTES - 2));
    for row in 0..ROWS {
        let id = uuid::Uuid::new_v4().to_string();
        filling.execute(insert, (id, row.to_string(), &payload)).unwrap();
    }
    filling.commit().unwrap();
    let running = site.run();
    for _ in 0..ROWS {
        target.next();
    }
    let resident = resident_max_kib(running.pid());
    assert!(resident <= RESIDENT_MAX_KIB, "{resident} KiB were resident");
}
