//! Outbox rows of one destination → bulk jobs of a target → settled; few rows may be sent one by one.
//!
//! A worker plans a job from rows of its lanes; from then on the lease of the job protects the rows, and
//! `drive` takes the job to its end on a task of its own. A destination has one open job at a time: a
//! worker that finds one without an owner continues it before it plans another.

mod call;
mod choose;
mod drive;
mod halt;
mod halving;
mod lease;
mod read;
mod settings;
mod suspects;
mod sweep;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use relais_core::{
    bulk::{BulkLease, BulkTarget, JobFence, JobTakeover},
    outbox::OutboxRow,
    store::{StoreDriver, StoreError},
};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::settings::{BulkSettings, JOB_ROWS_MAX};
use self::{
    call::BulkCaller,
    choose::choose,
    drive::JobDriver,
    halt::{Halt, Halts},
    halving::JobHalving,
    lease::JobLease,
    suspects::SuspectTurns,
};
use crate::{
    lane_reader::LaneReader,
    lanes::LaneKeeper,
    limits::SharedLimits,
    observe::DestinationCounters,
    publish_guard::PublishGuard,
    refused::RefusedKeys,
    relay::Relay,
    timing::{CALL_STOP_GRACE, REST_MAX},
    worker::{PassOutcome, Worker},
};

/// The rest after a job could not be planned: the job of another worker is open, or a lane was lost.
const PLAN_PAUSE: Duration = Duration::from_millis(250);

/// The reader of rows that are not in a job.
#[expect(clippy::large_enum_variant, reason = "there is one for each destination")]
enum RowReader {
    /// Every row is sent in a job: the reader has lanes and holds no rows.
    Jobs(LaneReader<OutboxRow>),
    /// Few rows are sent by a relay of single calls, which shares the lanes.
    Auto(Relay),
}

pub(crate) struct BulkRelay {
    store: Arc<dyn StoreDriver>,
    destination: String,
    worker: String,
    rows: RowReader,
    settings: Arc<BulkSettings>,
    lease: Duration,
    caller: BulkCaller,
    /// The task of a job or of a sweep.
    work: JoinSet<()>,
    /// The running job.
    fence: Option<JobFence>,
    take_at: Instant,
    plan_at: Instant,
    count_at: Instant,
    sweep_at: Instant,
    /// The time since which rows wait that do not fill a job.
    waiting_since: Option<Instant>,
    /// More rows wait than single calls should send.
    many: bool,
    /// The size of jobs after some that failed as a whole.
    halving: Arc<JobHalving>,
    suspects: SuspectTurns,
    /// Not sent by this worker any more.
    refused: RefusedKeys,
}

impl BulkRelay {
    pub(crate) fn new(
        store: Arc<dyn StoreDriver>,
        destination: &str,
        (keeper, lease): (LaneKeeper, Duration),
        target: Arc<dyn BulkTarget>,
        settings: BulkSettings,
        counters: Arc<DestinationCounters>,
    ) -> Self {
        let limits = SharedLimits::new(&settings.destination);
        let worker = keeper.fence().worker.clone();
        let of_store = Arc::clone(&store);
        let refused = RefusedKeys::default();
        let rows = match settings.small.clone() {
            None => RowReader::Jobs(LaneReader::of_outbox(of_store, keeper)),
            Some(small) => {
                let one_by_one = settings.destination.clone();
                let guard = PublishGuard::sharing(small, &one_by_one, limits.clone());
                let counters = Arc::clone(&counters);
                let relay = Relay::new(of_store, keeper, guard, one_by_one, counters);
                RowReader::Auto(relay.sharing(refused.clone()))
            }
        };
        let halts = Halts { lost: CancellationToken::new(), stop: CancellationToken::new() };
        let now = Instant::now();
        Self {
            store,
            destination: destination.to_owned(),
            worker,
            rows,
            lease,
            caller: BulkCaller { target, limits, counters, halts },
            work: JoinSet::new(),
            fence: None,
            take_at: now,
            plan_at: now,
            count_at: now,
            sweep_at: now + settings.sweep_every,
            waiting_since: None,
            many: settings.small.is_none(),
            halving: Arc::default(),
            suspects: SuspectTurns::default(),
            refused,
            settings: Arc::new(settings),
        }
    }

    pub(crate) fn limits(&self) -> SharedLimits {
        self.caller.limits.clone()
    }

    pub(crate) fn reader(&mut self) -> &mut LaneReader<OutboxRow> {
        match &mut self.rows {
            RowReader::Jobs(reader) => reader,
            RowReader::Auto(relay) => relay.reader(),
        }
    }

    /// Publishes the breaker's state, and logs its changes.
    fn report(&mut self) {
        let keeper = self.reader().keeper();
        let (scope, owned) = (keeper.fence().scope.clone(), keeper.owned());
        let limits = &self.caller.limits;
        limits.report(&scope);
        self.caller.counters.set_state(limits.view(), owned, self.work.len());
    }

    /// Continues the open job of the destination if it has no owner; returns whether there was one.
    async fn take(&mut self) -> Result<bool, StoreError> {
        if Instant::now() < self.take_at {
            return Ok(false);
        }
        let (destination, worker) = (self.destination.clone(), self.worker.clone());
        let asked_at = Instant::now();
        let take = BulkLease::Take { destination, worker, lease: self.lease };
        let taken = self.store.lease_bulk(take).await?;
        self.take_at = Instant::now() + self.lease / 3;
        let Some(taken) = taken else { return Ok(false) };
        let JobTakeover { job, after_loss } = &taken;
        tracing::info!(
            job = %job.id, phase = job.phase.as_str(), after_loss, "continued a bulk job"
        );
        self.start(taken, asked_at);
        Ok(true)
    }

    /// Plans a job of the waiting rows.
    async fn plan(&mut self) -> Result<PassOutcome, StoreError> {
        // Releases surplus lanes, although nothing is read from them here.
        self.reader().plan();
        let wait = self.plan_at.saturating_duration_since(Instant::now());
        if !self.work.is_empty() || self.caller.limits.is_resting() {
            return Ok(rest(REST_MAX));
        }
        if !wait.is_zero() {
            return Ok(rest(wait));
        }
        let max = self.caller.rows_max();
        let limit = self.halving.rows(max);
        let Some((lanes, mut rows)) = self.fetch(limit, Vec::new()).await? else {
            return Ok(rest(REST_MAX));
        };
        if let Some(wait) = self.linger(rows.len(), limit) {
            self.plan_at = Instant::now() + wait;
            return Ok(rest(wait));
        }
        self.fill(&lanes, &mut rows, limit).await?;
        let losses = rows.iter().map(|row| (row.id, row.lost_workers));
        let chosen = self.suspects.choose(choose(&rows, &lanes, limit), losses, max);
        let chosen = self.halving.choose(chosen, max);
        if chosen.is_empty() {
            return Ok(rest(REST_MAX));
        }
        let fence = self.reader().keeper().fence().clone();
        let asked_at = Instant::now();
        let (job, lease) = (Uuid::now_v7(), self.lease);
        let plan = BulkLease::Plan { fence, job, rows: chosen, lease };
        match self.store.lease_bulk(plan).await? {
            Some(planned) => {
                self.caller.counters.job_planned();
                if let Some(asked_at) = self.renewed(&planned, asked_at).await? {
                    self.start(planned, asked_at);
                }
                Ok(PassOutcome::Worked)
            }
            None => {
                // Perhaps an open job of a lost worker.
                self.take_at = self.take_at.min(Instant::now() + PLAN_PAUSE);
                self.plan_at = Instant::now() + PLAN_PAUSE;
                Ok(rest(PLAN_PAUSE))
            }
        }
    }

    fn job_fence(&self, taken: &JobTakeover) -> JobFence {
        JobFence { job: taken.job.id, worker: self.worker.clone(), epoch: taken.job.epoch }
    }

    fn start(&mut self, taken: JobTakeover, asked_at: Instant) {
        let work = self.work_on(taken, asked_at);
        self.work.spawn(work);
    }

    /// Returns a future that takes a job to its end; its lease was requested at `asked_at`.
    pub(crate) fn work_on(
        &mut self,
        taken: JobTakeover,
        asked_at: Instant,
    ) -> impl Future<Output = ()> + Send + use<> {
        let fence = self.job_fence(&taken);
        let lease = JobLease::keep(self.store.clone(), fence.clone(), self.lease, asked_at);
        let mut caller = self.caller.clone();
        caller.halts.lost = lease.lost().clone();
        self.fence = Some(fence.clone());
        let counters = Arc::clone(&caller.counters);
        let (settings, halving) = (Arc::clone(&self.settings), Arc::clone(&self.halving));
        let shared = (settings, halving, self.refused.clone());
        let store = Arc::clone(&self.store);
        let mut drive = JobDriver::new(store, caller, shared, taken, (fence, self.lease));
        async move {
            let halted = drive.run().await;
            counters.set_phase(None);
            match halted {
                Ok(()) => {}
                Err(Halt::Stop) => lease.release().await,
                Err(Halt::Lost) => tracing::warn!("lost a bulk job to another worker"),
            }
        }
    }

    fn ended(&mut self, done: Result<(), JoinError>) {
        if let Err(error) = done {
            tracing::error!(%error, "task of a bulk job ended without a result; its lease will expire");
        }
        self.fence = None;
        self.take_at = Instant::now();
        self.plan_at = Instant::now();
        self.reader().request_read();
    }
}

fn rest(at_most: Duration) -> PassOutcome {
    PassOutcome::Idle { at_most }
}

#[async_trait]
impl Worker for BulkRelay {
    fn request_read(&mut self) {
        self.reader().request_read();
    }

    async fn run_once(&mut self) -> Result<PassOutcome, StoreError> {
        while let Some(done) = self.work.try_join_next() {
            self.ended(done);
        }
        self.report();
        self.free_held_rows().await?;
        if self.work.is_empty() && (self.take().await? || self.sweep()) {
            return Ok(PassOutcome::Worked);
        }
        self.count().await?;
        if let RowReader::Auto(relay) = &mut self.rows {
            if !self.many {
                return relay.run_once().await;
            }
            // Its rows are read again, for the job.
            if !relay.wind_down().await? {
                return Ok(rest(REST_MAX));
            }
        }
        self.plan().await
    }

    async fn returned(&mut self) {
        let Self { work, rows, .. } = self;
        let ended = async {
            match work.join_next().await {
                Some(done) => done,
                None => std::future::pending().await,
            }
        };
        let returned = async {
            match rows {
                RowReader::Auto(relay) => relay.returned().await,
                RowReader::Jobs(_) => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            done = ended => done,
            () = returned => return,
        };
        self.ended(done);
    }

    #[cfg(test)]
    fn in_flight(&self) -> usize {
        let relay = match &self.rows {
            RowReader::Auto(relay) => relay.in_flight(),
            RowReader::Jobs(_) => 0,
        };
        self.work.len() + relay
    }

    async fn stop(&mut self, patience: Duration) {
        self.caller.halts.stop.cancel();
        let longest = self.settings.destination.timeout + CALL_STOP_GRACE;
        let all = async { while self.work.join_next().await.is_some() {} };
        if tokio::time::timeout(patience.min(longest), all).await.is_err() {
            // The worker that continues the job asks the target for the effect of the call.
            self.work.shutdown().await;
            if let Some(fence) = self.fence.take()
                && let Err(error) = self.store.lease_bulk(BulkLease::Release { fence }).await
            {
                tracing::warn!(%error, "bulk job was not released; its lease will expire");
            }
        }
        match &mut self.rows {
            RowReader::Auto(relay) => relay.stop(patience).await,
            RowReader::Jobs(reader) => reader.leave().await,
        }
    }
}
