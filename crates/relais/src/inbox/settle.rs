//! Collects the fates of rows and settles them in one commit of the store.

use std::{collections::HashSet, time::Instant};

use relais_core::{
    delivery::Problem,
    handler::Outcome,
    inbox::{InboxFate, InboxRow, InboxSettlement, decide},
    message::{Category, NewMessage},
    process::{Change, DeadLetterChange, handler_step::address},
    store::{OutOfOrder, SettleOutcome, StoreError},
};

use super::{InboxWorker, UnsettledRow, log_handled, write_size::WriteSize};
use crate::{key_queues::RowInFlight, observe::trace::HandlingSpan, random::random, wake};

impl InboxWorker {
    /// Settles a row whose outcome is known without running anything.
    pub(super) fn finish(&mut self, entry: &RowInFlight<InboxRow>, outcome: Outcome) {
        if let Some(tracer) = &self.counters.tracer {
            tracer.end(tracer.handling(&entry.row).open, outcome.problem());
        }
        let mut forget = HashSet::new();
        self.judge(entry, outcome, &mut forget);
        self.reader.queues.complete(std::slice::from_ref(entry), &forget);
    }

    pub(super) fn judge(
        &mut self,
        entry: &RowInFlight<InboxRow>,
        outcome: Outcome,
        forget: &mut HashSet<String>,
    ) {
        let Some(fate) = decide(&self.retry, entry.row.attempts, outcome, random()) else { return };
        // Later rows of the key are read again once this one is settled.
        self.reader.request_read();
        forget.insert(entry.row.msg_key.clone());
        self.push(entry, fate);
    }

    pub(super) fn push(&mut self, entry: &RowInFlight<InboxRow>, mut fate: InboxFate) {
        match &mut fate {
            InboxFate::Processed { messages, changes, .. } => {
                changes.iter().for_each(warn);
                let scope = &self.reader.keeper().fence().scope;
                let inbox = scope.inbox().unwrap_or_default().to_owned();
                let mut sent: Vec<_> =
                    changes.iter_mut().flat_map(|change| &mut change.messages).collect();
                sent.iter_mut().for_each(|message| address(message, &inbox));
                let handling = self.handling(&entry.row);
                self.mark(&entry.row, messages.iter_mut().chain(sent), handling);
                log_handled(&entry.row);
            }
            InboxFate::Ignored { problem } => {
                let handling = self.handling(&entry.row);
                self.mark(&entry.row, std::iter::empty(), handling);
                let (source, message_id) = (&entry.row.source_system, &entry.row.message_id);
                tracing::debug!(
                    source,
                    message_id,
                    "ignored by configuration: {}",
                    problem.message
                );
            }
            InboxFate::Retry { pause, problem, attempts } => {
                self.counters.retried(problem);
                tracing::debug!(
                    source = entry.row.source_system,
                    message_id = entry.row.message_id,
                    key = entry.row.msg_key,
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
                let InboxRow { source_system, message_id, msg_key, .. } = &entry.row;
                let (source, key, code) = (source_system, msg_key, &problem.code);
                tracing::debug!(source, message_id, key, code, "waits: {}", problem.message);
                let due = Instant::now().checked_add(*pause);
                self.retry_at = [self.retry_at, due].into_iter().flatten().min();
            }
            InboxFate::Dead { problem, attempts, .. } => {
                self.counters.failed(problem);
                tracing::warn!(
                    source = entry.row.source_system,
                    message_id = entry.row.message_id,
                    key = entry.row.msg_key,
                    attempts,
                    code = problem.code,
                    "dead letter: {}",
                    problem.message
                );
            }
        }
        self.settle_as(entry, fate);
    }

    /// Settles a row that a handler in another process has handled, with the messages of its answer.
    pub(super) fn push_handled(
        &mut self,
        entry: &RowInFlight<InboxRow>,
        mut messages: Vec<NewMessage>,
        handling: Option<HandlingSpan>,
    ) {
        for message in &mut messages {
            message.causation_id.get_or_insert_with(|| entry.row.message_id.clone());
            if message.category == Category::Reply {
                message.answer(&entry.row.message_id, &entry.row.headers);
            }
            if message.correlation_id.is_none() {
                let correlation = entry.row.headers.get("correlation-id");
                message.correlation_id = correlation.map(str::to_owned);
            }
        }
        self.mark(&entry.row, messages.iter_mut(), handling);
        log_handled(&entry.row);
        let (changes, copies) = (Vec::new(), Vec::new());
        self.settle_as(entry, InboxFate::Processed { messages, changes, copies });
    }

    fn settle_as(&mut self, entry: &RowInFlight<InboxRow>, fate: InboxFate) {
        let (lane, epoch) = (entry.lane.lane, entry.lane.epoch);
        self.size.add(&fate);
        self.settlements.push(InboxSettlement { id: entry.row.id, lane, epoch, fate });
    }

    fn handling(&self, row: &InboxRow) -> Option<HandlingSpan> {
        self.counters.tracer.as_ref().map(|tracer| tracer.handling(row))
    }

    /// Writes the time of reception and the trace of a row to the headers of its messages.
    fn mark<'m>(
        &mut self,
        row: &InboxRow,
        messages: impl Iterator<Item = &'m mut NewMessage>,
        handling: Option<HandlingSpan>,
    ) {
        for message in messages {
            message.headers.set_received_at(row.received_at);
            if let Some(handling) = &handling {
                handling.pass_on(&mut message.headers);
            }
        }
        let span = handling.map(|handling| handling.open);
        self.unsettled.push(UnsettledRow { id: row.id, received_at: row.received_at, span });
    }

    /// Settles the collected rows; returns their number. Without an answer of the database everything but
    /// dead letters is settled again, and rows of processes are decided again from the new state.
    pub(super) async fn settle(&mut self) -> Result<usize, StoreError> {
        if self.settlements.is_empty() {
            return Ok(0);
        }
        let fence = self.reader.keeper().fence().clone();
        let settled = match self.store.settle_inbox(fence, self.settlements.clone()).await {
            Ok(settled) => settled,
            Err(StoreError::Invalid(_)) => self.settle_singly().await?,
            Err(error) => {
                self.put_off();
                return Err(error);
            }
        };
        crate::fail_point!("inbox.after_settle");
        if settled.refused > 0 {
            self.counters.refused(settled.refused);
            self.reader.keeper().distrust();
        }
        let is_done = |s: &&InboxSettlement| matches!(s.fate, InboxFate::Processed { .. });
        let processed = self.settlements.iter().filter(is_done).count() as u64;
        let is_ignored = |s: &&InboxSettlement| matches!(s.fate, InboxFate::Ignored { .. });
        self.counters.ignored_rows(self.settlements.iter().filter(is_ignored).count() as u64);
        let left = settled.refused + settled.stale.len() as u64;
        self.counters.processed(processed.saturating_sub(left));
        if !std::mem::take(&mut self.size).is_empty() {
            let messages = self.settlements.iter().flat_map(|s| s.fate.messages());
            wake::committed_to(messages.map(|message| message.destination.as_str()));
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
        self.reader.queues.release(ids.filter(|id| !settled.stale.contains(id)));
        Ok(done)
    }

    /// Records the latency of rows that are handled now.
    fn finished(&mut self, settled: &SettleOutcome) {
        for row in self.unsettled.drain(..).filter(|row| !settled.stale.contains(&row.id)) {
            self.counters.took(row.received_at);
            if let (Some(tracer), Some(span)) = (&self.counters.tracer, row.span) {
                tracer.end(span, None);
            }
        }
    }

    /// Settles each row by itself, after the database refused the batch. The refused row fails with the
    /// reason; the others continue.
    async fn settle_singly(&mut self) -> Result<SettleOutcome, StoreError> {
        let fence = self.reader.keeper().fence().clone();
        let mut all = SettleOutcome::default();
        for at in 0..self.settlements.len() {
            let mut one = self.settlements[at].clone();
            let mut answer = self.store.settle_inbox(fence.clone(), vec![one.clone()]).await;
            if let Err(StoreError::Invalid(reason)) = &answer {
                let problem = Problem::new("STORE_REFUSED", reason);
                self.counters.failed(&problem);
                tracing::warn!(row = one.id, "dead letter: {reason}");
                self.unsettled.retain(|row| row.id != one.id);
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

    /// Postpones the settlements: it is unknown whether the batch was committed. A second settlement of a
    /// row is refused.
    fn put_off(&mut self) {
        let again = self.processes.decide_again();
        let dropped = |s: &mut InboxSettlement| {
            again.contains(&s.id) || matches!(s.fate, InboxFate::Dead { .. })
        };
        let dropped: Vec<i64> = self.settlements.extract_if(.., dropped).map(|s| s.id).collect();
        self.reader.queues.release(dropped.into_iter().filter(|id| !again.contains(id)));
        self.unsettled.retain(|row| !again.contains(&row.id));
        self.size = WriteSize::default();
        self.settlements.iter().for_each(|s| self.size.add(&s.fate));
    }
}

/// Logs a process that needs an operator at the same level as a dead letter.
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
