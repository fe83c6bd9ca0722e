//! Every named point of every flow: the program ends there at the first hit, at the second, and so on;
//! another one continues, and nothing is lost, done twice, out of order or left over.
//!
//! `FAIL_POINTS_ONLY=relay.after_publish:2` tries only what has this in its name, `FLOW with POINT:HIT`.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../support/broker.rs"]
mod broker;
mod bulk;
mod dead_letters;
mod handler;
mod http;
mod kafka;
// Some helpers are made for other tests of the program.
mod harness;
#[allow(dead_code)]
#[path = "../support/org.rs"]
mod org;
mod process;
mod remote;
mod sink;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Mutex,
    thread,
    time::Instant,
};

use harness::{CrashHarness, Database, Fault};

/// Most hits of one point that are tried, because those of a heartbeat have no end.
#[derive(Clone, Copy)]
struct Depth {
    /// In the flow that hits it most; in a bulk job twice as many, because each is another phase.
    most: usize,
    /// In every other flow.
    others: usize,
}

impl Depth {
    /// The databases differ only in their own points, so the engine is swept once in full.
    /// `FAIL_POINTS_HITS=8` goes deeper, everywhere.
    fn of(database: Database) -> Self {
        let asked = std::env::var("FAIL_POINTS_HITS").ok();
        let asked = asked.map(|text| text.parse().expect("FAIL_POINTS_HITS is a number"));
        match (asked, database) {
            (Some(hits), _) => Self { most: hits, others: hits },
            (None, Database::Sqlite) => Self { most: 3, others: 1 },
            (None, Database::Postgres) => Self { most: 2, others: 0 },
        }
    }
}

/// The points of every start and stop are tried in that flow alone.
const EVERYWHERE: [&str; 5] = ["migrate.", "lease.", "leave.", "lanes.", "cleanup."];
/// Cycles at once: they mostly wait.
const CYCLES: usize = 4;

/// The actions of a cycle.
#[derive(Clone, Copy)]
struct Flow {
    name: &'static str,
    run: fn(&mut CrashHarness),
    /// A crash before the points are counted: some are hit only by the next process.
    crashed: Option<&'static str>,
}

const fn flow(name: &'static str, run: fn(&mut CrashHarness)) -> Flow {
    Flow { name, run, crashed: None }
}

const FLOWS: [Flow; 11] = [
    flow("http", http::in_and_out),
    flow("retry", http::retry_and_dead_letter),
    flow("cleanup", http::cleanup),
    flow("handler", |harness| handler::change_and_message(harness, SERVICE)),
    flow("remote handler", remote::call_and_answer),
    flow("handler step", remote::steps),
    flow("process", process::timer_and_compensation),
    flow("bulk", bulk::job),
    flow("dead letters", dead_letters::decisions),
    Flow { crashed: Some("relay.after_publish"), ..flow("http after a crash", http::in_and_out) },
    Flow { crashed: Some("bulk.after_upload"), ..flow("bulk after a crash", bulk::job) },
];
const KAFKA: [Flow; 1] = [flow("kafka", kafka::in_and_out)];

#[test]
fn a_crash_at_any_point_loses_and_repeats_nothing_on_sqlite() {
    let hit = sweep(&FLOWS, Database::Sqlite);
    assert_eq!(hit, points(Database::Sqlite), "points that are hit, and points that are named");
}

#[test]
fn a_crash_at_any_point_loses_and_repeats_nothing_on_postgres() {
    if support::postgres::PostgresSchema::new().is_none() {
        return;
    }
    let hit = sweep(&FLOWS, Database::Postgres);
    assert_eq!(hit, points(Database::Postgres), "points that are hit, and points that are named");
}

#[test]
fn a_crash_at_any_point_loses_and_repeats_nothing_with_kafka() {
    if broker::Broker::from_environment().is_none() {
        return;
    }
    let hit = sweep(&KAFKA, Database::Sqlite);
    assert!(hit.contains("ingest.after_commit"), "{hit:?}");
}

/// A sweep that cannot fail would prove nothing.
#[test]
fn a_crash_loses_a_message_that_is_acknowledged_before_its_commit_or_marked_before_its_delivery() {
    let planted = [
        ("acknowledge-first", "accept.before_commit", 2),
        ("mark-first", "relay.before_publish", 1),
    ];
    thread::scope(|scope| {
        for (bug, point, nth) in planted {
            scope.spawn(move || {
                let fault = Fault { point: point.to_owned(), nth };
                let mut harness = CrashHarness::new(Database::Sqlite, Some(fault));
                harness.plant(bug);
                let found = catch_unwind(AssertUnwindSafe(|| http::in_and_out(&mut harness)));
                assert!(harness.crashes == 1 && found.is_err(), "{bug} was not detected");
            });
        }
    });
}

#[test]
fn a_row_that_kills_its_worker_in_encode_is_the_only_dead_letter_on_sqlite() {
    bulk::killer(Database::Sqlite);
}

#[test]
fn a_row_that_kills_its_worker_in_encode_is_the_only_dead_letter_on_postgres() {
    if support::postgres::PostgresSchema::new().is_some() {
        bulk::killer(Database::Postgres);
    }
}

/// Started by the test above as a process of its own; without the variable it does nothing.
#[test]
fn the_program_with_a_planted_bug() {
    if std::env::var_os("RELAIS_PLANTED_BUG").is_some() {
        let args = ["relais", "run", "--log", "json"].map(OsString::from);
        relais_cli::run(args, relais_store_tests::faulty::plant);
    }
}

const SERVICE: &str = "a_service_with_handlers";

/// The program of the flow `handler`; it does nothing when the tests run.
#[test]
fn a_service_with_handlers() {
    if let Ok(url) = std::env::var("FAIL_POINTS_STORE") {
        handler::serve(&url);
    }
}

/// Runs each flow undisturbed, then for the hits of its points; the points that were hit.
fn sweep(flows: &[Flow], database: Database) -> BTreeSet<String> {
    let started = Instant::now();
    let undisturbed = flows.iter().map(|flow| Cycle { flow: *flow, fault: None }).collect();
    let clean = all(undisturbed, database);
    let mut cycles = plan(&clean, Depth::of(database));
    if let Ok(only) = std::env::var("FAIL_POINTS_ONLY") {
        cycles.retain(|cycle| name(cycle).contains(&only));
    }
    let planned = cycles.len();
    let ended = all(cycles, database);
    let aborted = ended.iter().filter(|ended| ended.aborted).count();
    let points: BTreeSet<String> =
        clean.iter().chain(&ended).flat_map(|ended| ended.hits.keys().cloned()).collect();
    println!(
        "{database:?}: {aborted} crashes at {} points of {} flows, {} hits not met again, in {:.0?}",
        points.len(),
        flows.len(),
        planned - aborted,
        started.elapsed()
    );
    for flow in flows {
        let of_flow = ended.iter().filter(|ended| ended.cycle.flow.name == flow.name).count();
        println!("    {}: {of_flow}", flow.name);
    }
    // Heartbeats are not met again when a run is faster than the undisturbed one was.
    assert!(aborted * 10 >= planned * 9, "too easy: {aborted} crashes of {planned}");
    points
}

/// Which hits of which points are tried.
fn plan(clean: &[Ended], depth: Depth) -> Vec<Cycle> {
    let mut most: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for Ended { cycle, hits, .. } in clean {
        for (point, count) in hits {
            let entry = (*count, cycle.flow.name);
            let found = most.entry(point).or_insert(entry);
            *found = entry.max(*found);
        }
    }
    let mut cycles = Vec::new();
    for Ended { cycle, hits, .. } in clean {
        for (point, count) in hits {
            let here = most[point.as_str()].1 == cycle.flow.name;
            let everywhere = EVERYWHERE.iter().any(|start| point.starts_with(start));
            let tried = match here {
                true if point.starts_with("bulk.") => 2 * depth.most,
                true => depth.most,
                false if everywhere => 0,
                false => depth.others,
            };
            let tried = tried.min(*count);
            cycles.extend((1..=tried).map(|nth| {
                let fault = Some(Fault { point: point.clone(), nth });
                Cycle { flow: cycle.flow, fault }
            }));
        }
    }
    cycles
}

struct Cycle {
    flow: Flow,
    fault: Option<Fault>,
}

struct Ended {
    cycle: Cycle,
    hits: BTreeMap<String, usize>,
    aborted: bool,
}

/// Runs them all, several at once, and says of each that fails why.
fn all(cycles: Vec<Cycle>, database: Database) -> Vec<Ended> {
    let queue = Mutex::new(cycles.into_iter());
    let (ended, failed) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..CYCLES {
            scope.spawn(|| {
                loop {
                    let Some(cycle) = queue.lock().unwrap().next() else { return };
                    match catch_unwind(AssertUnwindSafe(|| run(&cycle, database))) {
                        Ok((hits, aborted)) => {
                            ended.lock().unwrap().push(Ended { cycle, hits, aborted });
                        }
                        Err(_) => failed.lock().unwrap().push(name(&cycle)),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "on {database:?}, why is said above: {failed:#?}");
    ended.into_inner().unwrap()
}

fn run(cycle: &Cycle, database: Database) -> (BTreeMap<String, usize>, bool) {
    let crashed = cycle.flow.crashed.map(|point| Fault { point: point.to_owned(), nth: 1 });
    let faults: Vec<Fault> = crashed.into_iter().chain(cycle.fault.clone()).collect();
    let planned = faults.len();
    let mut harness = CrashHarness::new(database, faults);
    (cycle.flow.run)(&mut harness);
    let all = harness.crashes == planned;
    assert!(all || cycle.fault.is_some(), "it did not crash at {:?}", cycle.flow.crashed);
    (harness.hits_since_crash(), all)
}

fn name(cycle: &Cycle) -> String {
    match &cycle.fault {
        Some(Fault { point, nth }) => format!("{} with {point}:{nth}", cycle.flow.name),
        None => format!("{} undisturbed", cycle.flow.name),
    }
}

/// Every point that the engine or this driver names.
fn points(database: Database) -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let driver = match database {
        Database::Sqlite => "relais-store/src/sqlite",
        Database::Postgres => "relais-store/src/postgres",
    };
    let mut names = BTreeSet::new();
    for folder in ["relais/src", driver] {
        collect(&crates.join(folder), &mut names);
    }
    names
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let calls = text.split("fail_point!(\"").skip(1);
            names.extend(calls.filter_map(|call| Some(call.split_once('"')?.0.to_owned())));
        }
    }
}
