//! `cargo xtask docs`: checks the pages in `docs`, and builds them as a book with search.
//!
//! The checks need no other program, so `cargo xtask test` runs them too: every page is in `SUMMARY.md` once,
//! every link and anchor leads somewhere, and the copies in the packages are current. Only `cargo xtask docs`
//! writes these copies and runs mdBook.

mod check;
mod guide;
mod pages;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{self, cargo},
    workspace::Workspace,
};
use pages::Pages;

/// Change both together: a newer version may warn about other things.
const MDBOOK_VERSION: &str = "0.5.4";
/// mdBook without its web server and its file watcher.
const MDBOOK_FEATURES: &str = "search";

pub(crate) fn run() -> Result<ExitCode> {
    guide::write(&Pages::load(&command::root())?)?;
    if !is_clean()? {
        return Ok(ExitCode::FAILURE);
    }
    let target = Workspace::load()?.target;
    let mdbook = mdbook(&target)?;
    let (source, book) = (target.join("book-source"), target.join("book"));
    stage(&source)?;
    build(&mdbook, &source, &book)?;
    println!("docs: {}", book.join("index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Prints all findings; true if there is none.
pub(crate) fn is_clean() -> Result<bool> {
    let pages = Pages::load(&command::root())?;
    let mut findings = check::summary(&pages);
    findings.extend(check::links_everywhere(&pages));
    findings.extend(guide::stale(&pages));
    for finding in &findings {
        println!("{finding}");
    }
    println!("docs: {} pages, {} findings", pages.book().count(), findings.len());
    Ok(findings.is_empty())
}

/// Returns the path of mdBook; installs it once, below the target folder.
fn mdbook(target: &Path) -> Result<PathBuf> {
    let root = target.join("tools");
    let program = root.join("bin/mdbook");
    let version = command::output(Command::new(&program).arg("--version")).unwrap_or_default();
    if version.trim().trim_start_matches("mdbook v") == MDBOOK_VERSION {
        return Ok(program);
    }
    println!("installing mdBook {MDBOOK_VERSION} (once)");
    let mut install = cargo(["install", "mdbook", "--locked", "--no-default-features"]);
    install.args(["--version", MDBOOK_VERSION, "--features", MDBOOK_FEATURES, "--root"]).arg(&root);
    ensure!(command::succeeds(&mut install)?, "cannot install mdBook; is crates.io reachable?");
    Ok(program)
}

/// Copies `docs`. Links to files outside of the book become plain text: a reader of the book does not have them.
fn stage(source: &Path) -> Result<()> {
    if source.exists() {
        fs::remove_dir_all(source)
            .with_context(|| format!("cannot remove {}", source.display()))?;
    }
    copy(&command::root().join("docs"), source)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        let (here, there) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&here, &there)?;
        } else if here.extension().is_some_and(|ending| ending == "md") {
            fs::write(&there, pages::without_outer_links(&here, &fs::read_to_string(&here)?))?;
        } else {
            fs::copy(&here, &there)?;
        }
    }
    Ok(())
}

fn build(mdbook: &Path, source: &Path, book: &Path) -> Result<()> {
    let mut build = Command::new(mdbook);
    build.arg("build").arg(source).arg("--dest-dir").arg(book);
    let output = build.output().with_context(|| format!("cannot run {}", mdbook.display()))?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "mdBook failed:\n{log}");
    let warnings: Vec<&str> = log.lines().filter(|line| is_warning(line)).collect();
    ensure!(warnings.is_empty(), "mdBook warns:\n{}", warnings.join("\n"));
    Ok(())
}

fn is_warning(line: &str) -> bool {
    line.split_whitespace().take(3).any(|word| {
        let word = word.trim_matches(['[', ']', ':']);
        word.eq_ignore_ascii_case("warn") || word.eq_ignore_ascii_case("error")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_mdbook_are_recognised() {
        assert!(is_warning(" WARN the file is missing"));
        assert!(is_warning("2026-11-17 08:00:00 [WARN] (mdbook::book): something"));
        assert!(is_warning("ERROR cannot render"));
        assert!(!is_warning(" INFO Book building has started"));
        assert!(!is_warning(" INFO Running the html backend: no error"));
    }
}
