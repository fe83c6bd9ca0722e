//! The lease of one bulk job: renewed on a task of its own, so that a long call cannot delay it.
//!
//! Invariant: this worker owns the job only until its lease may have expired, measured from *before* the
//! call that renewed it. The fence in the store has the last word.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    bulk::{BulkLease, JobFence, JobTakeover},
    store::{Store, StoreError},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::BulkRelay;
use crate::timing::{beat_interval, beat_retry};

/// The lease of a running job. Dropped without [`JobLease::release`], it expires.
pub(crate) struct JobLease {
    store: Arc<dyn Store>,
    fence: JobFence,
    lost: CancellationToken,
    beats: JoinHandle<()>,
}

impl JobLease {
    /// Keeps the lease that was requested at `asked_at`.
    pub(crate) fn keep(
        store: Arc<dyn Store>,
        fence: JobFence,
        lease: Duration,
        asked_at: Instant,
    ) -> Self {
        let lost = CancellationToken::new();
        let beats = beat(Arc::clone(&store), fence.clone(), lease, asked_at, lost.clone());
        Self { store, fence, lost, beats: tokio::spawn(beats) }
    }

    /// Returns a token that is cancelled when another worker may own the job.
    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Releases the job: another worker may take it at once.
    pub(crate) async fn release(self) {
        self.beats.abort();
        let release = BulkLease::Release { fence: self.fence.clone() };
        if let Err(error) = self.store.lease_bulk(release).await {
            tracing::warn!(%error, "bulk job was not released; its lease will expire");
        }
    }
}

impl Drop for JobLease {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

impl BulkRelay {
    /// Renews the lease of a new job whose plan took long: on SQLite nothing can renew it meanwhile. Returns
    /// when the lease was requested; `None` if another worker has the job.
    pub(crate) async fn renewed(
        &self,
        planned: &JobTakeover,
        asked_at: Instant,
    ) -> Result<Option<Instant>, StoreError> {
        if asked_at.elapsed() < beat_interval(self.lease) {
            return Ok(Some(asked_at));
        }
        let asked_at = Instant::now();
        let renew = BulkLease::Renew { fence: self.job_fence(planned), lease: self.lease };
        Ok(self.store.lease_bulk(renew).await?.map(|_| asked_at))
    }
}

async fn beat(
    store: Arc<dyn Store>,
    fence: JobFence,
    lease: Duration,
    asked_at: Instant,
    lost: CancellationToken,
) {
    let _cancel_at_end = lost.drop_guard();
    let mut valid_until = asked_at + lease;
    let mut pause = beat_interval(lease);
    loop {
        tokio::time::sleep(pause).await;
        let asked_at = Instant::now();
        let left = valid_until.saturating_duration_since(asked_at);
        let renew = BulkLease::Renew { fence: fence.clone(), lease };
        match tokio::time::timeout(left, store.lease_bulk(renew)).await {
            Ok(Ok(Some(_))) => {
                valid_until = asked_at + lease;
                pause = beat_interval(lease);
            }
            Ok(Ok(None)) | Err(_) => return,
            Ok(Err(_)) => pause = beat_retry(lease),
        }
    }
}
