//! Settles the rows of a job by the answers of the target.

use relais_core::{
    delivery::{Delivery, Problem},
    fault::{FailureKind, Fault, Judgement},
    outbox::{OutboxFate, OutboxRow, settle},
    store::Payloads,
};

use super::{JobDriver, note};
use crate::{
    app::DestinationSettings,
    bulk::{halt::Halt, halving::Blame},
    observe::trace::JobSpan,
    quarantine::job_fate,
    random::random,
    relay::count,
};

/// Maximum rows settled in one transaction.
const SETTLED_MAX: usize = 500;

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
            let rows: Vec<_> = part.iter().map(|(row, fate)| (row.id, fate.clone())).collect();
            let fence = self.fence.clone();
            let settled =
                self.persist(|store| store.settle_bulk(fence.clone(), rows.clone())).await?;
            crate::fail_point!("bulk.after_settlement");
            if settled.refused > 0 {
                // An operator decided first, or this worker lost the job.
                self.caller.counters.refused(settled.refused);
                self.prove().await?;
            }
            for (row, fate) in part {
                count(&self.caller.counters, row, fate);
            }
        }
        Ok(())
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
