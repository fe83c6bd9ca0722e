//! Pauses of operators.

use relais_core::control::ControlKind;

use super::{MetricsInput, page::MetricsPage};

pub(super) fn render(page: &mut MetricsPage, seen: &MetricsInput<'_>) {
    let is_paused = |kind: ControlKind, name: &str| {
        let mut controls = seen.controls.iter();
        u64::from(controls.any(|c| c.kind == kind && c.name == name && c.pause.is_some()))
    };
    page.head("relais_destination_paused", "gauge", "1 if an operator paused the destination.");
    for name in seen.snapshot.destinations.keys() {
        let paused = is_paused(ControlKind::Destination, name);
        page.line("relais_destination_paused", &[("destination", name)], paused);
    }
    page.head("relais_source_paused", "gauge", "1 if an operator paused the source.");
    for name in seen.snapshot.sources.keys() {
        let paused = is_paused(ControlKind::Source, name);
        page.line("relais_source_paused", &[("source", name)], paused);
    }
    page.head("relais_process_type_paused", "gauge", "1 if an operator paused the process type.");
    for name in seen.process_types {
        let paused = is_paused(ControlKind::ProcessType, name);
        page.line("relais_process_type_paused", &[("type", name)], paused);
    }
}
