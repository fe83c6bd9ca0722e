//! The health of this process: its workers can do their work, or why not.
//!
//! Invariant: a check writes nothing. The heartbeats of the lanes show whether the database accepts writes:
//! every worker writes them every few seconds, so a full disk stops them first.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use relais_core::store::{StoreDriver, StoreError};
use serde::Serialize;

use crate::{
    observe::{Observer, ObserverSnapshot, ScopeSnapshot, SourceSnapshot},
    unserved::describe_inbox,
};

/// A store that does not answer within this time is unavailable: probes have short limits.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Time that heartbeats may fail before the process is not ready: less than a lease, so that it is known
/// before other workers take the lanes over.
const SILENT_MAX: Duration = Duration::from_secs(5);
/// Time that a source may be unavailable before it is reported.
const UNAVAILABLE_MAX: Duration = Duration::from_secs(10);
/// Time that a scope may be without a lane before it is reported.
const BARE_MAX: Duration = Duration::from_secs(60);

/// A handle that checks the [`Health`] of running workers. Cheap to clone.
#[derive(Clone)]
pub struct HealthCheck {
    pub(crate) store: Arc<dyn StoreDriver>,
    pub(crate) observer: Arc<Observer>,
}

impl std::fmt::Debug for HealthCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HealthCheck").finish_non_exhaustive()
    }
}

impl HealthCheck {
    /// Asks the store and judges what the workers report. Takes at most 3 s.
    pub async fn health(&self) -> Health {
        let store = Arc::clone(&self.store);
        // In a task of its own: store calls are not cancelled half-way.
        let check = tokio::spawn(async move { store.check().await });
        let answer = match tokio::time::timeout(ANSWER_MAX, check).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(ended)) => Err(StoreError::unavailable(ended.to_string())),
            Err(_) => Err(StoreError::unavailable(format!(
                "no answer from the database within {ANSWER_MAX:?}"
            ))),
        };
        judge(answer, &self.observer.snapshot(), &|_| None)
    }
}

/// The health of the workers of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// True if the workers can work.
    pub ready: bool,
    /// All reasons why it is not ready, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Each check by its name: `ok`, or the problem.
    pub checks: BTreeMap<&'static str, String>,
    /// Notes for operators that do not matter to a load balancer.
    pub notes: Vec<String>,
}

impl Health {
    /// Returns the health of a process that waits for its database.
    pub fn starting(reason: &str) -> Self {
        Self {
            ready: false,
            reason: Some(reason.to_owned()),
            checks: BTreeMap::from([("store", reason.to_owned())]),
            notes: Vec::new(),
        }
    }
}

/// Returns the connection of a source by its name, where that is known.
type ConnectionLookup<'a> = dyn Fn(&str) -> Option<bool> + 'a;

/// Judges what the store and the workers report.
pub fn judge(
    store: Result<(), StoreError>,
    snapshot: &ObserverSnapshot,
    connected: &ConnectionLookup<'_>,
) -> Health {
    let unavailable = unavailable(snapshot, connected);
    let no_source = !unavailable.is_empty() && unavailable.len() == snapshot.sources.len();
    let mut notes: Vec<String> = snapshot.scopes.iter().filter_map(bare).collect();
    notes.extend(snapshot.unserved.iter().map(unserved));
    notes.extend(snapshot.unserved_inboxes.iter().map(unserved_inbox));
    if !no_source {
        notes.extend(unavailable.iter().cloned());
    }
    let found = [
        ("store", store.err().map(|error| error.to_string())),
        ("writes", snapshot.scopes.iter().find_map(silent)),
        ("sources", no_source.then(|| unavailable.join("; "))),
    ];
    let reasons: Vec<String> = found.iter().filter_map(|(_, wrong)| wrong.clone()).collect();
    let ok = |wrong: Option<String>| wrong.unwrap_or_else(|| "ok".to_owned());
    Health {
        ready: reasons.is_empty(),
        reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
        checks: found.into_iter().map(|(name, wrong)| (name, ok(wrong))).collect(),
        notes,
    }
}

/// Returns the problem of a scope whose heartbeat the database does not accept.
fn silent((scope, state): (&String, &ScopeSnapshot)) -> Option<String> {
    let trouble = state.trouble.as_ref().filter(|_| state.silent_for > SILENT_MAX)?;
    let seconds = state.silent_for.as_secs();
    Some(format!("the database has accepted no heartbeat of {scope} for {seconds} s: {trouble}"))
}

fn bare((scope, state): (&String, &ScopeSnapshot)) -> Option<String> {
    let lasts = state.bare_for.filter(|lasts| *lasts > BARE_MAX)?;
    let seconds = lasts.as_secs();
    Some(format!("no lane of {scope} for {seconds} s: other processes hold them all"))
}

fn unserved((destination, pending): (&String, &u64)) -> String {
    format!("{pending} messages wait for destination {destination}, which no worker serves")
}

fn unserved_inbox((inbox, waiting): (&String, &u64)) -> String {
    format!("{waiting} messages wait for {}, which no worker serves", describe_inbox(inbox))
}

/// Returns the unavailable sources, with the reason.
fn unavailable(snapshot: &ObserverSnapshot, connected: &ConnectionLookup<'_>) -> Vec<String> {
    let reason = |(name, source): (&String, &SourceSnapshot)| {
        if is_available(source, connected(name)) {
            return None;
        }
        let Some(outage) = &source.away else {
            return Some(format!("source {name}: no connection"));
        };
        let reason =
            (outage.lasts > UNAVAILABLE_MAX).then(|| format!("source {name}: {}", outage.reason));
        reason.or_else(|| connected(name).map(|_| format!("source {name}: no connection")))
    };
    snapshot.sources.iter().filter_map(reason).collect()
}

/// Returns whether a source can be read. The state of its connection is newer than its last error.
pub fn is_available(source: &SourceSnapshot, connected: Option<bool>) -> bool {
    connected.unwrap_or(source.away.is_none())
}

#[cfg(test)]
mod tests {
    use crate::observe::{Observer, SourceOutage};

    use super::*;

    fn snapshot() -> ObserverSnapshot {
        Observer::default().snapshot()
    }

    fn unknown(_: &str) -> Option<bool> {
        None
    }

    fn with_sources(sources: &[(&str, Option<u64>)]) -> ObserverSnapshot {
        let mut snapshot = snapshot();
        for (name, away) in sources {
            let away = away.map(|seconds| SourceOutage {
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
        let readiness = judge(Ok(()), &snapshot(), &unknown);
        assert!(readiness.ready && readiness.reason.is_none() && readiness.notes.is_empty());
        assert!(readiness.checks.values().all(|check| check == "ok"), "{readiness:?}");
    }

    #[test]
    fn an_unavailable_store_is_the_reason() {
        let unavailable = Err(StoreError::unavailable("connection refused"));
        let readiness = judge(unavailable, &snapshot(), &unknown);
        assert!(!readiness.ready);
        assert!(readiness.reason.unwrap().contains("connection refused"));
    }

    #[test]
    fn a_full_disk_is_the_reason_after_a_few_seconds() {
        let at = |seconds| {
            let mut snapshot = snapshot();
            let state = ScopeSnapshot {
                trouble: Some("database or disk is full".into()),
                silent_for: Duration::from_secs(seconds),
                ..ScopeSnapshot::default()
            };
            snapshot.scopes.insert("inbox".into(), state);
            judge(Ok(()), &snapshot, &unknown)
        };
        assert!(at(1).ready);
        let readiness = at(6);
        assert!(!readiness.ready);
        assert!(readiness.checks["writes"].contains("disk is full"), "{readiness:?}");
        assert_eq!(readiness.checks["store"], "ok");
    }

    #[test]
    fn one_unavailable_source_is_a_note_and_all_of_them_the_reason() {
        let one = judge(Ok(()), &with_sources(&[("a", Some(11)), ("b", None)]), &unknown);
        assert!(one.ready);
        assert_eq!(one.notes, ["source a: no broker"]);
        let all = judge(Ok(()), &with_sources(&[("a", Some(11)), ("b", Some(60))]), &unknown);
        assert_eq!(all.reason.as_deref(), Some("source a: no broker; source b: no broker"));
        assert!(judge(Ok(()), &with_sources(&[("a", Some(5))]), &unknown).ready, "only a moment");
    }

    #[test]
    fn the_connection_state_of_a_source_is_newer_than_its_last_error() {
        let state = |connected| move |_: &str| connected;
        let complained = with_sources(&[("a", Some(60))]);
        assert!(judge(Ok(()), &complained, &state(Some(true))).ready);
        let quiet = judge(Ok(()), &with_sources(&[("a", None)]), &state(Some(false)));
        assert_eq!(quiet.reason.as_deref(), Some("source a: no connection"));
        assert!(!judge(Ok(()), &complained, &state(None)).ready);
    }

    #[test]
    fn a_process_without_lanes_is_ready_and_reports_it_after_a_while() {
        let mut snapshot = snapshot();
        let state =
            ScopeSnapshot { bare_for: Some(Duration::from_secs(61)), ..ScopeSnapshot::default() };
        snapshot.scopes.insert("outbox:orders".into(), state);
        let readiness = judge(Ok(()), &snapshot, &unknown);
        assert!(readiness.ready);
        assert_eq!(readiness.notes.len(), 1);
        assert!(readiness.notes[0].contains("outbox:orders"), "{readiness:?}");
    }
}
