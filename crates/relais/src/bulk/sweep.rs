//! Aborts jobs that a lost answer left at the target.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{inspect::InspectExt, lane::OwnedLane, query::PAGE_MAX, store::StoreDriver};

use super::{BulkRelay, call::BulkCaller};

/// The owner of this lane sweeps, so that not every worker does.
const SWEEPING_LANE: i16 = 0;

impl BulkRelay {
    /// Starts a sweep if it is due and this worker owns the sweeping lane.
    pub(super) fn sweep(&mut self) -> bool {
        let holds = |lane: &OwnedLane| lane.lane == SWEEPING_LANE;
        if Instant::now() < self.sweep_at || self.caller.limits.is_open() {
            return false;
        }
        self.sweep_at = Instant::now() + self.settings.sweep_every;
        if !self.reader().keeper().usable().iter().any(holds) {
            return false;
        }
        let (store, caller) = (Arc::clone(&self.store), self.caller.clone());
        let (destination, limit) = (self.destination.clone(), self.settings.transfer_timeout);
        self.work.spawn(sweep(store, caller, destination, limit));
        true
    }
}

/// Aborts jobs of relais at the target that the store does not know; the target decides which are old
/// enough.
pub(crate) async fn sweep(
    store: Arc<dyn StoreDriver>,
    caller: BulkCaller,
    destination: String,
    limit: Duration,
) {
    // Open jobs come first in the list, and only those matter.
    let jobs = match store.list_bulk(Some(destination.clone()), PAGE_MAX).await {
        Ok(jobs) => jobs,
        Err(error) => {
            tracing::warn!(destination, %error, "sweep failed");
            return;
        }
    };
    let known: Vec<String> = jobs.into_iter().filter_map(|job| job.remote_id).collect();
    let swept = caller.call(limit, |target| target.sweep(&known)).await;
    if let Ok(Ok(aborted @ 1..)) = swept {
        tracing::info!(destination, aborted, "aborted jobs that a lost answer left");
    }
}
