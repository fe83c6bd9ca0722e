//! The guards of each destination, as the process that serves `[admin]` sees them.
//!
//! They live in that process, not in the store: breaker and budget of another process may differ.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use relais_core::query::WorkerRow;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    output::Tone,
    settings::{AdminSettings, scheme},
};

/// How long the answer may take; it comes from the same machine as a rule.
const PATIENCE: Duration = Duration::from_secs(2);
/// The largest answer that is read.
const ANSWER_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Guards {
    pub(crate) breaker: Option<String>,
    /// What kind of trouble opened the breaker.
    #[serde(default)]
    pub(crate) cause: Option<String>,
    pub(crate) reason: Option<Reason>,
    pub(crate) calls: Option<Calls>,
    /// Delivered since that process started.
    #[serde(default)]
    pub(crate) dispatched: Option<u64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Reason {
    pub(crate) code: String,
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Calls {
    used: u64,
    limit: u64,
}

/// By destination; empty without `[admin]`, or if nobody answers there who works on this store.
pub(super) async fn ask(
    admin: Option<&AdminSettings>,
    workers: &[WorkerRow],
) -> BTreeMap<String, Guards> {
    #[derive(Deserialize)]
    struct Answer {
        workers: Vec<Worker>,
        destinations: BTreeMap<String, Guards>,
    }
    #[derive(Deserialize)]
    struct Worker {
        worker: String,
    }
    let answer: Option<Answer> = overview(admin).await;
    let ours = answer.filter(|answer| {
        let mut there = answer.workers.iter().map(|worker| worker.worker.as_str());
        there.any(|name| is_ours(name, workers))
    });
    ours.map(|answer| answer.destinations).unwrap_or_default()
}

/// Whether a worker that answers over HTTP works on this store: another relais may listen at that address.
/// Names of workers have a random part.
pub(crate) fn is_ours(worker: &str, workers: &[WorkerRow]) -> bool {
    workers.iter().any(|row| row.worker == worker)
}

/// What a running relais says of itself; nothing without `[admin]`, or if nobody answers there, or not so.
pub(crate) async fn overview<T: DeserializeOwned>(admin: Option<&AdminSettings>) -> Option<T> {
    let admin = admin?;
    // It is asked by its number, which no certificate names; on this machine that is as good as plain HTTP.
    let builder = reqwest::Client::builder().tls_danger_accept_invalid_certs(true);
    let client = builder.no_proxy().timeout(PATIENCE).build().ok()?;
    let (scheme, address) = (scheme(admin.tls.as_ref()), reachable(admin.listen));
    let mut request = client.get(format!("{scheme}://{address}/api/v1/overview"));
    if let Some(token) = &admin.token {
        request = request.bearer_auth(token.expose_secret());
    }
    let answer = request.send().await.ok()?.error_for_status().ok()?;
    answer.content_length().filter(|length| *length <= ANSWER_MAX)?;
    serde_json::from_slice(&answer.bytes().await.ok()?).ok()
}

/// Who listens everywhere is reached here.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Breaker and calls as a table shows them.
pub(crate) fn show(guards: Option<&Guards>) -> ((String, Tone), String) {
    let unknown = || "-".to_owned();
    let breaker = match guards.and_then(|guards| guards.breaker.as_deref()) {
        None => (unknown(), Tone::Plain),
        Some("closed") => ("closed".to_owned(), Tone::Good),
        Some(state) => {
            let tone = if state == "open" { Tone::Bad } else { Tone::Waiting };
            let cause = guards.and_then(|guards| guards.cause.as_deref());
            let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
            (format!("{}{cause}", state.replace('_', " ")), tone)
        }
    };
    let calls = guards.and_then(|guards| guards.calls);
    (breaker, calls.map_or_else(unknown, |calls| format!("{} of {}", calls.used, calls.limit)))
}
