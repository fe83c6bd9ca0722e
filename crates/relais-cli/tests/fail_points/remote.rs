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
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        let runtime = RUNTIME.get_or_init(|| Runtime::new().unwrap());
        let app = Router::new().route("/relais", post(answer)).with_state(self.clone());
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
