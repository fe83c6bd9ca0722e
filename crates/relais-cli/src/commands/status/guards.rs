//! Circuit breaker and API calls of each destination, read from the process that serves `[admin]`.
//!
//! They are kept in that process, not in the store: those of another process may differ.

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
    settings::{AdminKeys, scheme},
};

/// Time limit of the request, which usually stays on the same machine.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// Largest accepted response.
const ANSWER_MAX: u64 = 1 << 20;

/// The state of a destination in the running process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DestinationGuards {
    pub(crate) breaker: Option<String>,
    /// The kind of failure that opened the breaker.
    #[serde(default)]
    pub(crate) cause: Option<String>,
    pub(crate) reason: Option<Reason>,
    /// The time of the next call while the breaker is open.
    #[serde(default)]
    pub(crate) open_until: Option<String>,
    pub(crate) calls: Option<Calls>,
    /// True if the target has answered a call.
    #[serde(default)]
    pub(crate) contacted: bool,
    /// True if a call has succeeded.
    #[serde(default)]
    pub(crate) succeeded: bool,
    #[serde(default)]
    pub(crate) last_error: Option<Reason>,
    /// The rate in force: `50/s`.
    #[serde(default)]
    pub(crate) rate: Option<String>,
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
    admin: Option<&AdminKeys>,
    access: &Access,
    workers: &[WorkerRow],
) -> Result<BTreeMap<String, DestinationGuards>, String> {
    #[derive(Deserialize)]
    struct GuardsResponse {
        /// The process that answers. Its list of workers is a few seconds old, and empty after its start.
        worker: Option<String>,
        workers: Vec<WorkerName>,
        destinations: BTreeMap<String, DestinationGuards>,
    }
    #[derive(Deserialize)]
    struct WorkerName {
        worker: String,
    }
    let answer: GuardsResponse = overview(admin, access).await?;
    let mut there = answer.workers.iter().map(|worker| &worker.worker).chain(&answer.worker);
    if there.any(|name| is_ours(name, workers)) {
        return Ok(answer.destinations);
    }
    Err("the relais at the address of [admin] uses another database".to_owned())
}

/// Returns true if the worker that answers over HTTP uses this store: another relais may listen at that
/// address. Names of workers have a random part.
pub(crate) fn is_ours(worker: &str, workers: &[WorkerRow]) -> bool {
    workers.iter().any(|row| row.worker == worker)
}

/// Reads the overview of the running relais, or returns the reason why it is unknown.
pub(crate) async fn overview<T: DeserializeOwned>(
    admin: Option<&AdminKeys>,
    access: &Access,
) -> Result<T, String> {
    let admin = admin.ok_or("the configuration has no [admin]")?;
    let place = format!("{}://{}", scheme(admin.tls_certificate.as_ref()), reachable(admin.listen));
    // The address is an IP number, which no certificate names; on this machine that is as safe as plain HTTP.
    let builder = reqwest::Client::builder().tls_danger_accept_invalid_certs(true);
    let client = builder.no_proxy().timeout(REQUEST_MAX).build();
    let client = client.map_err(|error| error.to_string())?;
    let mut request = client.get(format!("{place}/api/v1/overview"));
    let shared = admin.token.as_ref().map(|token| token.expose_secret());
    let token = access.token().or(shared);
    let sent = token.is_some();
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await.map_err(|_| format!("no relais answers at {place}"))?;
    match answer.status().as_u16() {
        200 => {}
        401 | 403 if sent => {
            return Err(format!(
                "the relais at {place} does not accept this token: it is unknown or expired; `relais token` \
                 makes a new one"
            ));
        }
        401 | 403 => {
            return Err(format!(
                "the relais at {place} requires a token: pass --token or set RELAIS_TOKEN"
            ));
        }
        status => return Err(format!("{place} answered {status}")),
    }
    let invalid = || format!("{place} is not a relais of this version");
    answer.content_length().filter(|length| *length <= ANSWER_MAX).ok_or_else(invalid)?;
    let body = answer.bytes().await.map_err(|_| invalid())?;
    serde_json::from_slice(&body).map_err(|_| invalid())
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

impl DestinationGuards {
    /// Returns the reason why deliveries are suspended, and the time of the next call.
    pub(crate) fn suspension(&self) -> Option<String> {
        let Reason { code, message } = self.reason.as_ref()?;
        let until = self.open_until.as_ref().map(|at| format!(" until {at}")).unwrap_or_default();
        let cause = self.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
        Some(format!("is unavailable, breaker open{until}{cause}: {code}: {message}"))
    }

    /// Returns the last error of a target that no call has succeeded at, while the breaker does not show it.
    pub(crate) fn contact(&self) -> Option<String> {
        let Reason { code, message } = self.last_error.as_ref()?;
        if self.succeeded || self.reason.is_some() {
            return None;
        }
        let state =
            if self.contacted { "has answered only with errors" } else { "has not answered" };
        Some(format!("{state} since relais started: {code}: {message}"))
    }
}

/// Returns the cells for breaker and API calls.
pub(crate) fn show(guards: Option<&DestinationGuards>) -> ((String, Tone), String) {
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
