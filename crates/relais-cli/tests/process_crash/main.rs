//! Thousands of processes of three steps at once, on two relais of which one is killed again and again:
//! each process ends in the one state its script demands, each effect happens once and is compensated exactly
//! where it must be, logs have no gap, and nothing is left over.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod posts;
// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[path = "../support/node.rs"]
mod node;
#[allow(dead_code)]
#[path = "../support/org.rs"]
mod org;
mod plan;
mod service;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    time::{Duration, Instant},
};

use node::{Kills, Node, kill_until};
use org::Base;
use plan::{Order, Script, Step, Way};
use posts::{Outgoing, PostQueue};
use serde_json::json;
use service::Services;
use support::{Site, postgres::PostgresSchema};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(400);
/// Kills of a process that owned lanes of the inbox.
const KILLS_MIN: usize = 3;

#[test]
fn ten_thousand_processes_end_as_they_must_while_one_relais_is_killed_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    survives(&Site::new(), &Base::Postgres(schema), 10_000);
}

#[test]
fn a_thousand_processes_end_as_they_must_while_one_relais_is_killed_on_sqlite() {
    let site = Site::new();
    let base = Base::Sqlite(site.path("relais.db"));
    survives(&site, &base, 1_000);
}

fn survives(site: &Site, base: &Base, orders: usize) {
    let started = Instant::now();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (posts, services, address) = runtime.block_on(async {
        let posts = PostQueue::start();
        let (services, address) = Services::start(posts.clone()).await;
        (posts, services, address)
    });
    site.write("relais.toml", &settings(base, address));
    let steady = Node::start(site, "steady");
    let home = listens(&steady, started);
    posts.move_to(vec![home]);
    runtime.spawn(place(posts.clone(), orders));

    let is_at_work = |victim: &mut Node| {
        victim.assert_alive();
        let Some(address) = victim.address("hook") else { return false };
        posts.move_to(vec![home, address]);
        owns_lanes(base, victim.pid())
    };
    let kills = kill_until(site, is_at_work, || {
        let quiet = is_quiet(base, &services, &posts, orders);
        assert!(quiet || started.elapsed() < PATIENCE, "{}\n{}", state(base), steady.said());
        quiet
    });
    // The last kill must not have been the one that did it.
    steady.stop();
    assert!(is_quiet(base, &services, &posts, orders), "{}", state(base));

    let processes = check_processes(base, orders);
    check_logs(base);
    check_dead_letters(base, orders);
    check_effects(&services, &processes, orders);
    report(&services, &posts, &kills, orders, started);
}

fn settings(base: &Base, services: SocketAddr) -> String {
    format!(
        "[store]\nurl = \"{}\"\n[lanes]\nlease = \"2s\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\n{}\
         [[destination]]\nname = \"services\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{services}/commands\"\n[destination.limits]\nconcurrency = 32\n",
        base.url(),
        plan::processes(),
    )
}

fn listens(node: &Node, started: Instant) -> SocketAddr {
    loop {
        if let Some(address) = node.address("hook") {
            return address;
        }
        assert!(started.elapsed() < PATIENCE, "{}", node.said());
    }
}

/// Sends what starts each order.
async fn place(posts: PostQueue, orders: usize) {
    for order in (0..orders).map(Order) {
        let start = |id: String| Outgoing {
            id,
            correlation: None,
            body: json!({ "type": order.start(), "order": order.0 }).to_string(),
        };
        let first = start(format!("start-{}", order.0));
        if order.is_sent_twice() {
            posts.send(first.clone()).await;
        }
        posts.send(first).await;
        if order.is_wanted_twice() {
            posts.send(start(format!("second-{}", order.0))).await;
        }
    }
}

/// Returns true if a process owns lanes of the inbox: its messages in flight are lost with it.
fn owns_lanes(base: &Base, pid: u32) -> bool {
    let sql = format!(
        "SELECT owner FROM relais_lane WHERE scope = 'inbox' AND owner LIKE '{pid}-%' LIMIT 1"
    );
    !base.texts(&sql).is_empty()
}

/// The state that is not final, by name.
const OPEN: &str = "\
    SELECT 'processes' FROM relais_process WHERE status NOT IN ('SUCCEEDED', 'FAILED', 'COMPENSATED') \
    UNION ALL SELECT 'inbox' FROM relais_inbox WHERE status IN ('RECEIVED', 'RETRY') \
    UNION ALL SELECT 'outbox' FROM relais_outbox WHERE status <> 'DISPATCHED' \
    UNION ALL SELECT 'timers' FROM relais_timer \
    UNION ALL SELECT 'parked keys' FROM relais_parked_key";

/// Returns true if no work is left.
fn is_quiet(base: &Base, services: &Services, posts: &PostQueue, orders: usize) -> bool {
    let commands = || services.read(|ledger| ledger.commands);
    // In this order: a command that comes while the tables are read shows in the second count.
    let before = commands();
    if !posts.is_idle() || !base.texts(&format!("{OPEN} LIMIT 1")).is_empty() {
        return false;
    }
    let count = base.texts("SELECT CAST(count(*) AS TEXT) FROM relais_process");
    count == [orders.to_string()] && posts.is_idle() && before == commands()
}

/// Returns the open work, for the report of a failure.
fn state(base: &Base) -> String {
    let mut open = BTreeMap::<String, usize>::new();
    for name in base.texts(OPEN) {
        *open.entry(name).or_default() += 1;
    }
    format!("{open:?}")
}

/// Every order has one process, in the state its script demands; the ids.
fn check_processes(base: &Base, orders: usize) -> HashMap<Order, String> {
    let rows = base.texts(
        "SELECT business_key || ' ' || status || ' ' || CAST(process_id AS TEXT) FROM relais_process",
    );
    let mut ids = HashMap::new();
    for row in &rows {
        let [order, status, id] = row.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let order = Order(order.parse().unwrap());
        assert_eq!(status, order.end(), "{order:?} {:?}: {row}", order.script());
        assert!(ids.insert(order, id.to_owned()).is_none(), "two processes: {row}");
    }
    assert_eq!(ids.len(), orders);
    ids
}

/// Entries are numbered from 1 without a gap, up to the version; each process ends once.
fn check_logs(base: &Base) {
    let gaps = base.texts(
        "SELECT p.business_key FROM relais_process AS p \
         LEFT JOIN (SELECT process_id, count(*) AS n, min(seq) AS first, max(seq) AS last, \
                           count(CASE WHEN event_type = 'ProcessCompleted' THEN 1 END) AS completed, \
                           count(CASE WHEN event_type = 'ProcessFailed' THEN 1 END) AS failed \
                    FROM relais_process_log GROUP BY process_id) AS l ON l.process_id = p.process_id \
         WHERE l.n IS NULL OR l.first <> 1 OR l.last <> p.version OR l.n <> p.version \
            OR l.completed <> CASE p.status WHEN 'SUCCEEDED' THEN 1 ELSE 0 END \
            OR l.failed <> CASE p.status WHEN 'FAILED' THEN 1 ELSE 0 END",
    );
    assert!(gaps.is_empty(), "logs that are not linear: {gaps:?}");
    let strays = base.texts(
        "SELECT event_type FROM relais_process_log AS l WHERE NOT EXISTS \
         (SELECT 1 FROM relais_process AS p WHERE p.process_id = l.process_id)",
    );
    assert!(strays.is_empty(), "logs of no process: {strays:?}");
}

/// Checks the dead letters: failed processes without completed steps, and second starts.
fn check_dead_letters(base: &Base, orders: usize) {
    let mut found = BTreeMap::<String, usize>::new();
    for letter in base.texts("SELECT origin || ' ' || error_class FROM relais_dead_letter") {
        *found.entry(letter).or_default() += 1;
    }
    let count = |wanted: fn(Order) -> bool| (0..orders).filter(|n| wanted(Order(*n))).count();
    let expected = [
        ("inbox BUSINESS_KEY_TAKEN", count(Order::is_wanted_twice)),
        ("process STEP_FAILED", count(|order| order.end() == "FAILED")),
    ];
    assert_eq!(found, expected.map(|(name, count)| (name.to_owned(), count)).into());
}

/// Checks each effect: once, in the order of the steps, compensated in reverse, and only of its process.
fn check_effects(services: &Services, processes: &HashMap<Order, String>, orders: usize) {
    let mut effects = HashMap::<Order, BTreeMap<(Step, Way), usize>>::new();
    services.read(|ledger| {
        for (key, account) in ledger.accounts() {
            let undo = if account.way == Way::Undo { "/undo" } else { "" };
            let id = &processes[&account.order];
            assert_eq!(key, format!("{id}/{}{undo}", account.step.name()), "{account:?}");
            if let Some(effect) = account.effect {
                let of = effects.entry(account.order).or_default();
                assert!(of.insert((account.step, account.way), effect).is_none(), "{account:?}");
            }
        }
    });
    for order in (0..orders).map(Order) {
        let had = effects.remove(&order).unwrap_or_default();
        let expected: BTreeSet<_> = order.effects().into_iter().collect();
        assert_eq!(had.keys().copied().collect::<BTreeSet<_>>(), expected, "{order:?}");
        // A step in doubt is compensated when its answer arrives, at any place in the order.
        if order.script() != Script::InDoubt {
            let mut in_time: Vec<_> = had.iter().map(|(what, effect)| (*effect, *what)).collect();
            in_time.sort_unstable();
            let in_time: Vec<_> = in_time.into_iter().map(|(_, what)| what).collect();
            assert_eq!(in_time, order.effects(), "{order:?}");
        }
    }
}

/// Says what happened; too little of it is a failure.
fn report(services: &Services, posts: &PostQueue, kills: &Kills, orders: usize, started: Instant) {
    let (commands, copies) = services.read(|ledger| (ledger.commands, ledger.copies));
    let posts = posts.tally();
    eprintln!(
        "{orders} processes; {commands} commands, {copies} of them copies; {posts:?}; {kills:?}; {:.1?}",
        started.elapsed()
    );
    assert!(kills.at_work >= KILLS_MIN, "the run was too easy: {kills:?}");
    assert!(copies > 0, "the run was too easy: no command came twice");
    assert!(posts.failures > 0 && posts.duplicates > 0, "the run was too easy: {posts:?}");
}
