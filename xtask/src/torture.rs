//! `cargo xtask torture`: crash loops against private servers, and the proof that they would find a bug.

use std::{
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Result, ensure};

use crate::{
    apt,
    command::{self, cargo},
    compiler,
    servers::Servers,
    workspace::Workspace,
};

/// Each breaks one rule, and the checker must find on every store what that does.
const PLANTED: [(&str, &str); 6] = [
    ("no-fence", "rewritten"),
    ("mark-first", "lost"),
    ("no-key-guard", "reordered"),
    // A sender continues after the acknowledgement, perhaps with another process: that one may store first.
    ("acknowledge-first", "lost|reordered"),
    ("drop-unprocessed", "lost"),
    ("blame-message", "undeserved dead letter"),
];
/// Length of a run with a planted bug on each store, in seconds.
const PLANTED_SECONDS: &str = "10";
/// Most runs with a planted bug: it is chance whether a fault meets it.
const PLANTED_RUNS_MAX: usize = 3;

/// As much as a debug build drains in time.
const DEBUG_BACKLOG: &str = "5000";

/// Arguments of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TortureOptions {
    planted: bool,
    /// The debug build instead of the one users have: sooner built, but slower.
    debug: bool,
    /// For the torture program.
    rest: Vec<String>,
}

impl TortureOptions {
    pub(crate) fn parse(args: &[String]) -> Self {
        let has = |name: &str| args.iter().any(|arg| arg == name);
        let (planted, debug) = (has("--bugs"), has("--debug"));
        let less = debug.then_some(["--backlog", DEBUG_BACKLOG]).into_iter().flatten();
        let others = args.iter().filter(|arg| !["--bugs", "--debug"].contains(&arg.as_str()));
        let rest = less.map(str::to_owned).chain(others.cloned()).collect();
        Self { planted, debug, rest }
    }
}

pub(crate) fn run(options: &TortureOptions) -> Result<ExitCode> {
    compiler::ensure()?;
    let workspace = Workspace::load()?;
    let starting = Servers::starting_for_torture(&workspace)?;
    // As users have it, and fast: what has not moved cannot be lost.
    let mut build = cargo(["build", "--workspace", "--all-features", "--bins"]);
    if !options.debug {
        build.arg("--release");
    }
    ensure!(command::succeeds(&mut build)?, "`{}` failed", command::line(&build));
    let servers = starting.ready()?;
    servers.announce()?;
    let built = workspace.target.join(if options.debug { "debug" } else { "release" });
    let good = if options.planted {
        finds_planted_bugs(&servers, &built, &options.rest)?
    } else {
        command::succeeds(torture(&servers, &built).args(&options.rest))?
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every planted bug must turn a short run red, for the right reason.
fn finds_planted_bugs(servers: &Servers, built: &Path, rest: &[String]) -> Result<bool> {
    let mut missed = Vec::new();
    for (bug, finding) in PLANTED {
        println!("\n==> planted: {bug}, to be found: {finding}");
        let mut found = false;
        for _ in 0..PLANTED_RUNS_MAX {
            let mut torture = torture(servers, built);
            torture.arg("--relais").arg(built.join("faulty"));
            torture.args(["--seconds", PLANTED_SECONDS, "--planted", bug, "--expect", finding]);
            found = command::succeeds(torture.args(rest))?;
            if found {
                break;
            }
        }
        missed.extend((!found).then_some(bug));
    }
    println!("\nplanted bugs found: {} of {}", PLANTED.len() - missed.len(), PLANTED.len());
    if !missed.is_empty() {
        println!("not found: {}", missed.join(", "));
    }
    Ok(missed.is_empty())
}

fn torture(servers: &Servers, built: &Path) -> Command {
    let mut torture = alone(&built.join("torture"));
    torture.arg("--relais").arg(built.join("relais"));
    servers.set_variables(&mut torture);
    torture
}

/// Runs it in a mount namespace of its own, so that nothing stays mounted however it ends.
fn alone(program: &Path) -> Command {
    if !apt::is_root() || command::find("unshare").is_none() {
        return Command::new(program);
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--"]).arg(program);
    unshare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_goes_to_the_torture_program() {
        let args = ["--seed", "7", "--bugs"].map(str::to_owned);
        let options = TortureOptions::parse(&args);
        assert!(options.planted && !options.debug);
        assert_eq!(options.rest, ["--seed", "7"]);
    }
}
