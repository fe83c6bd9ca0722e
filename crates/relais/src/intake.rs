//! Reads rows of owned lanes into a worker's hands: bounded, in order per key, with care after the loss of
//! another worker.
//!
//! The first rows read from the lanes of a lost worker may have been in flight when it was lost. What is
//! done with each of them is decided by [`treatment`].

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    lane::OwnedLane,
    outbox::OutboxRow,
    publisher::Batching,
    quarantine::{Read, Treatment, treatment},
    store::{Fetch, Store, StoreError, StoreFuture},
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    flight::{Flight, Job, Row},
    lanes::{LaneKeeper, epochs},
};

/// Most rows in one worker's hands.
pub(crate) const ROWS_MAX: usize = 1_000;
/// Most payload bytes in one worker's hands; the row that reaches them may go beyond.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most rows in hand while caution lasts: so many may be noted at the next loss.
const ROWS_CAUTIOUS: usize = 64;
/// While rows are queued here, the store is not read more often than this: each read brings the rows
/// in our hands again.
const READ_EVERY: Duration = Duration::from_millis(20);
/// Reads due rows of a scope: `Store::fetch_inbox` or `Store::fetch_outbox`.
pub(crate) type FetchRows<R> = for<'a> fn(&'a dyn Store, Fetch) -> StoreFuture<'a, Vec<R>>;

pub(crate) struct Intake<R> {
    store: Arc<dyn Store>,
    keeper: Arc<LaneKeeper>,
    fetch: FetchRows<R>,
    pub(crate) flight: Flight<R>,
    /// The lanes that everything queued here is of, unless rows came since.
    kept: Option<Vec<OwnedLane>>,
    /// There may be rows we have not read: somebody said so, or the last read was cut by its limit.
    look: bool,
    read_at: Option<Instant>,
    /// Lanes whose rows are still read with caution, and for how many rows more.
    cautious: BTreeSet<i16>,
    caution_left: usize,
    /// Rows on which this worker has noted the loss while caution lasts: once is enough.
    noted: HashSet<i64>,
    heartbeat: Option<(JoinHandle<()>, CancellationToken)>,
}

impl Intake<OutboxRow> {
    /// Of one destination's part of the outbox.
    pub(crate) fn of_outbox(store: Arc<dyn Store>, keeper: LaneKeeper) -> Self {
        Self::new(store, keeper, |s, fetch| s.fetch_outbox(fetch))
    }
}

impl<R: Row> Intake<R> {
    pub(crate) fn new(store: Arc<dyn Store>, keeper: LaneKeeper, fetch: FetchRows<R>) -> Self {
        Self {
            store,
            keeper: Arc::new(keeper),
            fetch,
            flight: Flight::new(),
            kept: None,
            look: true,
            read_at: None,
            cautious: BTreeSet::new(),
            caution_left: 0,
            noted: HashSet::new(),
            heartbeat: None,
        }
    }

    pub(crate) fn keeper(&self) -> &LaneKeeper {
        &self.keeper
    }

    /// Starts the heartbeat; without it, beats are the caller's.
    pub(crate) fn start_heartbeat(&mut self, crowd: watch::Receiver<u64>) {
        let stop = CancellationToken::new();
        self.heartbeat = Some((self.keeper.spawn(crowd, stop.clone()), stop));
    }

    #[cfg(test)]
    pub(crate) fn kill_heartbeat(&self) {
        let (task, _) = self.heartbeat.as_ref().expect("it was started");
        task.abort();
    }

    /// Reads more rows if there is room; how many are new.
    pub(crate) async fn top_up(&mut self) -> Result<usize, StoreError> {
        let Some(fetch) = self.plan() else { return Ok(0) };
        let rows = (self.fetch)(self.store.as_ref(), fetch.clone()).await;
        self.receive(&fetch, rows, &HashSet::new()).await
    }

    /// What to read now, if anything.
    pub(crate) fn plan(&mut self) -> Option<Fetch> {
        let lanes = self.usable();
        let lanes = self.keeper.readable(lanes);
        let Self { flight, cautious, .. } = self;
        self.keeper.report_empty(|lane| !flight.uses(lane) && !cautious.contains(&lane));
        self.keeper.report_left(|lane| !flight.uses(lane));
        let (wanted, held) = if self.cautious.is_empty() && !self.keeper.has_unclean(&lanes) {
            (ROWS_MAX, self.flight.queued())
        } else {
            (ROWS_CAUTIOUS, self.flight.held())
        };
        let room = wanted.saturating_sub(held);
        if !self.look || lanes.is_empty() || room == 0 || room * 2 < wanted {
            return None;
        }
        let bytes = BYTES_MAX.saturating_sub(self.flight.bytes());
        if bytes == 0 || self.flight.queued() > 0 && bytes < BYTES_MAX / 2 {
            return None;
        }
        if self.flight.queued() > 0 && self.read_at.is_some_and(|at| at.elapsed() < READ_EVERY) {
            return None;
        }
        self.read_at = Some(Instant::now());
        Some(Fetch {
            scope: self.keeper.fence().scope.clone(),
            lanes,
            skip_keys: self.flight.full_keys(),
            skip_ids: self.flight.ids(),
            limit: room,
            bytes,
        })
    }

    /// Takes the rows of a [`Intake::plan`] into our hands; how many. Rows of `forgotten` keys stay in
    /// the store: an earlier row of theirs was being settled as not delivered during the read.
    pub(crate) async fn receive(
        &mut self,
        fetch: &Fetch,
        rows: Result<Vec<R>, StoreError>,
        forgotten: &HashSet<String>,
    ) -> Result<usize, StoreError> {
        // Until the end is reached there may be more.
        self.look = true;
        let rows = rows?;
        let bytes: usize = rows.iter().map(Row::bytes).sum();
        let cut = rows.len() >= fetch.limit || bytes >= fetch.bytes;
        let jobs = self.jobs(rows, &fetch.lanes);
        let (mut jobs, unknown) = self.part_unknown(jobs);
        let freed = self.assess(&mut jobs, &fetch.lanes, cut).await?;
        jobs.extend(unknown);
        jobs.sort_unstable_by_key(|job| job.row.id());
        self.look = cut || freed || !fetch.skip_keys.is_empty();
        self.kept = None;
        let mut new = 0;
        for job in jobs {
            if forgotten.contains(job.row.key()) || self.flight.is_full(job.row.key()) {
                // It stays in the store, behind what comes before it in its key.
                self.look = true;
            } else {
                self.flight.offer(job);
                relais_store::fail_point!("fetch.after_row");
                new += 1;
            }
        }
        Ok(new)
    }

    /// The next [`Intake::top_up`] should read.
    pub(crate) fn look(&mut self) {
        self.look = true;
    }

    /// The longest rest before the next pass: short while a wanted read was put off.
    pub(crate) fn rest(&self, rest: Duration) -> Duration {
        if self.look && self.flight.queued() > 0 { rest.min(READ_EVERY) } else { rest }
    }

    /// The next rows to start, but only while their lanes are surely ours.
    pub(crate) fn take(&mut self, batching: Batching) -> Vec<Job<R>> {
        self.usable();
        self.flight.take(batching)
    }

    /// The lanes that are surely ours; rows queued under others leave our hands. Looks through the queue
    /// only if something changed: rows may be taken one by one, thousands in a second.
    fn usable(&mut self) -> Vec<OwnedLane> {
        // Without it this worker would sit there without lanes for ever: it ends too, loudly.
        let ended = self.heartbeat.as_ref().is_some_and(|(task, _)| task.is_finished());
        assert!(!ended, "the heartbeat of {} has ended", self.keeper.fence().scope);
        let lanes = self.keeper.usable();
        if self.kept.as_ref() != Some(&lanes) {
            self.flight.keep_only(&epochs(&lanes));
            self.kept = Some(lanes.clone());
        }
        lanes
    }

    /// Notes the loss of another worker on those of these rows that need it, before they are sent; `false`
    /// if a lane is lost.
    pub(crate) async fn note_losses<'j>(
        &mut self,
        jobs: impl Iterator<Item = &'j Job<R>>,
    ) -> Result<bool, StoreError> {
        let rows: Vec<_> =
            jobs.filter(|job| job.is_noted()).map(|job| (job.row.id(), job.lane)).collect();
        if rows.is_empty() {
            return Ok(true);
        }
        let ids: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
        let noted = self.store.note_loss(self.keeper.fence().clone(), rows).await?;
        relais_store::fail_point!("fetch.after_note");
        if noted.refused > 0 {
            self.keeper.distrust();
        } else if !self.cautious.is_empty() {
            self.noted.extend(ids);
        }
        Ok(noted.refused == 0)
    }

    /// Gives a lane to a live worker that knows the event type; `false` if there is none.
    pub(crate) fn hand_over(&mut self, lane: i16, event_type: &str) -> bool {
        let planned = self.keeper.hand_over(lane, event_type);
        if planned && self.cautious.remove(&lane) {
            self.keeper.pass_on_unclean(lane);
        }
        planned
    }

    /// Parts off rows of types that this worker does not know. It will not work on them, so they are no
    /// suspects here: the worker that is handed their lane treats it as that of a lost worker.
    fn part_unknown(&self, jobs: Vec<Job<R>>) -> (Vec<Job<R>>, Vec<Job<R>>) {
        let (known, unknown): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| self.keeper.knows(job.row.event_type()));
        for job in &unknown {
            let lane = job.lane.lane;
            if self.cautious.contains(&lane) || self.keeper.has_unclean(&[job.lane]) {
                self.keeper.pass_on_unclean(lane);
            }
        }
        (known, unknown)
    }

    /// Ends the heartbeat and gives lanes back, except those with rows under way.
    pub(crate) async fn leave(&mut self) {
        self.flight.drop_queued();
        if let Some((task, stop)) = self.heartbeat.take() {
            stop.cancel();
            // The task ends after its current beat; a panic in it has been reported already.
            let _ = task.await;
        }
        self.keeper.leave(|lane| self.flight.uses(lane) || self.cautious.contains(&lane)).await;
    }

    /// Reads with caution those of these lanes that were taken over from a lost worker, and lets their rows in
    /// quarantine go again; `true` if there were such lanes.
    pub(crate) async fn acquit(&mut self, lanes: &[OwnedLane]) -> Result<bool, StoreError> {
        let taken = self.keeper.take_unclean(lanes);
        if taken.is_empty() {
            return Ok(false);
        }
        let lost = lanes.iter().filter(|lane| taken.contains(&lane.lane)).copied().collect();
        self.cautious.extend(taken);
        self.caution_left = ROWS_MAX;
        self.noted.clear();
        self.look = true;
        self.store.end_quarantine(self.keeper.fence().clone(), lost).await?;
        Ok(true)
    }

    /// Reads no lane with caution any more.
    pub(crate) fn end_caution(&mut self) {
        self.cautious.clear();
        self.noted.clear();
    }

    fn jobs(&self, rows: Vec<R>, lanes: &[OwnedLane]) -> Vec<Job<R>> {
        let known = |lane: i16| lanes.iter().find(|l| l.lane == lane).copied();
        let new = rows.into_iter().filter(|row| !self.flight.holds(row.id()));
        new.filter_map(|row| {
            Some(Job { lane: known(row.lane())?, row, treatment: Treatment::Send })
        })
        .collect()
    }

    /// Decides how each row is treated, and lets rows go again that other lost workers acquit; `true` if
    /// there were lanes of a lost worker.
    async fn assess(
        &mut self,
        jobs: &mut [Job<R>],
        lanes: &[OwnedLane],
        cut: bool,
    ) -> Result<bool, StoreError> {
        let freed = self.acquit(lanes).await?;
        for job in jobs.iter_mut() {
            let first =
                self.cautious.contains(&job.lane.lane) && !self.noted.contains(&job.row.id());
            let read = if first { Read::AfterLoss } else { Read::Usual };
            job.treatment = treatment(job.row.lost_workers(), read);
        }
        if !self.cautious.is_empty() {
            self.caution_left = self.caution_left.saturating_sub(jobs.len());
            if !cut || self.caution_left == 0 {
                self.end_caution();
            }
        }
        Ok(freed)
    }
}

/// A worker that is dropped without [`Intake::leave`] is as good as dead: no more heartbeats.
impl<R> Drop for Intake<R> {
    fn drop(&mut self) {
        if let Some((_, stop)) = &self.heartbeat {
            stop.cancel();
        }
    }
}
