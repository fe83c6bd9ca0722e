//! The HTTP side of a running relais: `/healthz`, `/readyz`, `/metrics` and, for `relais status`,
//! `/api/v1/destinations`.
//!
//! Invariant: nothing here changes a row. On an address other than loopback a token is required.

mod metrics;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use relais::observe::{DestinationSnapshot, Observer};
use relais_core::{
    query::Overview,
    store::{Store, StoreError},
};
use serde::Serialize;
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio::{net::TcpListener, sync::Mutex};

/// The store is counted at most this often, however often it is scraped.
const OVERVIEW_EVERY: Duration = Duration::from_secs(5);
/// A store that does not answer within this is as good as away: probes and scrapes have short limits.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// What the pages show.
#[derive(Clone)]
pub struct Admin {
    store: Arc<dyn Store>,
    observer: Arc<Observer>,
    token: Option<String>,
    losses: Vec<(String, Losses)>,
    usage: Vec<(String, ApiUsage)>,
    overview: Arc<Mutex<Option<(Instant, Overview)>>>,
}

/// What a source lost at its origin, before relais could read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceLosses {
    /// Records that were deleted before they were read.
    pub missed: u64,
    /// How often a partition was found deleted and made again.
    pub recreated: u64,
}

/// Asks a source for its losses.
pub type Losses = Arc<dyn Fn() -> SourceLosses + Send + Sync>;

/// Calls of a day, as a target counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CallsUsed {
    pub used: u64,
    pub limit: u64,
}

/// Asks a destination how much of its calls is used; `None` before its first answer.
pub type ApiUsage = Arc<dyn Fn() -> Option<CallsUsed> + Send + Sync>;

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}

impl Admin {
    pub fn new(store: Arc<dyn Store>, observer: Arc<Observer>, token: Option<String>) -> Self {
        let (losses, usage) = (Vec::new(), Vec::new());
        Self { store, observer, token, losses, usage, overview: Arc::default() }
    }

    /// Shows what these sources lost, by their names.
    #[must_use]
    pub fn losses(mut self, losses: Vec<(String, Losses)>) -> Self {
        self.losses = losses;
        self
    }

    /// Shows what is used of the calls these destinations may make, by their names.
    #[must_use]
    pub fn usage(mut self, usage: Vec<(String, ApiUsage)>) -> Self {
        self.usage = usage;
        self
    }

    /// Binds the address; the returned future serves until it is dropped.
    pub async fn bind(
        self,
        listen: SocketAddr,
    ) -> io::Result<(SocketAddr, impl Future<Output = io::Result<()>> + Send)> {
        if !listen.ip().is_loopback() && self.token.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "an admin address other than loopback needs `admin.token`",
            ));
        }
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let router = self.router();
        Ok((address, async move { axum::serve(listener, router).await }))
    }

    /// The routes, as a table.
    pub fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(health))
            .route("/readyz", get(ready))
            .route("/metrics", get(show_metrics))
            .route("/api/v1/destinations", get(show_destinations))
            .with_state(self)
    }

    async fn overview(&self) -> Result<Overview, StoreError> {
        let mut cached = self.overview.lock().await;
        if let Some((at, overview)) = &*cached
            && at.elapsed() < OVERVIEW_EVERY
        {
            return Ok(overview.clone());
        }
        let store = Arc::clone(&self.store);
        let overview = soon(async move { store.overview().await }).await?;
        *cached = Some((Instant::now(), overview.clone()));
        Ok(overview)
    }

    /// By destination, where it is known.
    fn used(&self) -> impl Iterator<Item = (&str, CallsUsed)> {
        self.usage.iter().filter_map(|(name, ask)| Some((name.as_str(), ask()?)))
    }

    fn allows(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        given.as_bytes().ct_eq(token.as_bytes()).into()
    }
}

/// The process is alive.
async fn health() -> Json<serde_json::Value> {
    Json(json!({ "status": "ok" }))
}

/// The store answers and fits this program, or why not.
async fn ready(State(admin): State<Admin>) -> Response {
    match soon(async move { admin.store.check().await }).await {
        Ok(()) => Json(json!({ "ready": true })).into_response(),
        Err(error) => {
            let body = json!({ "ready": false, "reason": error.to_string() });
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
    }
}

/// The store's answer, if it comes soon. The work goes on in a task of its own: nobody cancels it.
async fn soon<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let late = || format!("no answer from the database within {ANSWER_MAX:?}");
    match tokio::time::timeout(ANSWER_MAX, tokio::spawn(work)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(ended)) => Err(StoreError::Unavailable(ended.to_string())),
        Err(_) => Err(StoreError::Unavailable(late())),
    }
}

fn unauthorized() -> Response {
    let body =
        json!({ "error": "unauthorized", "message": "send `Authorization: Bearer <token>`" });
    (StatusCode::UNAUTHORIZED, Json(body)).into_response()
}

/// The guards of each destination as this process sees them.
async fn show_destinations(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    if !admin.allows(&headers) {
        return unauthorized();
    }
    let usage: BTreeMap<&str, CallsUsed> = admin.used().collect();
    let snapshot = admin.observer.snapshot();
    let shown = snapshot.destinations.into_iter().map(|(name, counters)| {
        let guards = Guards { calls: usage.get(name.as_str()).copied(), counters };
        (name, guards)
    });
    Json(shown.collect::<BTreeMap<String, Guards>>()).into_response()
}

#[derive(Serialize)]
struct Guards {
    /// Of the day, by everybody who uses the target.
    calls: Option<CallsUsed>,
    #[serde(flatten)]
    counters: DestinationSnapshot,
}

async fn show_metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    if !admin.allows(&headers) {
        return unauthorized();
    }
    // Without the store the counters of this process are still worth showing.
    let overview = admin.overview().await.ok();
    let losses: Vec<_> = admin.losses.iter().map(|(name, ask)| (name.as_str(), ask())).collect();
    let usage: Vec<_> = admin.used().collect();
    let text = metrics::render(overview.as_ref(), &admin.observer.snapshot(), &losses, &usage);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_database_that_hangs_is_reported_instead_of_waited_for() {
        let error = soon(std::future::pending::<Result<(), StoreError>>()).await.unwrap_err();
        assert!(error.to_string().contains("no answer from the database within 3s"), "{error}");
    }
}
