//! `cargo xtask tidy`: the rules of this repository that no compiler checks.
//!
//! Each check is a function from what is there to what is wrong with it, so that a test can show it
//! a bad sample. All findings are printed, with what to do.

mod conformance;
mod connectors;
mod dependencies;
mod docs;
mod licences;
mod limits;
mod lints;
mod literals;
mod proofs;
mod rust;
mod sql;
mod tree;
mod type_names;
mod words;

use std::{fmt, process::ExitCode};

use anyhow::Result;

use crate::workspace::Workspace;
use tree::Tree;

/// Something to fix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TidyFinding {
    file: String,
    /// Counted from 1; 0 means the file as a whole.
    line: usize,
    text: String,
}

impl TidyFinding {
    fn new(file: &str, line: usize, text: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.text),
            line => write!(f, "{}:{line}: {}", self.file, self.text),
        }
    }
}

/// Checks that need only the files of the repository.
const CHECKS: [fn(&Tree) -> Vec<TidyFinding>; 26] = [
    rust::sizes,
    rust::module_docs,
    rust::unfinished,
    rust::no_sql,
    sql::same_names,
    sql::same_migrations,
    sql::first_words,
    docs::architecture_paths,
    docs::readme_commands,
    docs::named_tests,
    docs::links,
    docs::machine_paths,
    docs::hidden_traits,
    proofs::named_tests,
    proofs::whole_map,
    dependencies::single_versions,
    dependencies::sqlite_is_sound,
    lints::every_package_takes_ours,
    conformance::every_check_is_listed,
    connectors::listed,
    limits::seams,
    limits::examples,
    limits::readme,
    words::banned,
    type_names::unique,
    type_names::nouns,
];

pub(crate) fn run() -> Result<ExitCode> {
    Ok(if is_clean()? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints each banned word that is still there, with its place.
pub(crate) fn list_words() -> Result<ExitCode> {
    let places = words::places(&Tree::load(&crate::command::root())?);
    for place in &places {
        println!("{place}");
    }
    println!("{} places", places.len());
    Ok(ExitCode::SUCCESS)
}

/// Prints all findings; true if there is none.
pub(crate) fn is_clean() -> Result<bool> {
    let tree = Tree::load(&crate::command::root())?;
    let mut findings: Vec<TidyFinding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    let workspace = Workspace::load()?;
    findings.extend(licences::allowed(&tree, &workspace)?);
    findings.extend(dependencies::boundaries()?);
    findings.extend(dependencies::openssl_is_for_kafka()?);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    for note in words::notes(&tree).into_iter().chain(type_names::notes(&tree)) {
        println!("note: {note}");
    }
    println!("tidy: {} files, {} findings", tree.files.len(), findings.len());
    Ok(findings.is_empty())
}
