//! Figure: the most that producers can send while a relay in the same process delivers it, beside the same
//! producers without one.

use std::sync::Arc;

use anyhow::{Context, Result};
use relais::App;

use crate::{
    cost::{CostLines, CostReading, NO_TARGETS},
    fixture::{Database, Fixture, Write},
    options::Options,
    report::{Entry, Report, Target, Unit},
    send::{send_all, senders},
    workload::{DESTINATION, Recorder},
};

const TARGET: f64 = 0.9;

pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let producers = *D::CLIENTS.last().context("no number of clients")?;
    let fixture = database.fixture("live").await?;
    let (mut raw, mut relais) = (Vec::new(), Vec::new());
    let (mut raw_costs, mut costs) = (Vec::new(), Vec::new());
    for round in 1..=options.size.send_rounds {
        eprintln!("{} live, round {round}: without a relay, with one", D::NAME);
        let alone = senders(&fixture, Write::Outbox, producers).await?;
        let before = CostReading::take(&fixture).await?;
        let sent = send_all(alone, options.size.send_time).await?;
        raw_costs.push(before.since(&fixture, sent.messages).await?);
        raw.push(sent.rate);
        fixture.clear().await?;
        let publisher = Arc::new(Recorder::default());
        let running = App::new(fixture.store()).destination(DESTINATION, publisher.clone()).start();
        let live = async {
            let live = senders(&fixture, Write::Outbox, producers).await?;
            let before = CostReading::take(&fixture).await?;
            let sent = send_all(live, options.size.send_time).await?;
            publisher.wait_for(usize::try_from(sent.messages)?).await?;
            costs.push(before.since(&fixture, sent.messages).await?);
            Ok::<_, anyhow::Error>(sent.rate)
        };
        let live = live.await;
        running.stop().await;
        relais.push(live?);
        fixture.clear().await?;
    }
    fixture.remove().await?;
    let name = format!("live, {producers} producers");
    report.add(Entry {
        store: D::NAME,
        name: name.clone(),
        unit: Unit::PerSecond,
        raw,
        relais,
        target: Target::RatioAtLeast(TARGET),
        note: "beside the same producers without a relay".into(),
    });
    let (raw, relais) = (&raw_costs[..], &costs[..]);
    CostLines { store: D::NAME, name: &name, raw, relais, targets: NO_TARGETS }.add_to(report);
    Ok(())
}
