//! Outbox rows of one destination → its publisher → settled.
//!
//! Delivery is at least once: a crash between publish and settle repeats the publish, with the same
//! message id. Reads and settlements run beside the calls and never keep a free slot waiting. The next row
//! of a key starts when the one before it is accepted; results of many calls share a commit.
//!
//! Invariant: no call starts once the lease may have expired, after the fence refused a settlement, or while
//! the maximum of rows is unsettled.
//!
//! - `launch`: starts calls
//! - `read`: reads the next rows
//! - `settle`: records the results of rows
//! - `observation`: spans, counters and log lines of a call

mod launch;
mod observation;
mod read;
mod settle;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use relais_core::{
    delivery::Delivery,
    fault::Judgement,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement, settle as decide},
    store::{Store, StoreError},
};
use tokio::task::JoinSet;

pub(crate) use self::observation::count;
use self::{read::RunningRead, settle::UnsettledRows};
use crate::{
    app::DestinationSettings,
    key_queues::RowInFlight,
    lane_reader::LaneReader,
    lanes::LaneKeeper,
    limits::SharedLimits,
    observe::DestinationCounters,
    permit::ProbedKeys,
    publish_guard::PublishGuard,
    random::random,
    refused::RefusedKeys,
    timing::{CALL_STOP_GRACE, REST_MAX, WOKEN_REST_MAX},
    worker::{PassOutcome, Polling, Worker},
};

/// A call that returned.
struct FinishedCall {
    entries: Vec<RowInFlight<OutboxRow>>,
    deliveries: Vec<Delivery>,
    began: Instant,
    /// The last call of its key failed.
    doubtful: bool,
}

pub(crate) struct Relay {
    store: Arc<dyn Store>,
    reader: LaneReader<OutboxRow>,
    guard: PublishGuard,
    settings: DestinationSettings,
    counters: Arc<DestinationCounters>,
    calls: JoinSet<FinishedCall>,
    /// The number of them whose key's last call failed.
    doubtful: usize,
    /// Calls that returned and are not yet evaluated.
    finished: Vec<FinishedCall>,
    unsettled: UnsettledRows,
    read: RunningRead,
    /// Unsettled rows that are not `Dispatched`, with their keys: not read before the commit.
    forgotten: HashMap<i64, String>,
    /// The time at which the next retry of this worker is due.
    retry_at: Option<Instant>,
    probed: ProbedKeys,
    /// Not sent by this worker any more.
    refused: RefusedKeys,
}

impl Relay {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keeper: LaneKeeper,
        guard: PublishGuard,
        settings: DestinationSettings,
        counters: Arc<DestinationCounters>,
    ) -> Self {
        let reader = LaneReader::of_outbox(Arc::clone(&store), keeper);
        Self {
            store,
            reader,
            guard,
            settings,
            counters,
            calls: JoinSet::new(),
            doubtful: 0,
            finished: Vec::new(),
            unsettled: UnsettledRows::new(),
            read: RunningRead::default(),
            forgotten: HashMap::new(),
            retry_at: None,
            probed: ProbedKeys::default(),
            refused: RefusedKeys::default(),
        }
    }

    /// Shares the keys that are not sent any more.
    pub(crate) fn sharing(self, refused: RefusedKeys) -> Self {
        Self { refused, ..self }
    }

    pub(crate) fn limits(&self) -> SharedLimits {
        self.guard.limits().clone()
    }

    /// Sets how long results wait for others while there is other work.
    #[cfg(test)]
    pub(crate) fn settle_within(&mut self, within: Duration) {
        self.unsettled.within = within;
    }

    /// Returns the number of settlements that began.
    #[cfg(test)]
    pub(crate) fn settlements(&self) -> usize {
        self.unsettled.statements
    }

    pub(crate) fn reader(&mut self) -> &mut LaneReader<OutboxRow> {
        &mut self.reader
    }

    /// Publishes the breaker's state, and logs its changes.
    fn report(&mut self) {
        let keeper = self.reader.keeper();
        let limits = self.guard.limits();
        let state = limits.report(&keeper.fence().scope);
        self.counters.set_state(limits.view(), keeper.owned(), self.calls.len());
        self.probed.update(state);
    }

    /// Evaluates calls that have returned, without waiting.
    fn collect(&mut self) {
        while let Some(done) = self.calls.try_join_next() {
            self.add_finished(done);
        }
        for FinishedCall { entries, deliveries, began, doubtful } in
            std::mem::take(&mut self.finished)
        {
            self.doubtful -= usize::from(doubtful);
            let messages =
                entries.iter().map(|entry| (entry.row.msg_key.as_str(), entry.row.category));
            let assessment = self.guard.finished(messages, &deliveries, began);
            if assessment.halve {
                let tried = entries.iter().zip(&deliveries);
                let tried = tried.filter(|(_, delivery)| **delivery != Delivery::Held);
                self.reader.queues.halve(tried.map(|(entry, _)| entry));
            }
            let mut forget = HashSet::new();
            for ((entry, delivery), judgement) in
                entries.iter().zip(deliveries).zip(assessment.judgements)
            {
                self.judge(entry, delivery, judgement, &mut forget);
            }
            if !forget.is_empty() {
                self.reader.request_read();
            }
            self.reader.queues.complete(&entries, &forget);
        }
        if self.guard.limits().is_resting() {
            self.reader.drop_queued();
            self.reader.request_read();
        }
    }

    fn add_finished(&mut self, done: Result<FinishedCall, tokio::task::JoinError>) {
        match done {
            Ok(call) => self.finished.push(call),
            // The guard catches panics of a call. Another panic would keep its rows in flight indefinitely:
            // the worker panics too.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => tracing::error!(%error, "publish task was cancelled; its rows wait"),
        }
    }

    fn judge(
        &mut self,
        entry: &RowInFlight<OutboxRow>,
        delivery: Delivery,
        judgement: Judgement,
        forget: &mut HashSet<String>,
    ) {
        let row = &entry.row;
        let DestinationSettings { retry, on_dead_letter, .. } = &self.settings;
        let asked = match &delivery {
            Delivery::Retry { after, .. }
            | Delivery::Busy { after, .. }
            | Delivery::Wait { after, .. } => *after,
            _ => None,
        };
        let mut fate = decide(retry, *on_dead_letter, row.attempts, delivery, judgement, random());
        if let OutboxFate::Wait { problem, pause, .. } = &mut fate {
            self.counters.outage(problem);
            if self.guard.limits().is_open() {
                self.probed.insert(&row.msg_key);
                if asked.is_none() {
                    // It is sent again as soon as the breaker permits calls.
                    *pause = Duration::ZERO;
                    if !entry.is_noted() {
                        fate = OutboxFate::Untouched;
                    }
                }
            }
        }
        if fate == OutboxFate::Dispatched {
            self.reader.queues.restore(&row.msg_key);
        }
        self.settle_as(entry, fate, forget);
    }

    /// Adds a row's fate to what is settled next.
    fn settle_as(
        &mut self,
        entry: &RowInFlight<OutboxRow>,
        fate: OutboxFate,
        forget: &mut HashSet<String>,
    ) {
        let row = &entry.row;
        count(&self.counters, row, &fate);
        match &fate {
            OutboxFate::Retry { pause, .. } | OutboxFate::Wait { pause, .. } => {
                let due = Instant::now().checked_add(*pause);
                self.retry_at = [self.retry_at, due].into_iter().flatten().min();
            }
            OutboxFate::Untouched => self.reader.queues.give_back([row.id]),
            OutboxFate::Dispatched | OutboxFate::Dead { .. } => {}
        }
        if fate != OutboxFate::Dispatched {
            forget.insert(row.msg_key.clone());
        }
        if fate != OutboxFate::Untouched {
            if fate != OutboxFate::Dispatched {
                self.forgotten.insert(row.id, row.msg_key.clone());
            }
            let (lane, epoch) = (entry.lane.lane, entry.lane.epoch);
            self.unsettled.push(OutboxSettlement { id: row.id, lane, epoch, fate });
        }
    }

    /// Returns whether nothing is in flight and nothing is queued.
    fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.finished.is_empty() && self.reader.queues.queued() == 0
    }

    /// Starts nothing more and settles returned calls; returns `true` once nothing is in flight.
    pub(crate) async fn wind_down(&mut self) -> Result<bool, StoreError> {
        self.abandon_read();
        self.reader.drop_queued();
        self.collect();
        self.settle_all().await?;
        Ok(self.calls.is_empty() && self.finished.is_empty())
    }

    fn until_retry(&mut self) -> Duration {
        let Some(at) = self.retry_at else {
            let is_quiet = self.calls.is_empty() && self.reader.queues.is_empty();
            let rests = self.guard.limits().is_resting();
            return if is_quiet && !rests { WOKEN_REST_MAX } else { REST_MAX };
        };
        let wait = at.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            // Due by the clock of this machine; the database decides, so poll as usual.
            self.retry_at = None;
            return Duration::from_millis(5);
        }
        wait
    }
}

#[async_trait]
impl Worker for Relay {
    fn request_read(&mut self) {
        self.reader.request_read();
    }

    async fn run_once(&mut self) -> Result<PassOutcome, StoreError> {
        self.collect();
        let mut done = if self.unsettled.has_failed() {
            self.settle_all().await?
        } else {
            self.end_settlement()?
        };
        done += self.end_read().await?;
        let (started, mut wait) = self.launch().await?;
        self.begin_settlement();
        self.begin_read();
        done += started;
        if self.calls.is_empty() || self.read.has_failed() {
            // No call can return before the rows are here.
            let read = self.await_read().await?;
            if read > 0 {
                let (started, rest) = self.launch().await?;
                (done, wait) = (done + read + started, rest);
            }
        }
        self.report();
        Ok(if done > 0 {
            PassOutcome::Worked
        } else {
            let rest = wait.min(self.until_retry());
            PassOutcome::Idle { at_most: self.reader.rest(rest) }
        })
    }

    fn polling(&self) -> Polling {
        Polling::Woken
    }

    async fn returned(&mut self) {
        let due = self.unsettled.due_at(self.is_idle());
        let Self { calls, unsettled, read, reader, .. } = self;
        let done = tokio::select! {
            Some(done) = calls.join_next() => done,
            () = unsettled.ended() => return,
            () = read.ended() => return,
            () = sleep_until(due) => return,
            () = reader.keeper().changed() => {
                reader.request_read();
                return;
            }
        };
        self.add_finished(done);
    }

    #[cfg(test)]
    fn in_flight(&self) -> usize {
        let calls = self.calls.len() + self.finished.len();
        calls + self.unsettled.len() + usize::from(self.read.is_running())
    }

    async fn stop(&mut self, patience: Duration) {
        self.abandon_read();
        self.reader.drop_queued();
        let patience = patience.min(self.settings.timeout + CALL_STOP_GRACE);
        let all = async {
            while let Some(done) = self.calls.join_next().await {
                self.add_finished(done);
            }
        };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!("stopped with calls in flight; the leases of their lanes will expire");
        }
        if let Err(error) = self.wind_down().await {
            tracing::warn!(%error, "stopped without settling; these messages are delivered again");
        }
        self.guard.close().await;
        self.reader.leave().await;
    }
}

/// Waits until a time; indefinitely without one.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
