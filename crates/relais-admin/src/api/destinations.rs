//! The guards of each destination, as this process sees them.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use relais::observe::{DestinationSnapshot, Snapshot};
use serde::Serialize;

use crate::{Admin, CallsUsed, DestinationLimits};

#[derive(Serialize)]
pub(crate) struct Guards {
    kind: Option<String>,
    limits: Option<DestinationLimits>,
    /// Of the day, by everybody who uses the target.
    calls: Option<CallsUsed>,
    #[serde(flatten)]
    counters: DestinationSnapshot,
}

pub(crate) async fn list(State(admin): State<Admin>) -> Json<BTreeMap<String, Guards>> {
    Json(guards(&admin, &admin.observer.snapshot()))
}

pub(super) fn guards(admin: &Admin, snapshot: &Snapshot) -> BTreeMap<String, Guards> {
    let usage: BTreeMap<&str, CallsUsed> = admin.used().collect();
    let shown = snapshot.destinations.iter().map(|(name, counters)| {
        let kind = admin.facts.destinations.iter().find(|target| target.name == *name);
        let limits = admin.limits.iter().find(|(of, _)| of == name);
        let guards = Guards {
            kind: kind.map(|target| target.kind.clone()),
            limits: limits.map(|(_, limits)| limits.clone()),
            calls: usage.get(name.as_str()).copied(),
            counters: counters.clone(),
        };
        (name.clone(), guards)
    });
    shown.collect()
}
