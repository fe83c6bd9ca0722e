//! Settles the rows of a job by the answers of the target.

use std::time::Duration;

use relais_core::{
    delivery::{Delivery, Problem},
    fault::{FailureKind, Fault, Judgement},
    outbox::{OutboxFate, OutboxRow, settle},
    store::{Payloads, StoreErrorText},
};

use super::{JobDriver, note};
use crate::{
    app::DestinationSettings,
    bulk::{halt::Halt, halving::Blame},
    observe::trace::JobSpan,
    quarantine::job_fate,
    random::random,
    refused::{log_refused, refused_fate},
    relay::count,
};

/// Maximum rows settled in one transaction.
const SETTLED_MAX: usize = 500;

/// The rest of a job with a row that the database does not even release.
const REFUSED_REST: Duration = Duration::from_secs(30);

/// Returns the fate of a row. After an answer about the whole target the row is released unchanged.
fn fate(
    policy: &DestinationSettings,
    row: &OutboxRow,
    answer: Delivery,
    fault: Fault,
) -> OutboxFate {
    if answer.failure() == Some(FailureKind::Unreachable) {
        return OutboxFate::Untouched;
    }
    let is_reject = matches!(answer, Delivery::Reject { .. });
    let fault = if is_reject { Fault::Message } else { fault };
    let judgement = Judgement { fault, failures: row.attempts.saturating_add(1) };
    settle(&policy.retry, policy.on_dead_letter, row.attempts, answer, judgement, random())
}

impl JobDriver {
    /// Counts the loss of the last worker on every row of its job, and releases them.
    pub(super) async fn count_loss(&self) -> Result<(), Halt> {
        tracing::warn!(
            destination = self.job.destination,
            job = %self.job.id,
            rows = self.job.row_count,
            phase = self.job.phase.as_str(),
            "worker was lost with a bulk job; its rows are sent again"
        );
        let policy = &self.settings.destination;
        let mut after = 0;
        loop {
            let rows = self.page(after, Payloads::Omitted).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.id;
            let fates =
                rows.iter().map(|row| (row, job_fate(row, policy.on_dead_letter, self.lease)));
            self.write(&fates.collect::<Vec<_>>()).await?;
        }
    }

    /// Settles every remaining row that has an answer, page by page. `fault` is the fault of a failure.
    pub(super) async fn settle_each(
        &self,
        fault: Fault,
        mut answer: impl FnMut(&OutboxRow) -> Option<Delivery>,
    ) -> Result<(), Halt> {
        let mut after = 0;
        loop {
            let rows = self.page(after, Payloads::Omitted).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.id;
            let answers: Vec<_> = rows.iter().filter_map(|row| Some((row, answer(row)?))).collect();
            self.settle(fault, answers.into_iter()).await?;
        }
    }

    pub(super) async fn settle<'r>(
        &self,
        fault: Fault,
        answers: impl Iterator<Item = (&'r OutboxRow, Delivery)>,
    ) -> Result<(), Halt> {
        let policy = &self.settings.destination;
        let answers: Vec<_> = answers.collect();
        self.trace(&answers);
        let fates: Vec<(&OutboxRow, OutboxFate)> = answers
            .into_iter()
            .map(|(row, answer)| (row, fate(policy, row, answer, fault)))
            .collect();
        self.write(&fates).await
    }

    async fn write(&self, fates: &[(&OutboxRow, OutboxFate)]) -> Result<(), Halt> {
        for part in fates.chunks(SETTLED_MAX) {
            let rows = part.iter().map(|(row, fate)| (row.id, fate.clone())).collect();
            let Err(reason) = self.commit_fates(rows).await? else {
                part.iter().for_each(|(row, fate)| count(&self.caller.counters, row, fate));
                continue;
            };
            tracing::warn!(
                destination = self.job.destination, %reason,
                "database refused a batch; settling its rows singly"
            );
            for (row, fate) in part {
                self.settle_one(row, fate).await?;
            }
        }
        Ok(())
    }

    /// Settles one row after the database refused it or others with it.
    async fn settle_one(&self, row: &OutboxRow, fate: &OutboxFate) -> Result<(), Halt> {
        let counters = &self.caller.counters;
        let Err(reason) = self.commit_fates(vec![(row.id, fate.clone())]).await? else {
            count(counters, row, fate);
            return Ok(());
        };
        let park = self.settings.destination.on_dead_letter.parks();
        let (dead, _) = refused_fate(fate, &reason, park);
        let Err(reason) = self.commit_fates(vec![(row.id, dead.clone())]).await? else {
            count(counters, row, &dead);
            return Ok(());
        };
        log_refused(row.id, &reason);
        // Before the row leaves the job: this worker must not plan it again.
        self.refused.add(row.msg_key.clone());
        let left_out = self.commit_fates(vec![(row.id, OutboxFate::Untouched)]).await?;
        if let Err(reason) = left_out {
            tracing::error!(row = row.id, %reason, "outbox row stays in its bulk job");
            self.halts().rest(REFUSED_REST).await?;
        }
        Ok(())
    }

    /// Commits fates of rows; the inner error is the reason why the database refuses one of them.
    async fn commit_fates(
        &self,
        rows: Vec<(i64, OutboxFate)>,
    ) -> Result<Result<(), StoreErrorText>, Halt> {
        let fence = self.fence.clone();
        let settled = self.attempt(|store| store.settle_bulk(fence.clone(), rows.clone())).await?;
        crate::fail_point!("bulk.after_settlement");
        match settled {
            Ok(settled) if settled.refused > 0 => {
                // An operator decided first, or this worker lost the job.
                self.caller.counters.refused(settled.refused);
                self.prove().await?;
                Ok(Ok(()))
            }
            settled => Ok(settled.map(drop)),
        }
    }

    /// Releases the rows of a job that failed before any of them was tried. They are sent again in smaller
    /// jobs; a row that was alone uses an attempt.
    pub(super) async fn failed_whole(&self, ids: &[i64], problem: &Problem) -> Result<(), Halt> {
        let blame = self.halving.failed(ids);
        tracing::warn!(
            destination = self.job.destination,
            rows = ids.len(),
            ?blame,
            why = note(problem),
            "bulk job failed as a whole"
        );
        let answer = match blame {
            Blame::Row => Delivery::Retry { problem: problem.clone(), after: None },
            Blame::Unknown | Blame::Target => Delivery::Held,
        };
        self.settle_each(Fault::Message, |_| Some(answer.clone())).await?;
        if blame == Blame::Target {
            self.caller.refused(problem);
        }
        Ok(())
    }

    fn trace(&self, answers: &[(&OutboxRow, Delivery)]) {
        let Some(tracer) = &self.caller.counters.tracer else { return };
        let job = JobSpan {
            id: self.job.id.to_string(),
            remote_id: self.job.remote_id.clone(),
            start: self.start,
            rows: usize::try_from(self.job.row_count).unwrap_or(usize::MAX),
        };
        answers.iter().for_each(|(row, answer)| tracer.in_job(row, &job, answer));
    }
}
