//! PgBouncer, found or unpacked from Debian's package. The package is not installed: that would start a
//! server of the machine. Only the libraries it needs are.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{
    apt, command,
    servers::{ServerOutcome, Tool},
};

pub(crate) const NAME: &str = "PgBouncer";
/// The variable that names the program.
pub(crate) const VARIABLE: &str = "RELAIS_TEST_PGBOUNCER";

const PACKAGE: &str = "pgbouncer";
const LIBRARIES: [&str; 2] = ["libevent-2.1-7", "libc-ares2"];
/// Its path in the package.
const PLACE: &str = "usr/sbin/pgbouncer";

/// A hint for machines on which we cannot get it.
const HINT: &str =
    "pgbouncer not found: install the package `pgbouncer`, or run as root where apt-get is";

pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    if place(target).is_some() || !apt::possible() {
        return Ok(());
    }
    apt::install(&LIBRARIES)?;
    apt::unpack(PACKAGE, &target.join(PACKAGE))
}

pub(crate) fn look(target: &Path) -> ServerOutcome {
    let Some(program) = place(target) else {
        return ServerOutcome::Missing { name: NAME, why: HINT.to_owned() };
    };
    let answer = command::output(Command::new(&program).arg("--version")).unwrap_or_default();
    let variables = vec![(VARIABLE, program.display().to_string())];
    ServerOutcome::Found(Tool { name: NAME, version: version_in(&answer), variables })
}

fn place(target: &Path) -> Option<PathBuf> {
    let unpacked = target.join(PACKAGE).join(PLACE);
    let installed = Path::new("/").join(PLACE);
    let found = command::find(PACKAGE).into_iter().chain([installed, unpacked]);
    found.into_iter().find(|program| program.is_file())
}

/// `PgBouncer 1.18.0`, with lines about its libraries.
fn version_in(answer: &str) -> String {
    answer.split_whitespace().nth(1).unwrap_or("of an unknown version").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_it_says() {
        assert_eq!(version_in("PgBouncer 1.18.0\nlibevent 2.1.12-stable\n"), "1.18.0");
        assert_eq!(version_in(""), "of an unknown version");
    }
}
