//! What operators change while relais runs: pauses, limits until restart, resets of circuit breakers.

use axum::{extract::State, http::StatusCode};
use relais::control::{ControlError, control, parse_rate};
use relais_core::control::{ControlChange, ControlKind, ControlOrder, LimitChange};
use serde::{Deserialize, Serialize};

use super::{Answer, run};
use crate::{
    Admin,
    access::Caller,
    input::{Body, Named, Text, Who},
    problem::Problem,
};

/// What became of it.
#[derive(Serialize)]
pub(crate) struct Controlled {
    /// `unchanged`: it was paused before, or was not paused.
    result: &'static str,
}

/// Limits of a destination until each process restarts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// `50/s`; absent or null: as configured.
    rate: Option<Text>,
    /// Absent or null: as configured.
    concurrency: Option<u32>,
    actor: Option<String>,
    reason: String,
}

pub(crate) async fn pause_destination(
    admin: State<Admin>,
    caller: Caller,
    name: Named<String>,
    who: Body<Who>,
) -> Answer<Controlled> {
    change(admin, caller, name, (ControlKind::Destination, ControlChange::Pause), who).await
}

pub(crate) async fn resume_destination(
    admin: State<Admin>,
    caller: Caller,
    name: Named<String>,
    who: Body<Who>,
) -> Answer<Controlled> {
    change(admin, caller, name, (ControlKind::Destination, ControlChange::Resume), who).await
}

pub(crate) async fn reset_breaker(
    admin: State<Admin>,
    caller: Caller,
    name: Named<String>,
    who: Body<Who>,
) -> Answer<Controlled> {
    change(admin, caller, name, (ControlKind::Destination, ControlChange::ResetBreaker), who).await
}

pub(crate) async fn limit_destination(
    admin: State<Admin>,
    caller: Caller,
    name: Named<String>,
    Body(limits): Body<Limits>,
) -> Answer<Controlled> {
    let rate = limits.rate.map(|text| {
        parse_rate(&text.0).ok_or_else(|| {
            let text = "`rate` must be a number and a time, as in 50/s, 100/m or 5/h";
            Problem::unprocessable("INVALID", text)
        })
    });
    let wanted = LimitChange { rate: rate.transpose()?, concurrency: limits.concurrency };
    let who = Body(Who::new(limits.actor, limits.reason));
    change(admin, caller, name, (ControlKind::Destination, ControlChange::Limit(wanted)), who).await
}

pub(crate) async fn pause_source(
    admin: State<Admin>,
    caller: Caller,
    name: Named<String>,
    who: Body<Who>,
) -> Answer<Controlled> {
    change(admin, caller, name, (ControlKind::Source, ControlChange::Pause), who).await
}

pub(crate) async fn resume_source(
    admin: State<Admin>,
    caller: Caller,
    name: Named<String>,
    who: Body<Who>,
) -> Answer<Controlled> {
    change(admin, caller, name, (ControlKind::Source, ControlChange::Resume), who).await
}

pub(crate) async fn pause_process_type(
    admin: State<Admin>,
    caller: Caller,
    name: Named<String>,
    who: Body<Who>,
) -> Answer<Controlled> {
    change(admin, caller, name, (ControlKind::ProcessType, ControlChange::Pause), who).await
}

pub(crate) async fn resume_process_type(
    admin: State<Admin>,
    caller: Caller,
    name: Named<String>,
    who: Body<Who>,
) -> Answer<Controlled> {
    change(admin, caller, name, (ControlKind::ProcessType, ControlChange::Resume), who).await
}

async fn change(
    State(admin): State<Admin>,
    caller: Caller,
    Named(name): Named<String>,
    (kind, change): (ControlKind, ControlChange),
    Body(who): Body<Who>,
) -> Answer<Controlled> {
    let by = who.by(&caller)?;
    run(async move {
        let declared: Vec<String> = match kind {
            ControlKind::Destination => admin.limits.iter().map(|(name, _)| name.clone()).collect(),
            ControlKind::Source => admin.sources.iter().map(|source| source.name.clone()).collect(),
            ControlKind::ProcessType => admin.observer.figures().names(kind),
        };
        let order = ControlOrder { kind, name, change, actor: by.actor, reason: by.reason };
        let changed = control(admin.store.as_ref(), order, &declared).await.map_err(refused)?;
        admin.sampler.look_soon();
        Ok(Controlled { result: if changed { "done" } else { "unchanged" } })
    })
    .await
}

fn refused(error: ControlError) -> Problem {
    match error {
        ControlError::Unknown { .. } => Problem::not_found(error),
        ControlError::Store(error) => error.into(),
        invalid => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", invalid),
    }
}
