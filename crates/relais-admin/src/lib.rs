//! The HTTP side of a running relais: `/healthz`, `/readyz`, `/metrics` and the API under `/api/v1`.
//!
//! Invariant: no row is changed but by a decision of the engine's operator or desk, made for a person who
//! is named, with a reason, and recorded by it. On an address other than loopback a token is required.
//!
//! - here: what is served, and the pages that need no API
//! - `access`: who may ask; `input`: what they said; `problem`: what is wrong with it
//! - `api`: the calls
//! - `metrics`: the page for Prometheus

mod access;
mod api;
mod input;
mod metrics;
mod problem;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::get,
};
use relais::{desk::Desk, observe::Observer, process::Operator};
use relais_core::{
    process::ProcessRef,
    query::Overview,
    store::{Store, StoreError},
};
use serde::Serialize;
use serde_json::json;
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
    operator: Operator,
    desk: Desk,
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

/// What people act through.
#[derive(Clone, Debug)]
pub struct People {
    /// On processes.
    pub operator: Operator,
    /// On dead letters.
    pub desk: Desk,
}

/// A process by its id, or as `TYPE/BUSINESS-KEY`.
pub fn process_ref(text: &str) -> Result<ProcessRef, String> {
    if let Ok(id) = text.parse() {
        return Ok(ProcessRef::Id(id));
    }
    let (process_type, business_key) = text
        .split_once('/')
        .filter(|(process_type, key)| !process_type.is_empty() && !key.is_empty())
        .ok_or_else(|| format!("`{text}` is not the id of a process, nor TYPE/BUSINESS-KEY"))?;
    Ok(ProcessRef::Key { process_type: process_type.into(), business_key: business_key.into() })
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}

impl Admin {
    /// Serves what `people` may look at and do; with a token, only to those who have it.
    pub fn new(
        store: Arc<dyn Store>,
        observer: Arc<Observer>,
        people: People,
        token: Option<String>,
    ) -> Self {
        let People { operator, desk } = people;
        let (losses, usage) = (Vec::new(), Vec::new());
        Self { store, observer, operator, desk, token, losses, usage, overview: Arc::default() }
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
        let with_token = from_fn_with_state(self.clone(), access::with_token);
        let to_api = from_fn_with_state(self.clone(), access::to_api);
        Router::new()
            .route("/healthz", get(health))
            .route("/readyz", get(ready))
            .route("/metrics", get(show_metrics).layer(with_token))
            .nest("/api/v1", api::router().layer(to_api))
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

async fn show_metrics(State(admin): State<Admin>) -> Response {
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
