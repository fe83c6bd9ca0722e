//! Outbox rows of one destination → its publisher → settled.
//!
//! Delivery is at least once: a crash between publish and settle repeats the publish, with the same
//! message id. Rows are read, sent and settled in batches: calls that return during a settlement are
//! settled in the next one.
//!
//! - `launch`: starts calls
//! - `settle`: records the results of rows
//! - `observation`: spans, counters and log lines of a call

mod launch;
mod observation;
mod settle;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use relais_core::{
    breaker::BreakerState,
    delivery::Delivery,
    fault::Judgement,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement, settle},
    store::{Store, StoreError},
};
use tokio::task::JoinSet;

pub(crate) use self::observation::count;
use crate::{
    app::DestinationSettings,
    key_queues::RowInFlight,
    lane_reader::LaneReader,
    lanes::LaneKeeper,
    limits::SharedLimits,
    observe::DestinationCounters,
    publish_guard::PublishGuard,
    random::random,
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
    /// Calls that returned and are not yet settled.
    finished: Vec<FinishedCall>,
    settlements: Vec<OutboxSettlement>,
    /// Rows with a settlement that is not `Dispatched`, with their keys: not read before the commit.
    forgotten: HashMap<i64, String>,
    /// The time at which the next retry of this worker is due.
    retry_at: Option<Instant>,
    /// Keys that failed since the breaker opened: other keys are sent first.
    probed: HashSet<String>,
    /// Keys with a row whose every settlement the database refused: not sent until the lanes are leased
    /// again.
    stuck: HashSet<String>,
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
            settlements: Vec::new(),
            forgotten: HashMap::new(),
            retry_at: None,
            probed: HashSet::new(),
            stuck: HashSet::new(),
        }
    }

    pub(crate) fn limits(&self) -> SharedLimits {
        self.guard.limits().clone()
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
        if state == BreakerState::Closed && !self.probed.is_empty() {
            self.probed.clear();
        }
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
            let keys = entries.iter().map(|entry| entry.row.msg_key.as_str());
            let assessment = self.guard.finished(keys, &deliveries, began);
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
            self.reader.queues.drop_queued();
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
            Delivery::Retry { after, .. } | Delivery::Busy { after, .. } => *after,
            _ => None,
        };
        let mut fate = settle(retry, *on_dead_letter, row.attempts, delivery, judgement, random());
        if let OutboxFate::Wait { problem, pause, .. } = &mut fate {
            self.counters.outage(problem);
            self.guard.limits().because(problem);
            if self.guard.limits().is_open() {
                self.probed.insert(row.msg_key.clone());
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
            OutboxFate::Retry { pause, problem, .. } | OutboxFate::Wait { pause, problem, .. } => {
                self.guard.limits().because(problem);
                let due = Instant::now().checked_add(*pause);
                self.retry_at = [self.retry_at, due].into_iter().flatten().min();
            }
            OutboxFate::Untouched => self.reader.queues.release([row.id]),
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
            self.settlements.push(OutboxSettlement { id: row.id, lane, epoch, fate });
        }
    }

    /// Settles returned calls while the next rows are read: two statements at once.
    async fn settle_and_read(&mut self) -> Result<(usize, usize), StoreError> {
        let fetch = if self.guard.limits().is_resting() { None } else { self.reader.plan() };
        let Some(fetch) = fetch else { return Ok((self.settle().await?, 0)) };
        let forgotten = self.forgotten.values().chain(&self.stuck).cloned().collect();
        let store = Arc::clone(&self.store);
        let (settled, rows) = tokio::join!(self.settle(), store.fetch_outbox(fetch.clone()));
        let read = self.reader.receive(&fetch, rows, &forgotten).await;
        Ok((settled?, read?))
    }

    /// Starts nothing more and settles returned calls; returns `true` once nothing is in flight.
    pub(crate) async fn wind_down(&mut self) -> Result<bool, StoreError> {
        self.reader.queues.drop_queued();
        self.collect();
        self.settle().await?;
        Ok(self.calls.is_empty())
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
        let (settled, read) = self.settle_and_read().await?;
        let (started, wait) = self.launch().await?;
        self.report();
        Ok(if settled + read + started > 0 {
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
        tokio::select! {
            Some(done) = self.calls.join_next() => self.add_finished(done),
            () = self.reader.keeper().changed() => self.reader.request_read(),
        }
    }

    #[cfg(test)]
    fn in_flight(&self) -> usize {
        self.calls.len() + self.finished.len()
    }

    async fn stop(&mut self, patience: Duration) {
        self.reader.queues.drop_queued();
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
