//! Processes through whole apps: a service gets commands from the outbox and replies to the inbox, while
//! apps are killed and started again.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use relais::{
    App, Delivery, DestinationSettings, OutboxRow, Overview, Publisher, RetryPolicy, RunningApp,
    Source, SourceBatch, SourceError, StoreDriver,
    core::inspect::InspectExt,
    core::{
        async_trait,
        inbox::{AcceptOutcome, Content, NewInbox},
        message::Headers,
    },
    postgres::{PostgresOptions, PostgresStore},
    process::{
        Action, Command, Definition, Meaning, Operator, Process, ProcessFilter, ProcessRef,
        ProcessStatus, command_named, define,
    },
    sqlite::{SqliteOptions, SqliteStore},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

const ORDERS: usize = 48;
const KILLS: usize = 6;
/// The time-out of a command.
const TIMEOUT: Duration = Duration::from_millis(700);

#[derive(Serialize, Deserialize)]
struct Order {
    id: usize,
    answers: Vec<String>,
}

#[derive(Deserialize)]
struct Placed {
    id: usize,
}

#[derive(Deserialize)]
struct Answer {
    text: String,
}

/// Returns a command with the replies `<name>Done`, `<name>Busy` and `<name>Failed`. It has many attempts,
/// because replies are late on a slow machine.
fn command(name: &'static str, timeout: Duration) -> Command<Order> {
    let note = |order: &mut Order, answer: Answer| order.answers.push(answer.text);
    command_named("service", name, |order: &Order| json!({ "id": order.id }))
        .on_named(&format!("{name}Done"), note)
        .on_named(&format!("{name}Busy"), |_: &mut Order, _: Answer| Meaning::retryable("busy"))
        .on_named(&format!("{name}Failed"), |_: &mut Order, _: Answer| Meaning::failed("no"))
        .timeout(timeout)
        .retry(
            RetryPolicy::default()
                .attempts_max(1_000)
                .first(Duration::from_millis(20))
                // More attempts must not keep a busy machine busy indefinitely.
                .max(Duration::from_secs(5)),
        )
}

fn order(timeout: Duration) -> Definition {
    let command = |name| command(name, timeout);
    define::<Order>("order", 1)
        .starts_on_named("Placed", |placed: Placed| {
            (format!("o-{}", placed.id), Order { id: placed.id, answers: Vec::new() })
        })
        .reversible_step("payment", command("Charge"), command("Refund"))
        .reversible_step("stock", command("Reserve"), command("Release"))
        .step("shipment", command("Ship"))
        .build()
        .unwrap()
}

/// Returns the final status of an order with this number.
fn expected(id: usize) -> ProcessStatus {
    match id % 8 {
        2 | 4 | 6 => ProcessStatus::Compensated,
        5 => ProcessStatus::Failed,
        _ => ProcessStatus::Succeeded,
    }
}

/// A service that does each command once, by its idempotency key, and replies by the number of the order.
#[derive(Clone, Default)]
struct Service(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Effects by idempotency key.
    effects: BTreeMap<String, usize>,
    /// Commands received, by idempotency key.
    seen: HashMap<String, Vec<Uuid>>,
    /// Replies to deliver, at least once.
    replies: VecDeque<NewInbox>,
}

impl Service {
    fn take(&self, row: &OutboxRow) {
        let mut state = self.0.lock().unwrap();
        let key = row.headers.get("idempotency-key").unwrap().to_owned();
        let seen = state.seen.entry(key.clone()).or_default();
        let known = seen.contains(&row.message_id);
        if !known {
            seen.push(row.message_id);
        }
        let attempt = seen.len();
        let id: serde_json::Value = serde_json::from_str(&row.payload).unwrap();
        let kind = id["id"].as_u64().unwrap() as usize % 8;
        let name = row.event_type.as_str();
        let ending = match (kind, name) {
            (1, "Charge") | (6, "Refund") if attempt == 1 => "Busy",
            (2 | 6, "Ship") | (4, "Reserve") | (5, "Charge") => "Failed",
            _ => "Done",
        };
        if ending == "Done" {
            let effect = state.effects.entry(key).or_default();
            *effect = 1.max(*effect);
        }
        // Kind 3: the first answer to a payment is lost; kind 7: the first about the stock comes late.
        let silent = attempt == 1 && matches!((kind, name), (3, "Charge") | (7, "Reserve"));
        if !silent {
            state.replies.push_back(answer(row, ending, "1"));
        }
        if kind == 7 && name == "Reserve" && attempt == 2 {
            let mut late = row.clone();
            late.message_id = state.seen[&key_of(row)][0];
            state.replies.push_back(answer(&late, ending, "late"));
        }
        if kind == 3 {
            state.replies.push_back(answer(row, ending, "again"));
        }
    }
}

fn key_of(row: &OutboxRow) -> String {
    row.headers.get("idempotency-key").unwrap().to_owned()
}

fn answer(row: &OutboxRow, ending: &str, nth: &str) -> NewInbox {
    let event_type = format!("{}{ending}", row.event_type);
    let id = format!("{}-{nth}", row.message_id);
    let mut message = received(&id, &event_type, &json!({ "text": event_type }));
    message.headers.set("correlation-id", row.correlation_id.as_deref().unwrap());
    message.headers.set("causation-id", &row.message_id.to_string());
    message
}

fn received(id: &str, event_type: &str, body: &serde_json::Value) -> NewInbox {
    NewInbox {
        source_system: "service".into(),
        message_id: id.into(),
        topic: "t".into(),
        partition_num: 0,
        offset_num: 0,
        key_str: None,
        msg_key: id.into(),
        aggregate_id: None,
        event_type: Some(event_type.into()),
        content: Content::Json(body.to_string()),
        headers: Headers::default(),
        event_ts: None,
    }
}

#[async_trait]
impl Publisher for Service {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        messages.iter().for_each(|row| self.take(row));
        vec![Delivery::Accepted; messages.len()]
    }
}

/// A source of the replies; those that are not acknowledged are delivered again.
struct Replies {
    service: Service,
    unacknowledged: Vec<NewInbox>,
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.service.0.lock().unwrap().replies.extend(self.unacknowledged.drain(..));
    }
}

#[async_trait]
impl Source for Replies {
    async fn next(&mut self, max: usize) -> Result<SourceBatch, SourceError> {
        loop {
            {
                let mut state = self.service.0.lock().unwrap();
                let ready = state.replies.len().min(max);
                self.unacknowledged.extend(state.replies.drain(..ready));
            }
            if !self.unacknowledged.is_empty() {
                let messages = self.unacknowledged.clone();
                return Ok(SourceBatch { messages, positions: Vec::new() });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn acknowledge(&mut self, _: Vec<AcceptOutcome>) -> Result<(), SourceError> {
        self.unacknowledged.clear();
        Ok(())
    }

    async fn refuse(&mut self, _: String) {}
}

fn start(store: &Arc<dyn StoreDriver>, service: &Service) -> RunningApp {
    let settings = DestinationSettings::default()
        .retry(RetryPolicy::default().first(Duration::from_millis(5)));
    App::new(Arc::clone(store))
        .process(order(TIMEOUT))
        .source(
            "replies",
            Box::new(Replies { service: service.clone(), unacknowledged: Vec::new() }),
        )
        .destination_with("service", Arc::new(service.clone()), settings)
        .lease(Duration::from_millis(400))
        .start()
}

async fn check(store: Arc<dyn StoreDriver>) {
    store.migrate().await.unwrap();
    let service = Service::default();
    let steady = start(&store, &service);
    let mut victim = start(&store, &service);
    let operator = Operator::new(Arc::clone(&store), vec![order(TIMEOUT)]);
    let before = std::time::Instant::now();
    for id in 0..ORDERS {
        let placed = received(&format!("placed-{id}"), "Placed", &json!({ "id": id }));
        store.accept(vec![placed], Vec::new()).await.unwrap();
        if id % (ORDERS / KILLS) == 3 {
            drop(std::mem::replace(&mut victim, start(&store, &service)));
        }
        // An operator acts too.
        if id % 10 == 9 {
            let key = format!("o-{}", id - 5);
            let found = ProcessRef::Key { process_type: "order".into(), business_key: key };
            if let Some(process) = operator.find(found).await.unwrap() {
                let act = |action| operator.act(process.process_id, action, "ann", "a test");
                // A process that has ended meanwhile cannot be paused.
                if act(Action::Pause).await.is_ok() {
                    act(Action::Resume).await.unwrap();
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    ended(&store).await;
    println!("{ORDERS} orders ended after {:?}", before.elapsed());
    println!("{:?}", steady.observer().snapshot().processes);
    steady.stop().await;
    victim.stop().await;
    // Only now: a timer of an ended process may still have fired before.
    for process in &orders(&store).await {
        assert_ended_well(&operator, &service, process).await;
    }
    let overview = store.overview().await.unwrap();
    let failed = (0..ORDERS).filter(|id| expected(*id) == ProcessStatus::Failed).count() as u64;
    assert_eq!(overview.dead_letters_open, failed, "one for each without a step to compensate");
}

/// A publisher that accepts everything and never replies.
struct Silence;

#[async_trait]
impl Publisher for Silence {
    async fn publish(&self, messages: &[OutboxRow]) -> Vec<Delivery> {
        vec![Delivery::Accepted; messages.len()]
    }
}

/// Checks that many apps with replies for few processes at once, each with its own key, lose none.
async fn check_conflicts(store: Arc<dyn StoreDriver>) {
    const PROCESSES: usize = 3;
    const REPLIES: usize = 60;
    store.migrate().await.unwrap();
    let definition = order(Duration::from_secs(3_600));
    let app = || {
        App::new(Arc::clone(&store))
            .process(definition.clone())
            .destination("service", Arc::new(Silence))
    };
    let operator = app().operator();
    let mut ids = Vec::new();
    for id in 0..PROCESSES {
        let data = json!({ "id": id, "answers": [] }).to_string();
        let process = operator.start("order", None, &data, "ann", "a test").await.unwrap();
        ids.push(process.process_id);
    }
    let apps: Vec<RunningApp> = (0..4).map(|_| app().start()).collect();
    for n in 0..REPLIES {
        let replies = ids.iter().map(|id| {
            let name = format!("{id}-{n}");
            let mut reply = received(&name, "ChargeDone", &json!({ "text": "paid" }));
            reply.headers.set("correlation-id", &id.to_string());
            reply
        });
        store.accept(replies.collect(), Vec::new()).await.unwrap();
    }
    drained(&store).await;
    let stale: u64 = apps.iter().map(|app| app.observer().snapshot().processes.stale).sum();
    println!("{} replies, decided again {stale} times", PROCESSES * REPLIES);
    for app in apps {
        app.stop().await;
    }
    for id in ids {
        let process = operator.find(ProcessRef::Id(id)).await.unwrap().unwrap();
        assert_eq!(process.current_step.as_deref(), Some("stock"));
        let log = operator.log(id, None, 500).await.unwrap();
        let seqs: Vec<i64> = log.iter().rev().map(|entry| entry.seq).collect();
        assert_eq!(seqs, (1..=process.version).collect::<Vec<_>>());
        assert_eq!(log.len(), 2 + REPLIES + 1, "every reply is in it");
        let effective = log.iter().filter(|entry| entry.entry.note.is_none()).count();
        assert_eq!(effective, 4, "started, begun, completed, begun");
    }
}

/// Waits until nothing is open.
async fn drained(store: &Arc<dyn StoreDriver>) {
    const POLLS_MAX: usize = 2_400;
    for _ in 0..POLLS_MAX {
        let overview = store.overview().await.unwrap();
        if is_drained(&overview) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not drained: {:#?}", store.overview().await.unwrap());
}

fn is_drained(overview: &Overview) -> bool {
    let open = ["RECEIVED", "RETRY", "PENDING"];
    let mut counts = overview.inbox.iter().chain(&overview.outbox);
    counts.all(|count| count.rows == 0 || !open.contains(&count.name.as_str()))
}

/// Waits until every order has ended, up to a time that no slow machine needs.
async fn ended(store: &Arc<dyn StoreDriver>) {
    const POLLS_MAX: usize = 2_400;
    for _ in 0..POLLS_MAX {
        let all = orders(store).await;
        let idle = is_drained(&store.overview().await.unwrap());
        if idle && all.len() == ORDERS && all.iter().all(|process| process.status.is_final()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not ended: {:#?}", store.overview().await.unwrap());
}

async fn orders(store: &Arc<dyn StoreDriver>) -> Vec<Process> {
    let filter = ProcessFilter { limit: 500, ..ProcessFilter::default() };
    store.list_processes(filter).await.unwrap()
}

async fn assert_ended_well(operator: &Operator, service: &Service, process: &Process) {
    let data: Order = serde_json::from_str(&process.data).unwrap();
    assert_eq!(process.status, expected(data.id), "order {}: {process:#?}", data.id);
    let log = operator.log(process.process_id, None, 500).await.unwrap();
    let seqs: Vec<i64> = log.iter().rev().map(|entry| entry.seq).collect();
    assert_eq!(seqs, (1..=process.version).collect::<Vec<_>>(), "a log has no gap: {log:#?}");
    let state = service.0.lock().unwrap();
    let done = |what: &str| state.effects.get(&format!("{}/{what}", process.process_id)).copied();
    let effects = ["payment", "stock", "shipment", "payment/undo", "stock/undo"].map(done);
    let once = Some(1);
    let wanted = match data.id % 8 {
        2 | 6 => [once, once, None, once, once],
        4 => [once, None, None, once, None],
        5 => [None; 5],
        _ => [once, once, once, None, None],
    };
    assert_eq!(effects, wanted, "order {}", data.id);
    let started = log.iter().filter(|entry| entry.entry.event.name().ends_with("StepStarted"));
    let begun = started.filter(|entry| entry.entry.note.is_none()).count();
    let forward = ["payment", "stock", "shipment"];
    let sent: usize = forward
        .iter()
        .filter_map(|step| state.seen.get(&format!("{}/{step}", process.process_id)))
        .map(Vec::len)
        .sum();
    assert_eq!(begun, sent, "each attempt in the log is one command, and no other was sent");
}

async fn sqlite(dir: &tempfile::TempDir) -> Arc<dyn StoreDriver> {
    let path = dir.path().join("relais.db");
    Arc::new(SqliteStore::open(&path, SqliteOptions::default()).await.unwrap())
}

/// Runs a check in a schema of its own.
async fn on_postgres<F: Future<Output = ()>>(check: impl FnOnce(Arc<dyn StoreDriver>) -> F) {
    let Ok(url) = std::env::var("RELAIS_TEST_POSTGRES") else {
        assert!(std::env::var_os("CI").is_none(), "RELAIS_TEST_POSTGRES must be set in CI");
        eprintln!("NOT TESTED: processes on PostgreSQL; set RELAIS_TEST_POSTGRES");
        return;
    };
    let schema = format!("processes_{}", Uuid::new_v4().simple());
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    let joint = if url.contains('?') { '&' } else { '?' };
    let own = format!("{url}{joint}options=-c%20search_path%3D{schema}");
    let store = PostgresStore::connect(&own, PostgresOptions::default()).await.unwrap();
    check(Arc::new(store)).await;
    // The last statement of a worker may still run and block it.
    let dropped = client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await;
    if let Err(error) = dropped {
        eprintln!("schema {schema} is left behind: {error}");
    }
    drop(client);
    let _ = connection.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_process_ends_once_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    check(sqlite(&dir).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_process_ends_once_on_postgres() {
    on_postgres(check).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_that_change_one_process_at_once_keep_its_log_without_a_gap_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    check_conflicts(sqlite(&dir).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_that_change_one_process_at_once_keep_its_log_without_a_gap_on_postgres() {
    on_postgres(check_conflicts).await;
}
