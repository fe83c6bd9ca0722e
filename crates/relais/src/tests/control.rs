//! Pauses, limits and resets that apply to running processes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use relais_core::{
    async_trait,
    control::{ControlChange, ControlKind, ControlOrder, LimitChange},
    delivery::{Delivery, Problem},
    inbox::AcceptOutcome,
    message::NewMessage,
    source::{Source, SourceBatch, SourceError},
    store::StoreDriver,
};
use relais_store::sqlite::{SqliteOptions, SqliteStore};
use uuid::Uuid;

use super::{
    process_support::{order, placed},
    support::{Bench, Script},
};
use crate::{
    App, RunningApp,
    app::DestinationSettings,
    control::{ControlError, ControlReader, ControlledWorkers, Gate, control},
    limits::SharedLimits,
    observe::Figures,
};

/// The time limit of a test.
const PATIENCE: Duration = Duration::from_secs(60);

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}

async fn change(bench: &Bench, kind: ControlKind, name: &str, change: ControlChange) -> bool {
    let (actor, reason) = ("ann".to_owned(), "maintenance".to_owned());
    let order = ControlOrder { kind, name: name.to_owned(), change, actor, reason };
    control(bench.store.as_ref(), order, &["d".into(), "e".into()]).await.expect("control")
}

/// Opens the store as another process would.
async fn second(bench: &Bench) -> Arc<dyn StoreDriver> {
    Arc::new(SqliteStore::open(&bench.path(), SqliteOptions::default()).await.unwrap())
}

fn start(store: Arc<dyn StoreDriver>, publisher: &Arc<Script>) -> RunningApp {
    App::new(store).destination("d", publisher.clone()).destination("e", publisher.clone()).start()
}

fn paused(running: &RunningApp) -> bool {
    running.observer().figures().destinations["d"].paused
}

/// Returns whether the controls were read and the configured limits are in force.
fn is_working(running: &RunningApp) -> bool {
    let figures = running.observer().figures();
    figures.destinations.get("d").is_some_and(|d| d.concurrency == 10 && !d.paused)
}

async fn send(bench: &Bench, destination: &str, name: &str) {
    let text = format!("\"{name}\"");
    let message = NewMessage::new(Uuid::now_v7(), ("Thing", name), "Happened", destination, text);
    bench.store.enqueue(vec![message]).await.unwrap();
}

#[tokio::test]
async fn a_pause_reaches_every_process_and_survives_a_restart() {
    let bench = Bench::new().await;
    let script = Script::new(&[]);
    let (one, two) = (start(bench.store.clone(), &script), start(second(&bench).await, &script));
    send(&bench, "d", "first").await;
    until("delivered before the pause", async || script.seen() == ["first"]).await;
    assert!(change(&bench, ControlKind::Destination, "d", ControlChange::Pause).await);
    until("both processes pause", async || paused(&one) && paused(&two)).await;
    send(&bench, "d", "held").await;
    send(&bench, "e", "other").await;
    until("others are not paused", async || script.seen() == ["first", "other"]).await;
    one.stop().await;
    two.stop().await;
    let again = start(second(&bench).await, &script);
    send(&bench, "e", "another").await;
    until("others after a restart", async || script.seen().len() == 3).await;
    assert_eq!(script.seen(), ["first", "other", "another"]);
    assert!(change(&bench, ControlKind::Destination, "d", ControlChange::Resume).await);
    until("delivered after the pause", async || script.seen().last().unwrap() == "held").await;
    again.stop().await;
}

/// With one read a second that is within two seconds, whenever the change falls between two reads.
#[tokio::test]
async fn every_process_obeys_after_its_next_read() {
    let bench = Bench::new().await;
    let mut processes = Vec::new();
    for _ in 0..3 {
        let mut workers = ControlledWorkers::default();
        let limits = SharedLimits::new(&DestinationSettings::default());
        workers.destination("d", limits.clone());
        let (gate, types) = (workers.source("e"), Arc::clone(&workers.types));
        let reader = ControlReader::new(second(&bench).await, workers, Box::new(|| {}));
        processes.push((reader, limits, gate, types));
    }
    let kinds = [
        (ControlKind::Destination, "d"),
        (ControlKind::Source, "e"),
        (ControlKind::ProcessType, "d"),
    ];
    for (wanted, is_paused) in [(ControlChange::Pause, true), (ControlChange::Resume, false)] {
        for (kind, name) in kinds {
            assert!(change(&bench, kind, name, wanted).await);
        }
        for (reader, limits, gate, types) in &mut processes {
            reader.read().await;
            assert_eq!(limits.is_paused(), is_paused);
            assert_eq!(*gate.borrow() == Gate::Paused, is_paused);
            assert_eq!(types.contains("d"), is_paused);
        }
    }
    let limit = LimitChange { rate: None, concurrency: Some(2) };
    assert!(change(&bench, ControlKind::Destination, "d", ControlChange::Limit(limit)).await);
    for (reader, limits, ..) in &mut processes {
        reader.read().await;
        assert_eq!(limits.concurrency(), 2);
    }
}

#[tokio::test]
async fn limits_reach_a_running_process_and_stay_after_a_restart() {
    let bench = Bench::new().await;
    let script = Script::new(&[]);
    let running = start(bench.store.clone(), &script);
    let limits = LimitChange { rate: Some((5, Duration::from_secs(60))), concurrency: Some(2) };
    until("the first read", async || is_working(&running)).await;
    assert!(change(&bench, ControlKind::Destination, "d", ControlChange::Limit(limits)).await);
    let seen = |running: &RunningApp| {
        let figures = running.observer().figures();
        let destination = figures.destinations.get("d");
        destination.map_or((None, 0), |d| (d.rate.clone(), d.concurrency))
    };
    until("the new limits", async || seen(&running) == (Some("5/m".to_owned()), 2)).await;
    running.stop().await;
    let again = start(bench.store.clone(), &script);
    until("the same after a restart", async || seen(&again) == (Some("5/m".to_owned()), 2)).await;
    let reset = ControlChange::Limit(LimitChange::default());
    assert!(change(&bench, ControlKind::Destination, "d", reset).await);
    until("as configured", async || seen(&again) == (None, 10)).await;
    again.stop().await;
}

#[tokio::test]
async fn a_reset_closes_the_breaker_at_once() {
    let bench = Bench::new().await;
    let outage = || Delivery::Outage {
        problem: Problem::new("DOWN", "out of order"),
        after: Some(Duration::from_secs(300)),
    };
    let script = Script::new(&[("first", vec![outage()])]);
    let running = start(bench.store.clone(), &script);
    send(&bench, "d", "first").await;
    let opened = || running.observer().figures().destinations["d"].open_until.is_some();
    until("the breaker is open", async || opened()).await;
    let error = running.observer().figures().destinations["d"].last_error.clone().unwrap();
    assert_eq!(error.code, "DOWN");
    assert!(!running.observer().figures().destinations["d"].contacted);
    assert!(change(&bench, ControlKind::Destination, "d", ControlChange::ResetBreaker).await);
    until("delivered without the pause", async || script.seen() == ["first", "first"]).await;
    until("contacted", async || running.observer().figures().destinations["d"].contacted).await;
    running.stop().await;
}

#[tokio::test]
async fn unknown_names_and_wrong_changes_are_refused() {
    let bench = Bench::new().await;
    let ask = async |kind, name: &str, change| {
        let (actor, reason) = ("ann".to_owned(), "x".to_owned());
        let order = ControlOrder { kind, name: name.to_owned(), change, actor, reason };
        control(bench.store.as_ref(), order, &["orders".into()]).await
    };
    let unknown = ask(ControlKind::Destination, "ordres", ControlChange::Pause).await.unwrap_err();
    assert_eq!(unknown.to_string(), "no destination is `ordres`; there are orders");
    let wrong = ask(ControlKind::Source, "orders", ControlChange::ResetBreaker).await;
    assert!(matches!(wrong, Err(ControlError::Invalid(_))), "{wrong:?}");
    let zero = ControlChange::Limit(LimitChange { rate: None, concurrency: Some(0) });
    let zero = ask(ControlKind::Destination, "orders", zero).await;
    assert!(matches!(zero, Err(ControlError::Invalid(_))), "{zero:?}");
    send(&bench, "rows-know-it", "x").await;
    assert!(ask(ControlKind::Destination, "rows-know-it", ControlChange::Pause).await.unwrap());
}

/// A source that counts how often it is read and paused, and never has a message.
#[derive(Clone, Default)]
struct Quiet {
    reads: Arc<AtomicUsize>,
    pauses: Arc<AtomicUsize>,
}

#[async_trait]
impl Source for Quiet {
    async fn next(&mut self, _max: usize) -> Result<SourceBatch, SourceError> {
        self.reads.fetch_add(1, Relaxed);
        std::future::pending().await
    }

    async fn acknowledge(&mut self, _: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        unreachable!("nothing was read")
    }

    async fn refuse(&mut self, _: String) {
        unreachable!("nothing was read")
    }

    async fn pause(&mut self) {
        self.pauses.fetch_add(1, Relaxed);
    }
}

#[tokio::test]
async fn a_paused_source_is_not_read_until_it_is_resumed() {
    let bench = Bench::new().await;
    let source = Quiet::default();
    let running = App::new(bench.store.clone()).source("s", Box::new(source.clone())).start();
    until("it is read", async || source.reads.load(Relaxed) == 1).await;
    until("it is reported", async || !bench.texts("SELECT 1 FROM relais_report").is_empty()).await;
    assert!(change(&bench, ControlKind::Source, "s", ControlChange::Pause).await);
    until("it is paused", async || source.pauses.load(Relaxed) == 1).await;
    assert!(running.observer().figures().sources["s"].paused);
    assert_eq!(source.reads.load(Relaxed), 1);
    assert!(change(&bench, ControlKind::Source, "s", ControlChange::Resume).await);
    until("it is read again", async || source.reads.load(Relaxed) == 2).await;
    running.stop().await;
}

#[tokio::test]
async fn messages_and_timers_of_a_paused_process_type_wait() {
    let bench = Bench::new().await;
    let definition = order().build().unwrap();
    let running = App::new(bench.store.clone()).process(definition.clone()).start();
    bench.store.accept(vec![placed("first")], Vec::new()).await.unwrap();
    let count = |sql: &str| bench.texts(sql).remove(0).parse::<u64>().unwrap();
    let processes = || count("SELECT count(*) FROM relais_process");
    until("the first process", async || processes() == 1).await;
    assert!(change(&bench, ControlKind::ProcessType, "order", ControlChange::Pause).await);
    running.stop().await;
    // It applies to a new process from its start.
    let running = App::new(bench.store.clone()).process(definition).start();
    bench.sql("UPDATE relais_timer SET due_at = '2000-01-01T00:00:00.000Z'");
    bench.store.accept(vec![placed("second")], Vec::new()).await.unwrap();
    let held = "SELECT count(*) FROM relais_inbox WHERE error_code = 'PROCESS_TYPE_PAUSED'";
    until("the second waits", async || count(held) == 1).await;
    let timers = "SELECT count(*) FROM relais_timer WHERE due_at LIKE '2000%'";
    assert_eq!((processes(), count(timers)), (1, 1), "nothing started, and no timer fired");
    assert_eq!(bench.texts("SELECT attempts FROM relais_inbox ORDER BY id DESC LIMIT 1"), ["0"]);
    assert!(change(&bench, ControlKind::ProcessType, "order", ControlChange::Resume).await);
    until("the second starts", async || processes() == 2).await;
    until("the timer fired", async || count(timers) == 0).await;
    running.stop().await;
}

#[tokio::test]
async fn each_process_reports_its_figures_and_retracts_them() {
    let bench = Bench::new().await;
    let script = Script::new(&[]);
    let (one, two) = (start(bench.store.clone(), &script), start(second(&bench).await, &script));
    for number in 0..10 {
        send(&bench, "d", &number.to_string()).await;
    }
    let delivered = async || {
        let reports = bench.store.reports().await.unwrap();
        let figures = reports.iter().map(|report| serde_json::from_str(&report.figures).unwrap());
        let mut sum = Figures::default();
        figures.for_each(|figures: Figures| sum.add(&figures));
        (reports.len(), sum.destinations.get("d").map_or(0, |d| d.dispatched))
    };
    until("both report ten together", async || delivered().await == (2, 10)).await;
    let report = bench.store.reports().await.unwrap().remove(0);
    assert_eq!((report.pid, report.alive), (std::process::id(), true));
    one.stop().await;
    until("one has left", async || delivered().await.0 == 1).await;
    two.stop().await;
    until("both have left", async || delivered().await.0 == 0).await;
}
