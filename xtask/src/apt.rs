//! Installing packages on a machine that lets us: root with apt, as continuous integration has.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use anyhow::{Result, ensure};

use crate::{command, scratch::Scratch};

pub(crate) fn possible() -> bool {
    command::find("apt-get").is_some() && is_root()
}

/// Installs the packages; the list of what there is must be fresh for that.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    println!("installing with apt-get: {names}");
    let arguments = ["install", "-q", "-y", "--no-install-recommends"];
    let installed = run(&["update", "-q"])? && run(&[&arguments[..], packages].concat())?;
    ensure!(installed, "apt-get failed; install it yourself: {names}");
    Ok(())
}

/// Fetches a package and unpacks it into a folder, without installing it.
pub(crate) fn unpack(package: &str, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    download(package, folder)?;
    let mut files = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let Some(file) = files.find(|path| path.extension().is_some_and(|end| end == "deb")) else {
        anyhow::bail!("apt-get download {package} left no package; install it yourself");
    };
    let mut unpack = Command::new("dpkg-deb");
    let unpacked = command::succeeds(unpack.arg("-x").arg(&file).arg(folder))?;
    ensure!(unpacked, "`{}` failed", command::line(&unpack));
    Ok(fs::remove_file(file)?)
}

fn download(package: &str, folder: &Path) -> Result<()> {
    println!("fetching with apt-get: {package}");
    let mut apt = Command::new("apt-get");
    let fetched = run(&["update", "-q"])?
        && command::succeeds(apt.current_dir(folder).args(["download", "-q", package]))?;
    ensure!(fetched, "apt-get failed; install it yourself: {package}");
    Ok(())
}

fn run(arguments: &[&str]) -> Result<bool> {
    let mut apt = Command::new("apt-get");
    command::succeeds(apt.env("DEBIAN_FRONTEND", "noninteractive").args(arguments))
}

pub(crate) fn is_root() -> bool {
    // A new file belongs to the current user; std has no other way to get the user id.
    Scratch::new().and_then(|scratch| Ok(fs::metadata(scratch.path())?.uid() == 0)).unwrap_or(false)
}
