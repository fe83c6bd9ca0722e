//! Warns about messages for destinations and subscribers that no live worker serves: usually a misspelt,
//! renamed or removed one. Warns about destinations that processes configure differently, too.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use relais_core::{
    inbox::SUBSCRIBER_SEPARATOR,
    inspect::Inspect,
    lane::Scope,
    query::{Backlog, Count, Overview},
    store::StoreError,
};

use crate::{
    observe::{Observer, configuration_conflicts},
    worker::{PassOutcome, Worker},
};

/// The time from the start to the first check: it counts rows, and the first messages are more urgent.
pub(crate) const FIRST_AFTER: Duration = Duration::from_secs(2);
/// The time between two checks.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// Destinations, and inboxes, that one check warns about.
const WARNINGS_MAX: usize = 20;

/// A worker that checks once a minute.
pub(crate) struct UnservedCheck {
    store: Arc<dyn Inspect>,
    /// Scopes served by this process, whose workers may not have started yet.
    own: BTreeSet<String>,
    observer: Arc<Observer>,
    next: Instant,
    every: Duration,
}

impl UnservedCheck {
    pub(crate) fn new(
        store: Arc<dyn Inspect>,
        own: BTreeSet<String>,
        observer: Arc<Observer>,
    ) -> Self {
        Self { store, own, observer, next: Instant::now() + FIRST_AFTER, every: EVERY }
    }

    /// The same with other times to the first check and between two checks.
    #[cfg(test)]
    pub(crate) fn with_times(self, first_after: Duration, every: Duration) -> Self {
        Self { next: Instant::now() + first_after, every, ..self }
    }

    fn warn(&self, overview: &Overview) {
        let found = unserved(overview, &self.own);
        for Backlog { destination, pending, .. } in found.iter().take(WARNINGS_MAX) {
            tracing::warn!(
                destination,
                pending,
                "messages wait for a destination that no worker serves; check its name or start its worker"
            );
        }
        let inboxes = unserved_inboxes(overview, &self.own);
        for Count { name, rows } in inboxes.iter().take(WARNINGS_MAX) {
            tracing::warn!(
                inbox = name,
                waiting = rows,
                "messages wait for {}, which no worker serves; start its worker, or subscribe under the \
                 old name until they are handled",
                describe_inbox(name)
            );
        }
        let found = found.into_iter().map(|b| (b.destination.clone(), b.pending));
        let inboxes = inboxes.into_iter().map(|count| (count.name.clone(), count.rows));
        self.observer.set_unserved(found.collect(), inboxes.collect());
    }
}

/// Names an inbox as operators know it: `subscriber search`, `subscriber search of inbox billing`.
pub(crate) fn describe_inbox(inbox: &str) -> String {
    match inbox.split_once(SUBSCRIBER_SEPARATOR) {
        Some(("", subscriber)) => format!("subscriber {subscriber}"),
        Some((of, subscriber)) => format!("subscriber {subscriber} of inbox {of}"),
        None => format!("inbox {inbox}"),
    }
}

/// Returns the inboxes with messages that no live worker handles.
fn unserved_inboxes<'a>(overview: &'a Overview, own: &BTreeSet<String>) -> Vec<&'a Count> {
    let is_own = |count: &&Count| own.contains(&Scope::of_inbox(&count.name).to_string());
    overview.unserved_inboxes.iter().filter(|count| !is_own(count)).collect()
}

/// Returns the backlogs that no live worker delivers.
fn unserved<'a>(overview: &'a Overview, own: &BTreeSet<String>) -> Vec<&'a Backlog> {
    let alive = overview.workers.iter().filter(|worker| worker.alive);
    let alive: BTreeSet<&str> = alive.map(|worker| worker.scope.as_str()).collect();
    let is_served = |destination: &String| {
        let scope = Scope::Outbox(destination.clone()).to_string();
        own.contains(&scope) || alive.contains(scope.as_str())
    };
    let waiting = overview.backlogs.iter().filter(|backlog| backlog.pending > 0);
    waiting.filter(|backlog| !is_served(&backlog.destination)).collect()
}

#[async_trait]
impl Worker for UnservedCheck {
    async fn run_once(&mut self) -> Result<PassOutcome, StoreError> {
        let wait = self.next.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return Ok(PassOutcome::Idle { at_most: wait });
        }
        let overview = self.store.overview().await?;
        self.warn(&overview);
        let conflicts = configuration_conflicts(&self.store.reports().await?);
        for (destination, text) in conflicts.iter().take(WARNINGS_MAX) {
            tracing::warn!(destination, "{text}");
        }
        self.next = Instant::now() + self.every;
        Ok(PassOutcome::Idle { at_most: self.every })
    }
}
