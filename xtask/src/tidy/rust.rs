//! Rules for `.rs` files: size, first line, nothing unfinished, no SQL.

use super::{
    TidyFinding,
    literals::strings,
    tree::{Tree, TreeFile},
};

/// Lines of a file without its test module.
const CODE_LINES_MAX: usize = 400;
/// Lines of a file with everything in it.
const FILE_LINES_MAX: usize = 600;

/// Marks of work that was left for later, put together here so that this file has none.
const UNFINISHED: [&str; 4] = [
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("FIX", "ME"),
    concat!("#[ig", "nore"),
];

/// First words of a statement that belongs in a `.sql` file. `BEGIN`, `COMMIT`, `SAVEPOINT` and `PRAGMA`
/// are no statements on rows; they may stand in the code.
const STATEMENTS: [&str; 9] =
    ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "CREATE", "ALTER", "DROP", "TRUNCATE"];

pub(super) fn sizes(tree: &Tree) -> Vec<TidyFinding> {
    let too_long = |file: &TreeFile| {
        let all = file.text.lines().count();
        let code = all - test_lines(&file.text);
        let (lines, most, what) = if is_test(&file.path) || code <= CODE_LINES_MAX {
            (all, FILE_LINES_MAX, "in all")
        } else {
            (code, CODE_LINES_MAX, "without tests")
        };
        (lines > most).then(|| {
            let text =
                format!("{lines} lines {what}, at most {most}: split it by what it is about");
            TidyFinding::new(&file.path, 0, text)
        })
    };
    tree.under("", ".rs").filter_map(too_long).collect()
}

pub(super) fn module_docs(tree: &Tree) -> Vec<TidyFinding> {
    let silent = tree.under("", ".rs").filter(|file| !file.text.starts_with("//!"));
    let text = "does not start with `//!`: say what the module is and its invariant";
    silent.map(|file| TidyFinding::new(&file.path, 1, text)).collect()
}

pub(super) fn unfinished(tree: &Tree) -> Vec<TidyFinding> {
    let files = tree.under("", ".rs").chain(tree.under("", ".sql"));
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in file.lines() {
            if let Some(mark) = UNFINISHED.iter().find(|mark| line.contains(**mark)) {
                findings.push(TidyFinding::new(&file.path, number, format!("`{mark}`: finish it")));
            }
        }
    }
    findings
}

/// SQL stands in `.sql` files, where one can read all of a driver's statements side by side.
pub(super) fn no_sql(tree: &Tree) -> Vec<TidyFinding> {
    let shipped = tree.under("crates/", ".rs").filter(|file| {
        file.path.contains("/src/") && !file.path.contains("testkit/") && !is_test(&file.path)
    });
    let mut findings = Vec::new();
    for file in shipped {
        let tests = test_range(&file.text);
        for (line, string) in strings(&file.text) {
            if is_statement(string) && !tests.contains(&line) {
                let text = "SQL in the code: move it to a file of its own under sql/";
                findings.push(TidyFinding::new(&file.path, line, text));
            }
        }
    }
    findings
}

fn is_statement(string: &str) -> bool {
    let mut words = string.split_whitespace();
    words.next().is_some_and(|word| STATEMENTS.contains(&word)) && words.next().is_some()
}

/// Returns true for files and packages that hold only tests.
pub(super) fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.contains("-tests/") || path.ends_with("tests.rs")
}

/// Returns the lines of `#[cfg(test)] mod tests { … }`, which rustfmt puts at the margin; empty if none.
pub(super) fn test_range(source: &str) -> std::ops::Range<usize> {
    let lines: Vec<&str> = source.lines().collect();
    let start = lines.windows(2).position(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    let Some(start) = start else { return 0..0 };
    let length = lines[start..].iter().position(|line| *line == "}");
    let end = length.map_or(lines.len(), |length| start + length + 1);
    start + 1..end + 1
}

fn test_lines(source: &str) -> usize {
    test_range(source).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> String {
        "//! A line.\n".repeat(count)
    }

    #[test]
    fn long_files_are_found_and_their_tests_do_not_count_as_code() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(100));
        let tree = Tree::of(&[
            ("a/src/good.rs", &(lines(400) + &tests)),
            ("a/src/long.rs", &lines(401)),
            ("a/src/whole.rs", &(lines(400) + &tests + &tests)),
            ("a/tests/good.rs", &lines(600)),
            ("a/tests/long.rs", &lines(601)),
        ]);
        let findings = sizes(&tree);
        let found: Vec<_> = findings.iter().map(|finding| finding.file.as_str()).collect();
        assert_eq!(found, ["a/src/long.rs", "a/src/whole.rs", "a/tests/long.rs"]);
        assert!(findings[0].text.starts_with("401 lines without tests, at most 400"));
    }

    #[test]
    fn a_file_without_a_first_word_is_found() {
        let tree = Tree::of(&[("a.rs", "//! Good.\n"), ("b.rs", "use std::fmt;\n")]);
        assert_eq!(module_docs(&tree)[0].to_string().split(": ").next(), Some("b.rs:1"));
        assert_eq!(module_docs(&tree).len(), 1);
    }

    #[test]
    fn unfinished_work_is_found_with_its_line() {
        let bad = format!("//! Bad.\nfn f() {{ {}) }}\n", UNFINISHED[0]);
        let tree = Tree::of(&[("a.rs", bad.as_str()), ("note.md", bad.as_str())]);
        let findings = unfinished(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].file.as_str(), findings[0].line), ("a.rs", 2));
    }

    #[test]
    fn statements_in_the_code_are_found_and_in_tests_allowed() {
        let bad = "//! Bad.\nconst A: &str = \"SELECT 1\";\n\
                   const B: &str = r#\"\n  DELETE FROM x\"#;\n\
                   // \"SELECT 1\"\nconst OK: &str = \"BEGIN IMMEDIATE\";\n\
                   const WORD: &str = \"UPDATE\";\nconst TEXT: &str = \"Select one\";\n\
                   #[cfg(test)]\nmod tests {\n    const C: &str = \"SELECT 2\";\n}\n";
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", bad),
            ("crates/a/tests/it.rs", bad),
            ("crates/relais-testkit/src/lib.rs", bad),
            ("xtask/src/main.rs", bad),
        ]);
        let found: Vec<_> =
            no_sql(&tree).into_iter().map(|finding| (finding.file, finding.line)).collect();
        let file = "crates/a/src/lib.rs".to_owned();
        assert_eq!(found, [(file.clone(), 2), (file, 3)]);
    }
}
