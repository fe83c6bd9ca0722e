//! The tables of `docs/configuration.md` against the program: it is given a wrong value for every key, and its
//! answers must agree with the type, the words and the range on the page.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{Row, Section, check, documented, file, join, known_keys, rows_of};

/// No key takes a date.
const NO_TYPE: &str = "1979-05-27";
/// No word that is known anywhere.
const NO_WORD: &str = "\"?\"";
/// In no range.
const NO_NUMBER: &str = "4_294_967_295";
/// Kinds that the program knows by name and refuses.
const NOT_BUILT: [&str; 1] = ["servicebus"];
/// The type in the error about a wrong value, and the type that the page must show.
const TEXT_TYPES: [(&str, &str); 5] = [
    ("\"100ms\"", "duration"),
    ("KiB\"", "size"),
    ("\"50/s\"", "rate"),
    ("\"127.0.0.1:7071\"", "address"),
    ("payload:/JSON/POINTER", "selector"),
];

#[test]
fn documented_types_words_and_ranges_are_the_real_ones() {
    let [types, words, numbers] = [NO_TYPE, NO_WORD, NO_NUMBER].map(answers);
    let documented = documented();
    let mut checked = 0;
    for (section, keys) in known_keys() {
        let nameless = Section { kind: None, ..section.clone() };
        for row in rows_of(&documented, &section).iter().filter(|row| keys.contains(&row.key)) {
            let find = |answers: &BTreeMap<(Section, String), String>| {
                let of =
                    |section: &Section| answers.get(&(section.clone(), row.key.clone())).cloned();
                of(&section).or_else(|| of(&nameless)).unwrap_or_default()
            };
            let answer = find(&types);
            let Some(wanted) = wanted(&answer) else { continue };
            let place = format!("{section:?} `{}`", row.key);
            let (of_words, of_numbers) = (find(&words), find(&numbers));
            let expected = kind_of(wanted, &of_words);
            assert!(row.kind.starts_with(expected), "{place} is {}, not {expected}", row.kind);
            assert_has_words(row, &of_words, &place);
            assert_has_range(row, &of_numbers, &place);
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} keys: have the answers changed?");
}

/// Returns how the type must begin on the page; nothing for a plain text, which has several names.
fn kind_of(wanted: &str, answer: &str) -> &'static str {
    match wanted {
        "true or false" => "true/false",
        "a whole number" => "whole number",
        "a number" => "number",
        "an array of strings" => "list of",
        _ if wanted.starts_with("a table") => "table",
        _ => TEXT_TYPES.iter().find(|(hint, _)| answer.contains(hint)).map_or("", |(_, kind)| kind),
    }
}

/// Every word that the program takes is on the page.
fn assert_has_words(row: &Row, answer: &str, place: &str) {
    let Some((_, words)) = answer.split_once("one of ").filter(|_| answer.starts_with("`?`"))
    else {
        return;
    };
    for word in words.split('`').skip(1).step_by(2).filter(|word| !NOT_BUILT.contains(word)) {
        let written = row.meaning.contains(&format!("\"{word}\""));
        assert!(written, "{place} does not name \"{word}\"");
    }
}

/// The range that the program allows is on the page.
fn assert_has_range(row: &Row, answer: &str, place: &str) {
    let Some((_, range)) = answer.split_once(" from ").filter(|_| answer.starts_with("must be"))
    else {
        return;
    };
    let range = format!("from {range}");
    assert!(row.meaning.replace(',', "").contains(&range), "{place} does not say {range}");
}

/// Returns the errors of the program for each key with this value.
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

/// Keys that identify sections.
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

fn wanted(answer: &str) -> Option<&str> {
    answer.strip_prefix("expected ")?.split(", found").next()
}
