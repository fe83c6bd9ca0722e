//! What becomes of rows is collected and settled in one commit of the store.

use std::{collections::HashSet, time::Instant};

use relais_core::{
    delivery::Problem,
    handler::Outcome,
    inbox::{InboxFate, InboxRow, InboxSettlement, decide},
    message::NewMessage,
    process::{Change, DeadLetterChange},
    store::{OutOfOrder, Settled, StoreError},
};

use super::{InboxWorker, Processing, told, write_size::WriteSize};
use crate::{flight::Job, pulse, relay::random};

impl InboxWorker {
    /// Settles a row whose outcome is known without running anything.
    pub(super) fn finish(&mut self, job: &Job<InboxRow>, outcome: Outcome) {
        if let Some(tracer) = &self.counters.tracer {
            tracer.end(tracer.handling(&job.row).open, outcome.problem());
        }
        let mut forget = HashSet::new();
        self.judge(job, outcome, &mut forget);
        self.intake.flight.land(std::slice::from_ref(job), &forget);
    }

    pub(super) fn judge(
        &mut self,
        job: &Job<InboxRow>,
        outcome: Outcome,
        forget: &mut HashSet<String>,
    ) {
        let Some(fate) = decide(&self.retry, job.row.attempts, outcome, random()) else { return };
        // Later rows of the key are read again once this one is settled.
        self.intake.look();
        forget.insert(job.row.msg_key.clone());
        self.push(job, fate);
    }

    pub(super) fn push(&mut self, job: &Job<InboxRow>, mut fate: InboxFate) {
        match &mut fate {
            InboxFate::Processed { messages, changes, .. } => {
                changes.iter().for_each(warn);
                let sent = changes.iter_mut().flat_map(|change| &mut change.messages);
                self.mark(&job.row, messages.iter_mut().chain(sent));
                told(&job.row, "handled");
            }
            InboxFate::Retry { pause, problem, attempts } => {
                self.counters.retried(problem);
                tracing::debug!(
                    source = job.row.source_system,
                    message_id = job.row.message_id,
                    key = job.row.msg_key,
                    attempts,
                    code = problem.code,
                    "retry: {}",
                    problem.message
                );
                let due = Instant::now().checked_add(*pause);
                self.retry_at = [self.retry_at, due].into_iter().flatten().min();
            }
            InboxFate::Wait { pause, problem, .. } => {
                self.counters.retried(problem);
                let InboxRow { source_system, message_id, msg_key, .. } = &job.row;
                let (source, key, code) = (source_system, msg_key, &problem.code);
                tracing::debug!(source, message_id, key, code, "waits: {}", problem.message);
                let due = Instant::now().checked_add(*pause);
                self.retry_at = [self.retry_at, due].into_iter().flatten().min();
            }
            InboxFate::Dead { problem, attempts, .. } => {
                self.counters.failed(problem);
                tracing::warn!(
                    source = job.row.source_system,
                    message_id = job.row.message_id,
                    key = job.row.msg_key,
                    attempts,
                    code = problem.code,
                    "dead letter: {}",
                    problem.message
                );
            }
        }
        let (lane, epoch) = (job.lane.lane, job.lane.epoch);
        self.size.add(&fate);
        self.settlements.push(InboxSettlement { id: job.row.id, lane, epoch, fate });
    }

    /// Writes on each message a row became when the row was received, and which trace it belongs to.
    fn mark<'m>(&mut self, row: &InboxRow, messages: impl Iterator<Item = &'m mut NewMessage>) {
        let handling = self.counters.tracer.as_ref().map(|tracer| tracer.handling(row));
        for message in messages {
            message.headers.set_received_at(row.received_at);
            if let Some(handling) = &handling {
                handling.pass_on(&mut message.headers);
            }
        }
        let span = handling.map(|handling| handling.open);
        self.processing.push(Processing { id: row.id, received_at: row.received_at, span });
    }

    /// Settles what was collected; how many rows. As in the relay, without an answer everything but dead
    /// letters is settled again; what follows from processes is decided again, from what they are then.
    pub(super) async fn settle(&mut self) -> Result<usize, StoreError> {
        if self.settlements.is_empty() {
            return Ok(0);
        }
        let fence = self.intake.keeper().fence().clone();
        let settled = match self.store.settle_inbox(fence, self.settlements.clone()).await {
            Ok(settled) => settled,
            Err(StoreError::Invalid(_)) => self.settle_singly().await?,
            Err(error) => {
                self.put_off();
                return Err(error);
            }
        };
        relais_store::fail_point!("inbox.after_settle");
        if settled.refused > 0 {
            self.counters.refused(settled.refused);
            self.intake.keeper().distrust();
        }
        let is_done = |s: &&InboxSettlement| matches!(s.fate, InboxFate::Processed { .. });
        let processed = self.settlements.iter().filter(is_done).count() as u64;
        let left = settled.refused + settled.stale.len() as u64;
        self.counters.processed(processed.saturating_sub(left));
        if !std::mem::take(&mut self.size).is_empty() {
            pulse::sent();
        }
        for OutOfOrder { id, messages, problem } in &settled.ignored {
            self.counters.ignored(*messages);
            tracing::debug!(
                id,
                code = problem.code,
                "ignored as out of order: {}",
                problem.message
            );
        }
        self.finished(&settled);
        let done = self.settlements.len() - settled.stale.len();
        self.settled_processes(&settled);
        let ids = self.settlements.drain(..).map(|s| s.id);
        self.intake.flight.release(ids.filter(|id| !settled.stale.contains(id)));
        Ok(done)
    }

    /// Tells how long the rows took that are processed now.
    fn finished(&mut self, settled: &Settled) {
        for row in self.processing.drain(..).filter(|row| !settled.stale.contains(&row.id)) {
            self.counters.took(row.received_at);
            if let (Some(tracer), Some(span)) = (&self.counters.tracer, row.span) {
                tracer.end(span, None);
            }
        }
    }

    /// The store refuses something in the batch as such: each row goes alone, and the refused one fails
    /// with the reason. One bad row stops nobody.
    async fn settle_singly(&mut self) -> Result<Settled, StoreError> {
        let fence = self.intake.keeper().fence().clone();
        let mut all = Settled::default();
        for at in 0..self.settlements.len() {
            let mut one = self.settlements[at].clone();
            let mut answer = self.store.settle_inbox(fence.clone(), vec![one.clone()]).await;
            if let Err(StoreError::Invalid(reason)) = &answer {
                let problem = Problem::new("STORE_REFUSED", reason);
                self.counters.failed(&problem);
                tracing::warn!(row = one.id, "dead letter: {reason}");
                self.processing.retain(|row| row.id != one.id);
                one.fate = InboxFate::Dead { attempts: 1, problem, park: false };
                self.settlements[at] = one.clone();
                answer = self.store.settle_inbox(fence.clone(), vec![one]).await;
            }
            match answer {
                Ok(settled) => {
                    all.settled += settled.settled;
                    all.refused += settled.refused;
                    all.stale.extend(settled.stale);
                    all.ignored.extend(settled.ignored);
                }
                Err(error) => {
                    self.put_off();
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// Nobody knows whether the batch was committed. What is settled twice is refused the second time.
    fn put_off(&mut self) {
        let again = self.processes.decide_again();
        let gone = |s: &mut InboxSettlement| {
            again.contains(&s.id) || matches!(s.fate, InboxFate::Dead { .. })
        };
        let gone: Vec<i64> = self.settlements.extract_if(.., gone).map(|s| s.id).collect();
        self.intake.flight.release(gone.into_iter().filter(|id| !again.contains(id)));
        self.processing.retain(|row| !again.contains(&row.id));
        self.size = WriteSize::default();
        self.settlements.iter().for_each(|s| self.size.add(&s.fate));
    }
}

/// A process that needs a person is as loud as a message that does.
fn warn(change: &Change) {
    if let DeadLetterChange::Open { failed_status, problem, attempts } = &change.dead_letter {
        tracing::warn!(
            process = %change.process.process_id,
            process_type = change.process.process_type,
            business_key = change.process.business_key,
            attempts,
            status = failed_status,
            code = problem.code,
            "dead letter: {}",
            problem.message
        );
    }
}
