//! Archives whose bytes depend on nothing but the names, contents and rights of what is in them.

use std::{fs::File, path::Path, process::Command};

use anyhow::Result;

use crate::command;

/// Puts the names in `folder` into a new archive, as files of root.
pub(super) fn tar(folder: &Path, archive: &Path, epoch: u64, names: &[&str]) -> Result<()> {
    let mut tar = fixed("--create", folder, archive, epoch);
    command::output(tar.args(["--owner=0", "--group=0"]).args(names)).map(drop)
}

/// Adds the names in `folder`, as files of another user.
pub(super) fn add_as(
    user: u32,
    folder: &Path,
    archive: &Path,
    epoch: u64,
    names: &[&str],
) -> Result<()> {
    let mut tar = fixed("--append", folder, archive, epoch);
    let owner = [format!("--owner={user}"), format!("--group={user}")];
    command::output(tar.args(owner).args(names)).map(drop)
}

fn fixed(action: &str, folder: &Path, archive: &Path, epoch: u64) -> Command {
    let mut tar = Command::new("tar");
    tar.args([action, "--format=ustar", "--sort=name", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{epoch}")).arg("--file").arg(archive).arg("--directory").arg(folder);
    tar
}

/// Compresses a file, without the time and the name in it.
pub(super) fn gzip(file: &Path, to: &Path) -> Result<()> {
    let mut gzip = Command::new("gzip");
    gzip.args(["--no-name", "--to-stdout"]).arg(file).stdout(File::create(to)?);
    command::output(&mut gzip).map(drop)
}

/// Returns the SHA-256 of a file, in hex.
pub(super) fn sha256(file: &Path) -> Result<String> {
    let line = command::output(Command::new("sha256sum").arg(file))?;
    Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_same_files_give_the_same_bytes_whenever_they_are_packed() {
        let scratch = Scratch::new().unwrap();
        let sums = ["one", "two"].map(|name| {
            let folder = scratch.path().join(name);
            fs::create_dir_all(folder.join("in")).unwrap();
            // Another time of change, and another order in the folder.
            let mut files = ["b", "a", "c"];
            if name == "two" {
                files.reverse();
            }
            for file in files {
                fs::write(folder.join("in").join(file), "text").unwrap();
            }
            let time = if name == "two" { "@1000000" } else { "@2000000" };
            let touched =
                Command::new("touch").args(["-d", time]).arg(folder.join("in/a")).status();
            assert!(touched.unwrap().success());
            let archive = scratch.path().join(format!("{name}.tar"));
            tar(&folder, &archive, 1_700_000_000, &["in/a", "in/b"]).unwrap();
            add_as(65532, &folder, &archive, 1_700_000_000, &["in/c"]).unwrap();
            let packed = scratch.path().join(format!("{name}.gz"));
            gzip(&archive, &packed).unwrap();
            sha256(&packed).unwrap()
        });
        assert_eq!(sums[0], sums[1]);
        assert_eq!(sums[0].len(), 64);
    }
}
