//! Installing PostgreSQL's programs without making a cluster of the machine.

use std::{fs, path::Path};

use anyhow::Result;

use crate::apt;

/// A hint for machines on which we cannot install it.
pub(super) const HINT: &str = "no server programs found (initdb, pg_ctl, postgres): \
     install the package `postgresql`, or run as root where apt-get is";

/// Debian's packages make and start a cluster of the machine unless this file says no.
const CLUSTER_SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";

/// The machine's settings are put back afterwards.
pub(crate) fn install_if_missing() -> Result<()> {
    if super::newest_programs().is_some() || !apt::possible() {
        return Ok(());
    }
    apt::install(&["postgresql-common"])?;
    let settings = Path::new(CLUSTER_SETTINGS);
    let before = fs::read_to_string(settings).ok();
    if let Some(text) = &before {
        fs::write(settings, without_main_cluster(text))?;
    }
    let installed = apt::install(&["postgresql"]);
    if let Some(text) = before {
        fs::write(settings, text)?;
    }
    installed
}

fn without_main_cluster(settings: &str) -> String {
    let others = settings.lines().filter(|line| {
        !line.trim_start().trim_start_matches('#').starts_with("create_main_cluster")
    });
    others.chain(["create_main_cluster = false"]).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_make_no_cluster() {
        let shipped = "# Comment\n#create_main_cluster = true\nssl = on\n";
        let expected = "# Comment\nssl = on\ncreate_main_cluster = false\n";
        assert_eq!(without_main_cluster(shipped), expected);
    }
}
