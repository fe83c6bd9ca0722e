//! The workspace as cargo sees it: its packages, and what is really compiled.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::{self, cargo};

/// A package of the lock file, ours or foreign.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: String,
    pub(crate) folder: PathBuf,
    pub(crate) features: Vec<String>,
    /// It may be published on a registry.
    pub(crate) published: bool,
    /// The registry it was downloaded from; ours have none.
    pub(crate) registry: Option<String>,
}

/// All packages and where they are built.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    pub(crate) target: PathBuf,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        // Without `--all-features` the optional libraries are missing.
        let mut metadata = cargo(["metadata", "--format-version", "1", "--locked"]);
        let text = command::output(metadata.arg("--all-features"))?;
        let all: Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
        let packages = all["packages"].as_array().context("cargo metadata names no packages")?;
        Ok(Self {
            packages: packages.iter().map(package).collect(),
            target: PathBuf::from(text_of(&all["target_directory"])),
        })
    }

    /// Our packages in a folder of the repository.
    pub(crate) fn ours_in(&self, folder: &str) -> Vec<&Package> {
        let folder = command::root().join(folder);
        let ours = self.packages.iter().filter(|package| package.registry.is_none());
        ours.filter(|package| package.folder.starts_with(&folder)).collect()
    }

    /// The version of the SQLite that is compiled into us, from its own header.
    pub(crate) fn sqlite_version(&self) -> Result<String> {
        let package = self
            .packages
            .iter()
            .find(|package| package.name == "libsqlite3-sys")
            .context("libsqlite3-sys is not in the lock file")?;
        let header = package.folder.join("sqlite3/sqlite3.h");
        let text = fs::read_to_string(&header)
            .with_context(|| format!("{} has no bundled SQLite", package.name))?;
        sqlite_version_in(&text).context("sqlite3.h names no version")
    }
}

/// Names and versions that cargo compiles for these arguments; the lock file holds more, such as
/// optional dependencies that are off.
pub(crate) fn compiled(args: &[&str]) -> Result<BTreeSet<(String, String)>> {
    let mut tree = cargo(["tree", "--locked", "--prefix", "none", "--format", "{p}"]);
    let text = command::output(tree.args(args))?;
    Ok(text.lines().filter_map(name_and_version).collect())
}

pub(crate) fn name_and_version(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some((name.to_owned(), version.to_owned()))
}

fn package(value: &Value) -> Package {
    let manifest = PathBuf::from(text_of(&value["manifest_path"]));
    let features = value["features"].as_object();
    Package {
        name: text_of(&value["name"]),
        version: text_of(&value["version"]),
        license: text_of(&value["license"]),
        folder: manifest.parent().map(Path::to_path_buf).unwrap_or_default(),
        features: features.into_iter().flat_map(|map| map.keys().cloned()).collect(),
        published: value["publish"].is_null(),
        registry: value["source"].as_str().map(str::to_owned),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn sqlite_version_in(header: &str) -> Option<String> {
    let line = header.lines().find(|line| line.starts_with("#define SQLITE_VERSION "))?;
    line.split('"').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_tree_gives_name_and_version() {
        let expected = Some(("syn".to_owned(), "2.0.119".to_owned()));
        assert_eq!(name_and_version("syn v2.0.119"), expected);
        assert_eq!(name_and_version("syn v2.0.119 (proc-macro) (*)"), expected);
        assert_eq!(name_and_version(""), None);
    }

    #[test]
    fn the_sqlite_version_stands_in_its_header() {
        let header = "#define SQLITE_VERSION_NUMBER 3\n#define SQLITE_VERSION        \"3.51.3\"\n";
        assert_eq!(sqlite_version_in(header).as_deref(), Some("3.51.3"));
    }
}
