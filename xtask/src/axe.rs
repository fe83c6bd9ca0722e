//! axe-core, the checker of accessibility that runs in the browser of the console's tests. npm downloads it
//! once, in the version and with the checksum of `xtask/axe/package-lock.json`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    command,
    servers::{ServerOutcome, Tool},
};

pub(crate) const NAME: &str = "axe-core";
/// The variable that names the script.
pub(crate) const VARIABLE: &str = "RELAIS_TEST_AXE";

/// A hint for machines on which we cannot get it.
const HINT: &str = "axe-core not found: npm must be there and reach its registry";

pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    if place(target).is_file() || command::find("npm").is_none() {
        return Ok(());
    }
    let folder = target.join(NAME);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(command::root().join("xtask/axe").join(file), folder.join(file))
            .with_context(|| format!("cannot copy {file}"))?;
    }
    println!("downloading axe-core from npm (once)");
    let mut npm = Command::new("npm");
    npm.current_dir(&folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    // Without it the tests say so, and fail where CI is set.
    command::succeeds(&mut npm).map(drop)
}

pub(crate) fn look(target: &Path) -> ServerOutcome {
    let script = place(target);
    if !script.is_file() {
        return ServerOutcome::Missing { name: NAME, why: HINT.to_owned() };
    }
    let manifest = fs::read_to_string(script.with_file_name("package.json")).unwrap_or_default();
    let variables = vec![(VARIABLE, script.display().to_string())];
    ServerOutcome::Found(Tool { name: NAME, version: version_in(&manifest), variables })
}

fn place(target: &Path) -> PathBuf {
    target.join(NAME).join("node_modules/axe-core/axe.min.js")
}

fn version_in(manifest: &str) -> String {
    let manifest: serde_json::Value = serde_json::from_str(manifest).unwrap_or_default();
    manifest["version"].as_str().unwrap_or("of an unknown version").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_its_manifest() {
        assert_eq!(version_in(r#"{"version":"4.14.0"}"#), "4.14.0");
        assert_eq!(version_in(""), "of an unknown version");
    }
}
