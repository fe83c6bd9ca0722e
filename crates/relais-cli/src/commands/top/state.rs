//! Reads the state: from the API of a running relais if it answers, which costs no count, otherwise from the
//! store.

use std::{collections::BTreeMap, sync::Arc};

use relais_core::{query::FailingRow, store::StoreDriver, time::Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    args::Access,
    commands::{
        control,
        status::guards::{self, DestinationGuards},
    },
    failure::CommandError,
    settings::{AdminKeys, Settings, quantity::show_rate},
};

/// The state. The overview of the store and that of the API both parse as this.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct TopState {
    /// The time of the database.
    pub(super) now: Timestamp,
    pub(super) inbox: Vec<RowCount>,
    pub(super) inbox_oldest: Option<Timestamp>,
    pub(super) outbox: Vec<RowCount>,
    pub(super) backlogs: Vec<DestinationBacklog>,
    pub(super) dead_letters_open: u64,
    pub(super) parked_keys: u64,
    pub(super) processes: Vec<RowCount>,
    /// Processes that wait for a decision of an operator.
    #[serde(default)]
    pub(super) processes_need_operator: u64,
    pub(super) timers_due: u64,
    /// Pauses of operators, as text.
    #[serde(default)]
    pub(super) paused: Vec<String>,
    /// Limits of operators, as text.
    #[serde(default)]
    pub(super) limited: Vec<String>,
    /// The process that answers; its list of workers is a few seconds old.
    #[serde(default, skip_serializing)]
    pub(super) worker: Option<String>,
    pub(super) workers: Vec<WorkerLanes>,
    /// States in the process that serves `[admin]`; empty if none does.
    #[serde(default)]
    pub(super) destinations: BTreeMap<String, DestinationGuards>,
    /// The reason why those are unknown.
    #[serde(default)]
    pub(super) guards_unknown: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct RowCount {
    pub(super) name: String,
    pub(super) rows: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct DestinationBacklog {
    pub(super) destination: String,
    pub(super) pending: u64,
    pub(super) oldest: Option<Timestamp>,
    #[serde(default)]
    pub(super) failing_keys: u64,
    /// The oldest row of these keys.
    #[serde(default)]
    pub(super) failing: Option<FailingRow>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct WorkerLanes {
    pub(super) scope: String,
    pub(super) worker: String,
    pub(super) lanes: u64,
    pub(super) alive: bool,
}

impl TopState {
    /// Returns the names of the workers that answer.
    fn names(&self) -> impl Iterator<Item = &String> {
        self.workers.iter().map(|at| &at.worker).chain(&self.worker)
    }

    pub(super) fn rows(counts: &[RowCount], names: &[&str]) -> u64 {
        let wanted = counts.iter().filter(|count| names.contains(&count.name.as_str()));
        wanted.map(|count| count.rows).sum()
    }
}

/// Reads the state repeatedly.
pub(super) struct StateReader {
    store: Arc<dyn StoreDriver>,
    admin: Option<AdminKeys>,
    access: Access,
    /// The worker that is known to answer for this store.
    known: Option<String>,
}

impl StateReader {
    pub(super) fn new(
        store: Arc<dyn StoreDriver>,
        admin: Option<AdminKeys>,
        access: Access,
    ) -> Self {
        Self { store, admin, access, known: None }
    }

    pub(super) async fn read(&mut self) -> Result<TopState, CommandError> {
        let mut state = self.rows().await?;
        let controls = self.store.controls().await?;
        state.paused = control::paused(&controls, state.now);
        state.limited = control::limited(&controls);
        Ok(state)
    }

    async fn rows(&mut self) -> Result<TopState, CommandError> {
        let answered: Result<TopState, String> =
            guards::overview(self.admin.as_ref(), &self.access).await;
        let unknown = answered.as_ref().err().cloned();
        let answered = answered.ok();
        let known = |state: &TopState| state.names().any(|name| Some(name) == self.known.as_ref());
        if let Some(state) = answered.as_ref().filter(|state| known(state)) {
            return Ok(state.clone());
        }
        let overview = self.store.overview().await?;
        let ours = |name: &&String| guards::is_ours(name, &overview.workers);
        self.known = answered.as_ref().and_then(|state| state.names().find(ours).cloned());
        if let (Some(state), Some(_)) = (answered, &self.known) {
            return Ok(state);
        }
        // Both have the same field names.
        let state = serde_json::to_value(&overview).and_then(serde_json::from_value);
        Ok(TopState { guards_unknown: unknown, ..state.map_err(CommandError::failed)? })
    }
}

/// The configuration, which does not change meanwhile.
#[derive(Debug)]
pub(super) struct TopConfig {
    pub(super) store: String,
    pub(super) sources: Vec<String>,
    /// Name and rate limit of each destination, in the order of the configuration.
    pub(super) destinations: Vec<(String, Option<String>)>,
}

impl TopConfig {
    pub(super) fn new(settings: &Settings) -> Self {
        let destinations =
            settings.destinations.iter().map(|d| (d.name.clone(), d.limits.rate.map(show_rate)));
        let handlers = settings.handlers.iter().map(|h| (h.target(), h.limits.rate.map(show_rate)));
        Self {
            store: settings.store.url.to_string(),
            sources: settings.sources.iter().map(|source| source.name.clone()).collect(),
            destinations: destinations.chain(handlers).collect(),
        }
    }
}
