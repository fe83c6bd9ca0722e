//! An order as a process of three steps, and a bench on which the test makes each step happen.

use std::{sync::Arc, time::Duration};

use relais_core::{
    extract::Pick,
    inbox::{Content, NewInbox},
    lane::Scope,
    message::Headers,
    process::{
        Definition,
        declared::{DeclaredCall, DeclaredProcess, DeclaredStep},
        definition::{CallTarget, Correlate, KeyUse},
    },
    retry::RetryPolicy,
};
use uuid::Uuid;

use super::support::Bench;
use crate::{
    App,
    control::PausedTypes,
    inbox::{InboxWorker, ProcessWork},
    process::{Action, Operator, Process, ProcessRef, timers::Timers},
    worker::{Worker, run_until_idle},
};

/// Returns `order`: payment, stock, shipment; the first two can be compensated.
pub(super) fn order() -> DeclaredProcess {
    DeclaredProcess {
        process_type: "order".into(),
        version: 1,
        starts: vec!["OrderPlaced".into()],
        business_key: Some("payload:/orderId".parse().unwrap()),
        key_use: KeyUse::Once,
        steps: vec![
            DeclaredStep {
                compensation: Some(call("Refund", "Refunded")),
                ..step("payment", "Charge", "Charged")
            },
            DeclaredStep {
                compensation: Some(call("Release", "Released")),
                ..step("stock", "Reserve", "Reserved")
            },
            step("shipment", "Ship", "Shipped"),
        ],
    }
}

pub(super) fn step(name: &str, command: &str, completed: &str) -> DeclaredStep {
    DeclaredStep { name: name.into(), call: call(command, completed), compensation: None }
}

/// Returns a command with the replies `…`, `<command>Failed` and `<command>Busy`; three attempts.
pub(super) fn call(command: &str, completed: &str) -> DeclaredCall {
    DeclaredCall {
        target: CallTarget::Destination("d".into()),
        command: command.into(),
        payload: Some(r#"{"order":{{/input/orderId}}}"#.into()),
        completed: vec![completed.into()],
        failed: vec![format!("{command}Failed")],
        retryable: vec![format!("{command}Busy")],
        error: Some(Pick::Payload("/error".into())),
        correlate: Correlate::default(),
        timeout: Some(Duration::from_secs(3_600)),
        retry: RetryPolicy::default().attempts_max(3).first(Duration::from_secs(60)).jitter(false),
    }
}

/// Returns a message `type` with a body, keyed by its own id.
pub(super) fn message(id: &str, event_type: &str, body: &str) -> NewInbox {
    NewInbox {
        source_system: "shop".into(),
        message_id: id.into(),
        topic: "t".into(),
        partition_num: 0,
        offset_num: 0,
        key_str: None,
        msg_key: id.into(),
        aggregate_id: None,
        event_type: Some(event_type.into()),
        content: Content::Json(body.into()),
        headers: Headers::default(),
        event_ts: None,
    }
}

/// Returns the message that starts `order` for the order `id`.
pub(super) fn placed(id: &str) -> NewInbox {
    message(&format!("placed-{id}"), "OrderPlaced", &format!(r#"{{"orderId":"{id}"}}"#))
}

/// Returns a reply that names the process, and the command if there is one.
pub(super) fn reply(id: &str, event_type: &str, process: &str, command: Option<&str>) -> NewInbox {
    let mut message = message(id, event_type, r#"{"error":"says the service"}"#);
    message.headers.set("correlation-id", process);
    if let Some(command) = command {
        message.headers.set("causation-id", command);
    }
    message
}

/// A store, an inbox worker, timers and an operator, all driven by the test.
pub(super) struct Hand {
    pub(super) bench: Bench,
    pub(super) operator: Operator,
    pub(super) inbox: InboxWorker,
    replies: usize,
}

impl Hand {
    pub(super) async fn new(definitions: Vec<Definition>) -> Self {
        let bench = Bench::new().await;
        Self::on(bench, definitions).await
    }

    /// Continues with a store, as after a crash.
    pub(super) async fn on(bench: Bench, definitions: Vec<Definition>) -> Self {
        bench.expire_leases();
        let operator = Operator::new(bench.store.clone(), definitions.clone());
        let inbox = inbox(&bench, definitions).await;
        let replies = bench
            .texts("SELECT message_id FROM relais_inbox WHERE message_id LIKE 'reply-%'")
            .len();
        Self { bench, operator, inbox, replies }
    }

    /// Returns the order `o-1`, started.
    pub(super) async fn order() -> Self {
        let mut hand = Self::new(vec![order().build().unwrap()]).await;
        hand.receive(vec![placed("o-1")]).await;
        hand
    }

    pub(super) async fn receive(&mut self, messages: Vec<NewInbox>) {
        self.bench.store.accept(messages, Vec::new()).await.unwrap();
        run_until_idle(&mut self.inbox).await;
    }

    /// Sends a reply to the last command of this name.
    pub(super) async fn answer(&mut self, command: &str, event_type: &str) {
        let sent = self.bench.texts(&format!(
            "SELECT correlation_id || ' ' || message_id FROM relais_outbox
             WHERE event_type = '{command}' ORDER BY id"
        ));
        let (process, command) = sent.last().expect("it was sent").split_once(' ').unwrap();
        self.replies += 1;
        let id = format!("reply-{}", self.replies);
        self.receive(vec![reply(&id, event_type, process, Some(command))]).await;
    }

    /// Makes every timer due, fires it and lets the inbox worker handle it.
    pub(super) async fn time_passes(&mut self) {
        make_due(&self.bench);
        timers(&self.bench).run_once().await.unwrap();
        run_until_idle(&mut self.inbox).await;
    }

    pub(super) async fn act(&self, action: Action) -> Process {
        let id = self.process_id();
        self.operator.act(id, action, "ann", "because").await.unwrap()
    }

    /// Returns the id of the only process.
    pub(super) fn process_id(&self) -> Uuid {
        self.bench.texts("SELECT process_id FROM relais_process")[0].parse().unwrap()
    }

    pub(super) async fn process(&self) -> Process {
        let id = ProcessRef::Id(self.process_id());
        self.operator.find(id).await.unwrap().unwrap()
    }

    /// Returns `STATUS step`.
    pub(super) fn state(&self) -> String {
        self.bench
            .texts("SELECT status || ' ' || coalesce(current_step, '-') FROM relais_process")
            .join(", ")
    }

    /// Returns the commands in the order they were sent.
    pub(super) fn commands(&self) -> Vec<String> {
        self.bench.texts("SELECT event_type FROM relais_outbox ORDER BY id")
    }

    /// Returns the log in short form.
    pub(super) fn log(&self) -> Vec<String> {
        self.bench.texts(
            "SELECT event_type || coalesce(' ' || json_extract(event, '$.step'), '')
                 || coalesce(' (' || json_extract(event, '$.note') || ')', '')
             FROM relais_process_log ORDER BY process_id, seq",
        )
    }

    /// Returns `message STATUS code` of rows that did not succeed.
    pub(super) fn failures(&self) -> Vec<String> {
        self.bench.texts(
            "SELECT message_id || ' ' || status || ' ' || error_code FROM relais_inbox
             WHERE status <> 'PROCESSED' ORDER BY id",
        )
    }

    /// Returns `failed_status code` of open dead letters of processes.
    pub(super) fn dead_letters(&self) -> Vec<String> {
        self.bench.texts(
            "SELECT failed_status || ' ' || error_class FROM relais_dead_letter
             WHERE origin = 'process' AND resolution IS NULL",
        )
    }
}

pub(super) fn timers(bench: &Bench) -> Timers {
    let counters = Arc::clone(&bench.observer.processes);
    Timers::new(bench.store.clone(), Arc::default(), counters, PausedTypes::none(), Box::new(|| {}))
}

pub(super) async fn inbox(bench: &Bench, definitions: Vec<Definition>) -> InboxWorker {
    let app = definitions.into_iter().fold(App::new(bench.store.clone()), App::process);
    let keeper = bench.keeper(Scope::Inbox, &Uuid::new_v4().to_string());
    let keeper = keeper.knowing(app.processes.announced());
    keeper.beat().await.unwrap();
    let (store, counters) = (bench.store.clone(), Arc::clone(&bench.observer.inbox));
    let processes = Arc::clone(&bench.observer.processes);
    let processes =
        ProcessWork::new(Arc::new(app.processes), Arc::default(), processes, PausedTypes::none());
    InboxWorker::new(store, keeper, app.actions, RetryPolicy::default(), counters)
        .processes(processes)
        .unknown_type_wait(Duration::ZERO)
}

/// As if every command had left, and every timer run out, long ago.
pub(super) fn make_due(bench: &Bench) {
    bench.sql(
        "UPDATE relais_outbox SET status = 'DISPATCHED', dispatched_at = '2000-01-01T00:00:00.000Z'",
    );
    bench.sql("UPDATE relais_timer SET due_at = '2000-01-01T00:00:00.000Z'");
}
