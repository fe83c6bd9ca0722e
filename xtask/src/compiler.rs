//! Programs that the build and the tests need. The feature `kafka` compiles librdkafka, which is C with a
//! makefile of its own and links the OpenSSL of the system. A test pastes a `curl` line into a shell,
//! another one needs a terminal (`script`).

use std::process::Command;

use anyhow::{Result, bail};

use crate::{apt, command};

/// A program, and the package of Debian that brings it.
const PROGRAMS: [(&str, &str); 6] = [
    ("cc", "gcc"),
    ("c++", "g++"),
    ("make", "make"),
    ("pkg-config", "pkg-config"),
    ("curl", "curl"),
    ("script", "bsdutils"),
];
/// The headers of OpenSSL.
const OPENSSL: &str = "libssl-dev";

/// Makes sure that `--all-features` can be compiled and tested, by installing where that is possible.
pub(crate) fn ensure() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    if apt::possible() {
        return apt::install(&missing);
    }
    let packages = missing.join(" ");
    bail!("cannot build or test all features; install the packages: {packages}")
}

fn missing() -> Vec<&'static str> {
    let absent = PROGRAMS.into_iter().filter(|(program, _)| command::find(program).is_none());
    let mut packages: Vec<_> = absent.map(|(_, package)| package).collect();
    if command::output(Command::new("pkg-config").args(["--exists", "openssl"])).is_err() {
        packages.push(OPENSSL);
    }
    packages
}
