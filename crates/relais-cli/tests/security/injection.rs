//! Messages that imitate log lines, table rows or terminal commands. Attacks on the console are in
//! `console/corpus.rs`; values in CSV for Salesforce are tested with its writer.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::{
    client::Client,
    server::Server,
    support::{Site, post},
    traced::Traced,
    wait_for,
};

/// Parts of what a sender may write, none of which may reach a terminal or a log as it is.
const EVIL: &[&str] = &[
    "a\nb",
    "a\r\nforged=1",
    "a\r\x1b[2Kb",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.example\x07press\x1b]8;;\x07",
    "\u{9b}2J",
    "\u{9d}0;title\u{9c}",
    "\x08\x08\x08",
    "\x7f",
    "\u{202e}gnp.exe",
    "\u{2066}x\u{2069}",
    "\u{85}next",
    "\u{2028}line",
    "a\tb\x0bc\x0cd",
    "=cmd|' /C calc'!A0",
];

const SETTINGS: &str = "[store]\nurl = \"sqlite:relais.db\"\n\
    [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\nsource_system = \"shop\"\n\
    event_type = \"payload:/type\"\naggregate_id = \"payload:/id\"\n\
    [[route]]\non = \"Order\"\ndestination = \"out\"\n\
    [[destination]]\nname = \"out\"\nkind = \"http\"\nurl = \"http://TARGET/\"\nallow_private = true\n\
    retry.attempts = 1\n\
    [inbox]\nunknown_type_wait = \"0s\"\n\
    [admin]\nlisten = \"127.0.0.1:0\"\n";

/// Characters that move the cursor, end a line or change the writing direction.
fn is_evil(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\t')
}

fn is_harmless(place: &str, text: &str) {
    for line in text.lines() {
        assert!(!line.chars().any(is_evil), "{place}: {line:?}");
    }
}

fn run(log: &str) -> (Site, Traced) {
    // Refuses everything, and says something evil about it. With changing codes, or the breaker would open.
    let calls = AtomicUsize::new(0);
    let target = Server::start(move |_| {
        let (words, code) = (EVIL.concat(), [400, 422][calls.fetch_add(1, Relaxed) % 2]);
        format!("HTTP/1.1 {code} No\r\ncontent-length: {}\r\n\r\n{words}", words.len())
    });
    let site = Site::with(&SETTINGS.replace("TARGET", &target.address.to_string()));
    let variables = [("RUST_LOG", "relais=trace,relais_core=trace,relais_connect=trace")];
    let running = Traced::start(&site, log, &variables);
    (site, running)
}

/// As the id, the key, the type, the aggregate and a header, of messages that are delivered, unknown,
/// and unreadable.
fn send(site: &Site, running: &Traced) {
    let hook = running.source("hook");
    for (number, evil) in EVIL.iter().enumerate() {
        let encoded: String = evil.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let order = serde_json::json!({ "type": "Order", "id": evil, evil.to_owned(): evil });
        let unknown = serde_json::json!({ "type": evil, "id": format!("{number}{evil}") });
        for (kind, body) in
            [("order", order.to_string()), ("type", unknown.to_string()), ("raw", evil.to_string())]
        {
            let id = format!("{kind}-{number}{}", if kind == "type" { &encoded } else { "" });
            let key = format!("{number}{kind}{encoded}");
            let sent = post(hook, "/hook", &[("message-id", &id), ("message-key", &key)], &body);
            assert_eq!(sent.0, 202, "{sent:?}");
        }
    }
    wait_for("all dead letters", || {
        let letters = site.json(&["dead-letter", "list", "--limit", "200"]);
        (letters.as_array().unwrap().len() == 2 * EVIL.len()).then_some(())
    });
}

#[test]
fn no_message_writes_a_line_of_the_log_or_a_command_for_the_terminal() {
    for log in ["text", "json"] {
        let (site, running) = run(log);
        send(&site, &running);
        let said = running.stop();
        assert!(said.contains("forged=1"), "the log has what was sent: {said}");
        is_harmless(log, &said);
        for line in said.lines() {
            let whole = match log {
                "json" => serde_json::from_str::<serde_json::Value>(line).is_ok(),
                _ => line.starts_with("20") && line.contains("Z "),
            };
            assert!(whole, "{log}: a forged line: {line:?}");
        }
    }
}

#[test]
fn no_message_can_control_the_terminal_of_the_command_line() {
    let (site, running) = run("json");
    send(&site, &running);
    let letters = site.json(&["dead-letter", "list", "--limit", "200"]);
    let mut commands: Vec<Vec<String>> = [
        "inbox list --limit 200",
        "outbox list --limit 200",
        "dead-letter list --limit 200",
        "reprocess list",
        "status",
        "audit",
    ]
    .iter()
    .map(|line| line.split(' ').map(str::to_owned).collect())
    .collect();
    for letter in letters.as_array().unwrap() {
        let id = letter["message_id"].as_str().unwrap();
        commands.push(vec!["explain".into(), id.into()]);
    }
    for command in commands {
        let args: Vec<&str> = command.iter().map(String::as_str).collect();
        let said = site.relais(&args);
        is_harmless(&format!("{args:?}"), &(said.out + &said.err));
        let json = site.relais(&[args.as_slice(), &["--json"]].concat());
        is_harmless(&format!("{args:?} --json"), &(json.out + &json.err));
    }
}

/// One row with all its fields: its payload comes as it is, nothing else does.
#[test]
fn no_field_of_a_row_poses_as_another_one() {
    let (site, running) = run("json");
    send(&site, &running);
    let rows = site.json(&["inbox", "list", "--limit", "200"]);
    for row in rows.as_array().unwrap() {
        let id = row["id"].to_string();
        let said = site.relais(&["inbox", "show", id.trim_matches('"')]);
        let fields = said.out.split("\npayload\n").next().unwrap();
        is_harmless(&id, fields);
        let forged =
            fields.lines().any(|line| line.starts_with("forged=1") || line.starts_with('b'));
        assert!(!forged, "{fields}");
    }
}

#[test]
fn pages_for_programs_hold_no_line_of_a_message() {
    let (site, running) = run("json");
    send(&site, &running);
    let client = Client::at(running.admin());
    let metrics = client.page("/metrics").body;
    is_harmless("/metrics", &metrics);
    for line in metrics.lines() {
        let known = ["# ", "relais_", "process_"].iter().any(|start| line.starts_with(start));
        assert!(known, "{line:?}");
    }
    for page in ["/api/v1/inbox?limit=500", "/api/v1/dead-letters?limit=500"] {
        let answer = client.page(page);
        assert_eq!(answer.status, 200);
        assert!(serde_json::from_str::<serde_json::Value>(&answer.body).is_ok(), "{page}");
    }
}
