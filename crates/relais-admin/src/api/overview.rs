//! Everything at a glance: the rows of the store as they were last counted, and what all processes together
//! report of sources and destinations.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use relais_core::{query::Overview, report::Report};
use serde::Serialize;

use super::{
    Answer,
    destinations::{self, Guards, ProcessType, Source},
};
use crate::{Admin, sample::History};

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
    process_types: Vec<ProcessType>,
    /// The processes that run, or were lost lately.
    instances: Vec<Report>,
}

pub(crate) async fn show(State(admin): State<Admin>) -> Answer<Shown> {
    Ok(Json(shown(&admin)?))
}

pub(crate) async fn history(State(admin): State<Admin>) -> Json<History> {
    Json(admin.sampler.history())
}

/// Counts nothing: see [`Sampler`](crate::sample::Sampler).
pub(crate) fn shown(admin: &Admin) -> Result<Shown, crate::problem::Problem> {
    let counted = admin.sampler.looked_at()?;
    let (figures, rates) = admin.sampler.fleet(admin.observer.figures());
    let serde_errors = counted.overview.inbox.iter().find(|count| count.name == "SERDE_ERROR");
    Ok(Shown {
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
