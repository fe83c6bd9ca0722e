//! Every block of code in the documentation is run, compiled or checked by a test.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    check,
    pages::{Block, blocks, blocks_in, is_part_of, read, root},
    support::{Site, postgres::PostgresSchema},
};

/// Compiled by others; a block of README is part of one of these.
const EXAMPLES: [&str; 5] = [
    "docs/tutorial-rust.md",
    "examples/orders/src/orders.rs",
    "examples/orders/src/main.rs",
    "examples/saga/src/order.rs",
    "examples/saga/src/main.rs",
];
/// Programs in other languages; `languages.rs` runs them.
pub(crate) const PROGRAMS: [(&str, &str); 11] = [
    ("java", "docs/languages/java/Order.java"),
    ("csharp", "docs/languages/csharp/Order.cs"),
    ("js", "docs/languages/node/order.mjs"),
    ("python", "docs/languages/python/order.py"),
    ("python", "docs/languages/python/order_sqlite.py"),
    ("go", "docs/languages/go/main.go"),
    // The tests of handlers run these.
    ("python", "examples/handlers/python/answer.py"),
    ("python", "examples/handlers/python/outbox.py"),
    ("js", "examples/handlers/node/answer.mjs"),
    ("go", "examples/handlers/go/main.go"),
    ("java", "examples/handlers/java/Handler.java"),
];
/// Settings that a command of a page can be tried with.
const SETTINGS: &str = r#"
[store]
url = "sqlite:relais.db"

[[source]]
name = "hook"
kind = "http"
listen = "127.0.0.1:0"

[[source]]
name = "crm"
kind = "http"
listen = "127.0.0.1:0"

[[route]]
on = "OrderPlaced"
destination = "crm"

[[destination]]
name = "crm"
kind = "log"
path = "crm.jsonl"

[[process]]
type = "order"
start = "CheckoutStarted"
business_key = "payload:/orderId"
[[process.step]]
name = "payment"
destination = "crm"
command = "TakePayment"
completed = "PaymentTaken"
timeout = "1s"
"#;

#[test]
fn every_kind_of_block_has_a_runner() {
    for block in blocks() {
        let is_run = match block.kind.as_str() {
            "text" | "toml" | "json" | "sql" | "sh" => true,
            "rust" | "rust,no_run" => is_compiled(&block),
            "mermaid" => is_drawn(&block),
            kind => PROGRAMS.iter().any(|(language, program)| {
                kind == *language && is_part_of(&block.text, &read(program))
            }),
        };
        let (place, kind) = (block.place(), &block.kind);
        assert!(is_run, "{place}: no test runs this `{kind}`; if it is no code, call it `text`");
    }
}

/// Returns true if it is a documentation test or a part of an example.
fn is_compiled(block: &Block) -> bool {
    let copy = block.page.replace("docs/", "guide/");
    let included = format!("include_str!(\"../{copy}\")");
    let crates = ["relais", "relais-admin", "relais-testkit"].map(|name| format!("crates/{name}"));
    crates.iter().any(|library| {
        read(&format!("{library}/src/guide.rs")).contains(&included)
            && read(&format!("{library}/{copy}")).contains(&block.text)
    }) || EXAMPLES.iter().any(|example| is_part_of(&block.text, &read(example)))
}

/// The test of the example compares it with what its definition draws.
fn is_drawn(block: &Block) -> bool {
    block.page == "docs/saga.md" && read("examples/saga/src/order.rs").contains(&block.page)
}

#[test]
fn the_tests_that_cover_the_specification_exist() {
    let sources = sources(&root().join("crates"));
    let page = read("docs/spec-coverage.md");
    let words = page.split('`').skip(1).step_by(2);
    let is_test = |word: &&str| {
        word.matches('_').count() >= 3
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let named: Vec<&str> = words.filter(is_test).collect();
    assert!(named.len() > 40, "only {} found: has their form changed?", named.len());
    for name in named {
        let function = format!("fn {name}(");
        assert!(sources.iter().any(|text| text.contains(&function)), "there is no test `{name}`");
    }
}

/// The text of every Rust file below a folder.
fn sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            texts.push(fs::read_to_string(&path).unwrap());
        }
    }
    texts
}

#[test]
fn every_toml_is_accepted() {
    let mut settings = 0;
    for block in blocks_in(&["toml"]) {
        let place = block.place();
        if block.text.contains("[dependencies]") || block.text.contains("[dev-dependencies]") {
            block.text.parse::<toml::Table>().unwrap_or_else(|error| panic!("{place}: {error}"));
            continue;
        }
        let is_absent = |kind: &str, has: bool| block.text.contains(&format!("\"{kind}\"")) && !has;
        if is_absent("amqp", cfg!(feature = "amqp"))
            || is_absent("servicebus", cfg!(feature = "amqp"))
            || is_absent("kafka", cfg!(feature = "kafka"))
            || is_absent("nats", cfg!(feature = "nats"))
            || is_absent("rabbitmq", cfg!(feature = "rabbitmq"))
        {
            continue;
        }
        let report = check(&whole(&block.text));
        // A whole file has nothing to warn of. A part of one may name what is not in it, or do nothing.
        if block.text.contains("[store]") && block.text.contains("[[") {
            assert_eq!(report["ok"], true, "{place}: {report:#}");
            assert_eq!(report["warnings"], Value::Array(vec![]), "{place}");
        }
        for error in report["errors"].as_array().unwrap() {
            let error = error.as_str().unwrap();
            let of_a_part = ["no [[destination]] is named", "relais would do nothing"];
            assert!(of_a_part.iter().any(|words| error.contains(words)), "{place}: {report:#}");
        }
        settings += 1;
    }
    assert!(settings >= 10, "only {settings} found: has their form changed?");
}

/// A part of a section with the beginning it needs.
pub(crate) fn whole(part: &str) -> String {
    let first = part.lines().find(|line| line.starts_with('[')).unwrap_or_default();
    let beginning = if first.starts_with("[source.") {
        "[[source]]\nname = \"s\"\nkind = \"kafka\"\nbrokers = \"k\"\ntopics = [\"t\"]\n"
    } else if first.starts_with("[destination.options]") {
        "[[destination]]\nname = \"d\"\nkind = \"kafka\"\nbrokers = \"k\"\n"
    } else if first.starts_with("[destination.") {
        "[[destination]]\nname = \"d\"\nkind = \"log\"\n"
    } else {
        ""
    };
    // Certificates and keys of an example are not there.
    let is_file = |line: &str| line.contains(".location = ") || line.starts_with("tls_");
    let lines = part.lines().filter(|line| !is_file(line));
    lines.fold(beginning.to_owned(), |whole, line| whole + line + "\n")
}

#[test]
fn every_json_is_json() {
    for block in blocks_in(&["json"]) {
        let values = serde_json::Deserializer::from_str(&block.text).into_iter::<Value>();
        for value in values {
            value.unwrap_or_else(|error| panic!("{}: {error}", block.place()));
        }
    }
}

#[test]
fn every_sql_runs_on_sqlite() {
    let site = Site::with("[store]\nurl = \"sqlite:relais.db\"\n");
    assert_eq!(site.relais(&["migrate"]).code, 0);
    let db = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    db.execute_batch(&tables()).unwrap();
    for block in blocks_in(&["sql"]) {
        if let Some(sql) = for_store(&block.text, "-- SQLite") {
            db.execute_batch(&sql).unwrap_or_else(|error| panic!("{}: {error}", block.place()));
        }
    }
}

#[test]
fn every_sql_runs_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    let site = Site::with(&format!("[store]\nurl = \"{}\"\n", schema.url));
    assert_eq!(site.relais(&["migrate"]).code, 0);
    let path = format!("SET search_path TO {};", schema.name);
    schema.execute(&format!("{path}{}", tables()));
    for block in blocks_in(&["sql"]) {
        if let Some(sql) = for_store(&block.text, "-- PostgreSQL") {
            println!("{}", block.place());
            schema.execute(&format!("{path}{sql}"));
        }
    }
}

/// The tables of a service, beside those of relais.
pub(crate) fn tables() -> String {
    read("docs/languages/tables.sql")
}

/// Returns the part for this store, below its comment, or all if no part is marked.
fn for_store(sql: &str, mark: &str) -> Option<String> {
    let marks = ["-- PostgreSQL", "-- SQLite"];
    if !sql.lines().any(|line| marks.iter().any(|mark| line.starts_with(mark))) {
        return Some(sql.to_owned());
    }
    let mut is_ours = false;
    let ours = sql.lines().filter(|line| {
        if marks.iter().any(|mark| line.starts_with(mark)) {
            is_ours = line.starts_with(mark);
        }
        is_ours
    });
    let ours: Vec<&str> = ours.collect();
    (!ours.is_empty()).then(|| ours.join("\n"))
}

#[test]
fn every_command_is_understood() {
    let mut commands = 0;
    for block in blocks_in(&["sh"]) {
        let site = Site::with(SETTINGS);
        if block.text.contains("relais init") {
            fs::remove_file(site.path("relais.toml")).unwrap();
        } else {
            assert_eq!(site.relais(&["migrate"]).code, 0);
        }
        for name in ["fixed.json", "17.json"] {
            site.write(name, "{\"orderId\": \"o-1\"}");
        }
        for line in lines(&block.text) {
            let place = format!("{}: `{line}`", block.place());
            match program(&line) {
                Some("relais") => understood(&site, &line, &place),
                Some("cargo") => known_to_cargo(&line, &place),
                // The test of the tutorial pastes it into a shell.
                Some("curl") if place.starts_with("docs/tutorial-rust.md") => {}
                other => panic!("{place}: no test runs {other:?}; call the block `text`"),
            }
            commands += 1;
        }
    }
    assert!(commands >= 30, "only {commands} found: has their form changed?");
}

/// Commands, without comments and with their continuations.
fn lines(block: &str) -> Vec<String> {
    let joined = block.replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.split(" # ").next().unwrap_or(line).trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// The first word; behind variables, the first that is a program we know.
fn program(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let first = words.next()?;
    if first.contains('=') {
        words.find(|word| ["cargo", "relais"].contains(word))
    } else {
        Some(first)
    }
}

/// Runs a command as a shell would. It may find nothing; what it may not do is not to be understood.
fn understood(site: &Site, line: &str, place: &str) {
    /// Commands that take long or run until a signal; only their arguments are parsed.
    const LONG: [&str; 4] = ["run", "demo", "top", "bench"];
    let line = line.split(" | ").next().unwrap_or(line);
    // Ids are cut short on a page.
    let words = line.split(' ').map(|word| match word.strip_suffix('…') {
        Some(start) if start.len() == 4 => format!("{start}0000-0000-7000-8000-000000000000"),
        _ => word.to_owned(),
    });
    let mut line = words.collect::<Vec<_>>().join(" ");
    if line.split_whitespace().any(|word| LONG.contains(&word)) {
        line.push_str(" --help");
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_relais")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", &line])
        .current_dir(site.path(""))
        .env("PATH", format!("{}:{path}", binary.display()))
        .env("EDITOR", "true")
        .env_remove("RELAIS_CONFIG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let code = output.status.code();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Commands that open an editor or ask for confirmation need a terminal, which is missing here.
    // The configuration adopts no table.
    let alone = ["use a terminal", "cannot ask for confirmation", "has no [[adopt]]"];
    let is_understood =
        matches!(code, Some(0 | 1)) || alone.iter().any(|words| said.contains(words));
    assert!(is_understood, "{place} ended with {code:?}: {said}");
}

/// Packages and tasks that are named exist.
fn known_to_cargo(line: &str, place: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |word: &str| {
        let at = words.iter().position(|known| *known == word);
        at.and_then(|at| words.get(at + 1)).copied()
    };
    if let Some(task) = after("xtask") {
        let tasks = read("xtask/src/main.rs");
        assert!(tasks.contains(&format!("\"{task}\"")), "{place}: xtask has no `{task}`");
    }
    if let Some(package) = after("-p") {
        let folders = ["crates", "examples"].map(|folder| root().join(folder).join(package));
        assert!(folders.iter().any(|folder| folder.is_dir()), "{place}: no package `{package}`");
    }
    if let Some(features) = after("--features") {
        let known = read("crates/relais-cli/Cargo.toml") + &read("crates/relais/Cargo.toml");
        for feature in features.split(',') {
            let line = format!("\n{feature} = [");
            assert!(known.contains(&line), "{place}: no feature `{feature}`");
        }
    }
}
