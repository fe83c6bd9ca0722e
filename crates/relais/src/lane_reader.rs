//! Reads due rows of owned lanes into the key queues of a worker: bounded, in order per key.
//!
//! The first rows of a lost worker's lanes are suspects: see [`quarantine`](crate::quarantine).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use relais_core::{
    lane::OwnedLane,
    outbox::OutboxRow,
    publisher::Batching,
    quarantine::Treatment,
    store::{Fetch, KeptRows, Payloads, RowMark, Store, StoreError, StoreFuture},
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    key_queues::{KeyQueues, QueueRow, RowInFlight},
    lanes::{LaneKeeper, epochs},
    quarantine::{HELD_ROWS_MAX, LaneQuarantine},
};

/// Maximum number of rows that one worker holds.
pub(crate) const ROWS_MAX: usize = 1_000;
/// Maximum number of rows of a destination that are delivered and not settled: a crash repeats them. At this
/// number no call starts; calls in flight still add their rows.
pub(crate) const UNSETTLED_MAX: usize = 200;
/// Maximum payload bytes that one worker holds; the row that reaches the limit may exceed it.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Minimum time between two reads while rows are queued: each read returns the held rows again.
const READ_EVERY: Duration = Duration::from_millis(20);
/// Reads due rows of a scope: `Store::fetch_inbox` or `Store::fetch_outbox`.
pub(crate) type FetchRows<R> = for<'a> fn(&'a dyn Store, Fetch) -> StoreFuture<'a, Vec<R>>;

pub(crate) struct LaneReader<R> {
    store: Arc<dyn Store>,
    keeper: Arc<LaneKeeper>,
    fetch: FetchRows<R>,
    pub(crate) queues: KeyQueues<R>,
    /// The usable lanes when the queues were last checked against them; `None` after new rows.
    checked_lanes: Option<Vec<OwnedLane>>,
    /// There may be rows that were not read: a wake-up, or the last read was cut by its limit.
    read_wanted: bool,
    /// A wake-up came since the last read began.
    woken: bool,
    read_at: Option<Instant>,
    quarantine: LaneQuarantine,
    heartbeat: Option<(JoinHandle<()>, CancellationToken)>,
}

impl LaneReader<OutboxRow> {
    /// Returns a reader of one destination's part of the outbox.
    pub(crate) fn of_outbox(store: Arc<dyn Store>, keeper: LaneKeeper) -> Self {
        Self::new(store, keeper, |s, fetch| s.fetch_outbox(fetch))
    }
}

impl<R: QueueRow> LaneReader<R> {
    pub(crate) fn new(store: Arc<dyn Store>, keeper: LaneKeeper, fetch: FetchRows<R>) -> Self {
        Self {
            store,
            keeper: Arc::new(keeper),
            fetch,
            queues: KeyQueues::new(),
            checked_lanes: None,
            read_wanted: true,
            woken: false,
            read_at: None,
            quarantine: LaneQuarantine::default(),
            heartbeat: None,
        }
    }

    pub(crate) fn keeper(&self) -> &LaneKeeper {
        &self.keeper
    }

    /// Starts the heartbeat; without it, the caller beats.
    pub(crate) fn start_heartbeat(&mut self, crowd: watch::Receiver<u64>) {
        let stop = CancellationToken::new();
        self.heartbeat = Some((self.keeper.spawn(crowd, stop.clone()), stop));
    }

    #[cfg(test)]
    pub(crate) fn kill_heartbeat(&self) {
        let (task, _) = self.heartbeat.as_ref().expect("it was started");
        task.abort();
    }

    /// Reads more rows if there is room; returns the number of new rows.
    pub(crate) async fn top_up(&mut self) -> Result<usize, StoreError> {
        let Some(fetch) = self.plan() else { return Ok(0) };
        let rows = (self.fetch)(self.store.as_ref(), fetch.clone()).await;
        self.receive(&fetch, rows).await
    }

    /// Returns what to read now; `None` if nothing should be read. Rows may start and be settled until
    /// [`LaneReader::receive`] gets the result.
    pub(crate) fn plan(&mut self) -> Option<Fetch> {
        let lanes = self.usable();
        let lanes = self.keeper.readable(lanes);
        let Self { queues, quarantine, .. } = self;
        self.keeper.report_empty(|lane| !queues.uses(lane) && !quarantine.contains(lane));
        self.keeper.report_left(|lane| !queues.uses(lane));
        let (wanted, held) = if self.quarantine.is_active() || self.keeper.has_unclean(&lanes) {
            (HELD_ROWS_MAX, self.queues.held())
        } else {
            (ROWS_MAX, self.queues.queued())
        };
        let room = wanted.saturating_sub(held);
        if !self.read_wanted || lanes.is_empty() || room == 0 || room * 2 < wanted {
            return None;
        }
        let bytes = BYTES_MAX.saturating_sub(self.queues.bytes());
        if bytes == 0 || self.queues.queued() > 0 && bytes < BYTES_MAX / 2 {
            return None;
        }
        if self.queues.queued() > 0 && self.read_at.is_some_and(|at| at.elapsed() < READ_EVERY) {
            return None;
        }
        self.read_at = Some(Instant::now());
        self.woken = false;
        self.queues.begin_read();
        self.quarantine.begin_read();
        Some(Fetch {
            scope: self.keeper.fence().scope.clone(),
            lanes,
            skip_keys: self.queues.full_keys(),
            skip_ids: self.queues.ids(),
            limit: room,
            payloads: Payloads::UpTo(bytes),
            kept: if std::mem::take(&mut self.queues.has_given_back) {
                KeptRows::FromNow
            } else {
                KeptRows::All
            },
        })
    }

    /// Queues the rows of a [`LaneReader::plan`]; returns their number. Rows of void keys stay in the store:
    /// an earlier row of the key failed or was dropped.
    pub(crate) async fn receive(
        &mut self,
        fetch: &Fetch,
        rows: Result<Vec<R>, StoreError>,
    ) -> Result<usize, StoreError> {
        // Until the end is reached there may be more.
        self.read_wanted = true;
        let rows = rows.inspect_err(|_| self.queues.has_given_back = true)?;
        let bytes: usize = rows.iter().map(QueueRow::bytes).sum();
        let bytes_max = fetch.payloads.bytes().unwrap_or(usize::MAX);
        let cut = rows.len() >= fetch.limit || bytes >= bytes_max;
        let entries = self.with_lanes(rows, &fetch.lanes);
        let (mut entries, unknown) = self.split_unknown(entries);
        let freed = self.assess(&mut entries, &fetch.lanes, cut).await;
        let freed = freed.inspect_err(|_| self.queues.has_given_back = true)?;
        entries.extend(unknown);
        entries.sort_unstable_by_key(|entry| entry.row.id());
        self.read_wanted = self.woken || cut || freed || !fetch.skip_keys.is_empty();
        self.checked_lanes = None;
        let mut new = 0;
        for entry in entries {
            if self.queues.is_void(entry.row.key()) || self.queues.is_full(entry.row.key()) {
                // It stays in the store, behind the earlier rows of its key.
                self.queues.has_given_back = true;
                self.read_wanted = true;
            } else {
                self.queues.offer(entry);
                crate::fail_point!("fetch.after_row");
                new += 1;
            }
        }
        Ok(new)
    }

    /// Makes the next [`LaneReader::top_up`] read the store.
    pub(crate) fn request_read(&mut self) {
        (self.read_wanted, self.woken) = (true, true);
    }

    /// Returns the longest rest before the next pass: short while a wanted read is postponed.
    pub(crate) fn rest(&self, rest: Duration) -> Duration {
        if self.read_wanted && self.queues.queued() > 0 { rest.min(READ_EVERY) } else { rest }
    }

    /// Returns the next rows to start, only of lanes whose lease is valid.
    pub(crate) fn take(&mut self, batching: Batching) -> Vec<RowInFlight<R>> {
        self.drop_lost_lanes();
        self.queues.take(batching)
    }

    /// Drops queued rows of lanes whose lease may have expired.
    pub(crate) fn drop_lost_lanes(&mut self) {
        self.usable();
    }

    /// Returns the lanes whose lease is valid, and drops queued rows of others. Checks the queues only if
    /// something changed: rows may be taken one by one, thousands per second.
    fn usable(&mut self) -> Vec<OwnedLane> {
        // A worker without a heartbeat would stay without lanes indefinitely: it panics instead.
        let ended = self.heartbeat.as_ref().is_some_and(|(task, _)| task.is_finished());
        assert!(!ended, "the heartbeat of {} has ended", self.keeper.fence().scope);
        let lanes = self.keeper.usable();
        if self.checked_lanes.as_ref() != Some(&lanes) {
            let owned = epochs(&lanes);
            let is_lost = |lane: OwnedLane| owned.get(&lane.lane) != Some(&lane.epoch);
            let suspects = self.queues.queued_suspects().filter(|(_, lane)| is_lost(*lane));
            self.quarantine.remember_dropped(suspects);
            self.queues.keep_only(&owned);
            self.checked_lanes = Some(lanes.clone());
        }
        lanes
    }

    /// Notes the loss of another worker on the rows that need it, before they are sent; returns `false` if
    /// a lane is lost.
    pub(crate) async fn note_losses<'e>(
        &mut self,
        entries: impl Iterator<Item = &'e RowInFlight<R>>,
    ) -> Result<bool, StoreError> {
        let noted: Vec<_> = entries.filter(|entry| entry.is_noted()).collect();
        if noted.is_empty() {
            return Ok(true);
        }
        let rows: Vec<_> = noted.iter().map(|entry| (entry.row.id(), entry.lane)).collect();
        let suspects = noted.iter().filter(|entry| entry.is_suspect());
        let suspects = suspects.map(|entry| (entry.row.id(), entry.lane));
        let fence = self.keeper.fence().clone();
        let mark = RowMark::LostWorker { fence, rows: rows.clone() };
        let marked = self.store.mark_rows(mark).await.map(|marked| marked.refused == 0);
        crate::fail_point!("fetch.after_note");
        match marked {
            Ok(true) => self.quarantine.remember_noted(rows.iter().map(|(id, _)| *id).collect()),
            // They are not sent now, and read again.
            _ => self.quarantine.remember_dropped(suspects),
        }
        if let Ok(false) = marked {
            self.keeper.distrust();
        }
        marked
    }

    /// Plans to give a lane to a live worker that knows the event type; returns `false` if there is none.
    pub(crate) fn hand_over(&mut self, lane: i16, event_type: &str) -> bool {
        let planned = self.keeper.hand_over(lane, event_type);
        if planned && self.quarantine.remove(lane) {
            self.keeper.pass_on_unclean(lane);
        }
        planned
    }

    /// Splits off rows of types that this worker does not know. It will not handle them, so they are no
    /// suspects here: the worker that gets their lane treats it as the lane of a lost worker.
    fn split_unknown(
        &self,
        entries: Vec<RowInFlight<R>>,
    ) -> (Vec<RowInFlight<R>>, Vec<RowInFlight<R>>) {
        let (known, unknown): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| self.keeper.knows(entry.row.event_type()));
        for entry in &unknown {
            let lane = entry.lane.lane;
            if self.quarantine.contains(lane) || self.keeper.has_unclean(&[entry.lane]) {
                self.keeper.pass_on_unclean(lane);
            }
        }
        (known, unknown)
    }

    /// Drops every queued row; rows in flight stay.
    pub(crate) fn drop_queued(&mut self) {
        self.quarantine.remember_dropped(self.queues.queued_suspects());
        self.queues.drop_queued();
    }

    /// Stops the heartbeat and releases the lanes, except those with rows in flight.
    pub(crate) async fn leave(&mut self) {
        self.drop_queued();
        if let Some((task, stop)) = self.heartbeat.take() {
            stop.cancel();
            // The task ends after its current beat; a panic in it has been reported already.
            let _ = task.await;
        }
        let Self { queues, quarantine, .. } = self;
        self.keeper.leave(|lane| queues.uses(lane) || quarantine.contains(lane)).await;
    }

    fn with_lanes(&self, rows: Vec<R>, lanes: &[OwnedLane]) -> Vec<RowInFlight<R>> {
        let known = |lane: i16| lanes.iter().find(|l| l.lane == lane).copied();
        let new = rows.into_iter().filter(|row| !self.queues.holds(row.id()));
        new.filter_map(|row| {
            Some(RowInFlight { lane: known(row.lane())?, row, treatment: Treatment::Send })
        })
        .collect()
    }

    /// Quarantines the unclean lanes among these, and frees their held rows: the loss of another worker
    /// proves them innocent. Returns `true` if there were such lanes.
    pub(crate) async fn free_held_rows(&mut self, lanes: &[OwnedLane]) -> Result<bool, StoreError> {
        let unclean = self.keeper.take_unclean(lanes);
        if unclean.is_empty() {
            return Ok(false);
        }
        let lost = lanes.iter().filter(|lane| unclean.contains(&lane.lane)).copied().collect();
        self.quarantine.begin(unclean, ROWS_MAX + UNSETTLED_MAX);
        self.read_wanted = true;
        let fence = self.keeper.fence().clone();
        self.store.mark_rows(RowMark::EndQuarantine { fence, lanes: lost }).await?;
        Ok(true)
    }

    /// Ends the quarantine of all lanes: no row of theirs can have been in flight.
    pub(crate) fn end_quarantine(&mut self) {
        self.quarantine.end();
    }

    /// Decides how each row is treated. Returns `true` if there were lanes of a lost worker.
    async fn assess(
        &mut self,
        entries: &mut [RowInFlight<R>],
        lanes: &[OwnedLane],
        cut: bool,
    ) -> Result<bool, StoreError> {
        let freed = self.free_held_rows(lanes).await?;
        for entry in entries.iter_mut() {
            entry.treatment = self.quarantine.treatment(entry.lane, &entry.row);
        }
        self.quarantine.count_read(entries.len(), cut);
        Ok(freed)
    }
}

/// A worker that is dropped without [`LaneReader::leave`] counts as lost: no more heartbeats.
impl<R> Drop for LaneReader<R> {
    fn drop(&mut self) {
        if let Some((_, stop)) = &self.heartbeat {
            stop.cancel();
        }
    }
}
