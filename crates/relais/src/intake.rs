//! Reads rows of owned lanes into a worker's hands: bounded, in order per key, with caution after an
//! unclean take-over.
//!
//! Caution: rows that may have been under way when their last owner died are counted as tried before
//! they are worked on. A row that has been through that twice is a suspect: it goes with few others, with
//! fewer each time and alone in the end, so that a message that kills its worker ends as a dead letter
//! and takes no neighbour along.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    lane::OwnedLane,
    outbox::OutboxRow,
    publisher::Batching,
    retry::RetryPolicy,
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
/// Most payload bytes in one worker's hands, by the average of the last read.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// Rows of the first read, before sizes are known.
const ROWS_FIRST: usize = 100;
/// Most rows in hand while caution lasts: what a crash makes suspect, it makes slow.
const ROWS_CAUTIOUS: usize = 64;
/// While rows are queued here, the store is not read more often than this: each read brings the rows
/// in our hands again.
const READ_EVERY: Duration = Duration::from_millis(20);
/// From this many attempts on, a row found after an unclean take-over is a suspect.
const SUSPECT_FROM: u32 = 2;
/// How many suspects go together the first time; half of them each time after that.
const COMPANY_FIRST: usize = 16;
/// So many attempts before its last, a suspect goes alone: who is innocent is delivered then.
const ALONE_ATTEMPTS: u32 = 2;

/// Reads due rows of a scope: `Store::fetch_inbox` or `Store::fetch_outbox`.
pub(crate) type FetchRows<R> = for<'a> fn(&'a dyn Store, Fetch) -> StoreFuture<'a, Vec<R>>;

pub(crate) struct Intake<R> {
    store: Arc<dyn Store>,
    keeper: Arc<LaneKeeper>,
    fetch: FetchRows<R>,
    /// The attempts a row has.
    attempts_max: u32,
    pub(crate) flight: Flight<R>,
    /// The lanes that everything queued here is of, unless rows came since.
    kept: Option<Vec<OwnedLane>>,
    rows_wanted: usize,
    /// There may be rows we have not read: somebody said so, or the last read was cut by its limit.
    look: bool,
    read_at: Option<Instant>,
    /// Lanes whose rows are still read with caution, and for how many rows more.
    cautious: BTreeSet<i16>,
    caution_left: usize,
    heartbeat: Option<(JoinHandle<()>, CancellationToken)>,
}

impl Intake<OutboxRow> {
    /// Of one destination's part of the outbox.
    pub(crate) fn of_outbox(
        store: Arc<dyn Store>,
        keeper: LaneKeeper,
        retry: &RetryPolicy,
    ) -> Self {
        Self::new(store, keeper, |s, fetch| s.fetch_outbox(fetch), retry.attempts_max)
    }
}

impl<R: Row> Intake<R> {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keeper: LaneKeeper,
        fetch: FetchRows<R>,
        attempts_max: u32,
    ) -> Self {
        Self {
            store,
            keeper: Arc::new(keeper),
            fetch,
            attempts_max,
            flight: Flight::new(),
            kept: None,
            rows_wanted: ROWS_FIRST,
            look: true,
            read_at: None,
            cautious: BTreeSet::new(),
            caution_left: 0,
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
            (self.rows_wanted, self.flight.queued())
        } else {
            (self.rows_wanted.min(ROWS_CAUTIOUS), self.flight.held())
        };
        let room = wanted.saturating_sub(held);
        if !self.look || lanes.is_empty() || room == 0 || room * 2 < wanted {
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
        let cut = rows.len() >= fetch.limit;
        self.learn_sizes(&rows);
        let jobs = self.jobs(rows, &fetch.lanes);
        let (mut jobs, unknown) = self.part_unknown(jobs);
        self.be_cautious(&mut jobs, &fetch.lanes, cut).await?;
        jobs.extend(unknown);
        jobs.sort_unstable_by_key(|job| job.row.id());
        self.look = cut || !fetch.skip_keys.is_empty();
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

    /// Counts an attempt of suspects before they are worked on; `false` if a lane is lost.
    pub(crate) async fn count_suspects(&self, jobs: &[Job<R>]) -> Result<bool, StoreError> {
        let rows = jobs.iter().map(|job| (job.row.id(), job.lane)).collect();
        let counted = self.store.count_attempt(self.keeper.fence().clone(), rows).await?;
        if counted.refused > 0 {
            self.keeper.distrust();
        }
        Ok(counted.refused == 0)
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
    /// suspects here: whoever is handed their lane treats it as that of a lost worker.
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

    fn learn_sizes(&mut self, rows: &[R]) {
        let bytes: usize = rows.iter().map(Row::bytes).sum();
        if let Some(average) = bytes.checked_div(rows.len()) {
            self.rows_wanted = (BYTES_MAX / average.max(1)).clamp(1, ROWS_MAX);
        }
    }

    fn jobs(&self, rows: Vec<R>, lanes: &[OwnedLane]) -> Vec<Job<R>> {
        let known = |lane: i16| lanes.iter().find(|l| l.lane == lane).copied();
        let new = rows.into_iter().filter(|row| !self.flight.holds(row.id()));
        new.filter_map(|row| {
            Some(Job { lane: known(row.lane())?, row, suspect: None, counted: false })
        })
        .collect()
    }

    async fn be_cautious(
        &mut self,
        jobs: &mut Vec<Job<R>>,
        lanes: &[OwnedLane],
        cut: bool,
    ) -> Result<(), StoreError> {
        let taken = self.keeper.take_unclean(lanes);
        if !taken.is_empty() {
            self.cautious.extend(taken);
            self.caution_left = ROWS_MAX;
        }
        if self.cautious.is_empty() {
            return Ok(());
        }
        let mut counted = Vec::new();
        for job in jobs.iter_mut().filter(|job| self.cautious.contains(&job.lane.lane)) {
            job.suspect = company(job.row.attempts(), self.attempts_max);
            job.counted = true;
            if job.suspect.is_none() {
                counted.push((job.row.id(), job.lane));
            }
        }
        if !counted.is_empty() {
            let fence = self.keeper.fence().clone();
            let settled = self.store.count_attempt(fence, counted).await?;
            relais_store::fail_point!("fetch.after_count");
            if settled.refused > 0 {
                // Somebody else owns one of the lanes by now; what we read is not ours to work on.
                jobs.retain(|job| !self.cautious.contains(&job.lane.lane));
                self.keeper.distrust();
                return Ok(());
            }
        }
        self.caution_left = self.caution_left.saturating_sub(jobs.len());
        if !cut || self.caution_left == 0 {
            self.cautious.clear();
        }
        Ok(())
    }
}

/// How many suspects may go with a row of so many attempts, itself included; none if it is no suspect.
fn company(attempts: u32, attempts_max: u32) -> Option<usize> {
    let times = attempts.checked_sub(SUSPECT_FROM)?;
    let alone = attempts.saturating_add(ALONE_ATTEMPTS) >= attempts_max;
    Some(if alone { 1 } else { COMPANY_FIRST.checked_shr(times).unwrap_or(0).max(1) })
}

/// A worker that is dropped without [`Intake::leave`] is as good as dead: no more heartbeats.
impl<R> Drop for Intake<R> {
    fn drop(&mut self) {
        if let Some((_, stop)) = &self.heartbeat {
            stop.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspects_go_with_fewer_each_time_and_alone_in_the_end() {
        let companies =
            |attempts_max| (0..9).map(move |n| company(n, attempts_max)).collect::<Vec<_>>();
        let many = [None, None, Some(16), Some(8), Some(4), Some(2), Some(1), Some(1), Some(1)];
        assert_eq!(companies(400), many);
        assert_eq!(companies(5)[..5], [None, None, Some(16), Some(1), Some(1)]);
        assert_eq!(companies(3)[..3], [None, None, Some(1)]);
        assert_eq!(company(u32::MAX, u32::MAX), Some(1));
    }
}
