//! A worker that lost a lane changes nothing any more, whatever it still believes.

use relais_core::{
    BoxFuture,
    dead_letter::Resolution,
    inbox::{InboxFate, InboxRow},
    lane::{Fence, LANES, Scope},
    outbox::{OutboxFate, OutboxRow},
    store::{RowMark, SettleOutcome},
};
use uuid::Uuid;

use super::{
    Start,
    worker::{
        MANY, Worker, all, dead_and_parked, dead_message, expire_all, handle_later, none,
        processed, retry_later, wait_uncounted,
    },
};
use crate::{
    build::{arrival, message, messages},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

const ALL: usize = LANES as usize;

/// Everything a settlement could touch, as text.
async fn snapshot(f: &dyn Fixture) -> Vec<crate::fixture::TextRows> {
    let mut tables = Vec::new();
    for table in ["relais_outbox", "relais_inbox", "relais_dead_letter", "relais_parked_key"] {
        tables.push(f.rows(&format!("SELECT * FROM {table} ORDER BY 1, 2")).await);
    }
    tables.push(f.rows("SELECT * FROM relais_version ORDER BY 1, 2").await);
    tables
}

/// Every way to settle an outbox row is refused and changes nothing.
async fn assert_outbox_refused(f: &dyn Fixture, stale: &Worker, row: &OutboxRow) {
    let before = snapshot(f).await;
    for fate in [OutboxFate::Dispatched, retry_later(), wait_uncounted(), dead_and_parked()] {
        assert_eq!(stale.settle(row, fate).await, none(1));
    }
    let lanes = vec![(row.id, stale.holding(row.lane))];
    let noted = stale
        .store
        .mark_rows(RowMark::LostWorker { fence: stale.fence.clone(), rows: lanes })
        .await
        .expect("note");
    assert_eq!(noted, none(1));
    assert_eq!(snapshot(f).await, before);
}

/// The same for an inbox row, with a message that must not come into being.
async fn assert_inbox_refused(f: &dyn Fixture, stale: &Worker, row: &InboxRow) {
    let before = snapshot(f).await;
    let mut follow_up = message("orders", "k");
    follow_up.as_of_version = Some(9);
    let sending =
        InboxFate::Processed { messages: vec![follow_up], changes: Vec::new(), copies: Vec::new() };
    for fate in [processed(), sending, handle_later(), dead_message()] {
        assert_eq!(stale.settle_inbox(row, fate).await, none(1));
    }
    let lanes = vec![(row.id, stale.holding(row.lane))];
    let noted = stale
        .store
        .mark_rows(RowMark::LostWorker { fence: stale.fence.clone(), rows: lanes })
        .await
        .expect("note");
    assert_eq!(noted, none(1));
    assert_eq!(snapshot(f).await, before);
}

async fn outbox_row(f: &dyn Fixture, name: &str) -> (Worker, OutboxRow) {
    f.store().enqueue(vec![message("orders", "k")]).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", name).await;
    let row = worker.pending(1).await.remove(0);
    (worker, row)
}

async fn inbox_row(f: &dyn Fixture, name: &str) -> (Worker, InboxRow) {
    f.store().accept(vec![arrival("m-1")], Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, name).await;
    let row = worker.received(1).await.remove(0);
    (worker, row)
}

pub async fn a_stale_worker_settles_no_outbox_row(f: &dyn Fixture) {
    let (stale, row) = outbox_row(f, "a").await;
    expire_all(f).await;
    let fresh = Worker::start(f.second(), stale.fence.scope.clone(), "b").await;
    assert_outbox_refused(f, &stale, &row).await;
    assert_eq!(fresh.settle(&row, OutboxFate::Dispatched).await, all(1));
    assert_outbox_refused(f, &stale, &row).await;
}

pub async fn a_stale_worker_settles_no_inbox_row(f: &dyn Fixture) {
    let (stale, row) = inbox_row(f, "a").await;
    expire_all(f).await;
    let fresh = Worker::start(f.second(), Scope::Inbox, "b").await;
    assert_inbox_refused(f, &stale, &row).await;
    assert_eq!(fresh.settle_inbox(&row, processed()).await, all(1));
    assert_inbox_refused(f, &stale, &row).await;
}

pub async fn the_same_name_with_an_old_epoch_is_refused(f: &dyn Fixture) {
    let (old, row) = outbox_row(f, "a").await;
    let mut new = old.clone();
    new.release(ALL).await;
    new.heartbeat().await;
    assert_outbox_refused(f, &old, &row).await;
    assert_eq!(new.settle(&row, OutboxFate::Dispatched).await, all(1));
}

pub async fn the_same_name_with_an_old_epoch_is_refused_in_the_inbox(f: &dyn Fixture) {
    let (old, row) = inbox_row(f, "a").await;
    let mut new = old.clone();
    new.release(ALL).await;
    new.heartbeat().await;
    assert_inbox_refused(f, &old, &row).await;
    assert_eq!(new.settle_inbox(&row, processed()).await, all(1));
}

pub async fn the_right_epoch_under_another_name_is_refused(f: &dyn Fixture) {
    let (worker, row) = outbox_row(f, "a").await;
    let mut other = worker.clone();
    other.fence.worker = "A".to_owned();
    assert_outbox_refused(f, &other, &row).await;
}

pub async fn a_future_epoch_is_refused(f: &dyn Fixture) {
    let (mut worker, row) = outbox_row(f, "a").await;
    worker.lanes.iter_mut().for_each(|lane| lane.epoch += 1);
    assert_outbox_refused(f, &worker, &row).await;
}

pub async fn a_free_lane_refuses_every_worker(f: &dyn Fixture) {
    let (worker, row) = outbox_row(f, "a").await;
    let mut gone = worker.clone();
    gone.leave().await;
    assert_outbox_refused(f, &worker, &row).await;
    let (worker, row) = inbox_row(f, "a").await;
    let mut gone = worker.clone();
    gone.leave().await;
    assert_inbox_refused(f, &worker, &row).await;
}

pub async fn a_worker_that_never_leased_is_refused(f: &dyn Fixture) {
    let (worker, row) = outbox_row(f, "a").await;
    let mut stranger = worker.clone();
    stranger.fence.worker = "stranger".to_owned();
    stranger.lanes.clear();
    assert_outbox_refused(f, &stranger, &row).await;
    stranger.fence =
        Fence { scope: Scope::Outbox("nobody-serves-it".into()), worker: "a".to_owned() };
    assert_outbox_refused(f, &stranger, &row).await;
}

pub async fn the_lanes_of_one_destination_settle_no_row_of_another(f: &dyn Fixture) {
    let (_, row) = outbox_row(f, "a").await;
    let other = Worker::outbox(f, "mails", "a").await;
    assert_outbox_refused(f, &other, &row).await;
}

pub async fn a_settlement_that_names_another_lane_than_the_rows_is_refused(f: &dyn Fixture) {
    let (mut worker, row) = outbox_row(f, "a").await;
    let mut other = Worker::start(f.second(), worker.fence.scope.clone(), "b").await;
    // The worker keeps one lane only, not the row's.
    let kept = worker.lanes.iter().position(|l| l.lane != row.lane).expect("another lane");
    worker.lanes.swap(0, kept);
    worker.release(ALL - 1).await;
    other.heartbeat().await;
    let mut settlement = worker.outbox_fate(&row, OutboxFate::Dispatched);
    settlement.lane = worker.lanes[0].lane;
    settlement.epoch = worker.lanes[0].epoch;
    let before = snapshot(f).await;
    assert_eq!(worker.settle_all(vec![settlement]).await, none(1));
    assert_eq!(snapshot(f).await, before);
}

pub async fn a_lease_that_ran_out_but_was_not_taken_still_settles(f: &dyn Fixture) {
    let (worker, row) = outbox_row(f, "a").await;
    let (handler, received) = inbox_row(f, "a").await;
    expire_all(f).await;
    assert_eq!(worker.settle(&row, OutboxFate::Dispatched).await, all(1));
    assert_eq!(handler.settle_inbox(&received, processed()).await, all(1));
}

pub async fn of_a_mixed_batch_only_the_lanes_still_held_settle(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 300)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "a").await;
    let rows = worker.pending(MANY).await;
    let mut other = Worker::start(f.second(), worker.fence.scope.clone(), "b").await;
    let mut kept = worker.clone();
    kept.release(ALL / 2).await;
    other.heartbeat().await;
    let lost = |row: &&OutboxRow| other.lanes.iter().any(|l| l.lane == row.lane);
    let refused = rows.iter().filter(lost).count() as u64;
    assert!(refused > 0 && refused < 300);
    let fates = rows.iter().enumerate().map(|(n, row)| match n % 3 {
        0 => worker.outbox_fate(row, OutboxFate::Dispatched),
        1 => worker.outbox_fate(row, retry_later()),
        _ => worker.outbox_fate(row, dead_and_parked()),
    });
    let done = worker.settle_all(fates.collect()).await;
    assert_eq!(done, SettleOutcome { settled: 300 - refused, refused, ..SettleOutcome::default() });
    let untouched: Vec<i64> = rows.iter().filter(lost).map(|row| row.id).collect();
    assert_eq!(other.pending_ids().await, untouched);
    let dead = "SELECT count(*) FROM relais_dead_letter d JOIN relais_outbox o \
                ON o.id = d.origin_id WHERE o.status <> 'FAILED'";
    assert_eq!(f.number(dead).await, 0);
}

pub async fn of_a_mixed_inbox_batch_only_the_lanes_still_held_settle(f: &dyn Fixture) {
    let batch = (0..200).map(|n| arrival(&format!("m-{n}"))).collect();
    f.store().accept(batch, Vec::new()).await.expect("accept");
    let worker = Worker::inbox(f, "a").await;
    let rows = worker.received(MANY).await;
    let mut other = Worker::start(f.second(), Scope::Inbox, "b").await;
    let mut kept = worker.clone();
    kept.release(ALL / 2).await;
    other.heartbeat().await;
    let lost = |row: &&InboxRow| other.lanes.iter().any(|l| l.lane == row.lane);
    let refused = rows.iter().filter(lost).count() as u64;
    let fates = rows.iter().map(|row| {
        let follow_up = message("orders", &row.msg_key);
        worker.inbox_fate(
            row,
            InboxFate::Processed {
                messages: vec![follow_up],
                changes: Vec::new(),
                copies: Vec::new(),
            },
        )
    });
    let done = worker.settle_inbox_all(fates.collect()).await;
    assert_eq!(done, SettleOutcome { settled: 200 - refused, refused, ..SettleOutcome::default() });
    let written = f.number("SELECT count(*) FROM relais_outbox").await;
    assert_eq!(written.unsigned_abs(), 200 - refused, "a refused row sends nothing");
    let orphans = "SELECT count(*) FROM relais_outbox o JOIN relais_inbox i \
                   ON i.msg_key = o.msg_key WHERE i.status <> 'PROCESSED'";
    assert_eq!(f.number(orphans).await, 0);
}

pub async fn of_a_mixed_batch_losses_are_noted_in_held_lanes_only(f: &dyn Fixture) {
    f.store().enqueue(messages("orders", 100)).await.expect("enqueue");
    let worker = Worker::outbox(f, "orders", "a").await;
    let rows = worker.pending(MANY).await;
    let mut kept = worker.clone();
    kept.release(ALL / 2).await;
    let wanted = rows.iter().map(|row| (row.id, worker.holding(row.lane))).collect();
    let done = f
        .store()
        .mark_rows(RowMark::LostWorker { fence: worker.fence.clone(), rows: wanted })
        .await
        .expect("note");
    assert!(done.refused > 0 && done.settled + done.refused == 100, "{done:?}");
    let counted = f.number("SELECT count(*) FROM relais_outbox WHERE lost_workers = 1").await;
    assert_eq!(counted.unsigned_abs(), done.settled);
}

pub async fn a_row_an_operator_resolved_meanwhile_is_not_overwritten(f: &dyn Fixture) {
    let (worker, row) = outbox_row(f, "a").await;
    let mut copy = worker.outbox_fate(&row, OutboxFate::Dispatched);
    assert_eq!(worker.settle(&row, dead_and_parked()).await, all(1));
    let dead = super::only_dead_letter(f).await;
    assert_eq!(worker.settle_all(vec![copy.clone()]).await, none(1), "it is FAILED");
    assert!(super::resolve(f, dead.id, Resolution::Discarded).await);
    copy.fate = retry_later();
    assert_eq!(worker.settle_all(vec![copy]).await, none(1), "and stays so");
}

/// Lets `worker` settle while another session holds the row and a second node takes expired lanes:
/// who wins does not matter, that both win must not happen.
async fn race(
    f: &dyn Fixture,
    worker: &Worker,
    held: Held,
    settle: BoxFuture<'static, SettleOutcome>,
) {
    let name = format!("holder-{}", Uuid::now_v7());
    let dialect = f.dialect();
    let (Some(named), Some(waiting)) = (dialect.name_session(&name), dialect.waiting_behind(&name))
    else {
        return; // One writer at a time: a settlement is never in flight.
    };
    expire_all(f).await;
    let mut holder = f.begin().await.expect("begin");
    holder.execute(&named).await.expect("name");
    let lock = format!("UPDATE {} SET attempts = attempts WHERE id = {}", held.table, held.id);
    holder.execute(&lock).await.expect("lock the row");
    let settling = tokio::spawn(settle);
    while f.number(&waiting).await == 0 {
        assert!(!settling.is_finished(), "it does not wait for the row");
        tokio::task::yield_now().await;
    }
    let mut rival = Worker::start(f.second(), worker.fence.scope.clone(), "rival").await;
    let taken = rival.lanes.iter().any(|l| l.lane == held.lane);
    holder.rollback().await.expect("let the row go");
    let settled = settling.await.expect("settle").settled == 1;
    assert!(taken != settled, "taken: {taken}, settled: {settled}");
    rival.leave().await;
}

/// A row that another session has locked.
struct Held {
    table: &'static str,
    id: i64,
    lane: i16,
}

pub async fn a_settlement_in_flight_and_a_take_over_never_both_win(f: &dyn Fixture) {
    for fate in [OutboxFate::Dispatched, retry_later(), dead_and_parked()] {
        let (mut worker, row) = outbox_row(f, "a").await;
        let settler = worker.clone();
        let held = Held { table: "relais_outbox", id: row.id, lane: row.lane };
        let settle = Box::pin(async move { settler.settle(&row, fate).await });
        race(f, &worker, held, settle).await;
        worker.leave().await;
        f.run("DELETE FROM relais_parked_key").await;
        f.run("DELETE FROM relais_waiting").await;
        f.run("DELETE FROM relais_outbox").await;
    }
}

pub async fn an_inbox_settlement_in_flight_and_a_take_over_never_both_win(f: &dyn Fixture) {
    let sending = InboxFate::Processed {
        messages: vec![message("orders", "k")],
        changes: Vec::new(),
        copies: Vec::new(),
    };
    for fate in [processed(), sending, handle_later(), dead_message()] {
        let (mut worker, row) = inbox_row(f, "a").await;
        let settler = worker.clone();
        let held = Held { table: "relais_inbox", id: row.id, lane: row.lane };
        let settle = Box::pin(async move { settler.settle_inbox(&row, fate).await });
        race(f, &worker, held, settle).await;
        worker.leave().await;
        f.run("DELETE FROM relais_parked_key").await;
        f.run("DELETE FROM relais_inbox").await;
    }
}
