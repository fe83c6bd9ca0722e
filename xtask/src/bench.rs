//! `cargo xtask bench`: the benchmark program against private servers.

use std::{fs, process::ExitCode};

use anyhow::{Result, ensure};

use crate::{
    command::{self, cargo},
    compiler,
    servers::{BenchBroker, Servers},
    workspace::Workspace,
};

/// The variable with the file for the figures.
const FIGURES_VARIABLE: &str = "RELAIS_BENCH_JSON";

/// The features of the program.
const FEATURES: &str = "sqlite,sqlx-postgres,amqp,http,kafka,log,nats,rabbitmq";

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    compiler::ensure()?;
    let workspace = Workspace::load()?;
    let figures = workspace.target.join("bench.json");
    if figures.exists() {
        fs::remove_file(&figures)?;
    }
    let servers = Servers::starting_for_bench(&workspace, &asked_brokers(args))?.ready()?;
    servers.announce()?;
    let mut bench = cargo(["bench", "-p", "relais", "--bench", "throughput"]);
    bench.args(["--features", FEATURES, "--"]).args(args);
    bench.env(FIGURES_VARIABLE, &figures);
    servers.set_variables(&mut bench);
    ensure!(command::succeeds(&mut bench)?, "`{}` failed", command::line(&bench));
    if figures.exists() {
        println!("figures: {}", figures.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the brokers that the figures of `--only` need, or all: an idle broker costs processor time.
fn asked_brokers(args: &[String]) -> Vec<BenchBroker> {
    let only = args.iter().position(|arg| arg == "--only").and_then(|at| args.get(at + 1));
    let is_asked = |broker: &BenchBroker| {
        only.is_none_or(|only| only.split(',').any(|name| name.starts_with(broker.prefix())))
    };
    BenchBroker::ALL.into_iter().filter(is_asked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brokers_of_the_asked_figures_are_started() {
        let asked = |args: &[&str]| {
            asked_brokers(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(asked(&["--quick"]), BenchBroker::ALL);
        assert_eq!(asked(&["--quick", "--only", "send,relay"]), []);
        assert_eq!(
            asked(&["--only", "send,nats-in,amqp-out"]),
            [BenchBroker::Nats, BenchBroker::Artemis]
        );
    }
}
