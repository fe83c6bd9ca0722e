//! Figure: processes of three steps advanced by the inbox worker, beside the bare transactions they
//! consist of.
//!
//! Their starts and all replies are in the inbox before. The bare side reads and writes the same
//! rows in the same tables, with the values that the engine would compute; computing them costs it no
//! time. It has no fence, no order by key, no lock, and reads what it decides about once.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use relais::{
    App, InboxRow, Problem,
    core::{
        inbox::{Content, NewInbox},
        message::Headers,
        process::{Change, Input, advance, start},
    },
    process::{Command, Definition, command_named, define},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::{
    fixture::{Database, Fixture},
    options::Options,
    relay::progress,
    report::{Entry, Report, Target, Unit},
    workload::PATIENCE,
};

/// Rows of one bare transaction: as many as the inbox worker settles in one.
pub(crate) const PROCESS_BATCH: usize = 500;
/// The destination of the commands; no worker fetches them.
const DESTINATION: &str = "services";
const TARGET: f64 = 0.5;
/// Filler that makes an order about 400 bytes long.
const NOTE_BYTES: usize = 350;
const STEP_TIMEOUT: Duration = Duration::from_secs(3_600);
/// The interval of polls for the last row.
const POLL_EVERY: Duration = Duration::from_millis(1);
/// The messages of a process: its start, and the reply of each step.
const EVENTS: [&str; 4] = ["OrderPlaced", "PaymentTaken", "StockReserved", "OrderShipped"];

/// The bare side.
pub(crate) trait Bare {
    /// Empties the tables of processes, the inbox and the outbox.
    async fn clear_processes(&self) -> Result<()>;
    /// Reads and writes all that the script consists of, [`PROCESS_BATCH`] rows a transaction.
    async fn advance_plain(&self, script: &Script) -> Result<Spent>;
}

/// The time that the database took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) reading: Duration,
    pub(crate) writing: Duration,
}

pub(crate) async fn measure<D: Database<Fixture: Bare>>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let script = Script::new(options.size.rows / EVENTS.len() as u64)?;
    let fixture = database.fixture("process").await?;
    let (mut raw, mut writes, mut relais) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} process, round {round}: raw, relais", D::NAME);
        load(&fixture, &script).await?;
        let spent = fixture.advance_plain(&script).await?;
        raw.push(script.rate(spent.reading + spent.writing));
        writes.push(script.rate(spent.writing));
        progress(&raw);
        check(&fixture, &script).await?;
        load(&fixture, &script).await?;
        relais.push(script.rate(advance_all(&fixture, &script).await?));
        progress(&relais);
        check(&fixture, &script).await?;
    }
    fixture.remove().await?;
    for (raw, note) in [(raw, "the bare transactions"), (writes, "their writes alone")] {
        report.add(Entry {
            store: D::NAME,
            name: format!("process, {} steps", script.steps()),
            unit: Unit::PerSecond,
            raw,
            relais: relais.clone(),
            target: Target::RatioAtLeast(TARGET),
            note: format!("beside {note}"),
        });
    }
    Ok(())
}

async fn load<B: Fixture + Bare>(fixture: &B, script: &Script) -> Result<()> {
    fixture.clear_processes().await?;
    for batch in script.batches() {
        fixture.store().accept(script.messages(&batch)?, Vec::new()).await?;
    }
    fixture.calm().await
}

/// From the start of the workers until the last row is settled.
async fn advance_all<B: Fixture>(fixture: &B, script: &Script) -> Result<Duration> {
    let started = Instant::now();
    let running = App::new(fixture.store()).process(script.definition.clone()).start();
    let observer = running.observer();
    let all = async {
        while observer.snapshot().inbox.processed < script.rows() {
            tokio::time::sleep(POLL_EVERY).await;
        }
        started.elapsed()
    };
    let elapsed = tokio::time::timeout(PATIENCE, all).await;
    running.stop().await;
    Ok(elapsed?)
}

/// Every process has come to its end.
async fn check<B: Fixture>(fixture: &B, script: &Script) -> Result<()> {
    let overview = fixture.store().overview().await?;
    let ended = overview.processes.iter().find(|count| count.name == "SUCCEEDED");
    let ended = ended.map_or(0, |count| count.rows);
    ensure!(ended == script.processes, "{ended} of {} processes ended", script.processes);
    Ok(())
}

/// The messages of every process: all are started, then all get the reply of the first step, and so on.
pub(crate) struct Script {
    processes: u64,
    definition: Definition,
}

impl Script {
    fn new(processes: u64) -> Result<Self> {
        let definition = define::<Order>("order", 1)
            .starts_on_named("OrderPlaced", |order: Order| (order.order_id.clone(), order))
            .step("payment", command("TakePayment", "PaymentTaken"))
            .step("stock", command("ReserveStock", "StockReserved"))
            .step("shipment", command("ShipOrder", "OrderShipped"))
            .build()?;
        Ok(Self { processes, definition })
    }

    fn rows(&self) -> u64 {
        self.processes * EVENTS.len() as u64
    }

    /// A start is no step.
    fn steps(&self) -> u64 {
        self.rows() - self.processes
    }

    fn rate(&self, elapsed: Duration) -> f64 {
        self.steps() as f64 / elapsed.as_secs_f64()
    }

    /// The rows of each transaction, in order; none has two rows of one process.
    pub(crate) fn batches(&self) -> impl Iterator<Item = Vec<Place>> + '_ {
        (0..EVENTS.len()).flat_map(move |event| {
            (0..self.processes).step_by(PROCESS_BATCH).map(move |first| {
                let end = self.processes.min(first + PROCESS_BATCH as u64);
                (first..end).map(|process| Place { process, event }).collect()
            })
        })
    }

    fn messages(&self, batch: &[Place]) -> Result<Vec<NewInbox>> {
        batch.iter().map(|place| Ok(self.turn(*place)?.0)).collect()
    }

    /// Returns the changes that the rows cause.
    pub(crate) fn changes(&self, batch: &[Place]) -> Result<Vec<Change>> {
        batch.iter().map(|place| Ok(self.turn(*place)?.1)).collect()
    }

    /// A row on its way into the inbox, and what it makes of its process.
    fn turn(&self, Place { process, event }: Place) -> Result<(NewInbox, Change)> {
        let mut row = placed(process);
        let mut change =
            start(&self.definition, &InboxRow::received(0, row.clone())).map_err(wrong)?;
        for event in 1..=event {
            row = reply(process, event, change.process.process_id);
            let received = InboxRow::received(0, row.clone());
            let input = Input::Reply(&received);
            change = advance(&self.definition, &change.process, &input, 0.0).map_err(wrong)?;
        }
        Ok((row, change))
    }
}

/// Which row of which process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    process: u64,
    event: usize,
}

/// The data of a process, and the payload of its commands.
#[derive(Serialize, Deserialize)]
struct Order {
    order_id: String,
    note: String,
    references: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Done {
    reference: String,
}

fn command(name: &str, completed: &str) -> Command<Order> {
    command_named(DESTINATION, name, |order: &Order| json!(order))
        .on_named(completed, |order: &mut Order, done: Done| order.references.push(done.reference))
        .timeout(STEP_TIMEOUT)
}

fn placed(process: u64) -> NewInbox {
    let order = Order {
        order_id: format!("order-{process:07}"),
        note: "n".repeat(NOTE_BYTES),
        references: Vec::new(),
    };
    message(process, 0, &order, Headers::default())
}

fn reply(process: u64, event: usize, process_id: Uuid) -> NewInbox {
    let mut headers = Headers::default();
    headers.set("correlation-id", &process_id.to_string());
    let reply = Done { reference: format!("reference-{process}") };
    NewInbox { msg_key: process_id.to_string(), ..message(process, event, &reply, headers) }
}

fn message(process: u64, event: usize, payload: &impl Serialize, headers: Headers) -> NewInbox {
    let event_type = EVENTS[event];
    let message_id = format!("{event_type}-{process}");
    let payload = serde_json::to_string(payload).expect("plain fields become JSON");
    NewInbox {
        source_system: "bench".into(),
        topic: "orders".into(),
        partition_num: 0,
        offset_num: 0,
        key_str: None,
        msg_key: message_id.clone(),
        message_id,
        aggregate_id: None,
        event_type: Some(event_type.into()),
        content: Content::Json(payload),
        headers,
        event_ts: None,
    }
}

fn wrong(problem: Problem) -> anyhow::Error {
    anyhow::anyhow!("{}: {}", problem.code, problem.message)
}
