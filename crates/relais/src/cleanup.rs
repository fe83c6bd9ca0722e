//! Removes finished rows past their retention, in small transactions. What is not delivered, failed
//! or waiting for a person is never removed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    BoxFuture,
    query::Retention,
    store::{Store, StoreError},
};

use crate::worker::{Progress, Worker};

/// Rows of one table removed in one transaction.
const ROWS_MAX: usize = 1_000;
/// The rest between two looks when nothing is old enough.
const REST: Duration = Duration::from_secs(60);
/// The rest between two transactions, so that traffic goes first.
const BREATH: Duration = Duration::from_millis(50);

pub(crate) struct Cleanup {
    store: Arc<dyn Store>,
    retention: Retention,
    next: Instant,
}

impl Cleanup {
    pub(crate) fn new(store: Arc<dyn Store>, retention: Retention) -> Self {
        Self { store, retention, next: Instant::now() }
    }
}

impl Worker for Cleanup {
    fn run_once(&mut self) -> BoxFuture<'_, Result<Progress, StoreError>> {
        Box::pin(async {
            let wait = self.next.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                return Ok(Progress::Idle { at_most: wait });
            }
            let cleaned = self.store.cleanup(self.retention, ROWS_MAX).await?;
            relais_store::fail_point!("cleanup.after_batch");
            let rest = if cleaned.total() > 0 { BREATH } else { REST };
            self.next = Instant::now() + rest;
            Ok(Progress::Idle { at_most: rest })
        })
    }
}
