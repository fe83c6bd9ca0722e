//! `relais reprocess`, with the real program: undecodable messages over HTTP are corrected and
//! delivered, once.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
mod support;

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Stdio,
};

use serde_json::{Value, json};
use support::{Running, Said, Site, Target, assert_said, post, postgres::PostgresSchema};

/// A source that declares `decoder`, and takes its ids from the payload.
fn settings(target: &Target, decoder: &str) -> String {
    settings_on("sqlite:relais.db", target, decoder)
}

fn settings_on(store: &str, target: &Target, decoder: &str) -> String {
    format!(
        "[store]\nurl = \"{store}\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\ndecoder = \"{decoder}\"\n\
         message_id = \"payload:/id\"\naggregate_id = \"payload:/orderId\"\n\
         [[route]]\non = \"OrderPlaced\"\naggregate_type = \"Order\"\ndestination = \"orders\"\n\
         [[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n",
        target.address
    )
}

fn order(id: &str, order: &str) -> String {
    format!(r#"{{"id":"{id}","type":"OrderPlaced","orderId":"{order}"}}"#)
}

/// JSON behind a schema number: garbage to a source that declares JSON.
fn framed(json: &str) -> String {
    format!("\0\0\0\0\u{7}{json}")
}

fn send(running: &Running, body: &str) -> Value {
    let (status, answer) = post(running.address("hook"), "/hook", &[], body);
    assert_eq!(status, 202, "{answer}");
    serde_json::from_str(&answer).unwrap()
}

/// One byte a character.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

/// Posts bytes that are no text; the status of the answer.
fn send_bytes(running: &Running, body: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(running.address("hook")).unwrap();
    let length = body.len();
    let head = format!(
        "POST /hook HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Sends these bodies to a source that declares JSON, and ends.
fn received(site: &Site, bodies: &[&str]) {
    let running = site.run();
    for body in bodies {
        send(&running, body);
    }
    running.stop();
}

fn row(site: &Site, id: i64) -> Value {
    site.json(&["inbox", "show", &id.to_string()])
}

/// One column of text from the database.
fn texts(site: &Site, sql: &str) -> Vec<String> {
    let db = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    let mut statement = db.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn garbage_over_http_is_repaired_by_a_new_setting_and_delivered() {
    let target = Target::start();
    let site = Site::with(&settings(&target, "json"));
    let running = site.run();
    let cafe = order("m-1", "café");
    assert_eq!(send_bytes(&running, &latin1(&cafe)), 202);
    send(&running, "{oops");

    let said = site.relais(&["repair", "--dry-run"]);
    let hint = "; decoder json-latin1 accepts it";
    assert_said(&said, 1, &["row 1: still undecodable: not UTF-8 at byte ", hint]);
    assert_said(&said, 1, &["row 2: still undecodable: not valid JSON", "relais inbox show 2"]);
    assert_said(&said, 1, &["dry run: would reprocess 0 of 2 rows, 2 still undecodable"]);

    site.write("relais.toml", &settings(&target, "json-latin1"));
    let said = site.relais(&["reprocess", "1", "--dry-run"]);
    assert_said(&said, 0, &["row 1: would be reprocessed: OrderPlaced m-1, key café"]);
    assert_eq!(row(&site, 1)["status"], "SERDE_ERROR");
    assert_said(&site.relais(&["reprocess"]), 2, &["--yes"]);

    // The program that runs notices by itself, and delivers.
    let said = site.relais(&["reprocess", "--yes", "--actor", "ann", "--reason", "Latin-1"]);
    assert_said(&said, 1, &["reprocessed 1 of 2 rows, 1 still undecodable"]);
    assert_eq!(target.next().body, cafe);
    running.stop();

    let done = row(&site, 1);
    assert_eq!((&done["status"], &done["message_id"]), (&"PROCESSED".into(), &"m-1".into()));
    assert!(done["raw_payload_base64"].as_str().is_some_and(|raw| raw.starts_with("eyJp")));
    let original = done["headers"]["relais-original-message-id"].as_str().unwrap();
    assert!(original.starts_with("sha256:"), "{done}");
    let sql = "SELECT actor || ' ' || action || ' ' || target || ' ' || reason FROM relais_audit";
    assert_eq!(texts(&site, sql), ["ann inbox.repaired 1 Latin-1 (decoder json-latin1)"]);
    assert_said(&site.relais(&["reprocess", "1"]), 1, &["is PROCESSED; only a SERDE_ERROR row"]);
    assert_eq!(target.unseen(), 0);

    // The sender sends the same again, to the source as it is declared now.
    let running = site.run();
    assert_eq!(send_bytes(&running, &latin1(&cafe)), 202);
    running.stop();
    assert_eq!(site.json(&["inbox", "list"]).as_array().unwrap().len(), 2, "a duplicate");
    assert_eq!((target.unseen(), site.json(&["dead-letter", "list"])), (0, json!([])));
}

#[test]
fn a_repaired_message_is_delivered_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    let target = Target::start();
    let site = Site::with(&settings_on(&schema.url, &target, "json"));
    let running = site.run();
    send(&running, &framed(&order("m-1", "o-1")));
    // Later ones are done before: the row is far below where the worker reads.
    for n in 2..5 {
        send(&running, &order(&format!("m-{n}"), "o-1"));
        target.next();
    }
    let said = site.relais(&["reprocess", "--decoder", "confluent-json", "--yes"]);
    assert_said(&said, 0, &["reprocessed 1 of 1 row"]);
    assert_eq!(target.next().body, order("m-1", "o-1"));
    running.stop();
    let done = site.json(&["inbox", "show", "m-1"]);
    assert_eq!((&done["status"], &done["id"]), (&"PROCESSED".into(), &1.into()));
}

#[test]
fn rows_are_chosen_by_filters_and_a_decoder_by_hand() {
    let target = Target::start();
    let site = Site::with(&settings(&target, "json"));
    received(&site, &[&framed(&order("m-1", "o-1")), "", &framed(&order("m-2", "o-2"))]);
    let none = site.json(&["reprocess", "--source", "crm", "--yes"]);
    assert_eq!((&none["rows"], &none["dry_run"]), (&json!([]), &false.into()));
    assert_said(
        &site.relais(&["reprocess", "--code", "NOPE", "--yes"]),
        0,
        &["no undecodable row"],
    );

    let chosen = ["reprocess", "--source", "shop", "--code", "INVALID_JSON", "--since", "1h"];
    let by_hand = ["--decoder", "confluent-json", "--yes"];
    let first = site.json(&[&chosen[..], &by_hand[..], &["--limit", "1"]].concat());
    assert_eq!((&first["repaired"], &first["rows"][0]["row"]), (&1.into(), &1.into()), "{first}");
    let second = site.json(&[&chosen[..], &by_hand[..]].concat());
    assert_eq!(second["rows"][0]["row"], 3, "{second}");
    let said = site.relais(&["reprocess", "--yes"]);
    assert_said(&said, 1, &["row 2: still undecodable: empty body", "1 still undecodable"]);

    let running = site.run();
    let mut bodies = [target.next().body, target.next().body];
    bodies.sort();
    assert_eq!(bodies, [order("m-1", "o-1"), order("m-2", "o-2")]);
    running.stop();
}

#[test]
fn an_operator_writes_the_payload() {
    let target = Target::start();
    let site = Site::with(&settings(&target, "json"));
    let cut = r#"{"id":"m-1","type":"OrderPlaced","orderId":"#;
    received(&site, &[cut, "{oops", "{oops again"]);
    let shown = site.relais(&["inbox", "show", "1"]).out;
    assert!(shown.contains("00000000  7b 22 69 64 22 3a "), "{shown}");
    assert!(shown.contains(r#"  {"id":"m-1","typ"#), "{shown}");

    site.write("1.json", "{\n  \"id\": }\n");
    let said = site.relais(&["reprocess", "1", "--payload", "1.json"]);
    assert_said(&said, 1, &["row 1: still undecodable", "line 2 column 9"]);
    site.write("1.json", &format!("{}\n", order("m-1", "o-1")));
    let said =
        site.relais(&["reprocess", "1", "--payload-file", "1.json", "--reason", "cut by a proxy"]);
    assert_said(
        &said,
        0,
        &["row 1: reprocessed: OrderPlaced m-1, key o-1", "reprocessed 1 of 1 row"],
    );
    let row_1 = row(&site, 1);
    assert_eq!(row_1["payload"], order("m-1", "o-1"), "without the line end of the editor");
    assert_ne!(row_1["raw_payload_base64"], Value::Null);

    let mut typing = site
        .command(&["reprocess", "2", "--payload", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    typing.stdin.take().unwrap().write_all(order("m-2", "o-2").as_bytes()).unwrap();
    let said = Said::from(typing.wait_with_output().unwrap());
    assert_said(&said, 0, &["reprocessed 1 of 1 row"]);
    let said =
        site.relais(&["reprocess", "3", "--payload", r#"{"type":"OrderPlaced","orderId":"o-3"}"#]);
    assert_said(&said, 0, &["row 3: reprocessed: OrderPlaced sha256:", "(its own ID), key o-3"]);
    let reasons = texts(&site, "SELECT reason FROM relais_audit ORDER BY id");
    assert_eq!(reasons[0], "cut by a proxy (payload written by hand)");

    let running = site.run();
    for _ in 0..3 {
        target.next();
    }
    running.stop();
    assert_eq!(target.unseen(), 0);
}

#[test]
fn a_message_that_is_there_already_is_not_delivered_twice() {
    let target = Target::start();
    let site = Site::with(&settings(&target, "json"));
    let running = site.run();
    send(&running, &order("m-1", "o-1"));
    target.next();
    send(&running, &framed(&order("m-1", "o-1")));
    let said = site.relais(&["reprocess", "2", "--decoder", "confluent-json"]);
    assert_said(&said, 0, &["row 2: row 1 is the same message m-1", "1 duplicates"]);
    let settled = row(&site, 2);
    assert_eq!(
        (&settled["status"], &settled["error_code"]),
        (&"PROCESSED".into(), &"DUPLICATE".into())
    );
    assert!(settled["error_message"].as_str().unwrap().contains("row 1"), "{settled}");
    // It still has its id: the same bytes are known.
    let again = send(&running, &framed(&order("m-1", "o-1")));
    assert_eq!(again["status"], "duplicate", "{again}");
    running.stop();
    assert_eq!(target.unseen(), 0);
}

#[test]
fn a_conflict_names_the_next_step() {
    let target = Target::start();
    let site = Site::with(&settings(&target, "json"));
    let running = site.run();
    send(&running, &order("m-1", "o-1"));
    target.next();
    send(&running, &framed(&order("m-1", "o-2")));
    let repair = ["reprocess", "2", "--decoder", "confluent-json"];
    let said = site.relais(&repair);
    assert_said(&said, 1, &["row 1 has the message ID m-1", "--keep-id", "1 conflicts"]);
    assert_eq!(row(&site, 2)["status"], "SERDE_ERROR");
    let said = site.relais(&[&repair[..], &["--keep-id"]].concat());
    assert_said(&said, 0, &["row 2: reprocessed: OrderPlaced sha256:", "(its own ID), key o-2"]);
    assert_eq!(target.next().body, order("m-1", "o-2"));
    running.stop();
}

#[test]
fn of_two_concurrent_reprocess_calls_one_is_refused() {
    let target = Target::start();
    let site = Site::with(&settings(&target, "json"));
    received(&site, &[&framed(&order("m-1", "o-1"))]);
    let start = || {
        let mut command = site.command(&["reprocess", "1", "--decoder", "confluent-json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let commands: Vec<_> = (0..4).map(|_| start()).collect();
    let said = commands.into_iter().map(|command| Said::from(command.wait_with_output().unwrap()));
    let (done, refused): (Vec<_>, Vec<_>) = said.partition(|said| said.code == 0);
    assert_eq!((done.len(), refused.len()), (1, 3), "{done:?} {refused:?}");
    for said in &refused {
        assert_said(said, 1, &["row 1: is RECEIVED; only a SERDE_ERROR row can be reprocessed"]);
    }
    assert_eq!(texts(&site, "SELECT action FROM relais_audit"), ["inbox.repaired"]);
}

#[test]
fn wrong_usage_is_refused_before_anything_is_touched() {
    let site = Site::new();
    for args in [
        &["reprocess", "--decoder", "avro"][..],
        &["reprocess", "--payload", "x.json"],
        &["reprocess", "1", "2", "--set", "{}"],
        &["reprocess", "1", "--source", "shop"],
        &["reprocess", "1", "--set", "{}", "--decoder", "json"],
        &["reprocess", "--limit", "0"],
    ] {
        assert_eq!(site.relais(args).code, 2, "{args:?}");
    }
    let target = Target::start();
    let site = Site::with(&settings(&target, "json"));
    received(&site, &["{oops"]);
    let said = site.relais(&["reprocess", "1", "99", "--decoder", "text"]);
    assert_said(&said, 1, &["no inbox entry has the ID 99"]);
    assert_eq!(row(&site, 1)["status"], "SERDE_ERROR", "all ids are checked first");
    let said = site.relais(&["reprocess", "1", "--payload", "missing.json"]);
    assert_said(&said, 1, &["cannot read missing.json"]);
}
