//! Figures: the same backlog in other shapes, beside the relay of one destination to a publisher that takes
//! many messages a call: one message a call, one hot key, many destinations.
//!
//! All of them take turns, round by round.

use std::{sync::Arc, time::Instant};

use anyhow::{Context, Result};
use relais::{App, DestinationSettings, Publisher};

use crate::{
    cost::{Cost, CostLines, CostReading, NO_TARGETS},
    fixture::{Database, Fixture, Rows, Spread},
    options::{Figure, Options},
    relay::{progress, relay, wait_until_settled},
    report::{Entry, Report, Target, Unit},
    workload::{Counter, DESTINATION, KEYS, ONE},
};

/// Messages that a publisher takes in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Many,
    /// One, with this many calls at once.
    One(usize),
}

/// One shape and what came of it.
struct Shape {
    name: &'static str,
    spread: Spread,
    call: Call,
    /// A share of the rows: where the target is slower, fewer are enough.
    share: u64,
    target: Target,
    rates: Vec<f64>,
    costs: Vec<Cost>,
}

fn shapes(options: &Options) -> Vec<Shape> {
    let hot = Spread { keys: 1, destinations: 1 };
    let many = |destinations| Spread { keys: KEYS, destinations };
    let all = [
        (Figure::Single, "one a call, 10 at once", ONE, Call::One(10), 2, Target::AtLeast(25e3)),
        (Figure::Single, "one a call, 50 at once", ONE, Call::One(50), 1, Target::AtLeast(60e3)),
        (Figure::HotKey, "one key", hot, Call::Many, 2, Target::AtLeast(50e3)),
        (Figure::HotKey, "one key, one a call", hot, Call::One(10), 20, Target::AtLeast(5e3)),
        (
            Figure::Destinations,
            "100 destinations",
            many(100),
            Call::Many,
            1,
            Target::RatioAtLeast(0.9),
        ),
        (
            Figure::Destinations,
            "1,000 destinations",
            many(1_000),
            Call::Many,
            2,
            Target::RatioAtLeast(0.7),
        ),
    ];
    let wanted = all.into_iter().filter(|(figure, ..)| options.wants(*figure));
    wanted
        .map(|(_, name, spread, call, share, target)| {
            let (rates, costs) = (Vec::new(), Vec::new());
            Shape { name, spread, call, share, target, rates, costs }
        })
        .collect()
}

pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let mut shapes = shapes(options);
    if shapes.is_empty() {
        return Ok(());
    }
    let fixture = database.fixture("shapes").await?;
    let (mut raw, rows) = (Vec::new(), options.size.rows);
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} relay, shapes, round {round}", D::NAME);
        load(&fixture, rows, ONE).await?;
        raw.push(relay(&fixture, Counter::new(rows)).await?.rate);
        progress(&raw);
        for shape in &mut shapes {
            eprintln!("{} relay, round {round}: {}", D::NAME, shape.name);
            shape.round(&fixture, rows).await.with_context(|| shape.name)?;
            progress(&shape.rates);
        }
    }
    fixture.remove().await?;
    for shape in shapes {
        let name = format!("relay, {}", shape.name);
        report.add(Entry {
            store: D::NAME,
            name: name.clone(),
            unit: Unit::PerSecond,
            raw: raw.clone(),
            relais: shape.rates,
            target: shape.target,
            note: "beside the relay in batches to one destination".into(),
        });
        let (raw, relais) = (&[][..], &shape.costs[..]);
        CostLines { store: D::NAME, name: &name, raw, relais, targets: NO_TARGETS }.add_to(report);
    }
    Ok(())
}

async fn load<B: Fixture>(fixture: &B, rows: u64, spread: Spread) -> Result<()> {
    fixture.clear().await?;
    fixture.add(rows, Rows::Pending, spread).await?;
    fixture.calm().await
}

impl Shape {
    async fn round<B: Fixture>(&mut self, fixture: &B, rows: u64) -> Result<()> {
        let rows = (rows / self.share).max(1);
        load(fixture, rows, self.spread).await?;
        let before = CostReading::take(fixture).await?;
        self.rates.push(self.drain(fixture, rows).await?);
        self.costs.push(before.since(fixture, rows).await?);
        Ok(())
    }

    async fn drain<B: Fixture>(&self, fixture: &B, rows: u64) -> Result<f64> {
        let (counter, settings) = match self.call {
            Call::Many => (Counter::new(rows), DestinationSettings::default()),
            Call::One(at_once) => {
                (Counter::one_a_call(rows), DestinationSettings::default().concurrency(at_once))
            }
        };
        let counter = Arc::new(counter);
        let started = Instant::now();
        let app = names(self.spread.destinations).into_iter().fold(
            App::new(fixture.store()),
            |app, name| {
                let publisher = Arc::clone(&counter) as Arc<dyn Publisher>;
                app.destination_with(&name, publisher, settings.clone())
            },
        );
        let running = app.start();
        let drained = async {
            let last = counter.reached().await?;
            wait_until_settled(fixture, &last).await?;
            Ok(rows as f64 / started.elapsed().as_secs_f64())
        };
        let drained = drained.await;
        running.stop().await;
        drained
    }
}

/// Returns the names of this many destinations, as the rows have them.
pub(crate) fn names(destinations: u64) -> Vec<String> {
    match destinations {
        1 => vec![DESTINATION.to_owned()],
        many => (0..many).map(|number| format!("{DESTINATION}-{number}")).collect(),
    }
}
