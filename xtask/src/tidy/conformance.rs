//! A check that is written but not listed would be run by no store; each is in the list.

use super::{
    TidyFinding,
    tree::{Tree, TreeFile},
};

const FOLDER: &str = "crates/relais-store-tests/src/conformance";
const PACKAGE: &str = "crates/relais-store-tests/src/";
/// The macro that runs every check on a store.
const LIST: &str = "macro_rules! store_conformance";
/// First words of a check.
const START: &str = "pub async fn ";

pub(super) fn every_check_is_listed(tree: &Tree) -> Vec<TidyFinding> {
    let listing = tree.under(PACKAGE, ".rs").find_map(|file| file.text.split(LIST).nth(1));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut listed: Vec<&str> = listing.unwrap_or_default().split(|c: char| !is_name(c)).collect();
    let mut findings = Vec::new();
    for file in tree.under(FOLDER, ".rs") {
        for (line, name) in checks(file) {
            // Two modules may have a check of the same name; each needs a mention of its own.
            if let Some(at) = listed.iter().position(|word| *word == name) {
                listed.swap_remove(at);
            } else {
                let text = format!("`{name}` is not in store_conformance!, so no store runs it");
                findings.push(TidyFinding::new(&file.path, line, text));
            }
        }
    }
    findings
}

/// Functions such as `pub async fn name(f: &dyn Fixture)`, with their line.
fn checks(file: &TreeFile) -> impl Iterator<Item = (usize, &str)> {
    file.text.match_indices(START).filter_map(|(at, _)| {
        let (name, rest) = file.text[at + START.len()..].split_once('(')?;
        let arguments = rest.split(')').next()?;
        let line = file.text[..at].matches('\n').count() + 1;
        arguments.contains("dyn Fixture").then_some((line, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_is_not_listed_is_found() {
        let checks = "//! Checks.\npub async fn listed(f: &dyn Fixture) {}\n\n\
                      pub async fn forgotten(\n    f: &dyn Fixture,\n) {}\n\
                      pub async fn helper(rows: u8) {}\n";
        let same_name = "pub async fn listed(f: &dyn Fixture) {}";
        let tree = Tree::of(&[
            ("crates/relais-store-tests/src/conformance/inbox.rs", checks),
            ("crates/relais-store-tests/src/conformance/outbox.rs", same_name),
            ("crates/relais-store-tests/src/lib.rs", "macro_rules! store_conformance { listed }"),
        ]);
        let found: Vec<_> = every_check_is_listed(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("/inbox.rs:4: `forgotten`"));
        assert!(found[1].contains("/outbox.rs:1: `listed`"));
    }
}
