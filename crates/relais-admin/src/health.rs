//! `/healthz` and `/readyz`: is the process alive, and can it do its work, or why not.
//!
//! Invariant: readiness writes nothing. Whether the database takes writes is known from the heartbeats of
//! the lanes, which every worker writes every few seconds anyway: a full disk stops them first.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use relais::observe::{ScopeSnapshot, Snapshot, SourceSnapshot};
use relais_core::store::StoreError;
use serde::Serialize;
use serde_json::json;

use crate::{Admin, SourceState, soon};

/// How long heartbeats may fail before the process is not ready: less than a lease, so that others know
/// before they take the lanes over.
const SILENT_MAX: Duration = Duration::from_secs(5);
/// How long a source may be away before that counts.
const AWAY_MAX: Duration = Duration::from_secs(10);
/// How long a scope may be without a lane before somebody is told.
const BARE_MAX: Duration = Duration::from_secs(60);

/// What never changes while the process runs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub version: String,
    /// What the store calls itself.
    pub store: String,
    pub destinations: Vec<Target>,
}

/// What a destination delivers to.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    pub kind: String,
    /// The kind of record at the target, where there is one.
    pub object: Option<String>,
}

/// The process is alive: it answers.
pub(crate) async fn alive() -> Json<serde_json::Value> {
    Json(json!({ "status": "ok" }))
}

/// The process can do its work, or why not.
pub(crate) async fn ready(State(admin): State<Admin>) -> Response {
    let store = admin.store.clone();
    let store = soon(async move { store.check().await }).await;
    let states: Vec<_> = admin.states.iter().map(|(name, ask)| (name.as_str(), ask())).collect();
    let readiness = judge(store, &admin.observer.snapshot(), &states);
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

/// The answer of `/readyz`.
#[derive(Debug, Serialize)]
struct Readiness {
    ready: bool,
    /// All that stands in the way, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Each thing looked at: `ok`, or what is wrong with it.
    checks: BTreeMap<&'static str, String>,
    /// What a person should know and no load balancer needs to.
    notes: Vec<String>,
}

fn judge(
    store: Result<(), StoreError>,
    snapshot: &Snapshot,
    states: &[(&str, SourceState)],
) -> Readiness {
    let away = away(snapshot, states);
    let all_away = !away.is_empty() && away.len() == snapshot.sources.len();
    let mut notes: Vec<String> = snapshot.scopes.iter().filter_map(bare).collect();
    if !all_away {
        notes.extend(away.iter().cloned());
    }
    let found = [
        ("store", store.err().map(|error| error.to_string())),
        ("writes", snapshot.scopes.iter().find_map(silent)),
        ("sources", all_away.then(|| away.join("; "))),
    ];
    let reasons: Vec<String> = found.iter().filter_map(|(_, wrong)| wrong.clone()).collect();
    let ok = |wrong: Option<String>| wrong.unwrap_or_else(|| "ok".to_owned());
    Readiness {
        ready: reasons.is_empty(),
        reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
        checks: found.into_iter().map(|(name, wrong)| (name, ok(wrong))).collect(),
        notes,
    }
}

/// The database does not take the heartbeat of a scope.
fn silent((scope, state): (&String, &ScopeSnapshot)) -> Option<String> {
    let trouble = state.trouble.as_ref().filter(|_| state.silent_for > SILENT_MAX)?;
    let seconds = state.silent_for.as_secs();
    Some(format!("the database has taken no heartbeat of {scope} for {seconds} s: {trouble}"))
}

fn bare((scope, state): (&String, &ScopeSnapshot)) -> Option<String> {
    let lasts = state.bare_for.filter(|lasts| *lasts > BARE_MAX)?;
    let seconds = lasts.as_secs();
    Some(format!("no lane of {scope} for {seconds} s: other processes hold them all"))
}

/// Sources that cannot be read, with the reason.
fn away(snapshot: &Snapshot, states: &[(&str, SourceState)]) -> Vec<String> {
    let of = |name: &str| states.iter().find(|(n, _)| *n == name).map(|(_, state)| state);
    let away = |(name, source): (&String, &SourceSnapshot)| {
        if is_here(source, of(name)) {
            return None;
        }
        let Some(away) = &source.away else {
            return Some(format!("source {name}: no connection"));
        };
        let told = (away.lasts > AWAY_MAX).then(|| format!("source {name}: {}", away.reason));
        told.or_else(|| of(name)?.connected.map(|_| format!("source {name}: no connection")))
    };
    snapshot.sources.iter().filter_map(away).collect()
}

/// Whether a source can be read. What it says of its connection is newer than its last complaint.
pub(crate) fn is_here(source: &SourceSnapshot, state: Option<&SourceState>) -> bool {
    state.and_then(|state| state.connected).unwrap_or(source.away.is_none())
}

#[cfg(test)]
mod tests {
    use relais::observe::{Away, Observer};

    use super::*;

    fn snapshot() -> Snapshot {
        Observer::default().snapshot()
    }

    fn with_sources(sources: &[(&str, Option<u64>)]) -> Snapshot {
        let mut snapshot = snapshot();
        for (name, away) in sources {
            let away = away.map(|seconds| Away {
                reason: "no broker".into(),
                lasts: Duration::from_secs(seconds),
            });
            let source = SourceSnapshot { away, ..SourceSnapshot::default() };
            snapshot.sources.insert((*name).to_owned(), source);
        }
        snapshot
    }

    #[test]
    fn nothing_wrong_is_ready() {
        let readiness = judge(Ok(()), &snapshot(), &[]);
        assert!(readiness.ready && readiness.reason.is_none() && readiness.notes.is_empty());
        assert!(readiness.checks.values().all(|check| check == "ok"), "{readiness:?}");
    }

    #[test]
    fn a_store_that_is_away_is_the_reason() {
        let gone = Err(StoreError::Unavailable("connection refused".into()));
        let readiness = judge(gone, &snapshot(), &[]);
        assert!(!readiness.ready);
        assert!(readiness.reason.unwrap().contains("connection refused"));
    }

    #[test]
    fn a_disk_that_takes_no_heartbeat_is_the_reason_after_a_few_seconds() {
        let at = |seconds| {
            let mut snapshot = snapshot();
            let state = ScopeSnapshot {
                trouble: Some("database or disk is full".into()),
                silent_for: Duration::from_secs(seconds),
                ..ScopeSnapshot::default()
            };
            snapshot.scopes.insert("inbox".into(), state);
            judge(Ok(()), &snapshot, &[])
        };
        assert!(at(1).ready);
        let readiness = at(6);
        assert!(!readiness.ready);
        assert!(readiness.checks["writes"].contains("disk is full"), "{readiness:?}");
        assert_eq!(readiness.checks["store"], "ok");
    }

    #[test]
    fn one_source_away_is_a_note_and_all_of_them_the_reason() {
        let one = judge(Ok(()), &with_sources(&[("a", Some(11)), ("b", None)]), &[]);
        assert!(one.ready);
        assert_eq!(one.notes, ["source a: no broker"]);
        let all = judge(Ok(()), &with_sources(&[("a", Some(11)), ("b", Some(60))]), &[]);
        assert_eq!(all.reason.as_deref(), Some("source a: no broker; source b: no broker"));
        assert!(judge(Ok(()), &with_sources(&[("a", Some(5))]), &[]).ready, "only a moment");
    }

    #[test]
    fn what_a_source_knows_of_its_connection_is_newer_than_its_last_complaint() {
        let state = |connected| [("a", SourceState { connected, ..SourceState::default() })];
        let complained = with_sources(&[("a", Some(60))]);
        assert!(judge(Ok(()), &complained, &state(Some(true))).ready);
        let quiet = judge(Ok(()), &with_sources(&[("a", None)]), &state(Some(false)));
        assert_eq!(quiet.reason.as_deref(), Some("source a: no connection"));
        assert!(!judge(Ok(()), &complained, &state(None)).ready);
    }

    #[test]
    fn a_process_without_lanes_is_ready_and_says_so_after_a_while() {
        let mut snapshot = snapshot();
        let state =
            ScopeSnapshot { bare_for: Some(Duration::from_secs(61)), ..ScopeSnapshot::default() };
        snapshot.scopes.insert("outbox:orders".into(), state);
        let readiness = judge(Ok(()), &snapshot, &[]);
        assert!(readiness.ready);
        assert_eq!(readiness.notes.len(), 1);
        assert!(readiness.notes[0].contains("outbox:orders"), "{readiness:?}");
    }
}
