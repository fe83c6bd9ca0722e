//! Settles outbox rows beside new calls: results of several calls share one fenced statement.
//!
//! Invariant: one statement of a relay is in progress at a time. After one that failed, no call starts until
//! a statement is committed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use relais_core::{
    lane::Fence,
    outbox::{OutboxFate, OutboxSettlement},
    store::{SettleOutcome, Store, StoreError},
};
use tokio::task::{JoinError, JoinHandle};

use super::Relay;
use crate::{
    lane_reader::UNSETTLED_MAX,
    observe::DestinationCounters,
    refused::{log_refused, refused_fate},
    timing::SETTLE_WITHIN,
};

/// The number of results that are settled without waiting for more: half of the maximum, so that calls
/// continue during the statement.
const SETTLE_ROWS: usize = UNSETTLED_MAX / 2;

/// The results of rows whose settlement is not known to be committed.
pub(super) struct UnsettledRows {
    /// The longest time that a result waits for others.
    pub(super) within: Duration,
    /// Results that no statement carries yet.
    waiting: Vec<OutboxSettlement>,
    /// The time of the first of them.
    since: Option<Instant>,
    /// The statement in progress, and the number of its rows.
    running: Option<(JoinHandle<SettledBatch>, usize)>,
    /// The result of a statement that has ended.
    ended: Option<SettledBatch>,
    /// The start of the last statement.
    began: Option<Instant>,
    /// The database did not answer the last statement.
    failed: bool,
    #[cfg(test)]
    pub(super) statements: usize,
}

/// The result of a statement.
struct SettledBatch {
    settled: SettleOutcome,
    /// Rows that are settled, or whose lane is lost.
    done: Vec<i64>,
    /// Rows whose every settlement the database refused, with the reason.
    stuck: Vec<(i64, String)>,
    /// Rows that may not be settled, because the database did not answer.
    open: Vec<OutboxSettlement>,
    error: Option<StoreError>,
}

impl UnsettledRows {
    pub(super) fn new() -> Self {
        Self {
            within: SETTLE_WITHIN,
            waiting: Vec::new(),
            since: None,
            running: None,
            ended: None,
            began: None,
            failed: false,
            #[cfg(test)]
            statements: 0,
        }
    }

    pub(super) fn push(&mut self, settlement: OutboxSettlement) {
        self.since.get_or_insert_with(Instant::now);
        self.waiting.push(settlement);
    }

    /// Returns the number of rows that are not known to be settled.
    pub(super) fn len(&self) -> usize {
        let running = self.running.as_ref().map_or(0, |(_, rows)| *rows);
        let ended = self.ended.as_ref().map_or(0, |batch| batch.done.len() + batch.open.len());
        self.waiting.len() + running + ended
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns when the next statement begins; `None` if there is nothing to settle, while one is in progress,
    /// and after one that failed: then the pause of the worker decides.
    pub(super) fn due_at(&self, is_idle: bool) -> Option<Instant> {
        let since = self.since?;
        if self.running.is_some() || self.ended.is_some() || self.failed {
            return None;
        }
        let latest = since + self.within;
        Some(match self.began {
            _ if self.waiting.len() >= SETTLE_ROWS => since,
            None if is_idle => since,
            Some(began) if is_idle => (began + SETTLE_WITHIN).min(latest),
            _ => latest,
        })
    }

    /// Resolves when the statement in progress has ended. Safe to drop.
    pub(super) async fn ended(&mut self) {
        match &mut self.running {
            Some((task, _)) => {
                let batch = task.await;
                self.end(batch);
            }
            None => std::future::pending().await,
        }
    }

    fn end(&mut self, batch: Result<SettledBatch, JoinError>) {
        self.running = None;
        match batch {
            Ok(batch) => self.ended = Some(batch),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    fn take_ended(&mut self) -> Option<SettledBatch> {
        if let Some((task, _)) = &mut self.running
            && let Some(batch) = task.now_or_never()
        {
            self.end(batch);
        }
        self.ended.take()
    }
}

impl Relay {
    /// Begins a statement with all results, if one is due.
    pub(super) fn begin_settlement(&mut self) {
        let due = self.unsettled.due_at(self.is_idle());
        if due.is_some_and(|due| due <= Instant::now()) {
            self.settle_waiting();
        }
    }

    /// Applies the result of a statement that has ended, without waiting; returns its rows. If the store is
    /// unavailable, the results stay here for the next statement, except dead letters: one that was committed
    /// may be decided by an operator before the next.
    pub(super) fn end_settlement(&mut self) -> Result<usize, StoreError> {
        let Some(mut batch) = self.unsettled.take_ended() else { return Ok(0) };
        if batch.settled.refused > 0 {
            // Queued rows are dropped before the next call: their lane may have another owner.
            self.counters.refused(batch.settled.refused);
            self.reader.queues.has_given_back = true;
            self.reader.keeper().distrust();
        }
        for (id, reason) in batch.stuck {
            self.give_up(id, &reason);
        }
        let done = batch.done.len();
        let is_dead = |s: &mut OutboxSettlement| matches!(s.fate, OutboxFate::Dead { .. });
        batch.done.extend(batch.open.extract_if(.., is_dead).map(|s| s.id));
        for id in &batch.done {
            self.forgotten.remove(id);
        }
        if batch.error.is_some() {
            self.reader.queues.has_given_back = true;
        }
        self.reader.queues.release(batch.done);
        self.unsettled.failed = batch.error.is_some();
        if !batch.open.is_empty() {
            batch.open.append(&mut self.unsettled.waiting);
            self.unsettled.waiting = batch.open;
            self.unsettled.since.get_or_insert_with(Instant::now);
        }
        batch.error.map_or(Ok(done), Err)
    }

    /// Settles every result and waits for it; returns the number of rows.
    pub(super) async fn settle_all(&mut self) -> Result<usize, StoreError> {
        let mut done = self.end_settlement()?;
        loop {
            if self.unsettled.running.is_none() {
                if self.unsettled.waiting.is_empty() {
                    return Ok(done);
                }
                self.settle_waiting();
            }
            self.unsettled.ended().await;
            done += self.end_settlement()?;
        }
    }

    fn settle_waiting(&mut self) {
        #[cfg(test)]
        {
            self.unsettled.statements += 1;
        }
        let rows = std::mem::take(&mut self.unsettled.waiting);
        (self.unsettled.since, self.unsettled.began) = (None, Some(Instant::now()));
        let statement = SettlementStatement {
            store: Arc::clone(&self.store),
            fence: self.reader.keeper().fence().clone(),
            counters: Arc::clone(&self.counters),
            park: self.settings.on_dead_letter.parks(),
        };
        let count = rows.len();
        // A task of its own: a statement is never cancelled.
        self.unsettled.running = Some((tokio::spawn(statement.run(rows)), count));
    }

    /// Keeps a row whose every settlement the database refused, so that it is not sent again. If it was
    /// not delivered, its key waits too.
    fn give_up(&mut self, row: i64, reason: &str) {
        log_refused(row, reason);
        self.reader.queues.end_alone(row);
        if let Some(key) = self.forgotten.remove(&row) {
            self.refused.add(key);
        }
    }
}

/// A fenced statement that settles rows; one for each row if the database refuses that.
struct SettlementStatement {
    store: Arc<dyn Store>,
    fence: Fence,
    counters: Arc<DestinationCounters>,
    park: bool,
}

impl SettlementStatement {
    async fn run(self, rows: Vec<OutboxSettlement>) -> SettledBatch {
        let ids = rows.iter().map(|row| row.id).collect();
        let mut batch = SettledBatch {
            settled: SettleOutcome::default(),
            done: Vec::new(),
            stuck: Vec::new(),
            open: Vec::new(),
            error: None,
        };
        match self.store.settle_outbox(self.fence.clone(), rows.clone()).await {
            Ok(settled) => {
                crate::fail_point!("relay.after_settle");
                (batch.settled, batch.done) = (settled, ids);
            }
            Err(StoreError::Invalid(reason)) => {
                tracing::warn!(%reason, "database refused a batch; settling its rows singly");
                self.settle_singly(rows, &mut batch).await;
            }
            Err(error) => (batch.open, batch.error) = (rows, Some(error)),
        }
        batch
    }

    /// Settles each row by itself, after the database refused the batch. The refused row becomes a dead
    /// letter with the reason.
    async fn settle_singly(&self, rows: Vec<OutboxSettlement>, batch: &mut SettledBatch) {
        let mut rows = rows.into_iter();
        while let Some(row) = rows.next() {
            match self.settle_one(&row).await {
                Ok(settled) => {
                    batch.settled.settled += settled.settled;
                    batch.settled.refused += settled.refused;
                    batch.done.push(row.id);
                }
                Err(StoreError::Invalid(reason)) => {
                    batch.stuck.push((row.id, reason.to_string()));
                }
                Err(error) => {
                    batch.open.push(row);
                    batch.open.extend(rows);
                    batch.error = Some(error);
                    return;
                }
            }
        }
    }

    async fn settle_one(&self, row: &OutboxSettlement) -> Result<SettleOutcome, StoreError> {
        let settle = |fate| {
            let one = vec![OutboxSettlement { fate, ..row.clone() }];
            self.store.settle_outbox(self.fence.clone(), one)
        };
        let answer = settle(row.fate.clone()).await;
        let Err(StoreError::Invalid(reason)) = &answer else { return answer };
        let (dead, problem) = refused_fate(&row.fate, reason, self.park);
        self.counters.failed(&problem);
        settle(dead).await
    }
}
