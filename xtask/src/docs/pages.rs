//! The Markdown pages of the repository: headings, links and anchors.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result};

/// The table of contents of the book.
pub(super) const SUMMARY: &str = "docs/SUMMARY.md";
/// Folders that hold no pages of ours.
const LEFT_OUT: [&str; 3] = ["target", ".git", "node_modules"];

/// All pages, by their path from the root. Other files have no text.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    files: BTreeMap<String, String>,
}

/// A link in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) line: usize,
    /// Relative, as it is written, without the anchor. Empty: this page.
    pub(super) target: String,
    pub(super) anchor: Option<String>,
}

impl Pages {
    pub(super) fn load(root: &Path) -> Result<Self> {
        let mut pages = Self::default();
        pages.add(root, "")?;
        Ok(pages)
    }

    /// Returns the pages that the book must have.
    pub(super) fn book(&self) -> impl Iterator<Item = &str> {
        self.markdown()
            .map(|(path, _)| path)
            .filter(|path| path.starts_with("docs/") && *path != SUMMARY)
    }

    /// Returns every page with its text.
    pub(super) fn markdown(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        all.filter(|(path, _)| path.ends_with(".md"))
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns whether there is such a file, or a folder with something in it.
    pub(super) fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }

    fn add(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        let entries =
            fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() && !LEFT_OUT.contains(&name.as_str()) {
                self.add(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() {
                let is_page = name.ends_with(".md");
                let text = if is_page { fs::read_to_string(entry.path())? } else { String::new() };
                self.files.insert(path, text);
            }
        }
        Ok(())
    }
}

/// Returns the lines with their number, without fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns the anchors of a page, as GitHub and mdBook make them from its headings.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor = kept.collect::<String>().replace(' ', "-");
        let before = anchors.iter().filter(|known| is_repetition(known, &anchor)).count();
        anchors.push(if before == 0 { anchor } else { format!("{anchor}-{before}") });
    }
    anchors
}

/// A second heading of the same text gets a number.
fn is_repetition(known: &str, anchor: &str) -> bool {
    known.strip_prefix(anchor).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|n| n.parse::<usize>().is_ok())
    })
}

/// Returns the relative links of a page, images included.
pub(super) fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, text) in prose(text) {
        for rest in without_code(text).split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            if target.contains(':') {
                continue;
            }
            let (target, anchor) = match target.split_once('#') {
                Some((target, anchor)) => (target, Some(anchor.to_owned())),
                None => (target, None),
            };
            links.push(Link { line, target: target.to_owned(), anchor });
        }
    }
    links
}

/// Words in backticks hold no links.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.map(|(n, part)| if n % 2 == 0 { part } else { "" }).collect::<Vec<_>>().join("`")
}

/// Returns the target of a link as a path from the root.
pub(super) fn resolve(from: &str, target: &str) -> String {
    if target.is_empty() {
        return from.to_owned();
    }
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut path = PathBuf::from(folder);
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.to_string_lossy().into_owned()
}

/// Returns a page of `docs` with the text of links that leave the folder, but not the links.
pub(super) fn without_outer_links(page: &Path, text: &str) -> String {
    let depth = page.components().rev().take_while(|part| part.as_os_str() != "docs").count();
    let out = "../".repeat(depth);
    let mut result = String::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        result.push_str(&if fenced { line.to_owned() } else { unlinked(line, &out) });
        result.push('\n');
    }
    result
}

/// `[text](../../x)` as `text`, where `out` is how a target leaves the folder.
fn unlinked(line: &str, out: &str) -> String {
    let mut rest = line;
    let mut result = String::new();
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at);
        let (target, behind) = after[2..].split_once(')').unwrap_or((&after[2..], ""));
        match before.rfind('[') {
            Some(open) if target.starts_with(out) => {
                result.push_str(&before[..open]);
                result.push_str(&before[open + 1..]);
            }
            _ => result.push_str(&format!("{before}]({target})")),
        }
        rest = behind;
    }
    result + rest
}

#[cfg(test)]
impl Pages {
    /// A repository of a few samples.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self { files: files.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_github_and_mdbook() {
        let text = "# A page\n## `[destination.limits]`\n## C# (Npgsql)\n```sh\n# no heading\n```\n## A page\n";
        assert_eq!(anchors(text), ["a-page", "destinationlimits", "c-npgsql", "a-page-1"]);
    }

    #[test]
    fn links_are_found_outside_of_code_with_their_anchors() {
        let text = "[a](b.md#c) `[x](y.md)` [d](https://e) [f](#g)\n```text\n[h](i.md)\n```\n![j](k.svg)\n";
        let link = |line, target: &str, anchor: Option<&str>| Link {
            line,
            target: target.to_owned(),
            anchor: anchor.map(str::to_owned),
        };
        let expected = [link(1, "b.md", Some("c")), link(1, "", Some("g")), link(5, "k.svg", None)];
        assert_eq!(links(text), expected);
    }

    #[test]
    fn links_that_leave_the_book_become_text() {
        let text = "See [the map](../ARCHITECTURE.md), [it](it.md) and [`x`](../x).\n```text\n[a](../b)\n```\n";
        let expected = "See the map, [it](it.md) and `x`.\n```text\n[a](../b)\n```\n";
        assert_eq!(without_outer_links(Path::new("docs/page.md"), text), expected);
        let deeper = "[up](../page.md) [out](../../ARCHITECTURE.md)\n";
        let expected = "[up](../page.md) out\n";
        assert_eq!(without_outer_links(Path::new("docs/decisions/a.md"), deeper), expected);
    }
}
