//! Crash loops against real processes and servers, with a checker at the end.
//!
//! - `store_run`: one database with everything around it, from the first fault to the checker
//! - `writers`, `sink`: senders and target of messages; `history`: the messages that both know
//! - `node`, `faults`, `disk`: the processes and their faults; `rng`: random numbers from one seed
//! - `flows`: Salesforce, brokers, a service with the library, a target in trouble
//! - `check`: the checker; `figures`, `event_log`: its report
//!
//! Invariant: nothing here uses the inside of relais. Rows are written and read with plain SQL, processes
//! are started as a user starts them.

mod base;
mod check;
mod disk;
mod event_log;
mod faults;
mod figures;
mod flows;
mod history;
mod node;
mod rng;
mod settings;
mod sink;
mod store_run;
mod writers;

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use base::Base;
use clap::{Parser, ValueEnum};
use disk::Disk;
use event_log::EventLog;
use figures::{Minimums, StoreOutcome};
use flows::brokers::{BrokerServer, BrokerServers};
use node::NodeProgram;
use store_run::{FaultTools, RunPlan};

/// Longest phase two (quarantine and some answers of a target make rows wait a minute), and the same with a
/// planted bug, with which it may never end.
const DRAIN_MAX: Duration = Duration::from_secs(120);
const EXPECTED_DRAIN_MAX: Duration = Duration::from_secs(6);

/// Phase one of each store in the mode `ci`, in seconds. On two cores it writes about 900 messages a
/// second with all flows and faults, so 2 × 140 s exceed the minimum of 200,000 by a fifth.
const SECONDS: u64 = 140;
/// The size of a disk that can be filled, without the rows that a run leaves on it: less than a megabyte a
/// second.
const DISK_MEGABYTES: u64 = 1_024;
/// A run of at least this many seconds has minimums.
const SHORT: u64 = 20;

#[derive(Debug, Parser)]
#[command(
    about = "Crash loops with a checker; run by `cargo xtask torture`",
    args_override_self = true
)]
struct TortureArgs {
    /// The program under test
    #[arg(long)]
    relais: PathBuf,
    /// A private server, `postgres://…`; without it only SQLite is tortured
    #[arg(long, env = "RELAIS_TEST_POSTGRES")]
    postgres: Option<String>,
    /// The length of the run, and its minimums
    #[arg(long, value_enum, default_value = "ci")]
    mode: TortureMode,
    /// The seed of all random numbers; random if absent, and printed
    #[arg(long)]
    seed: Option<u64>,
    /// Phase one of each store, in seconds, instead of the mode's
    #[arg(long)]
    seconds: Option<u64>,
    /// Most messages on their way; less for a build or a machine that is slow to drain them
    #[arg(long, default_value_t = 50_000)]
    backlog: u64,
    /// Messages a second into the outbox, spread over the whole run, instead of as many as it takes: for a
    /// long run beside other work
    #[arg(long)]
    rate: Option<u64>,
    /// Processes of relais, instead of six on PostgreSQL and five on SQLite; fewer for a slow machine
    #[arg(long)]
    nodes: Option<usize>,
    /// Lengthens the calm between two storms of faults, and between two restarts of the broker, by this
    /// factor: for a long run beside other work
    #[arg(long, default_value_t = 1)]
    calm: u32,
    /// A planted bug (the program must be `faulty`)
    #[arg(long)]
    planted: Option<String>,
    /// Succeed if, and only if, the checker finds this on every store; `a|b` is either
    #[arg(long)]
    expect: Option<String>,
    /// Write the figures here
    #[arg(long)]
    json: Option<PathBuf>,
    /// A program that restarts the private server as a crash would
    #[arg(long, env = "RELAIS_TEST_POSTGRES_RESTART")]
    restart_postgres: Option<PathBuf>,
    /// A private broker, `HOST:PORT`
    #[arg(long, env = "RELAIS_TEST_KAFKA")]
    kafka: Option<String>,
    /// A program that restarts it as a crash would
    #[arg(long, env = "RELAIS_TEST_KAFKA_RESTART")]
    restart_kafka: Option<PathBuf>,
    /// A private RabbitMQ, `amqp://…`
    #[arg(long, env = "RELAIS_TEST_RABBITMQ")]
    rabbitmq: Option<String>,
    /// A program that restarts it as a crash would
    #[arg(long, env = "RELAIS_TEST_RABBITMQ_RESTART")]
    restart_rabbitmq: Option<PathBuf>,
    /// A private NATS server, `nats://…`
    #[arg(long, env = "RELAIS_TEST_NATS")]
    nats: Option<String>,
    /// A program that restarts it as a crash would
    #[arg(long, env = "RELAIS_TEST_NATS_RESTART")]
    restart_nats: Option<PathBuf>,
    /// libfaketime, for a process whose clock is a day ahead
    #[arg(long, env = "RELAIS_TEST_FAKETIME")]
    faketime: Option<PathBuf>,
    /// Only this store
    #[arg(long, value_enum)]
    store: Option<StoreKind>,
}

impl TortureArgs {
    /// Returns the length of phase one of each store.
    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(SECONDS * self.mode.scale())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TortureMode {
    /// About five minutes
    Ci,
    /// Hours: ten thousand kills, ten million messages
    Release,
}

impl TortureMode {
    /// Returns the factor to the length of a run of continuous integration.
    fn scale(self) -> u64 {
        match self {
            Self::Ci => 1,
            Self::Release => 50,
        }
    }

    fn minimums(self) -> Minimums {
        match self {
            Self::Ci => figures::CI,
            Self::Release => figures::RELEASE,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    Sqlite,
    Postgres,
}

#[tokio::main]
async fn main() -> ExitCode {
    match torture(TortureArgs::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn torture(args: TortureArgs) -> Result<bool> {
    let (seed, started) =
        (args.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0), Instant::now());
    println!("seed {seed}");
    let folder = tempfile::tempdir()?;
    let mut outcomes = Vec::new();
    let mut good = true;
    // One after the other: side by side they take turns at standing still for want of a processor.
    for store in [StoreKind::Postgres, StoreKind::Sqlite] {
        if args.store.is_some_and(|only| only != store) {
            continue;
        }
        let run = StoreRun::start(&args, store, seed, folder.path()).await?;
        let outcome = run.end(args.expect.is_none()).await?;
        good &= outcome.as_ref().is_some_and(|outcome| match &args.expect {
            Some(name) => expected(outcome, name),
            None => outcome.findings.is_empty(),
        });
        outcomes.extend(outcome);
    }
    if args.expect.is_none() {
        good &= hard_enough(&args, &outcomes);
        let verdict = if good { "nothing lost, doubled or reordered" } else { "FAILED" };
        let load = figures::load().unwrap_or_default();
        println!(
            "seed {seed}, {} s, load {load}: {}",
            started.elapsed().as_secs(),
            paint(good, verdict)
        );
    }
    if let Some(file) = &args.json {
        std::fs::write(file, figures::report(&outcomes, seed, started.elapsed(), good)?)?;
    }
    if !good && args.expect.is_none() {
        println!("logs and histories are kept in {}", folder.keep().display());
    }
    Ok(good)
}

/// One store under torture.
struct StoreRun {
    base: Base,
    folder: PathBuf,
    /// Mounted until the tables are kept.
    disk: Option<Arc<Disk>>,
    event_log: EventLog,
    run: tokio::task::JoinHandle<Result<StoreOutcome>>,
}

impl StoreRun {
    async fn start(args: &TortureArgs, store: StoreKind, seed: u64, folder: &Path) -> Result<Self> {
        let folder = folder.join(format!("{store:?}").to_lowercase());
        let disk = folder.join("disk");
        std::fs::create_dir_all(&disk)?;
        let tools = tools(args, store, &disk)?;
        let base = match store {
            StoreKind::Sqlite => Base::sqlite(&disk),
            StoreKind::Postgres => {
                let server = args.postgres.clone();
                Base::postgres(server.context("no PostgreSQL: set RELAIS_TEST_POSTGRES")?).await?
            }
        };
        let relais = args.relais.canonicalize().context("no program at --relais")?;
        let planted = match &args.planted {
            Some(bug) => Some((bug.as_str(), base.url(None)?)),
            None => None,
        };
        let program = NodeProgram::relais(&relais, &folder, planted);
        let event_log = EventLog::new(&folder)?;
        let (disk, plan) = (tools.disk.clone(), plan(args, store, seed, tools));
        let run = tokio::spawn(store_run::run(base.clone(), program, plan, event_log.clone()));
        Ok(Self { base, folder, disk, event_log, run })
    }

    /// Says what came of it; nothing if it could not be carried through.
    async fn end(self, history: bool) -> Result<Option<StoreOutcome>> {
        let Self { base, folder, disk, event_log, run } = self;
        let outcome = match run.await? {
            Ok(outcome) => {
                println!("{}\n{}", outcome.line(), paint(false, &outcome.findings.to_string()));
                Some(outcome)
            }
            Err(error) => {
                println!("{}: {error:#}\n{}", base.name(), node::last_words(&folder));
                None
            }
        };
        let bad = outcome.as_ref().is_none_or(|outcome| !outcome.findings.is_empty());
        if history && bad {
            println!("the end of the history of {}:\n{}", base.name(), event_log.last()?);
            println!("its tables are kept: {}", base.keep(&folder)?);
        } else {
            base.remove().await?;
        }
        drop(disk);
        Ok(outcome)
    }
}

/// Gets what the faults need, or says what is not tortured.
fn tools(args: &TortureArgs, store: StoreKind, disk: &Path) -> Result<FaultTools> {
    let mut tools = FaultTools { brokers: brokers(args)?, ..FaultTools::default() };
    match store {
        StoreKind::Postgres => {
            tools.restart = args.restart_postgres.clone();
            tools.faketime = args.faketime.clone();
            if tools.restart.is_none() {
                missing("a database restarted hard", "set RELAIS_TEST_POSTGRES_RESTART")?;
            }
            if tools.faketime.is_none() {
                missing("a clock that is a day ahead", "set RELAIS_TEST_FAKETIME")?;
            }
        }
        StoreKind::Sqlite => match Disk::mount(disk, DISK_MEGABYTES + args.seconds()) {
            Ok(disk) => tools.disk = Some(Arc::new(disk)),
            Err(error) => println!("NOT TORTURED: a full disk; {error:#}"),
        },
    }
    Ok(tools)
}

fn brokers(args: &TortureArgs) -> Result<BrokerServers> {
    let server = |address: &Option<String>, restart: &Option<PathBuf>, what, hint| {
        let Some(address) = address.clone() else { return missing(what, hint).map(|()| None) };
        Ok(Some(BrokerServer { address, restart: restart.clone() }))
    };
    let (kafka, rabbitmq, nats) = ("records through Kafka", "messages of RabbitMQ", "NATS streams");
    Ok(BrokerServers {
        kafka: server(&args.kafka, &args.restart_kafka, kafka, "set RELAIS_TEST_KAFKA")?,
        rabbitmq: server(
            &args.rabbitmq,
            &args.restart_rabbitmq,
            rabbitmq,
            "set RELAIS_TEST_RABBITMQ",
        )?,
        nats: server(&args.nats, &args.restart_nats, nats, "set RELAIS_TEST_NATS")?,
    })
}

/// Continuous integration must not pass without what it is there to test.
fn missing(what: &str, hint: &str) -> Result<()> {
    ensure!(std::env::var_os("CI").is_none(), "CI is set, and {what} is not to be had: {hint}");
    println!("NOT TORTURED: {what}; {hint}");
    Ok(())
}

fn plan(args: &TortureArgs, store: StoreKind, seed: u64, tools: FaultTools) -> RunPlan {
    let (nodes, sent, heard) = match store {
        StoreKind::Postgres => (6, 170_000, 24_000),
        StoreKind::Sqlite => (5, 180_000, 8_000),
    };
    let seconds = args.seconds();
    // A longer run writes as much a second; a shorter one gets all it can take.
    let scale = (seconds / SECONDS).max(1);
    let time = Duration::from_secs(seconds);
    // A longer run leaves a larger backlog.
    let drain = if args.expect.is_some() { EXPECTED_DRAIN_MAX } else { DRAIN_MAX.max(time / 3) };
    let (sent, heard) = (sent * scale, heard * scale);
    // Writers that are to write all they can are faster than the plan, because they pause at times.
    let (sent, heard, pace) = match args.rate {
        Some(rate) => (rate * seconds, heard * rate * seconds / sent, rate),
        None => (sent, heard, sent / seconds.max(1) * 3),
    };
    let (nodes, calm, backlog) = (args.nodes.unwrap_or(nodes), args.calm, args.backlog);
    RunPlan { seed, time, drain, nodes, calm, backlog, sent, heard, pace, tools }
}

/// A planted bug is found if the checker says what it does; any other failure proves nothing.
fn expected(outcome: &StoreOutcome, name: &str) -> bool {
    let found = name.split('|').any(|name| outcome.findings.count(name) > 0);
    let store = outcome.store;
    println!("{store}: {}", paint(found, if found { "found" } else { "NOT FOUND" }));
    found
}

/// A run in which little happened proves little.
fn hard_enough(args: &TortureArgs, outcomes: &[StoreOutcome]) -> bool {
    let minimums = match args.seconds {
        None if args.store.is_none() => args.mode.minimums(),
        Some(SHORT..) => figures::SHORT,
        _ => {
            println!("a short run: no minimums are asked");
            return true;
        }
    };
    let short = figures::too_easy(outcomes, minimums);
    if !short.is_empty() {
        println!("{}", paint(false, &format!("too easy to prove anything: {}", short.join(", "))));
    }
    short.is_empty()
}

/// Paints the text green or red if the output is a terminal.
fn paint(good: bool, text: &str) -> String {
    if text.is_empty() || !std::io::stdout().is_terminal() {
        return text.to_owned();
    }
    format!("\x1b[{}m{text}\x1b[0m", if good { 32 } else { 31 })
}
