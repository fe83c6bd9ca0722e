//! Loops that end, hang or are not woken.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    BoxFuture,
    delivery::{Delivery, Problem},
    handler::{Handled, Handler, HandlerWork, Outcome},
    inbox::{Accepted, InboxRow},
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
    support::{Bench, Script, drain},
};
use crate::{
    App, DestinationSettings, HandlerSettings,
    guard::Guard,
    inbox::Action,
    relay::Relay,
    worker::{self, Worker, run_until_idle},
};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

fn patience() -> watch::Receiver<Duration> {
    watch::channel(Duration::MAX).1
}

/// A source with a bug.
struct Broken;

impl Source for Broken {
    fn next(&mut self, _max: usize) -> BoxFuture<'_, Result<SourceBatch, SourceError>> {
        panic!("a bug of the source");
    }

    fn acknowledge(&mut self, _: Vec<Accepted>) -> BoxFuture<'_, Result<(), SourceError>> {
        unreachable!("nothing was read")
    }

    fn refuse(&mut self, _: String) -> BoxFuture<'_, ()> {
        unreachable!("nothing was read")
    }
}

#[tokio::test]
async fn a_loop_that_panics_is_told_so_that_the_process_can_end() {
    let bench = Bench::new().await;
    let mut running = App::new(Arc::clone(&bench.store)).source("s", Box::new(Broken)).start();
    let reason = running.failed().await;
    assert!(reason.starts_with("a worker panicked: "), "{reason}");
    running.stop().await;
}

#[tokio::test]
async fn a_worker_ends_with_its_heartbeat() {
    let bench = Bench::new().await;
    let mut relay = bench.relay("w", &Script::new(&[])).await;
    let (_crowd, told) = watch::channel(0);
    relay.intake().start_heartbeat(told);
    relay.run_once().await.unwrap();
    relay.intake().kill_heartbeat();
    let (_wake, woken) = watch::channel(0);
    let looping =
        worker::run("w".into(), Box::new(relay), woken, CancellationToken::new(), patience());
    let ended = tokio::time::timeout(PATIENCE, tokio::spawn(looping)).await.expect("it ends");
    let ended = ended.unwrap_err();
    assert!(ended.is_panic(), "{ended}");
}

/// Panics when it is given up, where nobody expects it.
struct Touchy;

impl Drop for Touchy {
    fn drop(&mut self) {
        panic!("a bug of the publisher");
    }
}

struct NeverAnswers;

impl Publisher for NeverAnswers {
    fn publish<'a>(&'a self, _: &'a [OutboxRow]) -> BoxFuture<'a, Vec<Delivery>> {
        Box::pin(async {
            let _touchy = Touchy;
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn a_call_that_panics_when_it_is_given_up_keeps_no_row_for_ever() {
    let bench = Bench::new().await;
    bench.enqueue(&[("a", "a1")]).await;
    let settings = DestinationSettings {
        timeout: Duration::from_millis(10),
        ..DestinationSettings::default()
    };
    let keeper = bench.keeper(Scope::Outbox("d".into()), "w");
    keeper.beat().await.unwrap();
    let guard = Guard::new(Arc::new(NeverAnswers), &settings);
    let counters = bench.observer.destination("d");
    let relay = Relay::new(Arc::clone(&bench.store), keeper, guard, settings, counters);
    let (_wake, woken) = watch::channel(0);
    let looping =
        worker::run("w".into(), Box::new(relay), woken, CancellationToken::new(), patience());
    let ended = tokio::time::timeout(PATIENCE, tokio::spawn(looping)).await.expect("it ends");
    assert!(ended.unwrap_err().is_panic());
}

#[tokio::test]
async fn a_row_is_found_though_nobody_wakes_anybody() {
    let bench = Bench::new().await;
    let publisher = Script::new(&[]);
    let relay = bench.relay("w", &publisher).await;
    let (_wake, woken) = watch::channel(0);
    let stop = CancellationToken::new();
    let looping =
        tokio::spawn(worker::run("w".into(), Box::new(relay), woken, stop.clone(), patience()));
    for round in 1..=3 {
        bench.enqueue(&[("a", "a1")]).await;
        let started = Instant::now();
        while publisher.seen().len() < round {
            assert!(started.elapsed() < PATIENCE, "nobody looked");
            tokio::task::yield_now().await;
        }
    }
    stop.cancel();
    looping.await.unwrap();
    assert_eq!(bench.statuses(), ["DISPATCHED 1"; 3]);
}

/// Waits for something that never comes.
struct Hangs;

impl Handler for Hangs {
    fn handle(&self, _: HandlerWork) -> BoxFuture<'_, Handled> {
        Box::pin(std::future::pending())
    }

    fn rehearse(&self, _: InboxRow) -> BoxFuture<'_, Result<Outcome, StoreError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_handler_that_hangs_uses_an_attempt_and_holds_nobody_else_up() {
    let bench = Bench::new().await;
    let hangs = Action::Handler(Arc::new(Hangs));
    let notes = Action::Handler(noting(&bench, |_| Outcome::Done));
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
        worker.look();
        worker.run_once().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!((done(), tried()), (1, 12));
    let codes = "SELECT DISTINCT error_code || ' ' || attempts FROM relais_inbox
                 WHERE status = 'RETRY'";
    assert_eq!(bench.texts(codes), ["HANDLER_TIMEOUT 1"]);
    worker.stop(Duration::MAX).await;
}

/// A user's publisher or handler may fill the fields of a reason with anything.
#[tokio::test]
async fn a_reason_that_fits_no_column_stops_nobody() {
    let bench = Bench::new().await;
    let odd = || Problem { code: "x\0".repeat(5_000), message: "y\0".repeat(50_000) };
    let said = vec![Delivery::Retry { problem: odd(), after: None }];
    let publisher = Script::new(&[("a1", said), ("b1", vec![Delivery::Reject { problem: odd() }])]);
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
    let mut worker = worker(&bench, "w", vec![("T", Action::Handler(handler))]).await;
    for id in ["1", "2", "3", "4"] {
        accept(&bench, &[(id, &format!(r#"{{"type":"T","of":"{id}"}}"#))]).await;
    }
    run_until_idle(&mut worker).await;
    let statuses = bench.texts("SELECT status FROM relais_inbox ORDER BY id");
    assert_eq!(statuses, ["RETRY", "FAILED", "FAILED", "PROCESSED"]);
}

/// Loses its session each time, as a handler that ends its transaction itself.
struct LosesItsSession;

impl Handler for LosesItsSession {
    fn handle(&self, _: HandlerWork) -> BoxFuture<'_, Handled> {
        let lost = StoreError::unavailable("connection closed");
        Box::pin(std::future::ready(Handled::SessionLost(lost)))
    }

    fn rehearse(&self, _: InboxRow) -> BoxFuture<'_, Result<Outcome, StoreError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_handler_that_loses_its_session_each_time_uses_attempts_in_the_end() {
    let bench = Bench::new().await;
    let loses = Action::Handler(Arc::new(LosesItsSession));
    let notes = Action::Handler(noting(&bench, |_| Outcome::Done));
    let mut worker = worker(&bench, "w", vec![("Lose", loses), ("Note", notes)]).await;
    accept(&bench, &[("l", r#"{"type":"Lose","of":"l"}"#)]).await;
    let state = || bench.texts("SELECT status || ' ' || attempts FROM relais_inbox WHERE id = 1");
    let mut resting = 0;
    let started = Instant::now();
    while state() != ["RETRY 2"] {
        assert!(started.elapsed() < PATIENCE, "{:?}", state());
        bench.make_due();
        worker.look();
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

/// The database is away, or its disk is full: reads may still be answered.
struct CannotBegin;

impl Handler for CannotBegin {
    fn handle(&self, _: HandlerWork) -> BoxFuture<'_, Handled> {
        let away = StoreError::unavailable("disk is full");
        Box::pin(std::future::ready(Handled::Unavailable(away)))
    }

    fn rehearse(&self, _: InboxRow) -> BoxFuture<'_, Result<Outcome, StoreError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_database_that_cannot_serve_a_handler_uses_no_attempt_however_often() {
    let bench = Bench::new().await;
    let action = Action::Handler(Arc::new(CannotBegin));
    let mut worker = worker(&bench, "w", vec![("T", action)]).await;
    accept(&bench, &[("1", r#"{"type":"T","of":"1"}"#)]).await;
    let (mut rests, started) = (0, Instant::now());
    while rests < 20 {
        assert!(started.elapsed() < PATIENCE, "{rests}");
        worker.look();
        rests += usize::from(worker.run_once().await.is_err());
        tokio::task::yield_now().await;
    }
    let state = bench.texts("SELECT status || ' ' || attempts FROM relais_inbox");
    assert_eq!(state, ["RECEIVED 0"]);
}

#[tokio::test]
async fn a_pause_beyond_all_time_ends_no_process() {
    let bench = Bench::new().await;
    let forever = || Problem::new("LATER", "not now");
    let said = vec![Delivery::Retry { problem: forever(), after: Some(Duration::MAX) }];
    bench.enqueue(&[("a", "a1"), ("b", "b1")]).await;
    let mut relay = bench.relay("w", &Script::new(&[("a1", said)])).await;
    drain(&mut relay).await;
    assert_eq!(bench.statuses(), ["PENDING 0", "DISPATCHED 1"]);
    let handler = noting(&bench, |_| Outcome::retry_after(Duration::MAX, "LATER", "not now"));
    let mut worker = worker(&bench, "w", vec![("T", Action::Handler(handler))]).await;
    accept(&bench, &[("1", r#"{"type":"T","of":"1"}"#)]).await;
    run_until_idle(&mut worker).await;
    assert_eq!(bench.texts("SELECT status FROM relais_inbox"), ["RETRY"]);
}
