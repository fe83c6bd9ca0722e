//! Figures: from the moment a commit has returned to the moment the publisher has the message; sent
//! through relais in this process, or written by a program that does not know relais.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use relais::App;
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use crate::{
    cost::{Cost, CostLines, CostReading, CostTargets},
    fixture::{Database, Fixture, Sender, Write},
    options::Options,
    report::{Entry, Report, Target, Unit, percentile},
    send::spawn,
    workload::{DESTINATION, Recorder},
};

const OWN_TARGET_MS: f64 = 2.0;
/// Of a message at load, its sender's part included.
const LOADED_TARGETS: CostTargets = CostTargets {
    server_us: Target::AtMost(250.0),
    client_us: Target::AtMost(100.0),
    wal_bytes: Target::None,
};
/// The pause between two messages when nothing else happens.
const CALM_EVERY: Duration = Duration::from_millis(25);
/// The load, unless half of what the machine can do is less.
const LOAD_PER_SECOND: f64 = 500.0;
/// Sent before anything is measured, so that lanes are leased and plans are made.
const WARM_UP_MESSAGES: usize = 20;

/// The number of messages; each sender sends one in this time.
struct Pace {
    senders: usize,
    messages: usize,
    every: Duration,
}

pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    sends_per_second: Option<f64>,
    report: &mut Report,
) -> Result<()> {
    let load = sends_per_second.map_or(LOAD_PER_SECOND, |rate| LOAD_PER_SECOND.min(rate / 2.0));
    let ways = [
        (Write::Outbox, "own process", Some(OWN_TARGET_MS)),
        (Write::Elsewhere, "other process", D::ELSEWHERE_TARGET_MS),
    ];
    for (write, way, target) in ways {
        let calm = Pace { senders: 1, messages: options.size.calm_messages, every: CALM_EVERY };
        let loaded = Pace {
            senders: D::LOAD_SENDERS,
            messages: options.size.loaded_messages,
            every: Duration::from_secs_f64(D::LOAD_SENDERS as f64 / load.max(1.0)),
        };
        for (pace, condition) in [(calm, "idle".to_owned()), (loaded, format!("at {load:.0}/s"))] {
            eprintln!("{} latency, {way}, {condition}", D::NAME);
            let fixture = database.fixture("latency").await?;
            let delays = delays(&fixture, write, &pace).await;
            fixture.remove().await?;
            let (delays, cost) = delays?;
            let at = |share| percentile(&delays, share).unwrap_or_default();
            report.add(Entry {
                store: D::NAME,
                name: format!("latency p50, {way}, {condition}"),
                unit: Unit::Millis,
                raw: Vec::new(),
                target: target.map_or(Target::None, Target::AtMost),
                note: format!("p99 {:.2} ms, max {:.2} ms", at(0.99), at(1.0)),
                relais: delays,
            });
            if condition != "idle" {
                let name = format!("latency, {way}, {condition}");
                let (raw, relais, targets) = (&[][..], &[cost][..], LOADED_TARGETS);
                CostLines { store: D::NAME, name: &name, raw, relais, targets }.add_to(report);
            }
        }
    }
    Ok(())
}

/// Milliseconds from commit to publish, of each message; and what one cost.
async fn delays<B: Fixture>(fixture: &B, write: Write, pace: &Pace) -> Result<(Vec<f64>, Cost)> {
    let publisher = Arc::new(Recorder::default());
    let running = App::new(fixture.store()).destination(DESTINATION, publisher.clone()).start();
    let measured = async {
        let warm = Pace { senders: 1, messages: WARM_UP_MESSAGES, every: CALM_EVERY };
        let mut sent = send(fixture, write, &warm).await?.len();
        publisher.wait_for(sent).await?;
        let before = CostReading::take(fixture).await?;
        let commits = send(fixture, write, pace).await?;
        sent += commits.len();
        publisher.wait_for(sent).await?;
        let cost = before.since(fixture, commits.len() as u64).await?;
        let delays: Result<Vec<f64>> = commits
            .iter()
            .map(|(id, committed)| {
                let came = publisher.came(id).context("a message came under another id")?;
                // The relay may see a commit before the sender has heard of it: no delay.
                Ok(came.saturating_duration_since(*committed).as_secs_f64() * 1e3)
            })
            .collect();
        Ok((delays?, cost))
    };
    let measured = measured.await;
    running.stop().await;
    measured
}

async fn send<B: Fixture>(fixture: &B, write: Write, pace: &Pace) -> Result<Vec<(Uuid, Instant)>> {
    let mut tasks = Vec::new();
    for number in 0..pace.senders {
        let mut sender = fixture.sender(write).await?;
        let (count, every) = (pace.messages / pace.senders, pace.every);
        tasks.push(spawn::<B::Sender, _>(async move {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut sent = Vec::with_capacity(count);
            for message in 0..count {
                ticks.tick().await;
                let id = sender.send((number * count + message) as u64).await?;
                sent.push((id, Instant::now()));
            }
            Ok(sent)
        }));
    }
    let mut commits = Vec::new();
    for task in tasks {
        commits.extend(task.await??);
    }
    Ok(commits)
}
