//! One run: messages are accepted, leased, fetched, handled and settled as the engine does it, with one
//! fault for each message.
//!
//! Invariant: a worker is a name; when it dies its leases run out, and the next one takes its lanes
//! over and counts an attempt first.

use std::{collections::BTreeSet, future::poll_fn, sync::Arc, task::Poll, time::Duration};

use relais_core::{
    handler::{HandleOutcome, Handler, HandlerWork, Outcome},
    inbox::{InboxFate, InboxRow, InboxSettlement, InboxStatus, NewInbox, decide},
    inspect::InspectExt,
    lane::{Fence, LANES, LaneRequest, OwnedLane, Scope},
    query::{Filter, PAGE_MAX},
    retry::RetryPolicy,
    store::{Fetch, RowMark, StoreDriver},
    time::Timestamp,
};

use super::{
    dump::{self, Dump},
    point::FaultPoint,
    report::{HandlerFault, NotIdempotent},
    sabotage,
};
use crate::{clock::VirtualClock, database::Database};

const LEASE: Duration = Duration::from_secs(60);
/// Most retries that a handler may ask for.
const ATTEMPTS_MAX: u32 = 20;
/// Most polls of a message before its run counts as stuck; a try takes two polls.
const LOOKS_MAX: u32 = 3 * ATTEMPTS_MAX;
/// Most requests for lanes; those in which a dying worker still holds a lock come later.
const BEATS_MAX: usize = 2_000;
const BEAT_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause that a handler may ask for before the next try.
const PAUSE_MAX: Duration = Duration::from_secs(400 * 86_400);
const ROWS_MAX: usize = 100;
/// When every message arrives.
const ARRIVAL: &str = "2026-01-01T00:00:00.000Z";

/// The occurrence of the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    FaultHappened,
    /// The handler was done before.
    PointPassed,
}

pub(super) struct FaultRun<'a> {
    database: &'a dyn Database,
    store: Arc<dyn StoreDriver>,
    handler: Arc<dyn Handler>,
    point: &'a FaultPoint,
    worker: usize,
    lanes: Vec<OwnedLane>,
    end: RunEnd,
}

impl<'a> FaultRun<'a> {
    pub(super) fn new(
        database: &'a dyn Database,
        handler: Arc<dyn Handler>,
        point: &'a FaultPoint,
    ) -> Self {
        let store = database.store();
        let end = RunEnd::PointPassed;
        Self { database, store, handler, point, worker: 0, lanes: Vec::new(), end }
    }

    pub(super) fn end(&self) -> RunEnd {
        self.end
    }

    /// Delivers one message, lets the fault happen, and continues until the message is handled.
    pub(super) async fn message(&mut self, message: &NewInbox) -> Result<(), NotIdempotent> {
        self.deliver(message).await;
        match self.point {
            FaultPoint::Clean | FaultPoint::CleanAgain => {}
            FaultPoint::DeliveredTwiceBefore => self.deliver(message).await,
            FaultPoint::DeliveredAgainAfter => {
                self.finish(message).await?;
                self.deliver(message).await;
            }
            FaultPoint::DiesBeforeTransaction => {
                self.work(message).await;
                self.next_worker().await;
            }
            FaultPoint::LosesLaneBeforeMark => self.lose_lane_before_mark(message).await?,
            FaultPoint::LosesLaneToAnother => self.lose_lane_to_another(message).await,
            FaultPoint::DiesAfterCommit => self.die_after_commit(message).await?,
            FaultPoint::WriteFails(table) => self.fail_writes(message, table).await?,
            FaultPoint::DiesInside(polls) => self.die_inside(message, *polls).await,
        }
        self.finish(message).await.map(drop)
    }

    async fn lose_lane_before_mark(&mut self, message: &NewInbox) -> Result<(), NotIdempotent> {
        let Some(work) = self.work(message).await else { return Ok(()) };
        self.next_worker().await;
        self.rolled_back(message, work).await
    }

    async fn lose_lane_to_another(&mut self, message: &NewInbox) {
        let Some(first) = self.work(message).await else { return };
        self.next_worker().await;
        let Some(second) = self.work(message).await else { return };
        let handler = Arc::clone(&self.handler);
        let (_, handled) = tokio::join!(handler.handle(first), self.handler.handle(second.clone()));
        self.settle(&second, handled).await;
    }

    async fn die_after_commit(&mut self, message: &NewInbox) -> Result<(), NotIdempotent> {
        let work = self.finish(message).await?;
        // It does not know: it does all of it again, as the next owner of its lanes does.
        if let Some(work) = work {
            self.rolled_back(message, work.clone()).await?;
            self.next_worker().await;
            self.rolled_back(message, work).await?;
        }
        self.deliver(message).await;
        Ok(())
    }

    async fn fail_writes(&mut self, message: &NewInbox, table: &str) -> Result<(), NotIdempotent> {
        let Some(work) = self.work(message).await else { return Ok(()) };
        let before = dump::read(self.database).await;
        sabotage::arm(self.database, table).await;
        let handled = self.handler.handle(work.clone()).await;
        sabotage::disarm(self.database, table).await;
        if !matches!(handled, HandleOutcome::Committed) {
            self.expect_no_trace(message, &before).await?;
        }
        self.settle(&work, handled).await;
        Ok(())
    }

    async fn die_inside(&mut self, message: &NewInbox, polls: usize) {
        let Some(work) = self.work(message).await else { return };
        let handler = Arc::clone(&self.handler);
        let mut handling = handler.handle(work.clone());
        let mut left = polls;
        let done = poll_fn(|context| {
            left -= 1;
            match handling.as_mut().poll(context) {
                Poll::Pending if left > 0 => Poll::Pending,
                Poll::Pending => Poll::Ready(None),
                Poll::Ready(handled) => Poll::Ready(Some(handled)),
            }
        });
        let done = done.await;
        drop(handling);
        match done {
            Some(handled) => self.settle(&work, handled).await,
            None => {
                self.end = RunEnd::FaultHappened;
                self.next_worker().await;
            }
        }
    }

    /// Handles a row that is not this worker's any more: nothing of it may stay.
    async fn rolled_back(
        &mut self,
        message: &NewInbox,
        work: HandlerWork,
    ) -> Result<(), NotIdempotent> {
        let before = dump::read(self.database).await;
        if matches!(self.handler.handle(work).await, HandleOutcome::Committed) {
            let fault = HandlerFault::HandledTwice { message_id: message.message_id.clone() };
            return Err(NotIdempotent::new(self.point, fault));
        }
        self.expect_no_trace(message, &before).await
    }

    async fn expect_no_trace(
        &self,
        message: &NewInbox,
        before: &Dump,
    ) -> Result<(), NotIdempotent> {
        let after = dump::read(self.database).await;
        NotIdempotent::unless_same(self.point, &message.message_id, before, &after)
    }

    /// Until the message is processed; the work that did it, if this call did.
    async fn finish(&mut self, message: &NewInbox) -> Result<Option<HandlerWork>, NotIdempotent> {
        let mut trouble = String::new();
        for _ in 0..LOOKS_MAX {
            if !self.is_open(message).await {
                return self.processed(message).await.map(|()| None);
            }
            let Some(work) = self.work(message).await else {
                // In backoff: time passes, and the worker is still there afterwards.
                VirtualClock::advance(self.database, PAUSE_MAX).await;
                self.lanes = self.lease().await;
                continue;
            };
            let handled = self.handler.handle(work.clone()).await;
            match &handled {
                HandleOutcome::Committed => return Ok(Some(work)),
                HandleOutcome::RolledBack(outcome) => trouble = said(outcome),
                HandleOutcome::Refused => trouble = "the lane was lost".to_owned(),
                HandleOutcome::Unavailable(error) | HandleOutcome::SessionLost(error) => {
                    trouble = error.to_string();
                }
            }
            self.settle(&work, handled).await;
        }
        if self.is_open(message).await {
            let message_id = message.message_id.clone();
            let fault =
                HandlerFault::NotProcessed { message_id, status: "still open".into(), trouble };
            return Err(NotIdempotent::new(self.point, fault));
        }
        self.processed(message).await.map(|()| None)
    }

    async fn processed(&self, message: &NewInbox) -> Result<(), NotIdempotent> {
        let row = self.row(message).await;
        if row.status == InboxStatus::Processed {
            return Ok(());
        }
        let texts = [row.error_code, row.error_message].into_iter().flatten();
        let fault = HandlerFault::NotProcessed {
            message_id: message.message_id.clone(),
            status: row.status.as_str().to_owned(),
            trouble: texts.collect::<Vec<_>>().join(": "),
        };
        Err(NotIdempotent::new(self.point, fault))
    }

    /// Does what the engine does after a handler returned.
    async fn settle(&mut self, work: &HandlerWork, handled: HandleOutcome) {
        let HandleOutcome::RolledBack(outcome) = handled else { return };
        let policy = RetryPolicy::default().attempts_max(ATTEMPTS_MAX);
        let Some(fate) = decide(&policy, work.row.attempts, outcome, 0.0) else { return };
        let fate = match fate {
            InboxFate::Retry { attempts, pause, problem } => {
                InboxFate::Retry { attempts, pause: pause.min(PAUSE_MAX), problem }
            }
            other => other,
        };
        let row = InboxSettlement { id: work.row.id, lane: work.row.lane, epoch: work.epoch, fate };
        self.store.settle_inbox(work.fence.clone(), vec![row]).await.expect("the store settles");
    }

    /// A source hands the message over.
    async fn deliver(&self, message: &NewInbox) {
        self.store.accept(vec![message.clone()], Vec::new()).await.expect("the store accepts");
    }

    async fn row(&self, message: &NewInbox) -> InboxRow {
        // Not by `find_inbox`: a message id may look like the number of another row.
        let filter = Filter { limit: PAGE_MAX, ..Filter::default() };
        let mut rows = self.store.list_inbox(filter).await.expect("the store lists").into_iter();
        rows.find(|row| is(row, message)).expect("the message was accepted")
    }

    async fn is_open(&self, message: &NewInbox) -> bool {
        self.row(message).await.status.is_open()
    }

    /// The message as the present worker gets it, if it is due.
    async fn work(&mut self, message: &NewInbox) -> Option<HandlerWork> {
        if self.lanes.is_empty() {
            self.lanes = self.lease().await;
        }
        let fetch = Fetch::new(Scope::Inbox, self.lanes.clone(), ROWS_MAX);
        let rows = self.store.fetch_inbox(fetch).await.expect("the store fetches");
        let mut row = rows.into_iter().find(|row| is(row, message))?;
        // Stored once and never changed, so handlers may use it; but it is another in each run.
        row.received_at = Timestamp::parse(ARRIVAL).expect("a time");
        let lane = self.lanes.iter_mut().find(|lane| lane.lane == row.lane)?;
        let (epoch, fence) = (lane.epoch, fence(self.worker));
        if std::mem::take(&mut lane.unclean) {
            let rows = vec![(row.id, *lane)];
            let noted = self.store.mark_rows(RowMark::LostWorker { fence: fence.clone(), rows });
            noted.await.expect("the store notes a loss");
        }
        Some(HandlerWork { row, fence, epoch })
    }

    /// The present worker dies; its leases run out, and another one takes its lanes.
    async fn next_worker(&mut self) {
        self.end = RunEnd::FaultHappened;
        VirtualClock::advance(self.database, LEASE * 2).await;
        self.worker += 1;
        self.lanes = self.lease().await;
    }

    async fn lease(&self) -> Vec<OwnedLane> {
        let mut unclean = BTreeSet::new();
        for _ in 0..BEATS_MAX {
            let request = LaneRequest::new(fence(self.worker), LEASE);
            let mut lanes = self.store.lease_lanes(request).await.expect("the store leases").lanes;
            unclean.extend(lanes.iter().filter(|lane| lane.unclean).map(|lane| lane.lane));
            if lanes.len() == usize::from(LANES) {
                lanes.iter_mut().for_each(|lane| lane.unclean = unclean.contains(&lane.lane));
                return lanes;
            }
            tokio::time::sleep(BEAT_PAUSE).await;
        }
        panic!("another worker holds lanes of this database: give the check one of its own");
    }
}

fn is(row: &InboxRow, message: &NewInbox) -> bool {
    (&row.source_system, &row.message_id) == (&message.source_system, &message.message_id)
}

fn fence(worker: usize) -> Fence {
    Fence { scope: Scope::Inbox, worker: format!("testkit-{worker}") }
}

fn said(outcome: &Outcome) -> String {
    let text =
        |problem: &relais_core::delivery::Problem| format!("{}: {}", problem.code, problem.message);
    outcome.problem().map(text).unwrap_or_default()
}
