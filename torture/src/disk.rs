//! A small disk of its own for a database, so that it can be full for a moment.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// A file system in memory; unmounted when it is dropped. `cargo xtask torture` runs us in a mount
/// namespace of our own, so that no mount is left however we end.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Mounts it on a folder; needs the rights of root.
    pub(crate) fn mount(folder: &Path, megabytes: u64) -> Result<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=700"), "torture"]);
        let output = mount.arg(folder).output().context("cannot run `mount`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}", said.trim());
        Ok(Self { folder: folder.to_owned() })
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) -> Result<()> {
        let file = File::create(self.ballast())?;
        let state = statvfs(&self.folder)?;
        Ok(fallocate(&file, FallocateFlags::empty(), 0, state.f_bavail * state.f_frsize)?)
    }

    pub(crate) fn free(&self) {
        // It is not there if there was no room for it.
        let _ = fs::remove_file(self.ballast());
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Nothing can be done about a disk that does not go.
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}
