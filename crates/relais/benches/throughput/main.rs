//! The cost of relais beside the bare database, measured in one run on one machine.
//!
//! Invariant: a figure is a ratio to something measured in the same run, in turns, with the same
//! driver, durability and row width. No time is ever asserted; a missed target is shown.
//!
//! See docs/benchmarks.md. Read in this order: [`options`], [`fixture`] (what a database must offer),
//! [`cost`], [`send`], [`relay`], [`adopt`], [`shapes`], [`workers`], [`live`], [`latency`], [`idle`], [`process`],
//! [`http`], [`kafka`], [`brokers`], [`console`] (the figures), [`report`].

mod adopt;
mod brokers;
mod console;
mod cost;
mod fixture;
mod http;
mod http_target;
mod idle;
mod ingest;
mod kafka;
mod latency;
mod live;
mod machine;
mod options;
mod postgres;
mod process;
mod relay;
mod report;
mod send;
mod shapes;
mod sqlite;
mod workers;
mod workload;

use std::process::ExitCode;

use anyhow::{Context, Result};

use self::{
    fixture::Database,
    options::{Figure, Options, StoreName},
    report::Report,
};

/// The variable with the URL of PostgreSQL; `cargo xtask bench` starts one and sets it.
const POSTGRES_VARIABLE: &str = "RELAIS_TEST_POSTGRES";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` runs this program too, without the word that `cargo bench` adds.
    if !args.iter().any(|arg| arg == "--bench") {
        println!("not measured: use `cargo xtask bench`");
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(&args) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem:#}\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("benchmark: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(measure_all(options));
    println!("{}", report.table());
    report.write(&options.json)?;
    println!("figures: {}", options.json.display());
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure_all(options: &Options) -> Report {
    let mut report = Report::new(options);
    if options.wants_store(StoreName::Sqlite) {
        match sqlite::Sqlite::new() {
            Ok(database) => measure(&database, options, &mut report).await,
            Err(error) => report.failed("sqlite", &error),
        }
    }
    if options.wants_store(StoreName::Postgres) {
        match std::env::var(POSTGRES_VARIABLE) {
            Ok(url) => match postgres::Postgres::connect(&url).await {
                Ok(database) => {
                    measure(&database, options, &mut report).await;
                    if let Err(error) = database.clean_up().await {
                        report.failed("postgres, removing the schemas", &error);
                    }
                }
                Err(error) => report.failed("postgres", &error),
            },
            Err(_) => report.left_out(&format!("postgres: set {POSTGRES_VARIABLE} to a URL")),
        }
    }
    report
}

async fn measure<D: Database<Fixture: process::Bare + adopt::AdoptedBench>>(
    database: &D,
    options: &Options,
    report: &mut Report,
) {
    match database.describe().await.context("no answer") {
        Ok(version) => report.store(D::NAME, &version),
        Err(error) => return report.failed(D::NAME, &error),
    }
    let mut sends_per_second = None;
    if options.wants(Figure::Send) {
        match send::measure(database, options, report).await {
            Ok(rate) => sends_per_second = Some(rate),
            Err(error) => report.failed(&format!("{} send", D::NAME), &error),
        }
    }
    if let Err(error) = relay::measure(database, options, report).await {
        report.failed(&format!("{} relay", D::NAME), &error);
    }
    if options.wants(Figure::Adopt)
        && let Err(error) = adopt::measure(database, options, report).await
    {
        report.failed(&format!("{} adopted table", D::NAME), &error);
    }
    if let Err(error) = shapes::measure(database, options, report).await {
        report.failed(&format!("{} relay in other shapes", D::NAME), &error);
    }
    if options.wants(Figure::Workers)
        && let Err(error) = workers::measure(database, options, report).await
    {
        report.failed(&format!("{} workers", D::NAME), &error);
    }
    if options.wants(Figure::Live)
        && let Err(error) = live::measure(database, options, report).await
    {
        report.failed(&format!("{} live", D::NAME), &error);
    }
    if options.wants(Figure::Latency)
        && let Err(error) = latency::measure(database, options, sends_per_second, report).await
    {
        report.failed(&format!("{} latency", D::NAME), &error);
    }
    if options.wants(Figure::Idle)
        && let Err(error) = idle::measure(database, options, report).await
    {
        report.failed(&format!("{} idle", D::NAME), &error);
    }
    if options.wants(Figure::Process)
        && let Err(error) = process::measure(database, options, report).await
    {
        report.failed(&format!("{} process", D::NAME), &error);
    }
    if options.wants(Figure::Console)
        && let Err(error) = console::measure(database, options, report).await
    {
        report.failed(&format!("{} console", D::NAME), &error);
    }
    if let Err(error) = http::measure(database, options, report).await {
        report.failed(&format!("{} with HTTP", D::NAME), &error);
    }
    if let Err(error) = kafka::measure(database, options, report).await {
        report.failed(&format!("{} with kafka", D::NAME), &error);
    }
    with_broker::<D, brokers::rabbitmq::BenchRabbit>(database, options, report).await;
    with_broker::<D, brokers::nats::BenchNats>(database, options, report).await;
    with_broker::<D, brokers::amqp::BenchAmqp>(database, options, report).await;
}

async fn with_broker<D: Database, K: brokers::BenchBroker>(
    database: &D,
    options: &Options,
    report: &mut Report,
) {
    if let Err(error) = brokers::measure::<D, K>(database, options, report).await {
        report.failed(&format!("{} with {}", D::NAME, K::NAME), &error);
    }
}
