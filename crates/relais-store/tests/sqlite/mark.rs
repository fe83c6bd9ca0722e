//! A fetch starts behind the rows that are settled or wait, and misses none.

use std::time::Duration;

use relais_core::{
    dead_letter::{DeadLetterStore, DecisionAction, DecisionResult, OperatorDecision, Resolution},
    delivery::Problem,
    inbox::{InboxFate, InboxSettlement},
    inspect::InspectExt,
    lane::{Fence, OwnedLane, Scope},
    outbox::{OutboxFate, OutboxRow, OutboxSettlement},
    query::{CleanupMode, Filter, Retention},
    store::{Fetch, Store},
};
use rusqlite::StatementStatus;
use uuid::Uuid;

use crate::bed::{Bed, DESTINATION, message, received};

fn scope() -> Scope {
    Scope::Outbox(DESTINATION.into())
}

async fn send(bed: &Bed, key: &str) -> (i64, Uuid) {
    let message = message(key);
    let message_id = message.message_id;
    (bed.store.enqueue(vec![message]).await.unwrap()[0], message_id)
}

fn lane(bed: &Bed, id: i64) -> i16 {
    let sql = "SELECT lane FROM relais_outbox WHERE id = ?1";
    bed.raw().query_row(sql, [id], |row| row.get(0)).unwrap()
}

/// Makes the row a dead letter that parks its key.
async fn park(bed: &Bed, lanes: &[OwnedLane], id: i64) {
    let lane = lane(bed, id);
    let epoch = lanes.iter().find(|owned| owned.lane == lane).unwrap().epoch;
    let problem = Problem::new("HTTP_400", "no");
    let fate = OutboxFate::Dead { attempts: 1, problem, park: true };
    let fence = Fence { scope: scope(), worker: "w1".into() };
    let rows = vec![OutboxSettlement { id, lane, epoch, fate }];
    assert_eq!(bed.store.settle_outbox(fence, rows).await.unwrap().settled, 1);
}

async fn decide(bed: &Bed, resolution: Resolution) {
    // Another process decides.
    let console = bed.second().await;
    let filter = Filter { limit: 10, ..Filter::default() };
    let letter = console.list_dead_letters(filter).await.unwrap().remove(0);
    let action = DecisionAction::Resolve { dead_letter: letter.id, resolution };
    let decision = OperatorDecision { action, actor: "ann".into(), reason: "looked at it".into() };
    assert_eq!(console.decide(decision).await.unwrap(), DecisionResult::Done);
}

fn waiting(bed: &Bed) -> i64 {
    bed.count("relais_waiting")
}

fn position(bed: &Bed) -> i64 {
    let sql = "SELECT position FROM relais_outbox_position WHERE destination = ?1";
    bed.raw().query_row(sql, [DESTINATION], |row| row.get(0)).unwrap()
}

/// Settles the rows of one fetch as delivered; returns their ids.
async fn deliver(bed: &Bed, lanes: &[OwnedLane], limit: usize) -> Vec<i64> {
    let rows = bed.store.fetch_outbox(Fetch::new(scope(), lanes.to_vec(), limit)).await.unwrap();
    let ids = rows.iter().map(|row| row.id).collect();
    settle(bed, lanes, &rows, &OutboxFate::Dispatched).await;
    ids
}

async fn settle(bed: &Bed, lanes: &[OwnedLane], rows: &[OutboxRow], fate: &OutboxFate) {
    let epoch = |lane| lanes.iter().find(|owned| owned.lane == lane).unwrap().epoch;
    let settle = |row: &OutboxRow| {
        let (id, lane, fate) = (row.id, row.lane, fate.clone());
        OutboxSettlement { id, lane, epoch: epoch(lane), fate }
    };
    let fence = Fence { scope: scope(), worker: "w1".into() };
    let settled = bed.store.settle_outbox(fence, rows.iter().map(settle).collect()).await.unwrap();
    assert_eq!(settled.settled, rows.len() as u64);
}

#[tokio::test]
async fn rows_behind_a_parked_key_are_passed_once_and_found_when_the_key_is_free() {
    for (resolution, again) in [(Resolution::Discarded, false), (Resolution::Retried, true)] {
        let bed = Bed::new().await;
        let lanes = bed.lease(scope(), "w1").await;
        let (first, first_id) = send(&bed, "k").await;
        park(&bed, &lanes, first).await;
        let behind = [send(&bed, "k").await, send(&bed, "k").await];
        for _ in 0..2 {
            assert!(bed.fetch(&lanes, 10).await.is_empty(), "parked");
            assert_eq!(waiting(&bed), 2);
        }
        assert_eq!(bed.store.mark(&scope()), behind[1].0, "nothing but parked rows came");
        let (other, other_id) = send(&bed, "other").await;
        let (_, late_id) = send(&bed, "k").await;
        for _ in 0..2 {
            assert_eq!(bed.fetch(&lanes, 10).await, [other_id]);
            assert_eq!(bed.store.mark(&scope()), other - 1, "right below what is not parked");
            assert_eq!(waiting(&bed), 3);
        }
        decide(&bed, resolution).await;
        let mut open: Vec<Uuid> = again.then_some(first_id).into_iter().collect();
        open.extend([behind[0].1, behind[1].1, other_id, late_id]);
        assert_eq!(bed.fetch(&lanes, 10).await, open);
        let sent = deliver(&bed, &lanes, 10).await;
        assert_eq!((sent.len(), waiting(&bed)), (open.len(), 0), "a settled row leaves the table");
    }
}

#[tokio::test]
async fn an_ordinary_fetch_writes_nothing() {
    let bed = Bed::new().await;
    let lanes = bed.lease(scope(), "w1").await;
    send(&bed, "a").await;
    send(&bed, "b").await;
    bed.fetch(&lanes, 10).await;
    let raw = bed.raw();
    let version = || raw.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap();
    let before = version();
    assert_eq!(bed.fetch(&lanes, 10).await.len(), 2);
    assert_eq!(version(), before);
}

#[tokio::test]
async fn a_restart_begins_at_the_stored_position() {
    let bed = Bed::new().await;
    let lanes = bed.lease(scope(), "w1").await;
    fill(&bed, DESTINATION, "'k-' || i", 50);
    assert_eq!(deliver(&bed, &lanes, 100).await.len(), 50);
    let (fresh, _) = send(&bed, "next").await;
    let again = bed.second().await;
    let fetch = Fetch::new(scope(), lanes.clone(), 10);
    assert_eq!(again.fetch_outbox(fetch).await.unwrap().len(), 1);
    assert_eq!(position(&bed), fresh - 1);
    bed.raw().execute_batch("UPDATE relais_outbox SET status = 'PENDING' WHERE id <= 50").unwrap();
    let fetch = Fetch::new(scope(), lanes, 10);
    let rows = bed.second().await.fetch_outbox(fetch).await.unwrap();
    assert_eq!(rows.len(), 1, "history is not read");
}

#[tokio::test]
async fn more_rows_than_one_write_passes_are_passed_by_one_fetch() {
    let bed = Bed::new().await;
    let lanes = bed.lease(scope(), "w1").await;
    let (first, _) = send(&bed, "k").await;
    park(&bed, &lanes, first).await;
    let (_, before) = send(&bed, "before").await;
    fill(&bed, DESTINATION, "'k'", 4_500);
    let (_, after) = send(&bed, "after").await;
    assert_eq!(bed.fetch(&lanes, 10).await, [before, after]);
    assert_eq!(waiting(&bed), 4_500);
    decide(&bed, Resolution::Discarded).await;
    let mut sent = Vec::new();
    loop {
        let ids = deliver(&bed, &lanes, 1_000).await;
        if ids.is_empty() {
            break;
        }
        sent.extend(ids);
    }
    // `before` and `after` are sent with the first of them.
    let of_key: Vec<_> = sent.iter().filter(|id| !(2..=2).contains(*id) && **id != 4_503).collect();
    assert_eq!((of_key.len(), waiting(&bed)), (4_500, 0));
    assert!(of_key.is_sorted(), "in order, also across the parts in which they become due");
}

#[tokio::test]
async fn a_row_is_not_passed_before_an_earlier_one_that_the_worker_holds() {
    let bed = Bed::new().await;
    let lanes = bed.lease(scope(), "w1").await;
    let (first, _) = send(&bed, "k").await;
    fill(&bed, DESTINATION, "'k'", 3);
    park(&bed, &lanes, first).await;
    let mut held = Fetch::new(scope(), lanes.clone(), 10);
    held.skip_ids = vec![first, first + 2];
    assert!(bed.store.fetch_outbox(held).await.unwrap().is_empty());
    assert_eq!(bed.count(&format!("relais_waiting WHERE id > {first} + 1")), 0, "not before it");
    assert!(bed.fetch(&lanes, 10).await.is_empty());
    assert_eq!(waiting(&bed), 3);
    decide(&bed, Resolution::Discarded).await;
    assert_eq!(deliver(&bed, &lanes, 10).await, [first + 1, first + 2, first + 3]);
}

#[tokio::test]
async fn a_retry_holds_rows_that_were_due_behind_it() {
    let bed = Bed::new().await;
    let lanes = bed.lease(scope(), "w1").await;
    let (first, _) = send(&bed, "k").await;
    park(&bed, &lanes, first).await;
    fill(&bed, DESTINATION, "'k'", 3);
    assert!(bed.fetch(&lanes, 10).await.is_empty());
    decide(&bed, Resolution::Discarded).await;
    let rows = bed.store.fetch_outbox(Fetch::new(scope(), lanes.clone(), 10)).await.unwrap();
    assert_eq!(rows.len(), 3);
    let (pause, problem) = (Duration::from_secs(60), Problem::new("HTTP_500", "no"));
    let retry = OutboxFate::Retry { attempts: 1, pause, problem };
    settle(&bed, &lanes, &rows[..1], &retry).await;
    assert!(bed.fetch(&lanes, 10).await.is_empty());
    assert_eq!(bed.count("relais_waiting WHERE due_at IS NULL"), 2, "not read while it waits");
    let past =
        "UPDATE relais_waiting SET due_at = '2000-01-01T00:00:00.000Z' WHERE due_at IS NOT NULL";
    bed.raw().execute_batch(past).unwrap();
    assert_eq!(deliver(&bed, &lanes, 10).await, [rows[0].id]);
    assert_eq!(deliver(&bed, &lanes, 10).await, [rows[1].id, rows[2].id]);
}

async fn clean_up(bed: &Bed) {
    let mode = CleanupMode::Remove { rows_max: 100 };
    bed.store.cleanup(Retention::default(), mode).await.unwrap();
}

#[tokio::test]
async fn clean_up_finds_rows_that_were_changed_by_hand() {
    let bed = Bed::new().await;
    let lanes = bed.lease(scope(), "w1").await;
    for key in ["a", "b", "c", "c"] {
        send(&bed, key).await;
    }
    let rows = bed.store.fetch_outbox(Fetch::new(scope(), lanes.clone(), 10)).await.unwrap();
    let (pause, problem) = (Duration::from_secs(60), Problem::new("HTTP_500", "no"));
    let retry = OutboxFate::Retry { attempts: 1, pause, problem };
    settle(&bed, &lanes, &rows[..1], &OutboxFate::Dispatched).await;
    settle(&bed, &lanes, &rows[1..3], &retry).await;
    bed.fetch(&lanes, 10).await;
    let later = bed.second().await;
    assert!(later.fetch_outbox(Fetch::new(scope(), lanes.clone(), 10)).await.unwrap().is_empty());
    assert_eq!((position(&bed), waiting(&bed)), (rows[3].id, 3));
    // Sent again, due earlier, and delivered by other means.
    bed.raw()
        .execute_batch(
            "UPDATE relais_outbox SET status = 'PENDING' WHERE msg_key = 'a';
             UPDATE relais_outbox SET next_attempt_at = '2000-01-01T00:00:00.000Z' WHERE msg_key = 'b';
             UPDATE relais_outbox SET status = 'DISPATCHED' WHERE id = 3",
        )
        .unwrap();
    assert!(bed.fetch(&lanes, 10).await.is_empty());
    clean_up(&bed).await;
    assert_eq!(deliver(&bed, &lanes, 10).await, [rows[0].id, rows[1].id, rows[3].id]);
    assert_eq!(waiting(&bed), 0);
    clean_up(&bed).await;
    assert!(bed.fetch(&lanes, 10).await.is_empty());
}

#[tokio::test]
async fn other_lanes_start_the_walk_again() {
    let bed = Bed::new().await;
    let lanes = bed.lease(scope(), "w1").await;
    let (first, _) = send(&bed, "k").await;
    let lane = lane(&bed, first);
    park(&bed, &lanes, first).await;
    let (_, other_id) = send(&bed, "other").await;
    send(&bed, "k").await;
    let (mine, rest): (Vec<_>, Vec<_>) = lanes.into_iter().partition(|owned| owned.lane == lane);
    assert!(bed.fetch(&mine, 10).await.is_empty(), "parked");
    assert_eq!(bed.fetch(&rest, 10).await, [other_id], "a row below the mark of the other lanes");
}

/// Rows of keys, made by the database.
fn fill(bed: &Bed, destination: &str, key: &str, rows: usize) {
    let insert = format!(
        "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
         WITH RECURSIVE n (i) AS (SELECT 1 WHERE {rows} > 0
                                  UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
         SELECT 'Order', {key}, 'E', '{destination}', '{{}}' FROM n"
    );
    bed.raw().execute_batch(&insert).unwrap();
}

/// Steps of SQLite that a fetch of many keys takes, from the mark on.
fn steps(bed: &Bed) -> i32 {
    let db = bed.raw();
    let mut walk = db.prepare(include_str!("../../src/sqlite/sql/fetch_outbox.sql")).unwrap();
    let values = (DESTINATION, bed.store.mark(&scope()), true, 2_000);
    assert_eq!(walk.query_map(values, |_| Ok(())).unwrap().take(100).count(), 100);
    walk.get_status(StatementStatus::VmStep)
}

/// The same beside this number of rows of a parked key, or of another destination.
async fn steps_beside(destination: &str, rows: usize) -> i32 {
    let bed = Bed::new().await;
    let lanes = bed.lease(scope(), "w1").await;
    let (first, _) = send(&bed, "k").await;
    park(&bed, &lanes, first).await;
    fill(&bed, destination, "'k'", rows);
    assert!(bed.fetch(&lanes, 10).await.is_empty(), "parked");
    fill(&bed, DESTINATION, "'other-' || i", 2_000);
    assert_eq!(bed.fetch(&lanes, 100).await.len(), 100);
    steps(&bed)
}

#[tokio::test]
async fn rows_that_wait_cost_a_fetch_of_other_keys_nothing() {
    for destination in [DESTINATION, "unavailable"] {
        let (without, with) =
            (steps_beside(destination, 0).await, steps_beside(destination, 50_000).await);
        assert!(with * 10 <= without * 12, "{destination}: {with} steps instead of {without}");
    }
}

/// An outage leaves the called rows in backoff and the remaining rows unchanged.
#[tokio::test]
async fn rows_that_wait_for_an_unavailable_destination_cost_its_own_fetch_nothing() {
    let mut taken = Vec::new();
    for rows in [0, 50_000] {
        let bed = Bed::new().await;
        let lanes = bed.lease(scope(), "w1").await;
        fill(&bed, DESTINATION, "'called-' || i", 50);
        let fetch = Fetch::new(scope(), lanes.clone(), 100);
        let called = bed.store.fetch_outbox(fetch).await.unwrap();
        assert_eq!(called.len(), 50);
        let problem = Problem::new("REFUSED", "no connection");
        let pause = Duration::from_secs(3_600);
        let wait = OutboxFate::Wait { pause, problem, lost_workers: 0 };
        settle(&bed, &lanes, &called, &wait).await;
        fill(&bed, DESTINATION, "'called-' || i", 50);
        fill(&bed, DESTINATION, "'other-' || i", 2_000);
        fill(&bed, DESTINATION, "'waits-' || i", rows);
        assert_eq!(bed.fetch(&lanes, 100).await.len(), 100);
        assert_eq!(waiting(&bed), 100, "those that were called, and those behind them");
        taken.push(steps(&bed) + steps_of_due(&bed));
    }
    let [without, with] = taken[..] else { unreachable!() };
    assert!(with * 10 <= without * 12, "{with} steps instead of {without}");
}

/// Steps of SQLite that the search for due rows takes; there are none.
fn steps_of_due(bed: &Bed) -> i32 {
    let db = bed.raw();
    let mut due = db.prepare(include_str!("../../src/sqlite/sql/fetch_due.sql")).unwrap();
    assert_eq!(due.query_map((DESTINATION, false), |_| Ok(())).unwrap().count(), 0);
    due.get_status(StatementStatus::VmStep)
}

/// Received rows of keys, made by the database.
fn fill_inbox(bed: &Bed, key: &str, rows: usize) {
    let insert = format!(
        "INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key,
                                   event_type, payload)
         WITH RECURSIVE n (i) AS (SELECT 1 WHERE {rows} > 0
                                  UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
         SELECT {key} || '-' || i, 'crm', '', 0, 0, {key}, 'E', '{{}}' FROM n"
    );
    bed.raw().execute_batch(&insert).unwrap();
}

/// Steps of SQLite that a fetch of the inbox takes beside this number of rows of a parked key.
async fn steps_of_inbox_beside(rows: usize) -> i32 {
    let bed = Bed::new().await;
    let lanes = bed.lease(Scope::Inbox, "w1").await;
    let fetch = async || {
        let fetch = Fetch::new(Scope::Inbox, lanes.clone(), 100);
        bed.store.fetch_inbox(fetch).await.unwrap()
    };
    bed.store.accept(vec![received("k", "{}")], Vec::new()).await.unwrap();
    let row = fetch().await.remove(0);
    let epoch = lanes.iter().find(|owned| owned.lane == row.lane).unwrap().epoch;
    let problem = Problem::new("REFUSED", "no");
    let fate = InboxFate::Dead { attempts: 1, problem, park: true };
    let settlement = InboxSettlement { id: row.id, lane: row.lane, epoch, fate };
    let fence = Fence { scope: Scope::Inbox, worker: "w1".into() };
    assert_eq!(bed.store.settle_inbox(fence, vec![settlement]).await.unwrap().settled, 1);
    fill_inbox(&bed, "'k'", rows);
    let last = bed.count("relais_inbox");
    // A fetch notices the first parked key of its inbox within a second.
    while bed.store.mark(&Scope::Inbox) < last {
        assert!(fetch().await.is_empty(), "parked");
    }
    fill_inbox(&bed, "'other-' || i", 2_000);
    assert_eq!(fetch().await.len(), 100);
    let db = bed.raw();
    let mut walk = db.prepare(include_str!("../../src/sqlite/sql/fetch_inbox.sql")).unwrap();
    let from = bed.store.mark(&Scope::Inbox);
    let values = (-1, 100, "[]", "[]", "", 33_554_432, from);
    assert_eq!(walk.query_map(values, |_| Ok(())).unwrap().count(), 100);
    walk.get_status(StatementStatus::VmStep)
}

#[tokio::test]
async fn received_rows_behind_a_parked_key_cost_a_fetch_of_other_keys_nothing() {
    let (without, with) = (steps_of_inbox_beside(1).await, steps_of_inbox_beside(50_000).await);
    assert!(with * 10 <= without * 12, "{with} steps instead of {without}");
}
