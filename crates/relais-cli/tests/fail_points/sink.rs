//! An HTTP target that records requests in their order and answers by a script.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::Value;
use tokio::runtime::Runtime;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) message_id: String,
    pub(crate) process_id: String,
    pub(crate) event_type: String,
    pub(crate) body: Value,
    pub(crate) status: u16,
}

/// Returns the answer to a request, by the requests before it.
type Answer = fn(&[Seen], &Seen) -> u16;

#[derive(Clone)]
pub(crate) struct Sink {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    seen: Mutex<Vec<Seen>>,
    answer: Answer,
}

impl Sink {
    /// Listens until the test ends.
    pub(crate) fn start(answer: Answer) -> Self {
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        let runtime = RUNTIME.get_or_init(|| Runtime::new().unwrap());
        let shared = Arc::new(Shared { seen: Mutex::default(), answer });
        let app = Router::new().route("/in", post(take)).with_state(Arc::clone(&shared));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, app).await
        });
        Self { address, shared }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Returns accepted messages once each, in the order of their first arrival, by a field of the body.
    pub(crate) fn accepted(&self, field: &str) -> Vec<String> {
        let mut firsts: Vec<(String, String)> = Vec::new();
        for seen in self.seen().into_iter().filter(|seen| seen.status == 200) {
            let name = seen.body[field].as_str().unwrap().to_owned();
            match firsts.iter().find(|(first, _)| *first == name) {
                Some((_, id)) => assert_eq!(*id, seen.message_id, "two messages of {name}"),
                None => firsts.push((name, seen.message_id)),
            }
        }
        firsts.into_iter().map(|(name, _)| name).collect()
    }

    /// Checks that no message was accepted more often than crashes can explain.
    pub(crate) fn assert_copies(&self, crashes: usize) {
        let mut copies: HashMap<String, usize> = HashMap::new();
        for seen in self.seen().into_iter().filter(|seen| seen.status == 200) {
            *copies.entry(seen.message_id).or_default() += 1;
        }
        assert!(
            copies.values().all(|count| *count <= 1 + crashes),
            "{crashes} crashes: {copies:?}"
        );
    }

    /// A destination of this name in the settings.
    pub(crate) fn destination(&self, name: &str, attempts: usize) -> String {
        format!(
            "[[destination]]\nname = \"{name}\"\nkind = \"http\"\nallow_private = true\n\
             url = \"http://{}/in\"\n\
             [destination.retry]\nattempts = {attempts}\nfirst = \"10ms\"\nmax = \"20ms\"\n\
             [destination.breaker]\nopen_for = \"100ms\"\n",
            self.address
        )
    }
}

async fn take(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: String) -> StatusCode {
    let header = |name: &str| {
        let found = headers.get(name).and_then(|value| value.to_str().ok());
        found.unwrap_or_default().to_owned()
    };
    let mut new = Seen {
        message_id: header("message-id"),
        process_id: header("correlation-id"),
        event_type: header("event-type"),
        body: serde_json::from_str(&body).unwrap(),
        status: 0,
    };
    let mut seen = shared.seen.lock().unwrap();
    new.status = (shared.answer)(&seen, &new);
    let status = StatusCode::from_u16(new.status).unwrap();
    seen.push(new);
    status
}
