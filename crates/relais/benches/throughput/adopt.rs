//! Figures: an application's own outbox table, adopted by relais, beside the same table with the application's own
//! poller. The INSERT is measured by itself, and so are delivery and mark.
//!
//! The table is that of the preset `order-service`, with its two indexes. The poller reads and marks
//! [`POLLER_BATCH`] rows in a commit; it neither orders by key nor retries.

use std::sync::Arc;

use anyhow::Result;
use relais::{
    App,
    adopt::{AdoptDestination, AdoptPreset, Adoption},
};

use crate::{
    cost::{Cost, CostLines, CostReading, NO_TARGETS},
    fixture::{Database, Fixture},
    options::Options,
    relay::wait_until_settled,
    report::Report,
    workload::{Counter, DESTINATION},
};

/// Rows that the application's poller handles in one transaction.
pub(crate) const POLLER_BATCH: i64 = 100;
/// Rows of a round: this share of those of the relay, because each is a commit.
const SHARE: u64 = 20;

/// The database of the figures.
pub(crate) trait AdoptedBench: Fixture {
    /// Creates the application's table, empty and without triggers. Empties the outbox of relais.
    async fn create_application_table(&self) -> Result<()>;
    /// Installs the triggers, and lets the store write results back.
    async fn adopt_table(&self, adoption: Adoption) -> Result<()>;
    /// The application inserts rows, each in a transaction of its own.
    async fn insert_as_application(&self, rows: u64) -> Result<()>;
    /// The application's own poller: reads waiting rows, marks them, commits, until none waits.
    async fn poll_as_application(&self) -> Result<()>;
    /// Returns the number of rows that are marked as sent.
    async fn marked(&self) -> Result<i64>;
}

#[derive(Default)]
struct AdoptCosts {
    plain_insert: Vec<Cost>,
    copied_insert: Vec<Cost>,
    poller: Vec<Cost>,
    relais: Vec<Cost>,
}

pub(crate) async fn measure<D: Database<Fixture: AdoptedBench>>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let (rows, mut costs) = (options.size.rows / SHARE, AdoptCosts::default());
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} adopted table, {rows} rows, round {round}", D::NAME);
        let fixture = database.fixture(&format!("adopt_{round}")).await?;
        costs.round(&fixture, rows).await?;
        fixture.remove().await?;
    }
    let lines = [
        ("adopted table, INSERT", &costs.plain_insert, &costs.copied_insert),
        ("adopted table, deliver and mark", &costs.poller, &costs.relais),
    ];
    for (name, raw, relais) in lines {
        let (store, targets) = (D::NAME, NO_TARGETS);
        CostLines { store, name, raw, relais, targets }.add_to(report);
    }
    Ok(())
}

impl AdoptCosts {
    async fn round<B: AdoptedBench>(&mut self, fixture: &B, rows: u64) -> Result<()> {
        fixture.create_application_table().await?;
        let before = CostReading::take(fixture).await?;
        fixture.insert_as_application(rows).await?;
        self.plain_insert.push(before.since(fixture, rows).await?);
        let before = CostReading::take(fixture).await?;
        fixture.poll_as_application().await?;
        self.poller.push(before.since(fixture, rows).await?);
        all_marked(fixture, rows).await?;

        fixture.create_application_table().await?;
        let to = AdoptDestination::Name(DESTINATION.to_owned());
        fixture.adopt_table(Adoption::new("outbox", AdoptPreset::OrderService, to)).await?;
        let before = CostReading::take(fixture).await?;
        fixture.insert_as_application(rows).await?;
        self.copied_insert.push(before.since(fixture, rows).await?);
        let before = CostReading::take(fixture).await?;
        deliver(fixture, rows).await?;
        self.relais.push(before.since(fixture, rows).await?);
        all_marked(fixture, rows).await
    }
}

/// A round in which a row was left out has measured something else.
async fn all_marked<B: AdoptedBench>(fixture: &B, rows: u64) -> Result<()> {
    let marked = fixture.marked().await?;
    anyhow::ensure!(marked == rows.cast_signed(), "{marked} of {rows} rows are marked");
    Ok(())
}

/// From the start of the workers until every row is marked: that is done in the transaction that settles its copy.
async fn deliver<B: Fixture>(fixture: &B, rows: u64) -> Result<()> {
    let publisher = Arc::new(Counter::new(rows));
    let app = App::new(fixture.store()).destination(DESTINATION, publisher.clone());
    let running = app.follow_adopted().start();
    let delivered = async { wait_until_settled(fixture, &publisher.reached().await?).await };
    let delivered = delivered.await;
    // What is in flight is settled before it ends.
    running.stop().await;
    delivered
}
