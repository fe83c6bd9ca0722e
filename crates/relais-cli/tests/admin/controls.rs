//! Every control route: each role, strict JSON, a reason, and an entry in the audit log.

use serde_json::{Value, json};

use crate::{Guarded, SETTINGS, reason, wait_for};

/// A process type beside the source and the destination of the other tests.
const PROCESS: &str = "[[process]]\ntype = \"checkout\"\nstart = \"CheckoutStarted\"\n\
    business_key = \"payload:/orderId\"\n\
    [[process.step]]\nname = \"payment\"\ndestination = \"out\"\ncommand = \"TakePayment\"\n\
    completed = \"PaymentTaken\"\n";

/// The cases of the routes.
struct Case {
    path: &'static str,
    /// Fields beside the reason.
    more: fn() -> Value,
    /// The audit log names it so.
    action: &'static str,
    target: &'static str,
    /// The second call changes nothing.
    once: bool,
}

const fn case(path: &'static str, action: &'static str, target: &'static str) -> Case {
    Case { path, more: || json!({}), action, target, once: true }
}

const CASES: [Case; 8] = [
    case("/destinations/out/pause", "destination.paused", "out"),
    case("/destinations/out/resume", "destination.resumed", "out"),
    Case {
        once: false,
        ..case("/destinations/out/reset-breaker", "destination.breaker-reset", "out")
    },
    Case {
        more: || json!({"rate": "5/s", "concurrency": 2}),
        once: false,
        ..case("/destinations/out/limit", "destination.limited", "out")
    },
    case("/sources/hook/pause", "source.paused", "hook"),
    case("/sources/hook/resume", "source.resumed", "hook"),
    case("/process-types/checkout/pause", "process-type.paused", "checkout"),
    case("/process-types/checkout/resume", "process-type.resumed", "checkout"),
];

fn body(case: &Case, fields: Value) -> Value {
    let mut body = (case.more)();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn guarded() -> Guarded {
    let guarded = Guarded::with(&format!("{PROCESS}{SETTINGS}"));
    let vic = guarded.with_token("vic");
    wait_for(|| (vic.get("/overview").status == 200).then_some(()));
    guarded
}

/// The routes of the description that change a control are those that are tried here.
#[test]
fn no_control_route_is_left_out() {
    let guarded = guarded();
    let described = guarded.with_token("vic").page("/api/openapi.json").ok();
    let paths = described["paths"].as_object().unwrap();
    let mut there: Vec<String> = paths
        .iter()
        .filter(|(_, operations)| operations["post"].to_string().contains("/Controlled\""))
        .map(|(path, _)| path.trim_start_matches("/api/v1").to_owned())
        .collect();
    let named = |case: &Case| {
        let mut parts: Vec<&str> = case.path.split('/').collect();
        parts[2] = "{name}";
        parts.join("/")
    };
    let mut tried: Vec<String> = CASES.iter().map(named).collect();
    there.sort();
    tried.sort();
    assert_eq!(there, tried);
}

#[test]
fn a_control_needs_an_operator_and_is_recorded_once_under_his_name() {
    let guarded = guarded();
    let (olga, ada) = (guarded.with_token("olga"), guarded.with_token("ada"));
    let recorded =
        |target: &str| olga.get(&format!("/audit?target={target}")).ok()["items"].clone();
    for case in &CASES {
        let sent = body(case, reason());
        guarded.without_token().post(case.path, &sent).problem(401, "UNAUTHORIZED");
        guarded.with_token("expired").post(case.path, &sent).fails(401);
        for name in ["mona", "vic"] {
            guarded.with_token(name).post(case.path, &sent).problem(403, "ROLE");
        }
        let before = recorded(case.target).as_array().unwrap().len();
        assert_eq!(olga.post(case.path, &sent).ok()["result"], "done", "{}", case.path);
        let entries = recorded(case.target);
        let newest = &entries[0];
        assert_eq!(entries.as_array().unwrap().len(), before + 1, "{}: {entries}", case.path);
        assert_eq!(newest["action"], case.action, "{newest}");
        assert_eq!(newest["actor"], "olga", "{newest}");
        assert!(newest["reason"].as_str().unwrap().starts_with("a test"), "{newest}");

        let again = ada.post(case.path, &sent).ok();
        let expected = if case.once { "unchanged" } else { "done" };
        assert_eq!(again["result"], expected, "{}: {again}", case.path);
        let more = usize::from(!case.once);
        let entries = recorded(case.target);
        assert_eq!(entries.as_array().unwrap().len(), before + 1 + more, "{}", case.path);
    }
}

#[test]
fn a_control_without_a_reason_or_in_another_shape_is_refused() {
    let guarded = guarded();
    let olga = guarded.with_token("olga");
    for case in &CASES {
        let path = case.path;
        for wrong in [
            body(case, json!({})),
            body(case, json!({"reason": " "})),
            body(case, json!({"reason": null})),
            body(case, json!({"reason": 5})),
            body(case, json!({"reason": ["a test"]})),
            body(case, json!({"reason": "x".repeat(2_001)})),
            body(case, json!({"reason": "a test", "more": 1})),
            json!(["a test"]),
            json!([null, "a test"]),
            json!("a test"),
        ] {
            olga.post(path, &wrong).problem(422, "INVALID");
        }
        let named = body(case, json!({"reason": "a test", "actor": "ann"}));
        olga.post(path, &named).problem(422, "ACTOR");
        for text in ["", "{\"reason\"", "{\"reason\":\"a test\"} x"] {
            olga.post_text(path, text).problem(400, "BAD_REQUEST");
        }
        let form = olga.with("content-type", "application/x-www-form-urlencoded");
        form.post(path, &body(case, reason())).problem(415, "UNSUPPORTED_MEDIA_TYPE");
        olga.get(path).problem(405, "METHOD_NOT_ALLOWED");
        let parts: Vec<&str> = path.split('/').collect();
        let unknown_path = format!("/{}/unknown/{}", parts[1], parts[3]);
        let unknown = olga.post(&unknown_path, &body(case, reason())).problem(404, "NOT_FOUND");
        let detail = unknown["detail"].as_str().unwrap();
        assert!(detail.contains(parts[2]), "it names those that are there: {detail}");
    }
    assert_eq!(olga.get("/audit").ok()["items"], json!([]), "nothing was done");
}

#[test]
fn a_limit_is_a_rate_and_a_whole_number_of_calls() {
    let guarded = guarded();
    let olga = guarded.with_token("olga");
    let limit = |fields: Value| {
        let mut sent = reason();
        sent.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        olga.post("/destinations/out/limit", &sent)
    };
    for wrong in [
        json!({"rate": "fast"}),
        json!({"rate": "0/s"}),
        json!({"rate": "5"}),
        json!({"rate": "5/d"}),
        json!({"rate": 5}),
        json!({"rate": ["5/s"]}),
        json!({"concurrency": 0}),
        json!({"concurrency": -1}),
        json!({"concurrency": 1.5}),
        json!({"concurrency": "2"}),
        json!({"concurrency": [2]}),
        json!({"concurrency": 4_294_967_296_i64}),
        json!({"concurrency": 1_001}),
        json!({}),
    ] {
        limit(wrong).problem(422, "INVALID");
    }
    assert_eq!(olga.get("/audit").ok()["items"], json!([]), "nothing was done");
    for right in [
        json!({"rate": "5/s"}),
        json!({"concurrency": 2}),
        json!({"rate": "100/m", "concurrency": null}),
        json!({"rate": null, "concurrency": null}),
    ] {
        assert_eq!(limit(right).ok()["result"], "done");
    }
    let audit = olga.get("/audit").ok();
    let entry =
        |at: usize| (audit["items"][at]["action"].clone(), audit["items"][at]["reason"].clone());
    assert_eq!(entry(0), (json!("destination.limits-reset"), json!("a test")));
    let values = "a test (rate 100/m, concurrency as configured)";
    assert_eq!(entry(1), (json!("destination.limited"), json!(values)));
    let wrong = limit(json!({"concurrency": "2"})).problem(422, "INVALID")["detail"].to_string();
    assert!(wrong.contains("expected a number") && !wrong.contains("f64"), "{wrong}");
    for (rate, expected) in [("0/s", "at least one call per period"), ("fast", "is not a rate")] {
        let wrong = limit(json!({ "rate": rate })).problem(422, "INVALID")["detail"].to_string();
        assert!(wrong.contains(expected) && wrong.contains("`rate`"), "{wrong}");
    }
}

#[test]
fn a_session_pauses_only_with_its_csrf_token() {
    let guarded = guarded();
    let session = guarded.session("olga");
    session.post("/destinations/out/pause", &reason()).problem(403, "CSRF");
    let csrf = session.get("/session").ok()["csrf"].as_str().unwrap().to_owned();
    let pause = session.with("x-csrf-token", &csrf).post("/destinations/out/pause", &reason());
    assert_eq!(pause.ok()["result"], "done");
    // The next overview shows it, with who and why.
    let vic = guarded.with_token("vic");
    let pause = wait_for(|| {
        let shown = vic.get("/overview").ok()["destinations"]["out"]["pause"].clone();
        shown.is_object().then_some(shown)
    });
    assert_eq!((&pause["by"], &pause["reason"]), (&json!("olga"), &json!("a test")));
}
