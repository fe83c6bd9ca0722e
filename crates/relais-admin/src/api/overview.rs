//! The overview: the rows of the store as they were last counted, and the figures that all processes report of
//! sources and destinations.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use relais_core::{query::Overview, report::Report};
use serde::Serialize;

use super::{
    Answer,
    destinations::{self, DestinationState, ProcessTypeState, SourceEntry},
};
use crate::{Admin, sample::SeriesHistory};

/// The response.
#[derive(Serialize)]
pub(crate) struct OverviewResponse {
    /// Name and version of the database.
    store: String,
    version: &'static str,
    /// The name of this process among the workers.
    worker: Option<String>,
    #[serde(flatten)]
    overview: Overview,
    serde_errors: u64,
    sources: Vec<SourceEntry>,
    destinations: BTreeMap<String, DestinationState>,
    process_types: Vec<ProcessTypeState>,
    /// Processes that run or were lost recently.
    instances: Vec<Report>,
}

/// The state as an event of a stream: the overview, or the problem of the store that prevents it.
#[derive(Clone, Debug)]
pub(crate) struct StateEvent {
    /// `overview` or `problem`.
    pub(crate) name: &'static str,
    pub(crate) json: String,
}

/// Returns the event of the current state; none before the first count has ended.
pub(crate) fn state_event(admin: &Admin) -> Option<StateEvent> {
    if !admin.sampler.has_tried() {
        return None;
    }
    let (name, json) = match shown(admin) {
        Ok(overview) => ("overview", serde_json::to_string(&overview)),
        Err(problem) => ("problem", problem.json()),
    };
    json.ok().map(|json| StateEvent { name, json })
}

pub(crate) async fn show(State(admin): State<Admin>) -> Answer<OverviewResponse> {
    Ok(Json(shown(&admin)?))
}

pub(crate) async fn history(State(admin): State<Admin>) -> Json<SeriesHistory> {
    Json(admin.sampler.history())
}

/// Returns the last count; it does not count rows itself: see [`Sampler`](crate::sample::Sampler).
pub(crate) fn shown(admin: &Admin) -> Result<OverviewResponse, crate::problem::ApiProblem> {
    let counted = admin.sampler.looked_at()?;
    let (figures, rates) = admin.sampler.fleet(admin.observer.figures());
    let serde_errors = counted.overview.inbox.iter().find(|count| count.name == "SERDE_ERROR");
    Ok(OverviewResponse {
        version: env!("CARGO_PKG_VERSION"),
        worker: admin.observer.worker(),
        serde_errors: serde_errors.map_or(0, |count| count.rows),
        sources: destinations::sources(admin, &counted, &figures, &rates),
        destinations: destinations::guards(admin, &counted, &figures, &rates),
        process_types: destinations::process_types(&counted, &figures),
        store: counted.database,
        overview: counted.overview,
        instances: counted.reports,
    })
}
