//! The life of an outbox row through the seam: written, fetched, settled.

use std::{collections::BTreeSet, time::Duration};

use relais_core::{
    delivery::Problem,
    inspect::InspectExt,
    message::Category,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement, OutboxStatus},
    store::{IdRange, RowMark, WorkQuery},
    time::Timestamp,
};
use uuid::Uuid;

use super::{
    Start,
    worker::{Worker, all, dead_and_parked, make_due, none, retry_later},
};
use crate::{
    build::{message, messages, problem},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

async fn find(f: &dyn Fixture, id: i64) -> OutboxRow {
    f.store().find_outbox(id.to_string()).await.expect("find").expect("the row is there")
}

/// Writes one message and gives its row to a worker that holds every lane.
async fn one(f: &dyn Fixture) -> (Worker, OutboxRow) {
    f.store().enqueue(vec![message("orders", "k")]).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let row = worker.pending(1).await.remove(0);
    (worker, row)
}

pub async fn an_enqueued_message_is_pending_with_a_positive_id(f: &dyn Fixture) {
    let before = f.now().await;
    let ids = f.store().enqueue(vec![message("orders", "k")]).await.expect("enqueue");
    assert!(ids.len() == 1 && ids[0] > 0, "{ids:?}");
    let row = find(f, ids[0]).await;
    assert_eq!((row.status, row.attempts), (OutboxStatus::Pending, 0));
    assert!(before <= row.created_at && row.created_at <= f.now().await);
    assert_eq!((row.next_attempt_at, row.dispatched_at), (None, None));
    assert_eq!(f.value("SELECT headers FROM relais_outbox").await.as_deref(), Some("{}"));
}

pub async fn every_field_of_a_message_comes_back(f: &dyn Fixture) {
    for category in Category::ALL {
        let mut sent = message("orders", "k");
        sent.category = category;
        sent.event_version = 7;
        sent.aggregate_type = "Basket".to_owned();
        sent.aggregate_id = "b-1".to_owned();
        sent.headers.set("traceparent", "00-ab-cd-01");
        sent.causation_id = Some("cause".to_owned());
        sent.correlation_id = Some("correlation".to_owned());
        let ids = f.store().enqueue(vec![sent.clone()]).await.expect("enqueue");
        let row = find(f, ids[0]).await;
        assert_eq!((row.message_id, row.category), (sent.message_id, category));
        assert_eq!((row.aggregate_type, row.aggregate_id), ("Basket".into(), "b-1".into()));
        assert_eq!((row.event_type, row.event_version), ("OrderCreated".into(), 7));
        assert_eq!((row.payload, row.headers), (sent.payload, sent.headers));
        assert_eq!((row.destination.as_str(), row.msg_key.as_str()), ("orders", "k"));
        assert_eq!(row.causation_id.as_deref(), Some("cause"));
        assert_eq!(row.correlation_id.as_deref(), Some("correlation"));
        assert_eq!((row.job_id, row.error_code, row.error_message), (None, None, None));
    }
}

pub async fn a_large_batch_keeps_its_order(f: &dyn Fixture) {
    let sent = messages("orders", 1_200);
    let ids = f.store().enqueue(sent.clone()).await.expect("enqueue");
    assert!(ids.is_sorted() && ids.len() == 1_200);
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(2_000).await;
    let found: Vec<_> = rows.iter().map(|row| (row.id, row.message_id)).collect();
    let wanted: Vec<_> = ids.into_iter().zip(sent.iter().map(|m| m.message_id)).collect();
    assert_eq!(found, wanted);
}

pub async fn nothing_to_write_is_nothing_written(f: &dyn Fixture) {
    assert!(f.store().enqueue(Vec::new()).await.expect("enqueue nothing").is_empty());
    let worker = Worker::outbox(f, "orders", "w").await;
    assert_eq!(worker.settle_all(Vec::new()).await, all(0));
    let noted = f
        .store()
        .mark_rows(RowMark::LostWorker { fence: worker.fence.clone(), rows: Vec::new() })
        .await;
    assert_eq!(noted.expect("note nothing"), all(0));
    assert!(worker.pending(10).await.is_empty());
}

pub async fn one_message_id_is_written_once_and_gives_the_same_row(f: &dyn Fixture) {
    let (a, b) = (message("orders", "a"), message("orders", "b"));
    let first = f.store().enqueue(vec![a.clone()]).await.expect("enqueue");
    let mut traced = a.clone();
    traced.headers.set("traceparent", "00-another");
    let batch = vec![b.clone(), traced, b.clone(), a.clone()];
    let ids = f.second().enqueue(batch).await.expect("enqueue again");
    assert_eq!(ids, [ids[0], first[0], ids[0], first[0]]);
    assert_ne!(ids[0], first[0]);
    assert_eq!(f.number("SELECT count(*) FROM relais_outbox").await, 2);
    assert_eq!(find(f, first[0]).await.payload, a.payload, "the first one stays");
}

pub async fn a_fetch_keeps_to_its_limit_and_order(f: &dyn Fixture) {
    let ids = f.store().enqueue(messages("orders", 20)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(7).await;
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids[..7]);
    assert!(worker.pending(0).await.is_empty());
    assert_eq!(worker.pending(100).await.len(), 20);
}

pub async fn a_fetch_sees_only_its_destination(f: &dyn Fixture) {
    let ids = f.store().enqueue(messages("orders", 3)).await.expect("enqueue");
    f.store().enqueue(messages("Orders", 3)).await.expect("enqueue");
    f.store().enqueue(messages("orders ", 3)).await.expect("enqueue");
    assert_eq!(Worker::outbox(f, "orders", "w").await.pending_ids().await, ids);
}

pub async fn a_fetch_sees_only_its_lanes(f: &dyn Fixture) {
    let ids = f.store().enqueue(messages("orders", 200)).await.expect("enqueue");
    let mut here = Worker::outbox(f, "orders", "w").await;
    let mut there = here.clone();
    there.lanes = here.lanes.split_off(20);
    let (a, b) = (here.pending_ids().await, there.pending_ids().await);
    assert!(!a.is_empty() && !b.is_empty());
    let both: BTreeSet<_> = a.iter().chain(&b).copied().collect();
    assert_eq!((both.len(), a.len() + b.len()), (ids.len(), ids.len()));
    here.lanes.clear();
    assert!(here.pending(10).await.is_empty(), "no lanes, no rows");
}

pub async fn a_row_waits_until_it_is_due(f: &dyn Fixture) {
    let ids = f.store().enqueue(messages("orders", 2)).await.expect("enqueue");
    let (past, future) = (f.past(), f.future());
    for (id, at) in [(ids[0], past), (ids[1], future)] {
        f.run(&format!("UPDATE relais_outbox SET next_attempt_at = {at} WHERE id = {id}")).await;
    }
    let worker = Worker::outbox(f, "orders", "w").await;
    assert_eq!(worker.pending_ids().await, ids[..1]);
    make_due(f, "relais_outbox").await;
    assert_eq!(worker.pending_ids().await, ids);
}

pub async fn a_delayed_message_is_invisible_until_due(f: &dyn Fixture) {
    let mut later = message("orders", "k");
    later.delay = Some(Duration::from_millis(90_000));
    let before = f.now().await;
    let ids = f.store().enqueue(vec![later]).await.expect("enqueue");
    let row = find(f, ids[0]).await;
    assert_between(row.next_attempt_at, before, f.now().await, 90_000);
    assert_eq!((row.status, row.attempts), (OutboxStatus::Pending, 0));
    let worker = Worker::outbox(f, "orders", "w").await;
    assert!(worker.pending(10).await.is_empty());
    make_due(f, "relais_outbox").await;
    assert_eq!(worker.pending_ids().await, ids);
}

pub async fn settled_rows_are_never_fetched_again(f: &dyn Fixture) {
    let ids = f.store().enqueue(messages("orders", 3)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(10).await;
    assert_eq!(worker.settle(&rows[0], OutboxFate::Dispatched).await, all(1));
    assert_eq!(worker.settle(&rows[1], dead_and_parked()).await, all(1));
    assert_eq!(worker.pending_ids().await, ids[2..]);
}

pub async fn a_dispatched_row_says_when(f: &dyn Fixture) {
    let (worker, row) = one(f).await;
    let before = f.now().await;
    assert_eq!(worker.settle(&row, OutboxFate::Dispatched).await, all(1));
    let row = find(f, row.id).await;
    assert_eq!((row.status, row.attempts), (OutboxStatus::Dispatched, 1));
    let at = row.dispatched_at.expect("dispatched_at is set");
    assert!(before <= at && at <= f.now().await);
}

pub async fn settling_a_missing_row_is_refused_without_an_error(f: &dyn Fixture) {
    let (worker, row) = one(f).await;
    let mut missing = worker.outbox_fate(&row, OutboxFate::Dispatched);
    missing.id += 1_000;
    let mut dead = missing.clone();
    dead.fate = dead_and_parked();
    assert_eq!(worker.settle_all(vec![missing, dead]).await, none(2));
    let missing = vec![(row.id + 1_000, worker.holding(row.lane))];
    let noted = f
        .store()
        .mark_rows(RowMark::LostWorker { fence: worker.fence.clone(), rows: missing })
        .await
        .expect("note");
    assert_eq!(noted, none(1));
    assert_eq!(f.number("SELECT count(*) FROM relais_dead_letter").await, 0);
}

pub async fn a_settled_row_is_not_settled_again(f: &dyn Fixture) {
    let (worker, row) = one(f).await;
    assert_eq!(worker.settle(&row, OutboxFate::Dispatched).await, all(1));
    let settled = find(f, row.id).await;
    for fate in [OutboxFate::Dispatched, retry_later(), dead_and_parked()] {
        assert_eq!(worker.settle(&row, fate).await, none(1));
    }
    assert_eq!(find(f, row.id).await, settled);
    assert_eq!(f.number("SELECT count(*) FROM relais_dead_letter").await, 0);
}

pub async fn a_row_named_twice_in_a_batch_settles_once(f: &dyn Fixture) {
    let (worker, row) = one(f).await;
    let fate = || worker.outbox_fate(&row, dead_and_parked());
    let done = worker.settle_all(vec![fate(), fate()]).await;
    assert_eq!((done.settled, done.refused), (1, 1));
    assert_eq!(f.number("SELECT count(*) FROM relais_dead_letter").await, 1);
}

pub async fn a_retry_stays_pending_and_the_last_error_stands(f: &dyn Fixture) {
    let (worker, row) = one(f).await;
    for (attempts, code) in [(1, "FIRST"), (2, "SECOND")] {
        let problem = Problem::new(code, &format!("{code} went wrong"));
        let fate = OutboxFate::Retry { attempts, pause: Duration::from_secs(60), problem };
        assert_eq!(worker.settle(&row, fate).await, all(1));
        let row = find(f, row.id).await;
        assert_eq!((row.status, row.attempts), (OutboxStatus::Pending, attempts));
        assert_eq!(row.error_code.as_deref(), Some(code));
        assert_eq!(row.error_message, Some(format!("{code} went wrong")));
        assert_eq!(row.dispatched_at, None);
    }
}

pub async fn a_pause_is_added_to_the_databases_now(f: &dyn Fixture) {
    let (worker, row) = one(f).await;
    for millis in [0, 1, 1_000, 5_000, 60_000, 315_360_000_000_u64] {
        let before = f.now().await;
        let pause = Duration::from_millis(millis);
        let fate = OutboxFate::Retry { attempts: 1, pause, problem: problem() };
        assert_eq!(worker.settle(&row, fate).await, all(1));
        let next = find(f, row.id).await.next_attempt_at;
        assert_between(next, before, f.now().await, i64::try_from(millis).expect("small"));
    }
}

pub async fn an_absurd_pause_waits_long_and_breaks_nothing(f: &dyn Fixture) {
    let mut never = message("orders", "never");
    never.delay = Some(Duration::MAX);
    f.store().enqueue(vec![never]).await.expect("enqueue");
    let (worker, row) = one(f).await;
    let fate = OutboxFate::Retry { attempts: 1, pause: Duration::MAX, problem: problem() };
    assert_eq!(worker.settle(&row, fate).await, all(1));
    assert!(worker.pending(10).await.is_empty());
    assert!(find(f, row.id).await.next_attempt_at.is_some());
}

pub async fn success_clears_what_the_failures_left(f: &dyn Fixture) {
    let (worker, row) = one(f).await;
    assert_eq!(worker.settle(&row, retry_later()).await, all(1));
    make_due(f, "relais_outbox").await;
    let row = worker.pending(1).await.remove(0);
    assert_eq!((row.attempts, row.error_code.as_deref()), (1, Some("HTTP_500")));
    assert_eq!(worker.settle(&row, OutboxFate::Dispatched).await, all(1));
    let row = find(f, row.id).await;
    assert_eq!((row.status, row.attempts), (OutboxStatus::Dispatched, 2));
    assert_eq!((row.next_attempt_at, row.error_code, row.error_message), (None, None, None));
}

pub async fn a_dead_row_keeps_its_reason(f: &dyn Fixture) {
    let (worker, row) = one(f).await;
    assert_eq!(worker.settle(&row, retry_later()).await, all(1));
    assert_eq!(worker.settle(&row, dead_and_parked()).await, all(1));
    let row = find(f, row.id).await;
    assert_eq!((row.status, row.attempts), (OutboxStatus::Failed, 5));
    assert_eq!((row.next_attempt_at, row.dispatched_at), (None, None));
    assert_eq!(row.error_code.as_deref(), Some("HTTP_500"));
    assert_eq!(row.error_message.as_deref(), Some("the target answered 500"));
}

pub async fn an_untouched_row_stays_as_it_was(f: &dyn Fixture) {
    let (worker, row) = one(f).await;
    let before = find(f, row.id).await;
    let done = worker.settle(&row, OutboxFate::Untouched).await;
    assert_eq!(done.refused, 0);
    assert_eq!(find(f, row.id).await, before);
    assert_eq!(worker.pending_ids().await, [row.id]);
}

pub async fn a_large_mixed_batch_settles_in_one_go(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 1_200)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "w").await;
    let rows = worker.pending(2_000).await;
    let fates = rows.iter().enumerate().map(|(n, row)| {
        let fate = match n % 3 {
            0 => OutboxFate::Dispatched,
            1 => retry_later(),
            _ => dead_and_parked(),
        };
        worker.outbox_fate(row, fate)
    });
    let mut fates: Vec<OutboxSettlement> = fates.collect();
    fates.push(OutboxSettlement { id: i64::MAX, ..fates[0].clone() });
    let done = worker.settle_all(fates).await;
    assert_eq!((done.settled, done.refused), (1_200, 1));
    let by_status = "SELECT status, count(*) FROM relais_outbox GROUP BY status ORDER BY status";
    let text = |s: &str| Some(s.to_owned());
    let wanted = [("DISPATCHED", "400"), ("FAILED", "400"), ("PENDING", "400")];
    assert_eq!(f.rows(by_status).await, wanted.map(|(s, n)| vec![text(s), text(n)]));
    assert_eq!(f.number("SELECT count(*) FROM relais_dead_letter").await, 400);
    assert_eq!(f.number("SELECT count(*) FROM relais_parked_key").await, 400);
    assert!(worker.pending(10).await.is_empty());
}

pub async fn an_uncommitted_message_does_not_exist(f: &dyn Fixture) {
    let worker = Worker::outbox(f, "orders", "w").await;
    let insert = "INSERT INTO relais_outbox \
        (aggregate_type, aggregate_id, event_type, destination, payload) \
        VALUES ('Order', 'o-1', 'OrderCreated', 'orders', '{}')";
    let mut transaction = f.begin().await.expect("begin");
    transaction.execute(insert).await.expect("insert");
    assert!(worker.pending(10).await.is_empty(), "not committed yet");
    transaction.rollback().await.expect("rollback");
    assert!(worker.pending(10).await.is_empty(), "rolled back");
    let mut transaction = f.begin().await.expect("begin");
    transaction.execute(insert).await.expect("insert");
    transaction.commit().await.expect("commit");
    assert_eq!(worker.pending(10).await.len(), 1);
}

pub async fn a_message_that_cannot_be_stored_stops_its_batch_for_good(f: &dyn Fixture) {
    let mut broken = message("orders", "k");
    broken.payload = "{".to_owned();
    super::assert_invalid(f.store().enqueue(vec![message("orders", "a"), broken]).await);
    super::assert_invalid(f.store().enqueue(vec![message("", "k")]).await);
    assert_eq!(f.number("SELECT count(*) FROM relais_outbox").await, 0, "all or nothing");
}

pub async fn many_writers_at_once_all_get_through(f: &dyn Fixture) {
    let writers = (0..8).map(|n| {
        let store = if n % 2 == 0 { f.store() } else { f.second() };
        tokio::spawn(async move {
            for _ in 0..10 {
                store.enqueue(messages("orders", 5)).await.expect("enqueue among others");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("writer");
    }
    assert_eq!(f.number("SELECT count(*) FROM relais_outbox").await, 400);
}

pub async fn a_new_row_changes_the_number_that_wakes_workers(f: &dyn Fixture) {
    let (one, two) = (f.store(), f.second());
    for round in 0..3 {
        let before = (one.changes().await.expect("changes"), two.changes().await.expect("changes"));
        let sql = format!(
            "INSERT INTO relais_outbox \
             (message_id, aggregate_type, aggregate_id, event_type, destination, payload) \
             VALUES ('{}', 'Order', 'o', 'E', 'orders', '{{}}')",
            Uuid::now_v7()
        );
        f.run(&sql).await;
        assert_ne!(one.changes().await.expect("changes"), before.0, "plain insert, {round}");
        let middle = two.changes().await.expect("changes");
        assert_ne!(middle, before.1, "plain insert, other node, {round}");
        one.enqueue(messages("orders", 1)).await.expect("enqueue");
        assert_ne!(two.changes().await.expect("changes"), middle, "another node's, {round}");
    }
}

pub async fn new_rows_are_found_by_their_ids_with_their_destinations(f: &dyn Fixture) {
    let store = f.store();
    let before = store.changes().await.expect("changes").outbox;
    let mut ids = store.enqueue(messages("orders", 3)).await.expect("enqueue");
    ids.extend(store.enqueue(messages("mails", 2)).await.expect("enqueue"));
    let drawn = store.changes().await.expect("changes").outbox;
    assert!(before < ids[0] && drawn == ids[4], "{before} {ids:?} {drawn}");
    f.run(&format!("UPDATE relais_outbox SET status = 'DISPATCHED' WHERE id = {}", ids[1])).await;
    let range = |first, last| IdRange { first, last };
    let found = async |ranges, limit| {
        let query = WorkQuery { new_ids: ranges, rows_max: limit, destinations: Vec::new() };
        let found = f.second().find_work(query).await.expect("arrivals");
        assert!(found.destinations.is_empty());
        found.arrivals.into_iter().map(|row| (row.id, row.destination)).collect::<Vec<_>>()
    };
    let row = |at: usize, name: &str| (ids[at], Some(name.to_owned()));
    let all =
        [row(0, "orders"), (ids[1], None), row(2, "orders"), row(3, "mails"), row(4, "mails")];
    assert_eq!(found(vec![range(before + 1, drawn)], 9).await, all);
    assert_eq!(found(vec![range(before + 1, drawn)], 2).await, all[..2], "lowest first");
    let two = vec![range(ids[0], ids[0]), range(ids[3], drawn + 100)];
    assert_eq!(found(two, 9).await, [all[0].clone(), all[3].clone(), all[4].clone()]);
    assert_eq!(found(vec![], 9).await, []);
    assert_eq!(found(vec![range(drawn + 1, i64::MAX)], 9).await, []);
}

pub async fn destinations_with_fresh_or_due_rows_have_work(f: &dyn Fixture) {
    let names = ["done", "fresh", "due", "later", "none"];
    for name in &names[..4] {
        f.store().enqueue(messages(name, 2)).await.expect("enqueue");
    }
    let (past, future) = (f.past(), f.future());
    f.run("UPDATE relais_outbox SET status = 'DISPATCHED' WHERE destination = 'done'").await;
    for (name, time) in [("due", past), ("later", future)] {
        let set = format!("UPDATE relais_outbox SET next_attempt_at = {time}");
        f.run(&format!("{set} WHERE destination = '{name}'")).await;
    }
    let search = async || {
        let destinations = names.iter().map(|&name| name.to_owned()).collect();
        let query = WorkQuery { destinations, ..WorkQuery::default() };
        let found = f.store().find_work(query).await.expect("search");
        assert!(found.arrivals.is_empty());
        found.destinations.into_iter().collect::<BTreeSet<_>>()
    };
    // A worker that meets a delayed row notes its time.
    assert!(Worker::outbox(f, "later", "w").await.pending(9).await.is_empty());
    assert_eq!(search().await, BTreeSet::from(["due".to_owned(), "fresh".to_owned()]));
    let worker = Worker::outbox(f, "fresh", "w").await;
    for _ in 0..2 {
        let rows = worker.pending(9).await;
        let fates = rows.iter().map(|row| worker.outbox_fate(row, OutboxFate::Dispatched));
        worker.settle_all(fates.collect()).await;
    }
    assert_eq!(search().await, BTreeSet::from(["due".to_owned()]));
    f.store().enqueue(messages("fresh", 1)).await.expect("enqueue");
    assert_eq!(search().await.len(), 2, "also behind rows that were settled");
}

pub async fn headers_of_other_writers_can_be_read(f: &dyn Fixture) {
    f.run(
        "INSERT INTO relais_outbox \
         (aggregate_type, aggregate_id, event_type, destination, payload, headers) \
         VALUES ('Order', 'o', 'E', 'orders', '{}', '{\"retries\": 3, \"user\": \"ann\"}')",
    )
    .await;
    let rows = Worker::outbox(f, "orders", "w").await.pending(1).await;
    assert!(rows[0].headers.get("user").is_some_and(|user| user.contains("ann")));
    assert_eq!(rows[0].headers.get("retries"), Some("3"));
}

/// `at` lies this long after some moment between `before` and `after`.
pub(super) fn assert_between(
    at: Option<Timestamp>,
    before: Timestamp,
    after: Timestamp,
    millis: i64,
) {
    let at = at.expect("a time is set").0 - millis * 1_000;
    assert!(before.0 <= at && at <= after.0, "{} <= {at} <= {}", before.0, after.0);
}
