//! Each connector that a user can choose is named where users look for connectors.

use super::{TidyFinding, tree::Tree};

/// The features of the public API; those of connectors turn on a feature of `relais-connect`.
const MANIFEST: &str = "crates/relais/Cargo.toml";
const CONNECT: &str = "\"relais-connect/";

/// Pages with a table of features: each has the row of the connector.
const TABLES: [&str; 2] = ["crates/relais/src/lib.rs", "docs/library.md"];
/// Pages that list the connectors: each links the connector's page.
const LISTS: [&str; 2] = ["docs/concepts.md", "docs/compare.md"];

/// Each connector feature is in the tables of features and in the lists of connectors.
pub(super) fn listed(tree: &Tree) -> Vec<TidyFinding> {
    let features = connector_features(tree);
    if features.is_empty() {
        return vec![TidyFinding::new(MANIFEST, 0, "has no connector: adjust this check")];
    }
    let mut findings = Vec::new();
    for feature in features {
        let row = format!("| `{feature}` |");
        let link = format!("({feature}.md)");
        let tables = TABLES.iter().map(|page| (page, &row));
        for (page, text) in tables.chain(LISTS.iter().map(|page| (page, &link))) {
            if !tree.get(page).is_some_and(|file| file.text.contains(text)) {
                let text = format!("lacks `{text}`: name the connector `{feature}`");
                findings.push(TidyFinding::new(page, 0, text));
            }
        }
    }
    findings
}

fn connector_features(tree: &Tree) -> Vec<&str> {
    let manifest = tree.get(MANIFEST).map_or("", |file| file.text.as_str());
    let lines = manifest.lines().filter(|line| line.contains(CONNECT));
    lines.filter_map(|line| Some(line.split_once(" = ")?.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connector_that_a_page_does_not_name_is_found() {
        let manifest = "[features]\nsqlite = [\"relais-store/sqlite\"]\n\
                        nats = [\"relais-connect/nats\", \"dep:async-nats\"]\n";
        let [lib, library] = TABLES;
        let [concepts, compare] = LISTS;
        let tree = Tree::of(&[
            (MANIFEST, manifest),
            (lib, "//! | `nats` | `nats` | |"),
            (library, "nats"),
            (concepts, "[NATS](nats.md)"),
            (compare, "NATS"),
        ]);
        let files: Vec<_> = listed(&tree).into_iter().map(|finding| finding.file).collect();
        assert_eq!(files, [library, compare]);
    }

    #[test]
    fn a_manifest_without_connectors_is_found() {
        assert_eq!(listed(&Tree::default()).len(), 1);
    }
}
