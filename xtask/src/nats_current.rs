//! A current NATS server beside Debian's, built by Go from its module proxy into `target`, once.
//!
//! Invariant: the versions are pinned, and the Go that is installed builds: it downloads no other one.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{command, nats, servers::ServerOutcome};

pub(crate) const NAME: &str = "current NATS";
/// The variables of this server, as those of [`nats`].
pub(crate) const VARIABLES: [&str; 3] = [
    "RELAIS_TEST_NATS_CURRENT",
    "RELAIS_TEST_NATS_CURRENT_RESTART",
    "RELAIS_TEST_NATS_CURRENT_SERVER",
];

/// The last releases, and the minor version of Go 1 that each needs.
const RELEASES: [(u32, &str); 3] = [(26, "2.15.2"), (25, "2.12.15"), (23, "2.10.29")];
const MODULE: &str = "github.com/nats-io/nats-server/v2";
const PROGRAM: &str = "nats-server";

/// A hint for machines on which we cannot get it.
const HINT: &str = "install Go 1.23 or later, which needs its module proxy, and run again";

/// Builds it if that is possible. A proxy that cannot be reached is reported as a missing server.
pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    let Some(version) = release() else { return Ok(()) };
    let folder = folder(target, version);
    if folder.join(PROGRAM).is_file() {
        return Ok(());
    }
    let mut go = Command::new("go");
    go.args(["install", &format!("{MODULE}@v{version}")])
        .env("GOBIN", &folder)
        .env("GOTOOLCHAIN", "local")
        // A cross compiler's program would be elsewhere, and does not run here.
        .env_remove("GOOS")
        .env_remove("GOARCH");
    if let Err(error) = command::output(&mut go) {
        println!("cannot build NATS {version}: {error:#}");
    }
    Ok(())
}

pub(crate) fn start(target: &Path) -> Result<ServerOutcome> {
    match program(target) {
        Some(program) => nats::start_program(NAME, &program, VARIABLES),
        None => Ok(ServerOutcome::Missing { name: NAME, why: HINT.to_owned() }),
    }
}

fn program(target: &Path) -> Option<PathBuf> {
    let program = folder(target, release()?).join(PROGRAM);
    program.is_file().then_some(program)
}

fn folder(target: &Path, version: &str) -> PathBuf {
    target.join(format!("{PROGRAM}-{version}"))
}

/// Returns the release that the installed Go builds.
fn release() -> Option<&'static str> {
    command::find("go")?;
    let answer = command::output(Command::new("go").args(["env", "GOVERSION"])).ok()?;
    release_for(&answer)
}

/// Reads for example `go1.26.8`.
fn release_for(go: &str) -> Option<&'static str> {
    let minor = go.trim().strip_prefix("go1.")?;
    let end = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    let minor: u32 = minor[..end].parse().ok()?;
    RELEASES.iter().find(|(needed, _)| minor >= *needed).map(|(_, version)| *version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_that_the_installed_go_builds_is_chosen() {
        assert_eq!(release_for("go1.26.8\n"), Some("2.15.2"));
        assert_eq!(release_for("go1.30"), Some("2.15.2"));
        assert_eq!(release_for("go1.25rc1"), Some("2.12.15"));
        assert_eq!(release_for("go1.24.4"), Some("2.10.29"));
        for old in ["go1.19.8", "devel", ""] {
            assert_eq!(release_for(old), None, "{old}");
        }
    }
}
