//! Rows that wait in backoff: operators see which keys are failing, and can send a row before its time.

use std::time::Duration;

use relais_core::{
    dead_letter::{DecisionAction, DecisionResult, OperatorDecision, Resolution},
    inspect::InspectExt,
    message::NewMessage,
    outbox::{OnDeadLetter, OutboxFate},
    query::{Backlog, CleanupMode, Retention},
};

use super::{
    Start,
    bulk::Held,
    only_dead_letter, resolve,
    worker::{Worker, all, make_due, none, quarantined, retry_later, wait_uncounted},
};
use crate::{
    build::{message, problem},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

async fn backlog(f: &dyn Fixture, destination: &str) -> Backlog {
    let overview = f.store().overview().await.expect("overview");
    let mut found = overview.backlogs.into_iter();
    found.find(|backlog| backlog.destination == destination).expect("a backlog")
}

fn delayed(destination: &str, key: &str) -> NewMessage {
    NewMessage { delay: Some(Duration::from_secs(60)), ..message(destination, key) }
}

async fn send_now(f: &dyn Fixture, row: i64) -> DecisionResult {
    let action = DecisionAction::SendNow { row };
    let reason = "fixed at the target 😀".to_owned();
    let decision = OperatorDecision { action, actor: "ann".to_owned(), reason };
    f.second().decide(decision).await.expect("decide")
}

pub async fn failing_keys_are_counted_beside_healthy_ones(f: &dyn Fixture) {
    let keys = ["healthy", "poison", "poison", "uncounted", "fresh"];
    let batch = keys.iter().map(|key| message("orders", key)).chain([delayed("orders", "later")]);
    let ids = f.store().enqueue(batch.collect()).await.expect("enqueue");
    f.store().enqueue(vec![message("mails", "a")]).await.expect("enqueue");
    let none_fails = backlog(f, "orders").await;
    assert_eq!((none_fails.pending, none_fails.failing_keys, none_fails.failing), (6, 0, None));
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(5).await;
    worker.settle(&rows[0], OutboxFate::Dispatched).await;
    let uncounted = rows.iter().find(|row| row.id == ids[3]).expect("the row");
    worker.settle(uncounted, wait_uncounted()).await;
    let seen = backlog(f, "orders").await;
    let row = seen.failing.expect("a failing row");
    assert_eq!((seen.failing_keys, row.id, row.attempts), (1, ids[3], 0));
    let found = f.store().find_outbox(ids[3].to_string()).await.expect("find").expect("a row");
    assert_eq!(row.since, found.created_at, "no attempt was used");
    let hour = f.dialect().ago(3_600);
    f.run(&format!("UPDATE relais_outbox SET created_at = {hour} WHERE id = {}", ids[1])).await;
    worker.settle(&rows[1], retry_later()).await;
    // Rows behind it are moved; a delayed row is not failing.
    worker.pending(5).await;
    let seen = backlog(f, "orders").await;
    let row = seen.failing.expect("a failing row");
    assert_eq!((seen.pending, seen.failing_keys), (5, 2));
    assert_eq!((row.id, row.msg_key.as_str(), row.attempts), (ids[1], "poison", 1));
    assert_eq!(row.error_code, Some(problem().code));
    assert_eq!(row.error_message, Some(problem().message));
    let overview = f.store().overview().await.expect("overview");
    assert!(row.since.seconds_until(overview.now) < 600, "since its first attempt: {row:?}");
    assert!(row.next_attempt_at.expect("a time") > overview.now);
    let mails = backlog(f, "mails").await;
    assert_eq!((mails.failing_keys, mails.failing), (0, None));
    // A dead letter is not failing any more.
    let fail = DecisionAction::FailPending { row: ids[1], on_dead_letter: OnDeadLetter::Park };
    let (actor, reason) = ("ann".to_owned(), "no".to_owned());
    let decided = f.store().decide(OperatorDecision { action: fail, actor, reason }).await;
    assert_eq!(decided.expect("fail"), DecisionResult::Done);
    assert_eq!(backlog(f, "orders").await.failing_keys, 1);
}

pub async fn a_row_in_backoff_is_sent_now_and_keeps_attempts_and_order(f: &dyn Fixture) {
    let batch = vec![message("orders", "a"), message("orders", "a"), message("orders", "b")];
    let ids = f.store().enqueue(batch).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let first = worker.pending(1).await.remove(0);
    assert_eq!(send_now(f, ids[0]).await, DecisionResult::ResolvedBefore, "it is fresh");
    worker.settle(&first, retry_later()).await;
    assert_eq!(worker.pending_ids().await, ids[2..], "its key waits");
    assert_eq!(send_now(f, ids[1]).await, DecisionResult::ResolvedBefore, "it is behind");
    let changes = f.store().changes().await.expect("changes");
    assert_eq!(send_now(f, ids[0]).await, DecisionResult::Done);
    assert_ne!(f.store().changes().await.expect("changes").rows, changes.rows, "workers notice");
    assert_eq!(worker.pending_ids().await, [ids[0], ids[2]], "the first of its key, alone");
    let row = worker.pending(1).await.remove(0);
    assert_eq!((row.id, row.attempts), (ids[0], 1), "its attempts are used");
    assert_eq!(row.error_code, Some(problem().code));
    assert_eq!(send_now(f, ids[0]).await, DecisionResult::ResolvedBefore, "it may be in flight");
    let audit = f.rows("SELECT actor, action, target, reason FROM relais_audit").await;
    let line = ["ann", "outbox.sent-now", &ids[0].to_string(), "fixed at the target 😀"];
    assert_eq!(audit, [line.map(|text| Some(text.to_owned())).to_vec()]);
    // It fails again, and waits again.
    worker.settle(&row, retry_later()).await;
    assert_eq!(worker.pending_ids().await, ids[2..]);
    assert_eq!(send_now(f, ids[0]).await, DecisionResult::Done);
    let row = worker.pending(1).await.remove(0);
    assert_eq!(worker.settle(&row, OutboxFate::Dispatched).await, all(1));
    assert_eq!(worker.pending_ids().await, ids[1..], "the rest of the key follows");
    assert_eq!(send_now(f, ids[0]).await, DecisionResult::ResolvedBefore, "it is delivered");
    assert_eq!(send_now(f, 9_999).await, DecisionResult::NotFound);
}

/// Only the owner of the lane sends a row that an operator made due.
pub async fn a_row_that_is_sent_now_is_settled_under_the_fence(f: &dyn Fixture) {
    let ids = f.store().enqueue(vec![message("orders", "a")]).await.expect("enqueue");
    let lost = Worker::outbox(f, "orders", "lost").await;
    let row = lost.pending(1).await.remove(0);
    lost.settle(&row, retry_later()).await;
    super::worker::expire_all(f).await;
    let owner = Worker::outbox(f, "orders", "owner").await;
    assert_eq!(send_now(f, ids[0]).await, DecisionResult::Done);
    assert_eq!(lost.settle(&row, OutboxFate::Dispatched).await, none(1));
    let row = owner.pending(1).await.remove(0);
    assert_eq!(owner.settle(&row, OutboxFate::Dispatched).await, all(1));
}

pub async fn what_is_not_in_backoff_is_not_sent_now(f: &dyn Fixture) {
    let held = Held::of(f, &["a", "b"]).await;
    assert_eq!(send_now(f, held.id(0)).await, DecisionResult::ResolvedBefore, "in a bulk job");
    let batch = vec![delayed("orders", "d"), message("orders", "q"), message("orders", "p")];
    let ids = f.store().enqueue(batch).await.expect("enqueue");
    let last = f.store().enqueue(vec![message("orders", "p")]).await.expect("enqueue")[0];
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    assert_eq!(send_now(f, ids[0]).await, DecisionResult::ResolvedBefore, "sent with a delay");
    let row = |id: i64| rows.iter().find(|row| row.id == id).expect("a row");
    worker.settle(row(ids[1]), quarantined()).await;
    assert_eq!(send_now(f, ids[1]).await, DecisionResult::ResolvedBefore, "in quarantine");
    worker.settle(row(ids[2]), retry_later()).await;
    let fail = DecisionAction::FailPending { row: last, on_dead_letter: OnDeadLetter::Park };
    let (actor, reason) = ("ann".to_owned(), "no".to_owned());
    let decided = f.store().decide(OperatorDecision { action: fail, actor, reason }).await;
    assert_eq!(decided.expect("fail"), DecisionResult::Done);
    assert_eq!(send_now(f, ids[2]).await, DecisionResult::ResolvedBefore, "its key is parked");
    let audit =
        f.number("SELECT count(*) FROM relais_audit WHERE action = 'outbox.sent-now'").await;
    assert_eq!(audit, 0);
}

/// An operator retries the first row while the second one is due already: the time of the first is later.
pub async fn rows_of_a_key_keep_their_order_when_their_times_do_not(f: &dyn Fixture) {
    let batch = (0..3).map(|_| message("orders", "a")).collect();
    let ids = f.store().enqueue(batch).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    let dead = OutboxFate::Dead { attempts: 5, problem: problem(), park: false };
    assert_eq!(worker.settle(&rows[0], dead).await, all(1));
    assert_eq!(worker.settle(&rows[1], retry_later()).await, all(1));
    assert!(worker.pending(10).await.is_empty(), "the third row waits behind the second");
    make_due(f, "relais_outbox").await;
    assert!(resolve(f, only_dead_letter(f).await.id, Resolution::Retried).await);
    // The sweep makes the third row due: the first row of the key is.
    let mode = CleanupMode::Remove { rows_max: 100 };
    f.store().cleanup(Retention::default(), mode).await.expect("clean up");
    for limit in 1..=3 {
        let found: Vec<i64> = worker.pending(limit).await.iter().map(|row| row.id).collect();
        assert!(!found.is_empty() && ids.starts_with(&found), "{found:?} of {ids:?}");
    }
}
