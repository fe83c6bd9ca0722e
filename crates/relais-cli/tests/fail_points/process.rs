//! A process of two steps: the first is done, the second is not answered, asked for again when its timer
//! fires, and refused; so the first is compensated.

use serde_json::json;

use crate::{
    harness::CrashHarness,
    sink::{Seen, Sink},
};

const ORDERS: [&str; 2] = ["o-1", "o-2"];

pub(crate) fn timer_and_compensation(harness: &mut CrashHarness) {
    let sink = Sink::start(|_, _| 200);
    harness.settings(&format!("{}{}", process(), sink.destination("services", 50)));
    for order in ORDERS {
        let body = json!({ "type": "OrderPlaced", "order": order }).to_string();
        harness.post(&[("message-id", order)], &body);
    }
    let mut answered = 0;
    let ends = "SELECT status FROM relais_process WHERE status = 'COMPENSATED'";
    harness.until("the processes end", |harness| {
        let seen = sink.seen();
        while let Some(command) = seen.get(answered) {
            answer(harness, &seen[..answered], command);
            answered += 1;
        }
        harness.base.texts(ends).len() == ORDERS.len()
    });
    harness.drain();
    harness.finish();

    check_logs(harness);
    sink.assert_copies(harness.crashes);
    for order in ORDERS {
        assert_eq!(effects(&sink, order), ["Pay", "Ship", "Ship", "Refund"], "{order}");
    }
    let letters = harness.base.texts("SELECT error_class FROM relais_dead_letter");
    assert!(letters.is_empty(), "{letters:?}");
}

fn process() -> String {
    let call = |command: &str, timeout: &str, retry: &str| {
        format!(
            "destination = \"services\"\ncommand = \"{command}\"\n\
             payload = '{{\"order\": {{{{/input/order}}}}, \"do\": \"{command}\"}}'\n\
             completed = \"{command}Done\"\nfailed = \"{command}Refused\"\ntimeout = \"{timeout}\"\n\
             [{retry}]\nattempts = 50\nfirst = \"10ms\"\nmax = \"20ms\"\n"
        )
    };
    format!(
        "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\n\
         [[process]]\ntype = \"order\"\nstart = \"OrderPlaced\"\nbusiness_key = \"payload:/order\"\n\
         [[process.step]]\nname = \"pay\"\n{}[process.step.compensation]\n{}\
         [[process.step]]\nname = \"ship\"\n{}",
        call("Pay", "10m", "process.step.retry"),
        call("Refund", "10m", "process.step.compensation.retry"),
        call("Ship", "200ms", "process.step.retry"),
    )
}

/// Copies of a command are answered as it was: under the same id.
fn answer(harness: &mut CrashHarness, before: &[Seen], command: &Seen) {
    let ending = match command.event_type.as_str() {
        "Pay" | "Refund" => "Done",
        _ => {
            let first = before.iter().find(|seen| same_step(seen, command)).unwrap_or(command);
            if first.message_id == command.message_id {
                return;
            }
            "Refused"
        }
    };
    let id = format!("re-{}", command.message_id);
    let headers = [
        ("message-id", id.as_str()),
        ("correlation-id", &command.process_id),
        ("causation-id", &command.message_id),
    ];
    let body = json!({ "type": format!("{}{ending}", command.event_type) }).to_string();
    harness.post(&headers, &body);
}

fn same_step(one: &Seen, other: &Seen) -> bool {
    (&one.process_id, &one.event_type) == (&other.process_id, &other.event_type)
}

/// Returns the commands of an order by first arrival. A third time-out, while the answer is in flight on a slow
/// machine, sends the command once more; that is no additional effect.
fn effects(sink: &Sink, order: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for seen in sink.seen().iter().filter(|seen| seen.body["order"] == order) {
        if ids.contains(&seen.message_id) {
            continue;
        }
        ids.push(seen.message_id.clone());
        let twice = names.iter().filter(|name| **name == seen.event_type).count() == 2;
        if !twice || seen.event_type != "Ship" {
            names.push(seen.event_type.clone());
        }
    }
    names
}

/// Entries are numbered from 1 without a gap, up to the version.
pub(crate) fn check_logs(harness: &CrashHarness) {
    let gaps = harness.base.texts(
        "SELECT p.business_key FROM relais_process AS p \
         LEFT JOIN (SELECT process_id, count(*) AS n, min(seq) AS first, max(seq) AS last \
                    FROM relais_process_log GROUP BY process_id) AS l ON l.process_id = p.process_id \
         WHERE l.n IS NULL OR l.first <> 1 OR l.last <> p.version OR l.n <> p.version",
    );
    assert!(gaps.is_empty(), "logs that are not linear: {gaps:?}");
}
