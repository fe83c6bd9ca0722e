//! Programs with different handlers on one inbox.

use std::{sync::Arc, time::Duration};

use relais_core::{
    dead_letter::Resolution,
    handler::{Handler, Outcome, Received},
    inspect::InspectExt,
    lane::Scope,
    query::Filter,
    store::StoreDriver,
};
use relais_store::sqlite::{self, SqliteOptions, SqliteStore};

use super::{
    inbox::{accept, noting, worker},
    process_support::{Hand, inbox, order, reply},
    support::{Bench, on_both},
};
use crate::{
    App, RunningApp,
    inbox::{EventAction, InboxWorker},
    worker::run_until_idle,
};

/// The time that a test waits for a condition.
const PATIENCE: Duration = Duration::from_secs(60);

fn statuses(bench: &Bench) -> Vec<String> {
    bench.texts(
        "SELECT message_id || ' ' || status || ' ' || attempts FROM relais_inbox ORDER BY id",
    )
}

/// Accepts `key:type` messages, numbered from 1.
async fn accept_types(bench: &Bench, messages: &[(&str, &str)]) {
    let bodies = messages.iter().enumerate().map(|(n, (key, event_type))| {
        (format!("{}", n + 1), format!(r#"{{"type":"{event_type}","of":"{key}"}}"#))
    });
    let bodies: Vec<_> = bodies.collect();
    let messages: Vec<_> = bodies.iter().map(|(id, body)| (id.as_str(), body.as_str())).collect();
    accept(bench, &messages).await;
}

/// Returns a worker that notes the messages of these types, and owns the free lanes.
async fn knowing(bench: &Bench, name: &str, types: &[&str]) -> InboxWorker {
    let handler = noting(bench, |_| Outcome::Done);
    let actions = types.iter().map(|t| (*t, EventAction::Handler(Arc::clone(&handler)))).collect();
    let mut worker = worker(bench, name, actions).await;
    worker.reader().keeper().beat().await.unwrap();
    worker
}

/// Runs each worker once: a heartbeat, its passes, and another heartbeat.
async fn turn(workers: &mut [&mut InboxWorker]) {
    for worker in workers {
        worker.reader().keeper().beat().await.unwrap();
        run_until_idle(*worker).await;
        worker.reader().keeper().beat().await.unwrap();
    }
}

#[tokio::test]
async fn a_type_that_no_live_worker_knows_waits_and_finally_parks_its_key() {
    on_both(an_unknown_type).await;
}

async fn an_unknown_type(bench: Bench) {
    accept_types(&bench, &[("x", "Huh"), ("x", "T"), ("y", "T")]).await;
    accept(&bench, &[("4", "{}")]).await;
    let mut old = knowing(&bench, "old", &["T"]).await;
    run_until_idle(&mut old).await;
    let expected = ["1 RETRY 0", "2 RECEIVED 0", "3 PROCESSED 1", "4 FAILED 1"];
    assert_eq!(statuses(&bench), expected, "its key waits; a message without a type does not");
    let why =
        bench.texts("SELECT error_code || ' ' || error_message FROM relais_inbox WHERE id = 1");
    assert!(why[0].starts_with("UNKNOWN_EVENT_TYPE") && why[0].contains("`Huh`"), "{why:?}");
    assert_eq!(bench.observer.snapshot().inbox.codes["UNKNOWN_EVENT_TYPE"], 2);

    // Fifteen minutes of waiting are over.
    bench.sql(
        "UPDATE relais_inbox SET unknown_since = '2000-01-01T00:00:00.000Z',
                next_attempt_at = '2000-01-01T00:15:00.000Z' WHERE id = 1",
    );
    run_until_idle(&mut old).await;
    assert_eq!(statuses(&bench)[..2], ["1 FAILED 0", "2 RECEIVED 0"]);
    assert_eq!(bench.texts("SELECT msg_key FROM relais_parked_key"), ["x"]);

    // A program that knows it takes over, and an operator retries.
    crate::worker::Worker::stop(&mut old, Duration::MAX).await;
    let mut new = knowing(&bench, "new", &["T", "Huh"]).await;
    let filter = Filter { key: Some("x".into()), limit: 10, ..Filter::default() };
    let letter = bench.store.list_dead_letters(filter).await.unwrap().remove(0);
    assert!(bench.resolve(letter.id, Resolution::Retried).await);
    run_until_idle(&mut new).await;
    assert_eq!(bench.texts("SELECT text FROM note ORDER BY id"), ["3", "1", "2"], "in order");
}

#[tokio::test]
async fn lanes_are_handed_over_until_mixed_keys_are_handled_in_order() {
    on_both(mixed_keys).await;
}

async fn mixed_keys(bench: Bench) {
    let keys: Vec<String> = (0..5).map(|n| format!("key-{n}")).collect();
    let types = ["A", "B", "B", "A", "A", "B", "A", "B"];
    let mixed = types.iter().enumerate().flat_map(|(n, event_type)| {
        // Half of the keys begin with the other type.
        let other = if *event_type == "A" { "B" } else { "A" };
        keys.iter().enumerate().map(move |(k, key)| {
            (key.as_str(), if (k + n / 8) % 2 == 0 { *event_type } else { other })
        })
    });
    let mixed: Vec<_> = mixed.collect();
    accept_types(&bench, &mixed).await;
    let mut a = knowing(&bench, "a", &["A"]).await;
    let mut b = knowing(&bench, "b", &["B"]).await;
    for _ in 0..20 {
        turn(&mut [&mut a, &mut b]).await;
    }
    assert_eq!(bench.texts("SELECT count(*) FROM relais_inbox WHERE status = 'PROCESSED'"), ["40"]);
    assert_eq!(bench.texts("SELECT max(attempts) FROM relais_inbox"), ["1"]);
    assert_eq!(bench.texts("SELECT count(*) FROM relais_dead_letter"), ["0"]);
    let overtaken = bench.texts(
        "SELECT count(*) FROM relais_inbox AS e JOIN relais_inbox AS l
                ON l.msg_key = e.msg_key AND l.id > e.id
         JOIN note AS ne ON ne.text = e.message_id JOIN note AS nl ON nl.text = l.message_id
         WHERE nl.id < ne.id",
    );
    assert_eq!(overtaken, ["0"], "the order of every key holds");
    assert_eq!(bench.texts("SELECT count(*) FROM note"), ["40"], "each once");
}

#[tokio::test]
async fn a_lane_is_handed_over_only_when_nothing_of_it_is_in_flight() {
    let bench = Bench::new().await;
    let a = bench.keeper(Scope::Inbox, "a").knowing(["A".to_owned()]);
    let b = bench.keeper(Scope::Inbox, "b").knowing(["B".to_owned()]);
    a.beat().await.unwrap();
    assert!(!a.hand_over(7, "B"), "no live worker knows it");
    b.beat().await.unwrap();
    a.beat().await.unwrap();
    assert!(a.hand_over(7, "B"));
    let lanes = a.usable();
    assert!(lanes.iter().any(|lane| lane.lane == 7), "rows in flight continue");
    assert!(a.readable(lanes).iter().all(|lane| lane.lane != 7), "nothing more is read");
    a.report_left(|_| false);
    a.beat().await.unwrap();
    b.beat().await.unwrap();
    assert_eq!((a.owned(), b.owned()), (64, 0));
    a.report_left(|lane| lane == 7);
    a.beat().await.unwrap();
    b.beat().await.unwrap();
    assert_eq!(b.usable().iter().map(|lane| lane.lane).collect::<Vec<_>>(), [7]);
    a.beat().await.unwrap();
    assert_eq!(a.owned(), 63, "it is not taken again");
}

#[tokio::test]
async fn a_lane_handed_over_for_its_type_is_no_surplus_for_a_while() {
    let bench = Bench::new().await;
    let a = bench.keeper(Scope::Inbox, "a").knowing(["A".to_owned()]);
    let b = bench.keeper(Scope::Inbox, "b").knowing(["B".to_owned()]);
    a.beat().await.unwrap();
    b.beat().await.unwrap();
    a.beat().await.unwrap();
    assert!((0..64).all(|lane| a.hand_over(lane, "B")));
    a.report_left(|_| true);
    a.report_empty(|_| true);
    a.beat().await.unwrap();
    for _ in 0..3 {
        b.beat().await.unwrap();
        b.report_empty(|_| true);
    }
    assert_eq!((a.owned(), b.owned(), b.usable().len()), (0, 64, 64));
}

#[tokio::test]
async fn rows_that_a_worker_does_not_know_are_quarantined_by_the_one_that_does() {
    let bench = Bench::new().await;
    accept_types(&bench, &[("x", "B"), ("x2", "A")]).await;
    drop(knowing(&bench, "dead", &["B"]).await);
    bench.expire_leases();
    // The lanes of the lost worker go first to one that does not know the type.
    let mut a = knowing(&bench, "a", &["A"]).await;
    let mut b = knowing(&bench, "b", &["B"]).await;
    let counting = "SELECT message_id || ' ' || attempts FROM relais_inbox ORDER BY id";
    a.reader().keeper().beat().await.unwrap();
    run_until_idle(&mut a).await;
    assert_eq!(bench.texts(counting)[0], "1 0", "it did not work on it");
    a.reader().keeper().beat().await.unwrap();
    b.reader().keeper().beat().await.unwrap();
    b.reader().top_up().await.unwrap();
    let entries = b.reader().take(relais_core::publisher::Batching::Single);
    let treatment = relais_core::quarantine::Treatment::NoteAndSend;
    assert_eq!(entries[0].treatment, treatment, "the loss is noted before it is handled");
}

#[tokio::test]
async fn a_reply_is_handled_by_the_worker_that_has_the_version_of_its_process() {
    let mut old = Hand::order().await;
    let id = old.process_id().to_string();
    let mut second = order();
    second.version = 2;
    let mut new = inbox(&old.bench, vec![second.build().unwrap()]).await;
    // The old program is alive, and the new one has every lane.
    old.inbox.reader().keeper().leave(|_| false).await;
    new.reader().keeper().beat().await.unwrap();
    assert_eq!(new.reader().keeper().owned(), 64);
    old.inbox.reader().keeper().beat().await.unwrap();
    new.reader().keeper().beat().await.unwrap();
    old.bench.store.accept(vec![reply("r", "Charged", &id, None)], Vec::new()).await.unwrap();
    run_until_idle(&mut new).await;
    assert_eq!(
        old.bench.texts("SELECT status FROM relais_inbox WHERE message_id = 'r'"),
        ["RECEIVED"]
    );
    new.reader().keeper().beat().await.unwrap();
    old.inbox.reader().keeper().beat().await.unwrap();
    run_until_idle(&mut old.inbox).await;
    assert_eq!(old.state(), "RUNNING stock");
    assert_eq!(old.failures(), [] as [String; 0]);
}

/// Starts another program on the same database, with a handler that notes messages of these types.
async fn program(bench: &Bench, types: &[&str]) -> RunningApp {
    let sqlite = SqliteStore::open(&bench.path(), SqliteOptions::default()).await.unwrap();
    let note = sqlite::handler(
        &sqlite,
        |tx: &rusqlite::Transaction<'_>, message: Received<serde_json::Value>| {
            tx.execute("INSERT INTO note (text) VALUES (?1)", [&message.message_id]).unwrap();
        },
    );
    let note: Arc<dyn Handler> = note;
    let store: Arc<dyn StoreDriver> = Arc::new(sqlite);
    let app = types.iter().fold(App::new(store), |app, name| app.handle(name, Arc::clone(&note)));
    app.start()
}

async fn until(bench: &Bench, sql: &str, wanted: &str) {
    let reached = async {
        while bench.texts(sql) != [wanted] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let reached = tokio::time::timeout(PATIENCE, reached).await;
    assert!(reached.is_ok(), "{sql} is not {wanted}: {:?}", statuses(bench));
}

const HANDLED: &str = "SELECT count(*) FROM relais_inbox WHERE status = 'PROCESSED'";
const DEAD: &str = "SELECT count(*) FROM relais_dead_letter";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_programs_with_different_handlers_make_no_dead_letters_of_each_other() {
    let bench = Bench::new().await;
    noting(&bench, |_| Outcome::Done);
    let programs = [program(&bench, &["ForA"]).await, program(&bench, &["ForB"]).await];
    let lanes = "SELECT count(DISTINCT owner) FROM relais_lane WHERE owner IS NOT NULL";
    until(&bench, lanes, "2").await;
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    let messages: Vec<_> = (0..40)
        .map(|n| (keys[n % 10].as_str(), if (n / 10 + n) % 2 == 0 { "ForA" } else { "ForB" }))
        .collect();
    accept_types(&bench, &messages).await;
    until(&bench, HANDLED, "40").await;
    assert_eq!(bench.texts(DEAD), ["0"]);
    assert_eq!(bench.texts("SELECT max(attempts) FROM relais_inbox"), ["1"]);
    for program in programs {
        program.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_deployment_that_adds_a_type_makes_no_dead_letters() {
    let bench = Bench::new().await;
    noting(&bench, |_| Outcome::Done);
    let old = program(&bench, &["Known"]).await;
    until(&bench, "SELECT count(*) FROM relais_lane WHERE owner IS NOT NULL", "64").await;
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    let messages: Vec<_> =
        (0..40).map(|n| (keys[n % 10].as_str(), if n < 20 { "Known" } else { "Added" })).collect();
    accept_types(&bench, &messages).await;
    until(&bench, HANDLED, "20").await;
    until(&bench, "SELECT count(*) FROM relais_inbox WHERE status = 'RETRY'", "10").await;
    let new = program(&bench, &["Known", "Added"]).await;
    until(&bench, HANDLED, "40").await;
    assert_eq!(bench.texts(DEAD), ["0"]);
    old.stop().await;
    new.stop().await;
}

#[tokio::test]
async fn an_app_without_actions_takes_no_lanes_of_the_inbox() {
    let bench = Bench::new().await;
    noting(&bench, |_| Outcome::Done);
    let receives = program(&bench, &[]).await;
    let handles = program(&bench, &["A"]).await;
    accept_types(&bench, &[("k", "A")]).await;
    until(&bench, HANDLED, "1").await;
    let workers = "SELECT count(DISTINCT worker) FROM relais_worker WHERE scope = 'inbox'";
    assert_eq!(bench.texts(workers), ["1"]);
    receives.stop().await;
    handles.stop().await;
}
