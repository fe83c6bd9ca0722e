//! The guards of each destination, as this process sees them.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use relais::observe::DestinationSnapshot;
use serde::Serialize;

use crate::{Admin, CallsUsed};

#[derive(Serialize)]
pub(super) struct Guards {
    /// Of the day, by everybody who uses the target.
    calls: Option<CallsUsed>,
    #[serde(flatten)]
    counters: DestinationSnapshot,
}

pub(super) async fn list(State(admin): State<Admin>) -> Json<BTreeMap<String, Guards>> {
    let usage: BTreeMap<&str, CallsUsed> = admin.used().collect();
    let snapshot = admin.observer.snapshot();
    let shown = snapshot.destinations.into_iter().map(|(name, counters)| {
        let guards = Guards { calls: usage.get(name.as_str()).copied(), counters };
        (name, guards)
    });
    Json(shown.collect())
}
