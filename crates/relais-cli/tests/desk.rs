//! Dead letters with the real program: show, edit, retry, discard and release.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
mod support;

use std::{
    io::Write,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use support::{Running, Said, Site, Target, assert_said, post, postgres::PostgresSchema};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Orders go to a target as they are; a batch becomes one message for each of its `ids`.
fn settings(store: &str, target: &Target) -> String {
    format!(
        "[store]\nurl = \"{store}\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\naggregate_id = \"payload:/orderId\"\n\
         [[route]]\non = \"OrderPlaced\"\naggregate_type = \"Order\"\ndestination = \"orders\"\n\
         [[route]]\non = \"Batch\"\neach = \"payload:/ids\"\ndestination = \"orders\"\n\
         [[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n\
         [destination.retry]\nattempts = 2\nfirst = \"1ms\"\n",
        target.address
    )
}

fn site(target: &Target) -> Site {
    Site::with(&settings("sqlite:relais.db", target))
}

fn order(order: &str, note: &str) -> String {
    json!({ "type": "OrderPlaced", "orderId": order, "note": note }).to_string()
}

fn send(running: &Running, id: &str, body: &str) {
    let (status, answer) = post(running.address("hook"), "/hook", &[("message-id", id)], body);
    assert_eq!(status, 202, "{answer}");
}

/// Waits until a list has this many entries.
fn wait_for(site: &Site, list: &[&str], count: usize) -> Value {
    let started = Instant::now();
    loop {
        let found = site.json(list);
        if found.as_array().unwrap().len() == count {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{list:?}: {found}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The program is stopped with these orders of one key sent, the first of them dead.
fn stuck(site: &Site, target: &Target, orders: &[&str]) -> Value {
    target.answers(400);
    let running = site.run();
    for (n, note) in orders.iter().enumerate() {
        send(&running, &format!("m-{n}"), &order("o-1", note));
    }
    let letters = wait_for(site, &["dead-letter", "list"], 1);
    target.next();
    running.stop();
    assert_eq!(target.unseen(), 0, "the others wait");
    target.answers(200);
    letters
}

#[test]
fn a_pending_row_is_failed_by_hand_and_discarded() {
    let target = Target::start();
    let site = site(&target);
    stuck(&site, &target, &["wrong", "second", "third"]);
    let fail = |more: &[&str]| {
        let args = ["outbox", "fail", "2", "--actor", "ann"];
        site.relais(&[&args[..], more].concat())
    };
    assert_said(&fail(&[]), 2, &["pass --reason TEXT"]);
    let why = ["--reason", "never to be sent"];
    assert_said(&fail(&[&why[..], &["--dry-run"]].concat()), 0, &["would fail 1 rows"]);
    let said = fail(&[&why[..], &["--json"]].concat());
    let failed: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!(failed["failed"], json!([2]));
    let shown = site.json(&["dead-letter", "show", text(&failed["dead_letter"])]);
    assert_eq!(shown["error_class"], "OPERATOR_FAILED", "{shown}");
    assert_eq!(shown["error_message"], "never to be sent", "{shown}");
    assert_said(&fail(&why), 1, &["cannot fail outbox row 2: it is FAILED"]);
    let audit = site.json(&["audit", "list", "--actor", "ann"]);
    assert_eq!((&audit[0]["action"], &audit[0]["target"]), (&json!("outbox.failed"), &json!("2")));
    let status = site.relais(&["status"]);
    assert_said(&status, 0, &["PARKED"]);
    let discard = ["dead-letter", "discard", "--all", "--yes", "--reason", "both"];
    assert_said(&site.relais(&discard), 0, &["discarded 2"]);
    let running = site.run();
    assert!(target.next().body.contains("third"), "the key continues");
    running.stop();
}

#[test]
fn a_failing_key_is_shown_and_sent_now_on_sqlite() {
    let target = Target::start();
    shown_and_sent_now(&Site::with(&with_long_pauses("sqlite:relais.db", &target)), &target);
}

#[test]
fn a_failing_key_is_shown_and_sent_now_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    let target = Target::start();
    shown_and_sent_now(&Site::with(&with_long_pauses(&schema.url, &target)), &target);
}

/// A message that fails waits for longer than the test lasts.
fn with_long_pauses(store: &str, target: &Target) -> String {
    let retry = "first = \"1ms\"\n";
    settings(store, target).replace(retry, "first = \"1h\"\nmax = \"1h\"\n")
}

fn shown_and_sent_now(site: &Site, target: &Target) {
    let running = site.run();
    send(&running, "m-healthy", &order("o-1", "healthy"));
    target.next();
    target.answers(500);
    send(&running, "m-poison", &order("o-2", "poison"));
    target.next();
    // Another message of its key waits behind it.
    send(&running, "m-behind", &order("o-2", "behind"));
    let started = Instant::now();
    let orders = loop {
        let status = site.json(&["status"]);
        let orders = status["destinations"][0].clone();
        if orders["failing_keys"] == 1 && orders["pending"] == 2 {
            break orders;
        }
        assert!(started.elapsed() < PATIENCE, "{status}");
    };
    let failing = &orders["failing"];
    assert_eq!((&failing["msg_key"], &failing["error_code"]), (&json!("o-2"), &json!("HTTP_500")));
    let id = failing["id"].to_string();
    let said = site.relais(&["status"]);
    let line = format!("orders: 1 key is failing; oldest: outbox row {id} (key o-2), for ");
    assert_said(&said, 0, &["FAILING", &line, " used", "HTTP_500"]);
    let behind = (failing["id"].as_i64().unwrap() + 1).to_string();
    let retry = |id: &str, more: &[&str]| {
        let args = ["outbox", "retry", id, "--actor", "ann", "--reason", "fixed"];
        site.relais(&[&args[..], more].concat())
    };
    let refused =
        format!("cannot send outbox row {behind} now: it is due, in flight, or waits behind");
    assert_said(&retry(&behind, &[]), 1, &[&refused, "relais explain"]);
    assert_said(&retry(&id, &["--dry-run"]), 0, &["would send outbox row"]);
    target.answers(200);
    let attempts = site.json(&["outbox", "show", &id])["attempts"].to_string();
    assert_said(&retry(&id, &[]), 0, &[&format!("is due now; attempts used: {attempts}")]);
    assert!(target.next().body.contains("poison"));
    // Failures that use no attempt have short pauses: it may have been sent once more by itself.
    let next = target.next();
    let next = if next.body.contains("poison") { target.next() } else { next };
    assert!(next.body.contains("behind"), "the key continues in order");
    let audit = site.json(&["audit", "list", "--actor", "ann"]);
    assert_eq!((&audit[0]["action"], &audit[0]["target"]), (&json!("outbox.sent-now"), &json!(id)));
    let said = site.relais(&["explain", &format!("outbox:{id}")]);
    assert_said(&said, 0, &["outbox.sent-now by ann: fixed", "delivered to"]);
    running.stop();
}

#[test]
fn a_dead_letter_is_edited_and_retried_on_sqlite() {
    let target = Target::start();
    edited_and_retried(&site(&target), &target);
}

#[test]
fn a_dead_letter_is_edited_and_retried_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    let target = Target::start();
    edited_and_retried(&Site::with(&settings(&schema.url, &target)), &target);
}

fn edited_and_retried(site: &Site, target: &Target) {
    let letters = stuck(site, target, &["wrong", "second"]);
    let id = text(&letters[0]["id"]);
    let shown = site.json(&["dead-letter", "show", id]);
    assert_eq!((&shown["origin"], &shown["error_class"]), (&json!("outbox"), &json!("HTTP_400")));
    assert_eq!(shown["history"][0]["outcome"], "failed", "{shown}");
    assert_eq!(shown["parked_key"]["backlog"], 1, "{shown}");
    let said = site.relais(&["dead-letter", "show", id]);
    assert_said(
        &said,
        0,
        &["HTTP_400", "key o-1 is parked since", "1 messages wait behind it", "explain"],
    );
    let keys = site.json(&["dead-letter", "keys"]);
    assert_eq!((&keys[0]["msg_key"], &keys[0]["backlog"]), (&json!("o-1"), &json!(1)), "{keys}");
    assert_said(&site.relais(&["dead-letter", "keys"]), 0, &["o-1", "to orders", id]);

    let edit = |payload: &str| {
        site.relais(&["dead-letter", "edit", id, "--payload", payload, "--actor", "ann"])
    };
    assert_said(&edit("{oops"), 1, &["not valid JSON", "nothing was changed"]);
    assert_said(&site.relais(&["dead-letter", "edit", id]), 2, &["--payload-file", "EDITOR"]);
    assert_said(&edit(&order("o-1", "right")), 0, &["edited; next: relais dead-letter retry"]);
    let shown = site.json(&["dead-letter", "show", id]);
    assert_eq!(shown["original_payload"], order("o-1", "wrong"));
    assert_eq!((&shown["edited_by"], &shown["resolution"]), (&json!("ann"), &Value::Null));
    let said = site.relais(&["dead-letter", "show", id]);
    let end = format!(
        "original_payload\n{}\npayload\n{}\n",
        order("o-1", "wrong"),
        order("o-1", "right")
    );
    assert!(said.out.contains(&end), "{said:?}");

    let retry = |actor: &str| {
        site.relais(&["dead-letter", "retry", id, "--reason", "fixed", "--actor", actor])
    };
    assert_said(&retry("bob"), 0, &["retried 1"]);
    assert_said(&retry("cat"), 1, &["is already retried by bob at ", "retried 0"]);
    let running = site.run();
    assert_eq!(target.next().body, order("o-1", "right"), "first in its key");
    assert_eq!(target.next().body, order("o-1", "second"));
    running.stop();
    assert_eq!(site.json(&["dead-letter", "keys"]), json!([]));

    let audit = site.json(&["audit", "list", "--target", id]);
    let lines: Vec<_> =
        audit.as_array().unwrap().iter().map(|l| (text(&l["actor"]), text(&l["action"]))).collect();
    assert_eq!(lines, [("bob", "dead-letter.retried"), ("ann", "dead-letter.edited")]);
    assert_eq!(audit[0]["reason"], "fixed");
    let ann = site.json(&["audit", "list", "--actor", "ann"]);
    assert_eq!(ann.as_array().unwrap().len(), 1, "{ann}");
    assert_eq!(site.json(&["audit", "list", "--limit", "1"])[0], audit[0]);
    let before = audit[0]["id"].to_string();
    assert_eq!(site.json(&["audit", "list", "--before", &before])[0], audit[1]);
    assert_said(&site.relais(&["audit", "list"]), 0, &["dead-letter.edited", "bob", "fixed"]);
}

#[test]
fn an_edit_is_validated_by_the_routes_unless_forced() {
    let target = Target::start();
    let site = site(&target);
    let running = site.run();
    send(&running, "m-1", r#"{"type":"Batch","orderId":"o-1"}"#);
    let letters = wait_for(&site, &["dead-letter", "list"], 1);
    running.stop();
    let id = text(&letters[0]["id"]);
    let edit = |payload: &str, more: &[&str]| {
        site.relais(&[&["dead-letter", "edit", id, "--payload", payload], more].concat())
    };
    let wrong = r#"{"type":"Batch","ids":7}"#;
    let said = edit(wrong, &[]);
    assert_said(&said, 1, &["would fail again: payload has no array at `/ids`", "--force"]);
    let unchanged = site.json(&["dead-letter", "show", id]);
    assert_eq!(unchanged["edited_by"], Value::Null, "{unchanged}");
    let right = r#"{"type":"Batch","ids":[7,8]}"#;
    let said = edit(right, &["--dry-run"]);
    assert_said(&said, 0, &["dry run: the message would be handled"]);
    assert_eq!(site.json(&["dead-letter", "show", id]), unchanged);
    assert_said(&edit(wrong, &["--force"]), 0, &["edited"]);

    // From a file and from stdin, as JSON for programs.
    site.write("right.json", &format!("{right}\n"));
    let done = site.json(&["dead-letter", "edit", id, "--payload-file", "right.json"]);
    assert_eq!(done, json!({ "id": id, "result": "done" }));
    let mut typing = site
        .command(&["dead-letter", "edit", id, "--payload-file", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    typing.stdin.take().unwrap().write_all(wrong.as_bytes()).unwrap();
    let said = Said::from(typing.wait_with_output().unwrap());
    assert_eq!(said.code, 1, "{said:?}");
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(answer["result"], "would_fail");
    assert_eq!(answer["problem"]["code"], "ROUTE_EACH");

    assert_eq!(site.relais(&["dead-letter", "replay", id]).code, 0);
    let running = site.run();
    let mut bodies = [target.next().body, target.next().body];
    bodies.sort();
    assert_eq!(bodies, [r#"{"id":7}"#, r#"{"id":8}"#]);
    running.stop();
}

#[test]
fn many_are_retried_by_filter_at_a_rate_oldest_first() {
    let target = Target::start();
    let site = site(&target);
    target.answers(400);
    let running = site.run();
    // No more than open the breaker.
    for n in 0..5 {
        send(&running, &format!("m-{n}"), &order(&format!("o-{n}"), ""));
        target.next();
    }
    wait_for(&site, &["dead-letter", "list"], 5);
    running.stop();
    target.answers(200);

    let all = ["dead-letter", "replay", "--all", "--destination", "orders"];
    let and = |more: &[&'static str]| [&all[..], more].concat();
    assert_said(&site.relais(&and(&[])), 2, &["--yes", "--dry-run"]);
    let said = site.relais(&and(&["--dry-run", "--key", "o-3"]));
    assert_said(&said, 0, &["o-3", "1 would be retried"]);
    let tried = site.json(&and(&["--dry-run"]));
    assert_eq!((&tried["dry_run"], tried["replayed"].as_array().unwrap().len()), (&json!(true), 5));
    assert_eq!(site.json(&["dead-letter", "list"]).as_array().unwrap().len(), 5);
    let none = site.json(&and(&["--type", "Other", "--yes"]));
    assert_eq!(none, json!({ "replayed": [], "unchanged": [], "refused": [] }));

    let done = site.json(&and(&["--yes", "--rate", "1000/s", "--reason", "target fixed"]));
    assert_eq!(done["replayed"], tried["replayed"], "in the order that was shown");
    let audit = site.json(&["audit", "list"]);
    let mut targets: Vec<_> =
        audit.as_array().unwrap().iter().map(|line| line["target"].clone()).collect();
    targets.reverse();
    assert_eq!(Value::from(targets), done["replayed"]);
    let row = |id: &Value| site.json(&["dead-letter", "show", text(id)])["origin_id"].as_i64();
    let rows: Vec<_> = done["replayed"].as_array().unwrap().iter().map(row).collect();
    assert!(rows.is_sorted(), "oldest first: {rows:?}");
    let running = site.run();
    for _ in 0..5 {
        target.next();
    }
    running.stop();
    assert_said(&site.relais(&["dead-letter", "replay", "--all", "--rate", "soon"]), 2, &["50/s"]);
}

#[test]
fn the_old_words_still_work() {
    let target = Target::start();
    let site = site(&target);
    let letters = stuck(&site, &target, &["one"]);
    let id = text(&letters[0]["id"]);
    assert_said(&site.relais(&["dead-letter", "retry", id, "--dry-run"]), 0, &["1 would be"]);
    assert_said(&site.relais(&["dead-letter", "skip", id, "--reason", "old"]), 0, &["discarded 1"]);
    let said = site.relais(&["dead-letter", "discard", id]);
    assert_said(&said, 1, &["is already discarded by "]);
    let help = site.relais(&["dead-letter", "--help"]).out;
    assert!(help.contains("retry") && help.contains("skip"), "{help}");
}

#[test]
fn a_key_is_released_or_skipped_as_a_whole() {
    let target = Target::start();
    let site = site(&target);
    stuck(&site, &target, &["first", "second"]);
    let release =
        |key: &str, more: &[&str]| site.relais(&[&["dead-letter", "release", key], more].concat());
    assert_said(&release("missing", &[]), 1, &["the key missing is not parked"]);
    assert_said(&release("o-1", &["--inbox"]), 1, &["relais dead-letter keys"]);
    assert_said(&release("o-1", &["--dry-run"]), 0, &["1 would be retried"]);
    let said = release("o-1", &["--destination", "orders", "--reason", "fixed"]);
    assert_said(&said, 0, &["retried 1"]);
    let running = site.run();
    assert_eq!(target.next().body, order("o-1", "first"));
    assert_eq!(target.next().body, order("o-1", "second"));
    running.stop();

    // The same key in the inbox and at a destination: which one is meant must be said.
    target.answers(400);
    let running = site.run();
    send(&running, "x-1", r#"{"type":"Batch","orderId":"o-1"}"#);
    wait_for(&site, &["dead-letter", "list"], 1);
    send(&running, "x-2", &order("o-1", "third"));
    target.next();
    wait_for(&site, &["dead-letter", "list"], 2);
    running.stop();
    let said = site.relais(&["dead-letter", "skip-key", "o-1"]);
    assert_said(&said, 2, &["parked in several places (inbox, to orders)", "--destination"]);
    let skip = ["dead-letter", "skip-key", "o-1", "--destination", "orders", "--reason", "a test"];
    let said = site.relais(&skip);
    assert_said(&said, 0, &["discarded 1"]);
    let left = site.json(&["dead-letter", "list"]);
    assert_eq!((left.as_array().unwrap().len(), &left[0]["origin"]), (1, &json!("inbox")));
    assert_eq!(site.json(&["dead-letter", "keys"]), json!([]), "it continues");
}

#[test]
fn undecodable_rows_are_discarded_with_a_reason() {
    let target = Target::start();
    let site = site(&target);
    let running = site.run();
    for n in 0..3 {
        send(&running, &format!("m-{n}"), &format!("{{oops {n}"));
    }
    running.stop();
    let discard = |more: &[&str]| site.relais(&[&["reprocess", "discard"], more].concat());
    assert_eq!(discard(&[]).code, 2, "ids or --all");
    assert_said(&discard(&["1", "--dry-run"]), 0, &["dry run: would discard 1 row"]);
    let said = discard(&["1", "--reason", "a test of the sender's", "--actor", "ann"]);
    assert_said(&said, 0, &["discarded 1 row"]);
    let row = site.json(&["inbox", "show", "1"]);
    assert_eq!(row["status"], "FAILED");
    assert_ne!(row["raw_payload_base64"], Value::Null, "the original stays");
    let letters = site.json(&["dead-letter", "list", "--status", "resolved"]);
    assert_eq!(
        (&letters[0]["resolved_by"], &letters[0]["resolution"]),
        (&json!("ann"), &json!("discarded"))
    );
    assert_said(&discard(&["1"]), 1, &["row 1: is already discarded by ann"]);
    assert_said(&discard(&["99"]), 1, &["no inbox entry has the ID 99"]);
    assert_said(&discard(&["--all"]), 2, &["--reason"]);
    assert_said(&discard(&["--all", "--reason", "all"]), 2, &["--yes"]);
    let all =
        ["reprocess", "discard", "--all", "--code", "INVALID_JSON", "--yes", "--reason", "all"];
    let done = site.json(&all);
    assert_eq!(done, json!({ "discarded": [2, 3], "unchanged": [] }));
    let status = site.json(&["status"]);
    assert!(!status["inbox"].to_string().contains("\"SERDE_ERROR\",\"rows\":3"), "{status}");
    assert_eq!(site.json(&["inbox", "list", "--status", "SERDE_ERROR"]), json!([]));
    // The flat form still repairs.
    assert_said(&site.relais(&["reprocess", "--yes"]), 0, &["no undecodable row matches"]);
}

#[test]
fn of_two_operators_one_decides_and_the_other_learns_who() {
    let target = Target::start();
    let site = site(&target);
    let letters = stuck(&site, &target, &["one"]);
    let id = text(&letters[0]["id"]);
    let start = |actor: &str| {
        let mut command = site.command(&["dead-letter", "replay", id, "--actor", actor]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let commands: Vec<_> = ["ann", "bob", "cat"].into_iter().map(start).collect();
    let said = commands.into_iter().map(|command| Said::from(command.wait_with_output().unwrap()));
    let (done, refused): (Vec<_>, Vec<_>) = said.partition(|said| said.code == 0);
    assert_eq!((done.len(), refused.len()), (1, 2), "{done:?} {refused:?}");
    let faster = site.json(&["dead-letter", "show", id])["resolved_by"].clone();
    for said in &refused {
        assert_said(said, 1, &[&format!("retried by {}", text(&faster))]);
    }
    assert_eq!(site.json(&["audit", "list"]).as_array().unwrap().len(), 1);
}
