//! The target: an HTTP service that fails at times, refuses poison messages, and keeps a ledger of its effects.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};

use super::plan::{POISON, mix};

/// Percentage of calls that fail without effect.
const FAILS: u64 = 5;
/// Percentage of calls that take effect and then fail, as if the reply were lost.
const LOSES_REPLY: u64 = 4;

pub(super) struct DemoTarget {
    seed: u64,
    ledger: Mutex<TargetLedger>,
}

/// The effects at the target.
#[derive(Default)]
pub(super) struct TargetLedger {
    calls: u64,
    /// Number of arrivals by message id.
    copies: HashMap<String, u64>,
    /// The last step applied to each order.
    steps: HashMap<String, u64>,
    down_until: Option<Instant>,
    /// Sum of cents, each message counted once by its id.
    pub(super) cents: u64,
    pub(super) failures: u64,
    /// Steps that arrived before their predecessor.
    pub(super) out_of_order: u64,
}

impl TargetLedger {
    pub(super) fn distinct(&self) -> u64 {
        self.copies.len() as u64
    }

    pub(super) fn extra_copies(&self) -> u64 {
        self.copies.values().map(|n| n - 1).sum()
    }

    /// Applies a new message; returns `None` for an invalid one.
    fn apply(&mut self, id: &str, body: &[u8]) -> Option<()> {
        let event: serde_json::Value = serde_json::from_slice(body).ok()?;
        let order = event["order"].as_str()?;
        let (step, cents) = (event["step"].as_u64()?, event["cents"].as_u64()?);
        if order.starts_with(POISON) {
            // Operators may decide about these, so they are in no sum.
            return Some(());
        }
        let copies = self.copies.entry(id.to_owned()).or_default();
        *copies += 1;
        if *copies > 1 {
            return Some(());
        }
        let last = self.steps.entry(order.to_owned()).or_default();
        self.out_of_order += u64::from(step != *last + 1);
        *last = step;
        self.cents += cents;
        Some(())
    }
}

impl DemoTarget {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ledger: Mutex::default() }
    }

    pub(super) async fn listen(self: Arc<Self>) -> io::Result<SocketAddr> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/", post(receive)).with_state(self);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(address)
    }

    /// Answers 503 for a while.
    pub(super) fn go_down(&self, pause: Duration) {
        self.ledger().down_until = Some(Instant::now() + pause);
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, TargetLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn receive(
    State(target): State<Arc<DemoTarget>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let id = headers.get("idempotency-key").and_then(|value| value.to_str().ok());
    let Some(id) = id else { return StatusCode::BAD_REQUEST };
    let mut ledger = target.ledger();
    if ledger.down_until.is_some_and(|until| Instant::now() < until) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    ledger.calls += 1;
    let dice = mix(target.seed, ledger.calls, 3) % 100;
    if dice < FAILS {
        ledger.failures += 1;
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    if ledger.apply(id, &body).is_none() {
        return StatusCode::UNPROCESSABLE_ENTITY;
    }
    if dice < FAILS + LOSES_REPLY {
        ledger.failures += 1;
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    StatusCode::OK
}
