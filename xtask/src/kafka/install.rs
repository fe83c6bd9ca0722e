//! Java, and the broker's jars from Maven Central; `xtask/kafka/pom.xml` names them.
//!
//! Invariant: the folder of the jars holds the `pom.xml` they were downloaded for, and has its name
//! only when it is complete. So a second run downloads nothing, and a changed version is noticed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    apt,
    command::{self, find},
};

/// A hint for machines on which we cannot install it.
pub(super) const HINT: &str = "Java 17 or later and Maven are needed: install the packages `default-jre-headless` and `maven`, \
     or run as root where apt-get is";

/// The oldest Java the broker runs on.
const JAVA_MIN: u32 = 17;
const POM: &str = include_str!("../../kafka/pom.xml");
/// Its place in the repository.
const POM_PATH: &str = "xtask/kafka/pom.xml";

pub(crate) fn install_if_missing(target: &Path) -> Result<()> {
    let mut packages = Vec::new();
    if java().is_none() {
        packages.push("default-jre-headless");
    }
    if !is_complete(&folder(target)) && find("mvn").is_none() {
        packages.push("maven");
    }
    if packages.is_empty() || !apt::possible() {
        return Ok(());
    }
    apt::install(&packages)
}

/// A Java that is new enough: the one the user chose, of the search path, or any installed one.
pub(super) fn java() -> Option<PathBuf> {
    let chosen = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let installed = installed.map(|entry| entry.path().join("bin/java"));
    let mut all = chosen.into_iter().chain(find("java")).chain(installed);
    all.find(|java| {
        let answer = command::output(Command::new(java).arg("--version"));
        answer.is_ok_and(|answer| java_version(&answer) >= Some(JAVA_MIN))
    })
}

/// The folder of the jars, downloaded now if it is not there.
pub(super) fn jars(target: &Path, java: &Path) -> Result<PathBuf> {
    let folder = folder(target);
    if is_complete(&folder) {
        return Ok(folder);
    }
    let maven = find("mvn").context(HINT)?;
    println!("downloading {} {} from Maven Central (once)", super::NAME, version());
    let unfinished = target.join(format!("kafka/unfinished-{}", std::process::id()));
    if let Err(error) = download(&maven, java, &unfinished) {
        // A part of it is of no use, and does no harm either.
        let _ = fs::remove_dir_all(&unfinished);
        return Err(error).context("the broker cannot be downloaded");
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::rename(&unfinished, &folder)?;
    Ok(folder)
}

fn download(maven: &Path, java: &Path, folder: &Path) -> Result<()> {
    let mut copy = Command::new(maven);
    // Maven looks for Java in fewer places than we do.
    if let Some(home) = fs::canonicalize(java)?.ancestors().nth(2) {
        copy.env("JAVA_HOME", home);
    }
    copy.args(["--batch-mode", "--quiet", "--strict-checksums", "-Dstyle.color=never"]);
    copy.arg("--file").arg(command::root().join(POM_PATH));
    copy.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
    copy.arg(format!("-DoutputDirectory={}", folder.display()));
    command::output(&mut copy)?;
    fs::write(folder.join("pom.xml"), POM).context("cannot write to the folder of the jars")
}

/// The version of Kafka the tests run against.
pub(super) fn version() -> &'static str {
    let after = POM.split("<kafka.version>").nth(1).expect("pom.xml names the version");
    after.split('<').next().expect("a split has a first part")
}

fn folder(target: &Path) -> PathBuf {
    target.join("kafka").join(version())
}

fn is_complete(folder: &Path) -> bool {
    fs::read_to_string(folder.join("pom.xml")).is_ok_and(|text| text == POM)
}

/// The first number in an answer such as `openjdk 17.0.15 2025-04-15`.
fn java_version(answer: &str) -> Option<u32> {
    let version = answer.split_whitespace().nth(1)?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_java_is_read() {
        assert_eq!(java_version("openjdk 17.0.15 2025-04-15\nOpenJDK"), Some(17));
        assert_eq!(java_version("java 21 2023-09-19 LTS"), Some(21));
        assert_eq!(java_version("openjdk 25-ea 2025-09-16"), Some(25));
        assert_eq!(java_version(""), None);
        assert!(java_version("unknown option") < Some(JAVA_MIN));
    }

    #[test]
    fn the_version_of_the_broker_stands_in_its_pom() {
        assert!(version().split('.').all(|part| part.parse::<u32>().is_ok()), "{}", version());
    }

    #[test]
    fn jars_of_another_pom_are_not_taken() {
        let scratch = crate::scratch::Scratch::new().unwrap();
        assert!(!is_complete(scratch.path()));
        fs::write(scratch.path().join("pom.xml"), "another").unwrap();
        assert!(!is_complete(scratch.path()));
        fs::write(scratch.path().join("pom.xml"), POM).unwrap();
        assert!(is_complete(scratch.path()));
    }
}
