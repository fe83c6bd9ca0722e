//! Java, and the jars of a broker from Maven Central; a `pom.xml` names them.
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
pub(crate) const HINT: &str = "Java 17 or later and Maven are needed: install the packages `default-jre-headless` and `maven`, \
     or run as root where apt-get is";

/// The oldest Java the brokers run on.
const JAVA_MIN: u32 = 17;

/// A broker whose jars are on Maven Central.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MavenBroker {
    pub(crate) name: &'static str,
    /// Its folder in `xtask`, with the `pom.xml`, and in the folder of compiled files.
    pub(crate) folder: &'static str,
    pub(crate) pom: &'static str,
    pub(crate) form: MavenForm,
}

/// The form in which a broker is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MavenForm {
    /// Jars, which the pom names as dependencies.
    Jars,
    /// One archive with all its jars, which the pom names for the dependency plugin.
    Archive,
}

impl MavenBroker {
    pub(crate) fn install_if_missing(&self, target: &Path) -> Result<()> {
        let mut packages = Vec::new();
        if java().is_none() {
            packages.push("default-jre-headless");
        }
        if !self.is_complete(&self.place(target)) && find("mvn").is_none() {
            packages.push("maven");
        }
        if packages.is_empty() || !apt::possible() {
            return Ok(());
        }
        apt::install(&packages)
    }

    /// Returns the folder of the jars, downloaded now if it is not there.
    pub(crate) fn jars(&self, target: &Path, java: &Path) -> Result<PathBuf> {
        let folder = self.place(target);
        if self.is_complete(&folder) {
            return Ok(folder);
        }
        let maven = find("mvn").context(HINT)?;
        println!("downloading {} {} from Maven Central (once)", self.name, self.version());
        let unfinished =
            target.join(self.folder).join(format!("unfinished-{}", std::process::id()));
        if let Err(error) = self.download(&maven, java, &unfinished) {
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

    fn download(&self, maven: &Path, java: &Path, folder: &Path) -> Result<()> {
        let mut copy = Command::new(maven);
        // Maven looks for Java in fewer places than we do.
        if let Some(home) = fs::canonicalize(java)?.ancestors().nth(2) {
            copy.env("JAVA_HOME", home);
        }
        copy.args(["--batch-mode", "--quiet", "--strict-checksums", "-Dstyle.color=never"]);
        let pom = command::root().join("xtask").join(self.folder).join("pom.xml");
        copy.arg("--file").arg(pom);
        match self.form {
            MavenForm::Jars => {
                copy.args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
            }
            MavenForm::Archive => copy.arg("dependency:unpack"),
        };
        copy.arg(format!("-DoutputDirectory={}", folder.display()));
        command::output(&mut copy)?;
        fs::write(folder.join("pom.xml"), self.pom)
            .context("cannot write to the folder of the jars")
    }

    /// Returns the version of the broker the tests run against.
    pub(crate) fn version(&self) -> &'static str {
        let after = self.pom.split("<broker.version>").nth(1).expect("pom.xml names the version");
        after.split('<').next().expect("a split has a first part")
    }

    fn place(&self, target: &Path) -> PathBuf {
        target.join(self.folder).join(self.version())
    }

    fn is_complete(&self, folder: &Path) -> bool {
        fs::read_to_string(folder.join("pom.xml")).is_ok_and(|text| text == self.pom)
    }
}

/// Returns a Java that is new enough: the one the user chose, of the search path, or any installed one.
pub(crate) fn java() -> Option<PathBuf> {
    let chosen = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let installed = installed.map(|entry| entry.path().join("bin/java"));
    let mut all = chosen.into_iter().chain(find("java")).chain(installed);
    all.find(|java| {
        let answer = command::output(Command::new(java).arg("--version"));
        answer.is_ok_and(|answer| java_version(&answer) >= Some(JAVA_MIN))
    })
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
    fn the_version_of_a_broker_stands_in_its_pom() {
        use crate::{amqp, apicurio, kafka};
        for broker in [kafka::BROKER, amqp::ARTEMIS.jars, amqp::QPID.jars, apicurio::REGISTRY] {
            let version = broker.version().trim_end_matches(".Final");
            assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{version}");
        }
    }

    #[test]
    fn jars_of_another_pom_are_not_taken() {
        let scratch = crate::scratch::Scratch::new().unwrap();
        let broker = crate::kafka::BROKER;
        assert!(!broker.is_complete(scratch.path()));
        fs::write(scratch.path().join("pom.xml"), "another").unwrap();
        assert!(!broker.is_complete(scratch.path()));
        fs::write(scratch.path().join("pom.xml"), broker.pom).unwrap();
        assert!(broker.is_complete(scratch.path()));
    }
}
