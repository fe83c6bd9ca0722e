//! Rules for words: plain technical English, as `STYLE.md` requires.
//!
//! Texts that users see contain no banned word. Comments and names of tests have a count that only goes
//! down: more is a finding, fewer is a note that asks to lower the count here.

use std::collections::BTreeMap;

use super::{
    TidyFinding,
    literals::{comments, strings},
    rust::{is_test, test_range},
    tree::{Tree, TreeFile},
};

/// Words and phrases with their common replacement.
type BannedWords = (&'static [&'static str], &'static str);

/// Banned words and phrases, each with its replacement. A trailing `*` stands for any ending.
const BANNED: &[BannedWords] = &[
    (
        &["nobody", "somebody", "whoever", "anybody", "everybody", "people", "person", "persons"],
        "name the actor: worker, operator, sender, broker, another process",
    ),
    (&["mend", "mends", "mended", "mending"], "fix"),
    (&["for ever"], "indefinitely"),
    (&["in vain"], "without result"),
    (&["anew"], "again"),
    (&["under way", "in hand"], "in flight"),
    (&["rehears*"], "validate, test decode"),
    (&["told", "tell", "tells"], "reports, logs, returns, shows"),
    (&["goes on", "go on", "went on"], "continues"),
    (&["so many"], "give the number"),
    (&["is away", "are away", "being away"], "unavailable"),
    (&["lay out"], "arrange, format"),
    (&["held back"], "parked"),
    (&["set going", "second reading"], "reprocess"),
    (&["cannot be read"], "undecodable, invalid"),
    (&["go through", "went through"], "delivered"),
    (&["left alone"], "unavailable, not changed"),
    (&["gone"], "removed, deleted, lost"),
];

/// Words that are banned only in texts that users see: comments may speak of what a statement or a test says.
const BANNED_VISIBLE: &[BannedWords] = &[
    (&["says", "said"], "reports, states, shows"),
    (&["looks"], "reads, polls, checks"),
    (&["caution*", "suffers"], "quarantine"),
    (&["does not take", "do not take"], "refuses, rejects"),
];

/// A banned word that is right where it is.
struct Exception {
    file: &'static str,
    /// Part of the text.
    text: &'static str,
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        file: "docs/glossary.md",
        text: "| ",
        reason: "its tables name the words to avoid",
    },
    Exception {
        file: "CHANGELOG.md",
        text: "says when a failed process",
        reason: "entries of the past keep their words",
    },
    Exception {
        file: "docs/how-relais-is-tested.md",
        text: "unless a line says",
        reason: "it is about the lines of that page",
    },
];

/// Banned words in texts that users see.
const VISIBLE_MAX: usize = 0;
/// Banned words in comments: those of applied migrations, which never change.
const COMMENTS_MAX: usize = 15;
/// Banned words in names of tests and other functions.
const TEST_NAMES_MAX: usize = 0;
/// Doc comments that do not begin with a verb or a noun.
const OPENINGS_MAX: usize = 0;

/// Words that a doc comment must not begin with.
const OPENINGS: [&str; 5] = ["What", "How", "Whether", "Where", "Who"];

/// Packages whose string literals users see.
const PRODUCT: [&str; 8] = [
    "crates/relais/",
    "crates/relais-admin/",
    "crates/relais-cli/",
    "crates/relais-connect/",
    "crates/relais-core/",
    "crates/relais-derive/",
    "crates/relais-listen/",
    "crates/relais-store/",
];
/// The arguments of the program: their doc comments are its `--help`.
const HELP: &str = "crates/relais-cli/src/args";
/// Folders and files at the root whose whole text users see.
const PROSE: [&str; 5] = ["crates/relais-admin/console/", "docs/", "examples/", "ops/", ".md"];
const PROSE_ENDINGS: [&str; 10] =
    [".css", ".html", ".js", ".json", ".md", ".service", ".sh", ".svg", ".toml", "ml"];

/// A kind of text, with the most banned words in it.
struct Ratchet {
    name: &'static str,
    max: usize,
    count: fn(&Tree) -> Vec<TidyFinding>,
}

const RATCHETS: [Ratchet; 4] = [
    Ratchet { name: "VISIBLE_MAX", max: VISIBLE_MAX, count: visible },
    Ratchet { name: "COMMENTS_MAX", max: COMMENTS_MAX, count: in_comments },
    Ratchet { name: "TEST_NAMES_MAX", max: TEST_NAMES_MAX, count: in_names },
    Ratchet { name: "OPENINGS_MAX", max: OPENINGS_MAX, count: openings },
];

/// Returns a finding for each kind of text with more than its count, and one for a stale exception.
pub(super) fn banned(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings: Vec<TidyFinding> = RATCHETS.iter().filter_map(|r| above(r, tree)).collect();
    findings.extend(stale(tree, EXCEPTIONS));
    findings
}

/// Returns a note for each count that can be lowered.
pub(super) fn notes(tree: &Tree) -> Vec<String> {
    let below = |ratchet: &Ratchet| {
        let count = (ratchet.count)(tree).len();
        let Ratchet { name, max, .. } = ratchet;
        (count < *max)
            .then(|| format!("xtask/src/tidy/words.rs: lower {name} from {max} to {count}"))
    };
    RATCHETS.iter().filter_map(below).collect()
}

/// Returns every place of every kind, for `cargo xtask tidy --words`.
pub(super) fn places(tree: &Tree) -> Vec<TidyFinding> {
    RATCHETS.iter().flat_map(|ratchet| (ratchet.count)(tree)).collect()
}

fn above(ratchet: &Ratchet, tree: &Tree) -> Option<TidyFinding> {
    let found = (ratchet.count)(tree);
    if found.len() <= ratchet.max {
        return None;
    }
    let mut files = BTreeMap::<&str, usize>::new();
    for finding in &found {
        *files.entry(&finding.file).or_default() += 1;
    }
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let first: Vec<_> = files.iter().take(5).map(|(file, n)| format!("{file} ({n})")).collect();
    let text = format!(
        "{} {}, at most {}: {}; `cargo xtask tidy --words` lists them",
        found.len(),
        ratchet.name,
        ratchet.max,
        first.join(", ")
    );
    Some(TidyFinding::new("xtask/src/tidy/words.rs", 0, text))
}

/// String literals of the product, help texts, pages and files for operators.
fn visible(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        if is_prose(&file.path) {
            for (line, text) in file.lines() {
                findings.extend(check_visible(file, line, text));
            }
        } else if is_product(&file.path) {
            let tests = test_range(&file.text);
            for (line, text) in strings(&file.text) {
                if !tests.contains(&line) {
                    findings.extend(check_visible(file, line, text));
                }
            }
            if file.path.starts_with(HELP) {
                let help = comments(&file.text).into_iter();
                let help = help.filter(|(_, text)| text.starts_with("/// "));
                findings.extend(help.flat_map(|(line, text)| check_visible(file, line, text)));
            }
        }
    }
    findings
}

/// Comments of Rust and SQL that users do not see.
fn in_comments(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.under("", ".rs") {
        let help = |text: &str| file.path.starts_with(HELP) && text.starts_with("/// ");
        for (line, text) in comments(&file.text) {
            if !help(text) {
                findings.extend(check(file, line, text));
            }
        }
    }
    for file in tree.under("crates/", ".sql").chain(tree.under("torture/", ".sql")) {
        for (line, text) in file.lines() {
            let comment = text.split_once("--").map(|(_, comment)| comment);
            findings.extend(check(file, line, comment.unwrap_or_default()));
        }
    }
    findings
}

/// Names of functions, most of which are tests.
fn in_names(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.under("", ".rs") {
        for (line, text) in file.lines() {
            let name = text.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next());
            if let Some(name) = name.filter(|name| name.contains('_')) {
                findings.extend(check(file, line, &name.replace('_', " ")));
            }
        }
    }
    findings
}

fn openings(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.under("", ".rs") {
        let mut last = 0;
        for (line, text) in comments(&file.text) {
            let doc = text.strip_prefix("/// ").or_else(|| text.strip_prefix("//! "));
            let first = doc.and_then(|doc| doc.split_whitespace().next()).unwrap_or_default();
            if last + 1 != line && OPENINGS.contains(&first) {
                let text = format!("begins with `{first}`: begin with a verb or a noun");
                findings.push(TidyFinding::new(&file.path, line, text));
            }
            last = line;
        }
    }
    findings
}

fn is_prose(path: &str) -> bool {
    let root = !path.contains('/') && path.ends_with(".md");
    let folder = PROSE.iter().any(|folder| path.starts_with(folder));
    (root || folder) && PROSE_ENDINGS.iter().any(|ending| path.ends_with(ending))
        || PRODUCT.iter().any(|package| path.starts_with(package))
            && (path.ends_with("openapi.json") || path.ends_with(".toml"))
}

fn is_product(path: &str) -> bool {
    path.ends_with(".rs")
        && path.contains("/src/")
        && !is_test(path)
        && !path.ends_with("fuzz.rs")
        && PRODUCT.iter().any(|package| path.starts_with(package))
}

fn check(file: &TreeFile, line: usize, text: &str) -> Vec<TidyFinding> {
    check_for(&[BANNED], file, line, text)
}

fn check_visible(file: &TreeFile, line: usize, text: &str) -> Vec<TidyFinding> {
    check_for(&[BANNED, BANNED_VISIBLE], file, line, text)
}

fn check_for(
    lists: &[&[BannedWords]],
    file: &TreeFile,
    line: usize,
    text: &str,
) -> Vec<TidyFinding> {
    let excepted = |e: &&Exception| file.path == e.file && text.contains(e.text);
    if EXCEPTIONS.iter().any(|e| excepted(&e)) {
        return Vec::new();
    }
    let found = lists.iter().flat_map(|list| banned_in(list, text));
    let texts = found.map(|(word, instead)| format!("`{word}`: {instead}"));
    texts.map(|text| TidyFinding::new(&file.path, line, text)).collect()
}

fn stale(tree: &Tree, exceptions: &[Exception]) -> Vec<TidyFinding> {
    let is_stale = |e: &&Exception| {
        !tree.get(e.file).is_some_and(|file| file.text.contains(e.text)) || e.reason.is_empty()
    };
    let text = |e: &Exception| format!("no `{}`: remove it from EXCEPTIONS", e.text);
    exceptions.iter().filter(is_stale).map(|e| TidyFinding::new(e.file, 0, text(e))).collect()
}

/// Returns the banned phrases of a text, each with its replacement.
fn banned_in(list: &[BannedWords], text: &str) -> Vec<(&'static str, &'static str)> {
    let lower = text.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    let mut found = Vec::new();
    for (phrases, instead) in list {
        for phrase in *phrases {
            let parts: Vec<&str> = phrase.split(' ').collect();
            let is_here = |window: &&[&str]| window.iter().zip(&parts).all(|(w, p)| matches(w, p));
            let count = words.windows(parts.len()).filter(is_here).count();
            found.extend(std::iter::repeat_n((*phrase, *instead), count));
        }
    }
    found
}

fn matches(word: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => word.starts_with(start),
        None => word == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together here so that this file has none.
    const BAD: &str = concat!("so", "mebody");

    fn found(findings: &[TidyFinding]) -> Vec<(&str, usize)> {
        findings.iter().map(|finding| (finding.file.as_str(), finding.line)).collect()
    }

    #[test]
    fn words_and_phrases_are_found_whole() {
        let phrase = concat!("For ", "ever");
        let words = |text: &str| {
            banned_in(BANNED, text).into_iter().map(|(word, _)| word).collect::<Vec<_>>()
        };
        assert_eq!(words(&format!("{phrase}, {BAD}'s.")), [BAD, &phrase.to_lowercase()]);
        assert_eq!(words(concat!("amend, person_id, forever, the gover", "nor")), [""; 0]);
        assert_eq!(words(concat!("rehear", "sing")), [concat!("rehears", "*")]);
    }

    #[test]
    fn a_text_that_users_see_is_found_and_a_test_is_not() {
        let code = format!(
            "//! {BAD}\nconst A: &str = \"{BAD}\";\n#[cfg(test)]\nmod tests {{\n    const B: &str = \"{BAD}\";\n}}\n"
        );
        let help = format!("/// {BAD}\nstruct Args;\n");
        let tree = Tree::of(&[
            ("crates/relais-cli/src/args.rs", &help),
            ("crates/relais/src/lib.rs", &code),
            ("crates/relais/tests/it.rs", &code),
            ("crates/relais-testkit/src/lib.rs", &code),
            ("docs/page.md", BAD),
            ("README.md", BAD),
            ("crates/relais-admin/console/app.js", BAD),
            ("crates/relais-admin/src/openapi.json", BAD),
            ("ops/docker/Dockerfile", BAD),
        ]);
        let expected = [
            ("crates/relais-cli/src/args.rs", 1),
            ("crates/relais/src/lib.rs", 2),
            ("docs/page.md", 1),
            ("README.md", 1),
            ("crates/relais-admin/console/app.js", 1),
            ("crates/relais-admin/src/openapi.json", 1),
        ];
        assert_eq!(found(&visible(&tree)), expected);
    }

    #[test]
    fn a_comment_may_have_words_that_a_page_may_not() {
        let word = concat!("sa", "ys");
        let code = format!("//! {word}\n");
        let tree = Tree::of(&[("crates/a/src/lib.rs", &code), ("docs/page.md", word)]);
        assert_eq!(found(&visible(&tree)), [("docs/page.md", 1)]);
        assert!(in_comments(&tree).is_empty());
    }

    #[test]
    fn comments_and_names_of_tests_are_found() {
        let code = format!("//! {BAD}\n// {BAD}\nfn {BAD}_waits() {{}}\nlet s = \"{BAD}\";\n");
        let sql = format!("SELECT 1 -- {BAD}\n");
        let tree = Tree::of(&[("torture/src/a.rs", &code), ("crates/a/a.sql", &sql)]);
        let expected = [("torture/src/a.rs", 1), ("torture/src/a.rs", 2), ("crates/a/a.sql", 1)];
        assert_eq!(found(&in_comments(&tree)), expected);
        assert_eq!(found(&in_names(&tree)), [("torture/src/a.rs", 3)]);
    }

    #[test]
    fn a_doc_comment_that_begins_with_a_question_word_is_found() {
        let bad =
            "//! Good.\n\n/// What it is.\n/// How it is.\nstruct A;\n/// Whatever.\nstruct B;\n";
        let tree = Tree::of(&[("a.rs", bad)]);
        assert_eq!(found(&openings(&tree)), [("a.rs", 3)]);
    }

    #[test]
    fn a_count_may_fall_and_not_rise() {
        let tree = Tree::of(&[("docs/a.md", BAD)]);
        let ratchet = |max| Ratchet { name: "X", max, count: visible };
        assert!(above(&ratchet(1), &tree).is_none());
        let finding = above(&ratchet(0), &tree).unwrap();
        assert!(finding.text.starts_with("1 X, at most 0: docs/a.md (1);"), "{finding}");
    }

    #[test]
    fn an_exception_holds_only_while_it_is_true() {
        let exception = |file, text| Exception { file, text, reason: "a name of another system" };
        let tree = Tree::of(&[("docs/a.md", "410 Gone")]);
        assert_eq!(stale(&tree, &[exception("docs/a.md", "410 Gone")]), []);
        assert_eq!(stale(&tree, &[exception("docs/a.md", "x"), exception("b.md", "x")]).len(), 2);
    }
}
