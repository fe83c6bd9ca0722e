//! The command line on an 80-column terminal: lists and `top` that fit, ids by their first digits,
//! `status` with named tokens, and the reasons why something waits. One program serves all checks.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code, unused_macros)]
#[path = "process/fixture.rs"]
mod fixture;
#[allow(dead_code)]
mod support;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use fixture::{LONG, OrderFixture};
use serde_json::{Value, json};
use support::{Running, Site, Target, assert_said, get, post};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);
const COLUMNS: usize = 80;

fn until<T>(what: &str, check: impl Fn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command on a terminal of 80 columns, and what it prints there.
fn terminal(site: &Site, args: &[&str]) -> Command {
    let words: Vec<String> =
        [env!("CARGO_BIN_EXE_relais")].iter().chain(args).map(|word| format!("'{word}'")).collect();
    let line = format!("stty cols {COLUMNS} rows 24; exec {}", words.join(" "));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(site.path(""));
    command.env_remove("RELAIS_CONFIG").env("TERM", "xterm").stdout(Stdio::piped());
    command
}

fn shown(site: &Site, args: &[&str]) -> String {
    let done = terminal(site, args).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap().replace('\r', "");
    assert!(done.status.success(), "{args:?}: {text}");
    // Colours take no room.
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest);
    }
    plain + rest
}

fn assert_fits(site: &Site, args: &[&str]) -> String {
    let text = shown(site, args);
    for line in text.lines() {
        assert!(line.chars().count() <= COLUMNS, "{args:?}: {line}\n{text}");
    }
    text
}

/// Orders and stock go to a target; the console has only a token of its own for ann.
fn settings(target: &Target, sha256: &str) -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!(
        "[admin]\nlisten = \"{free}\"\n\
         [[admin.tokens]]\nname = \"ann\"\nrole = \"viewer\"\nsha256 = \"{sha256}\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         aggregate_id = \"payload:/orderId\"\n\
         [[route]]\non = \"OrderPlaced\"\ndestination = \"orders\"\n\
         [[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n",
        target.address
    )
}

fn place(running: &Running, id: &str, order: &str) {
    let body = format!(r#"{{"type":"OrderPlaced","orderId":"{order}"}}"#);
    let (status, answer) = post(running.address("hook"), "/hook", &[("message-id", id)], &body);
    assert_eq!(status, 202, "{answer}");
}

#[test]
fn operators_see_whole_lines_and_reasons() {
    let target = Target::start();
    let site = Site::new();
    let token = site.json(&["token", "ann", "--role", "viewer"]);
    site.write("relais.toml", &settings(&target, token["sha256"].as_str().unwrap()));
    let running = site.run();
    target.answers(422);
    for n in 1..=3 {
        let long = "a-long-order-number-that-takes-a-lot-of-room";
        place(&running, &format!("message-{n}-of-a-sender-with-long-ids"), &format!("{long}-{n}"));
    }
    let letters = until("three dead letters", || {
        let letters = site.json(&["dead-letter", "list"]);
        letters.as_array().filter(|letters| letters.len() == 3).cloned()
    });
    lists_fit(&site, &letters);
    dead_letters_are_filtered_by_code_and_typos_are_explained(&site);
    lists_report_further_rows(&site);
    ids_are_found_by_their_first_digits(&site, &letters);
    inbox_messages_are_found_by_their_first_characters(&site);
    many_are_discarded_only_with_a_reason(&site, &letters);
    the_audit_is_found_by_the_first_digits_of_its_target(&site, &letters);
    an_unavailable_destination_shows_the_time_of_its_next_call(&site, &running, &target, &token);
    rows_show_why_they_wait(&site);
    undecodable_messages_fit(&site, &running);
    top_runs_live(&site);
}

fn undecodable_messages_fit(site: &Site, running: &Running) {
    let headers = [("message-id", "undecodable-message-of-a-sender-with-long-ids")];
    let (status, answer) = post(running.address("hook"), "/hook", &headers, "{\"type\": \"Order");
    assert_eq!(status, 202, "{answer}");
    let text = assert_fits(site, &["reprocess", "list"]);
    assert!(text.contains("INVALID_JSON"), "a row is shown: {text}");
}

fn lists_fit(site: &Site, letters: &[Value]) {
    for args in [
        &["dead-letter", "list"][..],
        &["dead-letter", "keys"],
        &["inbox", "list"],
        &["outbox", "list"],
        &["process", "list"],
        &["audit", "list"],
        &["top", "--once"],
        &["status"],
        &["explain", "message-1-of-a-sender-with-long-ids"],
    ] {
        assert_fits(site, args);
    }
    let text = assert_fits(site, &["dead-letter", "list"]);
    let ids = letters.iter().map(|letter| letter["id"].as_str().unwrap());
    for id in ids {
        assert!(text.contains(&id[..8]) && !text.contains(id), "{text}");
        assert!(site.relais(&["dead-letter", "list"]).out.contains(id), "piped it is whole");
    }
    assert!(text.contains('…'), "a cut is shown: {text}");
}

fn dead_letters_are_filtered_by_code_and_typos_are_explained(site: &Site) {
    let with_code = |code| site.json(&["dead-letter", "list", "--code", code]);
    assert_eq!(with_code("HTTP_422").as_array().unwrap().len(), 3);
    assert_eq!(with_code("HTTP_400"), serde_json::json!([]));
    let retry = |destination, more: &[&'static str]| {
        let args = ["dead-letter", "retry", "--all", "--yes", "--destination", destination];
        site.relais(&[&args[..], more].concat())
    };
    assert_said(&retry("ordres", &[]), 1, &["no destination is `ordres`", "mean `orders`?"]);
    assert_said(&retry("elsewhere", &[]), 1, &["`relais status` lists the names"]);
    assert_said(&retry("orders", &["--code", "HTTP_400"]), 0, &["retried 0"]);
    // The former name of the command still works.
    let replay = ["dead-letter", "replay", "--all", "--destination", "orders", "--dry-run"];
    assert_said(&site.relais(&replay), 0, &["3 would be retried"]);
    let list = site.relais(&["dead-letter", "list", "--destination", "ordres"]);
    assert_said(&list, 0, &["none", "mean `orders`?"]);
    let help = site.relais(&["dead-letter", "--help"]).out;
    assert!(help.contains("retry") && !help.contains("replay"), "{help}");
}

fn lists_report_further_rows(site: &Site) {
    for list in ["inbox", "outbox", "dead-letter"] {
        let page = site.relais(&[list, "list", "--limit", "2", "--json"]);
        let rows: Value = serde_json::from_str(&page.out).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), 2, "{page:?}");
        assert!(page.err.contains("possibly more results: add --before "), "{page:?}");
        let all = site.relais(&[list, "list", "--json"]);
        assert_eq!(all.err, "", "{all:?}");
    }
    let page = site.relais(&["inbox", "list", "--limit", "2"]);
    assert_said(&page, 0, &["possibly more results: add --before 2"]);
}

/// The widest state, with a long name of everything else, and a short process beside it.
#[test]
fn the_list_of_processes_fits_and_no_state_is_cut() {
    let mut fixture = OrderFixture::sqlite();
    let settings = fixture.settings(LONG);
    let long = "order-of-a-customer-in-europe";
    let settings = settings.replace("type = \"order\"", &format!("type = \"{long}\""));
    let step = "name = \"shipment-by-a-carrier\"\ndestination";
    let settings = settings.replace("name = \"shipment\"\ndestination", step);
    fixture.settle(&settings);
    fixture.start();
    fixture.place("an-order-number-that-takes-a-lot-of-room");
    fixture.reply(&fixture.command("TakePayment"), "PaymentTaken", json!({"id": "p-1"}));
    fixture.reply(&fixture.command("Ship"), "NotShippable", json!({"why": "out of stock"}));
    let refund = fixture.command("RefundPayment");
    fixture.reply(&refund, "RefundRefused", json!({"why": "closed account"}));
    until("a dead letter", || fixture.dead_letters().pop());
    fixture.place("o-2");
    fixture.command("TakePayment");
    let site = &fixture.site;
    let text = assert_fits(site, &["process", "list"]);
    let processes = site.json(&["process", "list"]);
    let ids = processes.as_array().unwrap().iter().map(|one| one["process_id"].as_str().unwrap());
    for words in ids.map(|id| &id[..8]).chain(["! COMPENSATING", "RUNNING", "o-2", "order", "…"])
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let id = processes[0]["process_id"].as_str().unwrap();
    for args in [["process", "show", id], ["process", "log", id], ["process", "verify", id]] {
        assert_fits(site, &args);
    }
}

#[test]
fn controls_need_values_and_pauses_are_logged_after_a_restart() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let site = Site::with(&format!(
        "[admin]\nlisten = \"{free}\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         [[destination]]\nname = \"orders\"\nkind = \"log\"\npath = \"orders.jsonl\"\n"
    ));
    let running = site.run();
    let limit = |more: &[&'static str]| {
        let args = ["destination", "limit", "orders", "--reason", "a test"];
        site.relais(&[&args[..], more].concat())
    };
    assert_said(&limit(&[]), 2, &["--rate", "--concurrency", "--reset"]);
    assert_said(&limit(&["--reset", "--rate", "5/s"]), 2, &["cannot be used with"]);
    assert_said(&limit(&["--concurrency", "1001"]), 2, &["1..=1000"]);
    assert_said(&limit(&["--concurrency", "1"]), 0, &["orders is limited until it is reset"]);
    assert_said(&site.relais(&["status"]), 0, &["destination orders, by an operator: 1 at a time"]);
    let status = site.json(&["status"]);
    assert_eq!(status["destinations"][0]["operator_limits"]["concurrency"], 1, "{status}");
    assert_said(&limit(&["--rate", "5/s"]), 0, &["orders is limited until it is reset"]);
    let in_force = || {
        let said = site.relais(&["status"]).out;
        (said.contains("LIMIT") && said.contains("5/s")).then_some(())
    };
    until("the limit in force", in_force);
    running.stop();
    let running = site.run();
    until("the same limit after a restart", in_force);
    assert_said(&limit(&["--reset"]), 0, &["orders is reset to its configured limits"]);
    let audit = site.json(&["audit", "list"]);
    assert_eq!(audit[0]["action"], "destination.limits-reset", "{audit}");
    assert_eq!(audit[1]["reason"], "a test (rate 5/s, concurrency as configured)", "{audit}");
    for (kind, name) in [("destination", "orders"), ("source", "hook")] {
        let pause = [kind, "pause", name, "--actor", "ann", "--reason", "upgrade"];
        assert_said(&site.relais(&pause), 0, &["is paused"]);
    }
    assert!(!running.stop().err.contains("is paused by an operator"));
    let db = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    db.busy_timeout(PATIENCE).unwrap();
    db.execute(include_str!("support/insert.sql"), ("o-1", "orders")).unwrap();
    let said = site.relais(&["explain", "outbox:1"]);
    assert_said(&said, 0, &["waits for destination orders, which ann paused at", "upgrade"]);
    assert!(!said.out.contains("limited"), "{said:?}");
    assert_said(&limit(&["--concurrency", "3"]), 0, &["orders is limited until it is reset"]);
    let note = "an operator has limited destination orders to 3 at a time";
    assert_said(&site.relais(&["explain", "outbox:1"]), 0, &[note]);
    let log = site.run().stop().err;
    for words in ["destination is paused by an operator", "source is paused by an operator"] {
        assert!(log.contains(words) && log.contains("ann") && log.contains("upgrade"), "{log}");
    }
}

fn ids_are_found_by_their_first_digits(site: &Site, letters: &[Value]) {
    let id = letters[0]["id"].as_str().unwrap();
    // Ids that were made in one moment may begin alike.
    let others: Vec<&str> =
        letters[1..].iter().map(|letter| letter["id"].as_str().unwrap()).collect();
    let digits = (4..36).find(|n| !others.iter().any(|other| other[..*n] == id[..*n])).unwrap();
    let prefix = &id[..digits];
    assert_eq!(site.json(&["dead-letter", "show", prefix])["id"], id);
    assert_said(&site.relais(&["explain", prefix]), 0, &[id]);
    assert_said(&site.relais(&["dead-letter", "show", "ffffffff"]), 1, &["begins with ffffffff"]);
    assert_said(&site.relais(&["dead-letter", "show", "m-1"]), 2, &["not the ID of a dead letter"]);
    if digits > 4 {
        let several = site.relais(&["dead-letter", "show", &id[..digits - 1]]);
        assert_said(&several, 2, &["more than one dead letter", id, "pass more characters"]);
    }
    let message = site.json(&["outbox", "list"])[0]["message_id"].as_str().unwrap().to_owned();
    assert_eq!(site.json(&["outbox", "show", &message[..23]])["message_id"], message);
    let db = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    db.busy_timeout(PATIENCE).unwrap();
    db.execute(include_str!("support/insert.sql"), ("digits", "nowhere")).unwrap();
    let row = db.last_insert_rowid();
    let digits = "34859807-1111-4111-8111-111111111111";
    let set = "UPDATE relais_outbox SET message_id = ?1 WHERE id = ?2";
    db.execute(set, (digits, row)).unwrap();
    assert_eq!(site.json(&["outbox", "show", "34859807"])["message_id"], digits);
    assert_said(&site.relais(&["outbox", "show", "99999999"]), 1, &["has the ID 99999999"]);
    db.execute("DELETE FROM relais_outbox WHERE id = ?1", [row]).unwrap();
}

fn inbox_messages_are_found_by_their_first_characters(site: &Site) {
    let rows = site.json(&["inbox", "list"]);
    let first = rows[0]["message_id"].as_str().unwrap();
    let prefix = &first[..first.len() - 1];
    let all = rows.as_array().unwrap();
    let same = all.iter().filter(|row| row["message_id"].as_str().unwrap().starts_with(prefix));
    assert_eq!(same.count(), 1, "{rows}");
    for mark in ["*", "…"] {
        let found = site.json(&["inbox", "show", &format!("{prefix}{mark}")]);
        assert_eq!(found["message_id"], first);
    }
    // Without a mark it may be the id of another message, which was removed.
    let said = site.relais(&["inbox", "retry", prefix, "--reason", "a test"]);
    assert_said(&said, 2, &["no message has the ID", first, "pass the whole ID"]);
    assert_said(&site.relais(&["explain", prefix]), 2, &["begins with it", "inbox:"]);
    assert_said(&site.relais(&["explain", &format!("{prefix}*")]), 0, &["inbox:"]);
    for (command, short) in [(["inbox", "show"], "b-1"), (["outbox", "show"], "b-1*")] {
        let said = site.relais(&[&command[..], &[short]].concat());
        assert_said(&said, 1, &["pass at least 4 characters"]);
    }
    assert_said(&site.relais(&["explain", "b-1*"]), 1, &["pass at least 4 characters"]);
}

fn the_audit_is_found_by_the_first_digits_of_its_target(site: &Site, letters: &[Value]) {
    let of = |target: &str| site.json(&["audit", "list", "--target", target]);
    let id = letters[0]["id"].as_str().unwrap();
    assert_eq!(of(id)[0]["target"], id);
    assert_eq!(of(&id[..35]), of(id));
    assert_eq!(of("nothing"), json!([]));
}

fn many_are_discarded_only_with_a_reason(site: &Site, letters: &[Value]) {
    let all = ["dead-letter", "discard", "--all", "--yes"];
    assert_said(&site.relais(&all), 2, &["without a reason", "--reason"]);
    let key = letters[0]["msg_key"].as_str().unwrap();
    assert_said(&site.relais(&["dead-letter", "skip-key", key]), 2, &["without a reason"]);
    assert_said(
        &site.relais(&["reprocess", "discard", "--all", "--yes"]),
        2,
        &["without a reason"],
    );
    assert_eq!(site.json(&["dead-letter", "list"]).as_array().unwrap().len(), 3, "none is deleted");
    let reason = [&all[..], &["--reason", "a test"]].concat();
    assert_said(&site.relais(&reason), 0, &["discarded 3"]);
    let resolved = site.json(&["dead-letter", "list", "--status", "resolved"]);
    assert_eq!(resolved[0]["resolution"], "discarded", "{resolved}");
    let audit = site.relais(&["audit", "list"]).out;
    assert!(audit.contains("dead-letter.discarded") && audit.contains("a test"), "{audit}");
    assert_fits(site, &["audit", "list"]);
}

fn an_unavailable_destination_shows_the_time_of_its_next_call(
    site: &Site,
    running: &Running,
    target: &Target,
    token: &Value,
) {
    target.answers(503);
    for n in 0..60 {
        place(running, &format!("busy-{n}"), &format!("busy-{n}"));
    }
    let token = token["token"].as_str().unwrap();
    let status = || {
        let mut command = site.command(&["status"]);
        support::Said::from(command.env("RELAIS_TOKEN", token).output().unwrap())
    };
    let rests = until("an open breaker", || {
        let said = status();
        said.out.contains("orders is unavailable, breaker open until 20").then_some(said)
    });
    assert!(rests.out.contains("HTTP_503"), "{rests:?}");
    let top = site.relais(&["top", "--once", "--token", token]);
    assert!(top.code == 0 && top.out.contains("open"), "{top:?}");
    let without = site.relais(&["status"]);
    assert_said(&without, 0, &["breakers and API calls are unknown", "RELAIS_TOKEN"]);
    let wrong = site.relais(&["status", "--token", "wrong"]);
    assert_said(&wrong, 0, &["does not accept this token", "`relais token`"]);
    assert_eq!(get(running.logged("admin http://"), "/api/v1/overview").0, 401);
}

fn rows_show_why_they_wait(site: &Site) {
    let db = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    db.busy_timeout(PATIENCE).unwrap();
    let insert = |id: &str, destination: &str| {
        db.execute(include_str!("support/insert.sql"), (id, destination)).unwrap();
        db.last_insert_rowid()
    };
    let stray = insert("o-1", "nowhere");
    let said = site.relais(&["explain", &format!("outbox:{stray}")]);
    assert_said(&said, 0, &["waits for a worker that serves destination nowhere"]);
    let second = insert("o-1", "nowhere");
    let said = site.relais(&["explain", &format!("outbox:{second}")]);
    assert_said(&said, 0, &[&format!("waits behind outbox:{stray} of its key")]);
    // What an operator did is no attempt.
    let fail = ["outbox", "fail", &stray.to_string(), "--reason", "wrong place"];
    assert_said(&site.relais(&fail), 0, &["is FAILED"]);
    let said = site.relais(&["explain", &format!("outbox:{stray}")]);
    assert_said(&said, 0, &["outbox.failed by", "wrong place"]);
    assert!(!said.out.contains("attempt 0 failed"), "{said:?}");
    let again = site.relais(&fail);
    assert_said(&again, 1, &["it is FAILED; only a pending row can be"]);
    assert!(!again.err.contains("is refused"), "{again:?}");
}

/// Draws until it is stopped.
fn top_runs_live(site: &Site) {
    let mut top = terminal(site, &["top"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(top.stdout.take().unwrap());
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("attention") {
        let part = out.fill_buf().unwrap();
        assert!(!part.is_empty(), "it ended: {}", String::from_utf8_lossy(&seen));
        let read = part.len();
        seen.extend_from_slice(part);
        out.consume(read);
    }
    top.stdin.take().unwrap().write_all(b"q").unwrap();
    out.read_to_end(&mut seen).unwrap();
    assert!(top.wait().unwrap().success(), "{}", String::from_utf8_lossy(&seen));
    assert!(String::from_utf8_lossy(&seen).contains("\u{1b}[?1049l"), "the screen is given back");
}

/// The target answers only after an operator has failed the row: that answer must be shown.
#[test]
fn a_delivery_after_an_operator_failed_the_row_is_shown() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = Site::with(&format!(
        "[[destination]]\nname = \"slow\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n",
        target.local_addr().unwrap()
    ));
    let running = site.run();
    let db = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    db.busy_timeout(PATIENCE).unwrap();
    db.execute(include_str!("support/insert.sql"), ("o-1", "slow")).unwrap();
    let (mut call, _) = target.accept().unwrap();
    assert!(call.read(&mut [0; 4096]).unwrap() > 0);
    assert_said(&site.relais(&["outbox", "fail", "1", "--reason", "too slow"]), 0, &["is FAILED"]);
    call.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    until("the delivery in the story", || {
        let story = site.relais(&["explain", "outbox:1"]).out;
        let shown = story.contains("was delivered: the destination accepted it after an operator");
        shown.then_some(())
    });
    assert_eq!(site.json(&["outbox", "show", "1"])["status"], "FAILED");
    running.stop();
}
