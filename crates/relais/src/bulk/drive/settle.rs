//! What the target said of a job's rows, written down in the store.

use relais_core::{
    delivery::{Delivery, Problem},
    outbox::{OutboxFate, OutboxRow, settle},
};

use super::{Drive, note};
use crate::{
    bulk::{halt::Halt, halving::Blame},
    observe::trace::JobSpan,
    relay::{count, random},
};

/// Rows read at a time.
const PAGE: usize = 1_000;
/// Rows settled in one transaction.
const SETTLED_MAX: usize = 500;

impl Drive {
    /// Every row that is left, by id.
    pub(super) async fn rows(&self) -> Result<Vec<OutboxRow>, Halt> {
        let mut rows: Vec<OutboxRow> = Vec::new();
        loop {
            let (job, after) = (self.job.id, rows.last().map_or(0, |row| row.id));
            let page = self.persist(move |store| store.bulk_rows(job, after, PAGE)).await?;
            if page.is_empty() {
                return Ok(rows);
            }
            rows.extend(page);
        }
    }

    pub(super) async fn settle<'r>(
        &self,
        answers: impl Iterator<Item = (&'r OutboxRow, Delivery)>,
    ) -> Result<(), Halt> {
        let policy = &self.settings.destination;
        let answers: Vec<_> = answers.collect();
        self.trace(&answers);
        let fates: Vec<(&OutboxRow, OutboxFate)> = answers
            .into_iter()
            .map(|(row, answer)| {
                let dead = policy.on_dead_letter;
                (row, settle(&policy.retry, dead, row.attempts, answer, random()))
            })
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

    /// Sets the rows of a job free that failed before any of them was tried. They go again in smaller
    /// jobs; a row that was alone uses an attempt.
    pub(super) async fn failed_whole(
        &self,
        rows: &[OutboxRow],
        problem: &Problem,
    ) -> Result<(), Halt> {
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let blame = self.halving.failed(&ids);
        tracing::warn!(
            destination = self.job.destination,
            rows = ids.len(),
            ?blame,
            why = note(problem),
            "a bulk job failed as a whole"
        );
        let answer = match blame {
            Blame::Row => Delivery::Retry { problem: problem.clone(), after: None },
            Blame::Unknown | Blame::Target => Delivery::Held,
        };
        self.settle(rows.iter().map(|row| (row, answer.clone()))).await?;
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
            rows: answers.len(),
        };
        answers.iter().for_each(|(row, answer)| tracer.in_job(row, &job, answer));
    }
}
