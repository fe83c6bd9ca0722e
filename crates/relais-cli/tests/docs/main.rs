//! The documentation against the program: its code runs, its keys and defaults are the real ones.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod code;
mod languages;
mod pages;
mod reference;
mod schema;
// Shared with tests that use more of it.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

/// A key that is near to no other, so that the program lists all it knows.
const PROBE: &str = "zzzzzzzzzzzz";
/// The value of every variable an example names.
const ANY_VALUE: &str = "s3cret-value";
/// Complaints about a file with every section.
const EXPECTED: [&str; 1] = ["build has no Kafka"];
/// The connection of Service Bus.
const BUS: &str = "connection = \"Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=k\"\n";
/// The keys of a token.
const TOKEN: &str = "name = \"ann\"\nrole = \"viewer\"\nsha256 = \
                     \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";

#[test]
fn the_page_on_configuration_names_every_key_and_no_other() {
    let known = known_keys();
    let documented = documented();
    for (section, keys) in &known {
        let rows = rows_of(&documented, section);
        let mut here: BTreeSet<_> = rows.iter().map(|row| row.key.clone()).collect();
        // A key that is a table has a heading, or its own tables have, instead of a line.
        let is_table = |key: &&String| {
            let (path, inside) = (join(&section.name, key), join(&section.name, key) + ".");
            documented.keys().any(|s| s.name == path || s.name.starts_with(&inside))
        };
        here.extend(keys.iter().filter(is_table).cloned());
        assert_eq!(&here, keys, "keys of {section:?}: documented, and known to the program");
    }
    for section in documented.keys() {
        let probed = |other: &Section| other.name == section.name && other.kind == section.kind;
        let common = section.kind.is_none() && known.keys().any(|s| s.name == section.name);
        assert!(common || known.keys().any(probed), "{section:?} has a heading, but is no section");
    }
}

#[test]
fn documented_defaults_are_the_real_ones() {
    let documented = documented();
    let written = |section: &Section| -> String {
        // The file below has SQLite.
        let rows = rows_of(&documented, section).into_iter();
        let lines = rows.filter(|row| !row.meaning.starts_with("PostgreSQL:")).filter_map(|row| {
            let literal = row.default.strip_prefix('`')?.strip_suffix('`')?;
            Some(format!("{} = {literal}\n", row.key))
        });
        lines.collect()
    };
    let bare = file(&|_| String::new());
    let full = file(&written);
    assert!(full.lines().count() > bare.lines().count() + 30, "{full}");
    let (bare, full) = (check(&bare), check(&full));
    // Nothing but what a build without Kafka reports about it.
    let complaints = full["errors"].as_array().unwrap().iter();
    let other: Vec<_> = complaints
        .filter(|e| EXPECTED.iter().all(|words| !e.as_str().unwrap().contains(words)))
        .collect();
    assert!(other.is_empty(), "{full:#}");
    assert!(bare["sections"].as_array().is_some_and(|sections| !sections.is_empty()), "{bare:#}");
    assert_eq!(bare["sections"], full["sections"]);
}

#[test]
fn the_page_on_the_outbox_names_every_column() {
    let page = pages::read("docs/outbox-from-any-language.md");
    for database in ["postgres", "sqlite"] {
        let output = relais(Path::new("."), &["migrate", "--print", "--database", database]);
        let table = output.split("TABLE relais_outbox (").nth(1).expect("the table is made");
        let columns: Vec<&str> = table
            .lines()
            .take_while(|line| !line.starts_with(')'))
            .filter(|line| line.starts_with("    ") && !line.starts_with("     "))
            .filter_map(|line| line.split_whitespace().next())
            .filter(|word| *word != "--" && *word != "CONSTRAINT")
            .collect();
        assert!(columns.len() >= 20, "{columns:?}");
        for column in columns {
            assert!(page.contains(&format!("| `{column}` |")), "{database}: {column}");
        }
    }
}

// ---- the program ------------------------------------------------------------------------------

/// Returns the output of `relais check --offline --json` for a file.
fn check(settings: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("relais.toml"), settings).unwrap();
    let output = relais(folder.path(), &["check", "--offline", "--json"]);
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}\n{settings}"))
}

/// Returns the output of a command. Every variable that its configuration names has a value.
fn relais(folder: &Path, args: &[&str]) -> String {
    let settings = fs::read_to_string(folder.join("relais.toml")).unwrap_or_default();
    let variables = settings.split("${").skip(1).filter_map(|rest| rest.split('}').next());
    let mut command = Command::new(env!("CARGO_BIN_EXE_relais"));
    command.current_dir(folder).args(args).stdin(Stdio::null()).env_remove("RELAIS_CONFIG");
    command.envs(variables.map(|name| (name, ANY_VALUE)));
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// The keys of each section, as the program lists them when it is given one it does not know.
fn known_keys() -> BTreeMap<Section, BTreeSet<String>> {
    let probe = |_: &Section| format!("{PROBE} = 1\n");
    let settings = format!("{PROBE} = 1\n{}", file(&probe));
    let report = check(&settings);
    let mut known: BTreeMap<Section, BTreeSet<String>> = BTreeMap::new();
    for error in report["errors"].as_array().unwrap() {
        let error = error.as_str().unwrap();
        let Some((place, keys)) = error.split_once(": unknown key; known keys: ") else {
            panic!("not what a probe gives: {error}");
        };
        let path = place.rsplit(": ").next().unwrap().trim_end_matches(PROBE);
        let section = known.entry(Section::at(path.trim_end_matches('.'))).or_default();
        section.extend(keys.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    for section in known[&Section::at("")].clone() {
        assert!(known.keys().any(|s| s.name == section), "`{section}` is new: add it to `file`");
    }
    known
}

/// A section of the file; where its keys depend on the kind, with the kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Section {
    name: String,
    kind: Option<String>,
}

impl Section {
    /// `destination[http].retry` and `[[route]]` alike. What has a kind is named after it in `file`.
    fn at(path: &str) -> Self {
        let mut rest = path.trim_matches(['[', ']']);
        let (mut name, mut kind) = (String::new(), None);
        while let Some((before, label)) = rest.split_once('[') {
            let (label, inside) = label.split_once(']').unwrap_or((label, ""));
            name.push_str(before);
            kind = (inside.is_empty() && !label.starts_with('#')).then(|| label.to_owned());
            rest = inside;
        }
        Self { name: name + rest, kind }
    }
}

/// A file with every section, each with what is needed and what `more` adds.
fn file(more: &dyn Fn(&Section) -> String) -> String {
    let section =
        |head: &str, needed: &str| format!("{head}\n{needed}{}", more(&Section::at(head)));
    let kind = |section: &str, kind: &str, needed: &str| {
        let more = more(&Section { name: section.to_owned(), kind: Some(kind.to_owned()) });
        format!("[[{section}]]\nname = \"{kind}\"\nkind = \"{kind}\"\n{needed}{more}")
    };
    let call = |completed: &str| {
        format!("destination = \"http\"\ncommand = \"C\"\ncompleted = \"{completed}\"\n")
    };
    [
        section("[store]", ""),
        section("[admin]", ""),
        section("[[admin.tokens]]", TOKEN),
        kind("source", "amqp", "url = \"amqps://h\"\naddress = \"q\"\n"),
        kind("source", "http", ""),
        kind("source", "kafka", "brokers = \"k\"\ntopics = [\"t\"]\n"),
        kind("source", "nats", "url = \"tls://h\"\nstream = \"S\"\nconsumer = \"c\"\n"),
        kind("source", "rabbitmq", "url = \"amqps://h\"\nqueue = \"q\"\n"),
        kind("source", "servicebus", &format!("{BUS}queue = \"q\"\n")),
        section("[[route]]", "on = \"A\"\ndestination = \"http\"\n"),
        section("[[process]]", "type = \"p\"\nstart = \"S\"\n"),
        section("[[process.step]]", &format!("name = \"s\"\n{}", call("Done"))),
        section("[process.step.retry]", ""),
        section("[process.step.compensation]", &call("Undone")),
        section("[process.step.compensation.retry]", ""),
        kind("handler", "http", "on = \"H\"\nurl = \"https://h.example\"\n"),
        section("[handler.retry]", ""),
        section("[handler.limits]", ""),
        section("[handler.breaker]", ""),
        kind("destination", "http", "url = \"https://b.example\"\n"),
        section("[destination.retry]", ""),
        section("[destination.limits]", ""),
        section("[destination.breaker]", ""),
        kind("destination", "amqp", "url = \"amqps://h\"\naddress = \"q\"\n"),
        kind("destination", "kafka", "brokers = \"k\"\n"),
        kind("destination", "nats", "url = \"tls://h\"\nsubject = \"s\"\n"),
        kind("destination", "rabbitmq", "url = \"amqps://h\"\nexchange = \"x\"\n"),
        kind("destination", "servicebus", &format!("{BUS}queue = \"q\"\n")),
        kind("destination", "log", ""),
        kind(
            "destination",
            "salesforce",
            "object = \"A\"\nlogin_url = \"https://a.example\"\nclient_id = \"c\"\nclient_secret = \"s\"\n\
             columns = { Name = \"n\" }\n",
        ),
        section("[destination.bulk]", ""),
        section("[[adopt]]", "table = \"t\"\npreset = \"debezium\"\ndestination = \"http\"\n"),
        section("[inbox]", ""),
        section("[inbox.retry]", ""),
        section("[retention]", ""),
        section("[lanes]", ""),
        section("[log]", ""),
        section("[telemetry]", ""),
    ]
    .concat()
}

fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

// ---- the pages --------------------------------------------------------------------------------

/// One line of a table of keys.
struct Row {
    key: String,
    kind: String,
    default: String,
    meaning: String,
}

/// The lines under each heading such as ``## `[destination.retry]` `` and ``### Kind `http` ``.
fn documented() -> BTreeMap<Section, Vec<Row>> {
    let page = pages::read("docs/configuration.md");
    let mut sections = BTreeMap::new();
    for part in page.split("\n## ").skip(1) {
        let (heading, body) = part.split_once('\n').unwrap();
        let Some(name) = heading.strip_prefix("`[").and_then(|rest| rest.strip_suffix("]`")) else {
            continue;
        };
        for (index, part) in body.split("\n### ").enumerate() {
            let kind = part.lines().next().and_then(|line| line.strip_prefix("Kind `"));
            let kind = kind.filter(|_| index > 0).map(|kind| kind.trim_end_matches('`').to_owned());
            let section = Section { kind, ..Section::at(name) };
            let rows: &mut Vec<Row> = sections.entry(section).or_default();
            rows.extend(part.lines().filter_map(row));
        }
    }
    sections
}

/// The lines of a section, those that all kinds have first.
fn rows_of<'a>(documented: &'a BTreeMap<Section, Vec<Row>>, section: &Section) -> Vec<&'a Row> {
    let common = Section { kind: None, ..section.clone() };
    let own = section.kind.as_ref().and(documented.get(section));
    documented.get(&common).into_iter().chain(own).flatten().collect()
}

fn row(line: &str) -> Option<Row> {
    let key = line.strip_prefix("| `")?.split('`').next()?.to_owned();
    let mut cells =
        line.trim_end_matches('|').split(" | ").skip(1).map(|cell| cell.trim().to_owned());
    let (kind, default, meaning) = (cells.next()?, cells.next()?, cells.next()?);
    Some(Row { key, kind, default, meaning })
}
