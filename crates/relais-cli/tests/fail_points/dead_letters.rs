//! Decisions of operators at the command line, each command once more if it ended half-way: the effect is there
//! once, and so is the line in the audit.

use serde_json::{Value, json};

use crate::{harness::CrashHarness, http::letters, process::check_logs, sink::Sink, support::Said};

const BY: [&str; 5] = ["--actor", "ann", "--reason", "a test", "--yes"];

/// Dead letters are edited, replayed and discarded, a pending row is given up, broken rows repaired and discarded, a process is
/// ended.
pub(crate) fn decisions(harness: &mut CrashHarness) {
    // The rejected one is taken once it has been edited.
    let sink = Sink::start(|_, new| match new.body["note"].as_str() {
        Some("wrong" | "hopeless") => 400,
        _ => 200,
    });
    harness.settings(&settings(&sink, "json"));
    for (id, note) in [("e-1", "wrong"), ("e-2", "fine"), ("d-1", "hopeless"), ("d-2", "fine")] {
        let key = &id[..1];
        let body = json!({ "type": "Placed", "key": key, "id": id, "note": note }).to_string();
        harness.post(&[("message-id", id)], &body);
    }
    for n in 1..=3 {
        // Not UTF-8, and so not JSON to this source.
        let mut body = json!({ "type": "Placed", "key": "r", "id": format!("r-{n}") })
            .to_string()
            .into_bytes();
        body.splice(body.len() - 1.., *b",\"note\":\"\xE9\"}");
        harness.post(&[], &body);
    }
    harness.post(&[("message-id", "o-1")], r#"{"type":"OrderPlaced","order":"o-1","id":"o-1"}"#);
    harness.until("two dead letters", |harness| letters(harness).len() == 2);
    harness.until("a command", |_| sink.accepted("id").contains(&"pay".to_owned()));
    harness.stop();

    harness.settings(&settings(&sink, "json-latin1"));
    decide(harness);
    harness.until("all arrive", |_| sink.accepted("id").len() == 6);
    harness.until("the process ends", |harness| {
        !harness.base.texts("SELECT status FROM relais_process WHERE status = 'FAILED'").is_empty()
    });
    harness.drain();
    harness.finish();
    check(harness, &sink);
}

fn settings(sink: &Sink, decoder: &str) -> String {
    format!(
        "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\naggregate_id = \"payload:/key\"\ndecoder = \"{decoder}\"\n\
         message_id = \"payload:/id\"\n\
         [[route]]\non = \"Placed\"\naggregate_type = \"Order\"\ndestination = \"orders\"\n{}\
         [[process]]\ntype = \"order\"\nstart = \"OrderPlaced\"\nbusiness_key = \"payload:/order\"\n\
         [[process.step]]\nname = \"pay\"\ndestination = \"orders\"\ncommand = \"Pay\"\n\
         payload = '{{\"id\": \"pay\"}}'\ncompleted = \"Paid\"\nfailed = \"Refused\"\ntimeout = \"10m\"\n",
        sink.destination("orders", 5)
    )
}

fn decide(harness: &mut CrashHarness) {
    let list = |harness: &mut CrashHarness, key: &str| -> String {
        let said =
            harness.relais(&["dead-letter", "list", "--status", "all", "--key", key, "--json"]);
        let found: Value =
            serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        found[0]["id"].as_str().unwrap_or_else(|| panic!("{said:?}")).to_owned()
    };
    let (edited, discarded) = (list(harness, "e"), list(harness, "d"));
    let fixed = json!({ "type": "Placed", "key": "e", "id": "e-1", "note": "fixed" }).to_string();
    act(harness, &["dead-letter", "edit", &edited, "--payload", &fixed]);
    // The row behind it is failed and then retried.
    let waiting = "SELECT CAST(id AS TEXT) FROM relais_outbox WHERE payload LIKE '%e-2%'";
    let waiting = harness.base.texts(waiting);
    act(harness, &["outbox", "fail", &waiting[0]]);
    let given_up = list(harness, "e");
    assert_ne!(given_up, edited);
    act(harness, &["dead-letter", "replay", &edited]);
    act(harness, &["dead-letter", "replay", &given_up]);
    act(harness, &["dead-letter", "discard", &discarded]);
    let broken = "SELECT CAST(max(id) AS TEXT) FROM relais_inbox WHERE status = 'SERDE_ERROR'";
    let broken = harness.base.texts(broken);
    act(harness, &["reprocess", "discard", &broken[0]]);
    act(harness, &["reprocess"]);
    act(harness, &["process", "cancel", "order/o-1"]);
}

/// A command that ended after its commit finds its work done, and says so.
fn act(harness: &mut CrashHarness, args: &[&str]) -> Said {
    let args: Vec<&str> = args.iter().chain(&BY).copied().collect();
    let before = harness.crashes;
    let said = harness.relais(&args);
    assert!(said.code == 0 || harness.crashes != before, "{args:?}: {said:?}");
    said
}

fn check(harness: &CrashHarness, sink: &Sink) {
    sink.assert_copies(harness.crashes);
    let arrived = sink.accepted("id");
    let place = |id: &str| arrived.iter().position(|found| found == id);
    assert!(place("e-1") < place("e-2"), "a retried message is delivered first: {arrived:?}");
    assert!(place("d-1").is_none() && place("d-2").is_some(), "{arrived:?}");
    assert_eq!(letters(harness)[..2], ["d discarded", "e retried"]);
    let open = "SELECT msg_key FROM relais_dead_letter WHERE resolved_at IS NULL \
                UNION ALL SELECT msg_key FROM relais_parked_key";
    let open = harness.base.texts(open);
    assert!(open.is_empty(), "{open:?}");
    let rows = "SELECT status FROM relais_inbox WHERE status <> 'PROCESSED'";
    assert_eq!(harness.base.texts(rows), ["FAILED"], "one of the broken rows is discarded");
    check_logs(harness);
    let mut audit = harness.base.texts("SELECT action || ' ' || target FROM relais_audit");
    let all = audit.len();
    audit.sort_unstable();
    audit.dedup();
    // An edit says nothing else when it is made again.
    assert!((9..=9 + harness.crashes).contains(&all) && audit.len() == 9, "{all}: {audit:?}");
}
