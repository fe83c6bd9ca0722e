//! Worker loops that end, hang or are not woken.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    BoxFuture, async_trait,
    delivery::{Delivery, Problem},
    handler::{HandleOutcome, Handler, HandlerWork, Outcome},
    inbox::{AcceptOutcome, InboxRow},
    lane::Scope,
    outbox::OutboxRow,
    publisher::Publisher,
    source::{Source, SourceBatch, SourceError},
    store::StoreError,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    inbox::{accept, noting, worker},
    support::{Bench, Script, drain, on_both},
};
use crate::{
    App, DestinationSettings, HandlerSettings,
    inbox::EventAction,
    publish_guard::PublishGuard,
    relay::Relay,
    wake::WakeCount,
    worker::{self, WakeUps, Worker, run_until_idle},
};

/// The time limit of a test.
const PATIENCE: Duration = Duration::from_secs(60);

fn patience() -> watch::Receiver<Duration> {
    watch::channel(Duration::MAX).1
}

/// A source that panics.
struct Broken;

#[async_trait]
impl Source for Broken {
    async fn next(&mut self, _max: usize) -> Result<SourceBatch, SourceError> {
        panic!("a bug of the source");
    }

    async fn acknowledge(&mut self, _: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        unreachable!("nothing was read")
    }

    async fn refuse(&mut self, _: String) {
        unreachable!("nothing was read")
    }
}

#[tokio::test]
async fn a_loop_that_panics_is_reported_so_that_the_process_can_end() {
    let bench = Bench::new().await;
    let mut running = App::new(bench.store.clone()).source("s", Box::new(Broken)).start();
    let reason = running.failed().await;
    assert!(reason.starts_with("a worker panicked: "), "{reason}");
    running.stop().await;
}

#[tokio::test]
async fn a_server_beside_the_workers_ends_with_them() {
    let bench = Bench::new().await;
    let app = || App::new(bench.store.clone());
    let server = |stop: BoxFuture<'static, ()>| async move {
        stop.await;
        std::io::Result::Ok(())
    };
    app().start().serve(std::future::ready(()), server).await.unwrap();
    let panics = app().source("s", Box::new(Broken)).start();
    let error = panics.serve(std::future::pending(), server).await.unwrap_err();
    assert!(error.to_string().starts_with("a worker panicked: "), "{error}");
    let fails = |_| std::future::ready(Err(std::io::Error::other("the port is taken")));
    let error = app().start().serve(std::future::pending(), fails).await.unwrap_err();
    assert_eq!(error.to_string(), "the port is taken");
}

#[tokio::test]
async fn a_worker_ends_with_its_heartbeat() {
    let bench = Bench::new().await;
    let mut relay = bench.relay("w", &Script::new(&[])).await;
    let (_crowd, changes) = watch::channel(0);
    relay.reader().start_heartbeat(changes);
    relay.run_once().await.unwrap();
    relay.reader().kill_heartbeat();
    let (_wake, woken) = watch::channel(WakeCount::default());
    let looping = worker::run(
        "w".into(),
        Box::new(relay),
        WakeUps::new(woken),
        CancellationToken::new(),
        patience(),
    );
    let ended = tokio::time::timeout(PATIENCE, tokio::spawn(looping)).await.expect("it ends");
    let ended = ended.unwrap_err();
    assert!(ended.is_panic(), "{ended}");
}

/// A value that panics when it is dropped.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("a bug of the publisher");
    }
}

struct NeverAnswers;

#[async_trait]
impl Publisher for NeverAnswers {
    async fn publish(&self, _: &[OutboxRow]) -> Vec<Delivery> {
        let _guard = PanicsOnDrop;
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_call_that_panics_when_it_is_dropped_keeps_no_row_in_flight() {
    let bench = Bench::new().await;
    bench.enqueue(&[("a", "a1")]).await;
    let settings = DestinationSettings {
        timeout: Duration::from_millis(10),
        ..DestinationSettings::default()
    };
    let keeper = bench.keeper(Scope::Outbox("d".into()), "w");
    keeper.beat().await.unwrap();
    let guard = PublishGuard::new(Arc::new(NeverAnswers), &settings);
    let counters = bench.observer.destination("d");
    let relay = Relay::new(bench.store.clone(), keeper, guard, settings, counters);
    let (_wake, woken) = watch::channel(WakeCount::default());
    let looping = worker::run(
        "w".into(),
        Box::new(relay),
        WakeUps::new(woken),
        CancellationToken::new(),
        patience(),
    );
    let ended = tokio::time::timeout(PATIENCE, tokio::spawn(looping)).await.expect("it ends");
    assert!(ended.unwrap_err().is_panic());
}

#[tokio::test]
async fn a_row_is_found_without_a_wake_up() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    let running = App::new(bench.store.clone()).destination("d", publisher.clone()).start();
    for round in 1..=3 {
        bench.enqueue(&[("a", "a1")]).await;
        let started = Instant::now();
        while publisher.seen().len() < round {
            assert!(started.elapsed() < PATIENCE, "the worker did not poll");
            tokio::task::yield_now().await;
        }
    }
    running.stop().await;
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 3]);
}

#[tokio::test]
async fn a_row_that_is_not_announced_by_its_id_is_found() {
    let bench = Bench::new().await;
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    bench.sql("UPDATE relais_outbox SET next_attempt_at = '2999-01-01T00:00:00.000Z'");
    let publisher = Script::new(&[]);
    let running = App::new(bench.store.clone()).destination("d", publisher.clone()).start();
    for (key, round) in [("a", 1), ("b", 2)] {
        // A retry or a delayed message whose time has come.
        let due = "2000-01-01T00:00:00.000Z";
        bench.sql(&format!(
            "UPDATE relais_outbox SET next_attempt_at = '{due}' WHERE msg_key = '{key}';
             UPDATE relais_waiting SET due_at = '{due}' WHERE msg_key = '{key}'"
        ));
        let started = Instant::now();
        while publisher.seen().len() < round {
            assert!(started.elapsed() < PATIENCE, "the row was not found");
            tokio::task::yield_now().await;
        }
    }
    running.stop().await;
}

/// A handler that never returns.
struct Hangs;

#[async_trait]
impl Handler for Hangs {
    async fn handle(&self, _: HandlerWork) -> HandleOutcome {
        std::future::pending().await
    }

    async fn validate(&self, _: InboxRow) -> Result<Outcome, StoreError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_handler_that_hangs_uses_an_attempt_and_does_not_delay_others() {
    let bench = Bench::new().await;
    let hangs = EventAction::Handler(Arc::new(Hangs));
    let notes = EventAction::Handler(noting(&bench, |_| Outcome::Done));
    let mut worker = worker(&bench, "w", vec![("Hang", hangs), ("Note", notes)]).await.handlers(
        &HandlerSettings { timeout: Duration::from_millis(50), ..HandlerSettings::default() },
    );
    // More than may run at once.
    let hung: Vec<_> = (0..12).map(|n| format!("h{n}")).collect();
    let bodies: Vec<_> = (0..12).map(|n| format!(r#"{{"type":"Hang","of":"hung-{n}"}}"#)).collect();
    let batch: Vec<_> = hung.iter().zip(&bodies).map(|(id, b)| (id.as_str(), b.as_str())).collect();
    accept(&bench, &batch).await;
    accept(&bench, &[("n", r#"{"type":"Note","of":"k"}"#)]).await;
    let done = || bench.texts("SELECT id FROM relais_inbox WHERE status = 'PROCESSED'").len();
    let tried = || bench.texts("SELECT id FROM relais_inbox WHERE status = 'RETRY'").len();
    let started = Instant::now();
    while done() + tried() < 13 {
        assert!(started.elapsed() < PATIENCE, "{} done, {} tried", done(), tried());
        worker.request_read();
        worker.run_once().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!((done(), tried()), (1, 12));
    let codes = "SELECT DISTINCT error_code || ' ' || attempts FROM relais_inbox
                 WHERE status = 'RETRY'";
    assert_eq!(bench.texts(codes), ["HANDLER_TIMEOUT 1"]);
    worker.stop(Duration::MAX).await;
}

/// A publisher or handler of the user may fill the fields of a problem with anything.
#[tokio::test]
async fn a_problem_that_fits_no_column_does_not_stop_other_rows() {
    let bench = Bench::new().await;
    let odd = || Problem { code: "x\0".repeat(5_000), message: "y\0".repeat(50_000) };
    let retry = vec![Delivery::Retry { problem: odd(), after: None }];
    let publisher =
        Script::new(&[("a1", retry), ("b1", vec![Delivery::Reject { problem: odd() }])]);
    bench.enqueue(&[("a", "a1"), ("b", "b1"), ("c", "c1")]).await;
    let mut relay = bench.relay("w", &publisher).await;
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["PENDING 0", "FAILED 1", "DISPATCHED 1"]);

    let handler = noting(&bench, move |message| match message.message_id.as_str() {
        "1" => Outcome::Retry { problem: odd(), after: None },
        "2" => Outcome::Fail { problem: odd() },
        "3" => Outcome::Park { problem: odd() },
        _ => Outcome::Done,
    });
    let mut worker = worker(&bench, "w", vec![("T", EventAction::Handler(handler))]).await;
    for id in ["1", "2", "3", "4"] {
        accept(&bench, &[(id, &format!(r#"{{"type":"T","of":"{id}"}}"#))]).await;
    }
    run_until_idle(&mut worker).await;
    let statuses = bench.texts("SELECT status FROM relais_inbox ORDER BY id");
    assert_eq!(statuses, ["RETRY", "FAILED", "FAILED", "PROCESSED"]);
}

/// A handler that loses its session each time, as one that ends its transaction itself.
struct LosesItsSession;

#[async_trait]
impl Handler for LosesItsSession {
    async fn handle(&self, _: HandlerWork) -> HandleOutcome {
        let lost = StoreError::unavailable("connection closed");
        HandleOutcome::SessionLost(lost)
    }

    async fn validate(&self, _: InboxRow) -> Result<Outcome, StoreError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_handler_that_loses_its_session_each_time_uses_attempts_in_the_end() {
    on_both(lost_sessions).await;
}

async fn lost_sessions(bench: Bench) {
    let loses = EventAction::Handler(Arc::new(LosesItsSession));
    let notes = EventAction::Handler(noting(&bench, |_| Outcome::Done));
    let mut worker = worker(&bench, "w", vec![("Lose", loses), ("Note", notes)]).await;
    accept(&bench, &[("l", r#"{"type":"Lose","of":"l"}"#)]).await;
    let state = || bench.texts("SELECT status || ' ' || attempts FROM relais_inbox WHERE id = 1");
    let mut resting = 0;
    let started = Instant::now();
    while state() != ["RETRY 2"] {
        assert!(started.elapsed() < PATIENCE, "{:?}", state());
        bench.make_due();
        worker.request_read();
        resting += usize::from(worker.run_once().await.is_err());
        tokio::task::yield_now().await;
    }
    assert_eq!(resting, 4, "the first losses may be an outage");
    let codes = bench.texts("SELECT error_code FROM relais_inbox");
    assert_eq!(codes, ["HANDLER_SESSION_LOST"]);
    accept(&bench, &[("n", r#"{"type":"Note","of":"n"}"#)]).await;
    run_until_idle(&mut worker).await;
    assert_eq!(bench.texts("SELECT status FROM relais_inbox WHERE id = 2"), ["PROCESSED"]);
}

/// A handler that cannot begin: the database is unavailable, or its disk is full.
struct CannotBegin;

#[async_trait]
impl Handler for CannotBegin {
    async fn handle(&self, _: HandlerWork) -> HandleOutcome {
        let full = StoreError::unavailable("disk is full");
        HandleOutcome::Unavailable(full)
    }

    async fn validate(&self, _: InboxRow) -> Result<Outcome, StoreError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_database_that_cannot_serve_a_handler_uses_no_attempt_however_often() {
    let bench = Bench::new().await;
    let action = EventAction::Handler(Arc::new(CannotBegin));
    let mut worker = worker(&bench, "w", vec![("T", action)]).await;
    accept(&bench, &[("1", r#"{"type":"T","of":"1"}"#)]).await;
    let (mut rests, started) = (0, Instant::now());
    while rests < 20 {
        assert!(started.elapsed() < PATIENCE, "{rests}");
        worker.request_read();
        rests += usize::from(worker.run_once().await.is_err());
        tokio::task::yield_now().await;
    }
    let state = bench.texts("SELECT status || ' ' || attempts FROM relais_inbox");
    assert_eq!(state, ["RECEIVED 0"]);
}

#[tokio::test]
async fn an_endless_pause_does_not_end_the_process() {
    let bench = Bench::new().await;
    let forever = || Problem::new("LATER", "not now");
    let retry = vec![Delivery::Retry { problem: forever(), after: Some(Duration::MAX) }];
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    let mut relay = bench.relay("w", &Script::new(&[("a1", retry)])).await;
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["PENDING 0", "DISPATCHED 1"]);
    let handler = noting(&bench, |_| Outcome::retry_after(Duration::MAX, "LATER", "not now"));
    let mut worker = worker(&bench, "w", vec![("T", EventAction::Handler(handler))]).await;
    accept(&bench, &[("1", r#"{"type":"T","of":"1"}"#)]).await;
    run_until_idle(&mut worker).await;
    assert_eq!(bench.texts("SELECT status FROM relais_inbox"), ["RETRY"]);
}
