//! Outbox → bulk jobs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    breaker::BreakerState,
    bulk::{BulkLease, Phase},
    delivery::Delivery,
    lane::Scope,
    outbox::OnDeadLetter,
    publisher::{Batching, Publisher},
    retry::RetryPolicy,
};
use uuid::Uuid;

use super::{
    remote::{Fault, Outcome, RemoteTarget},
    support::{Bench, Script, message, on_both},
};
use crate::{
    BulkSettings, DestinationSettings, JOB_ROWS_MAX,
    bulk::BulkRelay,
    lanes::LaneKeeper,
    worker::{Worker, run_until_idle},
};

/// Returns settings with short times and without jitter.
pub(super) fn settings() -> BulkSettings {
    BulkSettings {
        destination: DestinationSettings {
            retry: RetryPolicy::default().jitter(false).first(Duration::from_millis(1)),
            ..DestinationSettings::default()
        },
        linger: Duration::ZERO,
        poll_first: Duration::from_millis(1),
        poll_max: Duration::from_millis(5),
        ..BulkSettings::default()
    }
}

/// Returns a bulk relay of the destination `d` that owns its share of the lanes.
pub(super) async fn bulk(
    bench: &Bench,
    worker: &str,
    remote: &RemoteTarget,
    settings: BulkSettings,
) -> BulkRelay {
    bulk_with_lease(bench, worker, remote, settings, Duration::from_secs(60)).await
}

pub(super) async fn bulk_with_lease(
    bench: &Bench,
    worker: &str,
    remote: &RemoteTarget,
    settings: BulkSettings,
    lease: Duration,
) -> BulkRelay {
    let keeper: LaneKeeper = bench.keeper(Scope::Outbox("d".into()), worker);
    let counters = bench.observer.destination("d");
    let target = Arc::new(remote.clone());
    let store = bench.store.clone();
    let mut relay = BulkRelay::new(store, "d", (keeper, lease), target, settings, counters);
    relay.reader().keeper().beat().await.unwrap();
    relay
}

/// Runs passes until nothing waits, up to a limit that no slow machine needs.
pub(super) async fn drain_bulk(bench: &Bench, relay: &mut BulkRelay) {
    const PASSES_MAX: usize = 5_000;
    let open = "SELECT status FROM relais_outbox WHERE status = 'PENDING'
                UNION ALL SELECT phase FROM relais_bulk_job WHERE finished_at IS NULL";
    for _ in 0..PASSES_MAX {
        run_until_idle(relay).await;
        if bench.texts(open).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("not drained: {:?}", bench.statuses());
}

#[tokio::test]
async fn a_backlog_is_sent_in_jobs_in_order_per_key() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    bench.enqueue(&[("a", "a1"), ("b", "b1"), ("a", "a2"), ("c", "c1"), ("a", "a3")]).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    assert_eq!(remote.applied(), ["a1", "b1", "c1", "a2", "a3"]);
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 5]);
    assert_eq!(remote.jobs(), 3, "one row of a key in each");
    let snapshot = &bench.observer.snapshot().destinations["d"];
    assert_eq!((snapshot.dispatched, snapshot.jobs, snapshot.phase), (5, 3, None));
}

/// The rows of a plan need not fit in memory.
#[tokio::test]
async fn a_plan_reads_no_payloads_and_the_upload_does() {
    on_both(a_plan_without_payloads).await;
}

async fn a_plan_without_payloads(bench: Bench) {
    let remote = RemoteTarget::new();
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    let mut relay = bulk(&bench, "w", &remote, settings()).await;
    let (_, rows) = relay.fetch(10, Vec::new()).await.unwrap().unwrap();
    assert_eq!(rows.iter().map(|row| row.payload.as_str()).collect::<Vec<_>>(), [""; 2]);
    drain_bulk(&bench, &mut relay).await;
    assert_eq!(remote.applied(), ["a1", "b1"]);
}

#[tokio::test]
async fn a_job_costs_few_calls() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    let calls = remote.calls("w");
    assert_eq!(calls, ["encode", "create", "upload", "close", "state", "state", "results"]);
}

#[tokio::test]
async fn long_backlogs_of_few_keys_still_fill_their_jobs() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new().rows_max(3);
    let names = |key: &'static str| (1..=40).map(move |n| (key, format!("{key}{n}")));
    let rows: Vec<_> = ["a", "b", "c"].into_iter().flat_map(names).collect();
    let rows: Vec<_> = rows.iter().map(|(key, name)| (*key, name.as_str())).collect();
    bench.enqueue(&rows).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    assert_eq!(remote.jobs(), 40, "each has a row of each key");
    for key in ["a", "b", "c"] {
        let applied = remote.applied().into_iter().filter(|name| name.starts_with(key));
        let written = rows.iter().filter(|(of, _)| *of == key).map(|(_, name)| *name);
        assert!(applied.eq(written));
    }
}

#[tokio::test]
async fn a_job_takes_no_more_rows_than_its_target() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new().rows_max(2);
    bench.enqueue(&[("a", "a1"), ("b", "b1"), ("c", "c1"), ("d", "d1"), ("e", "e1")]).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    assert_eq!(remote.jobs(), 3);
    assert_eq!(
        bench.texts("SELECT row_count FROM relais_bulk_job ORDER BY created_at, id"),
        ["2", "2", "1"]
    );
}

#[tokio::test]
async fn external_ids_that_differ_only_by_case_never_share_a_job() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    let named = |key: &str, id: &str, name: &str| {
        let mut row = message(key, name);
        row.aggregate_id = id.into();
        row
    };
    let rows = vec![named("k1", "Ann", "1"), named("k2", "ANN", "2"), named("k2", "bob", "3")];
    bench.store.enqueue(rows).await.unwrap();
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    assert_eq!(remote.applied(), ["1", "2", "3"], "a later row of a key does not overtake");
}

#[tokio::test]
async fn a_job_that_is_not_full_waits_a_moment_for_more() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new().rows_max(3);
    let patient = BulkSettings { linger: Duration::from_secs(3_600), ..settings() };
    let mut relay = bulk(&bench, "w", &remote, patient).await;
    bench.enqueue(&[("a", "a1")]).await;
    run_until_idle(&mut relay).await;
    assert_eq!(remote.jobs(), 0, "one row is not worth a job yet");
    relay.stop(Duration::MAX).await;
    let brief = BulkSettings { linger: Duration::from_millis(20), ..settings() };
    let mut relay = bulk(&bench, "w2", &remote, brief).await;
    drain_bulk(&bench, &mut relay).await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1"]);
}

#[tokio::test]
async fn every_row_of_a_job_has_its_own_outcome() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    let reject = Delivery::reject("REQUIRED_FIELD_MISSING", "LastName");
    remote.outcome("dead", Outcome::Fails(usize::MAX, reject));
    remote.outcome("again", Outcome::Fails(2, Delivery::retry("UNABLE_TO_LOCK_ROW", "busy")));
    remote.outcome("missing", Outcome::Missing);
    let missing = Delivery::reject("ROW_MISSING", "no such member");
    remote.outcome("left", Outcome::LeftOut(missing));
    remote.outcome("skip", Outcome::LeftOut(Delivery::Accepted));
    let names = ["ok", "dead", "again", "missing", "left", "skip"];
    let rows: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
    bench.enqueue(&rows).await;
    bench.enqueue(&[("dead", "behind")]).await;
    let mut relay = bulk(&bench, "w", &remote, settings()).await;
    let waiting =
        "SELECT id FROM relais_outbox WHERE status = 'PENDING' AND payload <> '\"behind\"'";
    while !bench.texts(waiting).is_empty() {
        run_until_idle(&mut relay).await;
    }
    assert_eq!(
        bench.statuses(),
        [
            "DISPATCHED 1",
            "FAILED 1",
            "DISPATCHED 3",
            "DISPATCHED 2",
            "FAILED 1",
            "DISPATCHED 1",
            "PENDING 0"
        ]
    );
    let codes = bench.texts("SELECT error_code FROM relais_outbox WHERE status = 'FAILED'");
    assert_eq!(codes, ["REQUIRED_FIELD_MISSING", "ROW_MISSING"]);
    assert_eq!(bench.texts("SELECT count(*) FROM relais_parked_key"), ["2"]);
    assert_eq!(remote.effects()["missing"], 2, "its outcome is unknown: it had to be sent again");
}

#[tokio::test]
async fn a_destination_may_choose_to_skip_dead_letters() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    remote.outcome("a1", Outcome::Fails(1, Delivery::reject("BAD", "bad")));
    let mut skipping = settings();
    skipping.destination.on_dead_letter = OnDeadLetter::Skip;
    bench.enqueue(&[("a", "a1"), ("a", "a2")]).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, skipping).await).await;
    assert_eq!(bench.statuses(), ["FAILED 1", "DISPATCHED 1"]);
}

#[tokio::test]
async fn the_fifth_failure_is_a_dead_letter() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    remote.outcome("a1", Outcome::Fails(9, Delivery::retry("UNABLE_TO_LOCK_ROW", "busy")));
    bench.enqueue(&[("a", "a1")]).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    assert_eq!(bench.statuses(), ["FAILED 5"]);
    assert_eq!(remote.jobs(), 5);
}

#[tokio::test]
async fn a_job_that_fails_half_way_sends_only_the_other_half_again() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    remote.fails_after(2);
    bench.enqueue(&[("a", "a1"), ("b", "b1"), ("c", "c1"), ("d", "d1")]).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 4], "rows never tried used no attempt");
    assert!(remote.effects().values().all(|count| *count == 1));
    let notes = bench.texts("SELECT error_message FROM relais_bulk_job ORDER BY created_at, id");
    assert_eq!(notes, ["FAILED: as a whole", "NULL"]);
}

#[tokio::test]
async fn a_row_that_fails_its_job_as_a_whole_is_found_by_halving() {
    for poison in [0, 37, 99] {
        let bench = Bench::new().await;
        let remote = RemoteTarget::new();
        let names: Vec<String> = (0..100).map(|n| format!("r{n}")).collect();
        let rows: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        remote.poison(&names[poison]);
        bench.enqueue(&rows).await;
        drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
        let statuses = bench.statuses();
        let dead: Vec<usize> = (0..100).filter(|n| statuses[*n] != "DISPATCHED 1").collect();
        assert_eq!(dead, [poison], "{statuses:?}");
        assert_eq!(statuses[poison], "FAILED 5");
        assert_eq!(bench.texts("SELECT error_message FROM relais_dead_letter"), ["as a whole"]);
        assert!(remote.effects().values().all(|count| *count == 1));
        assert!(remote.jobs() < 40, "{}", remote.jobs());
    }
}

#[tokio::test]
async fn a_target_that_fails_every_job_rests_and_its_rows_stay() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    remote.poison("*");
    let names: Vec<String> = (0..20).map(|n| format!("r{n}")).collect();
    let rows: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    bench.enqueue(&rows).await;
    let mut relay = bulk(&bench, "w", &remote, settings()).await;
    let is_open =
        || bench.observer.snapshot().destinations["d"].breaker == Some(BreakerState::Open);
    while !is_open() {
        run_until_idle(&mut relay).await;
    }
    run_until_idle(&mut relay).await;
    let calls = remote.calls("w").len();
    run_until_idle(&mut relay).await;
    assert_eq!(remote.calls("w").len(), calls, "no further job is made at once");
    assert_eq!(bench.statuses(), ["PENDING 0"; 20]);
    assert!(bench.texts("SELECT job_id FROM relais_outbox WHERE job_id IS NOT NULL").is_empty());
    let snapshot = &bench.observer.snapshot().destinations["d"];
    assert_eq!(snapshot.codes["FAILED"], 1);
}

#[tokio::test]
async fn a_job_that_the_target_refuses_opens_the_breaker_and_releases_its_rows() {
    for call in ["encode", "create"] {
        let bench = Bench::new().await;
        let remote = RemoteTarget::new();
        remote.fault(call, Fault::Refused);
        bench.enqueue(&[("a", "a1")]).await;
        let mut relay = bulk(&bench, "w", &remote, settings()).await;
        while bench.texts("SELECT 1 FROM relais_bulk_job WHERE phase = 'ABANDONED'").is_empty() {
            run_until_idle(&mut relay).await;
        }
        run_until_idle(&mut relay).await;
        assert_eq!(remote.calls("w").last(), Some(&call), "nothing more is tried for now");
        assert_eq!(bench.statuses(), ["PENDING 0"]);
        assert_eq!(bench.texts("SELECT job_id FROM relais_outbox"), ["NULL"]);
        let snapshot = &bench.observer.snapshot().destinations["d"];
        assert_eq!(snapshot.breaker, Some(BreakerState::Open), "{call}");
        assert_eq!((snapshot.outages, snapshot.codes["ON_PURPOSE"]), (1, 1));
    }
}

#[tokio::test]
async fn an_outage_uses_no_attempt_and_keeps_the_job() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    for call in ["create", "close", "state", "results"] {
        for _ in 0..2 {
            remote.fault(call, Fault::Outage);
        }
    }
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 2]);
    assert_eq!(remote.jobs(), 1);
    assert_eq!(bench.observer.snapshot().destinations["d"].outages, 8);
}

#[tokio::test]
async fn a_job_the_target_forgot_sends_its_rows_again() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    remote.forget_jobs();
    bench.enqueue(&[("a", "a1")]).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    assert_eq!(bench.statuses(), ["FAILED 5"]);
    assert_eq!(bench.texts("SELECT error_code FROM relais_outbox"), ["RESULTS_LOST"]);
}

#[tokio::test]
async fn a_job_without_rows_to_send_creates_nothing_at_the_target() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    for name in ["a1", "b1"] {
        remote.outcome(name, Outcome::LeftOut(Delivery::Accepted));
    }
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    assert_eq!(remote.calls("w"), ["encode"]);
    assert_eq!(bench.texts("SELECT phase FROM relais_bulk_job"), [Phase::Reconciled.as_str()]);
}

#[tokio::test]
async fn a_target_that_forgets_a_row_sends_nothing() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    remote.outcome("b1", Outcome::Forgotten);
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    assert_eq!(remote.calls("w")[..3], ["encode", "encode", "create"]);
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 2]);
    assert_eq!(bench.observer.snapshot().destinations["d"].codes["TARGET_FAULT"], 1);
}

#[tokio::test]
async fn two_workers_share_a_destination_with_one_job_at_a_time() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    let (mut one, mut two) = (
        bulk(&bench, "one", &remote.of("one"), settings()).await,
        bulk(&bench, "two", &remote.of("two"), settings()).await,
    );
    for _ in 0..3 {
        for relay in [&mut one, &mut two] {
            run_until_idle(relay).await;
            relay.reader().keeper().beat().await.unwrap();
        }
    }
    let names: Vec<String> = (0..60).map(|n| format!("k{n}")).collect();
    bench.enqueue(&names.iter().map(|n| (n.as_str(), n.as_str())).collect::<Vec<_>>()).await;
    let waiting = "SELECT id FROM relais_outbox WHERE status = 'PENDING'";
    while !bench.texts(waiting).is_empty() {
        for relay in [&mut one, &mut two] {
            relay.request_read();
            relay.run_once().await.unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(2), relay.returned()).await;
        }
    }
    assert!(remote.effects().values().all(|count| *count == 1));
    assert!(!remote.calls("one").is_empty() && !remote.calls("two").is_empty());
}

#[tokio::test]
async fn few_rows_are_sent_one_by_one_and_many_in_a_job() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    let small = Script::batching(Batching::Distinct { max: 10 }, &[]);
    let auto = BulkSettings {
        threshold: 5,
        small: Some(Arc::clone(&small) as Arc<dyn Publisher>),
        ..settings()
    };
    let mut relay = bulk(&bench, "w", &remote, auto).await;
    bench.enqueue(&[("a", "a1"), ("b", "b1"), ("a", "a2")]).await;
    drain_bulk(&bench, &mut relay).await;
    assert_eq!((small.seen().len(), remote.jobs()), (3, 0));
    let names: Vec<String> = (0..12).map(|n| format!("k{n}")).collect();
    bench.enqueue(&names.iter().map(|n| (n.as_str(), n.as_str())).collect::<Vec<_>>()).await;
    // Rows are counted a few times a second.
    tokio::time::sleep(Duration::from_millis(150)).await;
    drain_bulk(&bench, &mut relay).await;
    assert_eq!((small.seen().len(), remote.jobs(), remote.applied().len()), (3, 1, 12));
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 15]);
    relay.stop(Duration::MAX).await;
}

#[tokio::test]
async fn rows_of_single_calls_in_flight_are_not_planned_in_a_job() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    let small = Script::new(&[]);
    small.stick("a1");
    let auto = BulkSettings {
        threshold: 4,
        small: Some(Arc::clone(&small) as Arc<dyn Publisher>),
        ..settings()
    };
    let mut relay = bulk(&bench, "w", &remote, auto).await;
    bench.enqueue(&[("a", "a1"), ("a", "a2")]).await;
    while small.seen().is_empty() {
        relay.run_once().await.unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(2), relay.returned()).await;
    }
    bench.enqueue(&[("b", "b1"), ("c", "c1"), ("d", "d1")]).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    for _ in 0..20 {
        relay.request_read();
        relay.run_once().await.unwrap();
    }
    assert_eq!(remote.jobs(), 0, "calls in flight return first");
    assert!(bench.texts("SELECT job_id FROM relais_outbox WHERE job_id IS NOT NULL").is_empty());
}

#[tokio::test]
async fn jobs_that_a_lost_answer_left_are_swept() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    remote.fault("create", Fault::LostAfter);
    bench.enqueue(&[("a", "a1")]).await;
    let mut relay = bulk(&bench, "w", &remote, settings()).await;
    drain_bulk(&bench, &mut relay).await;
    assert_eq!(remote.open_jobs(), 1, "made by a call whose answer was lost");
    relay.stop(Duration::MAX).await;
    let soon = BulkSettings { sweep_every: Duration::ZERO, ..settings() };
    let mut relay = bulk(&bench, "w2", &remote, soon).await;
    while remote.swept().is_empty() {
        relay.run_once().await.unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(5), relay.returned()).await;
    }
    assert_eq!((remote.swept(), remote.open_jobs()), (vec!["job-1".to_owned()], 0));
}

#[tokio::test]
async fn a_rate_counts_calls() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    let mut slow = settings();
    slow.destination.rate = Some((2, Duration::from_secs(3_600)));
    bench.enqueue(&[("a", "a1"), ("b", "b1"), ("c", "c1")]).await;
    let mut relay = bulk(&bench, "w", &remote, slow).await;
    run_until_idle(&mut relay).await;
    assert_eq!(remote.calls("w"), ["encode", "create", "upload"]);
    assert_eq!(bench.texts("SELECT phase FROM relais_bulk_job"), ["CLOSING"]);
}

#[tokio::test]
async fn a_job_of_several_pages_is_one_upload_of_every_row() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new().rows_max(5_000);
    let names: Vec<_> = (0..2_300).map(|n| format!("n{n}")).collect();
    let rows: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    bench.enqueue(&rows).await;
    for late in ["n3", "n2250"] {
        remote.outcome(late, Outcome::LeftOut(Delivery::reject("BAD", "not this one")));
    }
    remote.outcome("n1500", Outcome::Fails(5, Delivery::reject("400", "refused")));
    drain_bulk(&bench, &mut bulk(&bench, "w", &remote, settings()).await).await;
    let calls = remote.calls("w");
    assert_eq!(calls.iter().filter(|call| **call == "encode").count(), 3);
    for once in ["create", "upload", "close", "results"] {
        assert_eq!(calls.iter().filter(|call| **call == once).count(), 1, "{once}");
    }
    let failed =
        bench.texts("SELECT msg_key FROM relais_outbox WHERE status = 'FAILED' ORDER BY id");
    assert_eq!(failed, ["n3", "n1500", "n2250"]);
    let mut applied = remote.applied();
    applied.sort_unstable();
    let mut wanted = names.clone();
    wanted.retain(|name| !failed.contains(name));
    wanted.sort_unstable();
    assert_eq!(applied, wanted);
    assert_eq!(bench.texts("SELECT phase FROM relais_bulk_job"), ["RECONCILED"]);
}

#[tokio::test]
async fn a_worker_keeps_a_job_whose_plan_took_longer_than_its_lease() {
    let bench = Bench::new().await;
    bench.enqueue(&[("a", "a1")]).await;
    let lease = Duration::from_secs(60);
    let mut relay = bulk_with_lease(&bench, "w", &RemoteTarget::new(), settings(), lease).await;
    let keeper = relay.reader().keeper();
    let fence = keeper.fence().clone();
    let row_lane: i16 = bench.texts("SELECT lane FROM relais_outbox")[0].parse().unwrap();
    let lane = keeper.usable().into_iter().find(|owned| owned.lane == row_lane).unwrap();
    let plan = BulkLease::Plan { fence, job: Uuid::now_v7(), rows: vec![(1, lane)], lease };
    let planned = bench.store.lease_bulk(plan).await.unwrap().unwrap();
    let long_ago = Instant::now().checked_sub(2 * lease).unwrap();
    bench.expire_leases();
    let renewed = relay.renewed(&planned, long_ago).await.unwrap();
    assert!(renewed.is_some_and(|asked_at| asked_at > long_ago), "no other worker took it");
    bench.expire_leases();
    let take = BulkLease::Take { destination: "d".into(), worker: "other".into(), lease };
    assert!(bench.store.lease_bulk(take).await.unwrap().is_some());
    assert_eq!(relay.renewed(&planned, long_ago).await.unwrap(), None);
}

/// Planning a job holds its rows in memory.
#[tokio::test]
async fn a_job_has_a_maximum_of_rows_whatever_its_target_allows() {
    let bench = Bench::new().await;
    bench.sql(&format!(
        "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= {JOB_ROWS_MAX})
         SELECT 'a', 'k' || i, 'E', 'd', '{{}}' FROM n"
    ));
    let remote = RemoteTarget::new().rows_max(usize::MAX);
    let lease = Duration::from_secs(600);
    let mut relay = bulk_with_lease(&bench, "w", &remote, settings(), lease).await;
    let planned = || bench.texts("SELECT row_count FROM relais_bulk_job");
    while planned().is_empty() {
        relay.run_once().await.unwrap();
    }
    assert_eq!(planned(), [JOB_ROWS_MAX.to_string()]);
}
