//! Sizes that stay small by decision: the seam to the database, the examples, the front page.

use super::{
    TidyFinding,
    tree::{Tree, TreeFile},
};

/// Traits that a driver implements, with the most methods that each group has together.
const SEAMS: [(&[(&str, &str)], usize); 2] = [
    (&[("crates/relais-core/src/store.rs", "Store")], 24),
    (
        &[
            ("crates/relais-core/src/inspect.rs", "Inspect"),
            ("crates/relais-core/src/dead_letter.rs", "DeadLetterStore"),
        ],
        12,
    ),
];

/// The folder of the small examples, and the most lines of each.
const EXAMPLES: &str = "crates/relais/examples/";
const EXAMPLE_LINES_MAX: usize = 60;

const README: &str = "README.md";
const README_LINES_MAX: usize = 75;

/// Each method of the seam is written once per database.
pub(super) fn seams(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (traits, most) in SEAMS {
        let counts: Vec<_> = traits.iter().map(|(file, name)| methods(tree, file, name)).collect();
        for ((file, name), _) in traits.iter().zip(&counts).filter(|(_, count)| count.is_none()) {
            let text = format!("has no methods of `trait {name}`: adjust this check");
            findings.push(TidyFinding::new(file, 0, text));
        }
        let count: usize = counts.into_iter().flatten().sum();
        if count > most {
            let names: Vec<_> = traits.iter().map(|(_, name)| *name).collect();
            let names = names.join(" and ");
            let text = format!("{names}: {count} methods, at most {most}: join two of them");
            findings.push(TidyFinding::new(traits[0].0, 0, text));
        }
    }
    findings
}

/// An example fits on one screen.
pub(super) fn examples(tree: &Tree) -> Vec<TidyFinding> {
    let files = tree.under(EXAMPLES, ".rs");
    files.filter_map(|file| too_long(file, EXAMPLE_LINES_MAX)).collect()
}

/// The front page fits on one screen.
pub(super) fn readme(tree: &Tree) -> Vec<TidyFinding> {
    tree.get(README).and_then(|file| too_long(file, README_LINES_MAX)).into_iter().collect()
}

fn too_long(file: &TreeFile, most: usize) -> Option<TidyFinding> {
    let lines = file.text.lines().count();
    let text = format!("{lines} lines, at most {most}: shorten it");
    (lines > most).then(|| TidyFinding::new(&file.path, 0, text))
}

/// Returns the number of methods of a public trait; none if the file has no such trait, or the trait no methods.
fn methods(tree: &Tree, file: &str, name: &str) -> Option<usize> {
    let start = format!("pub trait {name}:");
    let lines = tree.get(file)?.text.lines();
    let body = lines.skip_while(|line| !line.starts_with(&start)).take_while(|line| *line != "}");
    let is_method = |line: &&str| line.starts_with("    async fn ") || line.starts_with("    fn ");
    Some(body.filter(is_method).count()).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_methods(store: usize, inspect: usize) -> Tree {
        let body = |name: &str, count: usize| {
            let methods = "    async fn a(&self);\n".repeat(count);
            format!(
                "pub trait {name}: Send + Sync {{\n{methods}}}\n\nimpl X {{\n    fn b() {{}}\n}}\n"
            )
        };
        let [(store_traits, _), (read_traits, _)] = SEAMS;
        let [(reads, _), (decisions, _)] = read_traits else { panic!("two traits") };
        Tree::of(&[
            (store_traits[0].0, &body("Store", store)),
            (reads, &body("Inspect", inspect)),
            (decisions, &body("DeadLetterStore", 5)),
        ])
    }

    #[test]
    fn a_seam_with_too_many_methods_is_found() {
        assert_eq!(seams(&with_methods(24, 7)), []);
        let texts: Vec<_> = seams(&with_methods(25, 8)).into_iter().map(|f| f.text).collect();
        let expected = [
            "Store: 25 methods, at most 24: join two of them",
            "Inspect and DeadLetterStore: 13 methods, at most 12: join two of them",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_seam_that_has_moved_is_found() {
        assert_eq!(seams(&Tree::default()).len(), 3);
    }

    #[test]
    fn a_long_example_and_a_long_front_page_are_found() {
        let example = format!("{EXAMPLES}a.rs");
        let tree = |example_lines: usize, readme_lines: usize| {
            let (code, page) = ("\n".repeat(example_lines), "\n".repeat(readme_lines));
            Tree::of(&[(example.as_str(), code.as_str()), (README, page.as_str())])
        };
        let good = tree(EXAMPLE_LINES_MAX, README_LINES_MAX);
        assert_eq!((examples(&good), readme(&good)), (vec![], vec![]));
        let bad = tree(EXAMPLE_LINES_MAX + 1, README_LINES_MAX + 1);
        assert_eq!((examples(&bad).len(), readme(&bad).len()), (1, 1));
    }
}
