//! Prometheus's own checker of metrics and alert rules, found or unpacked from Debian's package. The
//! package is not installed: that would start a server.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{
    apt, command,
    servers::{ServerOutcome, Tool},
};

pub(crate) const NAME: &str = "promtool";
/// The variable that names the program.
pub(crate) const VARIABLE: &str = "RELAIS_TEST_PROMTOOL";

const PACKAGE: &str = "prometheus";
/// Its path in the package.
const PLACE: &str = "usr/bin/promtool";

/// A hint for machines on which we cannot get it.
const HINT: &str =
    "promtool not found: install the package `prometheus`, or run as root where apt-get is";

pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    if place(target).is_some() || !apt::possible() {
        return Ok(());
    }
    apt::unpack(PACKAGE, &target.join(PACKAGE))
}

pub(crate) fn look(target: &Path) -> ServerOutcome {
    let Some(promtool) = place(target) else {
        return ServerOutcome::Missing { name: NAME, why: HINT.to_owned() };
    };
    let answer = command::output(Command::new(&promtool).arg("--version")).unwrap_or_default();
    let variables = vec![(VARIABLE, promtool.display().to_string())];
    ServerOutcome::Found(Tool { name: NAME, version: version_in(&answer), variables })
}

fn place(target: &Path) -> Option<PathBuf> {
    let unpacked = target.join(PACKAGE).join(PLACE);
    command::find(NAME).or_else(|| unpacked.is_file().then_some(unpacked))
}

/// `promtool, version 2.42.0+ds (branch: debian/sid, …)`.
fn version_in(answer: &str) -> String {
    answer.split_whitespace().nth(2).unwrap_or("of an unknown version").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_it_says() {
        assert_eq!(version_in("promtool, version 2.42.0+ds (branch: x)"), "2.42.0+ds");
        assert_eq!(version_in(""), "of an unknown version");
    }
}
