//! Order per key: what waits holds back what came later of its key, and nothing else.

use std::time::Duration;

use relais_core::{dead_letter::Resolution, inbox::InboxFate, lane::Scope, outbox::OutboxFate};

use super::{
    Start, only_dead_letter, resolve,
    worker::{
        MANY, Worker, all, dead_and_parked, dead_message, handle_later, make_due, processed,
        retry_later,
    },
};
use crate::{
    build::{arrival_for, message, messages, problem},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

/// Writes one message for each key, in this order.
async fn enqueue(f: &dyn Fixture, keys: &[&str]) -> Vec<i64> {
    let batch = keys.iter().map(|key| message("orders", key)).collect();
    f.store().enqueue(batch).await.expect("enqueue")
}

/// Accepts `<key><n>` for each key, in this order.
async fn accept(f: &dyn Fixture, names: &[&str]) -> Worker {
    let batch = names.iter().map(|name| arrival_for(name, &name[..1])).collect();
    f.store().accept(batch, Vec::new()).await.expect("accept");
    Worker::inbox(f, "w").await
}

async fn settle(worker: &Worker, id: i64, fate: OutboxFate) {
    let rows = worker.pending(MANY).await;
    let row = rows.iter().find(|row| row.id == id).expect("the row can be worked on");
    assert_eq!(worker.settle(row, fate).await, all(1));
}

async fn settle_inbox(worker: &Worker, name: &str, fate: InboxFate) {
    let rows = worker.received(MANY).await;
    let row = rows.iter().find(|row| row.message_id == name).expect("the row can be worked on");
    assert_eq!(worker.settle_inbox(row, fate).await, all(1));
}

/// Enough looks for a store that remembers where it looked to have learnt something.
const LOOKS: usize = 5;

/// Looks for work where there is none.
async fn look_again(worker: &Worker) {
    for _ in 0..LOOKS {
        assert!(worker.pending(10).await.is_empty());
    }
}

/// Dispatches what may go, always the first row, until nothing is left; the ids in that order.
async fn drain(worker: &Worker) -> Vec<i64> {
    let mut went = Vec::new();
    while let Some(row) = worker.pending(10).await.first() {
        assert_eq!(worker.settle(row, OutboxFate::Dispatched).await, all(1));
        went.push(row.id);
    }
    went
}

pub async fn a_row_in_backoff_holds_its_key_and_no_other(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "b", "a", "b", "a"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    settle(&worker, ids[0], retry_later()).await;
    assert_eq!(worker.pending_ids().await, [ids[1], ids[3]]);
}

pub async fn a_due_row_goes_before_its_followers(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "a", "b", "a"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    settle(&worker, ids[0], retry_later()).await;
    make_due(f, "relais_outbox").await;
    let rows = worker.pending_ids().await;
    assert_eq!(rows[0], ids[0]);
    assert!(rows.is_sorted() && rows.contains(&ids[2]));
    settle(&worker, ids[0], OutboxFate::Dispatched).await;
    assert_eq!(worker.pending_ids().await, ids[1..], "then the key goes on");
}

pub async fn a_due_row_waits_behind_an_earlier_one_that_is_not(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "a", "b"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(2).await;
    let fates = rows.iter().map(|row| worker.outbox_fate(row, retry_later()));
    assert_eq!(worker.settle_all(fates.collect()).await, all(2));
    let past = f.past();
    f.run(&format!("UPDATE relais_waiting SET due_at = {past} WHERE id = {}", ids[1])).await;
    assert_eq!(worker.pending_ids().await, [ids[2]]);
    make_due(f, "relais_outbox").await;
    assert_eq!(worker.pending_ids().await[0], ids[0]);
}

pub async fn a_row_in_backoff_does_not_hold_an_earlier_one(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "a"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    settle(&worker, ids[1], retry_later()).await;
    assert_eq!(worker.pending_ids().await, ids[..1]);
}

pub async fn backoff_holds_the_key_in_its_destination_only(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "a"]).await;
    let other = f.store().enqueue(vec![message("mails", "a")]).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    settle(&worker, ids[0], retry_later()).await;
    assert!(worker.pending(10).await.is_empty());
    let mails = Worker::outbox(f, "mails", "w").await;
    assert_eq!(mails.pending_ids().await, other);
}

pub async fn keys_that_look_alike_are_different_keys(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "A", "a ", "ä", "a\u{308}", "", "a"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    settle(&worker, ids[0], dead_and_parked()).await;
    assert_eq!(worker.pending_ids().await, ids[1..6]);
    settle(&worker, ids[5], retry_later()).await;
    assert_eq!(worker.pending_ids().await, ids[1..5]);
}

pub async fn a_delayed_row_does_not_hold_its_key(f: &dyn Fixture) {
    let mut later = message("orders", "a");
    later.delay = Some(Duration::from_secs(3_600));
    let late = f.store().enqueue(vec![later]).await.expect("enqueue");
    let ids = enqueue(f, &["a", "a"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    assert_eq!(worker.pending_ids().await, ids);
    make_due(f, "relais_outbox").await;
    assert!(worker.pending_ids().await.contains(&late[0]));
}

pub async fn waiting_keys_in_front_do_not_fill_the_batch(f: &dyn Fixture) {
    let held: Vec<_> = (0..30).map(|n| message("orders", &format!("poison-{n}"))).collect();
    f.store().enqueue(held).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(MANY).await;
    let fates = rows.iter().map(|row| worker.outbox_fate(row, retry_later())).collect();
    assert_eq!(worker.settle_all(fates).await, all(30));
    for _ in 0..4 {
        let behind = (0..30).map(|n| message("orders", &format!("poison-{n}"))).collect();
        f.store().enqueue(behind).await.expect("enqueue");
    }
    let healthy = enqueue(f, &["healthy"]).await;
    let rows = worker.pending(10).await;
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), healthy);
}

pub async fn a_parked_key_waits_and_others_continue(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "b", "a"]).await;
    let other = f.store().enqueue(vec![message("mails", "a")]).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    settle(&worker, ids[0], dead_and_parked()).await;
    let more = enqueue(f, &["a", "b"]).await;
    assert_eq!(worker.pending_ids().await, [ids[1], more[1]]);
    assert_eq!(Worker::outbox(f, "mails", "w").await.pending_ids().await, other);
}

pub async fn a_dead_letter_that_parks_nothing_lets_its_key_continue(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "a"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let fate = OutboxFate::Dead { attempts: 1, problem: problem(), park: false };
    settle(&worker, ids[0], fate).await;
    assert_eq!(worker.pending_ids().await, ids[1..]);
    assert_eq!(f.number("SELECT count(*) FROM relais_parked_key").await, 0);
}

pub async fn a_retried_dead_letter_is_first_in_its_key_again(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "a", "a"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    settle(&worker, ids[0], dead_and_parked()).await;
    // Many other rows are delivered meanwhile.
    f.store().enqueue(messages("orders", 500)).await.expect("enqueue");
    let rows = worker.pending(MANY).await;
    let fates = rows.iter().map(|row| worker.outbox_fate(row, OutboxFate::Dispatched)).collect();
    assert_eq!(worker.settle_all(fates).await, all(500));
    look_again(&worker).await;
    let dead = only_dead_letter(f).await;
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    let first = worker.pending(1).await;
    assert_eq!((first[0].id, first[0].attempts), (ids[0], 0), "attempts start again");
    assert_eq!(drain(&worker).await, ids);
}

pub async fn a_retried_dead_letter_goes_before_a_follower_in_backoff(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "a", "a"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let dead = OutboxFate::Dead { attempts: 5, problem: problem(), park: false };
    settle(&worker, ids[0], dead).await;
    settle(&worker, ids[1], retry_later()).await;
    let dead = only_dead_letter(f).await;
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    assert_eq!(worker.pending_ids().await, ids[..1]);
    make_due(f, "relais_outbox").await;
    assert_eq!(worker.pending(1).await[0].id, ids[0], "also when the follower is due");
    assert_eq!(drain(&worker).await, ids);
}

pub async fn a_skipped_dead_letter_frees_its_key(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "a"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    settle(&worker, ids[0], dead_and_parked()).await;
    assert!(worker.pending(10).await.is_empty());
    let dead = only_dead_letter(f).await;
    assert!(resolve(f, dead.id, Resolution::Discarded).await);
    assert_eq!(worker.pending_ids().await, ids[1..]);
}

pub async fn a_dead_letter_that_parks_nothing_does_not_inherit_the_key(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "a", "a"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let fate = OutboxFate::Dead { attempts: 1, problem: problem(), park: false };
    settle(&worker, ids[0], fate).await;
    settle(&worker, ids[1], dead_and_parked()).await;
    let dead = super::open_dead_letters(f).await;
    let parking = dead.iter().find(|letter| letter.origin_id == Some(ids[1])).expect("the second");
    assert!(resolve(f, parking.id, Resolution::Discarded).await);
    assert_eq!(worker.pending_ids().await, ids[2..], "the first one never held the key");
}

pub async fn two_open_dead_letters_hold_their_key_until_both_are_resolved(f: &dyn Fixture) {
    for resolution in [Resolution::Discarded, Resolution::Retried] {
        let ids = enqueue(f, &["a", "a", "a"]).await;
        let worker = Worker::outbox(f, "orders", "w").await;
        let rows = worker.pending(10).await;
        let both = rows[..2].iter().map(|row| worker.outbox_fate(row, dead_and_parked()));
        assert_eq!(worker.settle_all(both.collect()).await, all(2));
        let dead = super::open_dead_letters(f).await;
        assert_eq!(dead.len(), 2);
        assert!(resolve(f, dead[0].id, resolution).await);
        assert!(worker.pending(10).await.is_empty(), "the other one still holds the key");
        let points_to = "SELECT dead_letter_id FROM relais_parked_key";
        assert_eq!(f.value(points_to).await, Some(dead[1].id.to_string()));
        assert!(resolve(f, dead[1].id, resolution).await);
        let wanted = if resolution == Resolution::Discarded { &ids[2..] } else { &ids[..] };
        assert_eq!(drain(&worker).await, wanted);
    }
}

pub async fn a_lower_id_that_commits_late_is_found(f: &dyn Fixture) {
    if !f.dialect().writes_in_parallel() {
        return; // One writer at a time: ids commit in order.
    }
    let mut slow = f.begin().await.expect("begin");
    let insert = "INSERT INTO relais_outbox \
        (aggregate_type, aggregate_id, event_type, destination, payload) \
        VALUES ('Order', 'late', 'OrderCreated', 'orders', '{}')";
    slow.execute(insert).await.expect("insert");
    let ids = enqueue(f, &["a", "b"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    for row in worker.pending(10).await {
        assert_eq!(worker.settle(&row, OutboxFate::Dispatched).await, all(1));
    }
    look_again(&worker).await;
    slow.commit().await.expect("commit");
    let late = worker.pending(10).await;
    assert!(late.len() == 1 && late[0].id < ids[0], "{late:?}");
}

pub async fn a_lower_inbox_id_that_commits_late_is_found(f: &dyn Fixture) {
    if !f.dialect().writes_in_parallel() {
        return; // One writer at a time: ids commit in order.
    }
    let mut slow = f.begin().await.expect("begin");
    let insert = "INSERT INTO relais_inbox \
        (message_id, source_system, topic, partition_num, offset_num, msg_key, payload) \
        VALUES ('late', 'other', 't', 0, 0, 'late', '{}')";
    slow.execute(insert).await.expect("insert");
    let worker = accept(f, &["a1", "b1"]).await;
    settle_inbox(&worker, "a1", processed()).await;
    settle_inbox(&worker, "b1", processed()).await;
    for _ in 0..LOOKS {
        assert!(worker.received(10).await.is_empty());
    }
    slow.commit().await.expect("commit");
    assert_eq!(worker.received_ids().await, ["late"]);
}

pub async fn an_inbox_row_in_backoff_holds_its_key_and_no_other(f: &dyn Fixture) {
    let worker = accept(f, &["a1", "b1", "a2", "b2"]).await;
    settle_inbox(&worker, "a1", handle_later()).await;
    assert_eq!(worker.received_ids().await, ["b1", "b2"]);
    make_due(f, "relais_inbox").await;
    assert_eq!(worker.received_ids().await[0], "a1");
    settle_inbox(&worker, "a1", processed()).await;
    assert_eq!(worker.received_ids().await, ["b1", "a2", "b2"]);
}

pub async fn an_inbox_row_put_off_without_an_attempt_holds_its_key(f: &dyn Fixture) {
    let worker = accept(f, &["a1", "b1", "a2", "a3"]).await;
    let pause = Duration::from_secs(3_600);
    let put_off = InboxFate::Retry { attempts: 0, pause, problem: problem() };
    settle_inbox(&worker, "a1", put_off).await;
    assert_eq!(worker.received_ids().await, ["b1"]);
    // One behind it that is due waits too.
    let past = f.past();
    f.run(&format!("UPDATE relais_inbox SET next_attempt_at = {past} WHERE message_id = 'a2'"))
        .await;
    assert_eq!(worker.received_ids().await, ["b1"]);
}

pub async fn a_due_inbox_row_waits_behind_an_earlier_one_that_is_not(f: &dyn Fixture) {
    let worker = accept(f, &["a1", "a2"]).await;
    let (future, past) = (f.future(), f.past());
    for (id, at) in [("a1", future), ("a2", past)] {
        f.run(&format!(
            "UPDATE relais_inbox SET status = 'RETRY', attempts = 1, next_attempt_at = {at} \
             WHERE message_id = '{id}'"
        ))
        .await;
    }
    assert!(worker.received(10).await.is_empty());
}

pub async fn a_parked_inbox_key_waits_for_an_operator(f: &dyn Fixture) {
    let worker = accept(f, &["a1", "b1", "a2"]).await;
    settle_inbox(&worker, "a1", dead_message()).await;
    for _ in 0..LOOKS {
        assert_eq!(worker.received_ids().await, ["b1"]);
    }
    f.store().accept(vec![arrival_for("a3", "a")], Vec::new()).await.expect("accept");
    assert_eq!(worker.received_ids().await, ["b1"]);
    let outbox = f.store().enqueue(vec![message("orders", "a")]).await.expect("enqueue");
    let sender = Worker::start(f.second(), Scope::Outbox("orders".into()), "w").await;
    assert_eq!(sender.pending_ids().await, outbox, "an inbox key parks no outbox key");
    let dead = only_dead_letter(f).await;
    assert!(resolve(f, dead.id, Resolution::Retried).await);
    assert_eq!(worker.received_ids().await[..2], ["a1", "b1"]);
    settle_inbox(&worker, "a1", dead_message()).await;
    assert_eq!(worker.received_ids().await, ["b1"], "it waits again");
    let dead = super::open_dead_letters(f).await;
    assert!(resolve(f, dead[0].id, Resolution::Discarded).await);
    assert_eq!(worker.received_ids().await, ["b1", "a2", "a3"]);
}

pub async fn waiting_inbox_keys_in_front_do_not_fill_the_batch(f: &dyn Fixture) {
    let store = f.store();
    for round in 0..4 {
        let batch = (0..30).map(|n| arrival_for(&format!("{round}-{n}"), &format!("poison-{n}")));
        store.accept(batch.collect(), Vec::new()).await.expect("accept");
    }
    let worker = Worker::inbox(f, "w").await;
    let first = worker.received(30).await;
    let fates = first.iter().map(|row| worker.inbox_fate(row, handle_later())).collect();
    assert_eq!(worker.settle_inbox_all(fates).await, all(30));
    store.accept(vec![arrival_for("healthy", "h")], Vec::new()).await.expect("accept");
    let rows = worker.received(10).await;
    assert_eq!(rows.iter().map(|r| r.message_id.as_str()).collect::<Vec<_>>(), ["healthy"]);
}

pub async fn rows_of_skipped_keys_are_left_out(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "A", "a ", "", "a", "it's", "b"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let left = async |keys: &[&str]| -> Vec<i64> {
        worker.pending_without(keys).await.into_iter().map(|row| row.id).collect()
    };
    assert_eq!(left(&["a"]).await, [ids[1], ids[2], ids[3], ids[5], ids[6]]);
    assert_eq!(left(&["", "it's", "a", "unknown"]).await, [ids[1], ids[2], ids[6]]);
    settle(&worker, ids[6], retry_later()).await;
    make_due(f, "relais_outbox").await;
    assert!(!left(&["b"]).await.contains(&ids[6]), "nor when they are due");
    let worker = accept(f, &["a1", "b1", "a2"]).await;
    let names: Vec<_> =
        worker.received_without(&["a"]).await.into_iter().map(|row| row.message_id).collect();
    assert_eq!(names, ["b1"]);
}

pub async fn a_skipped_key_with_a_long_backlog_does_not_fill_the_batch(f: &dyn Fixture) {
    let slow = (0..300).map(|_| message("orders", "slow")).collect();
    f.store().enqueue(slow).await.expect("enqueue");
    let healthy = enqueue(f, &["healthy"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    let mut fetch = worker.fetch(10);
    fetch.skip_keys = (0..64).map(|n| format!("busy-{n}")).collect();
    fetch.skip_keys.push("slow".to_owned());
    let rows = f.store().fetch_outbox(fetch).await.expect("fetch");
    assert_eq!(rows.into_iter().map(|row| row.id).collect::<Vec<_>>(), healthy);
}

pub async fn rows_in_flight_are_left_out_and_do_not_fill_the_batch(f: &dyn Fixture) {
    let ids = enqueue(f, &["a", "b", "a", "c"]).await;
    let worker = Worker::outbox(f, "orders", "w").await;
    settle(&worker, ids[3], retry_later()).await;
    make_due(f, "relais_outbox").await;
    let mut fetch = worker.fetch(2);
    fetch.skip_ids = vec![ids[0], ids[3], 1_000_000];
    let rows = f.store().fetch_outbox(fetch).await.expect("fetch");
    assert_eq!(rows.into_iter().map(|row| row.id).collect::<Vec<_>>(), [ids[1], ids[2]]);
    let worker = accept(f, &["a1", "b1", "a2"]).await;
    let first = worker.received(1).await[0].id;
    let mut fetch = worker.fetch(1);
    fetch.skip_ids = vec![first];
    let rows = f.store().fetch_inbox(fetch).await.expect("fetch");
    assert_eq!(rows.into_iter().map(|row| row.message_id).collect::<Vec<_>>(), ["b1"]);
}
