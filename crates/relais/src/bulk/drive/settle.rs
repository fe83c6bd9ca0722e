//! What the target said of a job's rows, written down in the store.

use relais_core::{
    delivery::Delivery,
    fault::{FailureKind, Fault, Judgement},
    outbox::{OutboxFate, OutboxRow, settle},
    store::Payloads,
};

use super::Drive;
use crate::{
    app::DestinationSettings,
    bulk::halt::Halt,
    observe::trace::JobSpan,
    relay::{count, random},
};

/// Rows settled in one transaction.
const SETTLED_MAX: usize = 500;

/// What becomes of a row. An answer about the whole target sets it free as it was.
fn fate(
    policy: &DestinationSettings,
    row: &OutboxRow,
    answer: Delivery,
    judged: bool,
) -> OutboxFate {
    if answer.failure() == Some(FailureKind::Unreachable) {
        return OutboxFate::Untouched;
    }
    let is_reject = matches!(answer, Delivery::Reject { .. });
    let fault = if judged || is_reject { Fault::Message } else { Fault::Target };
    let judgement = Judgement { fault, failures: row.attempts.saturating_add(1) };
    settle(&policy.retry, policy.on_dead_letter, row.attempts, answer, judgement, random())
}

fn answered(delivery: &Delivery) -> bool {
    matches!(delivery, Delivery::Accepted | Delivery::Reject { .. })
}

impl Drive {
    /// Settles every row that is left and has an answer, page by page.
    pub(super) async fn settle_each(
        &self,
        mut answer: impl FnMut(&OutboxRow) -> Option<Delivery>,
    ) -> Result<(), Halt> {
        let mut after = 0;
        loop {
            let rows = self.page(after, Payloads::Omitted).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.id;
            let answers: Vec<_> = rows.iter().filter_map(|row| Some((row, answer(row)?))).collect();
            self.settle(answers.into_iter()).await?;
        }
    }

    pub(super) async fn settle<'r>(
        &self,
        answers: impl Iterator<Item = (&'r OutboxRow, Delivery)>,
    ) -> Result<(), Halt> {
        let policy = &self.settings.destination;
        let answers: Vec<_> = answers.collect();
        self.trace(&answers);
        // A job in which no row succeeded says nothing about any of them, unless it had only one.
        let judged = answers.len() == 1 || answers.iter().any(|(_, answer)| answered(answer));
        let fates: Vec<(&OutboxRow, OutboxFate)> = answers
            .into_iter()
            .map(|(row, answer)| (row, fate(policy, row, answer, judged)))
            .collect();
        for part in fates.chunks(SETTLED_MAX) {
            let rows: Vec<_> = part.iter().map(|(row, fate)| (row.id, fate.clone())).collect();
            let fence = self.fence.clone();
            let settled =
                self.persist(|store| store.settle_bulk(fence.clone(), rows.clone())).await?;
            relais_store::fail_point!("bulk.after_settlement");
            if settled.refused > 0 {
                // A person was faster, or the job is not ours any more.
                self.caller.counters.refused(settled.refused);
                self.prove().await?;
            }
            for (row, fate) in part {
                count(&self.caller.counters, row, fate);
            }
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
