//! Rules for prose: what it points to is there, and nothing of one machine is in it.

use super::{
    TidyFinding,
    tree::{Tree, TreeFile},
};

/// Commands the README must name: how to see it work, and how to test it.
const README_COMMANDS: [&str; 2] = ["cargo xtask test", "-- demo"];

/// The pages with the proofs and their tests.
const TEST_PAGES: [&str; 2] = ["docs/how-relais-is-tested.md", "docs/spec-coverage.md"];

/// Endings that make a word in backticks a path even without a folder.
const OWN_ENDINGS: [&str; 2] = [".rs", ".sql"];

/// Traits of the seam to the database, which users' code does not need.
const HIDDEN_TRAITS: [&str; 4] = ["Store", "StoreDriver", "Inspect", "InspectExt"];

/// Folders of one machine's files, put together here so that this file names none.
const MACHINE_FOLDERS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// The map must not lie: each path it names in backticks exists.
pub(super) fn architecture_paths(tree: &Tree) -> Vec<TidyFinding> {
    let Some(file) = tree.get("ARCHITECTURE.md") else {
        return vec![TidyFinding::new("ARCHITECTURE.md", 0, "is missing: draw the map")];
    };
    let mut findings = Vec::new();
    for (number, line) in prose(file) {
        let words = line.split('`').skip(1).step_by(2);
        for path in words.filter(|word| is_path(tree, word)).flat_map(expand) {
            if !exists_somewhere(tree, &path) {
                let text = format!("`{path}` does not exist: correct the map");
                findings.push(TidyFinding::new(&file.path, number, text));
            }
        }
    }
    findings
}

pub(super) fn readme_commands(tree: &Tree) -> Vec<TidyFinding> {
    let Some(file) = tree.get("README.md") else {
        return vec![TidyFinding::new("README.md", 0, "is missing: say what this is")];
    };
    let silent = README_COMMANDS.iter().filter(|command| !file.text.contains(**command));
    silent
        .map(|command| TidyFinding::new("README.md", 0, format!("does not name `{command}`")))
        .collect()
}

/// The pages on testing and on the specification name no test that does not exist.
pub(super) fn named_tests(tree: &Tree) -> Vec<TidyFinding> {
    let pages = TEST_PAGES.iter().filter_map(|path| tree.get(path));
    pages.flat_map(|page| missing_tests(tree, page)).collect()
}

fn missing_tests(tree: &Tree, page: &TreeFile) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (number, line) in prose(page) {
        for name in line.split('`').skip(1).step_by(2).filter(|word| is_test_name(word)) {
            let function = format!("fn {name}(");
            if !tree.under("", ".rs").any(|file| file.text.contains(&function)) {
                let text = format!("there is no test `{name}`: name the one that shows it now");
                findings.push(TidyFinding::new(&page.path, number, text));
            }
        }
    }
    findings
}

/// Relative links in Markdown lead somewhere.
pub(super) fn links(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.under("", ".md") {
        for (number, line) in prose(file) {
            for target in targets(line).filter(|target| !tree.has(&resolve(&file.path, target))) {
                let text = format!("the link to `{target}` leads nowhere");
                findings.push(TidyFinding::new(&file.path, number, text));
            }
        }
    }
    findings
}

/// No path that exists on one machine only.
pub(super) fn machine_paths(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (number, line) in file.lines() {
            if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| starts_path(line, folder)) {
                let text = format!("a path of one machine (`{folder}`): make it relative");
                findings.push(TidyFinding::new(&file.path, number, text));
            }
        }
    }
    findings
}

/// Examples and code blocks of the docs use the methods of a store, and not the traits behind them.
pub(super) fn hidden_traits(tree: &Tree) -> Vec<TidyFinding> {
    let examples =
        tree.under("crates/relais/examples/", ".rs").chain(tree.under("examples/", ".rs"));
    let mut findings: Vec<_> = examples.flat_map(|file| named_traits(file, file.lines())).collect();
    findings.extend(tree.under("docs/", ".md").flat_map(|file| named_traits(file, code(file))));
    findings
}

fn named_traits<'a>(
    file: &TreeFile,
    lines: impl Iterator<Item = (usize, &'a str)>,
) -> Vec<TidyFinding> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut findings = Vec::new();
    for (number, line) in lines {
        if let Some(name) =
            line.split(|c: char| !is_part(c)).find(|word| HIDDEN_TRAITS.contains(word))
        {
            let text = format!("`{name}` is hidden from users: use a method of the store");
            findings.push(TidyFinding::new(&file.path, number, text));
        }
    }
    findings
}

/// Lines of fenced blocks with their number.
fn code(file: &TreeFile) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    file.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        fenced && !fence
    })
}

/// Lines with their number, without fenced blocks.
fn prose(file: &TreeFile) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    file.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns true if a word in backticks is a sentence, as the names of tests are.
fn is_test_name(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    word.matches('_').count() > 2 && word.chars().all(plain)
}

/// Returns true if a word in backticks names a file or folder of ours, rather than a type or a URL.
fn is_path(tree: &Tree, word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/{},".contains(c);
    if !word.chars().all(plain) || word.starts_with('/') || word.starts_with("target/") {
        return false;
    }
    match word.split_once('/') {
        Some((first, _)) => {
            let ending = word.rsplit('/').next().is_some_and(|name| name.contains('.'));
            ending || tree.has(first) || tree.has(&format!("crates/{first}"))
        }
        None => OWN_ENDINGS.iter().any(|ending| word.ends_with(ending) && word != *ending),
    }
}

/// `a/{b,c}/d` as `a/b/d` and `a/c/d`; one pair of braces.
fn expand(word: &str) -> Vec<String> {
    let parts = word.split_once('{').and_then(|(before, rest)| {
        let (names, after) = rest.split_once('}')?;
        Some((before, names, after))
    });
    let Some((before, names, after)) = parts else { return vec![word.to_owned()] };
    names.split(',').map(|name| format!("{before}{name}{after}")).collect()
}

/// Paths may be given from the root, from `crates/`, or by their last parts.
fn exists_somewhere(tree: &Tree, path: &str) -> bool {
    let inside = format!("/{}", path.trim_end_matches('/'));
    let folder = format!("{inside}/");
    tree.has(path)
        || tree.files.iter().any(|file| file.path.ends_with(&inside) || file.path.contains(&folder))
}

/// The relative targets of `[text](target)` in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let after = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let relative = after.filter(|target| !target.contains(':') && !target.starts_with('#'));
    relative.map(|target| target.split('#').next().unwrap_or(target))
}

/// A link's target as a path from the root.
fn resolve(from: &str, target: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns true if the folder starts a path there, rather than stands inside a longer one or a URL.
fn starts_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~/}>*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(findings: &[TidyFinding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_path_on_the_map_that_is_not_there_is_found() {
        let map = "`crates/a/src/lib.rs` `a/src/{lib,missing}.rs` `lib.rs` `.rs` `Type` `application/json`\n\
                   `/healthz` `docs/` `docs/missing.md` `target/bench.json`\n\
                   ```\n`crates/a/src/fenced.rs`\n```\n";
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", map),
            ("crates/a/src/lib.rs", ""),
            ("docs/there.md", ""),
        ]);
        let expected = [
            "ARCHITECTURE.md:1: `a/src/missing.rs` does not exist: correct the map",
            "ARCHITECTURE.md:2: `docs/missing.md` does not exist: correct the map",
        ];
        assert_eq!(texts(&architecture_paths(&tree)), expected);
    }

    #[test]
    fn a_missing_or_silent_readme_is_found() {
        assert_eq!(readme_commands(&Tree::default()).len(), 1);
        assert_eq!(architecture_paths(&Tree::default()).len(), 1);
        let tree = Tree::of(&[("README.md", "run `cargo xtask test`")]);
        assert_eq!(texts(&readme_commands(&tree)), ["README.md: does not name `-- demo`"]);
    }

    #[test]
    fn a_missing_test_is_found() {
        let page = "`a_row_that_is_late` `a_row_that_is_gone` `lease_ms`\n";
        let coverage = "| 1 | yes | `point_1_is_not_there` |\n";
        let test = "async fn a_row_that_is_late(f: &dyn Fixture) {}";
        let [first, second] = TEST_PAGES;
        let tree = Tree::of(&[(first, page), (second, coverage), ("a.rs", test)]);
        let missing = |page: &str, name: &str| {
            format!("{page}:1: there is no test `{name}`: name the one that shows it now")
        };
        let expected =
            [missing(first, "a_row_that_is_gone"), missing(second, "point_1_is_not_there")];
        assert_eq!(texts(&named_tests(&tree)), expected);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let page = "[a](../README.md) [b](missing.md#part) [c](https://example.org/x) [d](#here)\n\
                    [e](.) [f](other.md \"title\")\n";
        let tree = Tree::of(&[("README.md", ""), ("docs/page.md", page), ("docs/other.md", "")]);
        assert_eq!(
            texts(&links(&tree)),
            ["docs/page.md:1: the link to `missing.md` leads nowhere"]
        );
    }

    #[test]
    fn code_for_users_that_names_a_trait_of_the_seam_is_found() {
        let page = "A `Store` in the text.\n```rust\nuse relais::{App, Store};\n```\n";
        let example = "use relais::App;\nfn app(store: Arc<dyn StoreDriver>, s: SqliteStore) {}\n";
        let tree = Tree::of(&[
            ("docs/page.md", page),
            ("examples/saga/src/main.rs", example),
            ("crates/relais/src/lib.rs", "use crate::Store;\n"),
        ]);
        let expected = [
            "examples/saga/src/main.rs:2: `StoreDriver` is hidden from users: use a method of the store",
            "docs/page.md:3: `Store` is hidden from users: use a method of the store",
        ];
        assert_eq!(texts(&hidden_traits(&tree)), expected);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let folder = MACHINE_FOLDERS[2];
        let bad = format!("see {folder}me/x\n");
        let good = format!("https://example.org{folder}page and a{folder}b\n");
        let tree = Tree::of(&[("a.toml", bad.as_str()), ("b.md", good.as_str())]);
        let findings = machine_paths(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].file.as_str(), findings[0].line), ("a.toml", 1));
    }
}
