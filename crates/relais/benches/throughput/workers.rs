//! Figure: one backlog shared by four workers, each with a store and connections of its own, beside one worker.
//!
//! The workers are in one program here; for the database they are four.

use std::{sync::Arc, time::Instant};

use anyhow::Result;
use relais::{App, Publisher};

use crate::{
    cost::{CostLines, CostReading, NO_TARGETS},
    fixture::{Database, Fixture, Rows},
    options::Options,
    relay::{progress, wait_until_settled},
    report::{Entry, Report, Target, Unit},
    workload::{Counter, DESTINATION, ONE},
};

const WORKERS: usize = 4;
const TARGET: f64 = 1.0;

pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let fixture = database.fixture("workers").await?;
    let (mut rates, mut costs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let rows = options.size.rows;
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} workers, round {round}: one, {WORKERS}", D::NAME);
        for (which, workers) in [1, WORKERS].into_iter().enumerate() {
            fixture.clear().await?;
            fixture.add(rows, Rows::Pending, ONE).await?;
            fixture.calm().await?;
            let before = CostReading::take(&fixture).await?;
            rates[which].push(drain(&fixture, rows, workers).await?);
            costs[which].push(before.since(&fixture, rows).await?);
            progress(&rates[which]);
        }
    }
    fixture.remove().await?;
    let name = format!("relay, {WORKERS} workers");
    let [raw, relais] = rates;
    report.add(Entry {
        store: D::NAME,
        name: name.clone(),
        unit: Unit::PerSecond,
        raw,
        relais,
        target: Target::RatioAtLeast(TARGET),
        note: "beside one worker".into(),
    });
    let (raw, relais) = (&costs[0][..], &costs[1][..]);
    CostLines { store: D::NAME, name: &name, raw, relais, targets: NO_TARGETS }.add_to(report);
    Ok(())
}

async fn drain<B: Fixture>(fixture: &B, rows: u64, workers: usize) -> Result<f64> {
    let counter = Arc::new(Counter::new(rows));
    let mut stores = Vec::new();
    for _ in 0..workers {
        stores.push(fixture.another_store().await?);
    }
    let started = Instant::now();
    let start = |store| {
        let publisher = Arc::clone(&counter) as Arc<dyn Publisher>;
        App::new(store).destination(DESTINATION, publisher).start()
    };
    let running: Vec<_> = stores.into_iter().map(start).collect();
    let drained = async {
        let last = counter.reached().await?;
        wait_until_settled(fixture, &last).await?;
        Ok(rows as f64 / started.elapsed().as_secs_f64())
    };
    let drained = drained.await;
    for one in running {
        one.stop().await;
    }
    drained
}
