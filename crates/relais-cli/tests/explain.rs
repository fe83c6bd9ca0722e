//! `relais explain` with the real program: the story of a message and of a process.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Running, Seen, Site, Target, assert_said, post, postgres::PostgresSchema};

/// Time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Orders go to a target; a checkout is a process of two steps with it.
fn settings(store: &str, target: &Target) -> String {
    format!(
        "[store]\nurl = \"{store}\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\naggregate_id = \"payload:/orderId\"\n\
         [[route]]\non = \"OrderPlaced\"\ndestination = \"orders\"\n\
         [[process]]\ntype = \"checkout\"\nstart = \"CheckoutStarted\"\n\
         business_key = \"payload:/orderId\"\n\
         [[process.step]]\nname = \"payment\"\ndestination = \"orders\"\ncommand = \"TakePayment\"\n\
         completed = \"PaymentTaken\"\nfailed = \"PaymentDeclined\"\nerror = \"payload:/reason\"\n\
         [[process.step]]\nname = \"shipment\"\ndestination = \"orders\"\ncommand = \"ShipOrder\"\n\
         completed = \"OrderShipped\"\n\
         [[destination]]\nname = \"orders\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{}/in\"\n\
         [destination.retry]\nattempts = 2\nfirst = \"1ms\"\n",
        target.address
    )
}

fn send(running: &Running, headers: &[(&str, &str)], body: &Value) {
    let (status, answer) = post(running.address("hook"), "/hook", headers, &body.to_string());
    assert_eq!(status, 202, "{answer}");
}

fn header<'a>(seen: &'a Seen, name: &str) -> &'a str {
    let lines = seen.head.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    found.next().unwrap_or_else(|| panic!("{name}: {seen:?}")).1.trim()
}

/// Sends the reply of the target's service to a command.
fn reply(running: &Running, id: &str, command: &Seen, body: &Value) {
    let (process, command) = (header(command, "correlation-id"), header(command, "message-id"));
    let headers = [("message-id", id), ("correlation-id", process), ("causation-id", command)];
    send(running, &headers, body);
}

fn wait_until(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < PATIENCE, "it did not happen");
    }
}

fn events(story: &Value) -> Vec<String> {
    let list = story["events"].as_array().unwrap().iter();
    let name = |event: &Value| match event["entry"]["type"].as_str() {
        Some(step) => step.to_owned(),
        None => event["event"].as_str().unwrap().to_owned(),
    };
    list.map(name).collect()
}

#[test]
fn a_message_and_its_dead_letter_are_explained_on_sqlite() {
    let target = Target::start();
    explained(&Site::with(&settings("sqlite:relais.db", &target)), &target);
}

#[test]
fn a_message_and_its_dead_letter_are_explained_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    let target = Target::start();
    explained(&Site::with(&settings(&schema.url, &target)), &target);
}

fn explained(site: &Site, target: &Target) {
    let running = site.run();
    let status = || site.json(&["outbox", "list"])[0]["status"].clone();
    target.answers(400);
    send(&running, &[("message-id", "m-1")], &json!({ "type": "OrderPlaced", "orderId": "o-1" }));
    let letters = || site.json(&["dead-letter", "list"]);
    wait_until(|| letters() != json!([]));
    let letter = letters()[0]["id"].as_str().unwrap().to_owned();
    target.answers(200);
    let said = site.relais(&["dead-letter", "replay", &letter, "--actor", "ann", "--reason", "up"]);
    assert_eq!(said.code, 0, "{said:?}");
    wait_until(|| status() == "DISPATCHED");
    running.stop();

    let story = site.json(&["explain", "m-1"]);
    assert_eq!(
        events(&story),
        ["received", "processed", "created", "attempt", "dead_letter", "action", "dispatched"],
        "{story:#}"
    );
    let names: Vec<_> = story.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["cut", "events", "notes", "subject", "things"]);
    assert_eq!((&story["subject"], &story["cut"]), (&json!("inbox:1"), &json!(false)));
    let times: Vec<_> =
        story["events"].as_array().unwrap().iter().map(|e| e["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    // From the other end, and from the dead letter, it is the same story.
    for id in ["outbox:1", letter.as_str()] {
        assert_eq!(story["events"], site.json(&["explain", id])["events"], "{id}");
    }

    let said = site.relais(&["explain", "m-1"]);
    let shown = [
        "received from shop (hook): OrderPlaced m-1, key o-1",
        "attempt 1 failed permanently: HTTP_400",
        "dead-letter.retried by ann: up",
        "delivered to orders",
        "DISPATCHED",
    ];
    assert_said(&said, 0, &shown);
    let said = site.relais(&["explain", "m-1", "--color", "always"]);
    assert!(said.out.contains("\u{1b}["), "{said:?}");
    assert_said(&site.relais(&["explain", "1"]), 2, &["pass one of inbox:1, outbox:1"]);
    assert_said(&site.relais(&["explain", "missing"]), 1, &["has the ID missing"]);
}

#[test]
fn a_process_is_explained_with_its_dead_letter_on_sqlite() {
    let target = Target::start();
    process_explained(&Site::with(&settings("sqlite:relais.db", &target)), &target);
}

#[test]
fn a_process_is_explained_with_its_dead_letter_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    let target = Target::start();
    process_explained(&Site::with(&settings(&schema.url, &target)), &target);
}

fn process_explained(site: &Site, target: &Target) {
    let running = site.run();
    let started = json!({ "type": "CheckoutStarted", "orderId": "o-1" });
    send(&running, &[("message-id", "start")], &started);
    let declined = json!({ "type": "PaymentDeclined", "reason": "no money" });
    reply(&running, "r-1", &target.next(), &declined);
    let letters = || site.json(&["dead-letter", "list"]);
    wait_until(|| letters() != json!([]));
    let letter = letters()[0].clone();
    let id = letter["id"].as_str().unwrap();
    assert_eq!((&letter["origin"], &letter["msg_key"]), (&json!("process"), &json!("o-1")));
    let said = site.relais(&["dead-letter", "edit", id, "--payload", "{}", "--force"]);
    assert_said(&said, 1, &["cannot edit the data of a process"]);

    // By type and business key too; what stands still says why and what can be done.
    let shown = [
        "StepFailed payment (permanent): no money",
        "needs an operator: ",
        "no money; relais process retry ",
        "or relais process skip ",
    ];
    assert_said(&site.relais(&["explain", "checkout/o-1"]), 0, &shown);
    let list = site.relais(&["process", "list"]);
    assert_said(&list, 0, &["! FAILED", "! needs an operator", "relais process show"]);
    assert_said(&site.relais(&["explain", "checkout/missing"]), 1, &["TYPE/BUSINESS-KEY"]);
    let whole = events(&site.json(&["explain", "start"]));
    let at = |name: &str| whole.iter().position(|event| event == name);
    assert!(at("StepFailed") < at("dead_letter"), "causes before effects: {whole:?}");

    // Retrying it retries the step, through the process itself.
    let said = site.relais(&["dead-letter", "replay", id, "--reason", "paid cash"]);
    assert_said(&said, 0, &["retried 1"]);
    reply(&running, "r-2", &target.next(), &json!({ "type": "PaymentTaken" }));
    reply(&running, "r-3", &target.next(), &json!({ "type": "OrderShipped" }));
    let process = letter["message_id"].as_str().unwrap();
    let story = || site.json(&["explain", process]);
    let status = |story: &Value| {
        let things = story["things"].as_array().unwrap().iter();
        let own = things.filter(|thing| thing["name"] == format!("process:{process}"));
        own.map(|thing| thing["status"].clone()).collect::<Vec<_>>()
    };
    wait_until(|| status(&story()) == ["SUCCEEDED"]);
    running.stop();

    let whole = events(&site.json(&["explain", "start"]));
    let steps = [
        "ProcessStarted",
        "StepStarted",
        "StepFailed",
        "dead_letter",
        "StepStarted",
        "StepCompleted",
        "StepStarted",
        "StepCompleted",
        "ProcessCompleted",
    ];
    let shown: Vec<_> = whole.iter().filter(|event| steps.contains(&event.as_str())).collect();
    let wanted = |name: &str| shown.iter().filter(|event| **event == name).count();
    assert_eq!((wanted("StepStarted"), wanted("StepCompleted")), (3, 2), "{whole:?}");
    assert_eq!((wanted("StepFailed"), wanted("dead_letter")), (1, 1), "{whole:?}");
    assert_eq!(whole.iter().filter(|event| *event == "received").count(), 4, "{whole:?}");
    assert_eq!(whole.iter().filter(|event| *event == "dispatched").count(), 3, "{whole:?}");
    let by_process = events(&story());
    assert_eq!(by_process.len(), whole.len());
    let said = site.relais(&["explain", id]);
    assert_said(&said, 0, &["StepFailed payment (permanent): no money", "paid cash", "SUCCEEDED"]);
}
