//! Outbox rows of one destination → its publisher → settled.
//!
//! Delivery is at least once: a crash between publish and settle repeats the publish, with the same
//! message id. Rows are read, worked on and settled in batches; what came back while the last batch
//! was being settled makes up the next one.

mod noted;

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    BoxFuture,
    delivery::{Delivery, Problem},
    limits::BreakerState,
    outbox::{OutboxFate, OutboxRow, OutboxSettlement, settle},
    store::{Store, StoreError},
};
use tokio::task::JoinSet;

use self::noted::Noted;
pub(crate) use self::noted::count;
use crate::{
    app::DestinationSettings,
    flight::Job,
    guard::{Guard, Permit},
    intake::Intake,
    lanes::LaneKeeper,
    observe::DestinationCounters,
    worker::{Progress, Worker},
};

/// The longest rest between two looks at the outbox.
const REST_MAX: Duration = Duration::from_secs(1);
/// How long a stopping relay waits for calls under way, beyond their own time limit.
const STOP_GRACE: Duration = Duration::from_secs(1);

type Landed = (Vec<Job<OutboxRow>>, Vec<Delivery>);

pub(crate) struct Relay {
    store: Arc<dyn Store>,
    intake: Intake<OutboxRow>,
    guard: Guard,
    settings: DestinationSettings,
    counters: Arc<DestinationCounters>,
    calls: JoinSet<Landed>,
    /// Came back, not yet settled: kept until the store took it.
    landed: Vec<Landed>,
    settlements: Vec<OutboxSettlement>,
    /// Keys with a settlement that is not `Dispatched`: not read until the store knows.
    forgotten: HashSet<String>,
    /// When the next of our own retries is due.
    retry_at: Option<Instant>,
    /// Keys that were probed in vain since the breaker opened: others go first.
    probed: HashSet<String>,
}

impl Relay {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keeper: LaneKeeper,
        guard: Guard,
        settings: DestinationSettings,
        counters: Arc<DestinationCounters>,
    ) -> Self {
        let intake = Intake::of_outbox(Arc::clone(&store), keeper, &settings.retry);
        Self {
            store,
            intake,
            guard,
            settings,
            counters,
            calls: JoinSet::new(),
            landed: Vec::new(),
            settlements: Vec::new(),
            forgotten: HashSet::new(),
            retry_at: None,
            probed: HashSet::new(),
        }
    }

    pub(crate) fn intake(&mut self) -> &mut Intake<OutboxRow> {
        &mut self.intake
    }

    async fn pass(&mut self) -> Result<Progress, StoreError> {
        self.collect();
        let (settled, read) = self.settle_and_read().await?;
        let (started, wait) = self.launch().await?;
        self.tell();
        Ok(if settled + read + started > 0 {
            Progress::Worked
        } else {
            let rest = wait.min(self.until_retry());
            Progress::Idle { at_most: self.intake.rest(rest) }
        })
    }

    /// Counts the state, and tells a person when the target goes away and when it is back.
    fn tell(&mut self) {
        let keeper = self.intake.keeper();
        let state = self.guard.limits().tell(&keeper.fence().scope);
        self.counters.set_state(state, keeper.owned());
        if state == BreakerState::Closed && !self.probed.is_empty() {
            self.probed.clear();
        }
    }

    /// Takes what has come back, without waiting.
    fn collect(&mut self) {
        while let Some(done) = self.calls.try_join_next() {
            self.take_in(done);
        }
        for (jobs, mut deliveries) in std::mem::take(&mut self.landed) {
            let probing = self.guard.limits().is_probing();
            self.guard.landed(&deliveries);
            if probing {
                self.excuse(&jobs, &mut deliveries);
            }
            let mut forget = HashSet::new();
            for (job, delivery) in jobs.iter().zip(deliveries) {
                self.judge(job, delivery, &mut forget);
            }
            if !forget.is_empty() {
                self.intake.look();
            }
            self.intake.flight.land(&jobs, &forget);
        }
        if self.guard.limits().is_open() {
            self.intake.flight.drop_queued();
            self.intake.look();
        }
    }

    fn take_in(&mut self, done: Result<Landed, tokio::task::JoinError>) {
        match done {
            Ok(landed) => self.landed.push(landed),
            // The guard catches panics of a call. Whatever panics beside it would leave its rows in our
            // hands for ever: this worker ends too.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => tracing::error!(%error, "a publish task vanished; its lease runs out"),
        }
    }

    /// A probe of a target that fails anyway is not its message's fault: no attempt is used, and the
    /// next probe takes another key.
    fn excuse(&mut self, jobs: &[Job<OutboxRow>], deliveries: &mut [Delivery]) {
        for (job, delivery) in jobs.iter().zip(deliveries) {
            if let Delivery::Retry { problem, after } = delivery {
                *delivery = Delivery::Outage { problem: problem.clone(), after: *after };
                self.probed.insert(job.row.msg_key.clone());
            }
        }
    }

    fn judge(&mut self, job: &Job<OutboxRow>, delivery: Delivery, forget: &mut HashSet<String>) {
        let row = &job.row;
        let DestinationSettings { retry, on_dead_letter, .. } = &self.settings;
        let fate = match delivery {
            Delivery::Outage { problem, .. } => {
                self.counters.outage(&problem);
                self.guard.limits().because(&problem);
                if job.counted {
                    // The attempt counted by caution was none: take it back.
                    OutboxFate::Uncounted { attempts: row.attempts, problem: problem.fitted() }
                } else {
                    OutboxFate::Untouched
                }
            }
            Delivery::Held => OutboxFate::Untouched,
            Delivery::Accepted => OutboxFate::Dispatched,
            delivery => settle(retry, *on_dead_letter, row.attempts, delivery, random()),
        };
        count(&self.counters, row, &fate);
        match &fate {
            OutboxFate::Retry { pause, problem, .. } => {
                self.guard.limits().because(problem);
                if let Some(due) = Instant::now().checked_add(*pause) {
                    self.retry_at = Some(self.retry_at.map_or(due, |at| at.min(due)));
                }
            }
            OutboxFate::Untouched => self.intake.flight.release([row.id]),
            OutboxFate::Dispatched | OutboxFate::Uncounted { .. } | OutboxFate::Dead { .. } => {}
        }
        if fate != OutboxFate::Dispatched {
            forget.insert(row.msg_key.clone());
        }
        if fate != OutboxFate::Untouched {
            if fate != OutboxFate::Dispatched {
                self.forgotten.insert(row.msg_key.clone());
            }
            let (lane, epoch) = (job.lane.lane, job.lane.epoch);
            self.settlements.push(OutboxSettlement { id: row.id, lane, epoch, fate });
        }
    }

    /// Settles what came back while the next rows are read: two statements side by side.
    async fn settle_and_read(&mut self) -> Result<(usize, usize), StoreError> {
        let fetch = if self.guard.limits().is_open() { None } else { self.intake.plan() };
        let Some(fetch) = fetch else { return Ok((self.settle().await?, 0)) };
        let forgotten = self.forgotten.clone();
        let store = Arc::clone(&self.store);
        let (settled, rows) = tokio::join!(self.settle(), store.fetch_outbox(fetch.clone()));
        let read = self.intake.receive(&fetch, rows, &forgotten).await;
        Ok((settled?, read?))
    }

    /// Settles what came back. If the store is away the settlements stay here for the next pass, but
    /// for dead letters: should this one have arrived, a person may have decided it by then.
    async fn settle(&mut self) -> Result<usize, StoreError> {
        if self.settlements.is_empty() {
            return Ok(0);
        }
        let fence = self.intake.keeper().fence().clone();
        match self.store.settle_outbox(fence, self.settlements.clone()).await {
            Err(error) => {
                let dead = |s: &mut OutboxSettlement| matches!(s.fate, OutboxFate::Dead { .. });
                let dropped = self.settlements.extract_if(.., dead).map(|s| s.id);
                self.intake.flight.release(dropped);
                if self.settlements.is_empty() {
                    self.forgotten.clear();
                }
                Err(error)
            }
            Ok(settled) => {
                relais_store::fail_point!("relay.after_settle");
                if settled.refused > 0 {
                    self.counters.refused(settled.refused);
                    self.intake.keeper().distrust();
                }
                let done = self.settlements.len();
                self.intake.flight.release(self.settlements.drain(..).map(|s| s.id));
                self.forgotten.clear();
                Ok(done)
            }
        }
    }

    /// Starts as many calls as the guards allow; how many, and how long to rest if none.
    async fn launch(&mut self) -> Result<(usize, Duration), StoreError> {
        let (mut started, mut rest) = (0, REST_MAX);
        let mut suspects = Vec::new();
        while self.intake.flight.has_ready() {
            match self.guard.permit(suspects.len()) {
                Permit::Go => {}
                Permit::Wait(wait) => {
                    rest = wait.min(REST_MAX);
                    break;
                }
                Permit::Full => break,
            }
            if !self.probed.is_empty() && !self.intake.flight.prefer_other_than(&self.probed) {
                self.probed.clear();
            }
            let jobs = self.intake.take(self.guard.batching());
            let Some(first) = jobs.first() else { break };
            started += jobs.len();
            if first.suspect.is_some() {
                suspects.extend(jobs);
            } else {
                self.start(jobs);
            }
        }
        self.start_suspects(suspects).await?;
        Ok((started, rest))
    }

    /// Counts suspects before they are tried; gives those up that have no attempt left.
    async fn start_suspects(&mut self, suspects: Vec<Job<OutboxRow>>) -> Result<(), StoreError> {
        let retry = self.settings.retry;
        let (lost, tried): (Vec<_>, Vec<_>) =
            suspects.into_iter().partition(|job| retry.exhausted(job.row.attempts));
        for job in lost {
            let problem = Problem::new(
                "WORKER_LOST",
                "its worker died each time it was delivered; look at the payload before a retry",
            );
            // Settled without a call: the guards have nothing to learn from it.
            let mut forget = HashSet::new();
            self.judge(&job, Delivery::Reject { problem }, &mut forget);
            self.intake.flight.land(&[job], &forget);
        }
        if tried.is_empty() {
            return Ok(());
        }
        let counted = self.intake.count_suspects(&tried).await;
        if matches!(counted, Ok(true)) {
            tried.into_iter().for_each(|job| self.start(vec![job]));
        } else {
            let keys = tried.iter().map(|job| job.row.msg_key.clone()).collect();
            self.intake.flight.land(&tried, &keys);
            self.intake.flight.release(tried.iter().map(|job| job.row.id));
        }
        counted.map(drop)
    }

    fn start(&mut self, jobs: Vec<Job<OutboxRow>>) {
        let (lanes, mut rows): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|job| ((job.lane, job.suspect, job.counted), job.row)).unzip();
        let noted = Noted::new(&self.counters, &mut rows);
        let call = self.guard.call(rows);
        self.calls.spawn(async move {
            relais_store::fail_point!("relay.before_publish");
            let (mut rows, deliveries) = call.await;
            relais_store::fail_point!("relay.after_publish");
            noted.back(&mut rows, &deliveries);
            let jobs = rows.into_iter().zip(lanes);
            let jobs =
                jobs.map(|(row, (lane, suspect, counted))| Job { row, lane, suspect, counted });
            (jobs.collect(), deliveries)
        });
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

    fn stop(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.intake.flight.drop_queued();
            let patience = self.settings.timeout + STOP_GRACE;
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
