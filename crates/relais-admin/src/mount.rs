//! Nesting of all routes in the router of another service, under any path.
//!
//! Invariant: the console uses relative addresses only; their prefix depends on the address of the page.

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

use crate::{
    Admin, AdminParts, AdminToken, Configuration, DestinationInfo, DestinationLimits, ServerFacts,
    SessionKey, SourceInfo, problem::ApiProblem, sample::Sampler, serve::OwnedTask,
};

/// The address of peers that the server does not name. All of them share the limits by address.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Paths served without a token, because they show no data.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Returns everything that [`bind`](crate::bind) serves as a router: the console at `/`, the API,
/// `/healthz`, `/readyz` and `/metrics`. Nest it under a path of a service:
/// `Router::new().nest("/ops/relais", relais_admin::router(parts))`.
///
/// Serve it with `into_make_service_with_connect_info::<SocketAddr>()`: wrong tokens are throttled by
/// address, and without it all callers share one limit. Without [`AdminParts::tokens`] only callers from the same
/// machine are served, and callers without a known address are refused.
///
/// The service limits connections and their time-outs.
///
/// # Panics
/// Panics without a tokio runtime, because a background task counts rows until the router is dropped.
pub fn router(parts: AdminParts) -> Router {
    let admin = Admin::new(parts);
    let sampling = tokio::spawn(Sampler::run(admin.clone())).abort_handle();
    let known = from_fn_with_state(admin.clone(), know_peer);
    // The background task ends with the router.
    admin.router().layer(known).layer(Extension(std::sync::Arc::new(OwnedTask(sampling))))
}

/// Refuses callers of other machines while no tokens are configured, because such callers would be admins.
async fn know_peer(State(admin): State<Admin>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let is_local = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    if admin.tokens.is_empty() && !is_local && !OPEN.contains(&request.uri().path()) {
        let detail = "cannot serve other machines without a token; set `AdminParts::tokens`. If the caller is on \
                      this machine, serve with `into_make_service_with_connect_info::<SocketAddr>()`";
        return ApiProblem::new(StatusCode::FORBIDDEN, "NO_TOKENS", detail).into_response();
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

/// Returns the prefix that makes the addresses of the console relative to its page: empty at `/ops/relais/`,
/// and `relais/` at `/ops/relais`. It also works behind a proxy that strips a part of the path.
pub(crate) fn page_prefix(original: &OriginalUri) -> String {
    let last = original.path().rsplit('/').next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~%".contains(c);
    if last.is_empty() || !last.chars().all(is_plain) { String::new() } else { format!("{last}/") }
}

impl AdminParts {
    /// Builds the parts from an app and its tokens. Set `session_key` if several replicas serve one console,
    /// and `declared` to reprocess undecodable messages.
    pub fn of(app: &App, tokens: Vec<AdminToken>) -> impl Future<Output = Self> + Send + use<> {
        // The app is not `Sync`, so the future holds no reference to it.
        let Outline { store, observer, sources, destinations, .. } = app.outline();
        let (operator, dead_letters) = (app.operator(), app.dead_letters());
        async move {
            let targets = destinations.iter().map(|(name, _)| DestinationInfo {
                name: name.clone(),
                kind: "custom".to_owned(),
                object: None,
            });
            let facts = ServerFacts {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                store: store.describe().await.unwrap_or_default().server,
                destinations: targets.collect(),
            };
            Self {
                store,
                observer,
                operator,
                dead_letters,
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
        OnDeadLetter::Retry => "no dead letters: a failing message is sent again",
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
