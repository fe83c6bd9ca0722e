//! A hundred thousand members through bulk jobs in one run: memory stays bounded, and the org is
//! asked a few times a job, not a few times a row.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Each of these files uses its part of them.
#[allow(dead_code)]
#[path = "support/org.rs"]
mod org;
#[allow(dead_code)]
mod support;

use std::{
    fs,
    time::{Duration, Instant},
};

use org::{Base, Org, members_created, settings};
use salesforce_sim::Faults;
use support::{Site, post};

/// The number of members, on SQLite. `RELAIS_TEST_MEMBERS` sets another one, such as 300000, on both databases.
const MEMBERS: usize = 100_000;
/// A job, and an event: the most elements a route takes.
const ROWS_OF_A_JOB: usize = 10_000;
/// Calls to the org for each job, beside asking how far it is.
const CALLS_OF_A_JOB: u64 = 10;
/// Most memory of the program, for any number of members.
const MEMORY_MAX_KIB: u64 = 150_000_000 / 1024;
/// Pages of the program file in a release build, about 20 MB. A debug build has 50 MB of them.
const PROGRAM_KIB: u64 = 20_000_000 / 1024;
const PATIENCE: Duration = Duration::from_secs(600);

#[test]
fn a_hundred_thousand_members_cost_few_calls_and_bounded_memory() {
    let members = std::env::var("RELAIS_TEST_MEMBERS").ok();
    let databases = if members.is_some() { 2 } else { 1 };
    let members = members.map_or(MEMBERS, |number| number.parse().unwrap());
    for (site, base) in Base::all(&Site::new).into_iter().take(databases) {
        sends_in_bounded_memory(&site, &base, members);
    }
}

fn sends_in_bounded_memory(site: &Site, base: &Base, members: usize) {
    let org = Org::with(Faults::default());
    base.members(members);
    // Full jobs, and no sweep that would count as calls for them.
    let text = settings(base, &org, "bulk-v2", "")
        .replace("linger = \"100ms\"", "linger = \"2s\"")
        .replace("sweep_every = \"500ms\"", "sweep_every = \"1h\"");
    site.write("relais.toml", &text);
    let running = site.run();
    let started = Instant::now();
    for first in (1..=members).step_by(ROWS_OF_A_JOB) {
        let (id, last) = (format!("e-{first}"), first + ROWS_OF_A_JOB - 1);
        let headers = [("content-type", "application/json"), ("message-id", id.as_str())];
        let body = members_created(first..=last, 1);
        assert_eq!(post(running.address("hook"), "/hook", &headers, &body).0, 202);
    }
    let count = "SELECT count(*) || '' FROM relais_outbox WHERE status = 'DISPATCHED'";
    while base.texts(count) != [members.to_string()] {
        assert!(started.elapsed() < PATIENCE, "{:?} dispatched", base.texts(count));
        std::thread::sleep(Duration::from_millis(500));
    }
    let taken = started.elapsed();
    let memory = resident_kib(running.pid(), "VmHWM:");
    let pages = resident_kib(running.pid(), "RssFile:");
    assert_eq!(running.stop().code, 0);
    org.assert_once("Contact", members);
    let calls = org.calls();
    let polls: u64 = calls.iter().filter(|(call, _)| is_poll(call)).map(|(_, n)| n).sum();
    let others = calls.values().sum::<u64>() - polls;
    let jobs = u64::try_from(org.jobs("JobComplete")).unwrap();
    println!(
        "{members} members in {taken:.1?}: {jobs} jobs, {others} calls and {polls} polls, \
         {memory} KiB at its highest, {pages} of them of the program file\n{calls:#?}"
    );
    let by_rows = u64::try_from(members / ROWS_OF_A_JOB).unwrap();
    assert!(others <= by_rows * CALLS_OF_A_JOB, "{calls:#?}");
    // As much as a release build would have.
    let most = MEMORY_MAX_KIB - PROGRAM_KIB + pages.max(PROGRAM_KIB);
    assert!(memory <= most, "{memory} KiB");
}

fn is_poll(call: &str) -> bool {
    call.starts_with("GET ") && call.ends_with("jobs/ingest/{id}")
}

/// Returns a figure of the process: `VmHWM` is the most memory it ever had, `RssFile` the pages of files.
fn resident_kib(pid: u32, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
