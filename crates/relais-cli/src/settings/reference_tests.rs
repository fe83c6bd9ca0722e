//! The tables of `docs/configuration.md` and `relais.schema.json` are those of the program. With
//! `UPDATE_REFERENCE=1` the test writes them.

use std::{fs, path::PathBuf};

use relais_core::setting::{SettingForm, SettingSpec};

use super::{
    schema::schema,
    sections::{SectionSpec, sections},
};

const HEAD: &str = "| key | type | default | meaning |\n|---|---|---|---|\n";

fn row(spec: &SettingSpec) -> String {
    let default = match &spec.default {
        Some(literal) => format!("`{literal}`"),
        None if spec.is_needed => "needed".to_owned(),
        None if spec.absent.is_empty() => "none".to_owned(),
        None => spec.absent.to_owned(),
    };
    let range = spec.range.as_ref().map(|(from, to)| format!(" (from {from} to {to})"));
    let meaning = format!("{}{}", spec.doc, range.unwrap_or_default());
    format!("| `{}` | {} | {default} | {meaning} |\n", spec.name, spec.type_name)
}

/// The bytes of the table under the heading of a section.
fn table_of(page: &str, section: &SectionSpec) -> std::ops::Range<usize> {
    let heading = format!("\n## `{}`\n", section.heading());
    let mut from = page.find(&heading).unwrap_or_else(|| panic!("no heading {heading}")) + 1;
    if let Some(kind) = section.kind.filter(|_| section.is_list) {
        let heading = format!("\n### Kind `{kind}`\n");
        from += page[from..].find(&heading).unwrap_or_else(|| panic!("no heading {heading}")) + 1;
    }
    let start = from + page[from..].find(HEAD).expect("a table follows");
    let end = start + page[start..].find("\n\n").expect("a blank line ends it") + 1;
    start..end
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name)
}

fn update_wanted() -> bool {
    std::env::var_os("UPDATE_REFERENCE").is_some()
}

#[test]
fn the_tables_of_the_reference_page_are_those_of_the_program() {
    let written = fs::read_to_string(file("docs/configuration.md")).unwrap();
    let mut page = written.clone();
    for section in sections() {
        let range = table_of(&page, &section);
        let rows: String = section.keys.iter().map(row).collect();
        page.replace_range(range, &format!("{HEAD}{rows}"));
    }
    if update_wanted() {
        fs::write(file("docs/configuration.md"), page).unwrap();
    } else {
        assert!(page == written, "docs/configuration.md is old; run with UPDATE_REFERENCE=1");
    }
}

#[test]
fn the_schema_in_the_repository_is_that_of_the_program() {
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if update_wanted() {
        fs::write(file("relais.schema.json"), text).unwrap();
    } else {
        let written = fs::read_to_string(file("relais.schema.json")).unwrap();
        assert!(text == written, "relais.schema.json is old; run with UPDATE_REFERENCE=1");
    }
}

#[test]
fn every_key_is_documented_with_its_words() {
    for section in sections() {
        for spec in &section.keys {
            let place = format!("{} {}", section.heading(), spec.name);
            assert!(!spec.doc.is_empty() && !spec.doc.ends_with('.'), "{place}: {}", spec.doc);
            let SettingForm::Words(words) = &spec.form else { continue };
            for word in words {
                assert!(spec.doc.contains(&format!("\"{word}\"")), "{place}: {word}");
            }
        }
    }
}
