//! Slow statements of users take no connection from the engine.

use std::time::Duration;

use relais_core::{
    hydrate::Hydrator,
    lane::{LaneRelease, OwnedLane, Scope},
    outbox::OutboxFate,
    store::{Store, StoreError},
};
use relais_store::postgres::{PostgresOptions, PostgresStore, SqlHydrator};
use relais_testkit::build;
use uuid::Uuid;

use crate::bed::{Bed, fence, outbox};

/// All that the engine needs to keep its lanes and to deliver.
async fn assert_engine_works(bed: &Bed, lanes: &[OwnedLane]) {
    assert_eq!(bed.lanes().await, lanes, "a heartbeat keeps every lane with its epoch");
    bed.store.changes().await.unwrap();
    let arrival = build::arrival(&Uuid::now_v7().to_string());
    bed.store.accept(vec![arrival], Vec::new()).await.unwrap();
    let sent = bed.send("other").await;
    let rows = bed.fetch(lanes).await;
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [sent]);
    assert_eq!(bed.settle(&rows, lanes, &OutboxFate::Dispatched).await.settled, 1);
    let destination = Scope::Outbox("another".into());
    assert_eq!(bed.lease(destination.clone(), "w1").await.len(), 64);
    bed.store.release_lanes(fence(destination, "w1"), LaneRelease::All).await.unwrap();
}

#[tokio::test]
async fn handlers_that_hold_every_connection_delay_no_heartbeat_and_no_delivery() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    let pool = bed.store.pool();
    let mut held = Vec::new();
    for _ in 0..pool.status().max_size {
        held.push(pool.get().await.unwrap());
    }
    assert_engine_works(&bed, &lanes).await;
    drop(held);
}

#[tokio::test]
async fn hydrations_that_wait_for_a_lock_delay_no_heartbeat_and_no_delivery() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    bed.raw.batch_execute("INSERT INTO orders VALUES ('o-1')").await.unwrap();
    let lock = i32::from_be_bytes(Uuid::new_v4().as_bytes()[..4].try_into().unwrap());
    bed.raw.execute("SELECT pg_advisory_lock(0, $1)", &[&lock]).await.unwrap();
    let sql = format!(
        "SELECT id, pg_advisory_xact_lock_shared(0, {lock})::text AS held
         FROM orders WHERE id IN (:ids)"
    );
    let hydrator = SqlHydrator::new(&bed.store, &sql, "id").unwrap();
    let many = bed.store.pool().status().max_size;
    let slow: Vec<_> = (0..many)
        .map(|_| {
            let hydrator = hydrator.clone();
            tokio::spawn(async move { hydrator.hydrate(vec!["o-1".into()]).await })
        })
        .collect();
    let waiting = "SELECT count(*) FROM pg_locks
        WHERE locktype = 'advisory' AND objid = $1::int4::oid AND NOT granted";
    while bed.raw.query_one(waiting, &[&lock]).await.unwrap().get::<_, i64>(0) < many as i64 {
        tokio::task::yield_now().await;
    }
    assert_engine_works(&bed, &lanes).await;
    assert!(slow.iter().all(|task| !task.is_finished()), "they still wait");
    bed.raw.execute("SELECT pg_advisory_unlock(0, $1)", &[&lock]).await.unwrap();
    for task in slow {
        assert_eq!(task.await.unwrap().unwrap().records.len(), 1);
    }
}

#[tokio::test]
async fn slow_fetches_and_settlements_delay_no_heartbeat() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    bed.send("k").await;
    // Reads and settlements now wait for this lock; leases do not touch the table.
    let mut other = bed.schema.client().await;
    let locked = other.transaction().await.unwrap();
    locked.batch_execute("LOCK TABLE relais_outbox IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let (store, of) = (bed.store.clone(), lanes.clone());
    let stuck: Vec<_> = (0..8)
        .map(|_| {
            let (store, lanes) = (store.clone(), of.clone());
            tokio::spawn(async move {
                let fetch = relais_core::store::Fetch::new(outbox(), lanes, 1);
                store.fetch_outbox(fetch).await.map(|rows| rows.len())
            })
        })
        .collect();
    let waiting = "SELECT count(*) FROM pg_locks
        WHERE relation = 'relais_outbox'::regclass AND NOT granted";
    while bed.raw.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) < 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bed.lanes().await, lanes);
    bed.store.changes().await.unwrap();
    assert!(stuck.iter().all(|task| !task.is_finished()));
    locked.rollback().await.unwrap();
    for task in stuck {
        assert_eq!(task.await.unwrap().unwrap(), 1);
    }
}

#[tokio::test]
async fn a_store_with_too_few_connections_is_refused() {
    let Some(bed) = Bed::new().await else { return };
    let options =
        PostgresOptions::default().connections_max(3).connect_timeout(Duration::from_secs(1));
    match PostgresStore::connect(&bed.schema.url(), options).await {
        Err(StoreError::Setup(text)) => assert!(text.contains("at least 4"), "{text}"),
        other => panic!("{other:?}"),
    }
}
