//! Every package takes the lints of the workspace, and those forbid `unsafe`: a package that forgets the
//! two lines would be without both, and no compiler would say so.

use super::{TidyFinding, tree::Tree};

const FORBIDDEN: &str = "unsafe_code = \"forbid\"";
const TAKEN: &str = "[lints]\nworkspace = true\n";

pub(super) fn every_package_takes_ours(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let root = tree.get("Cargo.toml").map_or("", |file| &file.text);
    if !root.lines().any(|line| line == FORBIDDEN) {
        findings.push(TidyFinding::new(
            "Cargo.toml",
            0,
            format!("say `{FORBIDDEN}` for all packages"),
        ));
    }
    // A workspace of its own has no lints of ours to take.
    let is_member = |text: &str| text.contains("[package]") && !text.contains("[workspace]");
    let packages = tree.under("", "Cargo.toml").filter(|file| is_member(&file.text));
    let without = packages.filter(|file| !file.text.contains(TAKEN));
    let text = "the lints of the workspace are not taken: add `[lints]` with `workspace = true`";
    findings.extend(without.map(|file| TidyFinding::new(&file.path, 0, text)));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
    const GOOD: &str = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n\n[dependencies]\n";

    #[test]
    fn a_package_without_our_lints_is_found() {
        let good = Tree::of(&[("Cargo.toml", ROOT), ("crates/a/Cargo.toml", GOOD)]);
        assert_eq!(every_package_takes_ours(&good), []);
        let bad = GOOD.replace("workspace = true", "workspace = false");
        let bad = Tree::of(&[("Cargo.toml", ROOT), ("crates/a/Cargo.toml", &bad)]);
        assert_eq!(every_package_takes_ours(&bad)[0].file, "crates/a/Cargo.toml");
    }

    #[test]
    fn a_workspace_that_allows_unsafe_is_found() {
        let bad = ROOT.replace("forbid", "warn");
        let bad = Tree::of(&[("Cargo.toml", &bad), ("crates/a/Cargo.toml", GOOD)]);
        assert_eq!(every_package_takes_ours(&bad)[0].file, "Cargo.toml");
    }
}
