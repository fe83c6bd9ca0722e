//! Commits of a job: its phases, and whatever else the store must record.
//!
//! Invariant: a call to the store is repeated until the database answers it.

use relais_core::{
    bulk::{Advance, BulkLease, Phase},
    delivery::Problem,
    store::{Store, StoreError, StoreErrorText, StoreFuture},
};

use super::{JobDriver, note};
use crate::{bulk::halt::Halt, timing::DatabaseBackoff};

impl JobDriver {
    /// Checks in the store that this worker still owns the job.
    pub(super) async fn prove(&self) -> Result<(), Halt> {
        let (fence, lease) = (self.fence.clone(), self.lease);
        let renew = BulkLease::Renew { fence, lease };
        let held = self.persist(move |store| store.lease_bulk(renew.clone())).await?;
        held.map(drop).ok_or(Halt::Lost)
    }

    pub(super) async fn commit(&mut self, to: Phase, why: Option<&Problem>) -> Result<(), Halt> {
        self.commit_as(to, None, why.map(note)).await
    }

    /// Commits a phase, then changes it here. A refusal means that this worker lost the job. Without a new
    /// phase the fence is checked all the same, before the call that follows.
    pub(super) async fn commit_as(
        &mut self,
        to: Phase,
        remote_id: Option<String>,
        note: Option<String>,
    ) -> Result<(), Halt> {
        if to == self.job.phase {
            return self.prove().await;
        }
        let step = Advance { from: self.job.phase, to, remote_id: remote_id.clone(), note };
        let fence = self.fence.clone();
        if !self.persist(move |store| store.advance_bulk(fence.clone(), step.clone())).await? {
            return Err(Halt::Lost);
        }
        crate::fail_point!("bulk.after_phase");
        self.job.phase = to;
        if remote_id.is_some() {
            self.job.remote_id = remote_id;
        }
        Ok(())
    }

    /// Repeats a store call until the database is available: the effects at the target must be recorded.
    /// The inner error is the reason of a call that the database refuses, which it would refuse again.
    pub(super) async fn attempt<T>(
        &self,
        work: impl for<'a> Fn(&'a dyn Store) -> StoreFuture<'a, T>,
    ) -> Result<Result<T, StoreErrorText>, Halt> {
        let mut backoff = DatabaseBackoff::default();
        loop {
            match self.halts().unless_lost(work(self.store.as_ref())).await? {
                Ok(done) => return Ok(Ok(done)),
                Err(StoreError::Invalid(reason)) => return Ok(Err(reason)),
                Err(error) => tracing::warn!(
                    destination = self.job.destination, %error, "database did not answer; waiting"
                ),
            }
            self.halts().rest(backoff.next_pause()).await?;
        }
    }

    /// As [`Self::attempt`], for calls about the whole job: one that the database refuses is repeated too.
    pub(super) async fn persist<T>(
        &self,
        work: impl for<'a> Fn(&'a dyn Store) -> StoreFuture<'a, T>,
    ) -> Result<T, Halt> {
        let mut backoff = DatabaseBackoff::default();
        loop {
            match self.attempt(&work).await? {
                Ok(done) => return Ok(done),
                Err(reason) => tracing::warn!(
                    destination = self.job.destination, %reason,
                    "database refused a change of a bulk job; waiting"
                ),
            }
            self.halts().rest(backoff.next_pause()).await?;
        }
    }
}
