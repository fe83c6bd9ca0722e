//! Removes finished rows past their retention, in small transactions. Rows that are not delivered, failed
//! or waiting for an operator are never removed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use relais_core::{
    query::{CleanupCounts, CleanupMode, Retention},
    store::{Store, StoreError},
};

use crate::{
    observe::Observer,
    worker::{PassOutcome, Worker},
};

/// Maximum number of rows of one table that one transaction removes.
const ROWS_MAX: usize = 1_000;
/// The rest when few rows are old enough.
const REST: Duration = Duration::from_secs(60);
/// The rest between two transactions, so that messages have priority.
const BATCH_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Cleanup {
    store: Arc<dyn Store>,
    retention: Retention,
    observer: Arc<Observer>,
    next: Instant,
    /// Rows removed since the last rest: one line of the log names them all.
    removed: CleanupCounts,
}

impl Cleanup {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        retention: Retention,
        observer: Arc<Observer>,
    ) -> Self {
        Self { store, retention, observer, next: Instant::now(), removed: CleanupCounts::default() }
    }

    /// Logs the rows of a clean-up that has reached its end.
    fn report(&mut self) {
        let CleanupCounts { inbox, outbox, handled, dead_letters, processes, versions } =
            std::mem::take(&mut self.removed);
        tracing::info!(
            inbox,
            outbox,
            handled,
            dead_letters,
            processes,
            versions,
            "removed rows past their retention"
        );
    }
}

#[async_trait]
impl Worker for Cleanup {
    async fn run_once(&mut self) -> Result<PassOutcome, StoreError> {
        let wait = self.next.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return Ok(PassOutcome::Idle { at_most: wait });
        }
        let remove = CleanupMode::Remove { rows_max: ROWS_MAX };
        let cleaned = self.store.cleanup(self.retention, remove).await?;
        crate::fail_point!("cleanup.after_batch");
        self.observer.cleaned(cleaned);
        self.removed += cleaned;
        let rest = if cleaned.reached_the_end(ROWS_MAX) { REST } else { BATCH_PAUSE };
        if rest == REST && self.removed.total() > 0 {
            self.report();
        }
        self.next = Instant::now() + rest;
        Ok(PassOutcome::Idle { at_most: rest })
    }
}
