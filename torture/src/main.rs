//! Crash loops against real processes and servers, with a checker at the end.
//!
//! - `arena`: one database with everything around it, from the first fault to the checker
//! - `writers`, `sink`: those who write, and the one who gets it; `history`: what both sides know
//! - `node`, `faults`: the processes, and what is done to them; `dice`: chance from one seed
//! - `check`: what must hold
//!
//! Invariant: nothing here knows relais from the inside. Rows are written and read with plain SQL,
//! processes are started as anybody starts them.

mod arena;
mod base;
mod check;
mod dice;
mod faults;
mod history;
mod node;
mod settings;
mod sink;
mod writers;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use arena::{Outcome, Plan};
use base::Base;
use clap::{Parser, ValueEnum};
use node::Program;

#[derive(Debug, Parser)]
#[command(about = "Crash loops with a checker; run by `cargo xtask torture`")]
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
    /// Phase one, in seconds, instead of the mode's
    #[arg(long)]
    seconds: Option<u64>,
    /// A fault to build in (the program must be built with the feature `planted-bugs`)
    #[arg(long)]
    planted: Option<String>,
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
    let seed = args.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    println!("seed {seed}");
    let mut arenas = Vec::new();
    let folder = tempfile::tempdir()?;
    for store in [Store::Postgres, Store::Sqlite] {
        if args.store.is_some_and(|only| only != store) {
            continue;
        }
        let name = format!("{store:?}").to_lowercase();
        let place = folder.path().join(&name);
        std::fs::create_dir(&place)?;
        let base = match store {
            Store::Sqlite => Base::sqlite(&place),
            Store::Postgres => {
                let server = args.postgres.clone();
                Base::postgres(server.context("no PostgreSQL: set RELAIS_TEST_POSTGRES")?).await?
            }
        };
        let program =
            Program { relais: args.relais.clone(), folder: place, planted: args.planted.clone() };
        let plan = plan(&args, store, seed);
        arenas.push((base.clone(), program.clone(), tokio::spawn(arena::run(base, program, plan))));
    }
    let mut outcomes = Vec::new();
    let mut good = true;
    for (base, program, run) in arenas {
        match run.await? {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => {
                good = false;
                println!("{}: {error:#}\n{}", base.name(), node::last_words(&program.folder));
            }
        }
        base.remove().await?;
    }
    for outcome in &outcomes {
        println!("{}", line(outcome));
        print!("{}", outcome.findings);
        good &= outcome.findings.is_empty() && hard_enough(outcome, args.mode);
    }
    println!("seed {seed}: {}", if good { "nothing lost, doubled or reordered" } else { "FAILED" });
    Ok(good)
}

fn plan(args: &Args, store: Store, seed: u64) -> Plan {
    let scale = match args.mode {
        Mode::Ci => 1,
        Mode::Release => 50,
    };
    let (nodes, sent, heard) = match store {
        Store::Postgres => (4, 160_000, 20_000),
        Store::Sqlite => (3, 40_000, 5_000),
    };
    let time = Duration::from_secs(args.seconds.unwrap_or(170 * scale));
    Plan { seed, time, nodes, sent: sent * scale, heard: heard * scale }
}

/// The figures of one store, in one line.
fn line(outcome: &Outcome) -> String {
    let Outcome {
        store,
        findings,
        messages,
        rolled_back,
        duplicates,
        kills,
        zombies,
        refusals,
        network,
        sessions,
        unanswered,
        busy,
        drained_in,
    } = outcome;
    let of = |name| findings.count(name);
    format!(
        "{store}: {messages} messages, {kills} kills, {zombies} zombies ({refusals} fence refusals), \
         {network} network faults, {sessions} sessions ended, {unanswered} posts unanswered, {busy} calls \
         refused, {duplicates} copies, {rolled_back} rolled back | lost {}, phantom {}, double effect {}, \
         reordered {}, rewritten {}, stranded {}, left locked {} | drained in {drained_in:.1?}",
        of("lost"),
        of("phantom"),
        of("double effect"),
        of("reordered"),
        of("rewritten"),
        of("stranded"),
        of("left locked"),
    )
}

/// A run in which little happened proves little.
fn hard_enough(outcome: &Outcome, mode: Mode) -> bool {
    let (kills, zombies) = match mode {
        Mode::Ci => (20, 10),
        Mode::Release => (1_000, 200),
    };
    let hard = outcome.kills >= kills && outcome.zombies >= zombies && outcome.duplicates > 0;
    if !hard {
        println!("{}: too easy to prove anything", outcome.store);
    }
    hard
}
