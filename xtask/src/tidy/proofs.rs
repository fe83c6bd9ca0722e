//! Pages that say which test shows something: the test is there, and no failure mode is left out.
//!
//! A test is named as `path/of/file.rs::name`.

use std::collections::BTreeMap;

use super::{
    TidyFinding,
    tree::{Tree, TreeFile},
};

/// Pages on which tests are named by file.
const PAGES: [&str; 2] = [MAP, "docs/how-relais-is-tested.md"];
/// One row for each failure mode.
const MAP: &str = "docs/failure-modes.md";
/// Number of failure modes of each group.
const GROUPS: [(char, usize); 8] =
    [('A', 26), ('B', 22), ('C', 22), ('D', 14), ('E', 14), ('F', 7), ('G', 12), ('H', 16)];
/// Texts that the last cell of a row may have instead of a test.
const EXCUSES: [&str; 2] = ["not tested: ", "not applicable: "];
/// Checks that every store runs are functions without an attribute.
const CHECKS: &str = "crates/relais-store-tests/src/conformance/";

/// Every test that is named by file and name exists.
pub(super) fn named_tests(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for page in PAGES.iter().filter_map(|path| tree.get(path)) {
        for (number, line) in page.lines() {
            for (path, name) in names(line) {
                let wrong = match tree.get(path) {
                    None => format!("there is no file `{path}`"),
                    Some(file) if !has_test(file, name) => {
                        format!("`{path}` has no test `{name}`")
                    }
                    Some(_) => continue,
                };
                let text = format!("{wrong}: name the one that shows it now");
                findings.push(TidyFinding::new(&page.path, number, text));
            }
        }
    }
    findings
}

/// Every failure mode has one row, which names a test or says why there is none.
pub(super) fn whole_map(tree: &Tree) -> Vec<TidyFinding> {
    let Some(map) = tree.get(MAP) else { return Vec::new() };
    let mut findings = Vec::new();
    let mut rows = BTreeMap::new();
    for (number, line) in map.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(id) = cells.get(1).copied().filter(|id| is_mode(id)) else { continue };
        if rows.insert(id, number).is_some() {
            findings.push(TidyFinding::new(MAP, number, format!("{id} has a second row")));
        }
        let last = cells.iter().rev().nth(1).copied().unwrap_or_default();
        if names(last).next().is_none() && !EXCUSES.iter().any(|excuse| last.contains(excuse)) {
            let text = format!("{id} names no test: name one, or write `{}` and why", EXCUSES[0]);
            findings.push(TidyFinding::new(MAP, number, text));
        }
    }
    let all = GROUPS.iter().flat_map(|(group, count)| (1..=*count).map(move |n| (group, n)));
    let missing = all.map(|(group, n)| format!("{group}{n}"));
    let missing = missing.filter(|id| !rows.contains_key(id.as_str()));
    findings.extend(missing.map(|id| TidyFinding::new(MAP, 0, format!("{id} has no row"))));
    findings
}

/// Words in backticks such as `crates/a/src/b.rs::name`.
fn names(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = text.split('`').skip(1).step_by(2);
    words.filter_map(|word| word.split_once("::")).filter(|(path, _)| path.ends_with(".rs"))
}

/// Such as `A1` or `H16`.
fn is_mode(cell: &str) -> bool {
    let mut letters = cell.chars();
    let group = letters.next();
    let number = letters.as_str().parse::<usize>();
    GROUPS.iter().any(|(known, _)| Some(*known) == group) && number.is_ok()
}

/// Returns true if the file has a function of this name with an attribute that makes it a test.
fn has_test(file: &TreeFile, name: &str) -> bool {
    let function = format!("fn {name}(");
    file.text.match_indices(&function).any(|(at, _)| {
        let line = file.text[..at].rfind('\n').unwrap_or(0);
        let above = file.text[..line].lines().rev().map(str::trim_start);
        let mut attributes = above.take_while(|line| line.starts_with(['#', '/']));
        file.path.starts_with(CHECKS)
            || attributes.any(|line| line.starts_with("#[") && line.contains("test"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(findings: &[TidyFinding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_missing_file_or_test_is_found() {
        let page = "| A1 | `a.rs::there` `a.rs::late` `a.rs::helper` `a.rs::missing` `b.rs::there` `c::d` |\n\
                    `crates/relais-store-tests/src/conformance/x.rs::check`\n";
        let file = "#[test]\nfn there() {}\n\nfn helper() {}\n\n\
                    #[tokio::test]\n/// Why.\n#[cfg(unix)]\nasync fn late() {}\n";
        let tree = Tree::of(&[
            (MAP, page),
            ("a.rs", file),
            ("crates/relais-store-tests/src/conformance/x.rs", "pub async fn check(f: &F) {}"),
        ]);
        let end = "name the one that shows it now";
        let expected = [
            format!("{MAP}:1: `a.rs` has no test `helper`: {end}"),
            format!("{MAP}:1: `a.rs` has no test `missing`: {end}"),
            format!("{MAP}:1: there is no file `b.rs`: {end}"),
        ];
        assert_eq!(texts(&named_tests(&tree)), expected);
    }

    #[test]
    fn a_failure_mode_without_a_row_or_a_test_is_found() {
        let rows = GROUPS.iter().flat_map(|(group, count)| {
            (1..=*count).map(move |n| format!("| {group}{n} | x | y | not tested: no |\n"))
        });
        let whole: String = rows.collect();
        assert_eq!(whole_map(&Tree::of(&[(MAP, whole.as_str())])), []);
        let silent = "| A1 | x | y | `a.rs::b` |\n| A2 | x | `a.rs::b` | soon |\n| A1 | - |\n";
        let found = texts(&whole_map(&Tree::of(&[(MAP, silent)])));
        assert_eq!(found.len(), 134, "131 without a row, A2 without a test, A1 twice and bare");
        assert!(found[0].contains("A2 names no test") && found[1].contains("A1 has a second row"));
    }
}
