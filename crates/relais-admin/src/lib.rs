//! The HTTP server of a running relais: the console at `/`, the API under `/api/v1`, `/healthz`, `/readyz`
//! and `/metrics`.
//!
//! Invariant: rows change only by a decision of the engine's operator or dead-letter service, which records
//! a named actor and a reason. On an address other than loopback a token is required.
//!
//! - this file: the parts and the router; `serve`: the listener, which answers probes first; `mount`: nesting in another router
//! - `routes`: the table of API routes with their roles; `openapi`: the OpenAPI document
//! - `access`: authentication by [`AdminToken`] or `session`; `login`: log-in and log-out; `headers`: security
//!   headers of every response
//! - `redact`: hides payloads from tokens that may not see them
//! - `input`: query, path and body of requests; `problem`: error responses
//! - `api`: the handlers; `sample`: figures counted in the background; `fleet`: figures of all processes
//! - `console`: the files of the web console
//! - `health`: liveness and readiness; `metrics`: the page for Prometheus

#![warn(missing_docs)]

mod access;
mod api;
mod console;
mod fleet;
mod headers;
mod health;
mod input;
mod login;
pub mod metrics;
mod mount;
mod openapi;
mod problem;
mod redact;
mod role;
mod routes;
mod sample;
mod serve;
mod session;
mod throttle;
mod token;

use std::{io, net::SocketAddr, ops::Deref, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::header,
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use relais::{
    dead_letters::DeadLetters, observe::Observer, process::Operator, repair::DeclaredSource,
};
use relais_core::{
    control::ControlKind,
    store::{StoreDriver, StoreError},
};
use serde::Serialize;
use tokio::sync::{Semaphore, SemaphorePermit};

use self::{
    api::live::STREAMS_MAX,
    sample::{Sampler, StoreCount},
    throttle::Throttle,
};
pub use self::{
    health::{DestinationInfo, ServerFacts},
    mount::router,
    role::Role,
    serve::AdminListener,
    session::SessionKey,
    token::{AdminToken, SHARED_NAME},
};
pub use relais::observe::{AskSource, SourceState};
pub use relais_listen::Tls;

/// A store that does not answer within this time counts as unavailable: probes and scrapes have short
/// time-outs.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Most whole payloads read at once.
const DOWNLOADS_MAX: usize = 4;

/// The state of the server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Admin(Arc<AdminInner>);

pub(crate) struct AdminInner {
    parts: AdminParts,
    sampler: Sampler,
    throttle: Throttle,
    /// Limits log-ins, whose bodies are read before any token is checked.
    log_ins: Semaphore,
    /// Limits event streams.
    seats: Arc<Semaphore>,
    downloads: Semaphore,
}

/// The parts of the server: the data that it shows, and the tokens that may see it.
pub struct AdminParts {
    /// The store whose rows are shown.
    pub store: Arc<dyn StoreDriver>,
    /// The counters of this process.
    pub observer: Arc<Observer>,
    /// Acts on processes.
    pub operator: Operator,
    /// Acts on dead letters.
    pub dead_letters: DeadLetters,
    /// The configured sources, whose decoders reprocess undecodable rows.
    pub declared: Vec<DeclaredSource>,
    /// If empty, every caller on this machine has the role admin.
    pub tokens: Vec<AdminToken>,
    /// The key that signs session cookies.
    pub session_key: SessionKey,
    /// Serves `/metrics` without a token; all other paths need one.
    pub open_metrics: bool,
    /// The sources, as they are shown.
    pub sources: Vec<SourceInfo>,
    /// Limits by name of the destination.
    pub limits: Vec<(String, DestinationLimits)>,
    /// The effective configuration of sources and destinations.
    pub configuration: Vec<Configuration>,
    /// The facts of this process.
    pub facts: ServerFacts,
    /// State at the origin, by name of the source.
    pub states: Vec<(String, AskSource)>,
    /// Used API calls, by name of the destination.
    pub usage: Vec<(String, ApiUsage)>,
}

/// The name and kind of a source.
#[derive(Clone, Debug)]
pub struct SourceInfo {
    /// The name of the source.
    pub name: String,
    /// The kind of connector.
    pub kind: &'static str,
}

/// The effective configuration of a destination or a source, for the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Source or destination.
    pub kind: ControlKind,
    /// Its name.
    pub name: String,
    /// One line per setting, defaults included, without secrets.
    pub lines: Vec<String>,
}

/// The configured limits of a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DestinationLimits {
    /// As in the configuration: `50/s`.
    pub rate: Option<String>,
    /// Most calls in flight at once.
    pub concurrency: u32,
    /// Time limit of one call.
    pub timeout_ms: u64,
}

/// API calls of the day, as the target counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CallsUsed {
    /// Used calls.
    pub used: u64,
    /// Most calls.
    pub limit: u64,
}

/// A function that returns the used API calls of a destination; `None` before its first response.
pub type ApiUsage = Arc<dyn Fn() -> Option<CallsUsed> + Send + Sync>;

/// Binds the address. The returned future serves until it is dropped.
pub async fn bind(
    parts: AdminParts,
    listen: SocketAddr,
) -> io::Result<(SocketAddr, impl Future<Output = io::Result<()>> + Send)> {
    bind_with(parts, listen, None).await
}

/// Binds the address as [`bind`] does, with TLS if there is a certificate.
pub async fn bind_with(
    parts: AdminParts,
    listen: SocketAddr,
    tls: Option<Tls>,
) -> io::Result<(SocketAddr, impl Future<Output = io::Result<()>> + Send)> {
    let listener = AdminListener::bind(listen, tls, &parts.tokens).await?;
    Ok((listener.address(), listener.serve(parts)))
}

impl std::fmt::Debug for AdminParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminParts").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Deref for Admin {
    type Target = AdminInner;

    fn deref(&self) -> &AdminInner {
        &self.0
    }
}

impl Deref for AdminInner {
    type Target = AdminParts;

    fn deref(&self) -> &AdminParts {
        &self.parts
    }
}

impl Admin {
    fn new(parts: AdminParts) -> Self {
        Self(Arc::new(AdminInner {
            parts,
            sampler: Sampler::new(),
            throttle: Throttle::default(),
            log_ins: Semaphore::new(login::AT_ONCE),
            seats: Arc::new(Semaphore::new(STREAMS_MAX)),
            downloads: Semaphore::new(DOWNLOADS_MAX),
        }))
    }

    /// Builds the router of all routes.
    fn router(&self) -> Router {
        let known = from_fn_with_state(self.clone(), access::identify);
        let metrics = match self.open_metrics {
            true => get(show_metrics),
            false => get(show_metrics).route_layer(known.clone()),
        };
        Router::new()
            .route("/metrics", metrics)
            .route("/api/openapi.json", get(openapi::show).route_layer(known.clone()))
            .nest(routes::PREFIX, routes::router().layer(known))
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .route("/login", post(login::login).layer(DefaultBodyLimit::max(login::BODY_MAX)))
            .route("/logout", post(login::logout))
            .merge(console::router())
            .fallback(api::nothing_there)
            .method_not_allowed_fallback(api::wrong_method_there)
            .layer(from_fn(headers::add))
            .with_state(self.clone())
    }

    /// Waits for a permit to read a whole payload.
    pub(crate) async fn room(&self) -> Option<SemaphorePermit<'_>> {
        self.downloads.acquire().await.ok()
    }

    /// Returns the rows as they were last counted.
    fn counted(&self) -> Option<StoreCount> {
        self.sampler.counted().ok()
    }

    /// Returns the used API calls by destination, if known.
    fn used(&self) -> impl Iterator<Item = (&str, CallsUsed)> {
        self.usage.iter().filter_map(|(name, ask)| Some((name.as_str(), ask()?)))
    }
}

/// Returns the store's answer, or an error after [`ANSWER_MAX`]. The work runs in its own task and is not
/// cancelled.
async fn soon<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let late = || format!("no answer from the database within {ANSWER_MAX:?}");
    match tokio::time::timeout(ANSWER_MAX, tokio::spawn(work)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(ended)) => Err(StoreError::unavailable(ended.to_string())),
        Err(_) => Err(StoreError::unavailable(late())),
    }
}

async fn show_metrics(State(admin): State<Admin>) -> Response {
    // The counters of this process are served without the store, too.
    let counted = admin.counted();
    let sources: Vec<_> = admin.states.iter().map(|(name, ask)| (name.as_str(), ask())).collect();
    let usage: Vec<_> = admin.used().collect();
    let text = metrics::render_page(&metrics::MetricsInput {
        overview: counted.as_ref().map(|counted| &counted.overview),
        rows_age: counted.as_ref().map(|counted| counted.begun.elapsed()),
        controls: counted.as_ref().map_or(&[][..], |counted| &counted.controls),
        process_types: &admin.observer.figures().process_types,
        snapshot: &admin.observer.snapshot(),
        facts: &admin.facts,
        sources: &sources,
        usage: &usage,
    });
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

#[cfg(any(doc, doctest))]
pub mod guide;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_database_that_hangs_is_reported_instead_of_waited_for() {
        let error = soon(std::future::pending::<Result<(), StoreError>>()).await.unwrap_err();
        assert!(error.to_string().contains("no answer from the database within 3s"), "{error}");
    }
}
