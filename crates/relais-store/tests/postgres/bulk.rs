//! Bulk jobs and the mark, and what their statements read.

use std::time::{Duration, Instant};

use relais_core::{
    bulk::{Advance, BulkJob, BulkLease, JobFence, Phase},
    lane::OwnedLane,
    outbox::{OutboxFate, OutboxRow},
    store::Store,
};
use uuid::Uuid;

use crate::bed::{Bed, fence, outbox};

/// Longer than the pace at which the mark may move.
const PACE: Duration = Duration::from_millis(250);
const LEASE: Duration = Duration::from_secs(60);

async fn plan(bed: &Bed, lanes: &[OwnedLane], rows: &[OutboxRow]) -> (BulkJob, JobFence) {
    let lane = |row: &OutboxRow| *lanes.iter().find(|owned| owned.lane == row.lane).unwrap();
    let rows = rows.iter().map(|row| (row.id, lane(row))).collect();
    let (fence, job) = (fence(outbox(), "w1"), Uuid::now_v7());
    let plan = BulkLease::Plan { fence, job, rows, lease: LEASE };
    let job = bed.store.lease_bulk(plan).await.unwrap().unwrap().job;
    let fence = JobFence { job: job.id, worker: "w1".into(), epoch: job.epoch };
    (job, fence)
}

/// Sends and dispatches other rows until the mark has moved over all of them.
async fn move_the_mark(bed: &Bed, lanes: &[OwnedLane]) {
    for n in 0..3 {
        bed.send(&format!("mover-{n}")).await;
        let rows = bed.fetch(lanes).await;
        bed.settle(&rows, lanes, &OutboxFate::Dispatched).await;
        let since = Instant::now();
        while since.elapsed() < PACE {
            assert!(bed.ids(lanes).await.is_empty());
        }
    }
}

#[tokio::test]
async fn rows_that_a_job_sets_free_are_found_below_the_mark_before_their_followers() {
    let Some(bed) = Bed::new().await else { return };
    let lanes = bed.lanes().await;
    let (a, b) = (bed.send("a").await, bed.send("b").await);
    let (_, job) = plan(&bed, &lanes, &bed.fetch(&lanes).await).await;
    move_the_mark(&bed, &lanes).await;
    let follower = bed.send("a").await;
    let settled = bed.store.settle_bulk(job.clone(), vec![(a, OutboxFate::Untouched)]);
    assert_eq!(settled.await.unwrap().settled, 1);
    for id in [a, follower] {
        let rows = bed.fetch(&lanes).await;
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
        bed.settle(&rows, &lanes, &OutboxFate::Dispatched).await;
    }
    move_the_mark(&bed, &lanes).await;
    let step = Advance { from: Phase::Planned, to: Phase::Abandoned, remote_id: None, note: None };
    // Another process ends it.
    assert!(bed.schema.store().await.advance_bulk(job, step).await.unwrap());
    assert_eq!(bed.ids(&lanes).await, [b]);
}

#[tokio::test]
async fn settling_part_of_a_job_does_not_read_the_rest() {
    let Some(bed) = Bed::new().await else { return };
    let fill = "INSERT INTO relais_outbox
            (aggregate_type, aggregate_id, event_type, destination, payload, job_id, next_attempt_at)
        SELECT 'T', 'k' || n, 'E', 'orders', '{}', 'job', '9000-01-01' FROM generate_series(1, 5000) n;
        INSERT INTO relais_waiting (id, destination, msg_key, holds_key, job_id)
        SELECT id, destination, aggregate_id, TRUE, job_id FROM relais_outbox;
        ANALYZE relais_outbox, relais_waiting;";
    bed.raw.batch_execute(fill).await.unwrap();
    bed.raw.batch_execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
    let ids: Vec<i64> = (1..=10).collect();
    for sql in [
        include_str!("../../src/postgres/sql/dispatch_bulk.sql"),
        include_str!("../../src/postgres/sql/free_bulk_rows.sql"),
    ] {
        let explain = format!("EXPLAIN (ANALYZE, FORMAT TEXT) {sql}");
        let lines = bed.raw.query(&explain, &[&"job", &ids]).await.unwrap();
        let plan: Vec<String> = lines.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(!plan.contains("relais_waiting_job") && !plan.contains("Seq Scan"), "{plan}");
        assert!(plan.contains("relais_outbox_pkey"), "{plan}");
    }
}
