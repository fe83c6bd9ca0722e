//! Outbox rows of one destination → its publisher → settled.
//!
//! Delivery is at least once: a crash between publish and settle repeats the publish, with the same
//! message id. Rows are read, worked on and settled in batches; what came back while the last batch
//! was being settled makes up the next one.
//!
//! - `launch`: starts calls
//! - `settle`: writes down what became of rows
//! - `noted`: spans, counters and log lines of a call

mod launch;
mod noted;
mod settle;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    BoxFuture,
    breaker::BreakerState,
    delivery::Delivery,
    fault::Judgement,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement, settle},
    store::{Store, StoreError},
};
use tokio::task::JoinSet;

pub(crate) use self::noted::count;
use crate::{
    app::DestinationSettings,
    flight::Job,
    guard::Guard,
    intake::Intake,
    lanes::LaneKeeper,
    limits::Limits,
    observe::DestinationCounters,
    worker::{Progress, Worker},
};

/// The longest rest between two looks at the outbox.
const REST_MAX: Duration = Duration::from_secs(1);
/// How long a stopping relay waits for calls under way, beyond their own time limit.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// A call that came back.
struct Landed {
    jobs: Vec<Job<OutboxRow>>,
    deliveries: Vec<Delivery>,
    began: Instant,
    /// Its key failed last.
    doubtful: bool,
}

pub(crate) struct Relay {
    store: Arc<dyn Store>,
    intake: Intake<OutboxRow>,
    guard: Guard,
    settings: DestinationSettings,
    counters: Arc<DestinationCounters>,
    calls: JoinSet<Landed>,
    /// Of these, calls of keys that failed last.
    doubtful: usize,
    /// Came back, not yet settled: kept until the store took it.
    landed: Vec<Landed>,
    settlements: Vec<OutboxSettlement>,
    /// Rows with a settlement that is not `Dispatched`, and their keys: not read until the store knows.
    forgotten: HashMap<i64, String>,
    /// When the next of our own retries is due.
    retry_at: Option<Instant>,
    /// Keys that failed since the breaker opened: others go first.
    probed: HashSet<String>,
    /// Keys with a row whose settlement the database refuses in every form: left alone until the lanes
    /// are taken again.
    stuck: HashSet<String>,
}

impl Relay {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keeper: LaneKeeper,
        guard: Guard,
        settings: DestinationSettings,
        counters: Arc<DestinationCounters>,
    ) -> Self {
        let intake = Intake::of_outbox(Arc::clone(&store), keeper);
        Self {
            store,
            intake,
            guard,
            settings,
            counters,
            calls: JoinSet::new(),
            doubtful: 0,
            landed: Vec::new(),
            settlements: Vec::new(),
            forgotten: HashMap::new(),
            retry_at: None,
            probed: HashSet::new(),
            stuck: HashSet::new(),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.guard.limits().clone()
    }

    pub(crate) fn intake(&mut self) -> &mut Intake<OutboxRow> {
        &mut self.intake
    }

    async fn pass(&mut self) -> Result<Progress, StoreError> {
        self.collect();
        let (settled, read) = self.settle_and_read().await?;
        let (started, wait) = self.launch().await?;
        self.report();
        Ok(if settled + read + started > 0 {
            Progress::Worked
        } else {
            let rest = wait.min(self.until_retry());
            Progress::Idle { at_most: self.intake.rest(rest) }
        })
    }

    /// Publishes the breaker's state, and logs its changes.
    fn report(&mut self) {
        let keeper = self.intake.keeper();
        let limits = self.guard.limits();
        let state = limits.report(&keeper.fence().scope);
        self.counters.set_state(limits.view(), keeper.owned(), self.calls.len());
        if state == BreakerState::Closed && !self.probed.is_empty() {
            self.probed.clear();
        }
    }

    /// Takes what has come back, without waiting.
    fn collect(&mut self) {
        while let Some(done) = self.calls.try_join_next() {
            self.take_in(done);
        }
        for Landed { jobs, deliveries, began, doubtful } in std::mem::take(&mut self.landed) {
            self.doubtful -= usize::from(doubtful);
            let keys = jobs.iter().map(|job| job.row.msg_key.as_str());
            let learnt = self.guard.landed(keys, &deliveries, began);
            if learnt.halve {
                let tried = jobs.iter().zip(&deliveries);
                let tried = tried.filter(|(_, delivery)| **delivery != Delivery::Held);
                self.intake.flight.halve(tried.map(|(job, _)| job));
            }
            let mut forget = HashSet::new();
            for ((job, delivery), judgement) in jobs.iter().zip(deliveries).zip(learnt.judgements) {
                self.judge(job, delivery, judgement, &mut forget);
            }
            if !forget.is_empty() {
                self.intake.look();
            }
            self.intake.flight.land(&jobs, &forget);
        }
        if self.guard.limits().is_resting() {
            self.intake.flight.drop_queued();
            self.intake.look();
        }
    }

    fn take_in(&mut self, done: Result<Landed, tokio::task::JoinError>) {
        match done {
            Ok(landed) => self.landed.push(landed),
            // The guard catches panics of a call. A panic beside it would leave its rows in this worker's
            // hands without end: the worker ends too.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => tracing::error!(%error, "a publish task was cancelled; its rows wait"),
        }
    }

    fn judge(
        &mut self,
        job: &Job<OutboxRow>,
        delivery: Delivery,
        judgement: Judgement,
        forget: &mut HashSet<String>,
    ) {
        let row = &job.row;
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
                    // It goes again as soon as the breaker lets calls through.
                    *pause = Duration::ZERO;
                    if !job.is_noted() {
                        fate = OutboxFate::Untouched;
                    }
                }
            }
        }
        if fate == OutboxFate::Dispatched {
            self.intake.flight.restore(&row.msg_key);
        }
        self.settle_as(job, fate, forget);
    }

    /// Adds a row's fate to what is settled next.
    fn settle_as(&mut self, job: &Job<OutboxRow>, fate: OutboxFate, forget: &mut HashSet<String>) {
        let row = &job.row;
        count(&self.counters, row, &fate);
        match &fate {
            OutboxFate::Retry { pause, problem, .. } | OutboxFate::Wait { pause, problem, .. } => {
                self.guard.limits().because(problem);
                let due = Instant::now().checked_add(*pause);
                self.retry_at = [self.retry_at, due].into_iter().flatten().min();
            }
            OutboxFate::Untouched => self.intake.flight.release([row.id]),
            OutboxFate::Dispatched | OutboxFate::Dead { .. } => {}
        }
        if fate != OutboxFate::Dispatched {
            forget.insert(row.msg_key.clone());
        }
        if fate != OutboxFate::Untouched {
            if fate != OutboxFate::Dispatched {
                self.forgotten.insert(row.id, row.msg_key.clone());
            }
            let (lane, epoch) = (job.lane.lane, job.lane.epoch);
            self.settlements.push(OutboxSettlement { id: row.id, lane, epoch, fate });
        }
    }

    /// Settles what came back while the next rows are read: two statements side by side.
    async fn settle_and_read(&mut self) -> Result<(usize, usize), StoreError> {
        let fetch = if self.guard.limits().is_resting() { None } else { self.intake.plan() };
        let Some(fetch) = fetch else { return Ok((self.settle().await?, 0)) };
        let forgotten = self.forgotten.values().chain(&self.stuck).cloned().collect();
        let store = Arc::clone(&self.store);
        let (settled, rows) = tokio::join!(self.settle(), store.fetch_outbox(fetch.clone()));
        let read = self.intake.receive(&fetch, rows, &forgotten).await;
        Ok((settled?, read?))
    }

    /// Starts nothing more and settles what came back; `true` once nothing is in these hands.
    pub(crate) async fn wind_down(&mut self) -> Result<bool, StoreError> {
        self.intake.flight.drop_queued();
        self.collect();
        self.settle().await?;
        Ok(self.calls.is_empty())
    }

    fn until_retry(&mut self) -> Duration {
        let Some(at) = self.retry_at else { return REST_MAX };
        let wait = at.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            // Due by our clock; the database's decides, so keep looking at the usual pace.
            self.retry_at = None;
            return Duration::from_millis(5);
        }
        wait
    }
}

impl Worker for Relay {
    fn look(&mut self) {
        self.intake.look();
    }

    fn run_once(&mut self) -> BoxFuture<'_, Result<Progress, StoreError>> {
        Box::pin(self.pass())
    }

    fn landed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.calls.join_next().await {
                Some(done) => self.take_in(done),
                None => std::future::pending().await,
            }
        })
    }

    #[cfg(test)]
    fn under_way(&self) -> usize {
        self.calls.len() + self.landed.len()
    }

    fn stop(&mut self, patience: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.intake.flight.drop_queued();
            let patience = patience.min(self.settings.timeout + STOP_GRACE);
            let all = async {
                while let Some(done) = self.calls.join_next().await {
                    self.take_in(done);
                }
            };
            if tokio::time::timeout(patience, all).await.is_err() {
                tracing::warn!("calls still under way at stop; their lanes expire by themselves");
            }
            if let Err(error) = self.wind_down().await {
                tracing::warn!(%error, "not settled at stop; these messages are delivered again");
            }
            self.guard.close().await;
            self.intake.leave().await;
        })
    }
}

/// A number in `0.0..1.0` for jitter; its quality does not matter, its spread does.
pub(crate) fn random() -> f64 {
    let bits = uuid::Uuid::new_v4().as_u128() & 0xFFFF_FFFF;
    bits as f64 / 4_294_967_296.0
}
