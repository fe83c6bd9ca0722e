//! The Debian package, by dpkg's own tools: `ops/debian` has its control files and scripts.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};

use super::{
    Release,
    stage::{self, Shells},
};
use crate::command;

/// Scripts that dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
const CONFIGURATION: &str = "etc/relais/relais.toml";

pub(super) fn write(release: &Release, folder: &Path) -> Result<()> {
    let ops = command::root().join("ops/debian");
    let top = folder.join("root");
    stage::program(release, &top.join("usr"), Shells::Debian)?;
    // The service has its user from the script.
    stage::unit(&top.join("usr/lib"), "/usr/bin/relais")?;
    fs::remove_dir_all(top.join("usr/lib/sysusers.d"))?;
    compress_pages(&top.join("usr/share/man/man1"))?;
    stage::copy(&ops.join("copyright"), &top.join("usr/share/doc/relais/copyright"), 0o644)?;
    stage::configuration(release, &top.join(CONFIGURATION))?;
    let control = fs::read_to_string(ops.join("control"))?
        .replace("@VERSION@", &release.version)
        .replace("@ARCHITECTURE@", release.architecture)
        .replace("@LIBRARIES@", &libraries(&release.program, folder)?);
    stage::write(&top.join("DEBIAN/control"), &control)?;
    stage::write(&top.join("DEBIAN/conffiles"), &format!("/{CONFIGURATION}\n"))?;
    for script in SCRIPTS {
        stage::copy(&ops.join(script), &top.join("DEBIAN").join(script), 0o755)?;
    }
    let name = format!("relais_{}_{}.deb", release.version, release.architecture);
    let mut build = Command::new("dpkg-deb");
    build.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    build.args(["--root-owner-group", "-Zxz", "-z1", "--build"]).arg(&top);
    command::output(build.arg(release.file(&name))).map(drop)
}

fn compress_pages(folder: &Path) -> Result<()> {
    let pages = fs::read_dir(folder)?.map(|page| Ok(page?.path()));
    let pages = pages.collect::<Result<Vec<_>>>()?;
    command::output(Command::new("gzip").args(["--no-name", "--best"]).args(pages)).map(drop)
}

/// Returns the packages, with versions, that have the libraries the program is linked to.
fn libraries(program: &Path, folder: &Path) -> Result<String> {
    // The tool wants to stand in a source package.
    stage::write(
        &folder.join("debian/control"),
        "Source: relais\n\nPackage: relais\nArchitecture: any\n",
    )?;
    let mut ask = Command::new("dpkg-shlibdeps");
    let answer = command::output(ask.current_dir(folder).arg("-O").arg(program))?;
    let line = answer.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    line.map(str::to_owned).context("dpkg-shlibdeps names no packages")
}
