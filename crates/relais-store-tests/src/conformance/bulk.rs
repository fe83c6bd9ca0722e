//! Bulk jobs: planned under the lanes' fence, worked on under the job's, ended with their last row.

use relais_core::{
    bulk::{Advance, BulkJob, BulkLease, JobFence, JobTakeover, Phase},
    inspect::InspectExt,
    lane::OwnedLane,
    outbox::{OutboxFate, OutboxRow, OutboxStatus},
};
use uuid::Uuid;

use super::{
    Start,
    worker::{
        EVERY, LEASE, Worker, all, dead_and_parked, expire_all, make_due, none, retry_later,
        suspect,
    },
};
use crate::{
    build::{message, messages},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

/// A job and who works on it.
pub(super) struct Held {
    pub(super) worker: Worker,
    pub(super) rows: Vec<OutboxRow>,
    pub(super) job: BulkJob,
}

impl Held {
    /// A job of one row for each key.
    pub(super) async fn of(f: &dyn Fixture, keys: &[&str]) -> Self {
        let rows = keys.iter().map(|key| message("bulk", key)).collect();
        f.store().enqueue(rows).await.expect("enqueue");
        Self::of_pending(f).await
    }

    /// A job of everything that may go.
    pub(super) async fn of_pending(f: &dyn Fixture) -> Self {
        let worker = Worker::outbox(f, "bulk", "w").await;
        let rows = worker.pending(1_000).await;
        let job = plan(&worker, &rows).await.expect("a job");
        Self { worker, rows, job }
    }

    pub(super) fn fence(&self) -> JobFence {
        fence_of(&self.job)
    }

    pub(super) async fn settle(
        &self,
        rows: Vec<(i64, OutboxFate)>,
    ) -> relais_core::store::SettleOutcome {
        self.worker.store.settle_bulk(self.fence(), rows).await.expect("settle")
    }

    pub(super) async fn advance(&self, from: Phase, to: Phase) -> bool {
        advance(&self.worker, self.fence(), from, to).await
    }

    pub(super) fn id(&self, row: usize) -> i64 {
        self.rows[row].id
    }
}

pub(super) fn fence_of(job: &BulkJob) -> JobFence {
    let worker = job.owner.clone().expect("an owner");
    JobFence { job: job.id, worker, epoch: job.epoch }
}

pub(super) fn of_lanes(worker: &Worker, rows: &[OutboxRow]) -> Vec<(i64, OwnedLane)> {
    rows.iter().map(|row| (row.id, worker.holding(row.lane))).collect()
}

pub(super) async fn plan(worker: &Worker, rows: &[OutboxRow]) -> Option<BulkJob> {
    let rows = of_lanes(worker, rows);
    let planned = worker.store.lease_bulk(planning(worker, rows)).await.expect("plan");
    planned.map(|planned| planned.job)
}

pub(super) fn planning(worker: &Worker, rows: Vec<(i64, OwnedLane)>) -> BulkLease {
    BulkLease::Plan { fence: worker.fence.clone(), job: Uuid::now_v7(), rows, lease: LEASE }
}

pub(super) fn taking(destination: &str, worker: &str) -> BulkLease {
    let (destination, worker) = (destination.to_owned(), worker.to_owned());
    BulkLease::Take { destination, worker, lease: LEASE }
}

pub(super) fn renewing(fence: JobFence) -> BulkLease {
    BulkLease::Renew { fence, lease: LEASE }
}

async fn advance(worker: &Worker, fence: JobFence, from: Phase, to: Phase) -> bool {
    let step = Advance { from, to, remote_id: None, note: None };
    worker.store.advance_bulk(fence, step).await.expect("advance")
}

pub(super) async fn take(f: &dyn Fixture, worker: &str) -> Option<BulkJob> {
    take_over(f, worker).await.map(|taken| taken.job)
}

async fn take_over(f: &dyn Fixture, worker: &str) -> Option<JobTakeover> {
    f.second().lease_bulk(taking("bulk", worker)).await.expect("take")
}

pub(super) async fn expire_job(f: &dyn Fixture) {
    f.run(&format!("UPDATE relais_bulk_job SET lease_until = {}", f.past())).await;
}

/// The job as it is now.
pub(super) async fn job(f: &dyn Fixture, id: Uuid) -> BulkJob {
    let jobs = f.second().list_bulk(None, 100).await.expect("list");
    jobs.into_iter().find(|job| job.id == id).expect("the job")
}

pub(super) async fn find(f: &dyn Fixture, id: i64) -> OutboxRow {
    f.store().find_outbox(id.to_string()).await.expect("find").expect("a row")
}

/// Everything bulk that can be seen, to show that nothing changed.
async fn picture(f: &dyn Fixture) -> Vec<Vec<Option<String>>> {
    let mut rows = f
        .rows("SELECT id, status, attempts, job_id, next_attempt_at, error_code FROM relais_outbox ORDER BY id")
        .await;
    rows.extend(
        f.rows("SELECT id, phase, remote_id, owner, epoch, error_message FROM relais_bulk_job ORDER BY id")
            .await,
    );
    rows.extend(f.rows("SELECT count(*) FROM relais_dead_letter").await);
    rows
}

pub async fn a_job_is_planned_with_its_rows(f: &dyn Fixture) {
    let before = f.now().await;
    let held = Held::of(f, &["a", "b", "c"]).await;
    let BulkJob { id, destination, remote_id, phase, row_count, owner, epoch, .. } = &held.job;
    assert_eq!((destination.as_str(), remote_id, *phase), ("bulk", &None, Phase::Planned));
    assert_eq!((*row_count, owner.as_deref(), *epoch), (3, Some("w"), 1));
    assert!(before <= held.job.created_at && held.job.created_at <= f.now().await);
    assert_eq!((held.job.finished_at, &held.job.error_message), (None, &None));
    assert_eq!(job(f, *id).await, held.job);
    for row in &held.rows {
        let row = find(f, row.id).await;
        assert_eq!((row.status, row.attempts), (OutboxStatus::Pending, 0));
        assert_eq!(row.job_id, Some(id.to_string()));
    }
    let rows = f.store().bulk_rows(*id, 0, 10, EVERY).await.expect("rows");
    assert_eq!(
        rows.iter().map(|row| row.id).collect::<Vec<_>>(),
        [held.id(0), held.id(1), held.id(2)]
    );
    assert!(f.store().bulk_rows(Uuid::now_v7(), 0, 10, EVERY).await.expect("rows").is_empty());
}

pub async fn a_row_in_a_job_is_never_fetched_and_holds_its_key(f: &dyn Fixture) {
    let held = Held::of(f, &["a", "b"]).await;
    let later = vec![message("bulk", "a"), message("bulk", "c"), message("bulk", "b")];
    let later = f.store().enqueue(later).await.expect("enqueue");
    assert_eq!(held.worker.pending_ids().await, [later[1]], "only the key that is in no job");
    make_due(f, "relais_outbox").await;
    assert_eq!(held.worker.pending_ids().await, [later[1]], "whatever their time says");
    f.run(&format!(
        "UPDATE relais_outbox SET attempts = 1, next_attempt_at = {} WHERE id = {}",
        f.past(),
        later[2]
    ))
    .await;
    assert_eq!(held.worker.pending_ids().await, [later[1]], "a due row waits too");
    assert_eq!(held.settle(vec![(held.id(0), OutboxFate::Dispatched)]).await, all(1));
    assert_eq!(held.worker.pending_ids().await, [later[0], later[1]]);
}

pub async fn a_row_in_a_job_holds_its_key_in_its_destination_only(f: &dyn Fixture) {
    let held = Held::of(f, &["a"]).await;
    let ids = f.store().enqueue(vec![message("other", "a")]).await.expect("enqueue");
    assert_eq!(Worker::outbox(f, "other", "w").await.pending_ids().await, ids);
    assert!(held.worker.pending_ids().await.is_empty());
}

pub async fn rows_in_backoff_and_delayed_rows_that_are_due_can_be_planned(f: &dyn Fixture) {
    f.store().enqueue(messages("bulk", 3)).await.expect("enqueue");
    let worker = Worker::outbox(f, "bulk", "w").await;
    let rows = worker.pending(10).await;
    worker.settle(&rows[0], retry_later()).await;
    f.run(&format!(
        "UPDATE relais_outbox SET next_attempt_at = {} WHERE id = {}",
        f.future(),
        rows[1].id
    ))
    .await;
    let before = picture(f).await;
    assert_eq!(plan(&worker, &rows).await, None, "two of them are not due");
    assert_eq!(picture(f).await, before);
    make_due(f, "relais_outbox").await;
    assert_eq!(plan(&worker, &rows).await.expect("a job").row_count, 3);
}

pub async fn a_destination_has_one_open_job(f: &dyn Fixture) {
    let held = Held::of(f, &["a"]).await;
    f.store().enqueue(vec![message("bulk", "b"), message("other", "b")]).await.expect("enqueue");
    let before = picture(f).await;
    let rows = held.worker.pending(10).await;
    assert_eq!(plan(&held.worker, &rows).await, None);
    assert_eq!(picture(f).await, before, "nothing changed");
    let other = Worker::outbox(f, "other", "w").await;
    assert!(plan(&other, &other.pending(10).await).await.is_some());
    held.settle(vec![(held.id(0), OutboxFate::Dispatched)]).await;
    let next = plan(&held.worker, &rows).await.expect("the next job");
    assert!(advance(&held.worker, fence_of(&next), Phase::Planned, Phase::Abandoned).await);
    assert!(plan(&held.worker, &rows).await.is_some());
}

pub async fn a_plan_with_a_row_or_lane_that_is_not_ours_changes_nothing(f: &dyn Fixture) {
    f.store().enqueue(messages("bulk", 2)).await.expect("enqueue");
    let other = f.store().enqueue(vec![message("other", "x")]).await.expect("enqueue");
    let worker = Worker::outbox(f, "bulk", "w").await;
    let rows = worker.pending(10).await;
    let ours = of_lanes(&worker, &rows);
    let stale = |change: fn(&mut (i64, OwnedLane))| {
        let mut rows = ours.clone();
        change(&mut rows[1]);
        rows
    };
    let plans = [
        ("no rows", Vec::new()),
        ("an old epoch", stale(|row| row.1.epoch -= 1)),
        ("a future epoch", stale(|row| row.1.epoch += 1)),
        ("a missing row", stale(|row| row.0 += 1_000_000)),
        ("a row named twice", vec![ours[0], ours[1], ours[0]]),
        ("another destination's row", vec![ours[0], (other[0], ours[1].1)]),
    ];
    let before = picture(f).await;
    for (what, rows) in plans {
        let planned = f.store().lease_bulk(planning(&worker, rows)).await;
        assert_eq!(planned.expect("plan"), None, "{what}");
        assert_eq!(picture(f).await, before, "{what}");
    }
    worker.settle(&rows[0], OutboxFate::Dispatched).await;
    assert_eq!(plan(&worker, &rows).await, None, "one is settled");
    expire_all(f).await;
    let _thief = Worker::start(f.second(), worker.fence.scope.clone(), "thief").await;
    let before = picture(f).await;
    assert_eq!(plan(&worker, &rows[1..]).await, None, "its lane was taken");
    assert_eq!(picture(f).await, before);
}

pub async fn of_workers_that_plan_together_one_gets_its_job(f: &dyn Fixture) {
    f.store().enqueue(messages("bulk", 40)).await.expect("enqueue");
    let mut one = Worker::outbox(f, "bulk", "one").await;
    let mut two = Worker::start(f.second(), one.fence.scope.clone(), "two").await;
    one.heartbeat().await;
    one.release(one.surplus).await;
    two.heartbeat().await;
    let (a, b) = (one.pending(100).await, two.pending(100).await);
    assert!(!a.is_empty() && !b.is_empty());
    let (first, second) = tokio::join!(plan(&one, &a), plan(&two, &b));
    let jobs: Vec<_> = first.iter().chain(&second).collect();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    let of_job = f.number("SELECT count(*) FROM relais_outbox WHERE job_id IS NOT NULL").await;
    assert_eq!(u64::try_from(of_job), Ok(jobs[0].row_count));
}

pub async fn a_held_job_is_not_taken(f: &dyn Fixture) {
    let held = Held::of(f, &["a"]).await;
    assert_eq!(take(f, "thief").await, None);
    assert_eq!(take(f, "w").await, None, "not even by the same name");
    expire_job(f).await;
    let renewed = f.store().lease_bulk(renewing(held.fence())).await.expect("renew");
    assert!(renewed.is_some(), "it ran out, and nobody took it");
    assert_eq!(take(f, "thief").await, None);
    let nobody = f.store().lease_bulk(taking("other", "w")).await.expect("take");
    assert_eq!(nobody, None, "another destination has none");
}

pub async fn a_job_without_an_owner_is_taken_as_it_is_with_a_higher_epoch(f: &dyn Fixture) {
    let held = Held::of(f, &["a", "b"]).await;
    let step = Advance {
        from: Phase::Planned,
        to: Phase::Created,
        remote_id: Some("750x".into()),
        note: Some("n".into()),
    };
    assert!(f.store().advance_bulk(held.fence(), step).await.expect("advance"));
    f.store().lease_bulk(BulkLease::Release { fence: held.fence() }).await.expect("release");
    let taken = take(f, "heir").await.expect("free");
    let kept = BulkJob {
        remote_id: Some("750x".into()),
        phase: Phase::Created,
        owner: Some("heir".into()),
        epoch: 2,
        error_message: Some("n".into()),
        ..held.job.clone()
    };
    assert_eq!(taken, kept);
    expire_job(f).await;
    let again = take(f, "heir").await.expect("expired");
    assert_eq!(again.epoch, 3, "also for the same name");
    assert_eq!(take(f, "third").await, None);
}

pub async fn of_many_that_take_a_job_one_gets_it(f: &dyn Fixture) {
    let held = Held::of(f, &["a"]).await;
    expire_job(f).await;
    let takers = (0..6).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        tokio::spawn(async move {
            store.lease_bulk(taking("bulk", &format!("t{n}"))).await.expect("take")
        })
    });
    let mut won = Vec::new();
    for taker in takers.collect::<Vec<_>>() {
        won.extend(taker.await.expect("taker"));
    }
    assert_eq!(won.len(), 1, "{won:?}");
    assert_eq!((won[0].job.id, won[0].job.epoch), (held.job.id, 2));
    assert!(won[0].after_loss);
}

pub async fn a_job_that_was_not_released_is_taken_after_a_loss(f: &dyn Fixture) {
    let held = Held::of(f, &["a"]).await;
    f.store().lease_bulk(BulkLease::Release { fence: held.fence() }).await.expect("release");
    assert!(!take_over(f, "heir").await.expect("released").after_loss);
    expire_job(f).await;
    assert!(take_over(f, "heir").await.expect("expired").after_loss);
}

pub async fn lost_workers_are_counted_on_rows_of_a_job_and_cleared_by_any_answer(f: &dyn Fixture) {
    let held = Held::of(f, &["a", "b", "c"]).await;
    let ids: Vec<i64> = held.rows.iter().map(|row| row.id).collect();
    let fates = [suspect(2), suspect(1), suspect(2)];
    let rows = ids.iter().copied().zip(fates).collect();
    f.store().settle_bulk(held.fence(), rows).await.expect("settle");
    for (id, lost_workers) in ids.iter().zip([2, 1, 2]) {
        let row = find(f, *id).await;
        assert_eq!((row.lost_workers, row.attempts, row.job_id), (lost_workers, 0, None));
    }
    let rows = held.worker.pending(10).await;
    let lost: Vec<u32> = rows.iter().map(|row| row.lost_workers).collect();
    assert_eq!(lost, [2, 1, 2]);
    let job = plan(&held.worker, &rows).await.expect("a job");
    let fates = [OutboxFate::Untouched, retry_later(), suspect(0)];
    let rows = ids.iter().copied().zip(fates).collect();
    f.store().settle_bulk(fence_of(&job), rows).await.expect("settle");
    for id in ids {
        assert_eq!(find(f, id).await.lost_workers, 0);
    }
}

pub async fn a_worker_that_lost_the_job_changes_nothing(f: &dyn Fixture) {
    let held = Held::of(f, &["a", "b"]).await;
    expire_job(f).await;
    let heir = take(f, "heir").await.expect("taken");
    let right = fence_of(&heir);
    let impostors = [
        held.fence(),
        JobFence { worker: "heir".into(), ..held.fence() },
        JobFence { worker: "w".into(), ..right.clone() },
        JobFence { epoch: right.epoch + 1, ..right.clone() },
        JobFence { job: Uuid::now_v7(), ..right.clone() },
    ];
    let before = picture(f).await;
    for fence in impostors {
        let store = f.store();
        let renewed = store.lease_bulk(renewing(fence.clone())).await.expect("renew");
        assert!(renewed.is_none(), "{fence:?}");
        for to in [Phase::Creating, Phase::Abandoned, Phase::Reconciled] {
            assert!(!advance(&held.worker, fence.clone(), Phase::Planned, to).await, "{fence:?}");
        }
        for fate in
            [OutboxFate::Dispatched, retry_later(), dead_and_parked(), OutboxFate::Untouched]
        {
            let rows = vec![(held.id(0), fate.clone()), (held.id(1), fate)];
            assert_eq!(store.settle_bulk(fence.clone(), rows).await.expect("settle"), none(2));
        }
        store.lease_bulk(BulkLease::Release { fence }).await.expect("release");
        assert_eq!(picture(f).await, before);
    }
    let rows = vec![(held.id(0), OutboxFate::Dispatched)];
    assert_eq!(f.second().settle_bulk(right, rows).await.expect("settle"), all(1));
}

pub async fn a_settlement_and_a_take_over_never_both_win(f: &dyn Fixture) {
    for round in 0..5 {
        let held = Held::of(f, &[&format!("a{round}"), &format!("b{round}")]).await;
        expire_job(f).await;
        let rows = vec![(held.id(0), OutboxFate::Dispatched)];
        let store = f.store();
        let (settled, taken) = tokio::join!(store.settle_bulk(held.fence(), rows), take(f, "heir"));
        let settled = settled.expect("settle").settled == 1;
        let heir = taken.expect("nobody else takes it");
        let left = f.store().bulk_rows(heir.id, 0, 10, EVERY).await.expect("rows");
        assert_eq!(left.len(), if settled { 1 } else { 2 });
        let rest = left.iter().map(|row| (row.id, OutboxFate::Dispatched)).collect();
        f.second().settle_bulk(fence_of(&heir), rest).await.expect("settle");
        assert_eq!(job(f, heir.id).await.phase, Phase::Reconciled);
    }
}

pub async fn a_phase_moves_only_from_where_it_is(f: &dyn Fixture) {
    let held = Held::of(f, &["a"]).await;
    assert!(!held.advance(Phase::Creating, Phase::Created).await);
    for pair in Phase::ALL[..8].windows(2) {
        assert!(held.advance(pair[0], pair[1]).await, "{pair:?}");
        assert!(!held.advance(pair[0], pair[1]).await, "once: {pair:?}");
    }
    let now = job(f, held.job.id).await;
    assert_eq!(
        (now.phase, now.finished_at, now.owner.as_deref()),
        (Phase::Finished, None, Some("w"))
    );
}

pub async fn what_the_target_named_and_the_last_note_are_kept(f: &dyn Fixture) {
    let held = Held::of(f, &["a"]).await;
    let long = "😀".repeat(3_000);
    let steps = [
        (Phase::Planned, Phase::Creating, None, Some(long.as_str())),
        (Phase::Creating, Phase::Created, Some("750-ä"), None),
        (Phase::Created, Phase::Uploading, None, None),
    ];
    for (from, to, remote_id, note) in steps {
        let (remote_id, note) = (remote_id.map(str::to_owned), note.map(str::to_owned));
        let step = Advance { from, to, remote_id, note };
        assert!(f.store().advance_bulk(held.fence(), step).await.expect("advance"));
    }
    let now = job(f, held.job.id).await;
    assert_eq!(now.remote_id.as_deref(), Some("750-ä"));
    let note = now.error_message.expect("the note");
    assert!(note.starts_with("😀😀") && note.chars().count() <= 2_000);
}
