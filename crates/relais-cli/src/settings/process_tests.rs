//! `[[process]]`: what it gives, what it means in words, and the exact words when it does not fit.

use std::time::Duration;

use relais_core::{
    extract::Pick,
    process::definition::{CallTarget, Correlate, KeyUse},
    query::Retention,
};

use super::{
    explain::explain,
    tests::{bad, check, good},
};

/// Destinations for every step below.
const TARGETS: &str = "[[destination]]\nname = \"payments\"\nkind = \"log\"\n\
                       [[destination]]\nname = \"shipping\"\nkind = \"log\"\n";

const ORDER: &str = r#"
[[process]]
type = "order"
version = 2
start = ["OrderPlaced", "OrderImported"]
business_key = "payload:/orderId"

[[process.step]]
name = "payment"
destination = "payments"
command = "TakePayment"
payload = '{"order": {{/input/orderId}}}'
completed = "PaymentTaken"
failed = ["PaymentDeclined", "PaymentRefused"]
retryable = "PaymentBusy"
error = "payload:/why"
timeout = "30s"
[process.step.retry]
attempts = 3
first = "1s"
[process.step.compensation]
destination = "payments"
command = "RefundPayment"
payload = '{"payment": {{/steps/payment/id}}}'
completed = "PaymentRefunded"
correlate_key = "payload:/orderId"

[[process.step]]
name = "shipment"
destination = "shipping"
command = "Ship"
completed = "Shipped"
correlate = "payload:/process"
"#;

#[test]
fn every_key_of_a_process_arrives() {
    let (settings, warnings) = good(&format!("{ORDER}{TARGETS}"));
    assert_eq!(warnings, []);
    let process = &settings.processes[0];
    assert_eq!((process.definition.process_type(), process.definition.version()), ("order", 2));
    let declared = &process.declared;
    assert_eq!(declared.starts, ["OrderPlaced", "OrderImported"]);
    assert_eq!(declared.business_key, Some(Pick::Payload("/orderId".into())));
    let payment = &declared.steps[0].call;
    assert_eq!(
        (payment.target.clone(), payment.command.as_str()),
        (CallTarget::Destination("payments".into()), "TakePayment")
    );
    assert_eq!(payment.payload.as_deref(), Some(r#"{"order": {{/input/orderId}}}"#));
    assert_eq!((&payment.completed[..], payment.failed.len()), (&["PaymentTaken".into()][..], 2));
    assert_eq!(
        (&payment.retryable[..], payment.retry.attempts_max),
        (&["PaymentBusy".into()][..], 3)
    );
    assert_eq!(payment.error, Some(Pick::Payload("/why".into())));
    assert_eq!(payment.timeout, Some(Duration::from_secs(30)));
    assert_eq!(payment.correlate, Correlate::default());
    let refund = declared.steps[0].compensation.as_ref().unwrap();
    assert_eq!(refund.correlate, Correlate::BusinessKey(Pick::Payload("/orderId".into())));
    let shipment = &declared.steps[1];
    assert_eq!(shipment.call.correlate, Correlate::ProcessId(Pick::Payload("/process".into())));
    assert_eq!((&shipment.compensation, shipment.call.timeout), (&None, None));
}

#[test]
fn a_process_is_explained_in_words() {
    let (settings, _) = good(&format!("{ORDER}{TARGETS}"));
    let explained = explain(&settings).into_iter().find(|e| e.section == "process").unwrap();
    assert_eq!(explained.name.as_deref(), Some("order version 2"));
    assert_eq!(
        explained.lines,
        [
            "started by `OrderPlaced` or `OrderImported`; business key payload:/orderId: one \
             process for each",
            "1. payment: `TakePayment` to `payments`, payload by template",
            "   completed by `PaymentTaken`, fails permanently on `PaymentDeclined` or \
             `PaymentRefused`, fails this attempt on `PaymentBusy`; process id in \
             header:correlation-id",
            "   time-out 30s; 3 attempts, exponential backoff 1s → 5m (×2)",
            "   compensated by `RefundPayment` to `payments`, payload by template",
            "   completed by `PaymentRefunded`; business key in payload:/orderId",
            "   no time-out: waits indefinitely for a reply; 5 attempts, exponential backoff 100ms → \
             5m (×2)",
            "2. shipment: `Ship` to `shipping`",
            "   completed by `Shipped`; process id in payload:/process",
            "   no time-out: waits indefinitely for a reply; 5 attempts, exponential backoff 100ms → \
             5m (×2)",
            "a step that fails permanently compensates those before it: payment",
        ]
    );
}

#[test]
fn unknown_keys_of_a_process_name_the_nearest_or_where_they_belong() {
    let text = ORDER
        .replace("version =", "versoin =")
        .replace("retryable =", "retriable =")
        .replace("attempts =", "atempts =")
        .replace("correlate = ", "attempts = ");
    check(
        &format!("{text}{TARGETS}"),
        &[
            "relais.toml:4:1: process[order].versoin: unknown key; did you mean `version`?",
            "relais.toml:15:1: process[order].step[payment].retriable: unknown key; did you mean \
             `retryable`?",
            "relais.toml:19:1: process[order].step[payment].retry.atempts: unknown key; did you \
             mean `attempts`?",
            "relais.toml:33:1: process[order].step[shipment].attempts: unknown key; it belongs \
             under `[process.step.retry]`",
        ],
    );
}

#[test]
fn what_is_missing_or_of_another_kind_is_reported_at_once() {
    check(
        "[[process]]\nversion = 0\nstart = []\nbusiness_key = \"position\"\n[[process.step]]\n\
         destination = \"a\"\ncommand = 5\ntimeout = \"0s\"\ncorrelate = \"key\"\n\
         correlate_key = \"key\"\n[process.step.compensation]\ncommand = \"Undo\"\n",
        &[
            "relais.toml:1:1: process[#1].type: is missing",
            "relais.toml:2:11: process[#1].version: must be from 1 to 1000000",
            "relais.toml:3:9: process[#1].start: must have 1 to 50 entries",
            "relais.toml:4:16: process[#1].business_key: `position` is not a place in a message; \
             use `header:NAME`, `payload:/JSON/POINTER` or `key`",
            "relais.toml:5:1: process[#1].step[#1].name: is missing",
            "relais.toml:5:1: process[#1].step[#1].completed: is missing; name one event type, or \
             a list of them",
            "relais.toml:7:11: process[#1].step[#1].command: expected a string, found integer",
            "relais.toml:8:11: process[#1].step[#1].timeout: `0s` must be from 1ms to 366d",
            "relais.toml:10:17: process[#1].step[#1].correlate_key: give either `correlate` (where \
             the process id is) or `correlate_key` (where the business key is), not both",
            "relais.toml:11:1: process[#1].step[#1].compensation.completed: is missing; name one \
             event type, or a list of them",
            "relais.toml:11:1: process[#1].step[#1].compensation.destination: is missing; give the \
             name of a destination, or `handler`",
        ],
    );
    assert!(
        bad("[[process]]\ntype = \"a\"\nstart = \"A\"\n")
            .contains("process[a].step: must come 1 to 100 times: `[[process.step]]`")
    );
}

#[test]
fn a_type_may_have_versions_but_each_only_once() {
    let older = ORDER.replace("version = 2", "version = 1");
    let (settings, _) = good(&format!("{ORDER}{older}{TARGETS}"));
    assert_eq!(settings.processes.len(), 2);
    let twice = bad(&format!("{ORDER}{ORDER}{TARGETS}"));
    assert!(
        twice.contains("process[order].version: `order` has a version 2 already; raise it"),
        "{twice}"
    );
}

#[test]
fn an_ignored_event_type_has_no_route_and_no_process() {
    let ignore = |name: &str| format!("[inbox]\nignore = [\"Heartbeat\", \"{name}\"]\n");
    let route = "[[route]]\non = \"Other\"\ndestination = \"payments\"\n";
    for (name, used) in [("Other", "[[route]] #1"), ("PaymentBusy", "[[process]] `order`")] {
        let found = bad(&format!("{}{route}{ORDER}{TARGETS}", ignore(name)));
        let words = format!("inbox.ignore: `{name}` is used by {used}; remove it here or there");
        assert!(found.contains(&words), "{found}");
    }
    good(&format!("{}{route}{ORDER}{TARGETS}", ignore("OrderViewed")));
}

#[test]
fn an_event_type_has_a_route_or_a_process_but_not_both() {
    let route = |on: &str| format!("[[route]]\non = \"{on}\"\ndestination = \"payments\"\n");
    let both = bad(&format!("{}{ORDER}{TARGETS}", route("Other") + &route("OrderPlaced")));
    assert!(
        both.contains("process[order]: `OrderPlaced` starts it, and [[route]] #2 is for it too"),
        "{both}"
    );
    let both = bad(&format!("{}{ORDER}{TARGETS}", route("PaymentBusy")));
    assert!(
        both.contains("`PaymentBusy` is a reply to step `payment`, and [[route]] #1"),
        "{both}"
    );
    good(&format!("{}{ORDER}{TARGETS}", route("Other")));
}

#[test]
fn a_step_to_an_undefined_destination_is_refused() {
    let next =
        "define it, or add one with this name and `external = true` if another program serves it";
    check(
        ORDER,
        &[
            &format!(
                "relais.toml:2:1: process[order].step[payment].destination: no [[destination]] is \
                 named `payments`; {next}"
            ),
            &format!(
                "relais.toml:2:1: process[order].step[shipment].destination: no [[destination]] is \
                 named `shipping`; {next}"
            ),
        ],
    );
}

#[test]
fn what_cannot_be_built_is_said_before_anything_runs() {
    for (from, to) in [
        ("{{/input/orderId}}", "{{/input/orderId"),
        ("{{/input/orderId}}", "{{orderId}}"),
        ("{{/input/orderId}}", "{{/steps/shipment/id}}"),
        ("{{/input/orderId}}", "{{/steps/nowhere/id}}"),
        ("{{/input/orderId}}}", "{{/input/orderId}}"),
        ("name = \"shipment\"", "name = \"payment\""),
        ("failed = [\"PaymentDeclined\"", "failed = [\"PaymentTaken\""),
    ] {
        let wrong = bad(&format!("{}{TARGETS}", ORDER.replace(from, to)));
        assert!(wrong.contains("process[order]"), "{to}: {wrong}");
    }
}

#[test]
fn cleanup_can_be_switched_off_and_keys_can_be_used_again() {
    let (settings, _) = good("[retention]\nenabled = false\nprocesses = \"10d\"\n");
    assert_eq!(settings.retention, Retention::never());
    let (settings, _) = good(&format!("{ORDER}{TARGETS}"));
    assert_eq!(settings.processes[0].declared.key_use, KeyUse::Once);
    let again = ORDER.replace("version = 2", "version = 2\nbusiness_key_use = \"while_open\"");
    let (settings, _) = good(&format!("{again}{TARGETS}"));
    assert_eq!(settings.processes[0].declared.key_use, KeyUse::WhileOpen);
}

#[test]
fn ended_processes_stay_longer_than_a_late_reply_may_take() {
    let (settings, _) = good("[retention]\nprocesses = \"10d\"\n");
    assert_eq!(settings.retention.processes_seconds, 10 * 86_400);
    let short = bad(&format!("{ORDER}{TARGETS}[retention]\nprocesses = \"1m\"\n"));
    assert!(
        short.contains("retention.processes: 1m is not longer than the retries may take (1m33"),
        "{short}"
    );
}
