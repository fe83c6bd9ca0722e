//! `relais.schema.json` in a JSON-schema validator: it accepts every configuration of the repository and
//! refuses broken ones.

use std::{fs, path::Path};

use jsonschema::Validator;
use serde_json::Value;

use crate::{
    code::whole,
    pages::{blocks_in, read, root},
    relais,
};

fn validator() -> Validator {
    let schema: Value = serde_json::from_str(&read("relais.schema.json")).unwrap();
    jsonschema::meta::validate(&schema).expect("the schema is a JSON schema");
    jsonschema::validator_for(&schema).unwrap()
}

fn json(text: &str) -> Value {
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    serde_json::to_value(table).unwrap()
}

/// Every configuration in docs, examples and ops, with its place.
fn configurations() -> Vec<(String, String)> {
    let of_cargo = |text: &str| text.contains("dependencies]");
    let blocks = blocks_in(&["toml"]).into_iter().filter(|block| !of_cargo(&block.text));
    let mut found: Vec<_> = blocks.map(|block| (block.place(), whole(&block.text))).collect();
    let files = [
        "crates/relais-cli/src/commands/init/relais.toml",
        "crates/relais-cli/src/commands/demo/relais.toml",
        "examples/kafka-to-salesforce/relais.toml",
    ];
    // The demo fills these in.
    let filled = |text: String| {
        let text = text.replace("@linger@", "1s");
        text.replace("\"@admin@\"", "\"127.0.0.1:0\"").replace("\"@hook@\"", "\"127.0.0.1:0\"")
    };
    found.extend(files.map(|file| (file.to_owned(), filled(read(file)))));
    for entry in fs::read_dir(root().join("ops/kubernetes")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for part in text.split("  relais.toml: |\n").skip(1) {
            let lines = part.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
            found.push(("ops".to_owned(), lines.collect::<Vec<_>>().join("\n")));
        }
    }
    found
}

#[test]
fn the_schema_accepts_every_configuration_of_the_repository() {
    let validator = validator();
    let configurations = configurations();
    assert!(configurations.len() >= 15, "only {}", configurations.len());
    assert!(configurations.iter().filter(|(place, _)| place == "ops").count() >= 2);
    for (place, text) in configurations {
        let wrong: Vec<String> =
            validator.iter_errors(&json(&text)).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{place}: {wrong:#?}\n{text}");
    }
}

#[test]
fn the_schema_refuses_what_the_program_refuses() {
    let validator = validator();
    let log = "[[destination]]\nname = \"a\"\nkind = \"log\"\n";
    for text in [
        "[stroe]\nurl = \"sqlite:x\"\n",
        "[store]\nurll = \"sqlite:x\"\n",
        "[store]\nurl = \"mysql://db\"\n",
        "[store]\nmigrate = \"yes\"\n",
        "[store]\nconnections = 3\n",
        "[lanes]\nlease = \"soon\"\n",
        "[admin]\nlisten = \"everywhere\"\n",
        "[[admin.tokens]]\nname = \"a\"\nrole = \"boss\"\nsha256 = \"00\"\n",
        "[[source]]\nname = \"a\"\n",
        "[[source]]\nname = \"a\"\nkind = \"htpp\"\n",
        "[[source]]\nname = \"a\"\nkind = \"http\"\ntopics = [\"t\"]\n",
        "[source]\nname = \"a\"\nkind = \"http\"\n",
        "[[route]]\non = \"A\"\n",
        "[[process]]\ntype = \"a\"\nstart = []\n",
        "[[destination]]\nname = \"a\"\nkind = \"http\"\n",
        "[[destination]]\nname = \"a\"\nkind = \"log\"\nexternal = true\n",
        "[[destination]]\nname = \"a\"\nexternal = true\nurl = \"https://x\"\n",
        &format!("{log}url = \"https://x\"\n"),
        &format!("{log}on_dead_letter = \"parc\"\n"),
        &format!("{log}[destination.bulk]\nrows = 5\n"),
        &format!("{log}[destination.retry]\nattempts = 0\n"),
        &format!("{log}[destination.limits]\nrate = \"fast\"\n"),
        "[telemetry]\nsample = 2\n",
    ] {
        assert!(!validator.is_valid(&json(text)), "accepted:\n{text}");
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("relais.toml"), text).unwrap();
        let report: Value =
            serde_json::from_str(&relais(folder.path(), &["check", "--offline", "--json"]))
                .unwrap();
        assert_eq!(report["ok"], false, "the program accepts:\n{text}");
    }
    assert!(
        validator.is_valid(&json(&format!("{log}[destination.limits]\nrate = \"${{RATE}}\"\n")))
    );
}

#[test]
fn the_command_prints_the_schema_of_the_repository() {
    assert_eq!(relais(Path::new("."), &["schema"]), read("relais.schema.json"));
}
