//! The HTTP side of a running relais: the console at `/`, the API under `/api/v1`, `/healthz`, `/readyz` and
//! `/metrics`.
//!
//! Invariant: no row is changed but by a decision of the engine's operator or desk, made for a person who
//! is named, with a reason, and recorded by it. On an address other than loopback a token is required.
//!
//! - here: what is served; `serve`: how, over `relais-listen`; `mount`: in another router
//! - `routes`: every call of the API with who may make it; `openapi`: its description
//! - `access`: who asks, by [`Token`] or by `session`; `login`: how one begins; `headers`: what every
//!   answer tells a browser
//! - `redact`: what those do not see who may not see payloads
//! - `input`: what they said; `problem`: what is wrong with it
//! - `api`: the calls; `sample`: the numbers they show, counted beforehand; `fleet`: those of all processes
//! - `console`: the files of the web console
//! - `health`: whether this process can work; `metrics`: the page for Prometheus

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
use relais::{desk::Desk, observe::Observer, process::Operator, repair::Declared};
use relais_core::{
    control::ControlKind,
    process::ProcessRef,
    store::{Store, StoreError},
};
use serde::Serialize;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, SemaphorePermit},
};

use self::{
    api::live::STREAMS_MAX,
    sample::{Counted, Sampler},
    throttle::Throttle,
};
pub use self::{
    health::{Facts, Target},
    mount::router,
    role::Role,
    session::SessionKey,
    token::{SHARED_NAME, Token},
};
pub use relais_listen::Tls;

/// A store that does not answer within this is as good as away: probes and scrapes have short limits.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Whole payloads read at once.
const DOWNLOADS_MAX: usize = 4;

/// What is served. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Admin(Arc<Inner>);

pub(crate) struct Inner {
    parts: Parts,
    sampler: Sampler,
    throttle: Throttle,
    /// For log-ins, whose bodies arrive before any token is checked.
    log_ins: Semaphore,
    /// For streams.
    seats: Arc<Semaphore>,
    downloads: Semaphore,
}

/// What the pages show, and who may see them.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub observer: Arc<Observer>,
    /// Acts on processes.
    pub operator: Operator,
    /// Acts on dead letters.
    pub desk: Desk,
    /// The sources as they are declared now, by which rows are read again.
    pub declared: Vec<Declared>,
    /// Without any, everybody on this machine may do everything.
    pub tokens: Vec<Token>,
    pub session_key: SessionKey,
    /// Whether `/metrics` is answered without a token; nothing else is.
    pub open_metrics: bool,
    pub sources: Vec<SourceInfo>,
    /// By the names of destinations.
    pub limits: Vec<(String, DestinationLimits)>,
    pub configuration: Vec<Configuration>,
    pub facts: Facts,
    /// What sources know of their origins, by their names.
    pub states: Vec<(String, AskSource)>,
    /// What is used of the calls destinations may make, by their names.
    pub usage: Vec<(String, ApiUsage)>,
}

/// A source, for people.
#[derive(Clone, Debug)]
pub struct SourceInfo {
    pub name: String,
    pub kind: &'static str,
}

/// The effective configuration of a destination or a source, for the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub kind: ControlKind,
    pub name: String,
    /// Defaults included, without secrets.
    pub lines: Vec<String>,
}

/// What the settings allow a destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DestinationLimits {
    /// As it is written: `50/s`.
    pub rate: Option<String>,
    /// Calls under way at once.
    pub concurrency: u32,
    /// The longest one call may take.
    pub timeout_ms: u64,
}

/// What a source knows of its origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Records that were deleted before they were read.
    pub missed: u64,
    /// How often a partition was found deleted and made again.
    pub recreated: u64,
    /// Records that wait to be read, where that is known.
    pub lag: Option<u64>,
    /// Whether it has a connection, where that is known.
    pub connected: Option<bool>,
}

/// Asks a source what it knows of its origin.
pub type AskSource = Arc<dyn Fn() -> SourceState + Send + Sync>;

/// Calls of a day, as a target counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CallsUsed {
    pub used: u64,
    pub limit: u64,
}

/// Asks a destination how much of its calls is used; `None` before its first answer.
pub type ApiUsage = Arc<dyn Fn() -> Option<CallsUsed> + Send + Sync>;

/// Binds the address; the returned future serves until it is dropped.
pub async fn bind(
    parts: Parts,
    listen: SocketAddr,
) -> io::Result<(SocketAddr, impl Future<Output = io::Result<()>> + Send)> {
    bind_with(parts, listen, None).await
}

/// The same, encrypted if there is a certificate.
pub async fn bind_with(
    parts: Parts,
    listen: SocketAddr,
    tls: Option<Tls>,
) -> io::Result<(SocketAddr, impl Future<Output = io::Result<()>> + Send)> {
    if !listen.ip().is_loopback() && parts.tokens.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "an admin address other than loopback needs `admin.token` or `[[admin.tokens]]`",
        ));
    }
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let admin = Admin::new(parts);
    let router = admin.router();
    Ok((address, async move {
        tokio::select! {
            () = serve::serve(listener, router, tls) => Ok(()),
            never = Sampler::run(admin) => match never {},
        }
    }))
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

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Deref for Admin {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Deref for Inner {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Admin {
    fn new(parts: Parts) -> Self {
        Self(Arc::new(Inner {
            parts,
            sampler: Sampler::new(),
            throttle: Throttle::default(),
            log_ins: Semaphore::new(login::AT_ONCE),
            seats: Arc::new(Semaphore::new(STREAMS_MAX)),
            downloads: Semaphore::new(DOWNLOADS_MAX),
        }))
    }

    /// The routes, as a table.
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

    /// Waits until a whole payload may be read.
    pub(crate) async fn room(&self) -> Option<SemaphorePermit<'_>> {
        self.downloads.acquire().await.ok()
    }

    /// The rows as they were last counted.
    fn counted(&self) -> Option<Counted> {
        self.sampler.counted().ok()
    }

    /// By destination, where it is known.
    fn used(&self) -> impl Iterator<Item = (&str, CallsUsed)> {
        self.usage.iter().filter_map(|(name, ask)| Some((name.as_str(), ask()?)))
    }
}

/// The store's answer, if it comes soon. The work goes on in a task of its own: nobody cancels it.
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
    // Without the store the counters of this process are still worth showing.
    let counted = admin.counted();
    let sources: Vec<_> = admin.states.iter().map(|(name, ask)| (name.as_str(), ask())).collect();
    let usage: Vec<_> = admin.used().collect();
    let text = metrics::render_page(&metrics::Seen {
        overview: counted.as_ref().map(|counted| &counted.overview),
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
