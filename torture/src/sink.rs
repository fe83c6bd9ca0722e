//! The target: writes down what arrives, and now and then is not well.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use anyhow::Result;
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use tokio::net::TcpListener;

use crate::{event_log::EventLog, history::Arrivals, rng::Rng};

/// Of a hundred calls, while the target is unwell: refused before anything happened.
const BUSY_PERCENT: u64 = 1;

/// The target of every message.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    pub(crate) arrivals: Arc<Arrivals>,
    /// Set once the run has started.
    pub(crate) event_log: Arc<OnceLock<EventLog>>,
    rng: Arc<Mutex<Rng>>,
    well: Arc<AtomicBool>,
    busy: Arc<AtomicU64>,
}

impl Sink {
    /// Begins to listen; unwell until [`Sink::recover`].
    pub(crate) async fn start(rng: Rng) -> Result<(Self, SocketAddr)> {
        let sink = Self {
            arrivals: Arc::default(),
            event_log: Arc::default(),
            rng: Arc::new(Mutex::new(rng)),
            well: Arc::default(),
            busy: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/sink", post(take)).with_state(sink.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((sink, address))
    }

    pub(crate) fn recover(&self) {
        self.well.store(true, Relaxed);
    }

    /// Returns the number of refused calls.
    pub(crate) fn busy(&self) -> u64 {
        self.busy.load(Relaxed)
    }
}

async fn take(State(sink): State<Sink>, headers: HeaderMap, body: String) -> StatusCode {
    let unwell = !sink.well.load(Relaxed)
        && sink.rng.lock().expect("the lock is not poisoned").percent(BUSY_PERCENT);
    if unwell {
        sink.busy.fetch_add(1, Relaxed);
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let body: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let id = headers.get("message-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let name = body["name"].as_str().unwrap_or_default();
    if let Some(event_log) = sink.event_log.get() {
        event_log.note(format_args!("arrives {name} as {id}"));
    }
    sink.arrivals.note(name, id);
    StatusCode::OK
}
