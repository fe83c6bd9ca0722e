//! A NATS server of our own with JetStream and its data in files, on a free loopback port, stopped with
//! its [`Scratch`] directory. The package is not installed: that would start a server of the machine.
//!
//! Invariant: the process is started and killed only by the script `server` of the directory, which
//! the tests may call too; the keeper of the directory ends it, whichever process started it.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    apt, command, ports,
    scratch::{Scratch, Stop},
    servers::{PrivateServer, ServerOutcome},
};

pub(crate) const NAME: &str = "NATS";
/// The variable with the URL of the server, for the tests.
pub(crate) const ADDRESS_VARIABLE: &str = "RELAIS_TEST_NATS";
/// The variable that names the program with which tests kill and start the server.
pub(crate) const RESTART_VARIABLE: &str = "RELAIS_TEST_NATS_RESTART";
/// The variable that names the server's program: tests of logins start servers of their own.
pub(crate) const PROGRAM_VARIABLE: &str = "RELAIS_TEST_NATS_SERVER";

const STOP: Stop = Stop { pid_file: "pid", signal: "KILL" };
const SETTINGS: &str = include_str!("../nats/nats.conf");
const SERVER: &str = include_str!("../nats/server");
/// The login in `nats.conf`.
const LOGIN: &str = "relais:relais-password";

const PACKAGE: &str = "nats-server";
/// Its path in the package.
const PLACE: &str = "usr/sbin/nats-server";

/// A hint for machines on which we cannot get it.
const HINT: &str =
    "nats-server not found: install the package `nats-server`, or run as root where apt-get is";

pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    if place(target).is_some() || !apt::possible() {
        return Ok(());
    }
    apt::unpack(PACKAGE, &target.join(PACKAGE))
}

pub(crate) fn start(target: &Path) -> Result<ServerOutcome> {
    let variables = [ADDRESS_VARIABLE, RESTART_VARIABLE, PROGRAM_VARIABLE];
    match place(target) {
        Some(program) => start_program(NAME, &program, variables),
        None => Ok(ServerOutcome::Missing { name: NAME, why: HINT.to_owned() }),
    }
}

/// Starts a server of this program. The variables are those of its URL, its script and its program.
pub(crate) fn start_program(
    name: &'static str,
    program: &Path,
    variables: [&'static str; 3],
) -> Result<ServerOutcome> {
    let scratch = Scratch::of_server(STOP)?;
    let directory = scratch.path();
    fill(directory, program)?;
    let port = ports::first_that_works(|port| {
        fs::write(directory.join("port"), port.to_string())?;
        command::output(server(directory).arg("start")).map(drop)
    })
    .with_context(|| format!("{name} does not start"))?;
    let values = [
        format!("nats://{LOGIN}@127.0.0.1:{port}"),
        directory.join("server").display().to_string(),
        program.display().to_string(),
    ];
    let variables = variables.into_iter().zip(values).collect();
    let answer = command::output(Command::new(program).arg("--version")).unwrap_or_default();
    let version = version_in(&answer);
    Ok(ServerOutcome::Running(PrivateServer { name, version, port, variables, scratch }))
}

fn place(target: &Path) -> Option<PathBuf> {
    let unpacked = target.join(PACKAGE).join(PLACE);
    let installed = Path::new("/").join(PLACE);
    let found = command::find(PACKAGE).into_iter().chain([installed, unpacked]);
    found.into_iter().find(|program| program.is_file())
}

/// `nats-server: v2.9.10`
fn version_in(answer: &str) -> String {
    let version = answer.trim().rsplit_once(['v', ' ']).map(|(_, version)| version.to_owned());
    version.unwrap_or_else(|| "of an unknown version".to_owned())
}

/// All the script `server` needs, by names that are the same everywhere.
fn fill(directory: &Path, program: &Path) -> Result<()> {
    symlink(program, directory.join("nats-server"))?;
    fs::write(directory.join("nats.conf"), SETTINGS)?;
    let script =
        OpenOptions::new().write(true).create_new(true).mode(0o700).open(directory.join("server"));
    script?.write_all(SERVER.as_bytes()).context("cannot write the server's script")
}

/// The script, read by a shell: a file just written may not be executed while a process that was
/// started meanwhile still has it open.
fn server(directory: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.arg(directory.join("server"));
    shell
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory whose `nats-server` is a shell script, written by another process.
    fn directory(script: &str) -> Scratch {
        let scratch = Scratch::of_server(STOP).unwrap();
        let path = scratch.path();
        fill(path, &path.join("program")).unwrap();
        fs::write(path.join("port"), "20000").unwrap();
        let mut write = Command::new("sh");
        write.current_dir(path).args(["-c", "echo \"$1\" >program && chmod +x program", "write"]);
        command::output(write.arg(format!("#!/bin/sh\n{script}"))).unwrap();
        scratch
    }

    fn call(scratch: &Scratch, argument: Option<&str>) -> Result<String> {
        command::output(server(scratch.path()).args(argument))
    }

    fn pid(scratch: &Scratch) -> Option<String> {
        fs::read_to_string(scratch.path().join("pid")).ok()
    }

    #[test]
    fn the_server_is_killed_and_started_by_its_script() {
        let scratch = directory("echo 'Server is ready'; exec sleep 600");
        call(&scratch, Some("start")).unwrap();
        let first = pid(&scratch).unwrap();
        call(&scratch, Some("start")).unwrap();
        assert_eq!(pid(&scratch).as_ref(), Some(&first), "it runs already");
        call(&scratch, None).unwrap();
        assert_ne!(pid(&scratch).unwrap(), first);
        call(&scratch, Some("stop")).unwrap();
        call(&scratch, Some("stop")).unwrap();
        assert_eq!(pid(&scratch), None);
        assert!(call(&scratch, Some("else")).unwrap_err().to_string().contains("server stop"));
    }

    #[test]
    fn a_server_that_ends_is_an_error_with_what_it_said() {
        let scratch = directory("echo 'port is taken'");
        let error = call(&scratch, Some("start")).unwrap_err().to_string();
        assert!(error.contains("does not start") && error.contains("port is taken"), "{error}");
        assert_eq!(pid(&scratch), None);
    }

    #[test]
    fn the_version_is_read_from_what_it_says() {
        assert_eq!(version_in("nats-server: v2.9.10\n"), "2.9.10");
        assert_eq!(version_in("nats-server: 2.12.1\n"), "2.12.1");
        assert_eq!(version_in(""), "of an unknown version");
    }
}
