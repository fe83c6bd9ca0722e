//! Figures: a backlog relayed to a publisher that does nothing, beside the bare loop; and the same
//! relay where the table or the database makes it harder, beside itself.
//!
//! All of them take turns, round by round.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use relais::App;

use crate::{
    cost::{Cost, CostLines, CostReading, CostTargets, NO_TARGETS},
    fixture::{Database, Fixture, Hold, Rows},
    machine,
    options::{Figure, Options, Size},
    report::{Entry, Report, Target, Unit},
    workload::{Counter, DESTINATION, ONE},
};

const RELAY_TARGET: f64 = 1.0;
const RELAY_TARGETS: CostTargets = CostTargets {
    server_us: Target::AtMost(8.0),
    client_us: Target::None,
    wal_bytes: Target::AtMost(180.0),
};
const HOT_TARGET_PERCENT: f64 = 99.0;
const VACUUM_TARGET_US: f64 = 0.9;
const LONG_TARGET: f64 = 0.9;
const HOLD_TARGET: f64 = 0.9;
const MEMORY_TARGET_MB: f64 = 150.0;
/// The interval of polls for the last rows, …
const POLL_EVERY: Duration = Duration::from_micros(500);
/// … and the maximum number of polls.
const POLLS_MAX: usize = 100_000;

/// One harder case and what came of it.
struct Case<B> {
    figure: Figure,
    name: String,
    target: f64,
    hold: Option<Hold>,
    fixture: B,
    rates: Vec<f64>,
    /// Resident memory in MB, at most, of each round.
    memory: Vec<f64>,
}

pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let mut cases = cases(database, options).await?;
    if cases.is_empty() && !options.wants(Figure::Relay) {
        return Ok(());
    }
    let plain = database.fixture("relay").await?;
    let (mut raw, mut relais) = (Vec::new(), Vec::new());
    let mut costs = RelayCosts::default();
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} relay, round {round}: raw, relais", D::NAME);
        let rows = options.size.rows;
        plain.fill_plain(rows).await?;
        plain.calm().await?;
        let before = CostReading::take(&plain).await?;
        raw.push(rows as f64 / plain.relay_plain().await?.as_secs_f64());
        costs.raw.push(before.since(&plain, rows).await?);
        plain.clear().await?;
        plain.add(rows, Rows::Pending, ONE).await?;
        plain.calm().await?;
        let before = CostReading::take(&plain).await?;
        relais.push(relay(&plain, Counter::new(rows)).await?.rate);
        costs.relais.push(before.since(&plain, rows).await?);
        let before = CostReading::take(&plain).await?;
        plain.vacuum().await?;
        costs.vacuum.push(before.since(&plain, rows).await?);
        costs.hot.extend(plain.hot_share().await?);
        progress(&raw);
        progress(&relais);
        for case in &mut cases {
            eprintln!("{} relay, round {round}: {}", D::NAME, case.name);
            case.round(&options.size).await.with_context(|| case.name.clone())?;
            progress(&case.rates);
        }
    }
    plain.remove().await?;
    report.add(Entry {
        store: D::NAME,
        name: format!("relay, {} rows", options.size.rows),
        unit: Unit::PerSecond,
        raw,
        relais: relais.clone(),
        target: Target::RatioAtLeast(RELAY_TARGET),
        note: String::new(),
    });
    costs.add_to(D::NAME, report);
    for case in cases {
        let fixture = case.report(D::NAME, options, &relais, report);
        fixture.remove().await?;
    }
    Ok(())
}

/// The cost of the relay, round by round.
#[derive(Default)]
struct RelayCosts {
    raw: Vec<Cost>,
    relais: Vec<Cost>,
    vacuum: Vec<Cost>,
    /// Settlements that left the indexes alone, in percent.
    hot: Vec<f64>,
}

impl RelayCosts {
    fn add_to(&self, store: &'static str, report: &mut Report) {
        let (raw, relais) = (&self.raw[..], &self.relais[..]);
        CostLines { store, name: "relay", raw, relais, targets: RELAY_TARGETS }.add_to(report);
        if self.hot.is_empty() {
            return;
        }
        report.add(Entry {
            store,
            name: "relay: settlements that are HOT".into(),
            unit: Unit::Percent,
            raw: Vec::new(),
            relais: self.hot.clone(),
            target: Target::AtLeast(HOT_TARGET_PERCENT),
            note: "by pg_stat_user_tables, which lags by seconds".into(),
        });
        let targets = CostTargets { server_us: Target::AtMost(VACUUM_TARGET_US), ..NO_TARGETS };
        let (raw, relais) = (&[][..], &self.vacuum[..]);
        CostLines { store, name: "relay, VACUUM afterwards", raw, relais, targets }.add_to(report);
    }
}

pub(crate) fn progress(rates: &[f64]) {
    eprintln!("    {:.0} /s", rates.last().copied().unwrap_or_default());
}

async fn cases<D: Database>(database: &D, options: &Options) -> Result<Vec<Case<D::Fixture>>> {
    let many = options.size.rows_many;
    let mut asked = Vec::new();
    if options.wants(Figure::Backlog) || options.wants(Figure::Memory) {
        asked.push((Figure::Backlog, format!("relay, {many} rows pending"), LONG_TARGET, None));
    }
    if options.wants(Figure::Finished) {
        asked.push((Figure::Finished, format!("relay, {many} rows finished"), LONG_TARGET, None));
    }
    for hold in D::HOLDS {
        let (figure, name) = match hold {
            Hold::Snapshot => (Figure::Snapshot, "relay, a snapshot held"),
            Hold::Writer => (Figure::Writer, "relay, a writing transaction open"),
            Hold::Sender => (Figure::Sender, "relay, a sending transaction open"),
        };
        if options.wants(figure) {
            asked.push((figure, name.into(), HOLD_TARGET, Some(*hold)));
        }
    }
    let mut cases = Vec::new();
    for (figure, name, target, hold) in asked {
        let fixture = database.fixture(&format!("{figure:?}").to_lowercase()).await?;
        let (rates, memory) = (Vec::new(), Vec::new());
        cases.push(Case { figure, name, target, hold, fixture, rates, memory });
    }
    Ok(cases)
}

impl<B: Fixture> Case<B> {
    async fn round(&mut self, size: &Size) -> Result<()> {
        let first = self.rates.is_empty();
        match self.figure {
            Figure::Backlog if first => {
                self.fixture.add(size.rows_many, Rows::Pending, ONE).await?
            }
            Figure::Finished if first => {
                self.fixture.add(size.rows_many, Rows::Finished, ONE).await?;
                self.fixture.add(size.rows, Rows::Pending, ONE).await?;
            }
            Figure::Backlog | Figure::Finished => {
                self.fixture.add(size.rows, Rows::Pending, ONE).await?
            }
            _ => {
                self.fixture.clear().await?;
                self.fixture.add(size.rows, Rows::Pending, ONE).await?;
            }
        }
        self.fixture.calm().await?;
        let held = match self.hold {
            Some(hold) => Some(self.fixture.hold(hold).await?),
            None => None,
        };
        machine::forget_peak_memory();
        let relayed = relay(&self.fixture, Counter::new(size.rows)).await;
        if let Some(held) = held {
            self.fixture.let_go(held).await?;
        }
        let relayed = relayed?;
        self.rates.push(relayed.rate);
        self.memory.push(relayed.memory_mb);
        Ok(())
    }

    fn report(
        self,
        store: &'static str,
        options: &Options,
        relay: &[f64],
        report: &mut Report,
    ) -> B {
        if options.wants(self.figure) {
            report.add(Entry {
                store,
                name: self.name,
                unit: Unit::PerSecond,
                raw: relay.to_vec(),
                relais: self.rates,
                target: Target::RatioAtLeast(self.target),
                note: "beside the relay above".into(),
            });
        }
        if self.figure == Figure::Backlog && options.wants(Figure::Memory) {
            report.add(Entry {
                store,
                name: format!("memory, {} rows pending", options.size.rows_many),
                unit: Unit::Megabytes,
                raw: Vec::new(),
                relais: self.memory,
                target: Target::AtMost(MEMORY_TARGET_MB),
                note: "resident, at most, of this whole program".into(),
            });
        }
        self.fixture
    }
}

pub(crate) async fn raw_rate<B: Fixture>(fixture: &B, rows: u64) -> Result<f64> {
    fixture.fill_plain(rows).await?;
    fixture.calm().await?;
    Ok(rows as f64 / fixture.relay_plain().await?.as_secs_f64())
}

pub(crate) struct Relayed {
    pub(crate) rate: f64,
    memory_mb: f64,
}

/// From the start of the workers until what the counter calls enough is settled.
pub(crate) async fn relay<B: Fixture>(fixture: &B, counter: Counter) -> Result<Relayed> {
    let publisher = Arc::new(counter);
    let started = Instant::now();
    let running = App::new(fixture.store()).destination(DESTINATION, publisher.clone()).start();
    let relayed = async {
        let last = publisher.reached().await?;
        let count = publisher.count();
        wait_until_settled(fixture, &last).await?;
        let rate = count as f64 / started.elapsed().as_secs_f64();
        Ok(Relayed { rate, memory_mb: machine::memory_mb()?.1 })
    };
    let relayed = relayed.await;
    running.stop().await;
    relayed
}

pub(crate) async fn wait_until_settled<B: Fixture>(fixture: &B, ids: &[i64]) -> Result<()> {
    for _ in 0..POLLS_MAX {
        if fixture.settled(ids).await? {
            return Ok(());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    anyhow::bail!("published rows were not settled")
}
