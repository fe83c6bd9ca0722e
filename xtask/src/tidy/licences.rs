//! Every dependency's licence is one that `deny.toml` allows; checked here too, because this needs
//! no tool beyond cargo.

use anyhow::Result;

use super::{TidyFinding, tree::Tree};
use crate::workspace::{Workspace, compiled};

pub(super) fn allowed(tree: &Tree, workspace: &Workspace) -> Result<Vec<TidyFinding>> {
    let policy = tree.get("deny.toml").map_or("", |file| &file.text);
    let allowed = allow_list(policy);
    let compiled = compiled(&["--workspace", "--all-features", "--target", "all"])?;
    let mut findings = Vec::new();
    for package in workspace.packages.iter().filter(|package| package.registry.is_some()) {
        let used = compiled.contains(&(package.name.clone(), package.version.clone()));
        if used && !permits(&package.license, &allowed) {
            let text = format!(
                "{} {} has the licence `{}`, which is not allowed: replace the package, or allow it",
                package.name, package.version, package.license
            );
            findings.push(TidyFinding::new("deny.toml", 0, text));
        }
    }
    Ok(findings)
}

/// The texts of `allow = [ … ]` under `[licenses]`.
fn allow_list(policy: &str) -> Vec<&str> {
    let section = policy.split("[licenses]").nth(1).unwrap_or_default();
    let list = section.split("allow = [").nth(1).unwrap_or_default();
    let list = list.split(']').next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).collect()
}

/// Returns true if an SPDX expression can be met by the allowed licences alone. `/` is the old sign for OR.
fn permits(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest, allowed) && rest.is_empty()
}

fn either(words: &mut &[&str], allowed: &[&str]) -> bool {
    let mut good = both(words, allowed);
    while next_is(words, "OR") {
        good |= both(words, allowed);
    }
    good
}

fn both(words: &mut &[&str], allowed: &[&str]) -> bool {
    let mut good = licence(words, allowed);
    while next_is(words, "AND") {
        good &= licence(words, allowed);
    }
    good
}

/// One name, with its exception if any, or an expression in brackets.
fn licence(words: &mut &[&str], allowed: &[&str]) -> bool {
    if next_is(words, "(") {
        let good = either(words, allowed);
        return next_is(words, ")") && good;
    }
    let Some((name, rest)) = words.split_first() else { return false };
    *words = rest;
    if next_is(words, "WITH") {
        let Some((exception, rest)) = words.split_first() else { return false };
        *words = rest;
        return allowed.contains(&format!("{name} WITH {exception}").as_str());
    }
    allowed.contains(name)
}

/// Steps over the word if it is next.
fn next_is(words: &mut &[&str], word: &str) -> bool {
    match words.split_first() {
        Some((first, rest)) if *first == word => {
            *words = rest;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_only_by_what_is_allowed() {
        let allowed = ["MIT", "Apache-2.0", "ISC"];
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "MIT/Apache-2.0",
            "GPL-3.0 OR (MIT AND ISC)",
            "ISC AND (Apache-2.0 OR GPL-3.0)",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert!(permits(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "(MIT"] {
            assert!(!permits(bad, &allowed), "{bad}");
        }
        assert!(!permits("Apache-2.0 WITH LLVM-exception", &allowed));
    }

    #[test]
    fn the_allow_list_is_that_of_the_licences() {
        let policy =
            "[bans]\nallow = [\"x\"]\n[licenses]\nallow = [\n  \"MIT\", # why\n  \"ISC\",\n]\n";
        assert_eq!(allow_list(policy), ["MIT", "ISC"]);
        assert!(allow_list("").is_empty());
    }
}
