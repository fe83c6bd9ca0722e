//! A fetch starts behind the rows that wait for a decision about their key, and misses none.

use relais_core::{
    dead_letter::{DeadLetterStore, DecisionAction, DecisionResult, OperatorDecision, Resolution},
    delivery::Problem,
    inspect::InspectExt,
    lane::{Fence, OwnedLane, Scope},
    outbox::{OutboxFate, OutboxSettlement},
    query::Filter,
    store::Store,
};
use rusqlite::StatementStatus;
use uuid::Uuid;

use crate::bed::{Bed, DESTINATION, message};

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

#[tokio::test]
async fn rows_behind_a_parked_key_are_passed_and_found_when_the_key_is_free() {
    for (resolution, again) in [(Resolution::Discarded, false), (Resolution::Retried, true)] {
        let bed = Bed::new().await;
        let lanes = bed.lease(scope(), "w1").await;
        let (first, first_id) = send(&bed, "k").await;
        park(&bed, &lanes, first).await;
        let behind = [send(&bed, "k").await, send(&bed, "k").await];
        assert!(bed.fetch(&lanes, 10).await.is_empty(), "parked");
        assert_eq!(bed.store.mark(&scope()), behind[1].0, "nothing but parked rows came");
        let (other, other_id) = send(&bed, "other").await;
        let (_, late_id) = send(&bed, "k").await;
        for _ in 0..2 {
            assert_eq!(bed.fetch(&lanes, 10).await, [other_id]);
            assert_eq!(bed.store.mark(&scope()), other - 1, "right below what is not parked");
        }
        decide(&bed, resolution).await;
        let mut open: Vec<Uuid> = again.then_some(first_id).into_iter().collect();
        open.extend([behind[0].1, behind[1].1, other_id, late_id]);
        assert_eq!(bed.fetch(&lanes, 10).await, open);
        assert_eq!(bed.store.mark(&scope()), 0, "no key is parked any more");
    }
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
    let mut fetch = db.prepare(include_str!("../../src/sqlite/sql/fetch_outbox.sql")).unwrap();
    let (all_lanes, bytes) = (-1, 1_000_000);
    let values = (DESTINATION, all_lanes, 100, "[]", "[]", bytes, bed.store.mark(&scope()));
    assert_eq!(fetch.query_map(values, |_| Ok(())).unwrap().count(), 100);
    fetch.get_status(StatementStatus::VmStep)
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
