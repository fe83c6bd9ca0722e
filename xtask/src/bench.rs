//! `cargo xtask bench`: the benchmark program against private servers.

use std::{fs, process::ExitCode};

use anyhow::{Result, ensure};

use crate::{
    command::{self, cargo},
    compiler,
    servers::Servers,
    workspace::Workspace,
};

/// The variable with the file for the figures.
const FIGURES_VARIABLE: &str = "RELAIS_BENCH_JSON";

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    compiler::ensure()?;
    let workspace = Workspace::load()?;
    let figures = workspace.target.join("bench.json");
    if figures.exists() {
        fs::remove_file(&figures)?;
    }
    let servers = Servers::starting_postgres_and_kafka(&workspace)?.ready()?;
    servers.announce()?;
    let mut bench = cargo(["bench", "-p", "relais", "--bench", "throughput"]);
    bench.args(["--features", "sqlite,sqlx-postgres,http,kafka,log", "--"]).args(args);
    bench.env(FIGURES_VARIABLE, &figures);
    servers.set_variables(&mut bench);
    ensure!(command::succeeds(&mut bench)?, "`{}` failed", command::line(&bench));
    if figures.exists() {
        println!("figures: {}", figures.display());
    }
    Ok(ExitCode::SUCCESS)
}
