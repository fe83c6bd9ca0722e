//! The test programs that cargo has built, and how each is run.

use std::{path::PathBuf, process::Command};

use anyhow::Result;
use serde_json::Value;

use crate::{command, jobs::TestJob};

/// The examples in the documentation of the code, all packages together.
pub(crate) const DOCS: &str = "documentation-of-the-code";
/// Prefix of the name of a target whose modules are tested.
const MODULES: &str = "modules of ";
/// A note on the variables that tests need when they are run by hand.
const SERVERS: &str = "(with what `cargo xtask server` prints)";

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// Package and target, such as `relais-cli desk`.
    pub(crate) name: String,
    executable: PathBuf,
    /// Tests read files of their package.
    folder: PathBuf,
    /// Tests of a whole package, with servers and processes; the others are tests of modules.
    whole: bool,
}

impl TestProgram {
    /// Asks cargo; what is not built yet is built now. Those that take long come first.
    pub(crate) fn built(cargo: &mut Command) -> Result<Vec<Self>> {
        let text = command::output(cargo.args(["--no-run", "--message-format", "json"]))?;
        let mut programs: Vec<_> = text.lines().filter_map(Self::in_message).collect();
        programs.sort_by(|one, other| (!one.whole, &one.name).cmp(&(!other.whole, &other.name)));
        Ok(programs)
    }

    fn in_message(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["profile"]["test"] != true {
            return None;
        }
        let executable = PathBuf::from(message["executable"].as_str()?);
        let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        let package = folder.file_name()?.to_string_lossy().into_owned();
        let target = message["target"]["name"].as_str()?;
        let whole = message["target"]["kind"][0] == "test";
        let name = if whole {
            format!("{package} {target}")
        } else {
            format!("{package} {MODULES}{target}")
        };
        Some(Self { name, executable, folder, whole })
    }

    /// Nothing may run beside it: it stops a server that others use, delivers a large backlog within a
    /// minute, or starts a browser, whose pages give way to everything else on a busy machine.
    pub(crate) fn is_alone(&self) -> bool {
        let names = [" console", " outage"];
        self.name.contains("_restart") || names.iter().any(|name| self.name.ends_with(name))
    }

    /// Returns true if it tests the modules of a package, without servers and processes.
    pub(crate) fn is_of_modules(&self) -> bool {
        !self.whole
    }

    /// Returns the command that runs it, as cargo would.
    pub(crate) fn job(&self) -> TestJob {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        TestJob { name: self.name.clone(), command }
    }
}

/// Returns the command that repeats a program's tests by hand.
pub(crate) fn repeat(name: &str) -> String {
    match name.split_once(' ') {
        Some((package, target)) if target.starts_with(MODULES) => {
            format!("cargo test -p {package} --all-features --lib --bins {SERVERS}")
        }
        Some((package, target)) => {
            format!("cargo test -p {package} --all-features --test {target} {SERVERS}")
        }
        None => format!("cargo test --workspace --all-features --doc {SERVERS}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_from_what_cargo_says() {
        let message = |kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/x/crates/shop/Cargo.toml","target":{{"kind":["{kind}"],"name":"desk"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let program = TestProgram::in_message(&message("test", true, r#""/t/desk-1""#)).unwrap();
        assert_eq!(program.name, "shop desk");
        assert_eq!(program.job().command.get_current_dir(), Some("/x/crates/shop".as_ref()));
        assert!(repeat(&program.name).contains("-p shop --all-features --test desk "));
        let modules = TestProgram::in_message(&message("lib", true, r#""/t/desk-2""#)).unwrap();
        assert_eq!(modules.name, "shop modules of desk");
        let restarts = message("test", true, r#""/t/x""#).replace("desk", "kafka_restart");
        assert!(TestProgram::in_message(&restarts).unwrap().is_alone() && !program.is_alone());
        assert!(repeat(DOCS).contains(" --doc "));
        for other in [message("lib", false, r#""/t/desk""#), message("lib", true, "null")] {
            assert_eq!(TestProgram::in_message(&other), None);
        }
        assert_eq!(TestProgram::in_message("no message"), None);
    }
}
