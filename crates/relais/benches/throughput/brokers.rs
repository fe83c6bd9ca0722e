//! Figures: a backlog relayed to a queue, beside a bare loop of the same client with confirms; a queue read
//! into the inbox, beside a bare INSERT of the same rows into it and into a plain table.
//!
//! A queue is new in each round. The bare loop has as many messages in flight as one call of relais. The
//! broker shares the machine: what it takes is missing on the side of relais.

pub(crate) mod amqp;
pub(crate) mod nats;
pub(crate) mod rabbitmq;

use std::{sync::Arc, time::Instant};

use anyhow::{Context, Result};
use relais::{
    Publisher,
    core::{
        inspect::InspectExt,
        lane::{Fence, LaneRequest, Scope},
        query::Filter,
        source::Source,
    },
};

use crate::{
    cost::{CostLines, CostReading, NO_TARGETS},
    fixture::{Database, Fixture, Table},
    ingest::ingest,
    kafka::load,
    options::{Figure, Options},
    relay::{progress, relay},
    report::{Entry, Report, Target, Unit},
    workload::{Counter, PATIENCE, Received},
};

const OUT_TARGET: f64 = 0.7;
const IN_TARGET: f64 = 0.6;
/// Messages without a confirm, at most: as many as one call of relais has.
const IN_FLIGHT: usize = 1_000;
/// A quarter of the rows of the relay: brokers with confirms are slower than a table.
const SHARE: u64 = 4;

/// A broker that is measured.
pub(crate) trait BenchBroker: Sized {
    const NAME: &'static str;
    /// The variable with its URL; `cargo xtask bench` starts one and sets it.
    const VARIABLE: &'static str;
    const OUT: Figure;
    const IN: Figure;

    async fn connect(url: &str) -> Result<Self>;
    /// Creates a queue or a stream; its name.
    async fn create(&self) -> Result<String>;
    async fn delete(&self, queue: &str) -> Result<()>;
    /// Writes the rows as another system would, each confirmed, [`IN_FLIGHT`] at once.
    async fn fill(&self, queue: &str, rows: &[Received]) -> Result<()>;
    fn publisher(&self, queue: &str) -> Result<Box<dyn Publisher>>;
    fn source(&self, queue: &str) -> Result<Box<dyn Source>>;
}

/// Measures both directions with one broker.
pub(crate) async fn measure<D: Database, K: BenchBroker>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    if !options.wants(K::OUT) && !options.wants(K::IN) {
        return Ok(());
    }
    let Ok(url) = std::env::var(K::VARIABLE) else {
        let text = format!("{} with {}: set {} to a URL", D::NAME, K::NAME, K::VARIABLE);
        report.left_out(&text);
        return Ok(());
    };
    let broker = K::connect(&url).await?;
    if options.wants(K::OUT) {
        out(database, &broker, options, report).await.context("from the outbox")?;
    }
    if options.wants(K::IN) {
        inward(database, &broker, options, report).await.context("to the inbox")?;
    }
    Ok(())
}

async fn out<D: Database, K: BenchBroker>(
    database: &D,
    broker: &K,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let rows = options.size.rows / SHARE;
    let fixture = database.fixture(&format!("{}_out", K::NAME)).await?;
    let (mut bare, mut bare_costs) = (Vec::new(), Vec::new());
    let (mut nothing, mut relais, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    let received = Received::some(rows);
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} outbox to {}, round {round}: bare, to nothing, relais", D::NAME, K::NAME);
        let queue = broker.create().await?;
        let before = CostReading::take(&fixture).await?;
        let started = Instant::now();
        broker.fill(&queue, &received).await?;
        bare.push(rows as f64 / started.elapsed().as_secs_f64());
        bare_costs.push(before.since(&fixture, rows).await?);
        progress(&bare);
        broker.delete(&queue).await?;
        load(&fixture, rows).await?;
        nothing.push(relay(&fixture, Counter::new(rows)).await?.rate);
        progress(&nothing);
        load(&fixture, rows).await?;
        let queue = broker.create().await?;
        let publisher = broker.publisher(&queue)?;
        // The connection is there before: the bare loop has its own too.
        let some = Filter { limit: 1, ..Filter::default() };
        publisher.publish(&fixture.store().list_outbox(some).await?).await;
        let before = CostReading::take(&fixture).await?;
        relais.push(relay(&fixture, Counter::before(publisher, rows)).await?.rate);
        costs.push(before.since(&fixture, rows).await?);
        progress(&relais);
        broker.delete(&queue).await?;
    }
    fixture.remove().await?;
    let yardsticks = [
        (bare, Target::RatioAtLeast(OUT_TARGET), "a bare loop of the same client with confirms"),
        (nothing, Target::None, "the relay to nothing"),
    ];
    for (raw, target, note) in yardsticks {
        report.add(Entry {
            store: D::NAME,
            name: format!("outbox to {}, {rows} rows", K::NAME),
            unit: Unit::PerSecond,
            raw,
            relais: relais.clone(),
            target,
            note: format!("beside {note}"),
        });
    }
    let name = format!("outbox to {}", K::NAME);
    let (raw, relais, targets) = (&bare_costs[..], &costs[..], NO_TARGETS);
    CostLines { store: D::NAME, name: &name, raw, relais, targets }.add_to(report);
    Ok(())
}

async fn inward<D: Database, K: BenchBroker>(
    database: &D,
    broker: &K,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let rows = Received::some(options.size.rows / SHARE);
    let count = rows.len() as u64;
    let fixture = database.fixture(&format!("{}_in", K::NAME)).await?;
    // The inbox worker finds every lane taken: what is measured is the way into the inbox.
    let fence = Fence { scope: Scope::Inbox, worker: "bench".into() };
    fixture.store().lease_lanes(LaneRequest::new(fence, PATIENCE)).await?;
    let (mut plain, mut inbox, mut relais) = (Vec::new(), Vec::new(), Vec::new());
    let (mut inbox_costs, mut costs) = (Vec::new(), Vec::new());
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} {} to inbox, round {round}: plain, inbox, relais", D::NAME, K::NAME);
        for (table, rates) in [(Table::Plain, &mut plain), (Table::Inbox, &mut inbox)] {
            fixture.clear().await?;
            fixture.calm().await?;
            let before = CostReading::take(&fixture).await?;
            let elapsed = fixture.insert(Arc::clone(&rows), table).await?;
            rates.push(count as f64 / elapsed.as_secs_f64());
            if table == Table::Inbox {
                inbox_costs.push(before.since(&fixture, count).await?);
            }
            progress(rates);
        }
        let queue = broker.create().await?;
        broker.fill(&queue, &rows).await?;
        fixture.clear().await?;
        fixture.calm().await?;
        let before = CostReading::take(&fixture).await?;
        relais.push(ingest(&fixture, broker.source(&queue)?, rows.len()).await?);
        costs.push(before.since(&fixture, count).await?);
        progress(&relais);
        broker.delete(&queue).await?;
    }
    fixture.remove().await?;
    let yardsticks = [(inbox, "a bare INSERT, inbox"), (plain, "a bare INSERT, plain table")];
    for (raw, note) in yardsticks {
        report.add(Entry {
            store: D::NAME,
            name: format!("{} to inbox, {count} rows", K::NAME),
            unit: Unit::PerSecond,
            raw,
            relais: relais.clone(),
            target: Target::RatioAtLeast(IN_TARGET),
            note: format!("beside {note}"),
        });
    }
    let name = format!("{} to inbox", K::NAME);
    let (raw, relais, targets) = (&inbox_costs[..], &costs[..], NO_TARGETS);
    CostLines { store: D::NAME, name: &name, raw, relais, targets }.add_to(report);
    Ok(())
}
