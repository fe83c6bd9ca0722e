//! Figures: a backlog relayed over HTTP to a target on this machine, beside a bare loop with the same client;
//! and messages received over HTTP, routed to the outbox and written to a log.
//!
//! The target shares the machine and this program: its processor time counts on both sides.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use relais::{
    App, DestinationSettings,
    core::{
        extract::{Mapping, Pick},
        route::Route,
    },
    http::{HttpPublisher, HttpPublisherSettings, HttpSource, HttpSourceSettings},
    log::LogPublisher,
};

use crate::{
    cost::{Cost, CostLines, CostReading, CostTargets, NO_TARGETS},
    fixture::{Database, Fixture, PlainRow, Rows},
    http_target,
    options::{Figure, Options},
    relay::{progress, wait_until_settled},
    report::{Entry, Report, Target, Unit},
    workload::{Counter, DESTINATION, ONE, Received},
};

const OUT_TARGET: f64 = 0.6;
/// A request takes longer than a call that does nothing: fewer rows are enough.
const OUT_SHARE: u64 = 4;
const IN_SHARE: u64 = 10;
const IN_CONNECTIONS: usize = 64;
const IN_WAL_TARGET: f64 = 2_300.0;
/// The interval of polls until the last message was delivered.
const POLL_EVERY: Duration = Duration::from_millis(1);

pub(crate) async fn measure<D: Database>(
    database: &D,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    if options.wants(Figure::HttpOut) {
        for at_once in [10, 50] {
            out(database, at_once, options, report).await.context("outbox to HTTP")?;
        }
    }
    if options.wants(Figure::HttpIn) {
        inward(database, options, report).await.context("HTTP to log")?;
    }
    Ok(())
}

/// The results of one side, round by round.
#[derive(Default)]
struct Rounds {
    rates: Vec<f64>,
    costs: Vec<Cost>,
}

async fn out<D: Database>(
    database: &D,
    at_once: usize,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let fixture = database.fixture(&format!("http_{at_once}")).await?;
    let url = format!("http://{}/orders", http_target::start().await?);
    let rows = options.size.rows / OUT_SHARE;
    let (mut bare, mut relais) = (Rounds::default(), Rounds::default());
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} outbox to HTTP, {at_once} at once, round {round}: bare, relais", D::NAME);
        fixture.fill_plain(rows).await?;
        fixture.calm().await?;
        let before = CostReading::take(&fixture).await?;
        bare.rates.push(rows as f64 / post_plain(&fixture, &url, at_once).await?.as_secs_f64());
        bare.costs.push(before.since(&fixture, rows).await?);
        progress(&bare.rates);
        fixture.clear().await?;
        fixture.add(rows, Rows::Pending, ONE).await?;
        fixture.calm().await?;
        let before = CostReading::take(&fixture).await?;
        relais.rates.push(relay(&fixture, &url, at_once, rows).await?);
        relais.costs.push(before.since(&fixture, rows).await?);
        progress(&relais.rates);
    }
    fixture.remove().await?;
    let name = format!("outbox to HTTP, {at_once} at once");
    report.add(Entry {
        store: D::NAME,
        name: name.clone(),
        unit: Unit::PerSecond,
        raw: bare.rates,
        relais: relais.rates,
        target: Target::RatioAtLeast(OUT_TARGET),
        note: "beside a bare loop with the same client".into(),
    });
    let (raw, relais) = (&bare.costs[..], &relais.costs[..]);
    CostLines { store: D::NAME, name: &name, raw, relais, targets: NO_TARGETS }.add_to(report);
    Ok(())
}

/// The bare loop: read a batch, post it in order of key, mark it, until nothing is pending.
async fn post_plain<B: Fixture>(fixture: &B, url: &str, at_once: usize) -> Result<Duration> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let started = Instant::now();
    loop {
        let rows = fixture.read_plain().await?;
        if rows.is_empty() {
            return Ok(started.elapsed());
        }
        let ids = rows.iter().map(|row| row.id).collect();
        stream::iter(by_key(rows))
            .map(|rows| post_in_order(&client, url, rows))
            .buffer_unordered(at_once)
            .try_collect::<Vec<()>>()
            .await?;
        fixture.mark_plain(ids).await?;
    }
}

fn by_key(rows: Vec<PlainRow>) -> Vec<Vec<PlainRow>> {
    let mut keys: HashMap<String, Vec<PlainRow>> = HashMap::new();
    for row in rows {
        keys.entry(row.key.clone()).or_default().push(row);
    }
    keys.into_values().collect()
}

async fn post_in_order(client: &reqwest::Client, url: &str, rows: Vec<PlainRow>) -> Result<()> {
    for row in rows {
        let request = client.post(url).header("message-id", row.id);
        let request = request.header("content-type", "application/json").body(row.payload);
        request.send().await?.error_for_status()?;
    }
    Ok(())
}

async fn relay<B: Fixture>(fixture: &B, url: &str, at_once: usize, rows: u64) -> Result<f64> {
    let mut settings = HttpPublisherSettings::new(url);
    settings.allow_private = true;
    let counter = Arc::new(Counter::before(Box::new(HttpPublisher::new(settings)?), rows));
    let settings = DestinationSettings::default().concurrency(at_once);
    let started = Instant::now();
    let app = App::new(fixture.store());
    let running = app.destination_with(DESTINATION, counter.clone(), settings).start();
    let drained = async {
        let last = counter.reached().await?;
        wait_until_settled(fixture, &last).await?;
        Ok(rows as f64 / started.elapsed().as_secs_f64())
    };
    let drained = drained.await;
    running.stop().await;
    drained
}

async fn inward<D: Database>(database: &D, options: &Options, report: &mut Report) -> Result<()> {
    let fixture = database.fixture("http_in").await?;
    let messages = Received::some(options.size.rows / IN_SHARE);
    let mut rounds = Rounds::default();
    for round in 1..=options.size.relay_rounds {
        eprintln!("{} HTTP to log, round {round}", D::NAME);
        fixture.clear().await?;
        fixture.calm().await?;
        let before = CostReading::take(&fixture).await?;
        rounds.rates.push(receive(&fixture, &messages).await?);
        rounds.costs.push(before.since(&fixture, messages.len() as u64).await?);
        progress(&rounds.rates);
    }
    fixture.remove().await?;
    let name = format!("HTTP to inbox, route, outbox, log, {IN_CONNECTIONS} connections");
    report.add(Entry {
        store: D::NAME,
        name: name.clone(),
        unit: Unit::PerSecond,
        raw: Vec::new(),
        relais: rounds.rates,
        target: Target::None,
        note: "until the last message is delivered".into(),
    });
    let targets = CostTargets { wal_bytes: Target::AtMost(IN_WAL_TARGET), ..NO_TARGETS };
    let (raw, relais) = (&[][..], &rounds.costs[..]);
    CostLines { store: D::NAME, name: &name, raw, relais, targets }.add_to(report);
    Ok(())
}

/// Posts all messages and waits until each is in the log; how many a second.
async fn receive<B: Fixture>(fixture: &B, messages: &Arc<[Received]>) -> Result<f64> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let mapping = Mapping::json("bench").event_type(Pick::header("event-type"));
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let source = HttpSource::bind(HttpSourceSettings::new("orders", listen, mapping)).await?;
    let url = format!("http://{}/orders", source.local_addr());
    let enough = messages.len() as u64;
    let log = LogPublisher::file(folder.path().join("log.jsonl"));
    let counter = Arc::new(Counter::before(Box::new(log), enough));
    let running = App::new(fixture.store())
        .source("orders", Box::new(source))
        .route(Route::new("OrderChanged", DESTINATION))
        .destination(DESTINATION, counter.clone())
        .start();
    let received = async {
        let started = Instant::now();
        post_all(&url, messages).await?;
        while counter.count() < enough {
            tokio::time::sleep(POLL_EVERY).await;
        }
        Ok(enough as f64 / started.elapsed().as_secs_f64())
    };
    let received = received.await;
    running.stop().await;
    received
}

async fn post_all(url: &str, messages: &Arc<[Received]>) -> Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    stream::iter(0..messages.len())
        .map(|at| {
            let message = &messages[at];
            // Message ids are unique in the inbox, and each round has tables without rows.
            let request = client.post(url).header("message-id", &message.id);
            let request = request.header("event-type", "OrderChanged");
            let request = request.header("message-key", &message.key);
            request.header("content-type", "application/json").body(message.payload.clone()).send()
        })
        .buffer_unordered(IN_CONNECTIONS)
        .map(|answer| anyhow::Ok(answer?.error_for_status()?))
        .try_for_each(|_| std::future::ready(Ok(())))
        .await
}
