//! The HTTP API of a running relais: every call, who may make it, and what it says when it cannot.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "client.rs"]
#[allow(dead_code)]
mod client;
// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[macro_use]
#[path = "../process/fixture.rs"]
mod fixture;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::thread;

use client::{Answer, Client};
use fixture::{LONG, OrderFixture};
use serde_json::{Value, json};

scenarios!(
    processes_are_listed_shown_and_logged_by_the_page,
    every_action_on_a_process_is_there_and_does_it_once,
    of_two_concurrent_decisions_one_is_refused,
    dead_letters_are_shown_edited_retried_and_discarded,
    parked_keys_are_listed_released_and_skipped,
    a_message_is_explained_from_its_start_to_its_command,
    no_action_is_possible_without_actor_and_reason,
    pages_of_other_sites_and_other_names_are_refused,
    configured_tokens_are_required,
    a_response_has_cache_and_content_type_headers,
);

fn who() -> Value {
    json!({"actor": "ann", "reason": "a test"})
}

fn opened(fixture: OrderFixture) -> (OrderFixture, Client) {
    let fixture = fixture.open(LONG);
    let client = Client::at(fixture.admin());
    (fixture, client)
}

/// A body with more fields than who and why.
fn with(fields: Value) -> Value {
    let mut body = who();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn processes_are_listed_shown_and_logged_by_the_page(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    for order in ["o-1", "o-2", "o-3"] {
        fixture.place(order);
        fixture.command("TakePayment");
    }
    let first = client.get("/processes?type=order&status=running&limit=2").ok();
    assert_eq!(first["items"].as_array().unwrap().len(), 2, "{first}");
    let next = first["next"].as_str().unwrap();
    let last = client.get(&format!("/processes?limit=2&before={next}&since_seconds=3600")).ok();
    assert_eq!((&last["items"][0]["business_key"], &last["next"]), (&json!("o-1"), &Value::Null));
    assert_eq!(client.get("/processes?key=o-2").ok()["items"].as_array().unwrap().len(), 1);
    assert_eq!(client.get("/processes?status=FAILED").ok()["items"], json!([]));

    let by_key = client.get("/processes/order%2Fo-2").ok();
    let id = by_key["process_id"].as_str().unwrap();
    assert_eq!(client.get(&format!("/processes/{id}")).ok(), by_key);
    let log = client.get(&format!("/processes/{id}/log?limit=1")).ok();
    assert_eq!((&log["items"][0]["type"], &log["next"]), (&json!("StepStarted"), &json!("2")));
    let older = client.get(&format!("/processes/{id}/log?before=2")).ok();
    assert_eq!(
        (&older["items"][0]["type"], &older["next"]),
        (&json!("ProcessStarted"), &Value::Null)
    );

    let unknown = uuid::Uuid::new_v4();
    for path in [format!("/processes/{unknown}"), format!("/processes/{unknown}/log")] {
        client.get(&path).problem(404, "NOT_FOUND");
    }
    for path in [
        "/processes?status=done",
        "/processes?limit=0",
        "/processes?limit=501",
        "/processes?limit=many",
        "/processes?before=1",
        "/processes?colour=red",
        "/processes/neither-id-nor-key",
        "/dead-letters?status=closed",
        "/dead-letters/17",
        "/audit?limit=501",
        "/parked-keys?limit=501",
    ] {
        client.get(path).problem(400, "BAD_REQUEST");
    }
}

fn every_action_on_a_process_is_there_and_does_it_once(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    fixture.place("o-1");
    fixture.command("TakePayment");
    let act = |action: &str| client.post(&format!("/processes/order%2Fo-1/{action}"), &who());
    assert_eq!(act("pause").ok()["status"], "PAUSED");
    let again = act("pause");
    assert!(again.problem(409, "PROCESS_ACTION")["detail"].as_str().unwrap().contains("resume"));
    assert_eq!(act("resume").ok()["status"], "RUNNING");
    assert_eq!(act("retry").ok()["status"], "RUNNING");
    fixture.reply(&fixture.command("TakePayment"), "PaymentTaken", json!({"id": "p-7"}));
    fixture.command("Ship");
    assert_eq!(act("skip").ok()["status"], "SUCCEEDED");
    act("skip").problem(409, "PROCESS_ACTION");
    act("cancel").problem(409, "PROCESS_ACTION");
    assert_eq!(act("compensate").ok()["status"], "COMPENSATING");
    fixture.reply(&fixture.command("RefundPayment"), "PaymentRefunded", json!({}));
    fixture.until("o-1", "COMPENSATED");
    fixture.place("o-2");
    fixture.command("TakePayment");
    assert_eq!(client.post("/processes/order%2Fo-2/cancel", &who()).ok()["status"], "FAILED");
    let log = client.get("/processes/order%2Fo-2/log").ok();
    let entry = &log["items"][0];
    assert_eq!((&entry["actor"], &entry["because"]), (&json!("ann"), &json!("a test")), "{log}");

    act("explode").problem(404, "NOT_FOUND");
    client.post("/processes/order%2Fnobody/pause", &who()).problem(404, "NOT_FOUND");
}

fn of_two_concurrent_decisions_one_is_refused(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    for round in 0..5 {
        let order = format!("o-{round}");
        fixture.place(&order);
        fixture.command("TakePayment");
        let path = format!("/processes/order%2F{order}/pause");
        let both: Vec<u16> = thread::scope(|scope| {
            let one = || client.post(&path, &who()).status;
            let threads = [scope.spawn(one), scope.spawn(one)];
            threads.map(|thread| thread.join().unwrap()).to_vec()
        });
        let mut sorted = both.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [200, 409], "{both:?}");
        let process = fixture.process(&order);
        let pauses = process["log"].as_array().unwrap().iter();
        assert_eq!(pauses.filter(|entry| entry["type"] == "ProcessPaused").count(), 1, "{process}");
    }
}

fn dead_letters_are_shown_edited_retried_and_discarded(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    // A field that the process needs is missing; the first message is edited, the second discarded.
    fixture.send("m-1", &[], &json!({"type": "OrderPlaced", "cents": 1}));
    fixture.send("m-2", &[], &json!({"type": "Unheard"}));
    let letters = fixture.wait("two dead letters", || {
        let letters = client.get("/dead-letters").ok();
        (letters["items"].as_array().unwrap().len() == 2).then_some(letters)
    });
    assert_eq!(letters["next"], Value::Null);
    let one = client.get("/dead-letters?type=OrderPlaced&limit=1").ok();
    let id = one["items"][0]["id"].as_str().unwrap().to_owned();
    let letter = format!("/dead-letters/{id}");
    let shown = client.get(&letter).ok();
    assert_eq!(
        (&shown["message_id"], shown["history"].as_array().unwrap().len()),
        (&json!("m-1"), 1)
    );

    ids_are_found_by_their_first_characters(&client, &letters);

    let edit = |fields: Value| client.post(&format!("{letter}/edit"), &with(fields));
    let good = json!({"type": "OrderPlaced", "orderId": "o-1", "cents": 1});
    edit(json!({"payload": {"type": "OrderPlaced"}})).fails(422);
    edit(json!({"payload": good, "dry_run": true})).ok();
    assert_eq!(client.get(&letter).ok()["edited_by"], Value::Null, "a dry run changes nothing");
    edit(json!({"payload": good, "edited_at": null})).ok();
    edit(json!({"payload": good, "edited_at": null})).problem(409, "EDITED_MEANWHILE");
    let seen = client.get(&letter).ok()["edited_at"].clone();
    edit(json!({"payload": good, "edited_at": seen})).ok();
    edit(json!({"payload": good, "colour": "red"})).problem(422, "INVALID");
    let shown = client.get(&letter).ok();
    assert_eq!((&shown["edited_by"], &shown["payload"]), (&json!("ann"), &json!(good.to_string())));
    let text = r#"{"type": "OrderPlaced", "orderId": "o-1", "cents": 1.0}"#;
    edit(json!({"payload": text})).ok();
    assert_eq!(
        client.get(&letter).ok()["payload"],
        text,
        "a text is the JSON in it, byte for byte"
    );
    edit(json!({"payload": &text[..20]})).fails(422);
    edit(json!({"payload": good})).ok();
    assert_eq!(client.post(&format!("{letter}/replay"), &who()).ok(), json!({"result": "done"}));
    assert_eq!(fixture.command("TakePayment").payload, json!({"order": "o-1", "cents": 1}));
    for action in ["replay", "discard"] {
        client.post(&format!("{letter}/{action}"), &who()).problem(409, "RESOLVED_BEFORE");
    }
    edit(json!({"payload": good})).problem(409, "RESOLVED_BEFORE");

    let other = client.get("/dead-letters").ok()["items"][0]["id"].as_str().unwrap().to_owned();
    client.post(&format!("/dead-letters/{other}/discard"), &who()).ok();
    assert_eq!(client.get("/dead-letters").ok()["items"], json!([]));
    assert_eq!(
        client.get("/dead-letters?status=resolved").ok()["items"].as_array().unwrap().len(),
        2
    );
    let missing = uuid::Uuid::new_v4();
    client.get(&format!("/dead-letters/{missing}")).problem(404, "NOT_FOUND");
    for action in ["replay", "discard"] {
        client.post(&format!("/dead-letters/{missing}/{action}"), &who()).problem(404, "NOT_FOUND");
    }
    audited(&client, &other);
}

fn ids_are_found_by_their_first_characters(client: &Client, letters: &Value) {
    let id = |at: usize| letters["items"][at]["id"].as_str().unwrap();
    for at in [0, 1] {
        let shown = client.get(&format!("/dead-letters/{}", &id(at)[..13])).ok();
        assert_eq!(shown["id"], id(at));
    }
    client.get("/dead-letters/abc").problem(400, "BAD_REQUEST");
    client.get("/dead-letters/ffffffff").problem(404, "NOT_FOUND");
    client.get("/processes/ffffffff").problem(404, "NOT_FOUND");
    client.get("/inbox/ffffffff").problem(404, "NOT_FOUND");
    client.get("/outbox/ffffffff").problem(404, "NOT_FOUND");
    client.get("/explain/ffffffff").problem(404, "NOT_FOUND");
}

fn audited(client: &Client, discarded: &str) {
    let all = client.get("/audit?actor=ann").ok();
    let actions: Vec<&str> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions.len(), 6, "four edits, a retry, a discard: {all}");
    let page = client.get("/audit?limit=1").ok();
    assert_eq!(page["items"][0], all["items"][0]);
    let next = page["next"].as_str().unwrap();
    assert_eq!(
        client.get(&format!("/audit?before={next}&limit=1")).ok()["items"][0],
        all["items"][1]
    );
    let mut of_one = client.get(&format!("/audit?target={discarded}")).ok();
    let of_one = of_one["items"].as_array_mut().unwrap();
    assert_eq!((of_one.len(), &of_one[0]["reason"]), (1, &json!("a test")), "{of_one:?}");
    assert_eq!(client.get("/audit?actor=bob").ok()["items"], json!([]));
}

fn parked_keys_are_listed_released_and_skipped(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    fixture.refuses(400);
    fixture.place("o-1");
    fixture.place("o-2");
    for _ in 0..2 {
        fixture.command("TakePayment");
    }
    let parked = fixture.wait("two parked keys", || {
        let parked = client.get("/parked-keys").ok();
        (parked["items"].as_array().unwrap().len() == 2).then_some(parked)
    });
    let decide = |action: &str, key: &Value| {
        let body = with(
            json!({"origin": key["origin"], "destination": key["destination"], "key": key["msg_key"]}),
        );
        client.post(&format!("/parked-keys/{action}"), &body)
    };
    let (first, second) = (&parked["items"][0], &parked["items"][1]);
    assert_eq!((&first["origin"], &first["destination"]), (&json!("outbox"), &json!("payments")));
    let id = first["dead_letter_id"].as_str().unwrap();
    let shown = client.get(&format!("/dead-letters/{id}")).ok();
    assert_eq!(shown["parked_key"]["msg_key"], first["msg_key"]);
    assert_eq!(decide("skip", first).ok(), json!({"done": 1, "unchanged": 0, "refused": 0}));
    fixture.refuses(200);
    assert_eq!(decide("release", second).ok()["done"], 1);
    let sent = fixture.command("TakePayment");
    assert_eq!(json!(sent.process_id), second["msg_key"]);
    assert_eq!(client.get("/parked-keys?limit=500").ok()["items"], json!([]));
    decide("release", first).problem(404, "NOT_FOUND");
    let body = with(json!({"origin": "process", "key": "o-1"}));
    client.post("/parked-keys/skip", &body).problem(422, "INVALID");
    client.post("/parked-keys/skip", &who()).problem(422, "INVALID");
}

fn a_message_is_explained_from_its_start_to_its_command(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    fixture.place("o-1");
    let pay = fixture.command("TakePayment");
    let story = client.get("/explain/place-o-1").ok();
    let names =
        story["things"].as_array().unwrap().iter().map(|thing| thing["name"].as_str().unwrap());
    let names: Vec<&str> = names.collect();
    assert!(names.contains(&format!("process:{}", pay.process_id).as_str()), "{story}");
    assert!(names.iter().any(|name| name.starts_with("outbox:")), "{story}");
    assert!(client.get(&format!("/explain/process:{}", pay.process_id)).ok()["events"].is_array());
    // The first characters are enough; of an id that is not a UUID with a mark.
    let first = &pay.process_id.to_string()[..13];
    assert_eq!(
        client.get(&format!("/processes/{first}")).ok()["process_id"],
        json!(pay.process_id)
    );
    assert!(client.get(&format!("/explain/process:{first}")).ok()["events"].is_array());
    assert_eq!(client.get("/explain/place*").ok()["subject"], story["subject"]);
    client.get("/explain/place").problem(409, "AMBIGUOUS");
    assert_eq!(client.get("/inbox/place*").ok()["message_id"], "place-o-1");
    client.get("/inbox/place").problem(409, "AMBIGUOUS_ID");
    let outbox = client.get("/outbox").ok()["items"][0]["message_id"].clone();
    let first = &outbox.as_str().unwrap()[..23];
    assert_eq!(client.get(&format!("/outbox/{first}")).ok()["message_id"], outbox);
    fixture.place("o-2");
    let several = client.get("/inbox/place*").problem(409, "AMBIGUOUS_ID");
    let detail = several["detail"].as_str().unwrap();
    assert!(detail.contains("place-o-1") && detail.contains("place-o-2"), "{detail}");
    client.post("/inbox/place*/retry", &who()).problem(409, "AMBIGUOUS_ID");
    client.get("/explain/place*").problem(409, "AMBIGUOUS");
    client.get("/explain/a/b%2Fc").problem(404, "NOT_FOUND");
}

fn no_action_is_possible_without_actor_and_reason(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    fixture.place("o-1");
    fixture.command("TakePayment");
    let pause = "/processes/order%2Fo-1/pause";
    for body in [
        json!({}),
        json!({"actor": "ann"}),
        json!({"reason": "x"}),
        json!({"actor": "", "reason": "x"}),
        json!({"actor": "ann", "reason": " "}),
        json!({"actor": "ann", "reason": "x".repeat(2_001)}),
        json!({"actor": 5, "reason": "x"}),
        with(json!({"more": 1})),
        json!([]),
    ] {
        client.post(pause, &body).problem(422, "INVALID");
    }
    client.post_text(pause, "{\"actor\"").problem(400, "BAD_REQUEST");
    client.post_text(pause, "").problem(400, "BAD_REQUEST");
    let big = with(json!({"reason": "x".repeat(70_000)}));
    client.post(pause, &big).problem(413, "TOO_LARGE");
    client.get(pause).problem(405, "METHOD_NOT_ALLOWED");
    client.post("/processes", &who()).problem(405, "METHOD_NOT_ALLOWED");
    client.get("/nowhere").problem(404, "NOT_FOUND");
    let running = fixture.process("o-1");
    assert_eq!((&running["status"], &running["version"]), (&json!("RUNNING"), &json!(2)));
}

fn pages_of_other_sites_and_other_names_are_refused(fixture: OrderFixture) {
    let (fixture, client) = opened(fixture);
    fixture.place("o-1");
    fixture.command("TakePayment");
    let pause = "/processes/order%2Fo-1/pause";
    let with = |name: &'static str, value: &str| client.with(name, value).post(pause, &who());
    with("origin", "http://evil.example").problem(403, "CROSS_SITE");
    with("sec-fetch-site", "cross-site").problem(403, "CROSS_SITE");
    with("host", "evil.example").problem(403, "HOST_REFUSED");
    with("content-type", "text/plain").problem(415, "UNSUPPORTED_MEDIA_TYPE");
    client.with("host", "evil.example").get("/processes").problem(403, "HOST_REFUSED");
    assert_eq!(fixture.process("o-1")["status"], "RUNNING");
    let own = format!("http://{}", fixture.admin());
    with("origin", &own).ok();
}

fn configured_tokens_are_required(mut fixture: OrderFixture) {
    let settings = fixture.settings(LONG);
    fixture.settle(&settings.replace("[admin]\n", "[admin]\ntoken = \"s3cret-token\"\n"));
    fixture.start();
    fixture.place("o-1");
    fixture.command("TakePayment");
    let client = Client::at(fixture.admin());
    let pause = "/processes/order%2Fo-1/pause";
    for client in [
        client.clone(),
        client.with("authorization", "Bearer wrong"),
        client.with("authorization", "s3cret-token"),
    ] {
        for path in [
            "/processes",
            "/dead-letters",
            "/parked-keys",
            "/audit",
            "/explain/x",
            "/destinations",
            "/nowhere",
        ] {
            client.get(path).problem(401, "UNAUTHORIZED");
        }
        client.post(pause, &who()).problem(401, "UNAUTHORIZED");
        assert_eq!(client.page("/metrics").status, 401);
        assert_eq!((client.page("/healthz").status, client.page("/readyz").status), (200, 200));
    }
    let client = client.with("authorization", "Bearer s3cret-token").with("host", "relais.example");
    assert!(client.get("/destinations").ok()["payments"].is_object());
    assert_eq!(client.page("/metrics").status, 200);
    assert_eq!(client.post(pause, &who()).ok()["status"], "PAUSED");
    let said = fixture.stop();
    assert!(!said.err.contains("s3cret"), "{said:?}");
}

fn a_response_has_cache_and_content_type_headers(fixture: OrderFixture) {
    let (_shop, client) = opened(fixture);
    let Answer { head, .. } = client.get("/processes");
    assert!(head.contains("cache-control: no-store"), "{head}");
    let Answer { head, .. } = client.get("/nowhere");
    assert!(head.contains("content-type: application/problem+json"), "{head}");
}
