//! The lease of one bulk job: renewed on a task of its own, so that a long call cannot delay it.
//!
//! Invariant: the job counts as ours only until the moment its lease could have run out, measured from
//! *before* the call that renewed it; the fence in the store has the last word.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{bulk::JobFence, store::Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A heartbeat comes this many times within one lease.
const BEATS_PER_LEASE: u32 = 3;
/// The pause after a heartbeat that failed.
const BEAT_RETRY: Duration = Duration::from_millis(200);

/// Held while the job is worked on. Dropped without [`JobLease::give_back`], it runs out.
pub(crate) struct JobLease {
    store: Arc<dyn Store>,
    fence: JobFence,
    lost: CancellationToken,
    beats: JoinHandle<()>,
}

impl JobLease {
    /// Keeps the lease that was asked for at `asked_at`.
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

    /// Resolves when somebody else may have the job.
    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Another worker may take the job at once.
    pub(crate) async fn give_back(self) {
        self.beats.abort();
        if let Err(error) = self.store.release_bulk(self.fence.clone()).await {
            tracing::warn!(%error, "a bulk job is not given back; its lease runs out");
        }
    }
}

impl Drop for JobLease {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

async fn beat(
    store: Arc<dyn Store>,
    fence: JobFence,
    lease: Duration,
    asked_at: Instant,
    lost: CancellationToken,
) {
    let _tell = lost.drop_guard();
    let mut valid_until = asked_at + lease;
    let mut pause = lease / BEATS_PER_LEASE;
    loop {
        tokio::time::sleep(pause).await;
        let asked_at = Instant::now();
        let left = valid_until.saturating_duration_since(asked_at);
        match tokio::time::timeout(left, store.renew_bulk(fence.clone(), lease)).await {
            Ok(Ok(true)) => {
                valid_until = asked_at + lease;
                pause = lease / BEATS_PER_LEASE;
            }
            Ok(Ok(false)) | Err(_) => return,
            Ok(Err(_)) => pause = BEAT_RETRY.min(lease / BEATS_PER_LEASE),
        }
    }
}
