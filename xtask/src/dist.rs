//! `cargo xtask dist`: what a release consists of, in `target/dist`: tarball, Debian package, OCI image,
//! SBOM and checksums.
//!
//! Invariant: packaging the same program again gives the same bytes: times, owners and order are fixed.

mod archive;
mod deb;
mod image;
mod licenses;
mod sbom;
mod stage;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    apt,
    command::{self, cargo},
    compiler,
    scratch::Scratch,
    workspace::Workspace,
};

/// The package of the program, and the feature that has everything users may want.
const PACKAGE: &str = "relais-cli";
const FEATURES: &str = "full";
/// A program that packaging or its test needs, and the Debian package that has it.
const TOOLS: [(&str, &str); 6] = [
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("strip", "binutils"),
    ("update-ca-certificates", "ca-certificates"),
    ("adduser", "adduser"),
    ("ip", "iproute2"),
    ("systemd-analyze", "systemd"),
];

/// Arguments of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DistOptions {
    /// A program that exists already; then there is no SBOM.
    program: Option<PathBuf>,
    out: Option<PathBuf>,
}

impl DistOptions {
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let place = match arg.as_str() {
                "--program" => &mut options.program,
                "--out" => &mut options.out,
                other => return Err(format!("unknown argument: {other}")),
            };
            let value = args.next().ok_or_else(|| format!("{arg} needs a path"))?;
            *place = Some(PathBuf::from(value));
        }
        Ok(options)
    }
}

/// Data that all packages share.
#[derive(Debug)]
struct Release {
    version: String,
    /// Cargo's name of the processor.
    machine: &'static str,
    /// Debian's and OCI's name of it.
    architecture: &'static str,
    /// The time that every file gets, in seconds since 1970.
    epoch: u64,
    program: PathBuf,
    /// The licence texts of what is compiled in.
    licenses: PathBuf,
    out: PathBuf,
}

impl Release {
    /// A file of the result.
    fn file(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }
}

pub(crate) fn run(options: &DistOptions) -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    install_tools()?;
    let out = options.out.clone().unwrap_or_else(|| workspace.target.join("dist"));
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    let built = match &options.program {
        Some(program) => program.clone(),
        None => build(&workspace)?,
    };
    let scratch = Scratch::new()?;
    let release = Release {
        version: version(&workspace)?,
        machine: env::consts::ARCH,
        architecture: architecture()?,
        epoch: epoch()?,
        program: stripped(&built, scratch.path())?,
        licenses: licenses::write(&workspace, scratch.path())?,
        out: out.canonicalize()?,
    };
    tarball(&release, &scratch.path().join("tarball"))?;
    deb::write(&release, &scratch.path().join("deb"))?;
    image::write(&release, &scratch.path().join("image"))?;
    if options.program.is_none() {
        sbom::write(&release, &workspace)?;
    }
    checksums(&release.out)?;
    for entry in fs::read_to_string(release.file("SHA256SUMS"))?.lines() {
        let name = entry.split_whitespace().nth(1).unwrap_or_default();
        let bytes = fs::metadata(release.file(name))?.len();
        println!("{}: {:.1} MB", release.file(name).display(), bytes as f64 / 1e6);
    }
    Ok(ExitCode::SUCCESS)
}

/// Installs what packaging needs, where that is possible.
pub(crate) fn install_tools() -> Result<()> {
    let places = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
    let there = |program: &str| {
        command::find(program).is_some() || places.iter().any(|place| place.join(program).is_file())
    };
    let missing = TOOLS.iter().filter(|(program, _)| !there(program));
    let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    match packages.is_empty() || !apt::possible() {
        true => Ok(()),
        false => apt::install(&packages),
    }
}

fn build(workspace: &Workspace) -> Result<PathBuf> {
    compiler::ensure()?;
    let mut build = cargo(["build", "--release", "--locked", "--package", PACKAGE]);
    let built = command::succeeds(build.args(["--features", FEATURES]))?;
    ensure!(built, "`{}` failed", command::line(&build));
    Ok(workspace.target.join("release/relais"))
}

/// A copy without symbols; a release has none anyway.
fn stripped(program: &Path, folder: &Path) -> Result<PathBuf> {
    let copy = folder.join("relais");
    fs::copy(program, &copy).with_context(|| format!("cannot read {}", program.display()))?;
    command::output(Command::new("strip").arg(&copy))?;
    Ok(copy)
}

/// `tar -xzf FILE -C /usr/local --strip-components=1` installs it.
fn tarball(release: &Release, folder: &Path) -> Result<()> {
    let name = format!("relais-{}-{}-linux-gnu", release.version, release.machine);
    let top = folder.join(&name);
    stage::program(release, &top, stage::Shells::Local)?;
    stage::unit(&top.join("lib"), "/usr/local/bin/relais")?;
    archive::tar(folder, &folder.join("all.tar"), release.epoch, &[&name])?;
    archive::gzip(&folder.join("all.tar"), &release.file(&format!("{name}.tar.gz")))
}

fn checksums(out: &Path) -> Result<()> {
    let names = fs::read_dir(out)?.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    let sums = command::output(Command::new("sha256sum").current_dir(out).args(names))?;
    Ok(fs::write(out.join("SHA256SUMS"), sums)?)
}

fn version(workspace: &Workspace) -> Result<String> {
    let package = workspace.packages.iter().find(|package| package.name == PACKAGE);
    Ok(package.context("relais-cli is not in the workspace")?.version.clone())
}

fn architecture() -> Result<&'static str> {
    match env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no packages are made for {other}: amd64 and arm64 alone are known"),
    }
}

/// `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn epoch() -> Result<u64> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let mut log = Command::new("git");
            command::output(log.current_dir(command::root()).args(["log", "-1", "--format=%ct"]))
                .context("no SOURCE_DATE_EPOCH is set, and this is no checkout of git")?
        }
    };
    text.trim().parse().context("SOURCE_DATE_EPOCH is not a number of seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_unknown_ones_refused() {
        let parse = |args: &[&str]| {
            DistOptions::parse(&args.iter().map(|a| (*a).into()).collect::<Vec<_>>())
        };
        let (program, out) = (Some(PathBuf::from("p")), Some(PathBuf::from("o")));
        assert_eq!(parse(&["--program", "p", "--out", "o"]), Ok(DistOptions { program, out }));
        assert!(parse(&["--program"]).unwrap_err().contains("needs a path"));
        assert!(parse(&["--fast"]).unwrap_err().contains("--fast"));
    }
}
