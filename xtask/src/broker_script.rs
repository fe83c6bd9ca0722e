//! The script `broker` in the directory of a private broker: the only way to start and kill it.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result};

/// The script of brokers that run in Java.
const JAVA: &str = include_str!("../java/broker");

/// Returns the script, read by a shell: a file just written may not be executed while a process that was
/// started meanwhile still has it open.
pub(crate) fn broker(directory: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.arg(directory.join("broker"));
    shell
}

/// Writes the script of a broker that runs in Java, and all it needs except the arguments. A line with
/// `ready` in it means that the broker serves.
pub(crate) fn fill(directory: &Path, java: &Path, jars: &Path, ready: &str) -> Result<()> {
    symlink(java, directory.join("java"))?;
    symlink(jars, directory.join("jars"))?;
    fs::write(directory.join("ready"), ready)?;
    let program =
        OpenOptions::new().write(true).create_new(true).mode(0o700).open(directory.join("broker"));
    program?.write_all(JAVA.as_bytes()).context("cannot write the broker's script")
}

/// Writes the arguments of Java.
pub(crate) fn arguments(directory: &Path, arguments: &[String]) -> Result<()> {
    let lines = arguments.join("\n") + "\n";
    fs::write(directory.join("arguments"), lines).context("cannot write the broker's arguments")
}

/// Checks of a script whose server is a fake.
#[cfg(test)]
pub(crate) mod checks {
    use std::fs;

    use anyhow::Result;

    use super::broker;
    use crate::{command, scratch::Scratch};

    pub(crate) fn call(scratch: &Scratch, argument: Option<&str>) -> Result<String> {
        command::output(broker(scratch.path()).args(argument))
    }

    pub(crate) fn pid(scratch: &Scratch) -> Option<String> {
        fs::read_to_string(scratch.path().join("pid")).ok()
    }

    /// The server serves until it is killed.
    pub(crate) fn is_killed_and_started(scratch: &Scratch) {
        call(scratch, Some("start")).unwrap();
        let first = pid(scratch).unwrap();
        call(scratch, Some("start")).unwrap();
        assert_eq!(pid(scratch).as_ref(), Some(&first), "it runs already");
        call(scratch, None).unwrap();
        assert_ne!(pid(scratch).unwrap(), first);
        call(scratch, Some("stop")).unwrap();
        call(scratch, Some("stop")).unwrap();
        assert_eq!(pid(scratch), None);
        assert!(call(scratch, Some("else")).unwrap_err().to_string().contains("broker stop"));
    }

    /// The server prints `port is taken` and ends.
    pub(crate) fn reports_a_server_that_ends(scratch: &Scratch) {
        let error = call(scratch, Some("start")).unwrap_err().to_string();
        assert!(error.contains("does not start") && error.contains("port is taken"), "{error}");
        assert_eq!(pid(scratch), None);
    }
}
