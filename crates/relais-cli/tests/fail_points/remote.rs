//! HTTP in, to a handler in another process, and its messages out to a target.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock},
};

use axum::{Json, Router, extract::State, http::HeaderMap, routing::post};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{harness::CrashHarness, http::letters, sink::Sink};

/// A service that remembers its calls and answers each with one message. It refuses `bad`.
#[derive(Clone, Default)]
struct Billing {
    /// Idempotency keys by message id.
    keys: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    /// The messages in the order of their first call.
    order: Arc<Mutex<Vec<String>>>,
}

impl Billing {
    fn start(&self) -> SocketAddr {
        self.listen(Router::new().route("/relais", post(answer)))
    }

    fn listen(&self, routes: Router<Self>) -> SocketAddr {
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        let runtime = RUNTIME.get_or_init(|| Runtime::new().unwrap());
        let app = routes.with_state(self.clone());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, app).await
        });
        address
    }
}

async fn answer(
    State(billing): State<Billing>,
    headers: HeaderMap,
    Json(event): Json<Value>,
) -> Json<Value> {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let id = event["id"].as_str().unwrap().to_owned();
    let mut keys = billing.keys.lock().unwrap();
    if !keys.contains_key(&id) {
        billing.order.lock().unwrap().push(id.clone());
    }
    keys.entry(id.clone()).or_default().push(header("idempotency-key"));
    if id == "bad" {
        return Json(json!({"outcome": "fail", "code": "BAD", "message": "on purpose"}));
    }
    let message = json!({"destination": "orders", "event_type": "Invoiced", "payload": {"id": id}});
    Json(json!({"outcome": "done", "messages": [message]}))
}

/// Each message is handled once, in the order of its key; a repeated call has the same idempotency key.
pub(crate) fn call_and_answer(harness: &mut CrashHarness) {
    let (billing, sink) = (Billing::default(), Sink::start(|_, _| 200));
    harness.settings(&format!(
        "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\naggregate_id = \"payload:/key\"\n\
         [[handler]]\nname = \"billing\"\nkind = \"http\"\non = \"Placed\"\nallow_private = true\n\
         url = \"http://{}/relais\"\ndestinations = [\"orders\"]\n\
         [handler.retry]\nfirst = \"10ms\"\nmax = \"20ms\"\n{}",
        billing.start(),
        sink.destination("orders", 5)
    ));
    for (id, key) in [("m-0", "a"), ("m-1", "b"), ("m-2", "a"), ("bad", "c"), ("m-3", "a")] {
        let body = json!({ "type": "Placed", "key": key, "id": id }).to_string();
        harness.post(&[("message-id", id)], &body);
    }
    harness.until("all arrive", |_| sink.accepted("id").len() == 4);
    harness.until("one is refused", |harness| letters(harness).len() == 1);
    harness.drain();
    harness.finish();

    let rows = "SELECT message_id || ' ' || status FROM relais_inbox WHERE source_system \
                = '@billing::shop' ORDER BY message_id";
    let expected =
        ["bad FAILED", "m-0 PROCESSED", "m-1 PROCESSED", "m-2 PROCESSED", "m-3 PROCESSED"];
    assert_eq!(harness.base.texts(rows), expected);
    assert_eq!(harness.base.texts("SELECT status FROM relais_outbox").len(), 4, "sent once");
    sink.assert_copies(harness.crashes);
    let (keys, order) =
        (billing.keys.lock().unwrap().clone(), billing.order.lock().unwrap().clone());
    let of_a: Vec<_> =
        order.iter().filter(|id| ["m-0", "m-2", "m-3"].contains(&id.as_str())).collect();
    assert_eq!(of_a, ["m-0", "m-2", "m-3"], "the order of a key");
    let mut all = BTreeSet::new();
    for (id, keys) in keys {
        assert!(keys.len() <= 1 + harness.crashes, "{id}: {keys:?}");
        assert!(keys.iter().all(|key| *key == keys[0]), "{id}: {keys:?}");
        all.insert(keys[0].clone());
    }
    assert_eq!(all.len(), 5, "one idempotency key for each message");
}

/// Carries out the steps of orders: each effect once, by idempotency key. It cannot ship `bad`.
async fn carry_out(
    State(billing): State<Billing>,
    headers: HeaderMap,
    Json(order): Json<Value>,
) -> Json<Value> {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let command = format!("{} {}", header("event-type"), order["id"].as_str().unwrap());
    let mut keys = billing.keys.lock().unwrap();
    keys.entry(command.clone()).or_default().push(header("idempotency-key"));
    if command == "Ship bad" {
        return Json(json!({"outcome": "fail", "code": "NO_STREET", "message": "on purpose"}));
    }
    Json(json!({"outcome": "done", "data": {"receipt": command}}))
}

/// Each process ends once, each answer resumes its process once, and every call of a step has the same key.
pub(crate) fn steps(harness: &mut CrashHarness) {
    let shop = Billing::default();
    let address = shop.listen(Router::new().route("/relais", post(carry_out)));
    let step = |name: &str, command: &str, more: &str| {
        format!(
            "[[process.step]]\nname = \"{name}\"\nhandler = \"shop\"\ncommand = \"{command}\"\n\
             payload = '{{\"id\":{{{{/input/id}}}}}}'\n{more}"
        )
    };
    harness.settings(&format!(
        "[[source]]\nname = \"hook\"\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\n\
         source_system = \"shop\"\n\
         [[process]]\ntype = \"order\"\nstart = \"Placed\"\nbusiness_key = \"payload:/id\"\n{}{}\
         [[handler]]\nname = \"shop\"\nkind = \"http\"\nallow_private = true\n\
         url = \"http://{address}/relais\"\n[handler.retry]\nfirst = \"10ms\"\nmax = \"20ms\"\n",
        step(
            "payment",
            "Pay",
            "[process.step.compensation]\nhandler = \"shop\"\ncommand = \"Refund\"\n\
             payload = '{\"id\":{{/input/id}},\"of\":{{/steps/payment/receipt}}}'\n"
        ),
        step("shipment", "Ship", "")
    ));
    for id in ["o-1", "bad"] {
        let body = json!({ "type": "Placed", "id": id }).to_string();
        harness.post(&[("message-id", id)], &body);
    }
    let ended = "SELECT status FROM relais_process WHERE status IN ('SUCCEEDED', 'COMPENSATED')";
    harness.until("both end", |harness| harness.base.texts(ended).len() == 2);
    harness.drain();
    harness.finish();

    let states = "SELECT business_key || ' ' || status FROM relais_process ORDER BY business_key";
    assert_eq!(harness.base.texts(states), ["bad COMPENSATED", "o-1 SUCCEEDED"]);
    assert!(harness.base.texts("SELECT message_id FROM relais_dead_letter").is_empty());
    let log = "SELECT CAST(count(*) AS TEXT) FROM relais_process_log WHERE event_type IN \
               ('StepCompleted', 'StepFailed', 'CompensationCompleted')";
    assert_eq!(harness.base.texts(log), ["5"], "one reply for each command");
    let keys = shop.keys.lock().unwrap().clone();
    let commands: Vec<&str> = keys.keys().map(String::as_str).collect();
    assert_eq!(commands, ["Pay bad", "Pay o-1", "Refund bad", "Ship bad", "Ship o-1"]);
    let mut all = BTreeSet::new();
    for (command, keys) in keys {
        assert!(keys.len() <= 1 + harness.crashes, "{command}: {keys:?}");
        assert!(keys.iter().all(|key| *key == keys[0]), "{command}: {keys:?}");
        all.insert(keys[0].clone());
    }
    assert_eq!(all.len(), 5, "one idempotency key for each step");
}
