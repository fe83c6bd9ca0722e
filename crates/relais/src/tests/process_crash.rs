//! Workers that are killed, or interfere, at any moment of a process: nothing is lost, nothing happens
//! twice, the log has no gap.

use std::{
    future::Future,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt;
use relais_core::inbox::NewInbox;

use super::{
    process_support::{Hand, inbox, make_due, message, order, placed, reply, timers},
    support::Bench,
};
use crate::{
    process::{Action, Definition, command_named, define},
    worker::{Worker, run_until_idle},
};

/// The inputs of one order, in this order: a message, or the timer of the process.
const LIFE: [&str; 9] = [
    "OrderPlaced",
    "Charged",
    "ReserveBusy",
    "timer",
    "Reserved",
    "ShipFailed",
    "Released",
    "RefundBusy timer",
    "Refunded",
];
/// The log of such an order.
const LOG: [&str; 14] = [
    "ProcessStarted",
    "StepStarted",
    "StepCompleted",
    "StepStarted",
    "StepFailed",
    "StepStarted",
    "StepCompleted",
    "StepStarted",
    "StepFailed",
    "CompensationStarted",
    "CompensationCompleted",
    "CompensationStarted",
    "CompensationFailed",
    "CompensationStarted",
];
/// More polls than any pass needs.
const POLLS_MAX: usize = 1_000;

#[tokio::test]
async fn workers_killed_at_any_moment_of_a_process_leave_it_consistent() {
    let bench = Bench::new().await;
    let mut polls = 1;
    while !lived_through(&bench, polls).await {
        polls += 1;
        assert!(polls < POLLS_MAX, "a pass never ended");
    }
    assert!(polls > 4, "killed only {polls} times");
}

/// Kills every worker of an order after this many polls, each followed by a successor. Returns whether all
/// of them completed before.
async fn lived_through(bench: &Bench, polls: usize) -> bool {
    let order_id = format!("o-{polls}");
    let mut all_finished = true;
    for moment in LIFE.iter().flat_map(|moment| moment.split(' ')) {
        let finished = if moment == "timer" {
            timer_killed_after(bench, polls).await
        } else {
            let message = next_message(bench, &order_id, moment);
            bench.store.accept(vec![message], Vec::new()).await.unwrap();
            true
        };
        let killed = inbox_killed_after(bench, polls).await;
        all_finished &= finished && killed;
    }
    assert_life(bench, &order_id);
    all_finished
}

fn next_message(bench: &Bench, order_id: &str, event_type: &str) -> NewInbox {
    if event_type == "OrderPlaced" {
        return placed(order_id);
    }
    let last = bench.texts(&format!(
        "SELECT p.process_id || ' ' || o.message_id
         FROM relais_outbox o JOIN relais_process p ON p.process_id = o.correlation_id
         WHERE p.business_key = '{order_id}' ORDER BY o.id DESC LIMIT 1"
    ));
    let (process, command) = last[0].split_once(' ').unwrap();
    reply(&format!("{order_id}-{event_type}"), event_type, process, Some(command))
}

async fn inbox_killed_after(bench: &Bench, polls: usize) -> bool {
    let definition = || vec![order().build().unwrap()];
    let mut victim = inbox(bench, definition()).await;
    let finished = woken(&mut Box::pin(run_until_idle(&mut victim)), polls).await;
    drop(victim);
    barrier(bench).await;
    let mut successor = inbox(bench, definition()).await;
    run_until_idle(&mut successor).await;
    successor.stop(Duration::MAX).await;
    finished
}

async fn timer_killed_after(bench: &Bench, polls: usize) -> bool {
    make_due(bench);
    let mut victim = timers(bench);
    let work = async { drop(victim.run_once().await) };
    let finished = woken(&mut Box::pin(work), polls).await;
    drop(victim);
    barrier(bench).await;
    timers(bench).run_once().await.unwrap();
    finished
}

/// Waits for the store calls of killed workers, and expires their leases.
async fn barrier(bench: &Bench) {
    bench.store.accept(Vec::new(), Vec::new()).await.unwrap();
    bench.store.enqueue(Vec::new()).await.unwrap();
    bench.expire_leases();
}

fn assert_life(bench: &Bench, order_id: &str) {
    let log = bench.texts(&format!(
        "SELECT l.event_type FROM relais_process_log l JOIN relais_process p USING (process_id)
         WHERE p.business_key = '{order_id}' ORDER BY seq"
    ));
    assert_eq!(log[..LOG.len()], LOG, "{order_id}");
    assert_eq!(log[LOG.len()..], ["CompensationCompleted"], "{order_id}");
    let state = bench.texts(&format!(
        "SELECT status || ' ' || (version = (SELECT max(seq) FROM relais_process_log l
                                             WHERE l.process_id = p.process_id))
         FROM relais_process p WHERE business_key = '{order_id}'"
    ));
    assert_eq!(state, ["COMPENSATED 1"], "{order_id}");
    let sent = bench.texts(&format!(
        "SELECT event_type FROM relais_outbox WHERE correlation_id =
             (SELECT process_id FROM relais_process WHERE business_key = '{order_id}') ORDER BY id"
    ));
    let once = ["Charge", "Reserve", "Reserve", "Ship", "Release", "Refund", "Refund"];
    assert_eq!(sent, once, "{order_id}");
    let open = "SELECT message_id FROM relais_inbox WHERE status <> 'PROCESSED'
                UNION ALL SELECT message_id FROM relais_dead_letter";
    assert!(bench.texts(open).is_empty(), "{order_id}: {:?}", bench.texts(open));
}

/// Polls a future this many times; returns whether it completed.
async fn woken(work: &mut (impl Future<Output = ()> + Unpin), times: usize) -> bool {
    let mut left = times;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match work.poll_unpin(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test]
async fn a_change_in_between_is_never_overwritten() {
    let mut hand = Hand::new(vec![order().build().unwrap()]).await;
    // A slow read cannot be interrupted; the next round may interrupt it.
    for round in 0..20 {
        let mut polls = 1;
        while !interrupted(&mut hand, &format!("o-{round}-{polls}"), polls).await {
            polls += 1;
            assert!(polls < POLLS_MAX, "a pass never ended");
        }
        assert!(hand.failures().is_empty());
        if hand.bench.observer.snapshot().processes.stale > 0 {
            return;
        }
    }
    panic!("no change came in between");
}

/// Pauses and resumes a process after this many polls of the worker that has a reply for it. Returns
/// whether the worker had completed by then.
async fn interrupted(hand: &mut Hand, order_id: &str, polls: usize) -> bool {
    hand.receive(vec![placed(order_id)]).await;
    let message = next_message(&hand.bench, order_id, "Charged");
    let id = message.headers.get("correlation-id").unwrap().parse().unwrap();
    hand.bench.store.accept(vec![message], Vec::new()).await.unwrap();
    let Hand { inbox, operator, .. } = &mut *hand;
    let mut work = Box::pin(run_until_idle(inbox));
    let ready = woken(&mut work, polls).await;
    operator.act(id, Action::Pause, "ann", "in between").await.unwrap();
    operator.act(id, Action::Resume, "ann", "in between").await.unwrap();
    if ready {
        drop(work)
    } else {
        work.await
    }
    let log = hand.operator.log(id, None, 100).await.unwrap();
    let seqs: Vec<_> = log.iter().rev().map(|entry| entry.seq).collect();
    assert_eq!(seqs, (1..=6).collect::<Vec<_>>(), "{log:#?}");
    let sent = hand.bench.texts(&format!(
        "SELECT event_type FROM relais_outbox WHERE correlation_id = '{id}' ORDER BY id"
    ));
    assert_eq!(sent, ["Charge", "Reserve"]);
    ready
}

/// Returns `race`: one step, whose reply is decided while another writer changes the process.
fn race(path: PathBuf, others: Arc<AtomicBool>) -> Definition {
    let run = command_named("d", "Run", |(): &()| ());
    let run = run.on_named("Ran", move |(): &mut (), _: serde_json::Value| {
        if others.load(SeqCst) {
            let connection = rusqlite::Connection::open(&path).unwrap();
            connection.busy_timeout(Duration::from_secs(5)).unwrap();
            connection
                .execute_batch(
                    "BEGIN IMMEDIATE;
                     UPDATE relais_process SET version = version + 1;
                     INSERT INTO relais_process_log (process_id, seq, event_type, event)
                     SELECT process_id, version, 'ProcessPaused',
                            '{\"type\":\"ProcessPaused\",\"reason\":\"\",\"pausedBy\":\"ann\"}'
                     FROM relais_process;
                     COMMIT",
                )
                .unwrap();
        }
    });
    define::<()>("race", 1)
        .starts_on_named("Ready", |_: serde_json::Value| (None::<String>, ()))
        .step("run", run)
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_row_whose_decision_is_always_stale_waits_without_using_an_attempt() {
    let bench = Bench::new().await;
    let others = Arc::new(AtomicBool::new(true));
    let definition = race(bench.path(), Arc::clone(&others));
    let mut hand = Hand::on(bench, vec![definition]).await;
    hand.receive(vec![message("ready", "Ready", "{}")]).await;
    let id = hand.process_id().to_string();
    hand.receive(vec![reply("r", "Ran", &id, None), message("other", "Ready", "{}")]).await;
    let row =
        "SELECT status || ' ' || attempts || ' ' || coalesce(error_code, '') FROM relais_inbox
               WHERE message_id = 'r'";
    assert_eq!(hand.bench.texts(row), ["RETRY 0 PROCESS_BUSY"]);
    assert!(hand.bench.observer.snapshot().processes.stale >= 10);
    assert_eq!(hand.commands(), ["Run", "Run"], "other rows do not wait for it");
    others.store(false, SeqCst);
    hand.bench.make_due();
    hand.receive(Vec::new()).await;
    assert_eq!(hand.bench.texts(row), ["PROCESSED 1 "]);
    let seqs = hand.bench.texts(&format!(
        "SELECT seq FROM relais_process_log WHERE process_id = '{id}' ORDER BY seq"
    ));
    let all: Vec<String> = (1..=seqs.len()).map(|n| n.to_string()).collect();
    assert_eq!(seqs, all);
}
