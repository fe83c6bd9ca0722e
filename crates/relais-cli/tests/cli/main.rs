//! The program from the outside: what it prints, how it ends, what reaches the target.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod endings;
mod fleet;
// Shared with tests that use more of it.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use support::{Running, Said, Site, Target, get, post, postgres::PostgresSchema};

/// Time limit of a condition.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Settings with a hook, a route and a target.
fn settings(store: &str, target: &Target) -> String {
    format!(
        "[store]\nurl = \"{store}\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\naggregate_id = \"payload:/orderId\"\n\
         [[route]]\non = \"OrderPlaced\"\naggregate_type = \"Order\"\ndestination = \"orders\"\n\
         [[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\nheaders = {{ Authorization = \"Bearer CANARY\" }}\n",
        target.address
    )
}

fn place_order(running: &Running, message: &str, order: &str) {
    let body = format!("{{\"type\": \"OrderPlaced\",  \"orderId\": \"{order}\"}}");
    let (status, answer) =
        post(running.address("hook"), "/hook", &[("message-id", message)], &body);
    assert_eq!(status, 202, "{answer}");
}

fn assert_failed(said: &Said, code: i32, text: &str) {
    assert_eq!(said.code, code, "{said:?}");
    assert!(format!("{}{}", said.out, said.err).contains(text), "{text}: {said:?}");
}

#[test]
fn a_first_file_is_written_checked_and_works() {
    let site = Site::new();
    let said = site.relais(&["init"]);
    assert_eq!(said.code, 0, "{said:?}");
    let mode = std::fs::metadata(site.path("relais.toml")).unwrap().permissions();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777;
    assert_eq!(mode, 0o600, "it will hold secrets");
    assert_failed(&site.relais(&["init"]), 1, "--force");
    assert_eq!(site.relais(&["init", "--force"]).code, 0);

    let said = site.relais(&["check"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("POST http://127.0.0.1:7071/hook"), "{said:?}");
    assert!(said.out.contains("ok; next: `relais run`"), "{said:?}");
    assert!(!site.path("relais.db").exists(), "looking made a file");
    assert_failed(&site.relais(&["status"]), 1, "`relais migrate` or `relais run`");

    // As written, but on free ports: other tests run beside this one.
    let free = std::fs::read_to_string(site.path("relais.toml")).unwrap();
    site.write("relais.toml", &free.replace(":7070\"", ":0\"").replace(":7071\"", ":0\""));
    let running = site.run();
    place_order(&running, "m-1", "o-1");
    let (status, answer) = get(running.logged("admin http://"), "/healthz");
    assert_eq!(status, 200, "{answer}");
    let started = std::time::Instant::now();
    while site.json(&["outbox", "list"])[0]["status"] != "DISPATCHED" {
        assert!(started.elapsed() < PATIENCE, "not delivered in time");
    }
    // The destination is stdout.
    let out = running.stop().out;
    let line: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!((&line["aggregate_id"], &line["destination"]), (&"o-1".into(), &"orders".into()));
}

#[test]
fn a_message_is_delivered_on_sqlite() {
    let target = Target::start();
    let site = Site::with(&settings("sqlite:relais.db", &target));
    is_delivered(&site, &target);
}

#[test]
fn a_message_is_delivered_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    let target = Target::start();
    let site = Site::with(&settings(&schema.url, &target));
    is_delivered(&site, &target);
    let said = site.relais(&["check"]);
    assert_eq!(said.code, 0, "{said:?}");
}

fn is_delivered(site: &Site, target: &Target) {
    let running = site.run();
    place_order(&running, "m-1", "o-1");
    let seen = target.next();
    assert_eq!(seen.body, "{\"type\": \"OrderPlaced\",  \"orderId\": \"o-1\"}");
    assert!(seen.head.to_lowercase().contains("authorization: bearer canary"), "{seen:?}");
    place_order(&running, "m-1", "o-1");
    let status = site.json(&["status"]);
    assert!(status["workers"].as_array().is_some_and(|w| w.len() == 2), "{status}");
    let said = running.stop();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(target.unseen(), 0, "a duplicate was delivered");
    assert!(said.err.contains("lanes released"), "{said:?}");
    assert!(!format!("{said:?}").contains("CANARY"), "{said:?}");

    let inbox = site.json(&["inbox", "list"]);
    assert_eq!(inbox[0]["status"], "PROCESSED", "{inbox}");
    assert_eq!(inbox[0]["msg_key"], "o-1");
    assert_eq!(inbox.as_array().unwrap().len(), 1, "{inbox}");
    let outbox = site.json(&["outbox", "list", "--status", "dispatched", "--since", "1h"]);
    assert_eq!(outbox[0]["attempts"], 1, "{outbox}");
    assert_eq!(site.json(&["outbox", "list", "--destination", "nowhere"]), serde_json::json!([]));
    let id = outbox[0]["message_id"].as_str().unwrap();
    assert_eq!(site.json(&["outbox", "show", id])["payload"], inbox[0]["payload"]);
    assert_eq!(site.json(&["inbox", "show", "m-1"])["id"], inbox[0]["id"]);

    let said = site.relais(&["outbox", "list"]);
    assert!(said.out.starts_with("ID") && said.out.contains("DISPATCHED"), "{said:?}");
    let said = site.relais(&["inbox", "show", "m-1"]);
    assert!(said.out.ends_with("\npayload\n{\"type\": \"OrderPlaced\",  \"orderId\": \"o-1\"}\n"));
    let said = site.relais(&["status"]);
    assert!(said.out.contains("1 PROCESSED") && said.out.contains("1 DISPATCHED"), "{said:?}");
    assert_failed(&site.relais(&["outbox", "show", "999"]), 1, "no outbox entry has the ID 999");
    assert_failed(&site.relais(&["outbox", "retry", id]), 1, "only a failed row can be retried");
}

#[test]
fn a_dead_letter_is_shown_retried_and_then_delivered() {
    let target = Target::start();
    let site = Site::with(&settings("sqlite:relais.db", &target));
    target.answers(400);
    let running = site.run();
    place_order(&running, "m-1", "o-1");
    target.next();
    running.stop();

    let letters = site.json(&["dead-letter", "list"]);
    assert_eq!(letters[0]["origin"], "outbox", "{letters}");
    let id = letters[0]["id"].as_str().unwrap();
    let said = site.relais(&["dead-letter", "list"]);
    assert!(said.out.contains(id) && said.out.contains("OrderPlaced"), "{said:?}");
    assert_eq!(site.json(&["dead-letter", "show", id])["msg_key"], "o-1");
    let status = site.json(&["status"]);
    assert_eq!((&status["dead_letters_open"], &status["parked_keys"]), (&1.into(), &1.into()));

    let said = site.relais(&["dead-letter", "retry", "--all"]);
    assert_failed(&said, 2, "--yes");
    let said = site.relais(&["dead-letter", "retry", "--all", "--dry-run"]);
    assert!(said.out.contains("1 would be retried"), "{said:?}");
    let none = site.json(&["dead-letter", "retry", "--all", "--type", "Other", "--yes"]);
    assert_eq!(none["replayed"], serde_json::json!([]));

    let row = letters[0]["origin_id"].to_string();
    let said =
        site.relais(&["outbox", "retry", &row, "--reason", "target fixed", "--actor", "ann"]);
    assert_eq!((said.code, said.out.as_str()), (0, "retried 1\n"), "{said:?}");
    let resolved = site.json(&["dead-letter", "list", "--status", "resolved"]);
    assert_eq!(resolved[0]["resolved_by"], "ann", "{resolved}");
    assert_eq!(resolved[0]["reason"], "target fixed");
    assert_failed(&site.relais(&["dead-letter", "retry", id]), 1, "is already retried");

    target.answers(200);
    let running = site.run();
    target.next();
    running.stop();
    assert_eq!(site.json(&["outbox", "show", &row])["status"], "DISPATCHED");
}

#[test]
fn a_discarded_dead_letter_releases_its_key() {
    let target = Target::start();
    let site = Site::with(&settings("sqlite:relais.db", &target));
    target.answers(400);
    let running = site.run();
    place_order(&running, "m-1", "o-1");
    target.next();
    running.stop();
    target.answers(200);
    let id = site.json(&["dead-letter", "list"])[0]["id"].as_str().unwrap().to_owned();
    let said = site.relais(&["dead-letter", "skip", &id, "--reason", "too late"]);
    assert_eq!((said.code, said.out.as_str()), (0, "discarded 1\n"), "{said:?}");
    let running = site.run();
    place_order(&running, "m-2", "o-1");
    target.next();
    running.stop();
    let outbox = site.json(&["outbox", "list", "--key", "o-1"]);
    assert_eq!(
        (&outbox[0]["status"], &outbox[1]["status"]),
        (&"DISPATCHED".into(), &"FAILED".into())
    );
}

#[test]
fn any_language_writes_the_outbox_and_unknown_destinations_wait() {
    let target = Target::start();
    let site = Site::with(&settings("sqlite:relais.db", &target));
    let running = site.run();
    let db = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    for (id, destination) in [("o-1", "nowhere"), ("o-2", "orders")] {
        db.execute(include_str!("../support/insert.sql"), (id, destination)).unwrap();
    }
    assert_eq!(target.next().body, "{\"by\":\"hand\"}");
    running.stop();
    let said = site.relais(&["status"]);
    assert!(said.out.contains("waits: no [[destination]] names it"), "{said:?}");
    let status = site.json(&["status"]);
    let nowhere = &status["destinations"][0];
    assert_eq!((&nowhere["destination"], &nowhere["defined"]), (&"nowhere".into(), &false.into()));
    assert_eq!(nowhere["pending"], 1, "{status}");
}

#[test]
fn wrong_settings_are_all_named_with_their_lines() {
    let site = Site::with(
        "[store]\nurl = \"sqlite:x.db\"\n[[destination]]\nname = \"a\"\nkind = \"htpp\"\n\
         [retention]\nprocesed = \"30d\"\n[admin]\ntoken = \"${RELAIS_NOT_SET}\"\n",
    );
    let expected = [
        "error: relais.toml:5:8: destination[a].kind: `htpp` is not known here; did you mean `http`?",
        "error: relais.toml:7:1: retention.procesed: unknown key; did you mean `processed`?",
        "error: relais.toml:9:9: admin.token: environment variable `RELAIS_NOT_SET` is not set; \
         set it, or write `$${` for a plain `${`",
    ];
    for command in ["run", "status"] {
        let said = site.relais(&[command]);
        let errors: Vec<&str> = said.err.lines().filter(|line| line.starts_with("error")).collect();
        assert_eq!((said.code, errors), (2, expected.to_vec()));
        let excerpt = "\n5 | kind = \"htpp\"\n  |        ^^^^^^\n";
        assert!(said.err.contains(excerpt) && !said.err.contains('\u{1b}'), "{}", said.err);
    }
    // A secret is masked, and colours are for terminals or on request.
    let said = site.relais(&["status", "--color", "always"]);
    let masked = "token = \"…\"";
    assert!(said.err.contains(masked) && said.err.contains("\u{1b}[1;31m^^^\u{1b}[0m"), "{said:?}");
    let said = site.relais(&["check"]);
    assert_eq!(said.code, 2);
    for line in expected {
        assert!(said.out.contains(line), "{said:?}");
    }
    let said = site.relais(&["check", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&report["ok"], said.code), (&false.into(), 2));
    assert_eq!(report["errors"].as_array().unwrap().len(), 3);
    assert_eq!(
        report["problems"][1],
        serde_json::json!({
            "severity": "error", "file": "relais.toml", "line": 7, "column": 1,
            "key": "retention.procesed", "message": "unknown key; did you mean `processed`?",
        })
    );
}

#[test]
fn secrets_never_show() {
    let text = "[store]\nurl = \"postgres://relais:CANARY1@127.0.0.1:1/app?password=CANARY2\"\nwait = \"0s\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"${T}\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         token = \"CANARY4\"\nsecrets = [\"CANARY5\"]\n\
         [[route]]\non = \"x\"\ndestination = \"d\"\n\
         [[destination]]\nname = \"d\"\nkind = \"http\"\nurl = \"https://example.com/CANARY6\"\n\
         headers = { Authorization = \"CANARY7\" }\nsecret = \"CANARY8\"\n";
    let broken = format!("{text}kidn = \"CANARY9\"\n").replace("CANARY1", "x@CANARY1");
    for settings in [text, &broken, &text.replace("\"CANARY8\"", "\"CANARY8")] {
        let site = Site::with(settings);
        for args in [&["check", "--offline"][..], &["check"], &["run"], &["status"], &["migrate"]] {
            for json in [&[][..], &["--json"]] {
                let args = [args, json].concat();
                let said = Said::from(site.command(&args).env("T", "CANARY3").output().unwrap());
                assert!(!format!("{said:?}").contains("CANARY"), "{args:?}: {said:?}");
            }
        }
    }
}

#[test]
fn exit_codes_distinguish_usage_from_failure() {
    let empty = Site::new();
    let said = empty.relais(&["status"]);
    let expected = "error: cannot find relais.toml; run `relais init` or pass --config FILE\n";
    assert_eq!((said.code, said.err.as_str()), (2, expected));
    assert_eq!(empty.relais(&["check"]).code, 2);
    assert_eq!(empty.relais(&["nonsense"]).code, 2);
    assert_eq!(empty.relais(&["outbox", "list", "--limit", "0"]).code, 2);
    assert_eq!(empty.relais(&["--version"]).code, 0);
    let said = empty.relais(&["completions", "bash"]);
    assert!(said.code == 0 && said.out.contains("relais"), "{said:?}");

    let away = Site::with(
        "[store]\nurl = \"postgres://relais@127.0.0.1:1/app\"\nwait = \"0s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
    );
    for command in ["run", "status", "check", "migrate"] {
        assert_failed(&away.relais(&[command]), 1, "127.0.0.1:1");
    }
    let said = Said::from(
        empty
            .command(&["check", "--offline"])
            .env("RELAIS_CONFIG", away.path("relais.toml"))
            .output()
            .unwrap(),
    );
    assert_eq!(said.code, 0, "{said:?}");
}

/// Migrated by hand; the console is all that runs.
const STORE_ONLY: &str =
    "[store]\nurl = \"sqlite:a.db\"\nmigrate = false\n[admin]\nlisten = \"127.0.0.1:0\"\n";

#[test]
fn migrations_are_applied_once_and_printed_for_others_to_apply() {
    let site = Site::with(STORE_ONLY);
    assert_failed(&site.relais(&["run"]), 1, "relais migrate");
    let first = site.json(&["migrate"]);
    assert_eq!(
        first["applied"],
        serde_json::json!([
            "relais",
            "worker_lease",
            "adopt",
            "lean_outbox",
            "sql_interface",
            "business_keys",
            "adopted_inbox",
            "other_programs"
        ])
    );
    assert_eq!(site.json(&["migrate"])["applied"], serde_json::json!([]));
    assert_eq!(site.relais(&["check"]).code, 0);

    let printed = Site::new();
    let script = printed.relais(&["migrate", "--print", "--database", "sqlite"]);
    assert_eq!(script.code, 0, "{script:?}");
    let db = rusqlite::Connection::open(printed.path("a.db")).unwrap();
    db.execute_batch(&script.out).unwrap();
    printed.write("relais.toml", STORE_ONLY);
    let said = printed.relais(&["check"]);
    assert!(said.code == 0 && said.out.contains("ok; next: `relais run`"), "{said:?}");
}

#[test]
fn printed_migrations_work_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    let site = Site::with(&format!(
        "[store]\nurl = \"{}\"\nmigrate = false\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        schema.url
    ));
    assert_failed(&site.relais(&["check"]), 1, "relais migrate");
    let script = site.relais(&["migrate", "--print"]);
    assert_eq!(script.code, 0, "{script:?}");
    schema.execute(&format!("SET search_path = {}; {}", schema.name, script.out));
    let said = site.relais(&["check"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(site.json(&["migrate"])["applied"], serde_json::json!([]));
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_build_without_kafka_explains_how_to_get_one() {
    let site = Site::with(
        "[[source]]\nname = \"m\"\nkind = \"kafka\"\nbrokers = \"k\"\ntopics = [\"t\"]\n\
         [[route]]\non = \"A\"\ndestination = \"b\"\n\
         [[destination]]\nname = \"b\"\nkind = \"kafka\"\nbrokers = \"k\"\n",
    );
    let said = site.relais(&["check"]);
    for words in ["source[m]: this build has no Kafka", "destination[b]: this build has no Kafka"] {
        assert_failed(&said, 2, words);
    }
    assert!(said.out.contains("cargo build --release --features kafka"), "{said:?}");
    assert_failed(&site.relais(&["run"]), 1, "this build has no Kafka");
    // Commands that only read the database work in any build.
    assert_eq!(site.relais(&["status"]).code, 0);
}
