//! Declared processes, with the real program: commands go out over HTTP, replies come in over HTTP, on
//! both stores.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[macro_use]
mod shop;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use serde_json::{Value, json};
use shop::{LONG, Shop, events};

scenarios!(
    every_step_is_done_and_the_process_succeeds,
    a_step_that_fails_for_good_undoes_what_was_done,
    a_first_step_that_fails_leaves_nothing_to_undo,
    without_a_reply_the_step_times_out_is_tried_again_and_fails,
    a_retryable_failure_is_tried_again_and_then_succeeds,
    a_paused_process_takes_replies_in_and_goes_on_when_resumed,
    a_person_retries_skips_and_undoes,
    a_person_cancels,
    replies_that_come_twice_or_late_change_nothing_and_are_logged,
    a_reply_for_nobody_and_a_second_start_are_dead_letters,
    a_template_that_names_a_missing_field_pauses_until_it_is_mended,
    a_failed_compensation_waits_for_a_person,
    a_newer_version_takes_new_orders_and_old_ones_finish_as_they_began,
    a_definition_that_is_gone_is_said_and_loses_nothing,
);

fn every_step_is_done_and_the_process_succeeds(shop: Shop) {
    let shop = shop.open(LONG);
    shop.place("o-1");
    let pay = shop.command("TakePayment");
    assert_eq!(pay.payload, json!({"order": "o-1", "cents": 4200}));
    let running = shop.process("o-1");
    assert_eq!(
        (&running["status"], &running["current_step"]),
        (&json!("RUNNING"), &json!("payment"))
    );
    assert_eq!(running["process_id"], pay.process_id.as_str());
    shop.reply(&pay, "PaymentTaken", json!({"id": "p-7"}));
    let ship = shop.command("Ship");
    assert_eq!(ship.payload, json!({"order": "o-1", "payment": "p-7"}));
    assert_eq!(ship.process_id, pay.process_id);
    shop.reply(&ship, "Shipped", json!({"box": 3}));
    let done = shop.until("o-1", "SUCCEEDED");
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
    looks(&shop, &pay.process_id);
    shop.no_more_commands();
    assert_eq!(shop.dead_letters(), [] as [Value; 0]);
}

/// What the other ways to look say of a process that is done.
fn looks(shop: &Shop, id: &str) {
    let site = &shop.site;
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
    let said = site.relais(&["process", "show", "order/nobody"]);
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
    assert!(said.err.contains("no process of type `order` has the business key `nobody`"));
    let said = site.relais(&["process", "diagram", "order"]).out;
    assert!(said.starts_with("stateDiagram-v2") && said.contains("payment"), "{said}");
    let said = site.relais(&["process", "diagram", "order", "--definition", "9"]);
    assert!(
        said.code == 1
            && said.err.contains("`order` version 9; the settings declare order version 1"),
        "{said:?}"
    );
}

fn a_step_that_fails_for_good_undoes_what_was_done(shop: Shop) {
    let shop = shop.open(LONG);
    shop.place("o-1");
    shop.reply(&shop.command("TakePayment"), "PaymentTaken", json!({"id": "p-7"}));
    shop.reply(&shop.command("Ship"), "NotShippable", json!({"why": "too heavy"}));
    let refund = shop.command("RefundPayment");
    assert_eq!(refund.payload, json!({"payment": "p-7"}));
    let undoing = shop.process("o-1");
    assert_eq!(undoing["status"], "COMPENSATING", "{undoing}");
    shop.reply(&refund, "PaymentRefunded", json!({}));
    let undone = shop.until("o-1", "COMPENSATED");
    let failed =
        undone["log"].as_array().unwrap().iter().find(|entry| entry["type"] == "StepFailed");
    assert_eq!(failed.unwrap()["error"], "too heavy", "{undone}");
    assert!(events(&undone).contains(&"CompensationCompleted"), "{undone}");
    shop.no_more_commands();
}

fn a_first_step_that_fails_leaves_nothing_to_undo(shop: Shop) {
    let shop = shop.open(LONG);
    shop.place("o-1");
    shop.reply(&shop.command("TakePayment"), "PaymentDeclined", json!({"why": "no money"}));
    let failed = shop.until("o-1", "FAILED");
    assert_eq!(*events(&failed).last().unwrap(), "ProcessFailed");
    let dead = shop.dead_letters();
    assert_eq!(
        (dead.len(), &dead[0]["origin"], &dead[0]["msg_key"]),
        (1, &json!("process"), &json!("o-1"))
    );
    assert!(dead[0]["error_message"].as_str().unwrap().contains("no money"), "{dead:?}");
    // Replaying it is trying the step again.
    let id = dead[0]["id"].as_str().unwrap();
    let said = shop.site.relais(&["dead-letter", "replay", id, "--reason", "money came", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    shop.reply(&shop.command("TakePayment"), "PaymentTaken", json!({"id": "p-7"}));
    shop.reply(&shop.command("Ship"), "Shipped", json!({}));
    shop.until("o-1", "SUCCEEDED");
    assert_eq!(shop.dead_letters(), [] as [Value; 0]);
}

fn without_a_reply_the_step_times_out_is_tried_again_and_fails(shop: Shop) {
    let shop = shop.open("300ms");
    shop.place("o-1");
    let (first, second) = (shop.command("TakePayment"), shop.command("TakePayment"));
    assert_ne!(first.message_id, second.message_id, "each attempt is a message of its own");
    assert_eq!(first.process_id, second.process_id);
    let failed = shop.until("o-1", "FAILED");
    let timed_out = events(&failed).iter().filter(|event| **event == "StepTimedOut").count();
    assert_eq!(timed_out, 2, "{failed}");
    assert_eq!(shop.dead_letters()[0]["failed_status"], "TIMED_OUT");
    // It was done after all: what nobody waits for any more is undone.
    shop.reply(&second, "PaymentTaken", json!({"id": "p-7"}));
    let refund = shop.command("RefundPayment");
    assert_eq!(refund.payload, json!({"payment": "p-7"}));
    shop.reply(&refund, "PaymentRefunded", json!({}));
    shop.until("o-1", "COMPENSATED");
    shop.no_more_commands();
}

fn a_retryable_failure_is_tried_again_and_then_succeeds(shop: Shop) {
    let shop = shop.open(LONG);
    shop.place("o-1");
    let first = shop.command("TakePayment");
    shop.reply(&first, "PaymentBusy", json!({"why": "later"}));
    let second = shop.command("TakePayment");
    assert_ne!(first.message_id, second.message_id);
    let sent = shop.site.json(&["outbox", "list", "--type", "TakePayment"]);
    let key = |index: usize| sent[index]["headers"]["idempotency-key"].as_str().unwrap();
    assert_eq!(key(0), format!("{}/payment", first.process_id), "{sent}");
    assert_eq!(key(0), key(1), "one effect, however often it is sent");
    assert_eq!(shop.process("o-1")["retries"], 1);
    shop.reply(&second, "PaymentTaken", json!({"id": "p-7"}));
    shop.reply(&shop.command("Ship"), "Shipped", json!({}));
    let done = shop.until("o-1", "SUCCEEDED");
    assert!(events(&done).contains(&"StepFailed"), "{done}");
}

fn a_paused_process_takes_replies_in_and_goes_on_when_resumed(shop: Shop) {
    let shop = shop.open(LONG);
    shop.place("o-1");
    let pay = shop.command("TakePayment");
    let paused = shop.act("pause", "o-1");
    assert_eq!(paused["changed"][0]["status"], "PAUSED", "{paused}");
    shop.reply(&pay, "PaymentTaken", json!({"id": "p-7"}));
    let held = shop.until_logged("o-1", |entry| entry["type"] == "StepCompleted");
    assert_eq!(held["status"], "PAUSED", "{held}");
    shop.no_more_commands();
    let again = shop.site.relais(&["process", "pause", "order/o-1", "--reason", "once more"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.out.contains("order o-1 is unchanged: "), "{again:?}");

    assert_eq!(shop.site.relais(&["process", "resume", "order/o-1"]).code, 2, "without a reason");
    let all = ["process", "resume", "--all", "--status", "paused", "--type", "order"];
    let said = shop.site.relais(&[&all[..], &["--reason", "enough"]].concat());
    assert!(said.code == 2 && said.err.contains("--yes"), "{said:?}");
    let said = shop.site.relais(&[&all[..], &["--dry-run"]].concat());
    assert!(said.out.contains("would resume 1 process"), "{said:?}");
    let said = shop.site.relais(&[&all[..], &["--reason", "enough", "--yes"]].concat());
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "order o-1 is RUNNING, step shipment\n"),
        "{said:?}"
    );
    shop.reply(&shop.command("Ship"), "Shipped", json!({}));
    let done = shop.until("o-1", "SUCCEEDED");
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

fn a_person_retries_skips_and_undoes(shop: Shop) {
    let shop = shop.open(LONG);
    shop.place("o-1");
    let first = shop.command("TakePayment");
    let retried = shop.act("retry", "o-1");
    assert_eq!(retried["changed"][0]["status"], "RUNNING", "{retried}");
    let second = shop.command("TakePayment");
    assert_ne!(first.message_id, second.message_id);
    shop.reply(&second, "PaymentTaken", json!({"id": "p-7"}));
    shop.command("Ship");
    let skipped = shop.act("skip", "o-1");
    assert_eq!(skipped["changed"][0]["status"], "SUCCEEDED", "{skipped}");
    let undoing = shop.act("compensate", "o-1");
    assert_eq!(undoing["changed"][0]["status"], "COMPENSATING", "{undoing}");
    shop.reply(&shop.command("RefundPayment"), "PaymentRefunded", json!({}));
    let undone = shop.until("o-1", "COMPENSATED");
    let by_ann = undone["log"].as_array().unwrap().iter().filter(|entry| entry["actor"] == "ann");
    assert!(by_ann.clone().all(|entry| entry["because"] == "a test"), "{undone}");
    assert!(by_ann.count() >= 3, "{undone}");
    let id = undone["process_id"].as_str().unwrap();
    let audit = shop.site.json(&["audit", "list", "--target", id]);
    let lines = audit.as_array().unwrap().iter();
    let actions: Vec<_> = lines.map(|line| (&line["action"], &line["actor"])).collect();
    let ann = json!("ann");
    let wanted = ["process.compensated", "process.skipped", "process.retried"].map(|a| json!(a));
    assert_eq!(actions, wanted.each_ref().map(|action| (action, &ann)), "{audit}");
}

fn a_person_cancels(shop: Shop) {
    let shop = shop.open(LONG);
    for order in ["o-1", "o-2"] {
        shop.place(order);
        shop.command("TakePayment");
    }
    let cancelled = shop.act("cancel", "o-1");
    assert_eq!(cancelled["changed"][0]["status"], "FAILED", "{cancelled}");
    assert_eq!(shop.dead_letters(), [] as [Value; 0], "a person knows");
    let said =
        shop.site.relais(&["process", "cancel", "order/o-1", "order/o-2", "--reason", "both"]);
    assert_eq!(said.code, 1, "one of them could not: {said:?}");
    assert!(
        said.out.contains("order o-1 is unchanged") && said.out.contains("order o-2 is FAILED")
    );
    shop.no_more_commands();
}

fn replies_that_come_twice_or_late_change_nothing_and_are_logged(shop: Shop) {
    let shop = shop.open(LONG);
    shop.place("o-1");
    let pay = shop.command("TakePayment");
    assert_eq!(shop.reply(&pay, "PaymentTaken", json!({"id": "p-7"})), "stored");
    let ship = shop.command("Ship");
    assert_eq!(shop.reply(&pay, "PaymentTaken", json!({"id": "p-7"})), "duplicate");
    // The same news under another id: the inbox cannot know, the process does.
    let twice = [("correlation-id", pay.process_id.as_str())];
    shop.send("again", &twice, &json!({"type": "PaymentTaken", "id": "p-8"}));
    let logged = |entry: &Value| entry["message_id"] == "again" && entry["note"].is_string();
    let process = shop.until_logged("o-1", logged);
    assert_eq!(
        (&process["status"], &process["current_step"]),
        (&json!("RUNNING"), &json!("shipment"))
    );
    assert!(process["data"].as_str().unwrap().contains("p-7"), "{process}");
    shop.reply(&ship, "Shipped", json!({}));
    shop.until("o-1", "SUCCEEDED");
    shop.send("late", &twice, &json!({"type": "NotShippable", "why": "oh"}));
    let done = shop.until_logged("o-1", |entry| entry["message_id"] == "late");
    assert_eq!(done["status"], "SUCCEEDED", "{done}");
    shop.no_more_commands();
    assert_eq!(shop.dead_letters(), [] as [Value; 0]);
    assert_eq!(shop.site.json(&["inbox", "show", "late"])["status"], "PROCESSED");
}

fn a_reply_for_nobody_and_a_second_start_are_dead_letters(shop: Shop) {
    let shop = shop.open(LONG);
    shop.place("o-1");
    let pay = shop.command("TakePayment");
    let nobody = uuid::Uuid::new_v4().to_string();
    for (id, process) in [("lost", nobody.as_str()), ("odd", "not-an-id")] {
        let headers = [("correlation-id", process)];
        shop.send(id, &headers, &json!({"type": "PaymentTaken", "id": "p"}));
    }
    shop.send("none", &[], &json!({"type": "PaymentTaken", "id": "p"}));
    shop.send("second", &[], &json!({"type": "OrderPlaced", "orderId": "o-1", "cents": 1}));
    let code = |letters: &[Value], id: &str| {
        let found = letters.iter().find(|letter| letter["message_id"] == id);
        found.map(|letter| letter["error_class"].clone())
    };
    let letters = shop.wait("four dead letters", || {
        let letters = shop.dead_letters();
        (letters.len() == 4).then_some(letters)
    });
    for id in ["lost", "odd", "none"] {
        assert_eq!(code(&letters, id), Some(json!("PROCESS_UNKNOWN")), "{id}: {letters:?}");
    }
    assert_eq!(code(&letters, "second"), Some(json!("BUSINESS_KEY_TAKEN")), "{letters:?}");
    // The process they were not for is as it was.
    let untouched = shop.process("o-1");
    assert_eq!(events(&untouched), ["ProcessStarted", "StepStarted"]);
    shop.reply(&pay, "PaymentTaken", json!({"id": "p-7"}));
    shop.reply(&shop.command("Ship"), "Shipped", json!({}));
    shop.until("o-1", "SUCCEEDED");
}

fn a_template_that_names_a_missing_field_pauses_until_it_is_mended(mut shop: Shop) {
    let good = shop.settings(LONG);
    shop.settle(&good.replace("{{/input/cents}}", "{{/input/amount/cents}}"));
    shop.start();
    shop.place("o-1");
    let paused = shop.until("o-1", "PAUSED");
    let letter = &shop.dead_letters()[0];
    assert_eq!(
        (&letter["origin"], &letter["failed_status"]),
        (&json!("process"), &json!("PAUSED"))
    );
    assert!(letter["error_message"].as_str().unwrap().contains("/input/amount/cents"), "{letter}");
    let reason = paused["log"].as_array().unwrap().last().unwrap();
    assert_eq!(reason["pausedBy"], "relais", "{paused}");
    shop.no_more_commands();

    // Resuming without a mend would only pause it again: refused, and nothing has changed.
    let again = shop.site.relais(&["process", "resume", "order/o-1", "--reason", "a test"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(format!("{again:?}").contains("it would be paused again"), "{again:?}");
    assert_eq!(shop.process("o-1")["version"], paused["version"]);
    shop.stop();
    shop.settle(&good);
    shop.start();
    let resumed = shop.act("resume", "o-1");
    assert_eq!(resumed["changed"][0]["status"], "RUNNING", "{resumed}");
    assert_eq!(shop.dead_letters(), [] as [Value; 0]);
    let pay = shop.command("TakePayment");
    assert_eq!(pay.payload["cents"], 4200);
    // Later steps can miss something too: a reply without what the next command needs.
    shop.reply(&pay, "PaymentTaken", json!({}));
    shop.until("o-1", "PAUSED");
    let skip = shop.act("skip", "o-1");
    assert_eq!(skip["changed"][0]["current_step"], "shipment", "{skip}");
}

fn a_failed_compensation_waits_for_a_person(shop: Shop) {
    let shop = shop.open(LONG);
    shop.place("o-1");
    shop.reply(&shop.command("TakePayment"), "PaymentTaken", json!({"id": "p-7"}));
    shop.reply(&shop.command("Ship"), "NotShippable", json!({"why": "too heavy"}));
    shop.reply(&shop.command("RefundPayment"), "RefundBusy", json!({"why": "later"}));
    shop.reply(&shop.command("RefundPayment"), "RefundRefused", json!({"why": "closed account"}));
    let stuck = shop.until_logged("o-1", |entry| entry["type"] == "CompensationFailed");
    assert_eq!(stuck["status"], "COMPENSATING", "never reported as done: {stuck}");
    let letter = shop.wait("a dead letter", || shop.dead_letters().first().cloned());
    assert_eq!(letter["failed_status"], "COMPENSATION_FAILED", "{letter}");
    shop.act("retry", "o-1");
    shop.reply(&shop.command("RefundPayment"), "PaymentRefunded", json!({}));
    shop.until("o-1", "COMPENSATED");
    assert_eq!(shop.dead_letters(), [] as [Value; 0]);
}

fn a_newer_version_takes_new_orders_and_old_ones_finish_as_they_began(mut shop: Shop) {
    let old = shop.settings(LONG);
    shop.settle(&old);
    shop.start();
    shop.place("o-1");
    let pay = shop.command("TakePayment");
    shop.stop();
    let process = old.split("[[process]]").nth(1).unwrap().split("[[destination]]").next().unwrap();
    let newer = process
        .replace("type = \"order\"", "type = \"order\"\nversion = 2")
        .replace("command = \"Ship\"", "command = \"ShipFast\"");
    shop.settle(&format!("{old}\n[[process]]{newer}"));
    shop.start();
    shop.place("o-2");
    let newer_pay = shop.command("TakePayment");
    shop.reply(&pay, "PaymentTaken", json!({"id": "p-1"}));
    shop.reply(&shop.command("Ship"), "Shipped", json!({}));
    shop.until("o-1", "SUCCEEDED");
    shop.reply(&newer_pay, "PaymentTaken", json!({"id": "p-2"}));
    shop.reply(&shop.command("ShipFast"), "Shipped", json!({}));
    let done = shop.until("o-2", "SUCCEEDED");
    assert_eq!((&done["definition"], &shop.process("o-1")["definition"]), (&json!(2), &json!(1)));
    assert_eq!(shop.dead_letters(), [] as [Value; 0]);
}

fn a_definition_that_is_gone_is_said_and_loses_nothing(mut shop: Shop) {
    let good = shop.settings(LONG);
    shop.settle(&good);
    shop.start();
    shop.place("o-1");
    let pay = shop.command("TakePayment");
    shop.stop();
    // The step it stands on has another name now; the reply cannot be for it.
    shop.settle(&good.replace("payment", "paying").replace("payings", "payments"));
    let check = shop.site.relais(&["check"]);
    let lack = "`order` version 1 has no step `payment`; 1 process waits for it";
    assert!(check.code == 0 && check.out.contains(lack), "{check:?}");
    shop.start();
    shop.reply(&pay, "PaymentTaken", json!({"id": "p-7"}));
    let letter = shop.wait("a dead letter", || shop.dead_letters().first().cloned());
    assert_eq!(letter["error_class"], "PROCESS_DEFINITION", "{letter}");
    let said = shop.site.relais(&["process", "retry", "order/o-1", "--reason", "try"]);
    assert!(said.code == 1 && said.out.contains("order o-1 is unchanged"), "{said:?}");
    let said = shop.stop();
    assert!(said.err.contains(lack), "{said:?}");
    shop.settle(&good);
    shop.start();
    let id = letter["id"].as_str().unwrap();
    let said = shop.site.relais(&["dead-letter", "replay", id, "--reason", "back", "--yes"]);
    assert_eq!(said.code, 0, "{said:?}");
    shop.reply(&shop.command("Ship"), "Shipped", json!({}));
    shop.until("o-1", "SUCCEEDED");
}
