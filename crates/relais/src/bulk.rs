//! Outbox rows of one destination → bulk jobs of a target → settled; few rows may go one by one.
//!
//! Lanes say whose rows may be planned; from then on the job's own lease stands for them, and `drive`
//! takes the job to its end on a task of its own. A destination has one open job at a time: whoever
//! finds one that nobody holds goes on with it before planning another.

mod call;
mod choose;
mod drive;
mod halt;
mod halving;
mod lease;
mod settings;
mod suspects;
mod sweep;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    BoxFuture,
    bulk::{BulkCandidate, BulkTarget, JobFence, JobTakeover},
    lane::OwnedLane,
    outbox::OutboxRow,
    store::{Fetch, Store, StoreError},
};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::settings::BulkSettings;
use self::{
    call::Caller,
    choose::choose,
    drive::Drive,
    halt::{Halt, Halts},
    halving::Halving,
    lease::JobLease,
    suspects::SuspectTurns,
};
use crate::{
    guard::Guard,
    intake::Intake,
    lanes::LaneKeeper,
    limits::Limits,
    observe::DestinationCounters,
    relay::Relay,
    worker::{Progress, Worker},
};

/// The longest rest between two looks at the outbox.
const REST_MAX: Duration = Duration::from_secs(1);
/// The rest after a job could not be planned: another worker's is open, or a lane was lost.
const PLAN_PAUSE: Duration = Duration::from_millis(250);
/// How often waiting rows are counted, at most, to choose between a job and single calls.
const COUNT_EVERY: Duration = Duration::from_millis(100);
/// How long a stopping relay waits for a call under way, beyond its own time limit.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Who reads the rows that are not in a job.
#[expect(clippy::large_enum_variant, reason = "there is one for each destination")]
enum Rows {
    /// Only jobs: the lanes, and nothing in its hands.
    Jobs(Intake<OutboxRow>),
    /// Few rows go through the relay of single calls, whose lanes are ours too.
    Auto(Relay),
}

pub(crate) struct BulkRelay {
    store: Arc<dyn Store>,
    destination: String,
    worker: String,
    rows: Rows,
    settings: Arc<BulkSettings>,
    lease: Duration,
    caller: Caller,
    /// A job, or a sweep.
    work: JoinSet<()>,
    /// The job under way.
    fence: Option<JobFence>,
    take_at: Instant,
    plan_at: Instant,
    count_at: Instant,
    sweep_at: Instant,
    /// When rows were first seen that do not fill a job.
    waiting_since: Option<Instant>,
    /// So many rows wait that single calls would take too long.
    many: bool,
    /// The size of jobs after some that failed as a whole.
    halving: Arc<Halving>,
    suspects: SuspectTurns,
}

impl BulkRelay {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        destination: &str,
        (keeper, lease): (LaneKeeper, Duration),
        target: Arc<dyn BulkTarget>,
        settings: BulkSettings,
        counters: Arc<DestinationCounters>,
    ) -> Self {
        let limits = Limits::new(&settings.destination);
        let worker = keeper.fence().worker.clone();
        let of_store = Arc::clone(&store);
        let rows = match settings.small.clone() {
            None => Rows::Jobs(Intake::of_outbox(of_store, keeper)),
            Some(small) => {
                let one_by_one = settings.destination.clone();
                let guard = Guard::sharing(small, &one_by_one, limits.clone());
                let counters = Arc::clone(&counters);
                let relay = Relay::new(of_store, keeper, guard, one_by_one, counters);
                Rows::Auto(relay)
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
            caller: Caller { target, limits, counters, halts },
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
            settings: Arc::new(settings),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.caller.limits.clone()
    }

    pub(crate) fn intake(&mut self) -> &mut Intake<OutboxRow> {
        match &mut self.rows {
            Rows::Jobs(intake) => intake,
            Rows::Auto(relay) => relay.intake(),
        }
    }

    async fn pass(&mut self) -> Result<Progress, StoreError> {
        while let Some(done) = self.work.try_join_next() {
            self.ended(done);
        }
        self.report();
        self.acquit().await?;
        if self.work.is_empty() && (self.take().await? || self.sweep()) {
            return Ok(Progress::Worked);
        }
        self.count().await?;
        if let Rows::Auto(relay) = &mut self.rows {
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

    /// Publishes the breaker's state, and logs its changes.
    fn report(&mut self) {
        let keeper = self.intake().keeper();
        let (scope, owned) = (keeper.fence().scope.clone(), keeper.owned());
        let limits = &self.caller.limits;
        limits.report(&scope);
        self.caller.counters.set_state(limits.view(), owned, self.work.len());
    }

    /// Goes on with the destination's open job if nobody holds it.
    async fn take(&mut self) -> Result<bool, StoreError> {
        if Instant::now() < self.take_at {
            return Ok(false);
        }
        let (destination, worker) = (self.destination.clone(), self.worker.clone());
        let asked_at = Instant::now();
        let taken = self.store.take_bulk(destination, worker, self.lease).await?;
        self.take_at = Instant::now() + self.lease / 3;
        let Some(taken) = taken else { return Ok(false) };
        let JobTakeover { job, after_loss } = &taken;
        tracing::info!(
            job = %job.id, phase = job.phase.as_str(), after_loss, "continued a bulk job"
        );
        self.start(taken, asked_at);
        Ok(true)
    }

    /// With a relay for few rows: notes whether there are too many for it.
    async fn count(&mut self) -> Result<(), StoreError> {
        let Rows::Auto(relay) = &mut self.rows else { return Ok(()) };
        // What comes after a quiet time is counted before the relay begins with it.
        if Instant::now() < self.count_at && !relay.intake().flight.is_empty() {
            return Ok(());
        }
        let limit = self.settings.threshold.max(1);
        self.many = self.fetch(limit).await?.is_some_and(|(_, rows)| rows.len() >= limit);
        self.count_at = Instant::now() + COUNT_EVERY;
        Ok(())
    }

    /// Makes a job of what waits.
    async fn plan(&mut self) -> Result<Progress, StoreError> {
        // Lanes that are to be given back are, though nothing is read from them this way.
        self.intake().plan();
        let wait = self.plan_at.saturating_duration_since(Instant::now());
        if !self.work.is_empty() || self.caller.limits.is_resting() {
            return Ok(rest(REST_MAX));
        }
        if !wait.is_zero() {
            return Ok(rest(wait));
        }
        let max = self.caller.target.rows_max().max(1);
        let limit = self.halving.rows(max);
        let Some((lanes, rows)) = self.fetch(limit).await? else { return Ok(rest(REST_MAX)) };
        if let Some(wait) = self.linger(rows.len(), limit) {
            self.plan_at = Instant::now() + wait;
            return Ok(rest(wait));
        }
        let chosen = self.suspects.choose(choose(&rows, &lanes, limit), &rows, max);
        let chosen = self.halving.choose(chosen, max);
        if chosen.is_empty() {
            return Ok(rest(REST_MAX));
        }
        let fence = self.intake().keeper().fence().clone();
        let asked_at = Instant::now();
        match self.store.plan_bulk(fence, Uuid::now_v7(), chosen, self.lease).await? {
            Some(job) => {
                self.caller.counters.job_planned();
                self.start(JobTakeover { job, after_loss: false }, asked_at);
                Ok(Progress::Worked)
            }
            None => {
                // Perhaps an open job whose worker is gone.
                self.take_at = self.take_at.min(Instant::now() + PLAN_PAUSE);
                self.plan_at = Instant::now() + PLAN_PAUSE;
                Ok(rest(PLAN_PAUSE))
            }
        }
    }

    /// Reads rows of our lanes without their payloads, and takes none into our hands.
    async fn fetch(
        &mut self,
        limit: usize,
    ) -> Result<Option<(Vec<OwnedLane>, Vec<BulkCandidate>)>, StoreError> {
        let keeper = self.intake().keeper();
        let lanes = keeper.usable();
        if lanes.is_empty() {
            return Ok(None);
        }
        let fetch = Fetch {
            scope: keeper.fence().scope.clone(),
            lanes: lanes.clone(),
            skip_keys: Vec::new(),
            skip_ids: Vec::new(),
            limit,
            bytes: usize::MAX,
        };
        Ok(Some((lanes, self.store.bulk_candidates(fetch).await?)))
    }

    /// Lets rows in quarantine go again whose lanes were taken over from a lost worker since.
    async fn acquit(&mut self) -> Result<(), StoreError> {
        let is_jobs = matches!(self.rows, Rows::Jobs(_));
        let intake = self.intake();
        let lanes = intake.keeper().usable();
        intake.acquit(&lanes).await?;
        if is_jobs {
            // Outside a job no row of a lane is in flight, so no row is a suspect.
            intake.end_caution();
        }
        Ok(())
    }

    /// How long a job should still wait for more rows.
    fn linger(&mut self, rows: usize, max: usize) -> Option<Duration> {
        if rows == 0 || rows >= max || matches!(self.rows, Rows::Auto(_)) {
            self.waiting_since = None;
            return None;
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let left = self.settings.linger.saturating_sub(since.elapsed());
        if left.is_zero() {
            self.waiting_since = None;
            return None;
        }
        Some(left)
    }

    fn start(&mut self, taken: JobTakeover, asked_at: Instant) {
        let work = self.work_on(taken, asked_at);
        self.work.spawn(work);
    }

    /// Takes a job that was leased to us at `asked_at` to its end.
    pub(crate) fn work_on(
        &mut self,
        taken: JobTakeover,
        asked_at: Instant,
    ) -> impl Future<Output = ()> + Send + use<> {
        let worker = self.worker.clone();
        let fence = JobFence { job: taken.job.id, worker, epoch: taken.job.epoch };
        let lease = JobLease::keep(Arc::clone(&self.store), fence.clone(), self.lease, asked_at);
        let mut caller = self.caller.clone();
        caller.halts.lost = lease.lost().clone();
        self.fence = Some(fence.clone());
        let counters = Arc::clone(&caller.counters);
        let (settings, halving) = (Arc::clone(&self.settings), Arc::clone(&self.halving));
        let store = Arc::clone(&self.store);
        let mut drive = Drive::new(store, caller, (settings, halving), taken, (fence, self.lease));
        async move {
            let halted = drive.run().await;
            counters.set_phase(None);
            match halted {
                Ok(()) => {}
                Err(Halt::Stop) => lease.give_back().await,
                Err(Halt::Lost) => tracing::warn!("a bulk job was lost to another worker"),
            }
        }
    }

    fn ended(&mut self, done: Result<(), JoinError>) {
        if let Err(error) = done {
            tracing::error!(%error, "a bulk job's task vanished; its lease runs out");
        }
        self.fence = None;
        self.take_at = Instant::now();
        self.plan_at = Instant::now();
        self.intake().look();
    }
}

fn rest(at_most: Duration) -> Progress {
    Progress::Idle { at_most }
}

impl Worker for BulkRelay {
    fn look(&mut self) {
        self.intake().look();
    }

    fn run_once(&mut self) -> BoxFuture<'_, Result<Progress, StoreError>> {
        Box::pin(self.pass())
    }

    fn landed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let Self { work, rows, .. } = self;
            let ended = async {
                match work.join_next().await {
                    Some(done) => done,
                    None => std::future::pending().await,
                }
            };
            let landed = async {
                match rows {
                    Rows::Auto(relay) => relay.landed().await,
                    Rows::Jobs(_) => std::future::pending().await,
                }
            };
            let done = tokio::select! {
                done = ended => done,
                () = landed => return,
            };
            self.ended(done);
        })
    }

    #[cfg(test)]
    fn under_way(&self) -> usize {
        let relay = match &self.rows {
            Rows::Auto(relay) => relay.under_way(),
            Rows::Jobs(_) => 0,
        };
        self.work.len() + relay
    }

    fn stop(&mut self, patience: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.caller.halts.stop.cancel();
            let longest = self.settings.destination.timeout + STOP_GRACE;
            let all = async { while self.work.join_next().await.is_some() {} };
            if tokio::time::timeout(patience.min(longest), all).await.is_err() {
                // What the call did is found out by whoever goes on with the job.
                self.work.shutdown().await;
                if let Some(fence) = self.fence.take()
                    && let Err(error) = self.store.release_bulk(fence).await
                {
                    tracing::warn!(%error, "a bulk job is not given back; its lease runs out");
                }
            }
            match &mut self.rows {
                Rows::Auto(relay) => relay.stop(patience).await,
                Rows::Jobs(intake) => intake.leave().await,
            }
        })
    }
}
