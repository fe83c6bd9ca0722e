//! The definitions of this program, and how an inbox row concerns them. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use relais_core::{
    delivery::Problem,
    inbox::InboxRow,
    process::{Definition, PROCESS_DEFINITION, Process, ProcessRef, definition::Concern},
};

/// Definitions by type and version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    types: BTreeMap<String, BTreeMap<i32, Definition>>,
    /// The same definitions by the event types they wait for.
    by_event: HashMap<String, Vec<Definition>>,
}

/// The concerns of a row: how it relates to the definitions together.
#[derive(Debug, Default)]
pub(crate) struct Concerns {
    /// Definitions that start a process with the row.
    pub(crate) starts: Vec<Definition>,
    /// Processes that may wait for the row as a reply.
    pub(crate) replies: Vec<ProcessRef>,
    /// The problem of a definition that could not decide.
    pub(crate) problem: Option<Problem>,
}

/// Returns the name by which a worker announces a version of a process among event types. Names that begin
/// with `relais.` are reserved.
fn announced(process_type: &str, version: i32) -> String {
    format!("relais.Process:{process_type}@{version}")
}

impl Registry {
    /// Adds a definition.
    ///
    /// # Panics
    /// If this version of the type is registered already.
    pub(crate) fn add(&mut self, definition: Definition) {
        let (name, version) = (definition.process_type().to_owned(), definition.version());
        for event_type in definition.event_types() {
            self.by_event.entry(event_type.to_owned()).or_default().push(definition.clone());
        }
        let before = self.types.entry(name.clone()).or_default().insert(version, definition);
        assert!(before.is_none(), "version {version} of process `{name}` is registered already");
    }

    /// Returns the process types of all versions.
    pub(crate) fn process_types(&self) -> Vec<String> {
        self.types.keys().cloned().collect()
    }

    /// Returns what a worker with these definitions announces beside event types.
    pub(crate) fn announced(&self) -> Vec<String> {
        let versions = self.types.iter().flat_map(|(name, versions)| {
            versions.keys().map(move |version| announced(name, *version))
        });
        versions.collect()
    }

    /// Returns what a worker must announce to decide a row for these processes, if it is not known here.
    pub(crate) fn lacks<'p>(
        &self,
        mut processes: impl Iterator<Item = &'p Process>,
    ) -> Option<String> {
        let lacking = processes.find(|process| self.of(process).is_err())?;
        Some(announced(&lacking.process_type, lacking.definition))
    }

    /// Returns the handlers in other processes that steps use, each with a command and the process type.
    pub(crate) fn handler_commands(&self) -> BTreeSet<(&str, &str, &str)> {
        let definitions = self.types.values().flat_map(BTreeMap::values);
        let commands = definitions.flat_map(|definition| {
            let commands = definition.handler_commands().into_iter();
            commands.map(|(handler, command)| (handler, command, definition.process_type()))
        });
        commands.collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Returns the definition for new processes of a type.
    pub(crate) fn newest(&self, process_type: &str) -> Result<&Definition, Problem> {
        let versions = self.types.get(process_type);
        versions.and_then(|versions| versions.values().next_back()).ok_or_else(|| {
            Problem::new(
                PROCESS_DEFINITION,
                &format!("process `{process_type}` is not registered here; add its definition"),
            )
        })
    }

    /// Returns the definition that a process was started with.
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
                     which is not registered here{known}; add that version, then retry"
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
