//! Installing PostgreSQL on a machine that lets us: root with apt, as continuous integration has.

use std::{fs, path::Path, process::Command};

use anyhow::{Result, ensure};

use crate::{command, scratch::Scratch};

/// What to do where we cannot install it.
pub(crate) const HINT: &str = "no PostgreSQL server programs found (initdb, pg_ctl, postgres): \
     install the package `postgresql`, or run as root where apt-get is";

/// Debian's packages make and start a cluster of the machine unless this file says no.
const CLUSTER_SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";

pub(crate) fn possible() -> bool {
    let apt = Command::new("apt-get").arg("--version").output();
    apt.is_ok_and(|output| output.status.success()) && is_root()
}

/// Installs the server's programs and no cluster; the machine's settings are put back afterwards.
pub(crate) fn install() -> Result<()> {
    println!(
        "installing PostgreSQL: apt-get update, apt-get install postgresql (no cluster is made)"
    );
    apt(&["update", "-q"])?;
    apt(&["install", "-q", "-y", "--no-install-recommends", "postgresql-common"])?;
    let settings = Path::new(CLUSTER_SETTINGS);
    let before = fs::read_to_string(settings).ok();
    if let Some(text) = &before {
        fs::write(settings, without_main_cluster(text))?;
    }
    let installed = apt(&["install", "-q", "-y", "--no-install-recommends", "postgresql"]);
    if let Some(text) = before {
        fs::write(settings, text)?;
    }
    installed
}

fn apt(args: &[&str]) -> Result<()> {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").args(args);
    ensure!(command::succeeds(&mut apt)?, "`{}` failed; {HINT}", command::line(&apt));
    Ok(())
}

fn without_main_cluster(settings: &str) -> String {
    let others = settings.lines().filter(|line| {
        !line.trim_start().trim_start_matches('#').starts_with("create_main_cluster")
    });
    others.chain(["create_main_cluster = false"]).map(|line| format!("{line}\n")).collect()
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // What we make belongs to us; std does not tell the user's number otherwise.
    Scratch::new().and_then(|scratch| Ok(fs::metadata(scratch.path())?.uid() == 0)).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_are_told_not_to_make_a_cluster() {
        let shipped = "# Comment\n#create_main_cluster = true\nssl = on\n";
        let expected = "# Comment\nssl = on\ncreate_main_cluster = false\n";
        assert_eq!(without_main_cluster(shipped), expected);
    }
}
