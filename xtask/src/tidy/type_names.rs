//! Rules for names of types: unique in the workspace, and nouns.
//!
//! A name that exists twice cannot be searched for, and a bare participle does not say what it is of.

use std::collections::BTreeMap;

use super::{
    TidyFinding,
    rust::{is_test, test_range},
    tree::{Tree, TreeFile},
};

/// Names that exist more than once for a reason.
const SHARED: &[(&str, &str)] = &[
    ("AdoptScript", "one per driver, in modules of the same name"),
    ("AdoptedChange", "one per driver, in modules of the same name"),
    ("AdoptedCopy", "one per driver, in modules of the same name"),
    ("Columns", "private to accept.rs and enqueue.rs: the columns of their rows"),
    ("CopyTemplates", "one per driver, in modules of the same name"),
    ("Database", "public in relais-testkit; private in the program"),
    (
        "Fault",
        "a network fault, public in relais-testkit; the fault of a failed call in relais-core",
    ),
    ("Mark", "one per driver, in modules of the same name"),
    ("Marks", "one per driver, in modules of the same name"),
    ("Positions", "a trait of relais-core; the columns of positions, private to accept.rs"),
    ("ResolvedLetter", "one per driver, in modules of the same name"),
    ("SqlHydrator", "public, one per driver: relais::postgres::SqlHydrator"),
    ("Turn", "one per driver, in modules of the same name"),
    ("WriteBackResult", "one per driver, in modules of the same name"),
];

/// Most names that exist more than once, without those in [`SHARED`].
const DOUBLE_MAX: usize = 0;
/// Most names that are a bare participle.
const PARTICIPLES_MAX: usize = 0;
/// Most names in [`SHARED`].
const SHARED_MAX: usize = 15;

/// Irregular participles. Regular ones end in `ed`.
const IRREGULAR: &[&str] = &[
    "Begun",
    "Bound",
    "Broken",
    "Built",
    "Chosen",
    "Done",
    "Drawn",
    "Found",
    "Given",
    "Gone",
    "Heard",
    "Held",
    "Kept",
    "Known",
    "Left",
    "Lent",
    "Lost",
    "Made",
    "Meant",
    "Read",
    "Rewritten",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Split",
    "Stuck",
    "Taken",
    "Thrown",
    "Told",
    "Waiting",
    "Written",
];
/// Names that end like participles.
const NO_PARTICIPLES: &[(&str, &str)] =
    &[("Received", "its noun is its parameter: `Received<Payment>`; each handler names it")];

const KEYWORDS: [&str; 4] = ["struct ", "enum ", "trait ", "union "];

pub(super) fn unique(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let double = double(tree);
    if double.len() > DOUBLE_MAX {
        findings.extend(double.iter().map(|(name, places)| {
            let (file, line) = places[0];
            let others: Vec<_> =
                places[1..].iter().map(|(file, line)| format!("{file}:{line}")).collect();
            let text = format!(
                "`{name}` exists again in {}: name its domain, or give the reason in SHARED",
                others.join(", ")
            );
            TidyFinding::new(file, line, text)
        }));
        let text = format!("{} double names of types, at most {DOUBLE_MAX}", double.len());
        findings.push(TidyFinding::new("xtask/src/tidy/type_names.rs", 0, text));
    }
    findings.extend(shared_is_true(tree, SHARED));
    findings
}

pub(super) fn nouns(tree: &Tree) -> Vec<TidyFinding> {
    let found = participles(tree);
    if found.len() > PARTICIPLES_MAX { found } else { Vec::new() }
}

/// Returns a note for each count that can be lowered.
pub(super) fn notes(tree: &Tree) -> Vec<String> {
    let counts = [
        ("DOUBLE_MAX", DOUBLE_MAX, double(tree).len()),
        ("PARTICIPLES_MAX", PARTICIPLES_MAX, participles(tree).len()),
    ];
    let low = counts.into_iter().filter(|(_, max, count)| count < max);
    let note = |(name, max, count)| {
        format!("xtask/src/tidy/type_names.rs: lower {name} from {max} to {count}")
    };
    low.map(note).collect()
}

/// Names with all their places, of those that exist more than once and are not in [`SHARED`].
type Places<'a> = BTreeMap<&'a str, Vec<(&'a str, usize)>>;

fn double(tree: &Tree) -> Places<'_> {
    let mut places = all(tree);
    places.retain(|name, places| {
        places.len() > 1 && !SHARED.iter().any(|(shared, _)| shared == name)
    });
    places
}

fn all(tree: &Tree) -> Places<'_> {
    let mut places = Places::new();
    for file in tree.under("", ".rs").filter(|file| is_ours(&file.path)) {
        for (line, name) in types(file) {
            places.entry(name).or_default().push((file.path.as_str(), line));
        }
    }
    places
}

fn participles(tree: &Tree) -> Vec<TidyFinding> {
    let names = all(tree).into_iter().filter(|(name, _)| is_participle(name));
    let text = |name| format!("`{name}` is a bare participle: name the noun");
    let finding = |name, (file, line)| TidyFinding::new(file, line, text(name));
    names.flat_map(|(name, at)| at.into_iter().map(move |at| finding(name, at))).collect()
}

/// Returns whether the name is one word, and that a participle.
fn is_participle(name: &str) -> bool {
    let is_one_word = !name.chars().skip(1).any(char::is_uppercase);
    let is_known = NO_PARTICIPLES.iter().any(|(known, _)| *known == name);
    is_one_word && !is_known && (name.ends_with("ed") || IRREGULAR.contains(&name))
}

/// An entry of the list is needed, has a reason, and the list is short.
fn shared_is_true(tree: &Tree, shared: &[(&str, &str)]) -> Vec<TidyFinding> {
    let file = "xtask/src/tidy/type_names.rs";
    let places = all(tree);
    let mut findings = Vec::new();
    for (name, reason) in shared {
        if places.get(name).is_none_or(|places| places.len() < 2) || reason.is_empty() {
            let text = format!("`{name}` exists once or has no reason: remove it from SHARED");
            findings.push(TidyFinding::new(file, 0, text));
        }
    }
    if shared.len() > SHARED_MAX {
        findings.push(TidyFinding::new(file, 0, format!("more than {SHARED_MAX} names in SHARED")));
    }
    findings
}

/// Examples and fuzz targets are programs of their own.
fn is_ours(path: &str) -> bool {
    let apart = ["examples/", "fuzz/", "docs/"].iter().any(|folder| path.starts_with(folder));
    !apart && !is_test(path) && !path.contains("/benches/") && !path.contains("/examples/")
}

fn types(file: &TreeFile) -> Vec<(usize, &str)> {
    let tests = test_range(&file.text);
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        if tests.contains(&number) {
            continue;
        }
        let mut rest = line.trim_start();
        if let Some(public) = rest.strip_prefix("pub") {
            let after = public.strip_prefix('(').and_then(|inner| inner.split_once(')'));
            rest = after.map_or(public, |(_, rest)| rest).trim_start();
        }
        let named = KEYWORDS.iter().find_map(|keyword| rest.strip_prefix(keyword));
        let name = named.and_then(|rest| rest.split(|c: char| !c.is_alphanumeric()).next());
        found.extend(name.filter(|name| name.starts_with(char::is_uppercase)).map(|n| (number, n)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! A.\npub(crate) struct Lane {}\nenum Told { A }\n\
                        #[cfg(test)]\nmod tests {\n    struct Row;\n}\n";

    #[test]
    fn a_name_that_exists_twice_is_found_and_in_tests_allowed() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", CODE),
            ("crates/a/tests/it.rs", CODE),
            ("crates/b/src/lib.rs", "//! B.\npub struct Lane;\npub struct Row<T>(T);\n"),
        ]);
        let double = double(&tree);
        assert_eq!(double.keys().copied().collect::<Vec<_>>(), ["Lane"]);
        assert_eq!(double["Lane"], [("crates/a/src/lib.rs", 2), ("crates/b/src/lib.rs", 2)]);
    }

    #[test]
    fn a_bare_participle_is_found() {
        let code = format!("{CODE}struct Settled;\nstruct SettledRow;\nstruct RowSettled;\n");
        let tree = Tree::of(&[("crates/a/src/lib.rs", &code)]);
        let found = participles(&tree);
        assert_eq!(found.len(), 2);
        assert!(found[0].text.starts_with("`Settled`") && found[1].text.starts_with("`Told`"));
    }

    #[test]
    fn an_exception_holds_only_while_it_is_true() {
        let tree = Tree::of(&[("crates/a/src/a.rs", CODE), ("crates/a/src/b.rs", CODE)]);
        assert_eq!(shared_is_true(&tree, &[("Lane", "two databases")]), []);
        assert_eq!(shared_is_true(&tree, &[("Lane", ""), ("Row", "two databases")]).len(), 2);
        assert_eq!(shared_is_true(&tree, &[("Lane", "two databases"); 16]).len(), 1);
    }
}
