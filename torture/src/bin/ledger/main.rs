//! A user's service under torture: it keeps a ledger in its own tables, in the transaction of its
//! handler, and runs orders as processes. It is written with the library as a user would write it.
//!
//! - `bookings`: the ledger and its handler, on both stores; `order`: the process
//!
//! Invariant: nothing here helps relais to be right. No statement recognises a repetition, so a handler
//! that takes effect twice shows in the sums.

mod bookings;
mod order;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use relais::{
    App, BreakerPolicy, DestinationSettings, Handler, Mapping, Pick, RetryPolicy, StoreDriver,
    http::{HttpPublisher, HttpPublisherSettings, HttpSource, HttpSourceSettings},
    postgres::{PostgresOptions, PostgresStore},
    sqlite::{SqliteOptions, SqliteStore},
};

/// Kills and lost sessions are no fault of a message: attempts must never run out.
pub(crate) const PATIENT: RetryPolicy =
    RetryPolicy::new(1_000, Duration::from_millis(20), Duration::from_millis(500));

#[derive(Debug, Parser)]
#[command(about = "A service under torture; run by `cargo xtask torture`")]
struct LedgerArgs {
    /// `sqlite:FILE` or `postgres://…`
    #[arg(long)]
    store: String,
    /// The target of the messages about bookings, `http://…`
    #[arg(long)]
    bookings: String,
    /// The target of the commands of orders, `http://…`
    #[arg(long)]
    services: String,
    /// The path of the source
    #[arg(long)]
    hook: String,
    #[arg(long, default_value = "10")]
    lease_seconds: u64,
    #[arg(value_enum)]
    command: LedgerCommand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LedgerCommand {
    /// Makes the tables
    Migrate,
    Run,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = LedgerArgs::parse();
    let (store, handler): (Arc<dyn StoreDriver>, Arc<dyn Handler>) =
        match args.store.strip_prefix("sqlite:") {
            Some(path) => {
                let path = PathBuf::from(path);
                let store = SqliteStore::open(&path, SqliteOptions::default()).await?;
                let handler = relais::sqlite::handler(&store, bookings::on_posted_sqlite);
                (Arc::new(store), handler)
            }
            None => {
                let store = PostgresStore::connect(&args.store, PostgresOptions::default()).await?;
                let handler = relais::postgres::handler(store.pool().clone(), bookings::on_posted);
                (Arc::new(store), handler)
            }
        };
    match args.command {
        LedgerCommand::Migrate => store.migrate().await.map(drop)?,
        LedgerCommand::Run => run(&args, store, handler).await?,
    }
    Ok(())
}

async fn run(
    args: &LedgerArgs,
    store: Arc<dyn StoreDriver>,
    handler: Arc<dyn Handler>,
) -> Result<()> {
    let mapping = Mapping::json("shop")
        .event_type(Pick::payload("/type"))
        .aggregate_id(Pick::payload("/key"));
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let source = HttpSource::bind(HttpSourceSettings::new(&args.hook, listen, mapping)).await?;
    let address = source.local_addr();
    let mut app = App::new(store)
        .source(&args.hook, Box::new(source))
        .handle("Posted", handler)
        .inbox_retry(PATIENT)
        .lease(Duration::from_secs(args.lease_seconds));
    for kind in order::OrderKind::ALL {
        app = app.process(order::definition(kind).context("the definition of an order")?);
    }
    for (name, url) in [(bookings::BOOKINGS, &args.bookings), (order::SERVICES, &args.services)] {
        app = app.destination_with(name, Arc::new(publisher(url)?), destination());
    }
    // Read by the process that started it.
    eprintln!("POST http://{address}/{}", args.hook);
    Ok(app.run().await?)
}

fn publisher(url: &str) -> Result<HttpPublisher> {
    let mut settings = HttpPublisherSettings::new(url);
    settings.allow_private = true;
    Ok(HttpPublisher::new(settings)?)
}

fn destination() -> DestinationSettings {
    let breaker = BreakerPolicy::default().open_for(Duration::from_millis(300));
    DestinationSettings::default().retry(PATIENT).timeout(Duration::from_secs(2)).breaker(breaker)
}
