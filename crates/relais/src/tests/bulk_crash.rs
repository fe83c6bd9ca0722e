//! Bulk jobs whose worker is lost, hangs or loses its lease at any moment: each effect happens once, each
//! row is settled correctly, no job stays open.

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use relais_core::{
    bulk::{BulkLease, JobFence, JobTakeover},
    lane::Fence,
    store::Fetch,
};
use uuid::Uuid;

use super::{
    bulk::{bulk, drain_bulk, settings},
    remote::{CALLS, Fault, Outcome, RemoteTarget},
    support::Bench,
};
use crate::{App, bulk::BulkRelay, worker::Worker};

/// Asserts what must hold once everything has drained.
fn assert_once(bench: &Bench, remote: &RemoteTarget, context: &str) {
    let open = "SELECT phase FROM relais_bulk_job WHERE finished_at IS NULL";
    assert!(bench.texts(open).is_empty(), "{context}: a job is open");
    let left = "SELECT status FROM relais_outbox WHERE status <> 'DISPATCHED' OR attempts <> 1";
    assert!(bench.texts(left).is_empty(), "{context}: {:?}", bench.statuses());
    let sent = bench.texts("SELECT DISTINCT payload FROM relais_outbox ORDER BY payload");
    let effects = remote.effects();
    assert_eq!(effects.len(), sent.len(), "{context}: every message has its effect");
    let twice: Vec<_> = effects.into_iter().filter(|(_, count)| *count != 1).collect();
    assert!(twice.is_empty(), "{context}: {twice:?}");
}

/// Returns the open job of the destination, or a new one of everything that waits.
async fn job_by_hand(bench: &Bench, relay: &mut BulkRelay) -> Option<JobTakeover> {
    let lease = Duration::from_secs(60);
    let keeper = relay.reader().keeper();
    keeper.beat().await.unwrap();
    let Fence { worker, scope } = keeper.fence().clone();
    let lanes = keeper.usable();
    let take = BulkLease::Take { destination: "d".into(), worker: worker.clone(), lease };
    let taken = bench.store.lease_bulk(take).await.unwrap();
    if let Some(taken) = taken {
        // As if it had been released: these tests continue a job from phase to phase.
        return Some(JobTakeover { after_loss: false, ..taken });
    }
    let fetch = Fetch::new(scope.clone(), lanes.clone(), 100);
    let rows = bench.store.fetch_outbox(fetch).await.unwrap();
    let lane = |lane| *lanes.iter().find(|owned| owned.lane == lane).unwrap();
    let rows = rows.iter().map(|row| (row.id, lane(row.lane))).collect();
    let (fence, job) = (Fence { scope, worker }, Uuid::now_v7());
    bench.store.lease_bulk(BulkLease::Plan { fence, job, rows, lease }).await.unwrap()
}

fn unknown_fence() -> JobFence {
    JobFence { job: Uuid::nil(), worker: String::new(), epoch: 0 }
}

/// Polls a future this many times, then drops it; returns whether it completed.
async fn killed_after(mut work: Pin<Box<dyn Future<Output = ()> + Send>>, polls: usize) -> bool {
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match work.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test]
async fn a_job_whose_worker_is_killed_at_any_moment_is_continued_to_its_end() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    let mut phases = BTreeSet::new();
    // A commit that returns at once cannot be interrupted; the next round may interrupt it.
    for round in 0..20 {
        let mut polls = 1;
        while !followed_after_a_kill(&bench, &remote, (round, polls), &mut phases).await {
            polls += 1;
            assert!(polls < 1_000, "a job never ended");
        }
        if phases.len() == PHASES_OPEN {
            return;
        }
    }
    panic!("killed only in {phases:?}");
}

/// The number of phases of an open job.
const PHASES_OPEN: usize = 8;

/// Kills the worker of a job after this many polls, records the phase and lets another worker continue.
/// Returns whether the job had ended by then.
async fn followed_after_a_kill(
    bench: &Bench,
    remote: &RemoteTarget,
    (round, polls): (usize, usize),
    phases: &mut BTreeSet<String>,
) -> bool {
    let names: Vec<String> = (0..3).map(|n| format!("{round}-{polls}-{n}")).collect();
    let messages: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    bench.enqueue(&messages).await;
    let mut victim = bulk(bench, &format!("victim-{round}-{polls}"), remote, settings()).await;
    let job = job_by_hand(bench, &mut victim).await.expect("a job");
    let finished = killed_after(Box::pin(victim.work_on(job, Instant::now())), polls).await;
    drop(victim);
    // This write is executed after those of the killed worker.
    bench.store.lease_bulk(BulkLease::Release { fence: unknown_fence() }).await.unwrap();
    phases.extend(bench.texts("SELECT phase FROM relais_bulk_job WHERE finished_at IS NULL"));
    bench.expire_leases();
    let mut successor =
        bulk(bench, &format!("successor-{round}-{polls}"), remote, settings()).await;
    drain_bulk(bench, &mut successor).await;
    assert_once(bench, remote, &format!("killed after {polls}"));
    successor.stop(Duration::MAX).await;
    finished
}

#[tokio::test]
async fn a_job_whose_workers_are_killed_again_and_again_ends_in_time() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    for seed in 0..12_usize {
        let names: Vec<String> = (0..3).map(|n| format!("{seed}-{n}")).collect();
        let messages: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        bench.enqueue(&messages).await;
        for life in 0..60 {
            let mut worker = bulk(&bench, &format!("w-{seed}-{life}"), &remote, settings()).await;
            let Some(job) = job_by_hand(&bench, &mut worker).await else { break };
            // Different each time; long enough to make progress.
            let polls = 4 + (seed * 31 + life * 17) % 29;
            killed_after(Box::pin(worker.work_on(job, Instant::now())), polls).await;
            drop(worker);
            bench.expire_leases();
        }
        bench.expire_leases();
        let mut successor = bulk(&bench, &format!("successor-{seed}"), &remote, settings()).await;
        drain_bulk(&bench, &mut successor).await;
        assert_once(&bench, &remote, &format!("seed {seed}"));
        successor.stop(Duration::MAX).await;
    }
}

#[tokio::test]
async fn a_worker_killed_during_any_call_leaves_a_job_that_another_ends() {
    for call in CALLS {
        for fault in [Fault::HangsBefore, Fault::HangsAfter] {
            let (bench, remote) = faulty(call, fault).await;
            let mut victim = bulk(&bench, "victim", &remote, settings()).await;
            run_until_hung(&mut victim, &remote).await;
            // Aborts its job, as a crash would.
            drop(victim);
            bench.expire_leases();
            let mut successor = bulk(&bench, "successor", &remote, settings()).await;
            drain_bulk(&bench, &mut successor).await;
            assert_once(&bench, &remote, &format!("{call} {fault:?}"));
            let a = remote.applied().into_iter().filter(|name| name.starts_with('a'));
            assert_eq!(a.collect::<Vec<_>>(), ["a1", "a2"], "{call} {fault:?}: in order");
        }
    }
}

#[tokio::test]
async fn a_job_that_a_lost_worker_aborted_before_the_upload_is_ended_by_another() {
    let (bench, remote) = faulty("upload", Fault::HangsBefore).await;
    let mut first = bulk(&bench, "first", &remote, settings()).await;
    run_until_hung(&mut first, &remote).await;
    drop(first);
    // As if it had been lost a moment earlier.
    bench.sql("UPDATE relais_bulk_job SET phase = 'CREATED'");
    bench.expire_leases();
    remote.fault("abort", Fault::HangsAfter);
    let mut second = bulk(&bench, "second", &remote, settings()).await;
    run_until_hung(&mut second, &remote).await;
    drop(second);
    bench.expire_leases();
    let mut successor = bulk(&bench, "successor", &remote, settings()).await;
    drain_bulk(&bench, &mut successor).await;
    assert_once(&bench, &remote, "aborted twice");
}

/// Returns three rows, and a target where `call` fails once.
async fn faulty(call: &'static str, fault: Fault) -> (Bench, RemoteTarget) {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    bench.enqueue(&[("a", "a1"), ("b", "b1"), ("a", "a2")]).await;
    if call == "abort" {
        // Only a job whose upload has no answer is aborted.
        remote.fault("upload", Fault::LostAfter);
    }
    remote.fault(call, fault);
    (bench, remote)
}

async fn run_until_hung(worker: &mut BulkRelay, remote: &RemoteTarget) {
    let running = async {
        loop {
            worker.request_read();
            worker.run_once().await.unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(5), worker.returned()).await;
        }
    };
    tokio::select! {
        () = remote.hung() => {}
        () = running => {}
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_at_any_call_does_no_harm() {
    let faults = [Fault::LostBefore, Fault::LostAfter, Fault::Outage, Fault::Panics];
    for call in CALLS {
        for fault in faults {
            let (bench, remote) = faulty(call, fault).await;
            let mut relay = bulk(&bench, "w", &remote, settings()).await;
            drain_bulk(&bench, &mut relay).await;
            assert!(!remote.has_faults(), "{call} {fault:?} did not happen");
            assert_once(&bench, &remote, &format!("{call} {fault:?}"));
            let orphans = usize::from(call == "create" && fault == Fault::LostAfter);
            assert_eq!(remote.open_jobs(), orphans, "{call} {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_worker_that_lost_its_job_does_not_change_it_any_more() {
    for call in ["create", "upload", "close", "state", "results"] {
        for fault in [Fault::HangsBefore, Fault::HangsAfter] {
            let bench = Bench::new().await;
            let remote = RemoteTarget::new();
            bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
            remote.fault(call, fault);
            let mut zombie = bulk(&bench, "zombie", &remote.of("zombie"), settings()).await;
            run_until_hung(&mut zombie, &remote).await;
            let before = remote.calls("zombie");
            // Its lease is long, so it does not notice by itself.
            bench.expire_leases();
            let mut successor =
                bulk(&bench, "successor", &remote.of("successor"), settings()).await;
            drain_bulk(&bench, &mut successor).await;
            remote.open_gate();
            tokio::time::timeout(Duration::from_secs(20), zombie.returned())
                .await
                .expect("it ends");
            let context = format!("{call} {fault:?}");
            let changes = |call: &&str| ["create", "upload", "close", "abort"].contains(call);
            let after = remote.calls("zombie").split_off(before.len());
            assert!(!after.iter().any(changes), "{context}: {after:?}");
            assert_once(&bench, &remote, &context);
        }
    }
}

#[tokio::test]
async fn a_worker_whose_lease_expires_in_a_call_drops_the_call() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    bench.enqueue(&[("a", "a1")]).await;
    remote.fault("upload", Fault::HangsBefore);
    let lease = Duration::from_millis(300);
    let mut slow = super::bulk::bulk_with_lease(&bench, "slow", &remote, settings(), lease).await;
    run_until_hung(&mut slow, &remote).await;
    bench.sql("UPDATE relais_bulk_job SET owner = 'thief', epoch = epoch + 1");
    tokio::time::timeout(Duration::from_secs(20), slow.returned()).await.expect("it notices");
    assert_eq!(bench.texts("SELECT phase FROM relais_bulk_job"), ["UPLOADING"]);
    assert_eq!(remote.calls("w"), ["encode", "create", "upload"]);
    bench.expire_leases();
    let mut successor = bulk(&bench, "successor", &remote, settings()).await;
    drain_bulk(&bench, &mut successor).await;
    assert_once(&bench, &remote, "after the thief");
}

#[tokio::test]
async fn stopping_releases_the_job_at_once() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    remote.fault("state", Fault::Outage);
    let patient = crate::BulkSettings {
        poll_first: Duration::from_secs(3_600),
        poll_max: Duration::from_secs(3_600),
        ..settings()
    };
    let mut first = bulk(&bench, "first", &remote, patient).await;
    while remote.calls("w").last() != Some(&"close") {
        first.request_read();
        first.run_once().await.unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(5), first.returned()).await;
    }
    first.stop(Duration::MAX).await;
    assert_eq!(bench.texts("SELECT phase || coalesce(owner, '') FROM relais_bulk_job"), ["CLOSED"]);
    let mut second = bulk(&bench, "second", &remote, settings()).await;
    drain_bulk(&bench, &mut second).await;
    assert_once(&bench, &remote, "handed over");
    assert_eq!(remote.jobs(), 1, "the second continued the job of the first");
}

#[tokio::test]
async fn a_stop_during_a_call_that_hangs_releases_the_job_too() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    bench.enqueue(&[("a", "a1")]).await;
    remote.fault("upload", Fault::HangsAfter);
    let mut quick = settings();
    quick.destination.timeout = Duration::from_millis(50);
    let mut first = bulk(&bench, "first", &remote, quick).await;
    run_until_hung(&mut first, &remote).await;
    first.stop(Duration::MAX).await;
    assert_eq!(
        bench.texts("SELECT phase || coalesce(owner, '') FROM relais_bulk_job"),
        ["UPLOADING"]
    );
    let mut second = bulk(&bench, "second", &remote, settings()).await;
    drain_bulk(&bench, &mut second).await;
    assert_once(&bench, &remote, "handed over");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_are_killed_again_and_again_send_each_row_once() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new().rows_max(7);
    let start = |name: &str| {
        App::new(bench.store.clone())
            .bulk_destination("d", Arc::new(remote.of(name)), settings())
            .lease(Duration::from_millis(300))
            .start()
    };
    let steady = start("steady");
    for life in 0..6 {
        let victim = start("victim");
        for n in 0..12 {
            let name = format!("{life}-{n}");
            bench.enqueue(&[(name.as_str(), name.as_str())]).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(victim);
    }
    let open = "SELECT status FROM relais_outbox WHERE status = 'PENDING'
                UNION ALL SELECT phase FROM relais_bulk_job WHERE finished_at IS NULL";
    for _ in 0..6_000 {
        if bench.texts(open).is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    steady.stop().await;
    assert_once(&bench, &remote, "after many losses");
    assert_eq!(remote.effects().len(), 72);
}

/// Runs a worker until a row kills it or nothing is due any more; returns whether it was killed.
async fn live(bench: &Bench, worker: &mut BulkRelay, remote: &RemoteTarget) -> bool {
    let due = "SELECT id FROM relais_outbox WHERE status = 'PENDING' AND (next_attempt_at IS NULL
               OR next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
               UNION ALL SELECT 1 FROM relais_bulk_job WHERE finished_at IS NULL";
    let running = async {
        while !bench.texts(due).is_empty() {
            worker.request_read();
            worker.run_once().await.unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(5), worker.returned()).await;
        }
    };
    tokio::select! {
        () = remote.hung() => true,
        () = running => false,
    }
}

#[tokio::test]
async fn a_row_that_kills_its_worker_in_encode_is_the_only_dead_letter_of_its_job() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new().rows_max(9);
    remote.outcome("5", Outcome::KillsWorker);
    let names: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    let messages: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    bench.enqueue(&messages).await;
    let mut losses = 0;
    while !bench.texts("SELECT status FROM relais_outbox WHERE status = 'PENDING'").is_empty() {
        assert!(losses < 10, "{:?}", bench.statuses());
        let mut worker = bulk(&bench, &format!("w{losses}"), &remote, settings()).await;
        if live(&bench, &mut worker, &remote).await {
            losses += 1;
            drop(worker);
            bench.expire_leases();
            continue;
        }
        let held = bench.texts("SELECT id FROM relais_outbox WHERE error_code = 'QUARANTINED'");
        if !held.is_empty() {
            assert!(held.len() <= 3, "only the rows of the last, small job: {held:?}");
            // Held, and no worker is lost meanwhile: they are sent one by one.
            bench.make_due();
        }
        worker.stop(Duration::MAX).await;
    }
    assert_eq!(losses, 4);
    let dead =
        "SELECT payload || error_code || attempts FROM relais_outbox WHERE status = 'FAILED'";
    assert_eq!(bench.texts(dead), ["\"5\"WORKER_LOST0"]);
    assert_eq!(remote.effects().len(), 19);
    assert!(remote.effects().values().all(|count| *count == 1), "{:?}", remote.effects());
}

#[tokio::test]
async fn a_worker_that_is_killed_again_and_again_with_its_jobs_makes_no_dead_letter() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new();
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    for life in 0..12 {
        remote.fault("encode", Fault::HangsBefore);
        let mut worker = bulk(&bench, &format!("w{life}"), &remote, settings()).await;
        if !live(&bench, &mut worker, &remote).await {
            // Held. Another worker is lost meanwhile, which frees them once their hold is old enough.
            bench.sql(
                "UPDATE relais_outbox SET next_attempt_at
                 = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '50 seconds');
                 UPDATE relais_waiting SET due_at
                 = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '50 seconds')",
            );
            remote.clear_faults();
        }
        drop(worker);
        bench.expire_leases();
    }
    remote.clear_faults();
    let mut last = bulk(&bench, "last", &remote, settings()).await;
    while live(&bench, &mut last, &remote).await {}
    bench.make_due();
    drain_bulk(&bench, &mut last).await;
    assert_once(&bench, &remote, "after many losses");
}

#[tokio::test]
async fn a_row_that_panics_in_encode_is_found_by_halving() {
    let bench = Bench::new().await;
    let remote = RemoteTarget::new().rows_max(8);
    remote.outcome("b", Outcome::Panics);
    bench.enqueue(&[("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")]).await;
    let mut few = settings();
    few.destination.retry.attempts_max = 2;
    few.destination.breaker.open_for = Duration::from_millis(1);
    let mut relay = bulk(&bench, "w", &remote, few).await;
    drain_bulk(&bench, &mut relay).await;
    let dead = "SELECT payload || error_code FROM relais_outbox WHERE status = 'FAILED'";
    assert_eq!(bench.texts(dead), ["\"b\"TARGET_PANIC"]);
    assert_eq!(remote.effects().len(), 3);
}
