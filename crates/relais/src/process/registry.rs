//! The definitions known here, and what an inbox row means to them. Pure.

use std::collections::{BTreeMap, HashMap};

use relais_core::{
    delivery::Problem,
    inbox::InboxRow,
    process::{Definition, PROCESS_DEFINITION, Process, ProcessRef, definition::Concern},
};

/// Definitions by type and version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    types: BTreeMap<String, BTreeMap<i32, Definition>>,
    /// The same ones by the event types they wait for.
    by_event: HashMap<String, Vec<Definition>>,
}

/// What a row means to all definitions together.
#[derive(Debug, Default)]
pub(crate) struct Concerns {
    /// Each starts one process with it.
    pub(crate) starts: Vec<Definition>,
    /// Processes it may be a reply for.
    pub(crate) replies: Vec<ProcessRef>,
    /// Why a definition could not tell.
    pub(crate) problem: Option<Problem>,
}

/// How a version of a process is announced among event types; relais keeps names that begin with
/// `relais.` to itself.
fn announced(process_type: &str, version: i32) -> String {
    format!("relais.Process:{process_type}@{version}")
}

impl Registry {
    /// # Panics
    /// If this version of the type is there already.
    pub(crate) fn add(&mut self, definition: Definition) {
        let (name, version) = (definition.process_type().to_owned(), definition.version());
        for event_type in definition.event_types() {
            self.by_event.entry(event_type.to_owned()).or_default().push(definition.clone());
        }
        let before = self.types.entry(name.clone()).or_default().insert(version, definition);
        assert!(before.is_none(), "version {version} of process `{name}` is registered already");
    }

    /// The types of the processes, whatever their version.
    pub(crate) fn process_types(&self) -> Vec<String> {
        self.types.keys().cloned().collect()
    }

    /// What a worker with these definitions announces beside event types.
    pub(crate) fn announced(&self) -> Vec<String> {
        let versions = self.types.iter().flat_map(|(name, versions)| {
            versions.keys().map(move |version| announced(name, *version))
        });
        versions.collect()
    }

    /// What a worker must announce to handle a row for these processes, if that is not known here.
    pub(crate) fn lacks<'p>(
        &self,
        mut processes: impl Iterator<Item = &'p Process>,
    ) -> Option<String> {
        let lacking = processes.find(|process| self.of(process).is_err())?;
        Some(announced(&lacking.process_type, lacking.definition))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The definition that new processes of a type get.
    pub(crate) fn newest(&self, process_type: &str) -> Result<&Definition, Problem> {
        let versions = self.types.get(process_type);
        versions.and_then(|versions| versions.values().next_back()).ok_or_else(|| {
            Problem::new(
                PROCESS_DEFINITION,
                &format!("process `{process_type}` is not registered here; add its definition"),
            )
        })
    }

    /// The definition a process was started with.
    pub(crate) fn of(&self, process: &Process) -> Result<&Definition, Problem> {
        let Process { process_type, definition, process_id, .. } = process;
        let versions = self.types.get(process_type);
        versions.and_then(|versions| versions.get(definition)).ok_or_else(|| {
            let known = versions.map_or_else(String::new, |versions| {
                let known: Vec<_> = versions.keys().map(ToString::to_string).collect();
                format!(" (known here: {})", known.join(", "))
            });
            Problem::new(
                PROCESS_DEFINITION,
                &format!(
                    "process {process_id} was started with version {definition} of `{process_type}`, \
                     which is not registered here{known}; add that version, then replay"
                ),
            )
        })
    }

    pub(crate) fn concerns(&self, row: &InboxRow) -> Concerns {
        let mut concerns = Concerns::default();
        let event_type = row.event_type.as_deref().unwrap_or_default();
        for definition in self.by_event.get(event_type).into_iter().flatten() {
            match definition.concern(row) {
                None => {}
                Some(Ok(Concern::Start { .. })) if !self.is_newest(definition) => {}
                Some(Ok(Concern::Start { .. })) => concerns.starts.push(definition.clone()),
                Some(Ok(Concern::Reply(process))) if concerns.replies.contains(&process) => {}
                Some(Ok(Concern::Reply(process))) => concerns.replies.push(process),
                Some(Err(problem)) => concerns.problem = Some(problem),
            }
        }
        concerns
    }

    fn is_newest(&self, definition: &Definition) -> bool {
        let newest = self.newest(definition.process_type());
        newest.is_ok_and(|newest| newest.version() == definition.version())
    }
}
