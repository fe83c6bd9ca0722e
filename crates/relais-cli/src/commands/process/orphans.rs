//! Open processes whose definition is missing in the configuration; they wait until it is added again.

use std::collections::BTreeMap;

use relais_core::{
    inspect::InspectExt,
    process::{Process, ProcessFilter, ProcessStatus},
    query::PAGE_MAX,
    store::{StoreDriver, StoreError},
};

use crate::settings::Settings;

/// Returns one sentence per missing version or step. Only the newest page of each state is read, so some may
/// be missed.
pub(crate) async fn undeclared(
    settings: &Settings,
    store: &dyn StoreDriver,
) -> Result<Vec<String>, StoreError> {
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    for status in ProcessStatus::ALL.into_iter().filter(|status| !status.is_final()) {
        let open =
            ProcessFilter { status: Some(status), limit: PAGE_MAX, ..ProcessFilter::default() };
        let processes = store.list_processes(open).await?;
        for lack in processes.iter().filter_map(|process| lack(settings, process)) {
            *missing.entry(lack).or_default() += 1;
        }
    }
    let lines = missing.into_iter().map(|(lack, count)| {
        let plural = if count == 1 { "process waits" } else { "processes wait" };
        format!("{lack}; {count} {plural} for it: add it again until they have ended")
    });
    Ok(lines.collect())
}

/// Returns the part of the configuration that a process needs and lacks.
fn lack(settings: &Settings, process: &Process) -> Option<String> {
    let Process { process_type, definition: version, current_step, .. } = process;
    let declared = settings.processes.iter().map(|declared| &declared.definition);
    let own = declared
        .filter(|definition| definition.process_type() == process_type)
        .find(|definition| definition.version() == *version);
    let Some(own) = own else {
        return Some(format!("no [[process]] is `{process_type}` version {version}"));
    };
    let step = current_step.as_deref().filter(|step| !own.step_names().contains(step))?;
    Some(format!("`{process_type}` version {version} has no step `{step}`"))
}
