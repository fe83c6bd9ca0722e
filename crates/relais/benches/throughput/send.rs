//! Figures: a message and a row of the user's in one commit, beside the same with an outbox table of five
//! columns; and what one message costs the server where a hundred share a commit.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::{runtime::Handle, task::JoinHandle};

use crate::{
    cost::{Cost, CostLines, CostReading, CostTargets, NO_TARGETS},
    fixture::{Database, Fixture, Sender, Write},
    options::Options,
    report::{Entry, Report, Target, Unit, median},
};

const TARGET: f64 = 0.92;
const SERVER_TARGET_US: f64 = 40.0;
/// Messages of one commit, where the commit should not count.
const TOGETHER: u64 = 100;
/// Not counted: connections and plans get warm.
const WARM_UP: Duration = Duration::from_millis(200);

/// The results of one way to send, round by round.
#[derive(Default)]
struct Measured {
    rates: Vec<f64>,
    costs: Vec<Cost>,
}

/// Measures all numbers of clients; messages a second of the first.
pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<f64> {
    let mut first = None;
    for &clients in D::CLIENTS {
        let fixture = database.fixture(&format!("send_{clients}")).await?;
        let mut minimal = Measured::default();
        let mut ways: Vec<_> = D::WAYS.iter().map(|way| (*way, Measured::default())).collect();
        for round in 1..=options.size.send_rounds {
            eprintln!("{} send, {clients} clients, round {round}", D::NAME);
            minimal.round(&fixture, Write::Minimal, clients, options).await?;
            for ((write, _), measured) in &mut ways {
                measured.round(&fixture, *write, clients, options).await?;
            }
            fixture.clear().await?;
        }
        fixture.remove().await?;
        let plural = if clients == 1 { "" } else { "s" };
        for ((_, driver), measured) in ways {
            first = first.or(median(&measured.rates));
            let name = format!("send, {driver}, {clients} client{plural}");
            report.add(Entry {
                store: D::NAME,
                name: name.clone(),
                unit: Unit::PerSecond,
                raw: minimal.rates.clone(),
                relais: measured.rates,
                target: Target::RatioAtLeast(TARGET),
                note: "beside a table of five columns".into(),
            });
            let (raw, relais) = (&minimal.costs[..], &measured.costs[..]);
            let targets = NO_TARGETS;
            CostLines { store: D::NAME, name: &name, raw, relais, targets }.add_to(report);
        }
    }
    together(database, options, report).await?;
    first.context("no number of clients was measured")
}

/// Measures what one message costs apart from its commit.
async fn together<D: Database>(database: &D, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = database.fixture("send_together").await?;
    let (mut raw, mut relais) = (Vec::new(), Vec::new());
    for round in 1..=options.size.send_rounds {
        eprintln!("{} send, {TOGETHER} a commit, round {round}", D::NAME);
        for (write, costs) in [(Write::Minimal, &mut raw), (Write::Outbox, &mut relais)] {
            let mut sender = fixture.sender(write).await?;
            for _ in 0..3 {
                sender.send_many(TOGETHER).await?;
            }
            let before = CostReading::take(&fixture).await?;
            let (started, mut sent) = (Instant::now(), 0);
            while started.elapsed() < options.size.send_time {
                sender.send_many(TOGETHER).await?;
                sent += TOGETHER;
            }
            costs.push(before.since(&fixture, sent).await?);
        }
        fixture.clear().await?;
    }
    fixture.remove().await?;
    let name = format!("send, {TOGETHER} a commit");
    let targets = CostTargets { server_us: Target::AtMost(SERVER_TARGET_US), ..NO_TARGETS };
    CostLines { store: D::NAME, name: &name, raw: &raw, relais: &relais, targets }.add_to(report);
    Ok(())
}

impl Measured {
    async fn round<B: Fixture>(
        &mut self,
        fixture: &B,
        write: Write,
        clients: usize,
        options: &Options,
    ) -> Result<()> {
        let senders = senders(fixture, write, clients).await?;
        let before = CostReading::take(fixture).await?;
        let Sent { rate, messages } = send_all(senders, options.size.send_time).await?;
        self.rates.push(rate);
        self.costs.push(before.since(fixture, messages).await?);
        Ok(())
    }
}

/// Opens connections that send.
pub(crate) async fn senders<B: Fixture>(
    fixture: &B,
    write: Write,
    clients: usize,
) -> Result<Vec<B::Sender>> {
    let mut senders = Vec::new();
    for _ in 0..clients {
        senders.push(fixture.sender(write).await?);
    }
    Ok(senders)
}

/// The messages of one round.
pub(crate) struct Sent {
    /// A second, without the warm-up.
    pub(crate) rate: f64,
    /// All of them.
    pub(crate) messages: u64,
}

/// Sends as fast as possible for this time.
pub(crate) async fn send_all<S: Sender + 'static>(senders: Vec<S>, time: Duration) -> Result<Sent> {
    let begin = Instant::now() + WARM_UP;
    let mut tasks = Vec::new();
    for (client, mut sender) in senders.into_iter().enumerate() {
        tasks.push(spawn::<S, _>(async move {
            let (mut sent, mut messages, mut key) = (0_u32, 0_u64, client as u64 * 1_000);
            while begin.elapsed() < time {
                key += 1;
                sender.send(key).await?;
                messages += 1;
                // `begin` lies ahead during the warm-up; only what comes after it counts.
                sent += u32::from(Instant::now() >= begin);
            }
            Ok((f64::from(sent) / begin.elapsed().as_secs_f64(), messages))
        }));
    }
    let mut total = Sent { rate: 0.0, messages: 0 };
    for task in tasks {
        let (rate, messages) = task.await??;
        total.rate += rate;
        total.messages += messages;
    }
    Ok(total)
}

/// Runs a sender on a thread where it blocks no other task.
pub(crate) fn spawn<S: Sender, T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> JoinHandle<Result<T>> {
    if S::BLOCKS {
        let handle = Handle::current();
        tokio::task::spawn_blocking(move || handle.block_on(work))
    } else {
        tokio::spawn(work)
    }
}
