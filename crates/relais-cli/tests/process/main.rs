//! Declared processes, with the real program: commands go out over HTTP, replies come in over HTTP, on
//! both stores.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[macro_use]
mod fixture;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use fixture::{LONG, OrderFixture, events};
use serde_json::{Value, json};

scenarios!(
    every_step_is_done_and_the_process_succeeds,
    a_failed_step_compensates_the_completed_ones,
    a_first_step_that_fails_leaves_nothing_to_undo,
    without_a_reply_the_step_times_out_is_tried_again_and_fails,
    a_retryable_failure_is_tried_again_and_then_succeeds,
    a_paused_process_receives_replies_and_continues_when_resumed,
    an_operator_retries_skips_and_compensates,
    an_operator_cancels,
    replies_that_come_twice_or_late_change_nothing_and_are_logged,
    an_unexpected_reply_and_a_second_start_are_dead_letters,
    a_template_with_a_missing_field_pauses_the_process_until_it_is_fixed,
    a_failed_compensation_waits_for_an_operator,
    a_newer_version_takes_new_orders_and_old_ones_finish_as_they_began,
    a_missing_definition_is_reported_and_loses_nothing,
);

fn every_step_is_done_and_the_process_succeeds(fixture: OrderFixture) {
    let fixture = fixture.open(LONG);
    fixture.place("o-1");
    let pay = fixture.command("TakePayment");
    assert_eq!(pay.payload, json!({"order": "o-1", "cents": 4200}));
    let running = fixture.process("o-1");
    assert_eq!(
        (&running["status"], &running["current_step"]),
        (&json!("RUNNING"), &json!("payment"))
    );
    assert_eq!(running["process_id"], pay.process_id.as_str());
    fixture.reply(&pay, "PaymentTaken", json!({"id": "p-7"}));
    let ship = fixture.command("Ship");
    assert_eq!(ship.payload, json!({"order": "o-1", "payment": "p-7"}));
    assert_eq!(ship.process_id, pay.process_id);
    fixture.reply(&ship, "Shipped", json!({"box": 3}));
    let done = fixture.until("o-1", "SUCCEEDED");
    assert_eq!(
        events(&done),
        [
            "ProcessStarted",
            "StepStarted",
            "StepCompleted",
            "StepStarted",
            "StepCompleted",
            "ProcessCompleted"
        ]
    );
    let data: Value = serde_json::from_str(done["data"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&data["input"]["cents"], &data["steps"]["shipment"]["box"]),
        (&json!(4200), &json!(3))
    );
    shows(&fixture, &pay.process_id);
    fixture.no_more_commands();
    assert_eq!(fixture.dead_letters(), [] as [Value; 0]);
}

/// Checks the commands that show a completed process.
fn shows(fixture: &OrderFixture, id: &str) {
    let site = &fixture.site;
    let list = |args: &[&str]| site.json(&[&["process", "list"], args].concat());
    let one = list(&["--status", "succeeded", "--type", "order", "--key", "o-1", "--since", "1h"]);
    assert_eq!((one.as_array().unwrap().len(), &one[0]["process_id"]), (1, &json!(id)), "{one}");
    assert_eq!(list(&["--status", "failed"]), json!([]));
    assert_eq!(list(&["--before", id]), json!([]));
    let log = site.json(&["process", "log", id, "--limit", "2"]);
    let types: Vec<&Value> = log.as_array().unwrap().iter().map(|entry| &entry["type"]).collect();
    assert_eq!(types, ["ProcessCompleted", "StepCompleted"]);
    let rest = site.json(&["process", "log", "order/o-1", "--before", &log[1]["seq"].to_string()]);
    assert_eq!(rest.as_array().unwrap().len(), 4, "{rest}");

    let said = site.relais(&["process", "list"]).out;
    assert!(said.starts_with("ID") && said.contains(id) && said.contains("SUCCEEDED"), "{said}");
    let said = site.relais(&["process", "show", id]).out;
    for text in ["status         SUCCEEDED", "business_key   o-1", "\"cents\":4200", "SEQ", "Ship"]
    {
        assert!(said.contains(text), "{text}: {said}");
    }
    let said = site.relais(&["process", "show", "order/missing"]);
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
    assert!(said.err.contains("no process of type `order` has the business key `missing`"));
    let said = site.relais(&["process", "diagram", "order"]).out;
    assert!(said.starts_with("stateDiagram-v2") && said.contains("payment"), "{said}");
    let said = site.relais(&["process", "diagram", "order", "--definition", "9"]);
    assert!(
        said.code == 1
            && said.err.contains("`order` version 9; the configuration has order version 1"),
        "{said:?}"
    );
}

fn a_failed_step_compensates_the_completed_ones(fixture: OrderFixture) {
    let fixture = fixture.open(LONG);
    fixture.place("o-1");
    fixture.reply(&fixture.command("TakePayment"), "PaymentTaken", json!({"id": "p-7"}));
    fixture.reply(&fixture.command("Ship"), "NotShippable", json!({"why": "too heavy"}));
    let refund = fixture.command("RefundPayment");
    assert_eq!(refund.payload, json!({"payment": "p-7"}));
    let undoing = fixture.process("o-1");
    assert_eq!(undoing["status"], "COMPENSATING", "{undoing}");
    fixture.reply(&refund, "PaymentRefunded", json!({}));
    let undone = fixture.until("o-1", "COMPENSATED");
    let failed =
        undone["log"].as_array().unwrap().iter().find(|entry| entry["type"] == "StepFailed");
    assert_eq!(failed.unwrap()["error"], "too heavy", "{undone}");
    assert!(events(&undone).contains(&"CompensationCompleted"), "{undone}");
    fixture.no_more_commands();
}

fn a_first_step_that_fails_leaves_nothing_to_undo(fixture: OrderFixture) {
    let fixture = fixture.open(LONG);
    fixture.place("o-1");
    fixture.reply(&fixture.command("TakePayment"), "PaymentDeclined", json!({"why": "no money"}));
    let failed = fixture.until("o-1", "FAILED");
    assert_eq!(*events(&failed).last().unwrap(), "ProcessFailed");
    let dead = fixture.dead_letters();
    assert_eq!(
        (dead.len(), &dead[0]["origin"], &dead[0]["msg_key"]),
        (1, &json!("process"), &json!("o-1"))
    );
    assert!(dead[0]["error_message"].as_str().unwrap().contains("no money"), "{dead:?}");
    // Retrying it retries the step.
    let id = dead[0]["id"].as_str().unwrap();
    let said =
        fixture.site.relais(&["dead-letter", "replay", id, "--reason", "money came", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    fixture.reply(&fixture.command("TakePayment"), "PaymentTaken", json!({"id": "p-7"}));
    fixture.reply(&fixture.command("Ship"), "Shipped", json!({}));
    fixture.until("o-1", "SUCCEEDED");
    assert_eq!(fixture.dead_letters(), [] as [Value; 0]);
}

fn without_a_reply_the_step_times_out_is_tried_again_and_fails(fixture: OrderFixture) {
    let fixture = fixture.open("300ms");
    fixture.place("o-1");
    let (first, second) = (fixture.command("TakePayment"), fixture.command("TakePayment"));
    assert_ne!(first.message_id, second.message_id, "each attempt is a message of its own");
    assert_eq!(first.process_id, second.process_id);
    let failed = fixture.until("o-1", "FAILED");
    let timed_out = events(&failed).iter().filter(|event| **event == "StepTimedOut").count();
    assert_eq!(timed_out, 2, "{failed}");
    assert_eq!(fixture.dead_letters()[0]["failed_status"], "TIMED_OUT");
    // It succeeded late: the effect of a step that was given up is compensated.
    fixture.reply(&second, "PaymentTaken", json!({"id": "p-7"}));
    let refund = fixture.command("RefundPayment");
    assert_eq!(refund.payload, json!({"payment": "p-7"}));
    fixture.reply(&refund, "PaymentRefunded", json!({}));
    fixture.until("o-1", "COMPENSATED");
    fixture.no_more_commands();
}

fn a_retryable_failure_is_tried_again_and_then_succeeds(fixture: OrderFixture) {
    let fixture = fixture.open(LONG);
    fixture.place("o-1");
    let first = fixture.command("TakePayment");
    fixture.reply(&first, "PaymentBusy", json!({"why": "later"}));
    let second = fixture.command("TakePayment");
    assert_ne!(first.message_id, second.message_id);
    let sent = fixture.site.json(&["outbox", "list", "--type", "TakePayment"]);
    let key = |index: usize| sent[index]["headers"]["idempotency-key"].as_str().unwrap();
    assert_eq!(key(0), format!("{}/payment", first.process_id), "{sent}");
    assert_eq!(key(0), key(1), "one effect, however often it is sent");
    assert_eq!(fixture.process("o-1")["retries"], 1);
    fixture.reply(&second, "PaymentTaken", json!({"id": "p-7"}));
    fixture.reply(&fixture.command("Ship"), "Shipped", json!({}));
    let done = fixture.until("o-1", "SUCCEEDED");
    assert!(events(&done).contains(&"StepFailed"), "{done}");
}

fn a_paused_process_receives_replies_and_continues_when_resumed(fixture: OrderFixture) {
    let fixture = fixture.open(LONG);
    fixture.place("o-1");
    let pay = fixture.command("TakePayment");
    let paused = fixture.act("pause", "o-1");
    assert_eq!(paused["changed"][0]["status"], "PAUSED", "{paused}");
    fixture.reply(&pay, "PaymentTaken", json!({"id": "p-7"}));
    let held = fixture.until_logged("o-1", |entry| entry["type"] == "StepCompleted");
    assert_eq!(held["status"], "PAUSED", "{held}");
    fixture.no_more_commands();
    let again = fixture.site.relais(&["process", "pause", "order/o-1", "--reason", "once more"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.out.contains("order o-1 is unchanged: "), "{again:?}");

    assert_eq!(
        fixture.site.relais(&["process", "resume", "order/o-1"]).code,
        2,
        "without a reason"
    );
    let all = ["process", "resume", "--all", "--status", "paused", "--type", "order"];
    let said = fixture.site.relais(&[&all[..], &["--reason", "enough"]].concat());
    assert!(said.code == 2 && said.err.contains("--yes"), "{said:?}");
    let said = fixture.site.relais(&[&all[..], &["--dry-run"]].concat());
    assert!(said.out.contains("would resume 1 process"), "{said:?}");
    let said = fixture.site.relais(&[&all[..], &["--reason", "enough", "--yes"]].concat());
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "order o-1: resume done; now RUNNING, step shipment\n"),
        "{said:?}"
    );
    fixture.reply(&fixture.command("Ship"), "Shipped", json!({}));
    let done = fixture.until("o-1", "SUCCEEDED");
    let of = |name: &str| {
        let log = done["log"].as_array().unwrap();
        log.iter().find(|entry| entry["type"] == name).unwrap_or_else(|| panic!("{done}")).clone()
    };
    assert_eq!(
        (&of("ProcessPaused")["pausedBy"], &of("ProcessPaused")["reason"]),
        (&json!("ann"), &json!("a test"))
    );
    assert_eq!(of("ProcessResumed")["reason"], "enough");
}

fn an_operator_retries_skips_and_compensates(fixture: OrderFixture) {
    let fixture = fixture.open(LONG);
    fixture.place("o-1");
    let first = fixture.command("TakePayment");
    let retried = fixture.act("retry", "o-1");
    assert_eq!(retried["changed"][0]["status"], "RUNNING", "{retried}");
    let second = fixture.command("TakePayment");
    assert_ne!(first.message_id, second.message_id);
    fixture.reply(&second, "PaymentTaken", json!({"id": "p-7"}));
    fixture.command("Ship");
    let skipped = fixture.act("skip", "o-1");
    assert_eq!(skipped["changed"][0]["status"], "SUCCEEDED", "{skipped}");
    let undoing = fixture.act("compensate", "o-1");
    assert_eq!(undoing["changed"][0]["status"], "COMPENSATING", "{undoing}");
    fixture.reply(&fixture.command("RefundPayment"), "PaymentRefunded", json!({}));
    let undone = fixture.until("o-1", "COMPENSATED");
    let by_ann = undone["log"].as_array().unwrap().iter().filter(|entry| entry["actor"] == "ann");
    assert!(by_ann.clone().all(|entry| entry["because"] == "a test"), "{undone}");
    assert!(by_ann.count() >= 3, "{undone}");
    let id = undone["process_id"].as_str().unwrap();
    let audit = fixture.site.json(&["audit", "list", "--target", id]);
    let lines = audit.as_array().unwrap().iter();
    let actions: Vec<_> = lines.map(|line| (&line["action"], &line["actor"])).collect();
    let ann = json!("ann");
    let wanted = ["process.compensated", "process.skipped", "process.retried"].map(|a| json!(a));
    assert_eq!(actions, wanted.each_ref().map(|action| (action, &ann)), "{audit}");
}

fn an_operator_cancels(fixture: OrderFixture) {
    let fixture = fixture.open(LONG);
    for order in ["o-1", "o-2"] {
        fixture.place(order);
        fixture.command("TakePayment");
    }
    let cancelled = fixture.act("cancel", "o-1");
    assert_eq!(cancelled["changed"][0]["status"], "FAILED", "{cancelled}");
    assert_eq!(fixture.dead_letters(), [] as [Value; 0], "the operator has decided");
    let said =
        fixture.site.relais(&["process", "cancel", "order/o-1", "order/o-2", "--reason", "both"]);
    assert_eq!(said.code, 1, "one of them could not: {said:?}");
    assert!(
        said.out.contains("order o-1 is unchanged")
            && said.out.contains("order o-2: cancel done; now FAILED")
    );
    fixture.no_more_commands();
}

fn replies_that_come_twice_or_late_change_nothing_and_are_logged(fixture: OrderFixture) {
    let fixture = fixture.open(LONG);
    fixture.place("o-1");
    let pay = fixture.command("TakePayment");
    assert_eq!(fixture.reply(&pay, "PaymentTaken", json!({"id": "p-7"})), "stored");
    let ship = fixture.command("Ship");
    assert_eq!(fixture.reply(&pay, "PaymentTaken", json!({"id": "p-7"})), "duplicate");
    // The same news under another id: the inbox cannot know, the process does.
    let twice = [("correlation-id", pay.process_id.as_str())];
    fixture.send("again", &twice, &json!({"type": "PaymentTaken", "id": "p-8"}));
    let logged = |entry: &Value| entry["message_id"] == "again" && entry["note"].is_string();
    let process = fixture.until_logged("o-1", logged);
    assert_eq!(
        (&process["status"], &process["current_step"]),
        (&json!("RUNNING"), &json!("shipment"))
    );
    assert!(process["data"].as_str().unwrap().contains("p-7"), "{process}");
    fixture.reply(&ship, "Shipped", json!({}));
    fixture.until("o-1", "SUCCEEDED");
    fixture.send("late", &twice, &json!({"type": "NotShippable", "why": "oh"}));
    let done = fixture.until_logged("o-1", |entry| entry["message_id"] == "late");
    assert_eq!(done["status"], "SUCCEEDED", "{done}");
    fixture.no_more_commands();
    assert_eq!(fixture.dead_letters(), [] as [Value; 0]);
    assert_eq!(fixture.site.json(&["inbox", "show", "late"])["status"], "PROCESSED");
}

fn an_unexpected_reply_and_a_second_start_are_dead_letters(fixture: OrderFixture) {
    let fixture = fixture.open(LONG);
    fixture.place("o-1");
    let pay = fixture.command("TakePayment");
    let missing = uuid::Uuid::new_v4().to_string();
    for (id, process) in [("lost", missing.as_str()), ("odd", "not-an-id")] {
        let headers = [("correlation-id", process)];
        fixture.send(id, &headers, &json!({"type": "PaymentTaken", "id": "p"}));
    }
    fixture.send("none", &[], &json!({"type": "PaymentTaken", "id": "p"}));
    fixture.send("second", &[], &json!({"type": "OrderPlaced", "orderId": "o-1", "cents": 1}));
    let code = |letters: &[Value], id: &str| {
        let found = letters.iter().find(|letter| letter["message_id"] == id);
        found.map(|letter| letter["error_class"].clone())
    };
    let letters = fixture.wait("four dead letters", || {
        let letters = fixture.dead_letters();
        (letters.len() == 4).then_some(letters)
    });
    for id in ["lost", "odd", "none"] {
        assert_eq!(code(&letters, id), Some(json!("PROCESS_UNKNOWN")), "{id}: {letters:?}");
    }
    assert_eq!(code(&letters, "second"), Some(json!("BUSINESS_KEY_TAKEN")), "{letters:?}");
    // The process they were not for is as it was.
    let untouched = fixture.process("o-1");
    assert_eq!(events(&untouched), ["ProcessStarted", "StepStarted"]);
    fixture.reply(&pay, "PaymentTaken", json!({"id": "p-7"}));
    fixture.reply(&fixture.command("Ship"), "Shipped", json!({}));
    fixture.until("o-1", "SUCCEEDED");
}

fn a_template_with_a_missing_field_pauses_the_process_until_it_is_fixed(mut fixture: OrderFixture) {
    let good = fixture.settings(LONG);
    fixture.settle(&good.replace("{{/input/cents}}", "{{/input/amount/cents}}"));
    fixture.start();
    fixture.place("o-1");
    let paused = fixture.until("o-1", "PAUSED");
    let letter = &fixture.dead_letters()[0];
    assert_eq!(
        (&letter["origin"], &letter["failed_status"]),
        (&json!("process"), &json!("PAUSED"))
    );
    assert!(letter["error_message"].as_str().unwrap().contains("/input/amount/cents"), "{letter}");
    let reason = paused["log"].as_array().unwrap().last().unwrap();
    assert_eq!(reason["pausedBy"], "relais", "{paused}");
    fixture.no_more_commands();

    // Resuming without a fix would only pause it again: refused, and nothing has changed.
    let again = fixture.site.relais(&["process", "resume", "order/o-1", "--reason", "a test"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(format!("{again:?}").contains("it would be paused again"), "{again:?}");
    assert_eq!(fixture.process("o-1")["version"], paused["version"]);
    fixture.stop();
    fixture.settle(&good);
    fixture.start();
    let resumed = fixture.act("resume", "o-1");
    assert_eq!(resumed["changed"][0]["status"], "RUNNING", "{resumed}");
    assert_eq!(fixture.dead_letters(), [] as [Value; 0]);
    let pay = fixture.command("TakePayment");
    assert_eq!(pay.payload["cents"], 4200);
    // Later steps can miss something too: a reply without what the next command needs.
    fixture.reply(&pay, "PaymentTaken", json!({}));
    fixture.until("o-1", "PAUSED");
    let skip = fixture.site.relais(&["process", "skip", "order/o-1", "--reason", "a test"]);
    let next = "now PAUSED, step shipment; it continues after `relais process resume";
    assert!(skip.code == 0 && skip.out.contains(next), "{skip:?}");
}

fn a_failed_compensation_waits_for_an_operator(fixture: OrderFixture) {
    let fixture = fixture.open(LONG);
    fixture.place("o-1");
    fixture.reply(&fixture.command("TakePayment"), "PaymentTaken", json!({"id": "p-7"}));
    fixture.reply(&fixture.command("Ship"), "NotShippable", json!({"why": "too heavy"}));
    fixture.reply(&fixture.command("RefundPayment"), "RefundBusy", json!({"why": "later"}));
    fixture.reply(
        &fixture.command("RefundPayment"),
        "RefundRefused",
        json!({"why": "closed account"}),
    );
    let stuck = fixture.until_logged("o-1", |entry| entry["type"] == "CompensationFailed");
    assert_eq!(stuck["status"], "COMPENSATING", "never reported as done: {stuck}");
    let letter = fixture.wait("a dead letter", || fixture.dead_letters().first().cloned());
    assert_eq!(letter["failed_status"], "COMPENSATION_FAILED", "{letter}");
    fixture.act("retry", "o-1");
    fixture.reply(&fixture.command("RefundPayment"), "PaymentRefunded", json!({}));
    fixture.until("o-1", "COMPENSATED");
    assert_eq!(fixture.dead_letters(), [] as [Value; 0]);
}

fn a_newer_version_takes_new_orders_and_old_ones_finish_as_they_began(mut fixture: OrderFixture) {
    let old = fixture.settings(LONG);
    fixture.settle(&old);
    fixture.start();
    fixture.place("o-1");
    let pay = fixture.command("TakePayment");
    fixture.stop();
    let process = old.split("[[process]]").nth(1).unwrap().split("[[destination]]").next().unwrap();
    let newer = process
        .replace("type = \"order\"", "type = \"order\"\nversion = 2")
        .replace("command = \"Ship\"", "command = \"ShipFast\"");
    fixture.settle(&format!("{old}\n[[process]]{newer}"));
    fixture.start();
    fixture.place("o-2");
    let newer_pay = fixture.command("TakePayment");
    fixture.reply(&pay, "PaymentTaken", json!({"id": "p-1"}));
    fixture.reply(&fixture.command("Ship"), "Shipped", json!({}));
    fixture.until("o-1", "SUCCEEDED");
    fixture.reply(&newer_pay, "PaymentTaken", json!({"id": "p-2"}));
    fixture.reply(&fixture.command("ShipFast"), "Shipped", json!({}));
    let done = fixture.until("o-2", "SUCCEEDED");
    assert_eq!(
        (&done["definition"], &fixture.process("o-1")["definition"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(fixture.dead_letters(), [] as [Value; 0]);
}

fn a_missing_definition_is_reported_and_loses_nothing(mut fixture: OrderFixture) {
    let good = fixture.settings(LONG);
    fixture.settle(&good);
    fixture.start();
    fixture.place("o-1");
    let pay = fixture.command("TakePayment");
    fixture.stop();
    // The step it stands on has another name now; the reply cannot be for it.
    fixture.settle(&good.replace("payment", "paying").replace("payings", "payments"));
    let check = fixture.site.relais(&["check"]);
    let lack = "`order` version 1 has no step `payment`; 1 process waits for it";
    assert!(check.code == 0 && check.out.contains(lack), "{check:?}");
    fixture.start();
    fixture.reply(&pay, "PaymentTaken", json!({"id": "p-7"}));
    let letter = fixture.wait("a dead letter", || fixture.dead_letters().first().cloned());
    assert_eq!(letter["error_class"], "PROCESS_DEFINITION", "{letter}");
    let said = fixture.site.relais(&["process", "retry", "order/o-1", "--reason", "try"]);
    assert!(said.code == 1 && said.out.contains("order o-1 is unchanged"), "{said:?}");
    let said = fixture.stop();
    assert!(said.err.contains(lack), "{said:?}");
    fixture.settle(&good);
    fixture.start();
    let id = letter["id"].as_str().unwrap();
    let said = fixture.site.relais(&["dead-letter", "replay", id, "--reason", "back", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    fixture.reply(&fixture.command("Ship"), "Shipped", json!({}));
    fixture.until("o-1", "SUCCEEDED");
}
