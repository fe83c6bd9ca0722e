//! A service that answers by a script, and what operators see of its handler.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};

use crate::{
    handled, mails, place, settings,
    support::{Site, assert_said, get},
    until,
};

/// One call as the service saw it.
#[derive(Clone)]
struct Call {
    headers: HeaderMap,
    body: String,
}

/// Answers with the next of its replies, then with 204.
#[derive(Clone, Default)]
struct ScriptedService {
    replies: Arc<Mutex<VecDeque<(u16, String)>>>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl ScriptedService {
    fn start(&self) -> SocketAddr {
        crate::serve(Router::new().route("/relais", post(take)).with_state(self.clone()))
    }

    fn answers(&self, status: u16, body: &str) {
        self.replies.lock().unwrap().push_back((status, body.to_owned()));
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }
}

impl Call {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("-", |value| value.to_str().unwrap())
    }
}

async fn take(
    State(service): State<ScriptedService>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, String) {
    service.calls.lock().unwrap().push(Call { headers, body });
    let next = service.replies.lock().unwrap().pop_front();
    let (status, body) = next.unwrap_or((204, String::new()));
    (StatusCode::from_u16(status).unwrap(), body)
}

#[test]
fn a_call_carries_everything_about_its_message_and_an_answer_becomes_messages() {
    let service = ScriptedService::default();
    let site = Site::with(&settings("sqlite:relais.db", service.start(), ""));
    let answer = r#"{"outcome":"done","messages":[
        {"destination":"mail","event_type":"InvoiceCreated","payload":{"cents":1.50}}]}"#;
    service.answers(200, answer);
    let running = site.run();
    place(&running, "m-1", "o-1", 150);
    until("the message is delivered", || mails(&site).len() == 1);
    let calls = service.calls();
    let [call] = calls.as_slice() else { panic!("{}", calls.len()) };
    for (name, value) in [
        ("message-id", "m-1"),
        ("source-system", "shop"),
        ("event-type", "OrderPlaced"),
        ("aggregate-id", "o-1"),
        ("message-key", "o-1"),
        ("attempt", "1"),
        ("correlation-id", "c-1"),
        ("content-type", "application/json"),
        ("webhook-id", call.header("idempotency-key")),
    ] {
        assert_eq!(call.header(name), value, "{name}");
    }
    assert_eq!(call.body, r#"{"type":"OrderPlaced","orderId":"o-1","total":150}"#);
    assert_eq!(call.header("webhook-signature").split(' ').count(), 2, "one for each secret");
    let sent = site.json(&["outbox", "list"]);
    let sent = sent.as_array().or_else(|| sent["items"].as_array()).unwrap();
    let sent = site.json(&["outbox", "show", &sent[0]["id"].to_string()]);
    assert_eq!(sent["payload"], r#"{"cents":1.50}"#, "byte for byte");
    assert_eq!((&sent["causation_id"], &sent["correlation_id"]), (&"m-1".into(), &"c-1".into()));
    // The copy of the handler has the same id: it is an effect of the message.
    assert_said(&site.relais(&["explain", "m-1"]), 0, &["inbox:1", "inbox:2", "InvoiceCreated"]);
    assert_said(&site.relais(&["explain", "inbox:2"]), 0, &["InvoiceCreated"]);
    running.stop();
}

#[test]
fn answers_that_are_no_answers_are_retries_with_their_reason_and_park_waits_for_an_operator() {
    let service = ScriptedService::default();
    let retry = "[handler.limits]\nconcurrency = 1\n";
    let site = Site::with(&format!(
        "{}{retry}",
        settings("sqlite:relais.db", service.start(), "on_dead_letter = \"skip\"")
    ));
    for (status, body) in [
        (200, "<html>".to_owned()),
        (202, String::new()),
        (200, r#"{"outcome":"done","messages":[{"destination":"mial","event_type":"E","payload":1}]}"#.to_owned()),
        (200, format!(r#"{{"outcome":"done","code":"{}"}}"#, "x".repeat(1 << 20))),
        (200, r#"{"outcome":"park","code":"ASK","message":"which customer?"}"#.to_owned()),
    ] {
        service.answers(status, &body);
    }
    let running = site.run();
    place(&running, "m-1", "o-1", 1);
    until("it is parked", || handled(&site) == ["m-1 FAILED 5"]);
    let attempts: Vec<String> =
        service.calls().iter().map(|call| call.header("attempt").to_owned()).collect();
    assert_eq!(attempts, ["1", "2", "3", "4", "5"]);
    let ids: std::collections::HashSet<String> =
        service.calls().iter().map(|call| call.header("idempotency-key").to_owned()).collect();
    assert_eq!(ids.len(), 1, "the same id each time");
    let letters = site.relais(&["dead-letter", "list"]);
    assert_said(&letters, 0, &["ASK", "OrderPlaced"]);
    // A later message of the key waits, also with `skip`: the service asked for it.
    place(&running, "m-2", "o-1", 2);
    place(&running, "m-3", "o-2", 2);
    until("another key continues", || handled(&site).contains(&"m-3 PROCESSED 1".to_owned()));
    assert!(handled(&site).contains(&"m-2 RECEIVED 0".to_owned()), "{:?}", handled(&site));
    assert!(mails(&site).is_empty());
    running.stop();
}

#[test]
fn a_service_that_is_down_costs_no_attempt_and_a_paused_handler_calls_nothing() {
    let service = ScriptedService::default();
    // A port that refuses connections: its listener is closed.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    let site = Site::with(&format!("{}{admin}", settings("sqlite:relais.db", closed, "")));
    let running = site.run();
    for n in 0..6 {
        place(&running, &format!("m-{n}"), &format!("o-{n}"), n);
    }
    let address = running.logged("admin http://");
    until("the console shows the handler and its last error", || {
        let (_, shown) = get(address, "/api/v1/destinations");
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        let handler = &shown["@billing"];
        handler["kind"] == "http handler" && handler["last_error"]["code"] == "CONNECT_FAILED"
    });
    until("metrics have the handler", || {
        let (_, page) = get(address, "/metrics");
        page.contains("relais_breaker_state{destination=\"@billing\"}")
    });
    let text = std::fs::read_to_string(site.path("relais.toml")).unwrap();
    let at = format!("[admin]\nlisten = \"{address}\"\n");
    site.write("relais.toml", &text.replace(admin, &at));
    let shown = site.json(&["status"]);
    let handler = &shown["handlers"][0];
    assert_eq!(handler["name"], "@billing");
    assert_eq!(handler["guards"]["reason"]["code"], "CONNECT_FAILED", "{shown}");
    assert_said(&site.relais(&["status"]), 0, &["HANDLER", "@billing is unavailable, breaker"]);
    running.stop();
    let waiting = handled(&site);
    assert!(waiting.iter().all(|row| row.ends_with(" 0")), "{waiting:?}");

    site.write("relais.toml", &settings("sqlite:relais.db", service.start(), ""));
    let paused = ["destination", "pause", "@billing", "--reason", "deploy", "--actor", "ann"];
    assert_said(&site.relais(&paused), 0, &["@billing is paused"]);
    let running = site.run();
    place(&running, "m-6", "o-6", 6);
    until("it is copied for the handler", || handled(&site).len() == 7);
    assert!(service.calls().is_empty(), "paused");
    let resumed = ["destination", "resume", "@billing", "--reason", "done", "--actor", "ann"];
    assert_said(&site.relais(&resumed), 0, &["@billing is resumed"]);
    until("all are handled", || handled(&site).iter().all(|row| row.ends_with("PROCESSED 1")));
    running.stop();
}

#[test]
fn an_answer_that_stays_invalid_is_a_dead_letter_that_shows_it_and_can_be_retried() {
    let service = ScriptedService::default();
    let text = settings("sqlite:relais.db", service.start(), "");
    let site = Site::with(&text.replace("[handler.retry]\n", "[handler.retry]\nattempts = 2\n"));
    service.answers(200, "<html>not JSON</html>");
    service.answers(200, "<html>not JSON</html>");
    let running = site.run();
    place(&running, "m-1", "o-1", 1);
    until("it is a dead letter", || handled(&site) == ["m-1 FAILED 2"]);
    assert_said(&site.relais(&["dead-letter", "list"]), 0, &["ANSWER_INVALID", "OrderPlaced"]);
    let letters = site.json(&["dead-letter", "list"]);
    let letters = letters.as_array().or_else(|| letters["items"].as_array()).unwrap();
    let letter = letters[0]["id"].as_str().unwrap();
    assert_said(&site.relais(&["dead-letter", "show", letter]), 0, &["<html>not JSON</html>"]);
    let retry = ["dead-letter", "retry", letter, "--reason", "deployed", "--yes"];
    assert_eq!(site.relais(&retry).code, 0);
    until("the service has handled it", || handled(&site)[0].starts_with("m-1 PROCESSED"));
    let ids: std::collections::HashSet<String> =
        service.calls().iter().map(|call| call.header("idempotency-key").to_owned()).collect();
    assert_eq!((service.calls().len(), ids.len()), (3, 1), "the same id each time");
    running.stop();
}
