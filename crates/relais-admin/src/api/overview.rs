//! Everything at a glance: the rows of the store as they were last counted, and what this process sees of
//! its sources and destinations now.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use relais::observe::SourceSnapshot;
use relais_core::query::Overview;
use serde::Serialize;

use super::{
    Answer,
    destinations::{self, Guards},
};
use crate::{
    Admin,
    sample::{Counted, History},
};

/// What is shown.
#[derive(Serialize)]
pub(crate) struct Shown {
    /// Which database.
    store: String,
    version: &'static str,
    /// The name of this process among the workers.
    worker: Option<String>,
    #[serde(flatten)]
    overview: Overview,
    serde_errors: u64,
    sources: Vec<Source>,
    destinations: BTreeMap<String, Guards>,
}

#[derive(Serialize)]
struct Source {
    name: String,
    kind: &'static str,
    /// Records that were deleted at their origin before they were read.
    missed: u64,
    /// How often a partition was found deleted and made again.
    recreated: u64,
    /// Records that wait there, where that is known.
    lag: Option<u64>,
    #[serde(flatten)]
    counters: SourceSnapshot,
}

pub(crate) async fn show(State(admin): State<Admin>) -> Answer<Shown> {
    Ok(Json(shown(&admin)?))
}

pub(crate) async fn history(State(admin): State<Admin>) -> Json<History> {
    Json(admin.sampler.history())
}

/// Counts nothing: see [`Sampler`](crate::sample::Sampler).
pub(crate) fn shown(admin: &Admin) -> Result<Shown, crate::problem::Problem> {
    let Counted { database, overview } = admin.sampler.looked_at()?;
    let snapshot = admin.observer.snapshot();
    let serde_errors = overview.inbox.iter().find(|count| count.name == "SERDE_ERROR");
    let source = |source: &crate::SourceInfo| {
        let state = admin.states.iter().find(|(name, _)| *name == source.name);
        let state = state.map(|(_, ask)| ask()).unwrap_or_default();
        Source {
            name: source.name.clone(),
            kind: source.kind,
            missed: state.missed,
            recreated: state.recreated,
            lag: state.lag,
            counters: snapshot.sources.get(&source.name).cloned().unwrap_or_default(),
        }
    };
    Ok(Shown {
        store: database,
        version: env!("CARGO_PKG_VERSION"),
        worker: own(&overview),
        serde_errors: serde_errors.map_or(0, |count| count.rows),
        sources: admin.sources.iter().map(source).collect(),
        destinations: destinations::guards(admin, &snapshot),
        overview,
    })
}

/// Workers are named by their process; of several machines two may have the same number, then nobody
/// knows.
fn own(overview: &Overview) -> Option<String> {
    let prefix = format!("{}-", std::process::id());
    let mut own: Vec<&str> = overview
        .workers
        .iter()
        .filter(|worker| worker.alive && worker.worker.starts_with(&prefix))
        .map(|worker| worker.worker.as_str())
        .collect();
    own.sort_unstable();
    own.dedup();
    match own.as_slice() {
        [one] => Some((*one).to_owned()),
        _ => None,
    }
}
