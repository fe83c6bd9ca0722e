//! `[[handler]]`: services in other languages handle messages, and what `check`, `explain` and operators see.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

mod configuration;
mod connections;
#[allow(dead_code)]
#[path = "../support/node.rs"]
mod node;
mod programs;
mod proxy;
mod service;
mod steps;
// Shared with tests that use more of it.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

use std::{
    net::SocketAddr,
    sync::OnceLock,
    time::{Duration, Instant},
};

use support::{Running, Site};

/// The time limit of a condition.
const PATIENCE: Duration = Duration::from_secs(90);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A file with a source, a destination and a handler at this address.
fn settings(store: &str, handler: SocketAddr, more: &str) -> String {
    format!(
        "[store]\nurl = \"{store}\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\naggregate_id = \"payload:/orderId\"\n\
         [[destination]]\nname = \"mail\"\nkind = \"log\"\npath = \"mail.jsonl\"\n\
         [[handler]]\nname = \"billing\"\nkind = \"http\"\non = [\"OrderPlaced\"]\n\
         url = \"http://{handler}/relais\"\nallow_private = true\ndestinations = [\"mail\"]\n\
         secrets = [\"{SECRET}\", \"next\"]\n{more}\n\
         [handler.retry]\nfirst = \"10ms\"\nmax = \"50ms\"\n\
         [handler.breaker]\nopen_for = \"100ms\"\n"
    )
}

fn place(running: &Running, id: &str, order: &str, total: i64) {
    let body = format!(r#"{{"type":"OrderPlaced","orderId":"{order}","total":{total}}}"#);
    post_order(running, id, &body);
}

fn post_order(running: &Running, id: &str, body: &str) {
    let (status, answer) = support::post(
        running.address("hook"),
        "/hook",
        &[("message-id", id), ("correlation-id", "c-1"), ("content-type", "application/json")],
        body,
    );
    assert_eq!(status, 202, "{answer}");
}

/// Returns the rows of the handler's inbox, as `message id, status, attempts`.
fn handled(site: &Site) -> Vec<String> {
    let rows = site.json(&["inbox", "list"]);
    let rows = rows.as_array().or_else(|| rows["items"].as_array()).unwrap();
    let own = rows.iter().filter(|row| row["source_system"] == "@billing::shop");
    let text = |row: &serde_json::Value| {
        let (id, status) = (row["message_id"].as_str().unwrap(), row["status"].as_str().unwrap());
        format!("{id} {status} {}", row["attempts"])
    };
    let mut rows: Vec<String> = own.map(text).collect();
    rows.sort();
    rows
}

/// Returns the messages that the destination `mail` got.
fn mails(site: &Site) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(site.path("mail.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Starts a service that runs until the test program ends.
fn serve(app: axum::Router) -> SocketAddr {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| tokio::runtime::Runtime::new().unwrap());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        axum::serve(listener, app).await
    });
    address
}
