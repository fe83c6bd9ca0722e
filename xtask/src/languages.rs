//! The other languages: programs of the documentation and clients of the simulator are written in them.
//!
//! A test whose language is missing says so itself, and fails where `CI` is set; here is only what can be
//! installed. There is no package with .NET.

use anyhow::Result;

use crate::{apt, command::find};

/// A program that must be there, and the packages that bring it.
const LANGUAGES: [(&str, &[&str]); 5] = [
    ("npm", &["nodejs", "npm"]),
    ("python3", &["python3", "python3-venv"]),
    ("javac", &["default-jdk-headless"]),
    ("mvn", &["maven"]),
    ("go", &["golang-go", "ca-certificates"]),
];

pub(crate) fn install_if_missing() -> Result<()> {
    let packages = missing(|program| find(program).is_some());
    if packages.is_empty() || !apt::possible() {
        return Ok(());
    }
    apt::install(&packages)
}

fn missing(is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let missing = LANGUAGES.iter().filter(|(program, _)| !is_there(program));
    missing.flat_map(|(_, packages)| packages.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_installed() {
        assert!(missing(|_| true).is_empty());
        assert_eq!(missing(|program| program != "javac"), ["default-jdk-headless"]);
    }
}
