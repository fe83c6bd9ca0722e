//! Light events become contacts and blocks in Salesforce, each exactly once: the program `relais` with
//! the `relais.toml` of this example, and a simulated org that fails rows, loses replies and throttles.
//! Every event is sent twice, one is garbage, and the program is killed in the middle.
//!
//! The events come through Kafka if this is built with the feature `kafka` and `KAFKA_BROKERS` (or
//! `RELAIS_TEST_KAFKA`) names one; otherwise over HTTP. It ends by itself, and well only if proven.

mod events;
mod org;
mod program;
mod tables;

#[cfg_attr(not(feature = "kafka"), path = "no_kafka.rs")]
mod kafka;

use std::time::{Duration, Instant};

use anyhow::ensure;

use self::{events::Feed, org::Org, program::Program, tables::Tables};

const FAMILIES: usize = 20;
const MEMBERS_OF_A_FAMILY: usize = 50;
const BLOCKS_OF_A_FAMILY: usize = 100;
/// Number of delivered rows after which the program is killed.
const KILL_AT: u64 = 300;
/// The longest all of it may take.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let tables = Tables::create(&folder.path().join("families.db"))?;
    let org = Org::start().await?;
    let feed = Feed::open().await?;
    println!("events come {}; the org is {}", feed.describe(), org.url());
    let program = Program::new(folder.path(), &feed, &org.url()).await?;

    let mut running = program.start().await?;
    feed.send_all(running.hook()).await?;
    wait_until("the first rows are delivered", || Ok(tables.dispatched()? >= KILL_AT)).await?;
    running.kill().await?;
    println!("killed the program after {} delivered rows", tables.dispatched()?);

    running = program.start().await?;
    feed.send_all(running.hook()).await?;
    wait_until("everything is delivered", || {
        Ok(tables.dispatched()? == expected() && tables.garbage()? > 0)
    })
    .await?;
    // What a lost reply left open there is swept.
    wait_until("no job is open", || Ok(org.open_jobs() == 0)).await?;
    running.kill().await?;
    feed.close().await;
    prove(&tables, &org)
}

fn expected() -> u64 {
    (FAMILIES * (MEMBERS_OF_A_FAMILY + BLOCKS_OF_A_FAMILY)) as u64
}

/// The tables against the org's own ledger, which counts every write.
fn prove(tables: &Tables, org: &Org) -> anyhow::Result<()> {
    let (contacts, blocks) = (org.records("Contact"), org.records("Block__c"));
    ensure!(contacts == FAMILIES * MEMBERS_OF_A_FAMILY, "{contacts} contacts");
    ensure!(blocks == FAMILIES * BLOCKS_OF_A_FAMILY, "{blocks} blocks");
    let (writes, repeated) = (org.writes(), org.repeated());
    ensure!(repeated == 0, "{repeated} records were written more than once");
    ensure!(writes == expected(), "{writes} writes");
    ensure!(tables.open()? == 0, "rows or jobs are left");
    let refused = tables.tried_again()?;
    ensure!(refused > 0, "no row was refused at first: are the faults on?");
    println!(
        "proven: {contacts} contacts and {blocks} blocks, each written exactly once, although \
         replies were lost, calls throttled and {refused} rows refused at first"
    );
    Ok(())
}

async fn wait_until(
    what: &str,
    mut done: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !done()? {
        ensure!(Instant::now() < end, "within {PATIENCE:?} it did not come to this: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}
