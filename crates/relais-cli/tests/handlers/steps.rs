//! Processes whose steps are handlers: replies are dropped, relais is killed, and each effect happens once.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use axum::{Json, Router, extract::State, http::HeaderMap, routing::post};
use serde_json::{Value, json};

use crate::{
    PATIENCE,
    node::kill_until,
    proxy::ReplyDropper,
    support::{Running, Site, assert_said, post as send, postgres::PostgresSchema},
    until,
};

/// Orders of one test.
const ORDERS: usize = 90;

/// The shop: it does each step once, by its idempotency key, and stores its answers.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Ledger>>);

#[derive(Default)]
struct Ledger {
    /// The stored answers by idempotency key.
    answers: BTreeMap<String, Value>,
    /// Number of effects by command and order.
    effects: BTreeMap<String, usize>,
    calls: usize,
    /// Commands that were asked to come again.
    delayed: BTreeMap<String, usize>,
    /// Commands that an operator must decide about.
    parked: Vec<String>,
}

impl Shop {
    fn start(&self) -> SocketAddr {
        crate::serve(Router::new().route("/relais", post(take)).with_state(self.clone()))
    }

    fn effects(&self) -> BTreeMap<String, usize> {
        self.0.lock().unwrap().effects.clone()
    }
}

async fn take(
    State(shop): State<Shop>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Json<Value> {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (key, command) = (header("idempotency-key"), header("event-type"));
    assert!(!headers.contains_key("relais-handler"), "a header of relais stays in its tables");
    Json(shop.0.lock().unwrap().answer(&key, &command, &body))
}

impl Ledger {
    /// Orders whose number divides by 3 cannot be shipped; after one more they are shipped at the second
    /// request.
    fn answer(&mut self, key: &str, command: &str, body: &Value) -> Value {
        self.calls += 1;
        if let Some(stored) = self.answers.get(key) {
            return stored.clone();
        }
        let order = body["order"].as_u64().unwrap();
        let name = format!("{command} {order}");
        let answer = match (command, order % 3) {
            _ if self.parked.contains(&name) => {
                return json!({"outcome": "park", "code": "ASK", "message": "ask the customer"});
            }
            ("Ship", 0) => {
                json!({"outcome": "fail", "code": "STREET", "message": "no such street"})
            }
            ("Ship", 1) if *self.delayed.entry(name.clone()).or_default() == 0 => {
                self.delayed.insert(name, 1);
                return json!({"outcome": "retry", "code": "BUSY"});
            }
            ("Refund", _) => {
                assert_eq!(body["payment"], format!("p-{order}"), "the data of the first answer");
                json!({"outcome": "done"})
            }
            _ => json!({"outcome": "done", "data": {"paymentId": format!("p-{order}")}}),
        };
        if answer["outcome"] == "done" {
            *self.effects.entry(name).or_default() += 1;
        }
        self.answers.insert(key.to_owned(), answer.clone());
        answer
    }
}

fn settings(store: &str, handler: SocketAddr) -> String {
    format!(
        "[store]\nurl = \"{store}\"\n[lanes]\nlease = \"2s\"\n\
         [[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\n{ORDER}\
         [[handler]]\nname = \"shop\"\nkind = \"http\"\nurl = \"http://{handler}/relais\"\n\
         allow_private = true\n\
         [handler.retry]\nattempts = 100\nfirst = \"10ms\"\nmax = \"50ms\"\n\
         [handler.breaker]\nopen_for = \"100ms\"\n"
    )
}

const ORDER: &str = r#"
[[process]]
type = "order"
start = "OrderPlaced"
business_key = "payload:/order"
business_key_use = "while_open"

[[process.step]]
name = "payment"
handler = "shop"
command = "Charge"
payload = '{"order": {{/input/order}}}'
[process.step.compensation]
handler = "shop"
command = "Refund"
payload = '{"order": {{/input/order}}, "payment": {{/steps/payment/paymentId}}}'

[[process.step]]
name = "shipment"
handler = "shop"
command = "Ship"
payload = '{"order": {{/input/order}}}'
"#;

fn place(running: &Running, id: &str, order: usize) {
    let body = json!({"type": "OrderPlaced", "order": order}).to_string();
    let headers = [("message-id", id), ("content-type", "application/json")];
    let (status, answer) = send(running.address("hook"), "/hook", &headers, &body);
    assert_eq!(status, 202, "{answer}");
}

/// Returns the number of processes by status.
fn statuses(site: &Site) -> BTreeMap<String, usize> {
    let list = site.json(&["process", "list", "--limit", "500"]);
    let list = list.as_array().or_else(|| list["items"].as_array()).unwrap();
    let mut statuses = BTreeMap::new();
    for process in list {
        *statuses.entry(process["status"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    statuses
}

fn survives(store: &str) {
    let shop = Shop::default();
    let proxy = ReplyDropper::before(shop.start());
    let site = Site::with(&settings(store, proxy.address));
    let running = site.run();
    (0..ORDERS).for_each(|order| place(&running, &format!("m-{order}"), order));
    running.stop();

    let started = Instant::now();
    let mut seen = shop.0.lock().unwrap().calls;
    let expected = BTreeMap::from([
        ("COMPENSATED".to_owned(), ORDERS / 3),
        ("SUCCEEDED".to_owned(), ORDERS - ORDERS / 3),
    ]);
    let kills = kill_until(
        &site,
        |node| {
            node.assert_alive();
            let calls = shop.0.lock().unwrap().calls;
            let works = calls > seen;
            seen = calls;
            works
        },
        || {
            let now = statuses(&site);
            assert!(started.elapsed() < 4 * PATIENCE, "{now:?}");
            now == expected
        },
    );
    println!("{kills:?}, {seen} calls");

    let mut effects = BTreeMap::new();
    for order in 0..ORDERS {
        let last = if order % 3 == 0 { "Refund" } else { "Ship" };
        effects.extend([(format!("Charge {order}"), 1), (format!("{last} {order}"), 1)]);
    }
    assert_eq!(shop.effects(), effects, "each effect once");
    assert!(proxy.calls().values().all(|calls| *calls >= 2), "every first reply was dropped");
    let letters = site.json(&["dead-letter", "list"]);
    assert_eq!(letters.as_array().or_else(|| letters["items"].as_array()).unwrap().len(), 0);
    for order in ["order/0", "order/1", "order/2"] {
        assert_said(&site.relais(&["process", "verify", order]), 0, &["lead to the stored state"]);
    }
}

#[test]
fn steps_of_a_handler_have_one_effect_while_replies_are_dropped_and_relais_is_killed_on_sqlite() {
    survives("sqlite:relais.db");
}

#[test]
fn steps_of_a_handler_have_one_effect_while_replies_are_dropped_and_relais_is_killed_on_postgres() {
    let Some(schema) = PostgresSchema::new() else { return };
    survives(&schema.url);
}

#[test]
fn a_parked_step_waits_for_an_operator_and_a_key_is_free_after_the_end() {
    let shop = Shop::default();
    shop.0.lock().unwrap().parked.push("Ship 2".to_owned());
    let site = Site::with(&settings("sqlite:relais.db", shop.start()));
    let running = site.run();
    place(&running, "m-1", 2);
    let letters = || {
        let letters = site.json(&["dead-letter", "list"]);
        letters.as_array().or_else(|| letters["items"].as_array()).unwrap().clone()
    };
    until("the command is a dead letter", || letters().len() == 1);
    assert_eq!(statuses(&site), BTreeMap::from([("RUNNING".to_owned(), 1)]));
    shop.0.lock().unwrap().parked.clear();
    let retried = site.relais(&["dead-letter", "retry", "--all", "--reason", "asked", "--yes"]);
    assert_eq!(retried.code, 0, "{}", retried.err);
    until("it succeeds", || statuses(&site) == BTreeMap::from([("SUCCEEDED".to_owned(), 1)]));
    // The same key again: another process, with effects of its own.
    place(&running, "m-2", 2);
    until("both succeed", || statuses(&site) == BTreeMap::from([("SUCCEEDED".to_owned(), 2)]));
    assert_eq!(shop.effects()["Charge 2"], 2);
    running.stop();
}

#[test]
fn steps_and_handlers_that_do_not_fit_are_refused_and_a_changed_row_is_found() {
    let text = settings("sqlite:relais.db", "127.0.0.1:9".parse().unwrap());
    let site = Site::with(&text.replace(
        "handler = \"shop\"\ncommand = \"Ship\"",
        "handler = \"shp\"\ncommand = \"Ship\"",
    ));
    let message = "no [[handler]] is named `shp`; did you mean `shop`?";
    assert_said(&site.relais(&["check"]), 2, &[message]);
    let both = text.replace("command = \"Ship\"", "command = \"Ship\"\ndestination = \"d\"");
    site.write("relais.toml", &both);
    assert_said(&site.relais(&["check"]), 2, &["give either `destination` or `handler`, not both"]);
    let replies = text.replace("command = \"Ship\"", "command = \"Ship\"\ncompleted = \"Shipped\"");
    site.write("relais.toml", &replies);
    let message = "completed: the answer of a handler is the reply; remove this key";
    assert_said(&site.relais(&["check"]), 2, &[message]);
    let unused = "[store]\nurl = \"sqlite:relais.db\"\n[[handler]]\nname = \"shop\"\nkind = \"http\"\n\
                  url = \"http://example.com\"\n";
    site.write("relais.toml", unused);
    assert_said(&site.relais(&["check"]), 2, &["no step of a process names this handler"]);

    let shop = Shop::default();
    site.write("relais.toml", &settings("sqlite:relais.db", shop.start()));
    let running = site.run();
    place(&running, "m-1", 2);
    until("it succeeds", || statuses(&site) == BTreeMap::from([("SUCCEEDED".to_owned(), 1)]));
    running.stop();
    let base = rusqlite::Connection::open(site.path("relais.db")).unwrap();
    base.execute("UPDATE relais_process SET data = replace(data, 'p-2', 'p-3')", []).unwrap();
    let said = site.relais(&["process", "verify", "order/2"]);
    assert_said(&said, 1, &["data", "p-2", "p-3"]);
}
