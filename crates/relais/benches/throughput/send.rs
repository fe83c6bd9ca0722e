//! Figure: messages sent in the user's own transaction, one commit each, beside a bare INSERT.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::{runtime::Handle, task::JoinHandle};

use crate::{
    fixture::{Database, Fixture, Sender, Write},
    options::Options,
    report::{Entry, Report, Target, Unit, median},
};

const TARGET: f64 = 0.9;
/// Not counted: connections and plans get warm.
const WARM_UP: Duration = Duration::from_millis(200);

/// Measures all numbers of clients; messages a second of the first.
pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<f64> {
    let mut first = None;
    for &clients in D::CLIENTS {
        let fixture = database.fixture(&format!("send_{clients}")).await?;
        let (mut raw, mut relais) = (Vec::new(), Vec::new());
        for round in 1..=options.size.send_rounds {
            eprintln!("{} send, {clients} clients, round {round}", D::NAME);
            raw.push(rate(&fixture, Write::Plain, clients, options.size.send_time).await?);
            relais.push(rate(&fixture, Write::Outbox, clients, options.size.send_time).await?);
            fixture.clear().await?;
        }
        fixture.remove().await?;
        first = first.or(median(&relais));
        let plural = if clients == 1 { "" } else { "s" };
        report.add(Entry {
            store: D::NAME,
            name: format!("send, {clients} client{plural}"),
            unit: Unit::PerSecond,
            raw,
            relais,
            target: Target::RatioAtLeast(TARGET),
            note: String::new(),
        });
    }
    first.context("no number of clients was measured")
}

async fn rate<B: Fixture>(
    fixture: &B,
    write: Write,
    clients: usize,
    time: Duration,
) -> Result<f64> {
    let mut senders = Vec::new();
    for _ in 0..clients {
        senders.push(fixture.sender(write).await?);
    }
    let begin = Instant::now() + WARM_UP;
    let mut tasks = Vec::new();
    for (client, mut sender) in senders.into_iter().enumerate() {
        tasks.push(spawn::<B::Sender, _>(async move {
            let (mut sent, mut key) = (0_u32, client as u64 * 1_000);
            while begin.elapsed() < time {
                key += 1;
                sender.send(key).await?;
                // `begin` lies ahead during the warm-up; only what comes after it counts.
                sent += u32::from(Instant::now() >= begin);
            }
            Ok(f64::from(sent) / begin.elapsed().as_secs_f64())
        }));
    }
    let mut total = 0.0;
    for task in tasks {
        total += task.await??;
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
