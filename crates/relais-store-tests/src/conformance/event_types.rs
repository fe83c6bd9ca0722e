//! Workers that know different event types: announced with the heartbeat, and lanes handed over to the
//! worker that knows the type of the next row.

use std::time::Duration;

use relais_core::{
    dead_letter::Resolution,
    delivery::Problem,
    inbox::{InboxFate, InboxRow},
    inspect::InspectExt,
    lane::{LaneGrant, LaneHandOver, LaneRelease, LaneRequest},
    query::Count,
    unknown::UNKNOWN_EVENT_TYPE,
};

use super::{
    Start, only_dead_letter, resolve,
    worker::{LEASE, Worker, all, handle_later, make_due},
};
use crate::{
    build::{arrival, arrival_for},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

/// A heartbeat of an inbox worker that announces these types.
async fn beat(f: &dyn Fixture, worker: &mut Worker, types: &[&str]) -> LaneGrant {
    let event_types = types.iter().map(|name| (*name).to_owned()).collect();
    let request = LaneRequest { fence: worker.fence.clone(), lease: LEASE, event_types };
    let grant = f.store().lease_lanes(request).await.expect("lease lanes");
    worker.lanes.clone_from(&grant.lanes);
    worker.surplus = grant.surplus;
    grant
}

async fn hand_over(worker: &Worker, lanes: &[i16], event_type: &str, unclean: bool) {
    let given = lanes.iter().map(|lane| LaneHandOver {
        lane: *lane,
        event_type: event_type.to_owned(),
        unclean,
    });
    let given = given.collect();
    worker
        .store
        .release_lanes(worker.fence.clone(), LaneRelease::HandOver(given))
        .await
        .expect("hand over");
}

/// Two workers that share the lanes evenly: `a` knows A, `b` knows B.
async fn mixed_fleet(f: &dyn Fixture) -> (Worker, Worker) {
    let (mut a, mut b) = (Worker::inbox(f, "a").await, Worker::inbox(f, "b").await);
    for _ in 0..2 {
        beat(f, &mut a, &["A", "Both"]).await;
        a.release(a.surplus).await;
        beat(f, &mut b, &["B", "Both"]).await;
    }
    assert_eq!((a.lanes.len(), b.lanes.len()), (32, 32));
    (a, b)
}

fn unknown(pause: Duration) -> InboxFate {
    let problem = Problem::new(UNKNOWN_EVENT_TYPE, "no live worker knows event type `X`");
    InboxFate::Wait { pause, problem, lost_workers: 0 }
}

pub async fn a_worker_learns_which_types_other_live_workers_know(f: &dyn Fixture) {
    let (mut a, mut b) = (Worker::inbox(f, "a").await, Worker::inbox(f, "b").await);
    assert!(beat(f, &mut a, &["A", "Both"]).await.types_elsewhere.is_empty());
    let seen = beat(f, &mut b, &["B", "Both", "It's \"odd\", é"]).await;
    assert_eq!(seen.types_elsewhere, ["A"], "neither its own types nor those it shares");
    let mut seen = beat(f, &mut a, &["A", "Both"]).await.types_elsewhere;
    seen.sort_unstable();
    assert_eq!(seen, ["B", "It's \"odd\", é"]);
    beat(f, &mut b, &["C"]).await;
    assert_eq!(beat(f, &mut a, &["A"]).await.types_elsewhere, ["C"], "a change is announced");
    let past = f.past();
    f.run(&format!("UPDATE relais_lease SET lease_until = {past} WHERE worker = 'b'")).await;
    assert!(beat(f, &mut a, &["A"]).await.types_elsewhere.is_empty(), "the lost know nothing");
    beat(f, &mut b, &["C"]).await;
    assert_eq!(beat(f, &mut a, &["A"]).await.types_elsewhere, ["C"], "it is back");
    b.leave().await;
    assert!(beat(f, &mut a, &["A"]).await.types_elsewhere.is_empty(), "forgotten with the worker");
}

pub async fn a_lane_handed_over_goes_to_a_worker_that_knows_the_type(f: &dyn Fixture) {
    let (mut a, mut b) = mixed_fleet(f).await;
    let (given, before) = (a.lanes[3], f.store().changes().await.expect("changes"));
    hand_over(&a, &[given.lane], "B", false).await;
    let now = f.store().changes().await.expect("changes");
    assert_ne!(now.handed_over, before.handed_over, "other workers notice");
    let grant = beat(f, &mut a, &["A", "Both"]).await;
    assert_eq!(grant.lanes.len(), 31, "who gave it does not take it again");
    let grant = beat(f, &mut b, &["B", "Both"]).await;
    assert_eq!((grant.lanes.len(), grant.surplus), (33, 1), "also beyond its share");
    assert_eq!(grant.handed_over, [given.lane]);
    let taken = grant.lanes.iter().find(|lane| lane.lane == given.lane).expect("taken");
    assert_eq!((taken.epoch, taken.unclean), (given.epoch + 1, false));
    assert!(beat(f, &mut b, &["B", "Both"]).await.handed_over.is_empty(), "said once");
    b.release(33).await;
    assert_eq!(beat(f, &mut a, &["A", "Both"]).await.lanes.len(), 32, "now it is like any other");
}

pub async fn a_lane_handed_over_unclean_is_taken_unclean_once(f: &dyn Fixture) {
    let (a, mut b) = mixed_fleet(f).await;
    let given = a.lanes[0].lane;
    hand_over(&a, &[given], "B", true).await;
    let grant = beat(f, &mut b, &["B"]).await;
    let unclean: Vec<_> = grant.lanes.iter().filter(|l| l.unclean).map(|l| l.lane).collect();
    assert_eq!(unclean, [given]);
    hand_over(&b, &[given], "A", false).await;
    let mut a = a;
    let grant = beat(f, &mut a, &["A"]).await;
    assert!(grant.lanes.iter().all(|lane| !lane.unclean), "the last owner was careful");
    assert!(grant.lanes.iter().any(|lane| lane.lane == given));
}

pub async fn a_lane_wanted_by_no_live_worker_goes_to_any(f: &dyn Fixture) {
    let (mut a, _) = mixed_fleet(f).await;
    let given = a.lanes[0].lane;
    hand_over(&a, &[given], "B", false).await;
    let past = f.past();
    f.run(&format!("UPDATE relais_lease SET lease_until = {past} WHERE worker = 'b'")).await;
    let grant = beat(f, &mut a, &["A"]).await;
    assert!(grant.lanes.iter().any(|lane| lane.lane == given), "nothing is stranded");
    assert_eq!(f.number("SELECT count(*) FROM relais_lane WHERE wanted_type IS NOT NULL").await, 0);
}

pub async fn a_lane_of_another_worker_cannot_be_handed_over(f: &dyn Fixture) {
    let (a, b) = mixed_fleet(f).await;
    let lanes: Vec<i16> = a.lanes.iter().map(|lane| lane.lane).collect();
    hand_over(&b, &lanes, "B", false).await;
    let still = "SELECT count(*) FROM relais_lane WHERE owner = 'a'";
    assert_eq!(f.number(still).await, 32);
}

pub async fn a_handed_over_lane_is_taken_by_one_of_many(f: &dyn Fixture) {
    let (a, _) = mixed_fleet(f).await;
    let lanes: Vec<i16> = a.lanes.iter().map(|lane| lane.lane).collect();
    hand_over(&a, &lanes, "B", false).await;
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let store = if n % 2 == 0 { f.store() } else { f.second() };
            let fence = relais_core::lane::Fence { worker: format!("b{n}"), ..a.fence.clone() };
            let event_types = vec!["B".to_owned()];
            let request = LaneRequest { fence, lease: LEASE, event_types };
            tokio::spawn(async move { store.lease_lanes(request).await.expect("lease lanes") })
        })
        .collect();
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await.expect("no panic").handed_over);
    }
    taken.sort_unstable();
    assert_eq!(taken, lanes, "each lane once");
}

async fn find(f: &dyn Fixture, id: &str) -> InboxRow {
    f.store().find_inbox(id.to_owned()).await.expect("find").expect("the row is there")
}

pub async fn a_row_of_an_unknown_type_waits_without_an_attempt_and_holds_its_key(f: &dyn Fixture) {
    let batch = vec![arrival_for("1", "k"), arrival_for("2", "k"), arrival("3")];
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    let row = &worker.received(1).await[0];
    let settled = worker.settle_inbox(row, unknown(Duration::from_secs(3_600))).await;
    assert_eq!(settled, all(1));
    assert_eq!(worker.received_ids().await, ["3"], "its key waits, and no other");
    let waiting = find(f, "1").await;
    let since = waiting.unknown_since.expect("since when it waits");
    assert_eq!((waiting.attempts, waiting.error_code.as_deref()), (0, Some(UNKNOWN_EVENT_TYPE)));
    assert_eq!(f.number("SELECT count(*) FROM relais_attempt").await, 0, "no attempt was used");
    let overview = f.store().overview().await.expect("overview");
    let name = waiting.event_type.clone().expect("a type");
    assert_eq!(overview.unknown_types, [Count { name, rows: 1 }], "operators see it");

    make_due(f, "relais_inbox").await;
    let row = &worker.received(1).await[0];
    assert_eq!((row.message_id.as_str(), row.unknown_since), ("1", Some(since)));
    worker.settle_inbox(row, unknown(Duration::from_secs(3_600))).await;
    assert_eq!(find(f, "1").await.unknown_since, Some(since), "the first time counts");
    make_due(f, "relais_inbox").await;
    worker.settle_inbox(&worker.received(1).await[0], handle_later()).await;
    assert_eq!(find(f, "1").await.unknown_since, None, "a worker knew it");
    assert!(f.store().overview().await.expect("overview").unknown_types.is_empty());
}

pub async fn a_retried_dead_letter_of_an_unknown_type_waits_from_the_start(f: &dyn Fixture) {
    f.store().accept(vec![arrival("1")], Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "w").await;
    worker.settle_inbox(&worker.received(1).await[0], unknown(Duration::ZERO)).await;
    make_due(f, "relais_inbox").await;
    let problem = Problem::new(UNKNOWN_EVENT_TYPE, "no live worker knew it");
    let dead = InboxFate::Dead { attempts: 0, problem, park: true };
    worker.settle_inbox(&worker.received(1).await[0], dead).await;
    assert_eq!(f.number("SELECT count(*) FROM relais_parked_key").await, 1);
    resolve(f, only_dead_letter(f).await.id, Resolution::Retried).await;
    let row = &worker.received(1).await[0];
    assert_eq!((row.unknown_since, row.next_attempt_at), (None, None));
}
