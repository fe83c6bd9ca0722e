//! Drives one bulk job to its end, step by step: commit, call, commit.
//!
//! Invariant: before each call that changes something at the target, its phase is committed and the fence
//! is checked; after it, its result is committed. So the next worker can continue the job at any point,
//! and a worker that lost it changes nothing more.

mod commit;
mod rows;
mod settle;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use relais_core::{
    bulk::{Advance, BulkJob, BulkStep, CallProblem, JobFence, JobTakeover, Phase, Remote, next},
    delivery::{Delivery, Problem},
    fault::Fault,
    store::{Payloads, Store},
};

use self::rows::answers_missing;
use super::{
    BulkSettings,
    call::{BulkCaller, outage_of},
    halt::{Halt, Halts},
    halving::JobHalving,
};
use crate::{random::random, refused::RefusedKeys};

pub(crate) struct JobDriver {
    store: Arc<dyn Store>,
    caller: BulkCaller,
    settings: Arc<BulkSettings>,
    halving: Arc<JobHalving>,
    refused: RefusedKeys,
    job: BulkJob,
    /// The last worker was lost with the rows in its memory: each of them is a suspect.
    suspect: bool,
    fence: JobFence,
    lease: Duration,
    /// The parts of the upload, from `encode` until they are sent: not kept over a pause, because their
    /// data ages. The target limits their bytes.
    body: Option<Vec<Vec<u8>>>,
    /// The pause before the next poll of the target.
    poll: Duration,
    /// The time at which this worker started with the job.
    start: SystemTime,
}

impl JobDriver {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        caller: BulkCaller,
        (settings, halving, refused): (Arc<BulkSettings>, Arc<JobHalving>, RefusedKeys),
        JobTakeover { job, after_loss }: JobTakeover,
        (fence, lease): (JobFence, Duration),
    ) -> Self {
        let poll = settings.poll_first;
        Self {
            store,
            caller,
            settings,
            halving,
            refused,
            suspect: after_loss && (job.phase.is_before_upload() || job.phase == Phase::Uploading),
            job,
            fence,
            lease,
            body: None,
            poll,
            start: SystemTime::now(),
        }
    }

    /// Runs steps until the job has ended, or this worker must not continue it.
    pub(crate) async fn run(&mut self) -> Result<(), Halt> {
        crate::fail_point!("bulk.after_plan");
        let mut seen = None;
        while !self.job.phase.is_terminal() {
            self.halts().check()?;
            self.caller.counters.set_phase(Some(self.job.phase));
            let step = if self.suspect && self.job.phase.is_before_upload() {
                BulkStep::Abandon
            } else {
                next(self.job.phase, seen.as_ref())
            };
            seen = match step {
                BulkStep::Look => self.look().await?,
                BulkStep::Create => self.create().await?,
                BulkStep::Upload => self.upload().await?,
                BulkStep::Close => self.close().await?,
                BulkStep::Wait => self.wait().await?,
                BulkStep::Reconcile => self.reconcile(seen).await?,
                BulkStep::Abandon => self.abandon().await?,
                BulkStep::Lose => self.lose().await?,
            };
        }
        Ok(())
    }

    fn halts(&self) -> &Halts {
        &self.caller.halts
    }

    // ---- steps: each returns the known state of the target afterwards ----------------------------

    async fn look(&mut self) -> Result<Option<Remote>, Halt> {
        let Some(id) = self.job.remote_id.clone() else { return Ok(Some(Remote::Gone)) };
        let limit = self.settings.destination.timeout;
        let answer =
            self.caller.call(limit, |target| Box::pin(async move { target.state(&id).await }));
        match answer.await? {
            Ok(remote) => Ok(Some(remote)),
            Err(CallProblem::OtherState(_)) => self.wait().await,
            // The breaker knows it: the next call waits.
            Err(_) => Ok(None),
        }
    }

    async fn create(&mut self) -> Result<Option<Remote>, Halt> {
        let Some(body) = self.encode().await? else { return Ok(None) };
        self.commit(Phase::Creating, None).await?;
        let limit = self.settings.destination.timeout;
        match self.caller.call(limit, |target| target.create()).await? {
            Ok(id) => {
                crate::fail_point!("bulk.after_create");
                self.commit_as(Phase::Created, Some(id), None).await?;
                self.body = Some(body);
                Ok(Some(Remote::Open))
            }
            Err(CallProblem::Refused(problem)) => {
                // Nothing happened at the target, and nothing will until an operator acts.
                self.commit_as(Phase::Abandoned, None, Some(note(&problem))).await?;
                Ok(None)
            }
            Err(CallProblem::OtherState(_)) => self.wait().await,
            Err(_) => Ok(None),
        }
    }

    async fn upload(&mut self) -> Result<Option<Remote>, Halt> {
        let body = match self.body.take() {
            Some(body) => Some(body),
            None => self.encode().await?,
        };
        let (Some(body), Some(id)) = (body, self.job.remote_id.clone()) else { return Ok(None) };
        self.commit(Phase::Uploading, None).await?;
        let limit = self.settings.transfer_timeout;
        let call = self
            .caller
            .call(limit, |target| Box::pin(async move { target.upload(&id, body).await }));
        match call.await? {
            Ok(()) => {
                crate::fail_point!("bulk.after_upload");
                self.commit(Phase::Uploaded, None).await?;
                Ok(Some(Remote::Open))
            }
            // The upload is never repeated for this job: the target is asked for its state.
            Err(_) => Ok(None),
        }
    }

    async fn close(&mut self) -> Result<Option<Remote>, Halt> {
        let Some(id) = self.job.remote_id.clone() else { return Ok(Some(Remote::Gone)) };
        // Closed here and still open at the target: it is closed once more.
        let to = if self.job.phase == Phase::Closed { Phase::Closed } else { Phase::Closing };
        self.commit(to, None).await?;
        let limit = self.settings.destination.timeout;
        let call =
            self.caller.call(limit, |target| Box::pin(async move { target.close(&id).await }));
        match call.await? {
            Ok(()) => {
                crate::fail_point!("bulk.after_close");
                self.commit(Phase::Closed, None).await?;
                self.poll = self.settings.poll_first;
                Ok(Some(Remote::Running))
            }
            Err(CallProblem::OtherState(_)) => self.wait().await,
            Err(_) => Ok(None),
        }
    }

    /// Waits before the next poll, longer each time up to the maximum.
    async fn wait(&mut self) -> Result<Option<Remote>, Halt> {
        let spread = 1.0 + random() / 4.0;
        let pause = self.poll.mul_f64(spread);
        self.poll = (self.poll * 2).min(self.settings.poll_max);
        self.halts().rest(pause).await?;
        Ok(None)
    }

    async fn reconcile(&mut self, seen: Option<Remote>) -> Result<Option<Remote>, Halt> {
        let failed = match seen {
            Some(Remote::Failed(problem)) => Some(problem),
            _ => None,
        };
        self.commit(Phase::Finished, failed.as_ref()).await?;
        let (ids, external_ids) = self.names().await?;
        let Some(id) = self.job.remote_id.clone() else { return self.lose().await };
        if ids.is_empty() {
            return self.end().await;
        }
        let (limit, asked) = (self.settings.transfer_timeout, &external_ids);
        let call = self.caller.call(limit, |target| {
            Box::pin(async move {
                let deliveries = target.results(&id, asked).await?;
                if deliveries.len() == asked.len() {
                    Ok(deliveries)
                } else {
                    Err(answers_missing())
                }
            })
        });
        match call.await? {
            Ok(mut deliveries) => {
                crate::fail_point!("bulk.after_results");
                let is_untried = |answer: &Delivery| *answer == Delivery::Held;
                if let Some(problem) = failed.as_ref().filter(|_| deliveries.iter().all(is_untried))
                {
                    self.failed_whole(&ids, problem).await?;
                    return self.end().await;
                }
                let accepted = deliveries.contains(&Delivery::Accepted);
                let outage = deliveries.iter().find_map(outage_of);
                let is_done = |answer: &Delivery| {
                    matches!(answer, Delivery::Accepted | Delivery::Reject { .. })
                };
                if deliveries
                    .iter()
                    .any(|answer| !is_untried(answer) && outage_of(answer).is_none())
                {
                    self.halving.succeeded(self.caller.rows_max());
                }
                // A job in which no row got an answer of its own is no evidence about any of them.
                let judged = deliveries.len() == 1 || deliveries.iter().any(is_done);
                let fault = if judged { Fault::Message } else { Fault::Target };
                self.settle_each(fault, |row| {
                    let at = ids.binary_search(&row.id).ok()?;
                    Some(std::mem::replace(&mut deliveries[at], Delivery::Held))
                })
                .await?;
                // The next job of the same rows would fail too.
                if let Some(problem) = failed.filter(|_| !accepted) {
                    self.caller.refused(&problem);
                } else if let Some(outage) = outage {
                    self.caller.outage(outage);
                }
                self.end().await
            }
            Err(CallProblem::OtherState(_)) => match self.look().await? {
                Some(Remote::Gone) => self.lose().await,
                _ => self.wait().await,
            },
            Err(_) => Ok(None),
        }
    }

    async fn abandon(&mut self) -> Result<Option<Remote>, Halt> {
        let Some(id) = self.job.remote_id.clone() else { return self.release_rows().await };
        self.prove().await?;
        let limit = self.settings.destination.timeout;
        let call =
            self.caller.call(limit, |target| Box::pin(async move { target.abort(&id).await }));
        match call.await? {
            Ok(()) => self.release_rows().await,
            // Nothing was ever uploaded: the last worker aborted it, or it was deleted.
            Err(CallProblem::OtherState(_)) if self.job.phase.is_before_upload() => {
                self.release_rows().await
            }
            Err(CallProblem::OtherState(_)) => self.wait().await,
            Err(_) => Ok(None),
        }
    }

    /// Ends a job that had no effect at the target: its rows are sent again.
    async fn release_rows(&mut self) -> Result<Option<Remote>, Halt> {
        if self.suspect {
            self.count_loss().await?;
            return self.end().await;
        }
        self.commit(Phase::Abandoned, None).await?;
        Ok(None)
    }

    /// Settles the rows as retries, because their results are lost; each uses an attempt.
    async fn lose(&mut self) -> Result<Option<Remote>, Halt> {
        let lost = Delivery::retry(
            "RESULTS_LOST",
            "the target does not know its job any more; its rows are sent again",
        );
        self.settle_each(Fault::Message, |_| Some(lost.clone())).await?;
        self.end().await
    }

    // ---- parts of steps --------------------------------------------------------------------------

    /// Ends a job without rows to send. Aborts it at the target; if this call is lost, the sweep finds it.
    async fn end_early(&mut self) -> Result<(), Halt> {
        if let Some(id) = self.job.remote_id.clone() {
            let limit = self.settings.destination.timeout;
            let call =
                self.caller.call(limit, |target| Box::pin(async move { target.abort(&id).await }));
            let _ = call.await?;
        }
        self.end().await.map(drop)
    }

    /// Ends a job without rows; the store ended others with their last row.
    async fn end(&mut self) -> Result<Option<Remote>, Halt> {
        let job = self.job.id;
        if !self
            .persist(move |store| store.bulk_rows(job, 0, 1, Payloads::Omitted))
            .await?
            .is_empty()
        {
            // Some rows could not be settled: continue with them.
            return Ok(None);
        }
        let step =
            Advance { from: self.job.phase, to: Phase::Reconciled, remote_id: None, note: None };
        let fence = self.fence.clone();
        self.persist(move |store| store.advance_bulk(fence.clone(), step.clone())).await?;
        self.job.phase = Phase::Reconciled;
        Ok(None)
    }
}

fn note(problem: &Problem) -> String {
    format!("{}: {}", problem.code, problem.message)
}
