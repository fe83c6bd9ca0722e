//! The whole command line from the outside: every command that `--help` names prints JSON with `--json`,
//! and wrong usage says what to do.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

mod keys;
mod roles;

use std::{
    collections::BTreeSet,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use support::{Said, Site, Target, assert_said, post, postgres::PostgresSchema};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Commands with a test of their own for `--json`: `run` below; the demo, tokens, health and adopted tables elsewhere.
const ELSEWHERE: [&str; 8] = [
    "run",
    "demo",
    "token",
    "health",
    "adopt print",
    "adopt install",
    "adopt check",
    "adopt remove",
];

fn settings(target: &Target) -> String {
    format!(
        "[store]\nurl = \"sqlite:relais.db\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [inbox]\nunknown_type_wait = \"0s\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\naggregate_id = \"payload:/orderId\"\n\
         [[route]]\non = \"OrderPlaced\"\ndestination = \"orders\"\n\
         [[process]]\ntype = \"checkout\"\nstart = \"CheckoutStarted\"\n\
         business_key = \"payload:/orderId\"\n\
         [[process.step]]\nname = \"payment\"\ndestination = \"orders\"\ncommand = \"TakePayment\"\n\
         completed = \"PaymentTaken\"\n\
         [[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n[destination.retry]\nattempts = 1\n",
        target.address
    )
}

/// Rows of every kind: dead letters, a process, bytes that are no JSON; nothing runs any more.
fn stocked(target: &Target) -> Site {
    let site = Site::with(&settings(target));
    target.answers(400);
    let running = site.run();
    let send = |id: &str, body: &str| {
        let (status, answer) = post(running.address("hook"), "/hook", &[("message-id", id)], body);
        assert_eq!(status, 202, "{answer}");
    };
    send("m-1", r#"{"type":"OrderPlaced","orderId":"o-1"}"#);
    send("3", r#"{"type":"CheckoutStarted","orderId":"o-2"}"#);
    send("m-3", "{oops");
    send("m-4", r#"{"type":"Unknown","orderId":"o-4"}"#);
    let started = Instant::now();
    while site.json(&["dead-letter", "list"]).as_array().unwrap().len() < 3 {
        assert!(started.elapsed() < PATIENCE, "no dead letters");
    }
    running.stop();
    site
}

/// Every command that can be called, from what `--help` says.
fn commands(site: &Site) -> BTreeSet<String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![String::new()]);
    while let Some(path) = open.pop() {
        let args: Vec<&str> = path.split_whitespace().chain(["--help"]).collect();
        let said = site.relais(&args);
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        let list = said.out.lines().skip_while(|line| *line != "Commands:").skip(1);
        let names = list.take_while(|line| !line.trim().is_empty());
        let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names: Vec<&str> = names.map(|line| line.split_whitespace().next().unwrap()).collect();
        // Without subcommands, or callable beside them.
        if !path.is_empty() && (names.is_empty() || said.out.contains("[OPTIONS] [IDS]")) {
            found.insert(path.clone());
        }
        let own = names.iter().filter(|name| **name != "help");
        open.extend(own.map(|name| format!("{path} {name}").trim().to_owned()));
    }
    found
}

fn parses(text: &str) -> bool {
    let whole = serde_json::from_str::<Value>(text).is_ok();
    let lines = || text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok());
    !text.trim().is_empty() && (whole || lines())
}

/// Each command with arguments that make it say something.
fn calls(id: &str) -> Vec<(&'static str, Vec<&str>)> {
    vec![
        ("init", vec!["--config", "other.toml"]),
        ("check", vec![]),
        ("migrate", vec![]),
        ("migrate", vec!["--print"]),
        ("migrate", vec!["--roles", "shop"]),
        ("status", vec![]),
        ("top", vec!["--once", "--every", "100ms"]),
        ("inbox list", vec!["--source", "shop"]),
        ("inbox show", vec!["m-1"]),
        ("inbox retry", vec!["m-4", "--dry-run"]),
        ("outbox list", vec!["--status", "failed"]),
        ("outbox show", vec!["outbox:1"]),
        ("outbox retry", vec!["1", "--dry-run"]),
        ("outbox fail", vec!["1", "--reason", "stuck", "--dry-run"]),
        ("dead-letter list", vec![]),
        ("dead-letter show", vec![id]),
        ("dead-letter edit", vec![id, "--payload", "{}", "--dry-run"]),
        ("dead-letter keys", vec![]),
        ("dead-letter release", vec!["o-1", "--dry-run"]),
        ("dead-letter skip-key", vec!["o-1", "--dry-run"]),
        ("dead-letter retry", vec![id]),
        ("dead-letter discard", vec!["--all", "--dry-run"]),
        ("process list", vec![]),
        ("process show", vec!["checkout/o-2"]),
        ("process log", vec!["checkout/o-2"]),
        ("process verify", vec!["checkout/o-2"]),
        ("process pause", vec!["checkout/o-2", "--reason", "look"]),
        ("process resume", vec!["checkout/o-2", "--reason", "seen"]),
        ("process retry", vec!["checkout/o-2", "--dry-run"]),
        ("process skip", vec!["checkout/o-2", "--dry-run"]),
        ("process compensate", vec!["checkout/o-2", "--dry-run"]),
        ("process cancel", vec!["checkout/o-2", "--dry-run"]),
        ("process diagram", vec!["checkout"]),
        ("process pause-type", vec!["checkout", "--reason", "look"]),
        ("process resume-type", vec!["checkout", "--reason", "seen"]),
        ("destination pause", vec!["orders", "--reason", "look"]),
        ("destination resume", vec!["orders", "--reason", "seen"]),
        ("destination limit", vec!["orders", "--rate", "5/s", "--reason", "look"]),
        ("destination reset-breaker", vec!["orders", "--reason", "look"]),
        ("source pause", vec!["hook", "--reason", "look"]),
        ("source resume", vec!["hook", "--reason", "seen"]),
        ("reprocess list", vec![]),
        ("reprocess", vec!["--dry-run"]),
        ("reprocess discard", vec!["m-3", "--dry-run"]),
        ("explain", vec!["m-1"]),
        ("audit list", vec![]),
        ("cleanup", vec!["--dry-run"]),
        ("bench", vec!["--rows", "100", "--rounds", "1"]),
        ("schema", vec![]),
        ("completions", vec!["zsh"]),
        ("man", vec![]),
        ("man", vec!["--out", "pages"]),
    ]
}

#[test]
fn every_command_prints_json_when_asked_to() {
    let target = Target::start();
    let site = stocked(&target);
    let letters = site.json(&["dead-letter", "list", "--type", "OrderPlaced"]);
    let id = letters[0]["id"].as_str().unwrap();
    let calls = calls(id);
    let tried: BTreeSet<String> = calls
        .iter()
        .map(|(path, _)| (*path).to_owned())
        .chain(ELSEWHERE.map(str::to_owned))
        .collect();
    let there = commands(&site);
    let missing: Vec<_> = there.difference(&tried).collect();
    assert!(missing.is_empty(), "not tried with --json: {missing:?}");
    for (path, more) in &calls {
        assert!(there.contains(*path), "no command {path}: {there:?}");
        let args: Vec<&str> =
            path.split(' ').chain(more.iter().copied()).chain(["--json"]).collect();
        let said = site.relais(&args);
        assert!(parses(&said.out), "{args:?}: {said:?}");
        assert!(said.code == 0 || *path == "reprocess", "{args:?}: {said:?}");
    }
    assert!(site.path("pages/relais-dead-letter-retry.1").exists());
    let left = std::fs::read_dir(site.path(".")).unwrap().map(|file| file.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("bench")).collect();
    assert!(left.is_empty(), "a benchmark left {left:?}");
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    let site = Site::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let said = site.relais(&["completions", shell]);
        assert_said(&said, 0, &["dead-letter", "skip-key", "completions"]);
    }
    site.write("relais.bash", &site.relais(&["completions", "bash"]).out);
    let checked =
        std::process::Command::new("bash").arg("-n").arg(site.path("relais.bash")).status();
    assert!(checked.unwrap().success());
    assert_said(&site.relais(&["completions", "tcsh"]), 2, &["possible values"]);
    assert_said(&site.relais(&["man"]), 0, &[".TH relais 1", "dead\\-letter"]);
    assert_said(&site.relais(&["man", "--out", "pages"]), 0, &["pages"]);
    for command in commands(&site) {
        let page = format!("pages/relais-{}.1", command.replace(' ', "-"));
        assert!(site.path(&page).exists(), "{page}");
    }
}

#[test]
fn a_running_relais_logs_json_when_asked_to() {
    let target = Target::start();
    let site = Site::with(&settings(&target));
    let said = site.run().stop();
    for line in said.err.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn wrong_ids_are_explained() {
    let target = Target::start();
    let site = stocked(&target);
    let said = site.relais(&["dead-letter", "show", "nope"]);
    assert_said(&said, 2, &["not the ID of a dead letter", "relais dead-letter list"]);
    let said = site.relais(&["process", "diagram", "nope"]);
    assert_said(
        &said,
        1,
        &["no [[process]] has the type `nope`", "the configuration has checkout"],
    );
    assert_said(&site.relais(&["reprocess", "list"]), 0, &["INVALID_JSON", "m-3"]);
    assert_said(&site.relais(&["reprocess", "list", "--code", "OTHER"]), 0, &["none"]);
    // Row 3 is another message than the one whose id is 3.
    let said = site.relais(&["inbox", "show", "3"]);
    assert_said(
        &said,
        2,
        &["inbox:3 is message m-3", "inbox:2 is message 3", "pass one of these names"],
    );
    assert_eq!(site.json(&["inbox", "show", "inbox:3"])["message_id"], "m-3");
    assert_eq!(site.json(&["inbox", "show", "message:3"])["id"], 2);
    assert_eq!(site.json(&["inbox", "show", "1"])["message_id"], "m-1");
    assert_said(&site.relais(&["inbox", "show", "99"]), 1, &["no inbox entry has the ID 99"]);
    for (kind, command, wanted) in [
        ("destination", "limit", "Name of the destination\n"),
        ("source", "pause", "Name of the source\n"),
        ("process", "pause-type", "Name of the process type\n"),
    ] {
        assert_said(&site.relais(&[kind, command, "--help"]), 0, &[wanted]);
    }
    let said = site.relais(&["process", "list"]);
    assert_said(&said, 0, &["VER", "FAILURES", "checkout"]);
}

#[test]
fn a_dry_run_does_not_look_like_done() {
    let target = Target::start();
    let site = stocked(&target);
    let letters = site.json(&["dead-letter", "list", "--type", "OrderPlaced"]);
    let id = letters[0]["id"].as_str().unwrap();
    let tried = site.json(&["dead-letter", "edit", id, "--payload", "{}", "--dry-run"]);
    assert_eq!(tried, json!({ "id": id, "dry_run": true, "result": "valid_json" }));
}

#[test]
fn every_audit_entry_has_an_actor() {
    let target = Target::start();
    let site = stocked(&target);
    let letters = site.json(&["dead-letter", "list", "--type", "OrderPlaced"]);
    let id = letters[0]["id"].as_str().unwrap();
    let mut command = site.command(&["dead-letter", "discard", id, "--reason", "a test"]);
    let said = Said::from(command.env_remove("USER").env_remove("LOGNAME").output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    let by = site.json(&["audit", "list"])[0]["actor"].clone();
    assert!(!["", "unknown"].contains(&by.as_str().unwrap()), "{by}");
}

#[test]
fn cleanup_counts_asks_and_deletes_expired_rows() {
    let target = Target::start();
    let site = Site::with(&settings(&target));
    let running = site.run();
    let body = r#"{"type":"OrderPlaced","orderId":"o-1"}"#;
    post(running.address("hook"), "/hook", &[("message-id", "m-1")], body);
    target.next();
    running.stop();
    assert_said(&site.relais(&["cleanup"]), 0, &["no row is past its retention"]);
    let db = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    db.execute("UPDATE relais_inbox SET processed_at = '2001-01-01T00:00:00.000Z'", []).unwrap();
    drop(db);
    assert_said(&site.relais(&["cleanup", "--dry-run"]), 0, &["would delete 1 inbox rows"]);
    assert_said(&site.relais(&["cleanup"]), 2, &["1 inbox rows", "--yes", "--dry-run"]);
    assert_eq!(site.json(&["inbox", "list"]).as_array().unwrap().len(), 1);
    assert_said(&site.relais(&["cleanup", "--yes"]), 0, &["deleted 1 inbox rows"]);
    assert_eq!(site.json(&["inbox", "list"]), json!([]));
    assert_eq!(site.json(&["outbox", "list"]).as_array().unwrap().len(), 1, "not that old");
}

#[test]
fn a_benchmark_works_beside_the_rows_of_a_postgres_store_and_leaves_nothing() {
    let Some(schema) = PostgresSchema::new() else { return };
    let site = Site::with(&format!("[store]\nurl = \"{}\"\n", schema.url));
    let mut command = site.command(&["bench", "--rows", "100", "--rounds", "1", "--json"]);
    let bench = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = bench.id();
    let said = Said::from(bench.wait_with_output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let names: Vec<_> = report["figures"].as_array().unwrap().iter().map(|f| &f["name"]).collect();
    assert_eq!(names, ["send", "accept", "relay"]);
    for figure in report["figures"].as_array().unwrap() {
        assert!(figure["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{figure}");
    }
    // No tables where the settings would have them, and none elsewhere: its schema can be made again.
    let own = format!("relais_bench_{pid}");
    schema.execute(&format!("CREATE SCHEMA {own}; DROP SCHEMA {own}"));
    let said = site.relais(&["status"]);
    assert_said(&said, 1, &["relais migrate"]);
    assert_eq!(site.relais(&["migrate"]).code, 0);
    assert_said(&site.relais(&["cleanup", "--dry-run"]), 0, &["no row is past its retention"]);
}

#[test]
fn top_once_shows_the_state_of_a_running_relais() {
    let target = Target::start();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings =
        settings(&target).replacen("listen = \"127.0.0.1:0\"", &format!("listen = \"{free}\""), 1);
    let site = Site::with(&settings);
    let running = site.run();
    let status = site.json(&["status"]);
    let of_first = &status["destinations"][0];
    assert_eq!(of_first["guards"]["breaker"], "closed", "known from the start: {status}");
    let body = r#"{"type":"OrderPlaced","orderId":"o-1"}"#;
    post(running.address("hook"), "/hook", &[("message-id", "m-1")], body);
    target.next();
    let said = site.relais(&["top", "--once", "--every", "100ms"]);
    assert_said(
        &said,
        0,
        &["received", "delivered", "orders", "hook", "worker ", "dead letters 0"],
    );
    assert!(!said.out.contains('\u{1b}'), "no terminal, no escapes: {said:?}");
    // It counts its rows now and then.
    let started = Instant::now();
    let look = loop {
        let look = site.json(&["top", "--once", "--every", "100ms"]);
        if look["destinations"]["orders"]["dispatched"] == 1 {
            break look;
        }
        assert!(started.elapsed() < PATIENCE, "not from the running relais: {look}");
    };
    assert!(look["rates"]["received"].is_number(), "{look}");
    assert_eq!(look["destinations"]["orders"]["breaker"], "closed", "{look}");
    // The answer of a relais with another store is ignored.
    let other = Site::with(&settings);
    assert_eq!(other.relais(&["migrate"]).code, 0);
    let look = other.json(&["top", "--once", "--every", "100ms"]);
    assert_eq!((&look["destinations"], &look["workers"]), (&json!({}), &json!([])), "{look}");
    let status = other.json(&["status"]);
    assert_eq!(status["destinations"][0]["guards"], Value::Null, "{status}");
    running.stop();
    let said = site.relais(&["top", "--every", "100ms"]);
    assert_said(&said, 0, &["no worker is running"]);
    assert_said(&site.relais(&["status"]), 0, &["no worker"]);
}
