//! The effective configuration of a destination or a source, defaults included and without secrets.

use axum::{Json, extract::State};
use relais_core::control::ControlKind;
use serde::Serialize;

use super::Answer;
use crate::{Admin, input::PathParams, problem::ApiProblem};

/// The response: one line per setting.
#[derive(Serialize)]
pub(crate) struct ConfigurationLines {
    lines: Vec<String>,
}

pub(crate) async fn of_destination(
    admin: State<Admin>,
    name: PathParams<String>,
) -> Answer<ConfigurationLines> {
    show(&admin, ControlKind::Destination, &name.0)
}

pub(crate) async fn of_source(
    admin: State<Admin>,
    name: PathParams<String>,
) -> Answer<ConfigurationLines> {
    show(&admin, ControlKind::Source, &name.0)
}

fn show(admin: &Admin, kind: ControlKind, name: &str) -> Answer<ConfigurationLines> {
    let mut all = admin.configuration.iter();
    let found = all.find(|one| one.kind == kind && one.name == name).ok_or_else(|| {
        let kind = kind.words();
        ApiProblem::not_found(format!("the configuration of this process has no {kind} `{name}`"))
    })?;
    Ok(Json(ConfigurationLines { lines: found.lines.clone() }))
}
