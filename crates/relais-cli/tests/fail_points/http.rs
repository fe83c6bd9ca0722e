//! HTTP in, by a route to the outbox, and out to a target: delivered at once; after retries; or never.

use serde_json::json;

use crate::{harness::CrashHarness, sink::Sink};

const SOURCE: &str = "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
    source_system = \"shop\"\naggregate_id = \"payload:/key\"\n\
    [[route]]\non = \"Placed\"\naggregate_type = \"Order\"\ndestination = \"orders\"\n";

/// Four messages of two keys, one of them sent twice: each arrives, in the order of its key.
pub(crate) fn in_and_out(harness: &mut CrashHarness) {
    let sink = Sink::start(|_, _| 200);
    harness.settings(&format!("{SOURCE}{}", sink.destination("orders", 5)));
    for (n, key) in ["a", "b", "a", "a"].into_iter().enumerate() {
        send(harness, &format!("m-{n}"), key);
    }
    send(harness, "m-0", "a");
    harness.until("all arrive", |_| sink.accepted("id").len() == 4);
    harness.drain();
    harness.finish();

    sink.assert_copies(harness.crashes);
    let arrived = sink.accepted("id");
    let of_a: Vec<_> = arrived.iter().filter(|id| *id != "m-1").collect();
    assert_eq!(of_a, ["m-0", "m-2", "m-3"], "the order of a key");
    assert_eq!(arrived.len(), 4);
    let rows = "SELECT status FROM relais_inbox UNION ALL SELECT status FROM relais_outbox";
    let statuses = harness.base.texts(rows);
    let count = |status: &str| statuses.iter().filter(|found| *found == status).count();
    assert_eq!((count("PROCESSED"), count("DISPATCHED"), statuses.len()), (4, 4, 8));
    assert!(letters(harness).is_empty());
}

fn insert(harness: &CrashHarness, id: &str) {
    let (key, payload) = (id.split('-').next().unwrap(), json!({ "id": id }));
    harness.base.execute(&format!(
        "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload) \
         VALUES ('Order', '{key}', 'Placed', 'orders', '{payload}')"
    ));
}

/// Rows written by another program: one is refused once, one permanently, one repeatedly.
pub(crate) fn retry_and_dead_letter(harness: &mut CrashHarness) {
    const ATTEMPTS: usize = 3;
    let sink = Sink::start(|before, new| match new.body["id"].as_str().unwrap() {
        "late-1" if before.iter().all(|seen| seen.body["id"] != "late-1") => 500,
        "bad-1" => 400,
        "never-1" => 500,
        _ => 200,
    });
    harness.settings(&format!("{SOURCE}{}", sink.destination("orders", ATTEMPTS)));
    assert_eq!(harness.relais(&["migrate"]).code, 0);
    for id in ["late-1", "bad-1", "never-1", "late-2", "bad-2", "never-2"] {
        insert(harness, id);
    }
    // After a crash only success of another key shows that the failures are the message's own.
    let mut steady = 0;
    harness.until("two dead letters", |harness| {
        steady += 1;
        insert(harness, &format!("steady-{steady}"));
        letters(harness).len() == 2
    });
    harness.drain();
    harness.finish();

    sink.assert_copies(harness.crashes);
    let mut accepted = sink.accepted("id");
    accepted.retain(|id| !id.starts_with("steady"));
    assert_eq!(accepted, ["late-1", "late-2"], "the order of a key");
    assert_eq!(letters(harness), ["bad OPEN", "never OPEN"]);
    let parked = harness.base.texts("SELECT msg_key FROM relais_parked_key ORDER BY msg_key");
    assert_eq!(parked, ["bad", "never"]);
    let tried = |id: &str| sink.seen().iter().filter(|seen| seen.body["id"] == id).count();
    // A crash costs a call that is not counted, and what was known about other keys: until one of them
    // succeeds again, failures use no attempt.
    assert!((ATTEMPTS..=ATTEMPTS + 4).contains(&tried("never-1")), "{}", tried("never-1"));
    assert!(tried("bad-1") <= 2, "{}", tried("bad-1"));
    assert_eq!(tried("bad-2") + tried("never-2"), 0, "they wait behind a dead letter");
}

/// Expired rows are deleted, open rows stay.
pub(crate) fn cleanup(harness: &mut CrashHarness) {
    let sink = Sink::start(|_, new| if new.body["key"] == "bad" { 400 } else { 200 });
    let retention = "[retention]\nprocessed = \"1s\"\ndispatched = \"1s\"\n\
        [inbox.retry]\nattempts = 2\nfirst = \"10ms\"\nmax = \"20ms\"\n";
    harness.settings(&format!("{SOURCE}{}{retention}", sink.destination("orders", 2)));
    for (n, key) in ["a", "b", "bad", "bad"].into_iter().enumerate() {
        send(harness, &format!("m-{n}"), key);
    }
    harness.until("a dead letter", |harness| letters(harness).len() == 1);
    harness.drain();
    harness.stop();
    const LONG_AGO: &str = "'2000-01-01T00:00:00.000Z'";
    harness.base.execute(&format!(
        "UPDATE relais_inbox SET processed_at = {LONG_AGO}, received_at = {LONG_AGO}; \
         UPDATE relais_outbox SET dispatched_at = {LONG_AGO} WHERE status = 'DISPATCHED'; \
         UPDATE relais_outbox SET created_at = {LONG_AGO};"
    ));
    harness.until("the inbox is empty", |harness| {
        harness.base.texts("SELECT status FROM relais_inbox").is_empty()
    });
    harness.until("delivered rows are deleted", |harness| statuses(harness).len() == 2);
    harness.finish();

    assert_eq!(statuses(harness), ["FAILED", "PENDING"]);
    assert_eq!(letters(harness), ["bad OPEN"]);
    let held = "SELECT msg_key FROM relais_parked_key";
    assert_eq!(harness.base.texts(held), ["bad"]);
}

fn statuses(harness: &CrashHarness) -> Vec<String> {
    harness.base.texts("SELECT status FROM relais_outbox ORDER BY status")
}

fn send(harness: &mut CrashHarness, id: &str, key: &str) {
    let body = json!({ "type": "Placed", "key": key, "id": id }).to_string();
    harness.post(&[("message-id", id)], &body);
}

/// Keys and states of dead letters.
pub(crate) fn letters(harness: &CrashHarness) -> Vec<String> {
    harness.base.texts(
        "SELECT msg_key || ' ' || CASE WHEN resolved_at IS NULL THEN 'OPEN' ELSE resolution END \
         FROM relais_dead_letter ORDER BY msg_key",
    )
}
