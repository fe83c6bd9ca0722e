//! Settlements beside calls: when they begin, what they hold back, what they never hold back.

use std::{sync::Arc, time::Duration};

use relais_core::{delivery::Delivery, inspect::InspectExt, lane::Scope, publisher::Batching};

use super::support::{Bench, Script, drain, on_both};
use crate::{
    App,
    dead_letters::{DecisionAuthor, DecisionOutcome},
    lane_reader::UNSETTLED_MAX,
    relay::Relay,
    worker::{PassOutcome, Worker},
};

/// Longer than any test: a settlement that waits for more results never begins.
const NEVER: Duration = Duration::from_secs(3_600);

/// Holds the write lock of the database: settlements wait, reads do not.
struct WriteLock(rusqlite::Connection);

impl WriteLock {
    fn take(bench: &Bench) -> Self {
        let connection = rusqlite::Connection::open(bench.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self(connection)
    }

    fn release(self) {
        self.0.execute_batch("ROLLBACK").unwrap();
    }
}

async fn enqueue(bench: &Bench, key: impl Fn(usize) -> String, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
    let keys: Vec<String> = (0..count).map(key).collect();
    let messages: Vec<_> =
        keys.iter().map(String::as_str).zip(names.iter().map(String::as_str)).collect();
    bench.enqueue(&messages).await;
    names
}

/// Runs a pass that reads, and lets the calls run.
async fn pass(relay: &mut Relay) -> PassOutcome {
    relay.request_read();
    let outcome = relay.run_once().await.unwrap();
    tokio::task::yield_now().await;
    outcome
}

async fn passes_until(relay: &mut Relay, publisher: &Arc<Script>, seen: usize) {
    while publisher.seen().len() < seen {
        pass(relay).await;
    }
}

#[tokio::test]
async fn a_key_continues_before_its_settlement_is_committed() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    let names = enqueue(&bench, |_| "hot".into(), 150).await;
    let mut relay = bench.relay("w", &publisher).await;
    let lock = WriteLock::take(&bench);
    passes_until(&mut relay, &publisher, 150).await;
    assert_eq!(bench.statuses(), ["PENDING 0"; 150], "nothing is committed");
    lock.release();
    drain(&mut relay).await;
    assert_eq!(publisher.seen(), names, "in order, each once");
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 150]);
}

#[tokio::test]
async fn nothing_of_a_key_is_sent_behind_a_failure_that_is_not_settled() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[("m0", vec![Delivery::retry("500", "oops")])]);
    enqueue(&bench, |_| "a".into(), 100).await;
    let mut relay = bench.relay("w", &publisher).await;
    let lock = WriteLock::take(&bench);
    for _ in 0..50 {
        pass(&mut relay).await;
    }
    assert_eq!(publisher.seen(), ["m0"]);
    lock.release();
    drain(&mut relay).await;
    assert_eq!(publisher.seen(), ["m0"], "the failed row holds its key");
    bench.make_due();
    drain(&mut relay).await;
    assert_eq!(publisher.seen()[..3], ["m0", "m0", "m1"]);
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 100]);
}

#[tokio::test]
async fn calls_stop_at_the_maximum_of_unsettled_rows() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    enqueue(&bench, |n| format!("k{n}"), 400).await;
    let mut relay = bench.relay("w", &publisher).await;
    let lock = WriteLock::take(&bench);
    passes_until(&mut relay, &publisher, UNSETTLED_MAX).await;
    for _ in 0..50 {
        pass(&mut relay).await;
    }
    let (seen, at_once) = (publisher.seen().len(), 10);
    assert!(seen < UNSETTLED_MAX + at_once, "{seen}");
    lock.release();
    drain(&mut relay).await;
    assert_eq!(publisher.seen().len(), 400);
}

#[tokio::test]
async fn a_refused_settlement_stops_the_calls_of_its_worker() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    enqueue(&bench, |n| format!("k{n}"), 900).await;
    let mut zombie = bench.relay("old", &publisher).await;
    zombie.reader().top_up().await.unwrap();
    bench.expire_leases();
    bench.keeper(Scope::Outbox("d".into()), "new").beat().await.unwrap();
    drain(&mut zombie).await;
    let (seen, at_once) = (publisher.seen().len(), 10);
    assert!(seen < UNSETTLED_MAX + at_once, "{seen}");
    assert_eq!(bench.statuses(), ["PENDING 0"; 900]);
    assert_eq!(bench.observer.snapshot().destinations["d"].refused, seen as u64);
}

#[tokio::test]
async fn a_message_that_an_operator_fails_in_flight_stops_its_key_once_its_settlement_is_refused() {
    on_both(async |bench| {
        let publisher = Script::new(&[]);
        publisher.stick("m0");
        publisher.stick("m1");
        enqueue(&bench, |_| "hot".into(), 4).await;
        let mut relay = bench.relay("w", &publisher).await;
        relay.settle_within(Duration::ZERO);
        passes_until(&mut relay, &publisher, 1).await;
        let first = bench.texts("SELECT min(id) FROM relais_outbox").remove(0);
        let row = bench.store.find_outbox(first).await.unwrap().unwrap();
        let by = DecisionAuthor::new("ann", "the target will never accept it");
        let failed = App::new(bench.store.clone()).dead_letters().fail(&row, &by).await.unwrap();
        assert_eq!(failed, DecisionOutcome::Done);
        publisher.release("m0");
        // The next one starts when the first is accepted, before its settlement.
        passes_until(&mut relay, &publisher, 2).await;
        drain(&mut relay).await;
        publisher.release("m1");
        drain(&mut relay).await;
        relay.reader().keeper().beat().await.unwrap();
        drain(&mut relay).await;
        assert_eq!(publisher.seen(), ["m0", "m1"], "the others wait behind the dead letter");
        assert_eq!(bench.statuses(), ["FAILED 0", "DISPATCHED 1", "PENDING 0", "PENDING 0"]);
    })
    .await;
}

#[tokio::test]
async fn no_call_starts_when_the_lease_may_have_expired() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    enqueue(&bench, |_| "hot".into(), 10).await;
    let mut relay = bench.relay("w", &publisher).await;
    relay.reader().top_up().await.unwrap();
    relay.reader().keeper().distrust();
    drain(&mut relay).await;
    assert!(publisher.seen().is_empty());
    relay.reader().keeper().beat().await.unwrap();
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 10]);
}

#[tokio::test]
async fn a_thousand_calls_of_one_message_share_few_settlements() {
    for hot in [true, false] {
        let bench = Bench::new().await;
        let publisher = Script::new(&[]);
        let key = |n| if hot { "hot".to_owned() } else { format!("k{n}") };
        enqueue(&bench, key, 1_000).await;
        let mut relay = bench.relay("w", &publisher).await;
        relay.settle_within(NEVER);
        drain(&mut relay).await;
        assert_eq!(publisher.seen().len(), 1_000);
        assert_eq!(bench.statuses(), vec!["DISPATCHED 1"; 1_000]);
        let settlements = relay.settlements();
        assert!(settlements <= 60, "{settlements} settlements");
    }
}

#[tokio::test]
async fn a_message_alone_is_settled_at_once() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    enqueue(&bench, |_| "a".into(), 1).await;
    let mut relay = bench.relay("w", &publisher).await;
    relay.settle_within(NEVER);
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1"]);
}

#[tokio::test]
async fn results_beside_a_slow_call_are_settled_without_it() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    publisher.stick("m0");
    enqueue(&bench, |n| format!("k{n}"), 3).await;
    drain(&mut bench.relay("w", &publisher).await).await;
    assert_eq!(bench.statuses(), ["PENDING 0", "DISPATCHED 1", "DISPATCHED 1"]);
}

#[tokio::test]
async fn stopping_settles_every_result() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    publisher.stick("m0");
    enqueue(&bench, |n| format!("k{}", n.min(1)), 50).await;
    let mut relay = bench.relay("w", &publisher).await;
    relay.settle_within(NEVER);
    passes_until(&mut relay, &publisher, 50).await;
    assert_eq!(bench.statuses(), ["PENDING 0"; 50], "results wait for others");
    relay.stop(Duration::from_millis(10)).await;
    assert_eq!(bench.statuses()[0], "PENDING 0", "its call did not return");
    assert_eq!(bench.statuses()[1..], ["DISPATCHED 1"; 49]);
}

#[tokio::test]
async fn results_are_kept_while_the_database_is_unavailable_and_no_call_starts() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    enqueue(&bench, |_| "hot".into(), 50).await;
    let mut relay = bench.relay("w", &publisher).await;
    bench.sql("ALTER TABLE relais_lane RENAME TO relais_lane_away");
    while relay.run_once().await.is_ok() {
        tokio::task::yield_now().await;
    }
    let seen = publisher.seen().len();
    for _ in 0..5 {
        assert!(relay.run_once().await.is_err());
    }
    assert_eq!(publisher.seen().len(), seen);
    bench.sql("ALTER TABLE relais_lane_away RENAME TO relais_lane");
    drain(&mut relay).await;
    assert_eq!(publisher.seen().len(), 50, "each once");
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 50]);
}

#[tokio::test]
async fn a_hot_key_is_sent_in_large_batches() {
    let bench = Bench::new().await;
    let publisher = Script::batching(Batching::InOrder { max: 1_000 }, &[]);
    let names = enqueue(&bench, |_| "hot".into(), 1_500).await;
    drain(&mut bench.relay("w", &publisher).await).await;
    assert_eq!(publisher.seen(), names);
    assert!(publisher.sizes().len() <= 6, "{:?}", publisher.sizes());
}
