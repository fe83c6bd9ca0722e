//! The software bill of materials, by cargo-cyclonedx at a fixed version.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{FEATURES, PACKAGE, Release};
use crate::{
    command::{self, cargo},
    workspace::{Workspace, compiled},
};

const TOOL: &str = "cargo-cyclonedx";
const VERSION: &str = "0.5.9";

/// Packages by name and version.
type Packages = BTreeSet<(String, String)>;

pub(super) fn write(release: &Release, workspace: &Workspace) -> Result<()> {
    let tool = installed(&workspace.target)?;
    let file = format!("relais-{}.cdx", release.version);
    let mut list = Command::new(tool);
    list.current_dir(command::root()).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    list.args(["cyclonedx", "--format", "json", "--spec-version", "1.5", "--no-build-deps"]);
    list.args(["--manifest-path", "crates/relais-cli/Cargo.toml", "--features", FEATURES]);
    command::output(list.args(["--override-filename", &file]))?;
    // It writes one beside the manifest of each package of the workspace.
    let mut document = None;
    for package in workspace.packages.iter().filter(|package| package.registry.is_none()) {
        let place = package.folder.join(format!("{file}.json"));
        let Ok(text) = fs::read_to_string(&place) else { continue };
        fs::remove_file(&place)?;
        if package.name == PACKAGE {
            // Where the repository is on this machine is of no use to others.
            let text = text.replace(&format!("file://{}/", command::root().display()), "file:///");
            document = Some(serde_json::from_str(&text)?);
        }
    }
    let document: Value = document.context("cargo-cyclonedx wrote no list of the program")?;
    let arguments = ["-p", PACKAGE, "--features", FEATURES, "--edges", "normal"];
    let compiled = compiled(&arguments)?;
    let mut document = trimmed(document, &compiled)?;
    let components = document["components"].as_array_mut().context("the list is empty")?;
    components.push(bundled("sqlite", &workspace.sqlite_version()?, "blessing"));
    components.push(bundled("librdkafka", &librdkafka_version(&compiled)?, "BSD-2-Clause"));
    Ok(fs::write(release.file(&format!("{file}.json")), serde_json::to_vec_pretty(&document)?)?)
}

/// Removes what is not compiled into the program: the tool lists what any package of the workspace turns on.
fn trimmed(mut document: Value, compiled: &Packages) -> Result<Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let components = document["components"].as_array_mut().context("the list is empty")?;
    components.retain(|one| compiled.contains(&(text(&one["name"]), text(&one["version"]))));
    let listed: Packages =
        components.iter().map(|one| (text(&one["name"]), text(&one["version"]))).collect();
    let missing: Vec<_> =
        compiled.difference(&listed).filter(|(name, _)| name != PACKAGE).collect();
    ensure!(missing.is_empty(), "compiled into the program and not in the SBOM: {missing:?}");
    let mut known: BTreeSet<String> = components.iter().map(|one| text(&one["bom-ref"])).collect();
    known.insert(text(&document["metadata"]["component"]["bom-ref"]));
    let edges = document["dependencies"].as_array_mut().context("no dependencies are listed")?;
    edges.retain(|edge| known.contains(&text(&edge["ref"])));
    for edge in edges {
        if let Some(needs) = edge["dependsOn"].as_array_mut() {
            needs.retain(|need| known.contains(&text(need)));
        }
    }
    Ok(document)
}

/// Compiles the tool once, into a folder of the repository.
fn installed(target: &Path) -> Result<PathBuf> {
    let root = target.join("tools");
    let tool = root.join("bin").join(TOOL);
    let there = command::output(Command::new(&tool).args(["cyclonedx", "--version"]));
    if there.is_ok_and(|answer| answer.contains(VERSION)) {
        return Ok(tool);
    }
    let mut install =
        cargo(["install", TOOL, "--locked", "--version", VERSION, "--force", "--root"]);
    let installed = command::succeeds(install.arg(&root))?;
    ensure!(installed, "`{}` failed", command::line(&install));
    Ok(tool)
}

/// Returns the entry of a C library that is inside a package, with a version of its own that scanners look for.
fn bundled(name: &str, version: &str, license: &str) -> Value {
    let purl = format!("pkg:generic/{name}@{version}");
    json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{ "license": { "id": license } }],
    })
}

/// Returns the version of the library in rdkafka-sys, which is the end of the package's own: `4.10.0+2.12.1`.
fn librdkafka_version(compiled: &Packages) -> Result<String> {
    let package = compiled.iter().find(|(name, _)| name == "rdkafka-sys");
    let (_, version) = package.context("rdkafka-sys is not compiled into the program")?;
    let (_, version) = version.split_once('+').context("rdkafka-sys names no librdkafka")?;
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(names: &[&str]) -> Packages {
        names.iter().map(|name| ((*name).to_owned(), "1.0.0".to_owned())).collect()
    }

    #[test]
    fn the_version_of_librdkafka_is_the_end_of_that_of_its_package() {
        let compiled = Packages::from([("rdkafka-sys".to_owned(), "4.10.0+2.12.1".to_owned())]);
        assert_eq!(librdkafka_version(&compiled).unwrap(), "2.12.1");
        assert!(librdkafka_version(&packages(&["rdkafka-sys"])).is_err());
        assert_eq!(bundled("a", "1", "MIT")["purl"], "pkg:generic/a@1");
    }

    #[test]
    fn only_what_is_compiled_is_listed_and_a_missing_package_is_an_error() {
        let component = |name: &str| json!({ "name": name, "version": "1.0.0", "bom-ref": name });
        let document = json!({
            "metadata": { "component": { "bom-ref": PACKAGE } },
            "components": [component("a"), component("unused")],
            "dependencies": [
                { "ref": PACKAGE, "dependsOn": ["a", "unused"] },
                { "ref": "unused" },
            ],
        });
        let kept = trimmed(document.clone(), &packages(&[PACKAGE, "a"])).unwrap();
        assert_eq!(kept["components"], json!([component("a")]));
        assert_eq!(kept["dependencies"], json!([{ "ref": PACKAGE, "dependsOn": ["a"] }]));
        let error = trimmed(document, &packages(&[PACKAGE, "a", "b"])).unwrap_err();
        assert!(error.to_string().contains("(\"b\", \"1.0.0\")"), "{error}");
    }
}
