//! `cargo xtask bench`: the benchmark program against a private PostgreSQL.

use std::{fs, process::ExitCode};

use anyhow::{Result, ensure};

use crate::{
    command::{self, cargo},
    postgres::{ADDRESS_VARIABLE, Server},
    workspace::Workspace,
};

/// Tells the benchmark where its figures go.
const FIGURES_VARIABLE: &str = "RELAIS_BENCH_JSON";

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let figures = Workspace::load()?.target.join("bench.json");
    if figures.exists() {
        fs::remove_file(&figures)?;
    }
    let server = Server::start()?;
    let mut bench = cargo(["bench", "-p", "relais", "--bench", "throughput"]);
    bench.args(["--features", "sqlite,postgres", "--"]).args(args);
    bench.env(FIGURES_VARIABLE, &figures);
    match &server {
        Some(server) => {
            println!("PostgreSQL {} (private, port {})", server.version, server.port);
            bench.env(ADDRESS_VARIABLE, server.url());
        }
        None => println!("NOT MEASURED: PostgreSQL; no server programs found on this machine"),
    }
    ensure!(command::succeeds(&mut bench)?, "`{}` failed", command::line(&bench));
    if figures.exists() {
        println!("figures: {}", figures.display());
    }
    Ok(ExitCode::SUCCESS)
}
