//! The same routes inside another service's router, under any path.
//!
//! Invariant: the console has relative addresses only. What its page is called decides how they begin.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::{
    Extension, Router,
    extract::{ConnectInfo, OriginalUri, Request, State},
    http::{StatusCode, Uri},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use relais::{App, DestinationSettings, OnDeadLetter, Outline};
use relais_core::control::ControlKind;
use tokio::task::AbortHandle;

use crate::{
    Admin, Configuration, DestinationLimits, Facts, Parts, SessionKey, SourceInfo, Target, Token,
    problem::Problem, sample::Sampler,
};

/// Stands for a peer that the server does not name. All of them share what is limited by address.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Answered without a token: they hold no data.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Returns everything that [`bind`](crate::bind) serves as a router: the console at `/`, the API,
/// `/healthz`, `/readyz` and `/metrics`. Nest it under a path of a service:
/// `Router::new().nest("/ops/relais", relais_admin::router(parts))`.
///
/// Serve it with `into_make_service_with_connect_info::<SocketAddr>()`: wrong tokens are throttled by
/// address, and without that all callers share one. Without [`Parts::tokens`] only callers from the same
/// machine are answered, and those whose address is not known are not.
///
/// The service decides how many connections there are and how slow they may be.
///
/// # Panics
/// If there is no tokio runtime: it counts rows in the background until the router is dropped.
pub fn router(parts: Parts) -> Router {
    let admin = Admin::new(parts);
    let sampling = tokio::spawn(Sampler::run(admin.clone())).abort_handle();
    let known = from_fn_with_state(admin.clone(), know_peer);
    admin.router().layer(known).layer(Extension(std::sync::Arc::new(Sampling(sampling))))
}

/// The background task of a router; ends with it.
struct Sampling(AbortHandle);

impl Drop for Sampling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Without tokens everybody may do everything, so only this machine may ask.
async fn know_peer(State(admin): State<Admin>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let is_local = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    if admin.tokens.is_empty() && !is_local && !OPEN.contains(&request.uri().path()) {
        let detail = "without a token only this machine is answered; set `Parts::tokens`, or serve with \
                      `into_make_service_with_connect_info::<SocketAddr>()` if this is this machine";
        return Problem::new(StatusCode::FORBIDDEN, "NO_TOKENS", detail).into_response();
    }
    if peer.is_none() {
        request.extensions_mut().insert(ConnectInfo(UNKNOWN));
    }
    next.run(request).await
}

/// Returns the path under which this router is nested, without the last `/`; empty at the root.
pub(crate) fn base<'a>(original: &'a OriginalUri, inner: &Uri) -> &'a str {
    original.path().strip_suffix(inner.path()).unwrap_or_default()
}

/// Returns what stands before every address in the console's page, so that it is relative to the page:
/// nothing at `/ops/relais/`, and `relais/` at `/ops/relais`. It holds behind a proxy that takes a part of
/// the path away too.
pub(crate) fn page_prefix(original: &OriginalUri) -> String {
    let last = original.path().rsplit('/').next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~%".contains(c);
    if last.is_empty() || !last.chars().all(is_plain) { String::new() } else { format!("{last}/") }
}

impl Parts {
    /// What there is to show of an app, and who may see it. Set `session_key` where several replicas serve
    /// one console, and `declared` to reprocess undecodable messages.
    pub fn of(app: &App, tokens: Vec<Token>) -> impl Future<Output = Self> + Send + use<> {
        // The app is not shared between threads: nothing of it is kept in the future.
        let Outline { store, observer, sources, destinations, .. } = app.outline();
        let (operator, desk) = (app.operator(), app.desk());
        async move {
            let targets = destinations.iter().map(|(name, _)| Target {
                name: name.clone(),
                kind: "custom".to_owned(),
                object: None,
            });
            let facts = Facts {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                store: store.describe().await.unwrap_or_default(),
                destinations: targets.collect(),
            };
            Self {
                store,
                observer,
                operator,
                desk,
                declared: Vec::new(),
                tokens,
                session_key: SessionKey::random(),
                open_metrics: false,
                sources: sources.into_iter().map(source).collect(),
                configuration: destinations.iter().map(configuration).collect(),
                limits: destinations.into_iter().map(limits).collect(),
                facts,
                states: Vec::new(),
                usage: Vec::new(),
            }
        }
    }
}

fn source(name: String) -> SourceInfo {
    SourceInfo { name, kind: "custom" }
}

fn configuration((name, settings): &(String, DestinationSettings)) -> Configuration {
    let DestinationSettings { retry, on_dead_letter, rate, concurrency, timeout, breaker, .. } =
        settings;
    let rate =
        rate.map_or("no rate limit".to_owned(), |(calls, per)| format!("{calls} per {per:?}"));
    let dead = match on_dead_letter {
        OnDeadLetter::Park => "a dead letter parks its key",
        OnDeadLetter::Skip => "later messages are sent past a dead letter",
    };
    let lines = vec![
        format!(
            "{} attempts, exponential backoff {:?} → {:?} (×{}); {dead}",
            retry.attempts_max, retry.first, retry.max, retry.factor
        ),
        format!("{rate}, {concurrency} calls at a time, {timeout:?} for each"),
        format!(
            "breaker opens at {} % failures of the last {} calls, for up to {:?}",
            breaker.failure_rate, breaker.window, breaker.open_for
        ),
    ];
    Configuration { kind: ControlKind::Destination, name: name.clone(), lines }
}

fn limits((name, settings): (String, DestinationSettings)) -> (String, DestinationLimits) {
    let limits = DestinationLimits {
        rate: settings.rate.map(|(calls, per)| format!("{calls}/{per:?}")),
        concurrency: u32::try_from(settings.concurrency).unwrap_or(u32::MAX),
        timeout_ms: u64::try_from(settings.timeout.as_millis()).unwrap_or(u64::MAX),
    };
    (name, limits)
}
