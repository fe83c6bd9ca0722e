//! One look at everything: from the HTTP side of a running relais where it answers, which counts nothing
//! for it, else from the store.

use std::{collections::BTreeMap, sync::Arc};

use relais_core::{store::Store, time::Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    args::Access,
    commands::{
        control,
        status::guards::{self, Guards},
    },
    failure::Failure,
    settings::{AdminSettings, Settings, quantity::show_rate},
};

/// What there is to see. The overview of the store and that of the HTTP side both read as this.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Look {
    /// The database's now.
    pub(super) now: Timestamp,
    pub(super) inbox: Vec<Counted>,
    pub(super) inbox_oldest: Option<Timestamp>,
    pub(super) outbox: Vec<Counted>,
    pub(super) backlogs: Vec<Waiting>,
    pub(super) dead_letters_open: u64,
    pub(super) parked_keys: u64,
    pub(super) processes: Vec<Counted>,
    /// Processes that wait for a decision of an operator.
    #[serde(default)]
    pub(super) processes_need_operator: u64,
    pub(super) timers_due: u64,
    /// What operators paused, in words.
    #[serde(default)]
    pub(super) paused: Vec<String>,
    /// The process that answers; its count of workers is a few seconds old.
    #[serde(default, skip_serializing)]
    pub(super) worker: Option<String>,
    pub(super) workers: Vec<AtWork>,
    /// As the process sees them that serves `[admin]`; empty if none does.
    #[serde(default)]
    pub(super) destinations: BTreeMap<String, Guards>,
    /// Why those are not known.
    #[serde(default)]
    pub(super) guards_unknown: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Counted {
    pub(super) name: String,
    pub(super) rows: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Waiting {
    pub(super) destination: String,
    pub(super) pending: u64,
    pub(super) oldest: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct AtWork {
    pub(super) scope: String,
    pub(super) worker: String,
    pub(super) lanes: u64,
    pub(super) alive: bool,
}

impl Look {
    /// The names of the workers that answer.
    fn names(&self) -> impl Iterator<Item = &String> {
        self.workers.iter().map(|at| &at.worker).chain(&self.worker)
    }

    pub(super) fn rows(counts: &[Counted], names: &[&str]) -> u64 {
        let wanted = counts.iter().filter(|count| names.contains(&count.name.as_str()));
        wanted.map(|count| count.rows).sum()
    }
}

/// Looks again and again.
pub(super) struct Looker {
    store: Arc<dyn Store>,
    admin: Option<AdminSettings>,
    access: Access,
    /// The worker that was found to answer for this store.
    known: Option<String>,
}

impl Looker {
    pub(super) fn new(store: Arc<dyn Store>, admin: Option<AdminSettings>, access: Access) -> Self {
        Self { store, admin, access, known: None }
    }

    pub(super) async fn look(&mut self) -> Result<Look, Failure> {
        let mut look = self.rows().await?;
        look.paused = control::paused(&self.store.controls().await?, look.now);
        Ok(look)
    }

    async fn rows(&mut self) -> Result<Look, Failure> {
        let answered: Result<Look, String> =
            guards::overview(self.admin.as_ref(), &self.access).await;
        let unknown = answered.as_ref().err().cloned();
        let answered = answered.ok();
        let known = |look: &Look| look.names().any(|name| Some(name) == self.known.as_ref());
        if let Some(look) = answered.as_ref().filter(|look| known(look)) {
            return Ok(look.clone());
        }
        let overview = self.store.overview().await?;
        let ours = |name: &&String| guards::is_ours(name, &overview.workers);
        self.known = answered.as_ref().and_then(|look| look.names().find(ours).cloned());
        if let (Some(look), Some(_)) = (answered, &self.known) {
            return Ok(look);
        }
        // The same fields, by their names.
        let look = serde_json::to_value(&overview).and_then(serde_json::from_value);
        Ok(Look { guards_unknown: unknown, ..look.map_err(Failure::failed)? })
    }
}

/// What the settings say, which does not change while somebody looks.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) store: String,
    pub(super) sources: Vec<String>,
    /// Name and rate limit of each destination, in the order of the settings.
    pub(super) destinations: Vec<(String, Option<String>)>,
}

impl Place {
    pub(super) fn new(settings: &Settings) -> Self {
        let destinations = settings.destinations.iter();
        Self {
            store: settings.store.url.to_string(),
            sources: settings.sources.iter().map(|source| source.name.clone()).collect(),
            destinations: destinations
                .map(|d| (d.name.clone(), d.limits.rate.map(show_rate)))
                .collect(),
        }
    }
}
