//! Copies of pages inside the packages, where rustdoc shows them: a published package has no `docs` folder.
//!
//! In a copy, a link to another page of the same package leads to its module; other links are plain text.

use std::fs;

use anyhow::{Context, Result};

use super::{check::PageFinding, pages::Pages};
use crate::command;

/// The pages of each package. Its `src/guide.rs` has a module for each.
const PACKAGES: [(&str, &[&str]); 3] = [
    (
        "relais",
        &[
            "concepts",
            "library",
            "tutorial-rust",
            "examples",
            "aggregates",
            "processes",
            "dead-letters",
            "failures",
            "glossary",
            "upgrade",
        ],
    ),
    ("relais-admin", &["embedding"]),
    ("relais-testkit", &["testing"]),
];

/// Finds copies that differ from what their pages give.
pub(super) fn stale(pages: &Pages) -> Vec<PageFinding> {
    let copies = copies(pages).into_iter();
    let stale = copies.filter(|(path, text)| pages.text(path) != Some(text.as_str()));
    let next = "is not a copy of its page; run `cargo xtask docs`";
    stale.map(|(path, _)| PageFinding::new(&path, 0, next.to_owned())).collect()
}

/// Writes the copies.
pub(super) fn write(pages: &Pages) -> Result<()> {
    for (path, text) in copies(pages) {
        if pages.text(&path) != Some(text.as_str()) {
            let file = command::root().join(&path);
            fs::create_dir_all(file.parent().expect("a file in a folder"))?;
            fs::write(&file, text).with_context(|| format!("cannot write {path}"))?;
        }
    }
    Ok(())
}

/// Returns the copies with their paths.
fn copies(pages: &Pages) -> Vec<(String, String)> {
    let mut copies = Vec::new();
    for (package, names) in PACKAGES {
        for name in names {
            let text = pages.text(&format!("docs/{name}.md")).unwrap_or_default();
            copies.push((format!("crates/{package}/guide/{name}.md"), for_rustdoc(text, names)));
        }
    }
    copies
}

fn for_rustdoc(text: &str, names: &[&str]) -> String {
    let mut result = String::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        result.push_str(&if fenced { line.to_owned() } else { relinked(line, names) });
        result.push('\n');
    }
    result
}

/// Returns a line whose links rustdoc can follow.
fn relinked(line: &str, names: &[&str]) -> String {
    let mut rest = line;
    let mut result = String::new();
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at);
        let (target, behind) = after[2..].split_once(')').unwrap_or((&after[2..], ""));
        rest = behind;
        let Some(open) = before.rfind('[') else {
            result.push_str(&format!("{before}]({target})"));
            continue;
        };
        let (lead, text) = (&before[..open], &before[open + 1..]);
        let (page, anchor) = target.split_once('#').unwrap_or((target, ""));
        let name = page.strip_suffix(".md").filter(|name| names.contains(name));
        match (lead.strip_suffix('!'), name) {
            (Some(lead), _) => result.push_str(lead),
            (None, Some(name)) => {
                let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
                let module = name.replace('-', "_");
                result.push_str(&format!("{lead}[{text}](crate::guide::{module}{anchor})"));
            }
            (None, None) if page.is_empty() || target.contains("://") => {
                result.push_str(&format!("{before}]({target})"));
            }
            (None, None) => result.push_str(&format!("{lead}{text}")),
        }
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_modules_and_those_out_of_the_package_are_text() {
        let names = ["library", "tutorial-rust"];
        let page = "See [a](library.md#run-it), [b](tutorial-rust.md), [c](#here), [`d`](../x.rs), \
                    [e](https://e.example), ![f](f.svg)\n```rust\n// [g](library.md)\n```\n";
        let expected = "See [a](crate::guide::library#run-it), [b](crate::guide::tutorial_rust), \
                        [c](#here), `d`, [e](https://e.example), \n```rust\n// [g](library.md)\n```\n";
        assert_eq!(for_rustdoc(page, &names), expected);
    }

    #[test]
    fn a_copy_that_differs_from_its_page_is_found() {
        let mut files: Vec<(String, String)> = copies(&Pages::default());
        let all: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        assert!(stale(&Pages::of(&all)).is_empty());
        files[0].1.push('x');
        let all: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        assert_eq!(stale(&Pages::of(&all)).len(), 1);
    }
}
