//! Processes and the inbox rows that change them: one commit, or nothing of it.

use relais_core::{
    inbox::{InboxFate, InboxStatus},
    inspect::InspectExt,
    message::NewMessage,
    process::{Change, ChangeOutcome, ProcessRef, ProcessStatus, TimerChange, TimerOwner},
    store::SettleOutcome,
};

use super::{
    Start, assert_invalid,
    process_build::{
        TYPE, after, applied, begun, found, history, log, opened, running, settle_one,
        step_completed, step_started, timer,
    },
    worker::{MANY, Worker, all, expire_all, none, processed, processed_with},
};
use crate::{
    build::{arrival, message},
    fixture::Fixture,
};

pub const START: Start = Start::Migrated;

/// Everything a change can consist of.
fn full(change: Change) -> Change {
    Change {
        message_id: Some("m".to_owned()),
        timer: TimerChange::Set(timer("reserve")),
        messages: vec![command(&change)],
        dead_letter: opened("FAILED"),
        ..change
    }
}

fn command(change: &Change) -> NewMessage {
    let id = change.process.process_id.to_string();
    NewMessage { correlation_id: Some(id.clone()), ..message("warehouse", &id) }
}

/// Rows of processes, logs, timers, messages and dead letters there are.
async fn amounts(f: &dyn Fixture) -> [i64; 5] {
    let tables = [
        "relais_process",
        "relais_process_log",
        "relais_timer",
        "relais_outbox",
        "relais_dead_letter",
    ];
    let mut amounts = [0; 5];
    for (amount, table) in amounts.iter_mut().zip(tables) {
        *amount = f.number(&format!("SELECT count(*) FROM {table}")).await;
    }
    amounts
}

async fn accept(f: &dyn Fixture, ids: &[&str]) {
    let batch = ids.iter().map(|id| arrival(id)).collect();
    f.store().accept(batch, Vec::new()).await.expect("accept");
}

async fn status(f: &dyn Fixture, message_id: &str) -> (InboxStatus, u32) {
    let row = f.store().find_inbox(message_id.to_owned()).await.expect("find").expect("row");
    (row.status, row.attempts)
}

fn stale(settled: u64, ids: Vec<i64>) -> SettleOutcome {
    SettleOutcome { settled, stale: ids, ..SettleOutcome::default() }
}

pub async fn a_row_and_everything_of_its_process_settle_together(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "w").await;
    let change = full(begun(TYPE, Some("order-7")));
    assert_eq!(settle_one(f, &worker, "m", change.clone()).await, all(1));
    assert_eq!(status(f, "m").await, (InboxStatus::Processed, 1));
    assert_eq!(amounts(f).await, [1, 1, 1, 1, 1]);
    let process = found(f, change.process.process_id).await.expect("the process");
    assert_eq!((process.version, process.status), (1, ProcessStatus::New));
    let log = log(f, process.process_id).await;
    assert_eq!((&log[0].entry, log[0].message_id.as_deref()), (&change.log[0], Some("m")));
    let sent = Worker::outbox(f, "warehouse", "w").await.pending(10).await;
    assert_eq!(sent[0].message_id, change.messages[0].message_id);
    assert_eq!(sent[0].correlation_id, Some(process.process_id.to_string()));
    assert_eq!(
        f.store().fire_timers(TimerOwner::default(), 10).await.expect("fire").fired,
        0,
        "not due yet"
    );

    let next = after(&process, ProcessStatus::Running, vec![step_started("reserve")]);
    let next = Change { timer: TimerChange::Clear, messages: vec![command(&next)], ..next };
    assert_eq!(settle_one(f, &worker, "m-2", next).await, all(1));
    assert_eq!(amounts(f).await, [1, 2, 0, 2, 1]);
}

pub async fn messages_of_a_row_go_beside_those_of_its_processes(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "w").await;
    accept(f, &["m"]).await;
    let rows = worker.received(1).await;
    let changes = vec![full(begun(TYPE, None)), full(begun(TYPE, None))];
    let fate =
        InboxFate::Processed { messages: vec![message("other", "k")], changes, copies: Vec::new() };
    assert_eq!(worker.settle_inbox(&rows[0], fate).await, all(1));
    assert_eq!(amounts(f).await, [2, 2, 2, 3, 2]);
}

pub async fn a_stale_row_is_left_while_its_neighbours_settle(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "w").await;
    let (slow, quick) = (running(f, None).await, running(f, None).await);
    let late = full(after(&slow, ProcessStatus::Running, vec![step_completed("reserve")]));
    applied(f, after(&slow, ProcessStatus::Paused, vec![step_started("other")])).await;
    let next = after(&quick, ProcessStatus::Running, vec![step_completed("reserve")]);
    accept(f, &["a", "b", "c", "d"]).await;
    let rows = worker.received(MANY).await;
    let before = amounts(f).await;
    let fates = vec![
        worker.inbox_fate(&rows[0], processed()),
        worker.inbox_fate(&rows[1], processed_with(vec![late])),
        worker.inbox_fate(&rows[2], processed_with(vec![next])),
        worker.inbox_fate(&rows[3], super::worker::dead_message()),
    ];
    assert_eq!(worker.settle_inbox_all(fates).await, stale(3, vec![rows[1].id]));
    let mut expected = before;
    expected[1] += 1;
    expected[4] += 1;
    assert_eq!(amounts(f).await, expected);
    assert_eq!(status(f, "b").await, (InboxStatus::Received, 0), "untouched");
    assert_eq!(found(f, slow.process_id).await.expect("it").status, ProcessStatus::Paused);
    assert_eq!(worker.received_ids().await, ["b"], "and it comes again");
    let slow = found(f, slow.process_id).await.expect("it");
    let again = after(&slow, ProcessStatus::Paused, vec![step_completed("reserve")]);
    assert_eq!(worker.settle_inbox(&rows[1], processed_with(vec![again])).await, all(1));
}

pub async fn one_stale_process_of_several_leaves_the_whole_row(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "w").await;
    let moved = running(f, None).await;
    applied(f, after(&moved, ProcessStatus::Running, vec![step_started("b")])).await;
    let before = amounts(f).await;
    accept(f, &["m"]).await;
    let row = worker.received(1).await.remove(0);
    let late = full(after(&moved, ProcessStatus::Running, vec![step_completed("a")]));
    for changes in
        [vec![full(begun(TYPE, None)), late.clone()], vec![late.clone(), full(begun(TYPE, None))]]
    {
        let fate = InboxFate::Processed {
            messages: vec![message("other", "k")],
            changes,
            copies: Vec::new(),
        };
        assert_eq!(worker.settle_inbox(&row, fate).await, stale(0, vec![row.id]));
        assert_eq!(amounts(f).await, before);
    }
    assert_eq!(status(f, "m").await, (InboxStatus::Received, 0));
}

pub async fn what_the_fence_refuses_changes_no_process(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "w").await;
    let process = running(f, None).await;
    accept(f, &["a", "b"]).await;
    let rows = worker.received(MANY).await;
    expire_all(f).await;
    Worker::start(f.second(), worker.fence.scope.clone(), "other").await;
    let before = amounts(f).await;
    let next = full(after(&process, ProcessStatus::Running, vec![step_completed("reserve")]));
    let fates = vec![
        worker.inbox_fate(&rows[0], processed_with(vec![next])),
        worker.inbox_fate(&rows[1], processed_with(vec![full(begun(TYPE, None))])),
    ];
    assert_eq!(worker.settle_inbox_all(fates).await, none(2));
    assert_eq!(amounts(f).await, before);
    assert_eq!(found(f, process.process_id).await, Some(process));
}

pub async fn a_settled_row_changes_no_process_again(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "w").await;
    accept(f, &["m"]).await;
    let row = worker.received(1).await.remove(0);
    let start = begun(TYPE, None);
    let fate = || processed_with(vec![start.clone()]);
    assert_eq!(worker.settle_inbox(&row, fate()).await, all(1));
    let process = found(f, start.process.process_id).await.expect("the process");
    let next = full(after(&process, ProcessStatus::Running, vec![step_started("a")]));
    assert_eq!(worker.settle_inbox(&row, processed_with(vec![next])).await, none(1));
    assert_eq!(amounts(f).await, [1, 1, 0, 0, 0]);
    let settled = worker.settle_inbox(&row, fate()).await;
    assert_eq!(settled.settled, 0, "whether it is called refused or stale");
    assert_eq!(amounts(f).await, [1, 1, 0, 0, 0]);
}

pub async fn a_start_whose_key_is_taken_is_stale(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "w").await;
    applied(f, begun(TYPE, Some("order-1"))).await;
    accept(f, &["a", "b", "c", "d"]).await;
    let rows = worker.received(MANY).await;
    let starts = ["order-1", "order-2", "order-2", "order-3"];
    let fates = rows.iter().zip(starts).map(|(row, key)| {
        worker.inbox_fate(row, processed_with(vec![full(begun(TYPE, Some(key)))]))
    });
    let settled = worker.settle_inbox_all(fates.collect()).await;
    assert_eq!(settled, stale(2, vec![rows[0].id, rows[2].id]));
    assert_eq!(amounts(f).await, [3, 3, 2, 2, 2]);
    assert_eq!(worker.received_ids().await, ["a", "c"]);
}

pub async fn a_start_of_a_process_that_exists_is_stale(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "w").await;
    let process = running(f, None).await;
    let mut again = full(begun(TYPE, Some("other key")));
    again.process.process_id = process.process_id;
    let before = amounts(f).await;
    let settled = settle_one(f, &worker, "m", again).await;
    assert_eq!((settled.settled, settled.stale.len()), (0, 1));
    assert_eq!(amounts(f).await, before);
}

pub async fn many_processes_settle_in_one_batch(f: &dyn Fixture) {
    const COUNT: usize = 300;
    let worker = Worker::inbox(f, "w").await;
    let ids: Vec<String> = (0..2 * COUNT).map(|n| format!("m-{n}")).collect();
    f.store().accept(ids.iter().map(|id| arrival(id)).collect(), Vec::new()).await.expect("accept");
    let rows = worker.received(MANY).await;
    let starts: Vec<Change> = (0..COUNT).map(|_| full(begun(TYPE, None))).collect();
    let fates = rows.iter().zip(&starts);
    let fates =
        fates.map(|(row, start)| worker.inbox_fate(row, processed_with(vec![start.clone()])));
    assert_eq!(worker.settle_inbox_all(fates.collect()).await, all(300));
    let next = |start: &Change| {
        let events = vec![step_completed("a"), step_started("b"), step_completed("b")];
        let change = after(&start.process, ProcessStatus::Succeeded, events);
        Change { timer: TimerChange::Clear, ..change }
    };
    let fates = rows[COUNT..].iter().zip(&starts);
    let fates = fates.map(|(row, start)| worker.inbox_fate(row, processed_with(vec![next(start)])));
    assert_eq!(worker.settle_inbox_all(fates.collect()).await, all(300));
    assert_eq!(amounts(f).await, [300, 1_200, 0, 300, 300]);
    let linear = "SELECT count(*) FROM relais_process AS p WHERE p.version <> 4 OR p.version <> \
                  (SELECT count(*) FROM relais_process_log AS l WHERE l.process_id = p.process_id)";
    assert_eq!(f.number(linear).await, 0);
}

pub async fn a_batch_that_cannot_be_written_changes_nothing(f: &dyn Fixture) {
    let worker = Worker::inbox(f, "w").await;
    let process = running(f, None).await;
    accept(f, &["a", "b"]).await;
    let rows = worker.received(MANY).await;
    let before = amounts(f).await;
    let good = full(after(&process, ProcessStatus::Running, vec![step_completed("reserve")]));
    let mut bad = full(begun(TYPE, None));
    bad.messages[0].payload = "{ no JSON".to_owned();
    let fates = vec![
        worker.inbox_fate(&rows[0], processed_with(vec![good])),
        worker.inbox_fate(&rows[1], processed_with(vec![bad.clone()])),
    ];
    assert_invalid(worker.store.settle_inbox(worker.fence.clone(), fates).await);
    assert_invalid(f.store().change_process(bad).await);
    assert_eq!(amounts(f).await, before);
    assert_eq!(found(f, process.process_id).await, Some(process));
    assert_eq!(worker.received_ids().await, ["a", "b"]);
}

/// A worker and an operator change the same process at the same time; the loser decides again.
pub async fn a_worker_and_an_operator_never_overwrite_each_other(f: &dyn Fixture) {
    const EACH: usize = 15;
    let id = running(f, None).await.process_id;
    let worker = Worker::inbox(f, "w").await;
    let ids: Vec<String> = (0..EACH).map(|n| format!("m-{n}")).collect();
    f.store().accept(ids.iter().map(|id| arrival(id)).collect(), Vec::new()).await.expect("accept");
    let store = f.second();
    let person = tokio::spawn(async move {
        let mut done = 0;
        while done < EACH {
            let found = store.load_processes(vec![ProcessRef::Id(id)]).await.expect("load");
            let process = found[0].clone().expect("it");
            let change = after(&process, ProcessStatus::Paused, vec![step_started("person")]);
            let applied = store.change_process(change).await.expect("change");
            done += usize::from(applied == ChangeOutcome::Done);
        }
    });
    for row in worker.received(MANY).await {
        loop {
            let process = found(f, id).await.expect("it");
            let change = after(&process, ProcessStatus::Running, vec![step_completed("worker")]);
            let settled = worker.settle_inbox(&row, processed_with(vec![change])).await;
            if settled == all(1) {
                break;
            }
            assert_eq!(settled, stale(0, vec![row.id]));
        }
    }
    person.await.expect("person");
    let names = history(f, id).await;
    assert_eq!(names.len(), 2 + 2 * EACH);
    assert_eq!(names.iter().filter(|name| **name == "StepCompleted").count(), EACH);
    let seqs: Vec<i64> = log(f, id).await.iter().rev().map(|entry| entry.seq).collect();
    assert!(seqs.iter().zip(1..).all(|(seq, n)| *seq == n), "linear: {seqs:?}");
}
