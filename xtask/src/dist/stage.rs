//! The files of a package in the folders where they are installed. The program itself writes its completions,
//! manual pages and configuration.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use anyhow::{Context, Result, ensure};

use super::{Release, licenses};
use crate::command;

/// Folders from which shells load completions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shells {
    /// Below `/usr/local`.
    Local,
    /// Below `/usr`, as Debian has it.
    Debian,
}

/// Files of the repository that are installed as documentation.
const DOCUMENTS: [&str; 3] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];
const EXAMPLES: [&str; 3] =
    ["ops/prometheus/alerts.yml", "ops/prometheus/prometheus.yml", "ops/grafana/relais.json"];

/// Puts the program, completions, manual pages and documents below `top`.
pub(super) fn program(release: &Release, top: &Path, shells: Shells) -> Result<()> {
    let program = &release.program;
    copy(program, &top.join("bin/relais"), 0o755)?;
    let zsh = match shells {
        Shells::Local => "share/zsh/site-functions/_relais",
        Shells::Debian => "share/zsh/vendor-completions/_relais",
    };
    for (shell, file) in [
        ("bash", "share/bash-completion/completions/relais"),
        ("fish", "share/fish/vendor_completions.d/relais.fish"),
        ("zsh", zsh),
    ] {
        let script = command::output(Command::new(program).args(["completions", shell]))?;
        write(&top.join(file), &script)?;
    }
    let pages = top.join("share/man/man1");
    command::output(Command::new(program).args(["man", "--out"]).arg(&pages))?;
    for page in fs::read_dir(&pages)? {
        mode(&page?.path(), 0o644)?;
    }
    let documents = top.join("share/doc/relais");
    for name in DOCUMENTS {
        copy(&command::root().join(name), &documents.join(name), 0o644)?;
    }
    copy(&release.licenses, &documents.join(licenses::NAME), 0o644)?;
    let examples = documents.join("examples");
    for name in EXAMPLES {
        let file = Path::new(name).file_name().context("an example has a name")?;
        copy(&command::root().join(name), &examples.join(file), 0o644)?;
    }
    configuration(release, &examples.join("relais.toml"))
}

/// Writes the configuration of `relais init`, with the database where the unit may write.
pub(super) fn configuration(release: &Release, file: &Path) -> Result<()> {
    folder_of(file)?;
    let mut init = Command::new(&release.program);
    command::output(init.arg("--config").arg(file).arg("init"))?;
    let text = fs::read_to_string(file)?;
    let placed = text.replace("\"sqlite:relais.db\"", "\"sqlite:/var/lib/relais/relais.db\"");
    ensure!(placed != text, "`relais init` names no sqlite:relais.db to be replaced");
    write(file, &placed)
}

/// Puts systemd's files below a `lib` folder.
pub(super) fn unit(lib: &Path, program: &str) -> Result<()> {
    let ops = command::root().join("ops/systemd");
    let unit = fs::read_to_string(ops.join("relais.service"))?;
    let unit = unit.replace("/usr/bin/relais", program);
    write(&lib.join("systemd/system/relais.service"), &unit)?;
    copy(&ops.join("relais.sysusers"), &lib.join("sysusers.d/relais.conf"), 0o644)
}

/// Writes a file that all may read, and the folders above it.
pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    folder_of(file)?;
    fs::write(file, text)?;
    mode(file, 0o644)
}

/// Copies a file, through links, and makes the folders above it.
pub(super) fn copy(from: &Path, to: &Path, rights: u32) -> Result<()> {
    folder_of(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    mode(to, rights)
}

fn folder_of(file: &Path) -> Result<()> {
    folder(file.parent().context("a file has a folder")?)
}

/// Makes a folder and those above it, with the same rights whatever the umask is.
pub(super) fn folder(path: &Path) -> Result<()> {
    let mut above: Vec<&Path> = path.ancestors().filter(|folder| !folder.exists()).collect();
    above.reverse();
    for folder in above {
        fs::create_dir(folder)?;
        mode(folder, 0o755)?;
    }
    Ok(())
}

/// Sets the rights of a file or folder.
pub(super) fn mode(path: &Path, rights: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(rights))?)
}
