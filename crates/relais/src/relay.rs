//! Outbox rows of one destination → its publisher → settled.
//!
//! Delivery is at least once: a crash between publish and settle repeats the publish, with the same
//! message id. Rows are read, worked on and settled in batches; what came back while the last batch
//! was being settled makes up the next one.

mod noted;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    BoxFuture,
    breaker::BreakerState,
    delivery::{Delivery, Problem},
    fault::Judgement,
    outbox::{OnDeadLetter, OutboxFate, OutboxRow, OutboxSettlement, settle},
    quarantine::{self, Treatment},
    store::{Settled, Store, StoreError},
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

/// A call that came back.
struct Landed {
    jobs: Vec<Job<OutboxRow>>,
    deliveries: Vec<Delivery>,
    began: Instant,
}

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
            landed: Vec::new(),
            settlements: Vec::new(),
            forgotten: HashMap::new(),
            retry_at: None,
            probed: HashSet::new(),
            stuck: HashSet::new(),
        }
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
        self.counters.set_state(state, limits.cause(), keeper.owned());
        if state == BreakerState::Closed && !self.probed.is_empty() {
            self.probed.clear();
        }
    }

    /// Takes what has come back, without waiting.
    fn collect(&mut self) {
        while let Some(done) = self.calls.try_join_next() {
            self.take_in(done);
        }
        for Landed { jobs, deliveries, began } in std::mem::take(&mut self.landed) {
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
        if self.guard.limits().is_open() {
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
        let asked = delivery.problem().and_then(|(_, after)| after);
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
        let fetch = if self.guard.limits().is_open() { None } else { self.intake.plan() };
        let Some(fetch) = fetch else { return Ok((self.settle().await?, 0)) };
        let forgotten = self.forgotten.values().chain(&self.stuck).cloned().collect();
        let store = Arc::clone(&self.store);
        let (settled, rows) = tokio::join!(self.settle(), store.fetch_outbox(fetch.clone()));
        let read = self.intake.receive(&fetch, rows, &forgotten).await;
        Ok((settled?, read?))
    }

    /// Settles what came back. If the store is unavailable, the settlements stay here for the next pass,
    /// except dead letters: should such a one have arrived, an operator may have decided it by then.
    async fn settle(&mut self) -> Result<usize, StoreError> {
        if self.settlements.is_empty() {
            return Ok(0);
        }
        let fence = self.intake.keeper().fence().clone();
        let settled = match self.store.settle_outbox(fence, self.settlements.clone()).await {
            Err(StoreError::Invalid(reason)) => self.settle_singly(&reason).await,
            settled => settled,
        };
        match settled {
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

    /// The database refuses something in the batch: each row is settled by itself, and the refused one
    /// becomes a dead letter with the reason.
    async fn settle_singly(&mut self, reason: &str) -> Result<Settled, StoreError> {
        tracing::warn!("the database refused a settlement, its rows are settled singly: {reason}");
        let fence = self.intake.keeper().fence().clone();
        let park = self.settings.on_dead_letter == OnDeadLetter::Park;
        let mut all = Settled::default();
        while let Some(settlement) = self.settlements.last().cloned() {
            let settle = |fate| vec![OutboxSettlement { fate, ..settlement.clone() }];
            let mut answer =
                self.store.settle_outbox(fence.clone(), settle(settlement.fate.clone())).await;
            if let Err(StoreError::Invalid(reason)) = &answer {
                let delivered = settlement.fate == OutboxFate::Dispatched;
                let what = if delivered { "delivered, but " } else { "" };
                let text = format!("{what}the database refuses to record it: {reason}");
                let problem = Problem::new("STORE_REFUSED", &text);
                self.counters.failed(&problem);
                let dead = OutboxFate::Dead { attempts: 1, problem, park };
                answer = self.store.settle_outbox(fence.clone(), settle(dead)).await;
            }
            match answer {
                Ok(settled) => {
                    all.settled += settled.settled;
                    all.refused += settled.refused;
                    self.intake.flight.release([settlement.id]);
                }
                Err(StoreError::Invalid(reason)) => self.give_up(&settlement, &reason),
                Err(error) => return Err(error),
            }
            self.settlements.pop();
        }
        Ok(all)
    }

    /// A row whose every settlement the database refuses stays in this worker's hands, so that it is not
    /// sent again; if it was not delivered, its key waits too.
    fn give_up(&mut self, settlement: &OutboxSettlement, reason: &str) {
        tracing::error!(
            row = settlement.id,
            "cannot settle an outbox row, it waits until this process restarts: {reason}; remove the \
             trigger or constraint on relais_outbox that refuses the change"
        );
        self.stuck.extend(self.forgotten.get(&settlement.id).cloned());
    }

    /// Starts as many calls as the guards allow; how many rows, and how long to rest if none.
    async fn launch(&mut self) -> Result<(usize, Duration), StoreError> {
        let (mut started, mut rest) = (0, REST_MAX);
        let mut batches = Vec::new();
        while self.intake.flight.has_ready() {
            match self.guard.permit(batches.len()) {
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
            match quarantined(first.treatment) {
                Some(fate) => self.set_aside(&jobs, &fate),
                None => batches.push(jobs),
            }
        }
        self.start_all(batches).await?;
        Ok((started, rest))
    }

    /// Settles suspects without a call: the guards have nothing to learn from it.
    fn set_aside(&mut self, jobs: &[Job<OutboxRow>], quarantine: &Quarantined) {
        let mut forget = HashSet::new();
        for job in jobs {
            let park = self.settings.on_dead_letter == OnDeadLetter::Park;
            let fate = match quarantine {
                Quarantined::Held => OutboxFate::Wait {
                    pause: quarantine::HOLD_FOR,
                    problem: quarantine::held(),
                    lost_workers: quarantine::HOLD_AFTER,
                },
                Quarantined::Buried => OutboxFate::Dead {
                    attempts: job.row.attempts,
                    problem: quarantine::lost(),
                    park,
                },
            };
            self.settle_as(job, fate, &mut forget);
        }
        self.intake.flight.land(jobs, &forget);
    }

    /// Starts the calls; before that, losses are noted where it is needed.
    async fn start_all(&mut self, batches: Vec<Vec<Job<OutboxRow>>>) -> Result<(), StoreError> {
        let noted = self.intake.note_losses(batches.iter().flatten()).await;
        let may_start = matches!(noted, Ok(true));
        for jobs in batches {
            if may_start || !jobs.iter().any(Job::is_noted) {
                self.start(jobs);
            } else {
                let keys = jobs.iter().map(|job| job.row.msg_key.clone()).collect();
                self.intake.flight.land(&jobs, &keys);
                self.intake.flight.release(jobs.iter().map(|job| job.row.id));
            }
        }
        noted.map(drop)
    }

    fn start(&mut self, jobs: Vec<Job<OutboxRow>>) {
        let (lanes, mut rows): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|job| ((job.lane, job.treatment), job.row)).unzip();
        let noted = Noted::new(&self.counters, &mut rows);
        let call = self.guard.call(rows);
        let began = Instant::now();
        self.calls.spawn(async move {
            relais_store::fail_point!("relay.before_publish");
            let (mut rows, deliveries) = call.await;
            relais_store::fail_point!("relay.after_publish");
            noted.back(&mut rows, &deliveries);
            let jobs = rows.into_iter().zip(lanes);
            let jobs = jobs.map(|(row, (lane, treatment))| Job { row, lane, treatment });
            Landed { jobs: jobs.collect(), deliveries, began }
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

/// What the rule about rows that may have killed their worker makes of a row that is not sent.
enum Quarantined {
    Held,
    Buried,
}

fn quarantined(treatment: Treatment) -> Option<Quarantined> {
    match treatment {
        Treatment::Hold => Some(Quarantined::Held),
        Treatment::Bury => Some(Quarantined::Buried),
        Treatment::Send | Treatment::NoteAndSend | Treatment::SendAlone => None,
    }
}

/// A number in `0.0..1.0` for jitter; its quality does not matter, its spread does.
pub(crate) fn random() -> f64 {
    let bits = uuid::Uuid::new_v4().as_u128() & 0xFFFF_FFFF;
    bits as f64 / 4_294_967_296.0
}
