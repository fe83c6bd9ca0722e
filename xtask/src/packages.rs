//! The packages for crates.io: each can be packed, with everything its manifest must have.
//!
//! They are packed together and not compiled: the dependencies between them are on no registry yet.

use anyhow::Result;

use crate::{
    command::{self, cargo},
    workspace::{Package, Workspace},
};

/// Packs every package that may be published; true if cargo warns of nothing.
pub(crate) fn can_be_packed(workspace: &Workspace) -> Result<bool> {
    let names: Vec<&str> = published(workspace).map(|package| package.name.as_str()).collect();
    let mut pack = cargo(["package", "--no-verify", "--allow-dirty"]);
    names.iter().for_each(|name| {
        pack.args(["-p", name]);
    });
    let output = pack.output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let is_clean = text.lines().filter(|line| line.starts_with("warning")).all(is_left_out);
    let good = output.status.success() && is_clean;
    if good {
        println!("packages: {}", names.join(", "));
    } else {
        println!("{}\n{text}", command::line(&pack));
    }
    Ok(good)
}

/// Tests and benchmarks need the whole repository, and are left out on purpose.
fn is_left_out(warning: &str) -> bool {
    warning.contains("is not included in the published package")
}

fn published(workspace: &Workspace) -> impl Iterator<Item = &Package> {
    workspace.ours_in("crates").into_iter().filter(|package| package.published)
}
