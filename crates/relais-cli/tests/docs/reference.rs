//! `docs/configuration-reference.md` is written by asking the program: it is given a wrong value for
//! every key, and its answers say what each one takes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{Section, check, documented, file, join, known_keys, pages, rows_of};

const PAGE: &str = "docs/configuration-reference.md";
const HEAD: &str = "\
# Configuration reference

Every key of `relais.toml`, and what it takes in the words of the program. This page is generated: the tests give
the program a wrong value for each key and write down its answer; a page that is not up to date fails them.
`UPDATE_GOLDEN=1 cargo test -p relais-cli --all-features --test docs` writes it anew. What each key means is in
[configuration.md](configuration.md). Some kinds are known and not built yet: they are refused, with that reason.
";
/// No key takes a date.
const NO_TYPE: &str = "1979-05-27";
/// No word that is known anywhere.
const NO_WORD: &str = "\"?\"";
/// In no range.
const NO_NUMBER: &str = "4_294_967_295";

#[test]
fn the_reference_of_keys_is_what_the_program_says() {
    let page = generate();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(pages::root().join(PAGE), &page).unwrap();
    }
    let written = std::fs::read_to_string(pages::root().join(PAGE)).unwrap_or_default();
    assert!(written == page, "{PAGE} is not up to date: run this test with UPDATE_GOLDEN=1");
}

fn generate() -> String {
    let [types, words, numbers] = [NO_TYPE, NO_WORD, NO_NUMBER].map(answers);
    let documented = documented();
    let mut page = HEAD.to_owned();
    for (section, keys) in known_keys() {
        let mut rows = String::new();
        for key in keys {
            let say = |answers: &BTreeMap<(Section, String), String>| {
                let nameless = Section { kind: None, ..section.clone() };
                let find =
                    |section: &Section| answers.get(&(section.clone(), key.clone())).cloned();
                find(&section).or_else(|| find(&nameless))
            };
            let Some(answer) = say(&types) else { continue };
            let Some(wanted) = wanted(&answer) else { continue };
            let more = match wanted {
                "a string" => say(&words),
                _ => say(&numbers).filter(|answer| answer.starts_with("must be")),
            };
            let more = more.map(|more| format!(": {}", advice(&more))).unwrap_or_default();
            let all = rows_of(&documented, &section);
            let row = all.iter().find(|row| row.key == key);
            let default = row.map_or("", |row| row.default.as_str());
            rows.push_str(&format!("| `{key}` | {wanted}{more} | {default} |\n"));
        }
        if rows.is_empty() {
            continue;
        }
        // A label is a kind only where the page on configuration has one of that name.
        let kind = section.kind.as_ref().filter(|_| documented.contains_key(&section));
        let kind = kind.map(|kind| format!(" of kind `{kind}`")).unwrap_or_default();
        page.push_str(&format!("\n## `{}`{kind}\n\n", section.name));
        page.push_str("| key | takes | default |\n|---|---|---|\n");
        page.push_str(&rows);
    }
    page
}

/// What the program says of each key when it has this value.
fn answers(value: &str) -> BTreeMap<(Section, String), String> {
    let mut answers = BTreeMap::new();
    // A section without its kind or its name is another section: those keys are asked for by themselves.
    let passes: [&dyn Fn(&str) -> bool; 3] =
        [&|key| !LABELS.contains(&key), &|key| key == "kind", &|key| {
            LABELS.contains(&key) && key != "kind"
        }];
    for is_asked in passes {
        let report = check(&with_wrong_values(value, is_asked));
        for error in report["errors"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let mut parts = error.splitn(3, ": ");
            let (_, Some(path), Some(message)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            if let Some((section, key)) = path.rsplit_once('.') {
                let path = (Section::at(section), key.to_owned());
                answers.entry(path).or_insert_with(|| message.to_owned());
            }
        }
    }
    answers
}

/// Keys that tell sections apart.
const LABELS: [&str; 3] = ["name", "kind", "type"];

/// A file with every key of every section, each once; those asked for have the wrong value.
fn with_wrong_values(value: &str, is_asked: &dyn Fn(&str) -> bool) -> String {
    let known = known_keys();
    let every_key = |section: &Section| {
        let is_it = |other: &Section| {
            other.name == section.name && (section.kind.is_none() || other.kind == section.kind)
        };
        let keys = known.iter().filter(|(other, _)| is_it(other)).flat_map(|(_, keys)| keys);
        let is_table = |key: &str| {
            let path = join(&section.name, key);
            known
                .keys()
                .any(|other| other.name == path || other.name.starts_with(&(path.clone() + ".")))
        };
        let lines = keys.filter(|key| is_asked(key) && !is_table(key));
        lines.map(|key| format!("{key} = {value}\n")).collect()
    };
    let (mut here, mut text) = (BTreeSet::new(), String::new());
    for line in file(&every_key).lines() {
        let key = line.split(" = ").next().unwrap_or_default();
        if line.starts_with('[') {
            here.clear();
        } else if !here.insert(key.to_owned()) {
            continue;
        }
        let is_wrong = !line.starts_with('[') && is_asked(key);
        text.push_str(&if is_wrong { format!("{key} = {value}") } else { line.to_owned() });
        text.push('\n');
    }
    text
}

/// The part of an answer that says what would be right.
fn advice(answer: &str) -> &str {
    let right = ["one of ", "for example ", "must "].iter().find_map(|words| answer.find(words));
    let behind_the_reason = || answer.split_once("; ").map(|(_, advice)| advice);
    right.map(|at| &answer[at..]).or_else(behind_the_reason).unwrap_or(answer)
}

fn wanted(answer: &str) -> Option<&str> {
    answer.strip_prefix("expected ")?.split(", found").next()
}
