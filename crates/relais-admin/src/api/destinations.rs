//! Destinations and sources with the figures of all processes together, and the pauses of operators.

use std::collections::{BTreeMap, BTreeSet};

use axum::{Json, extract::State};
use relais::observe::{DestinationFigures, Figures, SourceFigures, configuration_conflicts};
use relais_core::control::{Control, ControlKind, Pause};
use serde::Serialize;

use super::Answer;
use crate::{Admin, CallsUsed, DestinationLimits, fleet::FleetRates, sample::StoreCount};

/// The state of a destination.
#[derive(Serialize)]
pub(crate) struct DestinationState {
    kind: Option<String>,
    /// The configured limits; absent if this process does not configure it.
    limits: Option<DestinationLimits>,
    /// API calls of the day, by all clients of the target.
    calls: Option<CallsUsed>,
    pause: Option<Pause>,
    /// True if a live process delivers to it.
    served: bool,
    /// Deliveries per second.
    per_second: f64,
    /// The processes that configure it differently, as a sentence.
    conflict: Option<String>,
    #[serde(flatten)]
    figures: DestinationFigures,
}

/// The state of a source.
#[derive(Serialize)]
pub(crate) struct SourceEntry {
    name: String,
    kind: Option<&'static str>,
    pause: Option<Pause>,
    /// Messages stored per second.
    per_second: f64,
    #[serde(flatten)]
    figures: SourceFigures,
}

/// A process type and its pause.
#[derive(Serialize)]
pub(crate) struct ProcessTypeState {
    name: String,
    pause: Option<Pause>,
}

pub(crate) async fn list(State(admin): State<Admin>) -> Answer<BTreeMap<String, DestinationState>> {
    let counted = admin.sampler.looked_at()?;
    let (figures, rates) = admin.sampler.fleet(admin.observer.figures());
    Ok(Json(guards(&admin, &counted, &figures, &rates)))
}

pub(super) fn guards(
    admin: &Admin,
    counted: &StoreCount,
    figures: &Figures,
    rates: &FleetRates,
) -> BTreeMap<String, DestinationState> {
    let usage: BTreeMap<&str, CallsUsed> = admin.used().collect();
    let pauses = pauses(&counted.controls, ControlKind::Destination);
    let conflicts = configuration_conflicts(&counted.reports);
    let names = figures.destinations.keys().chain(pauses.keys());
    let shown = names.collect::<BTreeSet<_>>().into_iter().map(|name| {
        let kind = admin.facts.destinations.iter().find(|target| target.name == *name);
        let limits = admin.limits.iter().find(|(of, _)| of == name);
        let guards = DestinationState {
            kind: kind.map(|target| target.kind.clone()),
            limits: limits.map(|(_, limits)| limits.clone()),
            calls: usage.get(name.as_str()).copied(),
            pause: pauses.get(name).cloned(),
            served: figures.destinations.contains_key(name),
            per_second: rounded(rates.destinations.get(name)),
            conflict: conflicts.get(name).cloned(),
            figures: figures.destinations.get(name).cloned().unwrap_or_default(),
        };
        (name.clone(), guards)
    });
    shown.collect()
}

pub(super) fn sources(
    admin: &Admin,
    counted: &StoreCount,
    figures: &Figures,
    rates: &FleetRates,
) -> Vec<SourceEntry> {
    let pauses = pauses(&counted.controls, ControlKind::Source);
    let mut names: BTreeSet<&String> = figures.sources.keys().chain(pauses.keys()).collect();
    names.extend(admin.sources.iter().map(|source| &source.name));
    let source = |name: &String| {
        let declared = admin.sources.iter().find(|source| source.name == *name);
        SourceEntry {
            name: name.clone(),
            kind: declared.map(|source| source.kind),
            pause: pauses.get(name).cloned(),
            per_second: rounded(rates.sources.get(name)),
            figures: figures.sources.get(name).cloned().unwrap_or_default(),
        }
    };
    names.into_iter().map(source).collect()
}

pub(super) fn process_types(counted: &StoreCount, figures: &Figures) -> Vec<ProcessTypeState> {
    let pauses = pauses(&counted.controls, ControlKind::ProcessType);
    let names: BTreeSet<&String> = figures.process_types.iter().chain(pauses.keys()).collect();
    let one =
        |name: &String| ProcessTypeState { name: name.clone(), pause: pauses.get(name).cloned() };
    names.into_iter().map(one).collect()
}

fn pauses(controls: &[Control], kind: ControlKind) -> BTreeMap<String, Pause> {
    let of_kind = controls.iter().filter(|control| control.kind == kind);
    of_kind.filter_map(|c| Some((c.name.clone(), c.pause.clone()?))).collect()
}

fn rounded(rate: Option<&f64>) -> f64 {
    (rate.copied().unwrap_or(0.0) * 10.0).round() / 10.0
}
