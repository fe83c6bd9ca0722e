//! Controls of operators while relais runs: pauses, limits, resets of circuit breakers.

use axum::{extract::State, http::StatusCode};
use relais::control::{ControlError, control};
use relais_core::{
    control::{ControlChange, ControlKind, ControlOrder, LimitChange},
    setting::quantity,
};
use serde::{Deserialize, Serialize};

use super::{Answer, run};
use crate::{
    Admin,
    access::AdminCaller,
    input::{ActorAndReason, FilterText, JsonBody, PathParams, WholeNumber, present},
    problem::ApiProblem,
};

/// The result of a control.
#[derive(Serialize)]
pub(crate) struct ControlResult {
    /// `unchanged` if the state was the same before.
    result: &'static str,
}

/// New limits of a destination; null restores the configured one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitRequest {
    /// For example `50/s`; the configured rate if absent or null.
    #[serde(default, deserialize_with = "present")]
    rate: Option<Option<FilterText>>,
    /// The configured number if absent or null.
    #[serde(default, deserialize_with = "present")]
    concurrency: Option<Option<WholeNumber>>,
    actor: Option<String>,
    reason: String,
}

pub(crate) async fn pause_destination(
    admin: State<Admin>,
    caller: AdminCaller,
    name: PathParams<String>,
    who: JsonBody<ActorAndReason>,
) -> Answer<ControlResult> {
    change(admin, caller, name, (ControlKind::Destination, ControlChange::Pause), who).await
}

pub(crate) async fn resume_destination(
    admin: State<Admin>,
    caller: AdminCaller,
    name: PathParams<String>,
    who: JsonBody<ActorAndReason>,
) -> Answer<ControlResult> {
    change(admin, caller, name, (ControlKind::Destination, ControlChange::Resume), who).await
}

pub(crate) async fn reset_breaker(
    admin: State<Admin>,
    caller: AdminCaller,
    name: PathParams<String>,
    who: JsonBody<ActorAndReason>,
) -> Answer<ControlResult> {
    change(admin, caller, name, (ControlKind::Destination, ControlChange::ResetBreaker), who).await
}

pub(crate) async fn limit_destination(
    admin: State<Admin>,
    caller: AdminCaller,
    name: PathParams<String>,
    JsonBody(limits): JsonBody<LimitRequest>,
) -> Answer<ControlResult> {
    if limits.rate.is_none() && limits.concurrency.is_none() {
        let text = "pass `rate`, `concurrency` or both; null restores the configured limit";
        return Err(ApiProblem::unprocessable("INVALID", text));
    }
    let rate = limits.rate.flatten().map(|text| {
        let rate = quantity::rate(&text.0).map(|rate| (rate.calls, rate.period));
        rate.map_err(|why| ApiProblem::unprocessable("INVALID", format!("`rate` {why}")))
    });
    let wanted = LimitChange {
        rate: rate.transpose()?,
        concurrency: limits.concurrency.flatten().map(|n| n.0),
    };
    let who = JsonBody(ActorAndReason::new(limits.actor, limits.reason));
    change(admin, caller, name, (ControlKind::Destination, ControlChange::Limit(wanted)), who).await
}

pub(crate) async fn pause_source(
    admin: State<Admin>,
    caller: AdminCaller,
    name: PathParams<String>,
    who: JsonBody<ActorAndReason>,
) -> Answer<ControlResult> {
    change(admin, caller, name, (ControlKind::Source, ControlChange::Pause), who).await
}

pub(crate) async fn resume_source(
    admin: State<Admin>,
    caller: AdminCaller,
    name: PathParams<String>,
    who: JsonBody<ActorAndReason>,
) -> Answer<ControlResult> {
    change(admin, caller, name, (ControlKind::Source, ControlChange::Resume), who).await
}

pub(crate) async fn pause_process_type(
    admin: State<Admin>,
    caller: AdminCaller,
    name: PathParams<String>,
    who: JsonBody<ActorAndReason>,
) -> Answer<ControlResult> {
    change(admin, caller, name, (ControlKind::ProcessType, ControlChange::Pause), who).await
}

pub(crate) async fn resume_process_type(
    admin: State<Admin>,
    caller: AdminCaller,
    name: PathParams<String>,
    who: JsonBody<ActorAndReason>,
) -> Answer<ControlResult> {
    change(admin, caller, name, (ControlKind::ProcessType, ControlChange::Resume), who).await
}

async fn change(
    State(admin): State<Admin>,
    caller: AdminCaller,
    PathParams(name): PathParams<String>,
    (kind, change): (ControlKind, ControlChange),
    JsonBody(who): JsonBody<ActorAndReason>,
) -> Answer<ControlResult> {
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
        Ok(ControlResult { result: if changed { "done" } else { "unchanged" } })
    })
    .await
}

fn refused(error: ControlError) -> ApiProblem {
    match error {
        ControlError::Unknown { .. } => ApiProblem::not_found(error),
        ControlError::Store(error) => error.into(),
        invalid => ApiProblem::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", invalid),
    }
}
