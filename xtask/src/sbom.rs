//! `cargo xtask sbom`: what the program is made of, as CycloneDX JSON.
//!
//! Invariant: it lists what cargo compiles into the default program on this machine, nothing more and
//! nothing less; the same lock file gives the same bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::ExitCode,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    command::{self, cargo},
    workspace::{Package, Workspace, name_and_version},
};

/// The program, and what of it is compiled in.
const PROGRAM: [&str; 4] = ["-p", "relais-cli", "--edges", "normal"];

/// A package by name and version.
type Id = (String, String);

/// Writes it to `target/relais.cdx.json`.
pub(crate) fn run() -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    let file = workspace.target.join("relais.cdx.json");
    let document = document(&workspace)?;
    fs::write(&file, serde_json::to_string_pretty(&document)? + "\n")?;
    let count = document["components"].as_array().map_or(0, Vec::len);
    println!("{}: {count} components", file.display());
    Ok(ExitCode::SUCCESS)
}

fn document(workspace: &Workspace) -> Result<Value> {
    let mut tree = cargo(["tree", "--locked", "--prefix", "depth", "--format", " {p}"]);
    let graph = graph(&command::output(tree.args(PROGRAM))?);
    let lock = fs::read_to_string(command::root().join("Cargo.lock"))?;
    let checksums = checksums(&lock);
    let known: BTreeMap<Id, &Package> =
        workspace.packages.iter().map(|p| ((p.name.clone(), p.version.clone()), p)).collect();
    let (mut program, mut components) = (Value::Null, Vec::new());
    for id in graph.keys() {
        let package = known.get(id).with_context(|| format!("cargo metadata has no {}", id.0))?;
        let component = component(package, checksums.get(id));
        match id.0 == PROGRAM[1] {
            true => program = component,
            false => components.push(component),
        }
    }
    program["type"] = json!("application");
    components.push(sqlite(&workspace.sqlite_version()?));
    let dependencies = graph.iter().map(|(id, needs)| {
        let needs: Vec<String> = needs.iter().map(purl).collect();
        json!({ "ref": purl(id), "dependsOn": needs })
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": program },
        "components": components,
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

/// Who needs whom, from a tree in which each package shows what it needs where it comes first.
fn graph(tree: &str) -> BTreeMap<Id, BTreeSet<Id>> {
    let mut graph: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    let mut above: Vec<Id> = Vec::new();
    for line in tree.lines() {
        let Some((depth, package)) = line.split_once(' ') else { continue };
        let (Ok(depth), Some(id)) = (depth.parse::<usize>(), name_and_version(package)) else {
            continue;
        };
        above.truncate(depth);
        if let Some(parent) = above.last() {
            graph.entry(parent.clone()).or_default().insert(id.clone());
        }
        graph.entry(id.clone()).or_default();
        above.push(id);
    }
    graph
}

/// SHA-256 of what was downloaded, from the lock file.
fn checksums(lock: &str) -> BTreeMap<Id, String> {
    let entries = lock.split("[[package]]").filter_map(|entry| {
        let value = |key: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            line.map(|text| text.trim_matches('"').to_owned())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    });
    entries.collect()
}

fn component(package: &Package, checksum: Option<&String>) -> Value {
    let id = (package.name.clone(), package.version.clone());
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(&id),
        "name": id.0,
        "version": id.1,
        "purl": purl(&id),
        // `/` is the old sign for OR.
        "licenses": [{ "expression": package.license.replace('/', " OR ") }],
    });
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

fn purl((name, version): &Id) -> String {
    // `+` is the one character of a version that must be encoded.
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

/// It comes inside libsqlite3-sys, with a version of its own that people look for.
fn sqlite(version: &str) -> Value {
    let purl = format!("pkg:generic/sqlite@{version}");
    json!({
        "type": "library",
        "bom-ref": purl,
        "name": "sqlite",
        "version": version,
        "purl": purl,
        "licenses": [{ "license": { "id": "blessing" } }],
    })
}

#[cfg(test)]
#[path = "sbom_tests.rs"]
mod tests;
