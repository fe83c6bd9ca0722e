//! Bulk jobs of a program that is killed over and over: in the org's ledger each version of each
//! record has one effect, no job stays open there, and every row ends as DISPATCHED.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Each of these files uses its part of them.
#[allow(dead_code)]
#[path = "support/org.rs"]
mod org;
#[allow(dead_code)]
mod support;

use std::{
    collections::BTreeMap,
    fs::File,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use org::{Base, Org, members_created, settings, until};
use salesforce_sim::Faults;
use support::{Site, post};

const MEMBERS: usize = 600;
/// Small, so that there are many jobs to be killed in.
const ROWS_OF_A_JOB: usize = 60;
/// Numbers of calls to the org after which a process is killed, in turn. A job makes about nine.
const LIVES_CALLS: [u64; 10] = [1, 4, 2, 7, 3, 5, 9, 6, 8, 13];
/// A run whose kills fell into fewer phases of jobs was too easy.
const PHASES_MIN: usize = 3;
const OPEN_JOBS: &str = "SELECT phase FROM relais_bulk_job WHERE finished_at IS NULL";
/// Rows whose worker was killed three times are held for a minute, unless another one is killed meanwhile.
const END_OF_QUARANTINE: &str = "UPDATE relais_outbox SET next_attempt_at = '2000-01-01T00:00:00.000Z' \
     WHERE status = 'PENDING' AND error_code = 'QUARANTINED' AND job_id IS NULL; \
     UPDATE relais_waiting SET due_at = '2000-01-01T00:00:00.000Z' WHERE job_id IS NULL AND id IN \
     (SELECT id FROM relais_outbox WHERE status = 'PENDING' AND error_code = 'QUARANTINED')";
/// The last rows may be delivered before that many calls.
const IDLE: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(1);

#[test]
fn killed_processes_leave_each_effect_once_on_sqlite() {
    let site = Site::new();
    let base = Base::Sqlite(site.path("relais.db"));
    kill_and_count(&site, &base);
}

#[test]
fn killed_processes_leave_each_effect_once_on_postgres() {
    let Some(schema) = support::postgres::PostgresSchema::new() else { return };
    kill_and_count(&Site::new(), &Base::Postgres(schema));
}

fn kill_and_count(site: &Site, base: &Base) {
    let mut faults = Faults::default();
    faults.bulk.queued_ms = 20;
    let org = Org::with(faults);
    base.members(MEMBERS);
    let text = settings(base, &org, "bulk-v2", "");
    let rows = format!("[destination.bulk]\nrows = {ROWS_OF_A_JOB}\n");
    site.write("relais.toml", &text.replace("[destination.bulk]\n", &rows));
    let (mut kills, mut phases) = (0, BTreeMap::<String, usize>::new());
    for version in 1..=2 {
        base.execute(&format!("UPDATE members SET version = {version}"));
        accept(site, version);
        let sent = MEMBERS * usize::try_from(version).unwrap();
        while base.outbox("DISPATCHED") < sent && kills < LIVES_CALLS.len() * 2 {
            live_and_die(site, &org, LIVES_CALLS[kills % LIVES_CALLS.len()]);
            kills += 1;
            for phase in base.texts(OPEN_JOBS) {
                *phases.entry(phase).or_default() += 1;
            }
        }
        let running = site.run();
        until(|| {
            base.execute(END_OF_QUARANTINE);
            base.outbox("DISPATCHED") == sent
        });
        // What a lost answer left is swept.
        until(|| org.jobs("Open") == 0);
        drop(running);
    }
    println!("{kills} kills, in the phases {phases:?}");
    let is_hard = kills >= LIVES_CALLS.len() && phases.len() >= PHASES_MIN;
    assert!(is_hard, "too easy: {kills} kills, in the phases {phases:?}");
    org.assert_once("Contact", MEMBERS);
    for entry in org.ledger().entries() {
        assert_eq!(entry.writes, 2, "{entry:?}");
    }
    assert_eq!(base.outbox("DISPATCHED"), 2 * MEMBERS);
    assert!(base.texts(OPEN_JOBS).is_empty(), "{:?}", base.texts(OPEN_JOBS));
    assert_eq!(org.jobs("InProgress") + org.jobs("UploadComplete"), 0);
}

/// One process takes the event over; it may be killed as well.
fn accept(site: &Site, version: u64) {
    let running = site.run();
    let id = format!("e-{version}");
    let headers = [("content-type", "application/json"), ("message-id", id.as_str())];
    let body = members_created(1..=MEMBERS, version);
    assert_eq!(post(running.address("hook"), "/hook", &headers, &body).0, 202);
}

/// Kills a process after this many calls to the org.
fn live_and_die(site: &Site, org: &Org, calls: u64) {
    let total = || org.calls().values().sum::<u64>();
    let before = total();
    let log = File::create(site.path("victim.log")).unwrap();
    let mut child: Child =
        site.command(&["run", "--log", "json"]).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let end = Instant::now() + IDLE;
    while total() < before + calls && Instant::now() < end {
        thread::sleep(GLANCE);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
