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
    args::Access,
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
    /// When the next call is tried, while the breaker is open.
    #[serde(default)]
    pub(crate) open_until: Option<String>,
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

/// Returns the guards by destination, or why they are not known.
pub(super) async fn ask(
    admin: Option<&AdminSettings>,
    access: &Access,
    workers: &[WorkerRow],
) -> Result<BTreeMap<String, Guards>, String> {
    #[derive(Deserialize)]
    struct Answer {
        /// The process that answers. Its count of workers is a few seconds old, and empty after its start.
        worker: Option<String>,
        workers: Vec<Worker>,
        destinations: BTreeMap<String, Guards>,
    }
    #[derive(Deserialize)]
    struct Worker {
        worker: String,
    }
    let answer: Answer = overview(admin, access).await?;
    let mut there = answer.workers.iter().map(|worker| &worker.worker).chain(&answer.worker);
    if there.any(|name| is_ours(name, workers)) {
        return Ok(answer.destinations);
    }
    Err("the relais at the address of [admin] works on another store".to_owned())
}

/// Whether a worker that answers over HTTP works on this store: another relais may listen at that address.
/// Names of workers have a random part.
pub(crate) fn is_ours(worker: &str, workers: &[WorkerRow]) -> bool {
    workers.iter().any(|row| row.worker == worker)
}

/// What a running relais says of itself, or why that is not known.
pub(crate) async fn overview<T: DeserializeOwned>(
    admin: Option<&AdminSettings>,
    access: &Access,
) -> Result<T, String> {
    let admin = admin.ok_or("the configuration has no [admin]")?;
    let place = format!("{}://{}", scheme(admin.tls.as_ref()), reachable(admin.listen));
    // It is asked by its number, which no certificate names; on this machine that is as good as plain HTTP.
    let builder = reqwest::Client::builder().tls_danger_accept_invalid_certs(true);
    let client = builder.no_proxy().timeout(PATIENCE).build();
    let client = client.map_err(|error| error.to_string())?;
    let mut request = client.get(format!("{place}/api/v1/overview"));
    let shared = admin.token.as_ref().map(|token| token.expose_secret());
    if let Some(token) = access.token().or(shared) {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await.map_err(|_| format!("no relais answers at {place}"))?;
    match answer.status().as_u16() {
        200 => {}
        401 | 403 => {
            return Err(format!(
                "the relais at {place} wants a token: pass --token or set RELAIS_TOKEN"
            ));
        }
        status => return Err(format!("{place} answered {status}")),
    }
    let strange = || format!("{place} is not a relais of this version");
    answer.content_length().filter(|length| *length <= ANSWER_MAX).ok_or_else(strange)?;
    let body = answer.bytes().await.map_err(|_| strange())?;
    serde_json::from_slice(&body).map_err(|_| strange())
}

/// Returns the address at which a listener on this machine can be reached.
pub(crate) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

impl Guards {
    /// Why the destination rests and until when.
    pub(crate) fn rest(&self) -> Option<String> {
        let Reason { code, message } = self.reason.as_ref()?;
        let until = self.open_until.as_ref().map(|at| format!(" until {at}")).unwrap_or_default();
        let cause = self.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
        Some(format!("rests{until}{cause}: {code}: {message}"))
    }
}

/// Breaker and calls as a table shows them.
pub(crate) fn show(guards: Option<&Guards>) -> ((String, Tone), String) {
    let unknown = || "-".to_owned();
    let breaker = match guards.and_then(|guards| guards.breaker.as_deref()) {
        None => (unknown(), Tone::Plain),
        Some("closed") => ("closed".to_owned(), Tone::Good),
        Some(state) => {
            let tone = if state == "open" { Tone::Bad } else { Tone::Waiting };
            (state.replace('_', " "), tone)
        }
    };
    let calls = guards.and_then(|guards| guards.calls);
    (breaker, calls.map_or_else(unknown, |calls| format!("{} of {}", calls.used, calls.limit)))
}
