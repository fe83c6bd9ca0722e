//! The guards of each destination, as the process that serves `[admin]` sees them.
//!
//! They live in that process, not in the store: breaker and budget of another process may differ.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use crate::{output::Tone, settings::AdminSettings};

/// How long the answer may take; it comes from the same machine as a rule.
const PATIENCE: Duration = Duration::from_secs(2);
/// The largest answer that is read.
const ANSWER_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Guards {
    pub(super) breaker: Option<String>,
    pub(super) reason: Option<Reason>,
    pub(super) calls: Option<Calls>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Reason {
    pub(super) code: String,
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Calls {
    used: u64,
    limit: u64,
}

/// By destination; empty without `[admin]`, or if nobody answers there.
pub(super) async fn ask(admin: Option<&AdminSettings>) -> BTreeMap<String, Guards> {
    let Some(admin) = admin else { return BTreeMap::new() };
    let asked = async {
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().ok()?;
        let url = format!("http://{}/api/v1/destinations", reachable(admin.listen));
        let mut request = client.get(url);
        if let Some(token) = &admin.token {
            request = request.bearer_auth(token.expose_secret());
        }
        let answer = request.send().await.ok()?.error_for_status().ok()?;
        answer.content_length().filter(|length| *length <= ANSWER_MAX)?;
        serde_json::from_slice(&answer.bytes().await.ok()?).ok()
    };
    asked.await.unwrap_or_default()
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
pub(super) fn show(guards: Option<&Guards>) -> ((String, Tone), String) {
    let unknown = || "-".to_owned();
    let breaker = match guards.and_then(|guards| guards.breaker.as_deref()) {
        None => (unknown(), Tone::Plain),
        Some("open") => ("open".to_owned(), Tone::Bad),
        Some("closed") => ("closed".to_owned(), Tone::Good),
        Some(other) => (other.replace('_', " "), Tone::Waiting),
    };
    let calls = guards.and_then(|guards| guards.calls);
    (breaker, calls.map_or_else(unknown, |calls| format!("{} of {}", calls.used, calls.limit)))
}
