//! The rows of bulk jobs: settled in parts, released in order, ended by operators.

use relais_core::{
    bulk::Phase,
    dead_letter::Resolution,
    inspect::InspectExt,
    outbox::{OutboxFate, OutboxStatus},
    query::{CleanupMode, Retention},
};

use super::{
    Start,
    bulk::{Held, expire_job, fence_of, find, job, of_lanes, plan, planning, renewing, take},
    only_dead_letter, resolve,
    worker::{EVERY, Worker, all, dead_and_parked, make_due, none, retry_later, wait_uncounted},
};
use crate::{
    build::{message, messages, problem},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

pub async fn rows_of_a_job_are_read_in_pages(f: &dyn Fixture) {
    f.store().enqueue(messages("bulk", 25)).await.expect("enqueue");
    let held = Held::of_pending(f).await;
    let mut seen: Vec<i64> = Vec::new();
    loop {
        let after = seen.last().copied().unwrap_or(0);
        let page = f.second().bulk_rows(held.job.id, after, 10, EVERY).await.expect("rows");
        assert!(page.len() <= 10);
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|row| row.id));
    }
    assert_eq!(seen, held.rows.iter().map(|row| row.id).collect::<Vec<_>>());
}

pub async fn every_row_of_a_job_ends_as_its_fate_says(f: &dyn Fixture) {
    let held =
        Held::of(f, &["done", "retry", "dead", "skipped", "free", "uncounted", "left"]).await;
    let dead = OutboxFate::Dead { attempts: 2, problem: problem(), park: false };
    let fates = [
        OutboxFate::Dispatched,
        retry_later(),
        dead_and_parked(),
        dead,
        OutboxFate::Untouched,
        wait_uncounted(),
    ];
    let rows: Vec<_> = fates.into_iter().enumerate().map(|(n, fate)| (held.id(n), fate)).collect();
    assert_eq!(held.settle(rows.clone()).await, all(6));
    let mut found = Vec::new();
    for row in &held.rows {
        let row = find(f, row.id).await;
        found.push((
            row.status,
            row.attempts,
            row.next_attempt_at.is_some(),
            row.error_code.is_some(),
        ));
    }
    let (pending, dispatched, failed) =
        (OutboxStatus::Pending, OutboxStatus::Dispatched, OutboxStatus::Failed);
    assert_eq!(
        found,
        [
            (dispatched, 1, false, false),
            (pending, 1, true, true),
            (failed, 5, false, true),
            (failed, 2, false, true),
            (pending, 0, false, false),
            (pending, 0, true, true),
            (pending, 0, true, false),
        ]
    );
    assert_eq!(f.number("SELECT count(*) FROM relais_dead_letter WHERE parked_by = 'w'").await, 2);
    let parked = f.store().parked_keys(10).await.expect("parked");
    assert_eq!(parked.iter().map(|key| key.msg_key.as_str()).collect::<Vec<_>>(), ["dead"]);
    assert_eq!(held.worker.pending_ids().await, [held.id(4)], "free again at once");
    assert_eq!(held.settle(rows).await, none(6), "none of them is in the job any more");
    let left = f.store().bulk_rows(held.job.id, 0, 10, EVERY).await.expect("rows");
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [held.id(6)]);
    make_due(f, "relais_outbox").await;
    let due = held.worker.pending_ids().await;
    assert!(due.contains(&held.id(1)) && due.contains(&held.id(5)), "both come when due");
}

pub async fn a_job_ends_with_its_last_row(f: &dyn Fixture) {
    f.store().enqueue(messages("bulk", 1_200)).await.expect("enqueue");
    let worker = Worker::outbox(f, "bulk", "w").await;
    let rows = worker.pending(2_000).await;
    let job_now = plan(&worker, &rows).await.expect("a job");
    let fence = fence_of(&job_now);
    for (n, part) in rows.chunks(500).enumerate() {
        assert_eq!(job(f, job_now.id).await.phase, Phase::Planned, "part {n}");
        let part: Vec<_> = part.iter().map(|row| (row.id, OutboxFate::Dispatched)).collect();
        let asked = part.len() as u64;
        let settled = f.store().settle_bulk(fence.clone(), part).await.expect("settle");
        assert_eq!(settled, all(asked));
    }
    let ended = job(f, job_now.id).await;
    assert_eq!((ended.phase, ended.owner, ended.row_count), (Phase::Reconciled, None, 1_200));
    assert!(ended.finished_at.is_some());
    assert_eq!(
        f.number("SELECT count(*) FROM relais_outbox WHERE status = 'DISPATCHED'").await,
        1_200
    );
    let after = f.store().settle_bulk(fence.clone(), vec![(rows[0].id, retry_later())]).await;
    assert_eq!(after.expect("settle"), none(1));
    let renewed = f.store().lease_bulk(renewing(fence)).await.expect("renew");
    assert!(renewed.is_none(), "nothing to hold any more");
    assert_eq!(take(f, "heir").await, None);
}

pub async fn rows_that_are_not_in_the_job_are_refused(f: &dyn Fixture) {
    let held = Held::of(f, &["a"]).await;
    let stranger = f.store().enqueue(vec![message("bulk", "b")]).await.expect("enqueue")[0];
    for fate in [OutboxFate::Dispatched, retry_later(), dead_and_parked(), OutboxFate::Untouched] {
        assert_eq!(held.settle(vec![(stranger, fate.clone()), (i64::MAX, fate)]).await, none(2));
    }
    assert_eq!(find(f, stranger).await.status, OutboxStatus::Pending);
    let twice = vec![(held.id(0), dead_and_parked()), (held.id(0), dead_and_parked())];
    let settled = held.settle(twice).await;
    assert_eq!((settled.settled, settled.refused), (1, 1));
    assert_eq!(f.number("SELECT count(*) FROM relais_dead_letter").await, 1);
}

pub async fn an_abandoned_job_sets_its_rows_free_as_they_were(f: &dyn Fixture) {
    f.store().enqueue(vec![message("bulk", "a"), message("bulk", "b")]).await.expect("enqueue");
    let worker = Worker::outbox(f, "bulk", "w").await;
    let rows = worker.pending(10).await;
    worker.settle(&rows[0], retry_later()).await;
    make_due(f, "relais_outbox").await;
    let held = Held::of_pending(f).await;
    let followers =
        f.store().enqueue(vec![message("bulk", "b"), message("bulk", "a")]).await.expect("enqueue");
    assert!(held.advance(Phase::Planned, Phase::Abandoned).await);
    let ended = job(f, held.job.id).await;
    assert_eq!((ended.phase, ended.owner), (Phase::Abandoned, None));
    assert!(ended.finished_at.is_some());
    assert_eq!(held.worker.pending_ids().await, [rows[0].id, rows[1].id], "before their followers");
    assert_eq!(held.worker.pending(1).await[0].id, rows[0].id, "however small the limit");
    let first = find(f, rows[0].id).await;
    assert_eq!((first.attempts, first.job_id), (1, None));
    assert_eq!(first.error_code.as_deref(), Some("HTTP_500"));
    let freed = held.worker.pending(10).await;
    let done = freed.iter().map(|row| held.worker.outbox_fate(row, OutboxFate::Dispatched));
    assert_eq!(held.worker.settle_all(done.collect()).await, all(2));
    assert_eq!(held.worker.pending_ids().await, followers);
}

pub async fn rows_set_free_are_found_at_once_and_before_their_followers(f: &dyn Fixture) {
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let held = Held::of(f, &names).await;
    f.store().enqueue(names.iter().map(|k| message("bulk", k)).collect()).await.expect("enqueue");
    assert!(held.worker.pending_ids().await.is_empty(), "held");
    let (first, rest) = held.rows.split_at(10);
    let free = first.iter().map(|row| (row.id, OutboxFate::Untouched)).collect();
    assert_eq!(held.settle(free).await, all(10));
    let firsts: Vec<i64> = held.worker.pending(10).await.iter().map(|row| row.id).collect();
    assert_eq!(firsts, first.iter().map(|row| row.id).collect::<Vec<_>>());
    assert!(held.advance(Phase::Planned, Phase::Abandoned).await);
    let all_free: Vec<i64> = held.worker.pending(40).await.iter().map(|row| row.id).collect();
    let wanted: Vec<i64> = first.iter().chain(rest).map(|row| row.id).collect();
    assert_eq!(all_free, wanted);
}

pub async fn an_operator_may_retry_a_dead_row_while_its_job_is_open(f: &dyn Fixture) {
    let held = Held::of(f, &["a", "b"]).await;
    assert_eq!(held.settle(vec![(held.id(0), dead_and_parked())]).await, all(1));
    let letter = only_dead_letter(f).await;
    assert_eq!((letter.origin_id, letter.destination.as_deref()), (Some(held.id(0)), Some("bulk")));
    assert!(resolve(f, letter.id, Resolution::Retried).await);
    let row = find(f, held.id(0)).await;
    assert_eq!((row.status, row.attempts, row.job_id), (OutboxStatus::Pending, 0, None));
    assert_eq!(held.worker.pending_ids().await, [held.id(0)]);
    let left = f.store().bulk_rows(held.job.id, 0, 10, EVERY).await.expect("rows");
    assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [held.id(1)]);
    assert_eq!(held.settle(vec![(held.id(0), OutboxFate::Dispatched)]).await, none(1));
}

pub async fn a_discarded_dead_row_of_a_job_lets_its_key_continue(f: &dyn Fixture) {
    let held = Held::of(f, &["a"]).await;
    let next = f.store().enqueue(vec![message("bulk", "a")]).await.expect("enqueue");
    assert_eq!(held.settle(vec![(held.id(0), dead_and_parked())]).await, all(1));
    assert!(held.worker.pending_ids().await.is_empty(), "parked");
    assert!(resolve(f, only_dead_letter(f).await.id, Resolution::Discarded).await);
    assert_eq!(held.worker.pending_ids().await, next);
}

pub async fn an_unknown_job_strands_no_row(f: &dyn Fixture) {
    let ids = f.store().enqueue(messages("bulk", 2)).await.expect("enqueue");
    f.run("UPDATE relais_outbox SET job_id = 'of another program'").await;
    let held = Held::of_pending(f).await;
    assert_eq!(held.rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids);
    assert_eq!(f.store().bulk_rows(held.job.id, 0, 10, EVERY).await.expect("rows").len(), 2);
}

pub async fn workers_notice_rows_that_were_set_free_and_the_end_of_a_job(f: &dyn Fixture) {
    let held = Held::of(f, &["a", "b", "c"]).await;
    let (one, two) = (f.store(), f.second());
    let mut last = (one.changes().await.expect("changes"), two.changes().await.expect("changes"));
    let mut moved = async || {
        let now = (one.changes().await.expect("changes"), two.changes().await.expect("changes"));
        let before = std::mem::replace(&mut last, now);
        before.0 != now.0 && before.1 != now.1
    };
    held.advance(Phase::Planned, Phase::Creating).await;
    f.store().lease_bulk(renewing(held.fence())).await.expect("renew");
    assert!(!moved().await, "a phase and a lease are nobody else's news");
    held.settle(vec![(held.id(0), OutboxFate::Untouched)]).await;
    assert!(moved().await, "a row is free");
    held.settle(vec![(held.id(1), OutboxFate::Dispatched)]).await;
    assert!(!moved().await);
    held.settle(vec![(held.id(2), OutboxFate::Dispatched)]).await;
    assert!(moved().await, "the job has ended");
    let next = Held::of_pending(f).await;
    moved().await;
    next.advance(Phase::Planned, Phase::Abandoned).await;
    assert!(moved().await, "given up");
}

pub async fn rows_of_a_job_are_pending_to_operators(f: &dyn Fixture) {
    let held = Held::of(f, &["a", "b"]).await;
    let overview = f.store().overview().await.expect("overview");
    let pending = overview.outbox.iter().find(|count| count.name == "PENDING").map(|c| c.rows);
    assert_eq!(pending, Some(2));
    assert_eq!(overview.backlogs.iter().map(|b| b.pending).collect::<Vec<_>>(), [2]);
    held.settle(vec![(held.id(0), OutboxFate::Dispatched)]).await;
    let row = find(f, held.id(0)).await;
    assert_eq!(row.job_id, Some(held.job.id.to_string()), "how it was delivered can be seen");
}

pub async fn jobs_are_listed_open_ones_first_then_newest(f: &dyn Fixture) {
    let old = Held::of(f, &["a"]).await;
    assert!(old.advance(Phase::Planned, Phase::Abandoned).await);
    let newer = Held::of_pending(f).await;
    newer.settle(vec![(newer.id(0), OutboxFate::Dispatched)]).await;
    let open = Held::of(f, &["b"]).await;
    let seconds = [(old.job.id, 30), (newer.job.id, 20), (open.job.id, 40)];
    for (id, ago) in seconds {
        let at = f.dialect().ago(ago);
        f.run(&format!("UPDATE relais_bulk_job SET created_at = {at} WHERE id = '{id}'")).await;
    }
    let list = |destination: Option<&str>, limit| {
        let (store, destination) = (f.second(), destination.map(str::to_owned));
        async move {
            let jobs = store.list_bulk(destination, limit).await.expect("list");
            jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
        }
    };
    assert_eq!(list(None, 10).await, [open.job.id, newer.job.id, old.job.id]);
    assert_eq!(list(Some("bulk"), 2).await, [open.job.id, newer.job.id]);
    assert!(list(Some("other"), 10).await.is_empty());
}

pub async fn ended_jobs_past_their_retention_go_and_open_ones_stay(f: &dyn Fixture) {
    let ended = Held::of(f, &["a"]).await;
    assert!(ended.advance(Phase::Planned, Phase::Abandoned).await);
    let open = Held::of_pending(f).await;
    f.run(&format!("UPDATE relais_bulk_job SET created_at = {}", f.past())).await;
    let retention = Retention::default().dispatched_seconds(60);
    f.store().cleanup(retention, CleanupMode::Remove { rows_max: 100 }).await.expect("clean up");
    assert_eq!(job(f, ended.job.id).await.phase, Phase::Abandoned, "ended a moment ago");
    f.run(&format!(
        "UPDATE relais_bulk_job SET finished_at = {} WHERE finished_at IS NOT NULL",
        f.past()
    ))
    .await;
    f.store().cleanup(retention, CleanupMode::Remove { rows_max: 100 }).await.expect("clean up");
    let left = f.store().list_bulk(None, 10).await.expect("list");
    assert_eq!(left.iter().map(|job| job.id).collect::<Vec<_>>(), [open.job.id]);
}

pub async fn a_caller_that_goes_away_leaves_all_or_nothing(f: &dyn Fixture) {
    for round in 0..6 {
        let rows: Vec<_> = (0..50).map(|n| message("bulk", &format!("{round}-{n}"))).collect();
        f.store().enqueue(rows).await.expect("enqueue");
        let worker = Worker::outbox(f, "bulk", "w").await;
        let rows = worker.pending(1_000).await;
        let plan_all = planning(&worker, of_lanes(&worker, &rows));
        dropped_after(worker.store.lease_bulk(plan_all), round).await;
        let open = "SELECT count(*) FROM relais_bulk_job WHERE finished_at IS NULL";
        let of_job = "SELECT count(*) FROM relais_outbox WHERE job_id IS NOT NULL \
                      AND status = 'PENDING'";
        // What was dropped may still be on its way; one that waits for the same rows comes behind it.
        let planned = plan(&worker, &rows).await;
        assert_eq!(f.number(open).await, 1, "round {round}, {planned:?}");
        assert_eq!(f.number(of_job).await, i64::try_from(rows.len()).expect("few"));
        expire_job(f).await;
        let job_now = take(f, "w").await.expect("the job");
        let parts = rows.iter().map(|row| (row.id, OutboxFate::Dispatched)).collect();
        dropped_after(worker.store.settle_bulk(fence_of(&job_now), parts), round).await;
        let rest = rows.iter().map(|row| (row.id, OutboxFate::Dispatched)).collect();
        f.store().settle_bulk(fence_of(&job_now), rest).await.expect("settle");
        assert_eq!((f.number(open).await, f.number(of_job).await), (0, 0), "round {round}");
    }
}

/// Polls a future this many times, then drops it.
async fn dropped_after<T>(mut future: relais_core::BoxFuture<'_, T>, polls: usize) {
    for _ in 0..polls {
        let once = std::future::poll_fn(|context| {
            std::task::Poll::Ready(future.as_mut().poll(context).is_ready())
        });
        if once.await {
            return;
        }
        tokio::task::yield_now().await;
    }
}
