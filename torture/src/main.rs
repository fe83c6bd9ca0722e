//! Crash loops against real processes and servers, with a checker at the end.
//!
//! - `arena`: one database with everything around it, from the first fault to the checker
//! - `writers`, `sink`: those who write, and the one who gets it; `history`: what both sides know
//! - `node`, `faults`, `disk`: the processes, and what is done to them; `dice`: chance from one seed
//! - `flows`: what else of the product takes part: Salesforce, Kafka, a service with the library
//! - `check`: what must hold; `figures`, `diary`: what is told
//!
//! Invariant: nothing here knows relais from the inside. Rows are written and read with plain SQL,
//! processes are started as anybody starts them.

mod arena;
mod base;
mod check;
mod diary;
mod dice;
mod disk;
mod faults;
mod figures;
mod flows;
mod history;
mod node;
mod settings;
mod sink;
mod writers;

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use arena::{Means, Plan};
use base::Base;
use clap::{Parser, ValueEnum};
use diary::Diary;
use disk::Disk;
use figures::{Minimums, Outcome};
use flows::kafka::Broker;
use node::Program;

/// How long phase two may take (quarantine and some answers of a target make rows wait a minute), and
/// with a planted bug, where it may never end.
const DRAIN_MAX: Duration = Duration::from_secs(120);
const EXPECTED_DRAIN_MAX: Duration = Duration::from_secs(6);

/// From so many seconds on, something must have happened.
const SHORT: u64 = 20;

#[derive(Debug, Parser)]
#[command(
    about = "Crash loops with a checker; run by `cargo xtask torture`",
    args_override_self = true
)]
struct Args {
    /// The program under test
    #[arg(long)]
    relais: PathBuf,
    /// A private server, `postgres://…`; without it only SQLite is tortured
    #[arg(long, env = "RELAIS_TEST_POSTGRES")]
    postgres: Option<String>,
    /// How much of it
    #[arg(long, value_enum, default_value = "ci")]
    mode: Mode,
    /// Where chance begins; random if absent, and printed
    #[arg(long)]
    seed: Option<u64>,
    /// Phase one of each store, in seconds, instead of the mode's
    #[arg(long)]
    seconds: Option<u64>,
    /// Most messages on their way; less for a build or a machine that is slow to drain them
    #[arg(long, default_value_t = 50_000)]
    backlog: u64,
    /// A planted bug (the program must be `faulty`)
    #[arg(long)]
    planted: Option<String>,
    /// Succeed if, and only if, the checker finds this on every store
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
    /// libfaketime, for a process whose clock is a day ahead
    #[arg(long, env = "RELAIS_TEST_FAKETIME")]
    faketime: Option<PathBuf>,
    /// Only this store
    #[arg(long, value_enum)]
    store: Option<Store>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Up to four minutes
    Ci,
    /// Hours: ten thousand kills, ten million messages
    Release,
}

impl Mode {
    /// How much longer than a run of continuous integration.
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

    /// The size of a disk that can be filled, in megabytes.
    fn disk(self) -> u64 {
        match self {
            Self::Ci => 1_024,
            Self::Release => 2_048,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Store {
    Sqlite,
    Postgres,
}

#[tokio::main]
async fn main() -> ExitCode {
    match torture(Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn torture(args: Args) -> Result<bool> {
    let (seed, started) =
        (args.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0), Instant::now());
    println!("seed {seed}");
    let folder = tempfile::tempdir()?;
    let mut outcomes = Vec::new();
    let mut good = true;
    // One after the other: side by side they take turns at standing still for want of a processor.
    for store in [Store::Postgres, Store::Sqlite] {
        if args.store.is_some_and(|only| only != store) {
            continue;
        }
        let arena = Arena::start(&args, store, seed, folder.path()).await?;
        let outcome = arena.end(args.expect.is_none()).await?;
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
struct Arena {
    base: Base,
    folder: PathBuf,
    diary: Diary,
    run: tokio::task::JoinHandle<Result<Outcome>>,
}

impl Arena {
    async fn start(args: &Args, store: Store, seed: u64, folder: &Path) -> Result<Self> {
        let folder = folder.join(format!("{store:?}").to_lowercase());
        let disk = folder.join("disk");
        std::fs::create_dir_all(&disk)?;
        let means = means(args, store, &disk)?;
        let base = match store {
            Store::Sqlite => Base::sqlite(&disk),
            Store::Postgres => {
                let server = args.postgres.clone();
                Base::postgres(server.context("no PostgreSQL: set RELAIS_TEST_POSTGRES")?).await?
            }
        };
        let relais = args.relais.canonicalize().context("no program at --relais")?;
        let planted = match &args.planted {
            Some(bug) => Some((bug.as_str(), base.url(None)?)),
            None => None,
        };
        let program = Program::relais(&relais, &folder, planted);
        let diary = Diary::new(&folder)?;
        let plan = plan(args, store, seed, means);
        let run = tokio::spawn(arena::run(base.clone(), program, plan, diary.clone()));
        Ok(Self { base, folder, diary, run })
    }

    /// Says what came of it; nothing if it could not be carried through.
    async fn end(self, history: bool) -> Result<Option<Outcome>> {
        let Self { base, folder, diary, run } = self;
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
            println!("the end of the history of {}:\n{}", base.name(), diary.last()?);
            println!("its tables are kept: {}", base.keep(&folder)?);
        } else {
            base.remove().await?;
        }
        Ok(outcome)
    }
}

/// Gets what the faults need, or says what is not tortured.
fn means(args: &Args, store: Store, disk: &Path) -> Result<Means> {
    let mut means = Means::default();
    match &args.kafka {
        Some(address) => {
            let restart = args.restart_kafka.clone();
            means.kafka = Some(Broker { address: address.clone(), restart });
        }
        None => missing("records through Kafka", "set RELAIS_TEST_KAFKA")?,
    }
    match store {
        Store::Postgres => {
            means.restart = args.restart_postgres.clone();
            means.faketime = args.faketime.clone();
            if means.restart.is_none() {
                missing("a database restarted hard", "set RELAIS_TEST_POSTGRES_RESTART")?;
            }
            if means.faketime.is_none() {
                missing("a clock that is a day ahead", "set RELAIS_TEST_FAKETIME")?;
            }
        }
        Store::Sqlite => match Disk::mount(disk, args.mode.disk()) {
            Ok(disk) => means.disk = Some(Arc::new(disk)),
            Err(error) => println!("NOT TORTURED: a full disk; {error:#}"),
        },
    }
    Ok(means)
}

/// Continuous integration must not pass without what it is there to test.
fn missing(what: &str, hint: &str) -> Result<()> {
    ensure!(std::env::var_os("CI").is_none(), "CI is set, and {what} is not to be had: {hint}");
    println!("NOT TORTURED: {what}; {hint}");
    Ok(())
}

fn plan(args: &Args, store: Store, seed: u64, means: Means) -> Plan {
    let scale = args.mode.scale();
    let (nodes, sent, heard) = match store {
        Store::Postgres => (6, 170_000, 24_000),
        Store::Sqlite => (5, 180_000, 8_000),
    };
    let time = Duration::from_secs(args.seconds.unwrap_or(80 * scale));
    let drain = if args.expect.is_some() { EXPECTED_DRAIN_MAX } else { DRAIN_MAX };
    let (backlog, sent, heard) = (args.backlog, sent * scale, heard * scale);
    Plan { seed, time, drain, nodes, backlog, sent, heard, means }
}

/// A planted bug is found if the checker says what it does; any other failure proves nothing.
fn expected(outcome: &Outcome, name: &str) -> bool {
    let found = outcome.findings.count(name) > 0;
    let store = outcome.store;
    println!("{store}: {}", paint(found, if found { "found" } else { "NOT FOUND" }));
    found
}

/// A run in which little happened proves little.
fn hard_enough(args: &Args, outcomes: &[Outcome]) -> bool {
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

/// Green or red, where a person looks.
fn paint(good: bool, text: &str) -> String {
    if text.is_empty() || !std::io::stdout().is_terminal() {
        return text.to_owned();
    }
    format!("\x1b[{}m{text}\x1b[0m", if good { 32 } else { 31 })
}
