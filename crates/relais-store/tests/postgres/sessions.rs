//! Sessions as a user may have set them up: another time zone, one connection only.

use std::time::Duration;

use relais_core::{
    delivery::Problem,
    handler::HandleOutcome,
    inspect::InspectExt,
    lane::{LaneRelease, LaneRequest, Scope},
    outbox::OutboxFate,
    store::Store,
};
use relais_store::postgres::{PostgresOptions, PostgresStore, handler};
use relais_testkit::build;

use crate::bed::{Bed, book, fence, message, outbox};

/// Not whole hours from anything, on both sides of the date line.
const ZONES: [&str; 3] = ["Asia/Kathmandu", "America/St_Johns", "Pacific/Chatham"];

#[tokio::test]
async fn the_time_zone_of_a_session_changes_no_time() {
    let Some(mut bed) = Bed::new().await else { return };
    let mut seen = Vec::new();
    for zone in ZONES {
        let url = format!("{}%20-c%20TimeZone%3D{}", bed.schema.url(), zone.replace('/', "%2F"));
        bed.store = PostgresStore::connect(&url, PostgresOptions::default()).await.unwrap();
        let lanes = bed.lanes().await;
        let plain = bed.schema.store().await;
        let other = fence(outbox(), "elsewhere");
        let request = LaneRequest::new(other.clone(), Duration::from_secs(60));
        let granted = plain.lease_lanes(request).await.unwrap();
        assert!(granted.lanes.is_empty(), "{zone}: a lease holds in every zone");
        plain.release_lanes(other, LaneRelease::All).await.unwrap();
        let id = bed.send(zone).await;
        let rows: Vec<_> = bed.fetch(&lanes).await.into_iter().filter(|row| row.id == id).collect();
        let later = OutboxFate::Retry {
            attempts: 1,
            pause: Duration::from_secs(600),
            problem: Problem::new("LATER", "not now"),
        };
        assert_eq!(bed.settle(&rows, &lanes, &later).await.settled, 1);
        seen.push((id, bed.store.find_outbox(id.to_string()).await.unwrap().unwrap()));
        let leave = bed.store.release_lanes(fence(outbox(), "w1"), LaneRelease::All).await;
        leave.unwrap();
    }
    let lanes = bed.lanes().await;
    assert!(bed.ids(&lanes).await.is_empty(), "nobody's pause is over");
    let off = "relais_outbox WHERE next_attempt_at NOT BETWEEN clock_timestamp() + interval '5 min'
               AND clock_timestamp() + interval '10 min'";
    assert_eq!(bed.count(off).await, 0);
    let plain = bed.schema.store().await;
    for (id, row) in seen {
        assert_eq!(plain.find_outbox(id.to_string()).await.unwrap().unwrap(), row);
    }
}

/// No work takes a second connection while it holds one: that would wait indefinitely.
#[tokio::test]
async fn one_connection_is_enough_for_everything_at_once() {
    let Some(bed) = Bed::single().await else { return };
    let work = bed.work(r#"{"id":"o-1"}"#).await;
    let handler = handler(bed.store.pool(), book);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (store, handler, work) = (bed.store.clone(), handler.clone(), work.clone());
        tasks.spawn(async move {
            store.enqueue(vec![message("k")]).await.unwrap();
            store.accept(vec![build::arrival(&format!("a-{n}"))], Vec::new()).await.unwrap();
            let fence = fence(Scope::Outbox("other".into()), &format!("w{n}"));
            let request = LaneRequest::new(fence, Duration::from_secs(60));
            store.lease_lanes(request).await.unwrap();
            store.overview().await.unwrap();
            matches!(handler.handle(work).await, HandleOutcome::Committed)
        });
    }
    let committed = tasks.join_all().await.into_iter().filter(|committed| *committed).count();
    assert_eq!(committed, 1, "of all who handle one message");
    assert_eq!(bed.count("orders").await, 1);
    assert_eq!((bed.count("relais_outbox").await, bed.count("relais_inbox").await), (8, 9));
}

#[tokio::test]
async fn a_worker_that_stands_still_in_its_heartbeat_stops_no_other() {
    let Some(bed) = Bed::new().await else { return };
    bed.lanes().await;
    // What a frozen worker leaves behind: its lease renewed, its lanes locked, and no commit.
    let frozen = "BEGIN; UPDATE relais_lease SET lease_until = lease_until; \
                  UPDATE relais_lane SET epoch = epoch";
    bed.raw.batch_execute(frozen).await.unwrap();
    let request = LaneRequest::new(fence(outbox(), "w2"), Duration::from_secs(60));
    let granted = bed.schema.store().await.lease_lanes(request).await;
    assert_eq!(granted.expect("nobody waits").lanes, [], "its lease has not run out");
    bed.raw.batch_execute("ROLLBACK").await.unwrap();
}
