//! A worker as the store sees it: a name, a scope, and the lanes it believes to hold.

use std::{sync::Arc, time::Duration};

use relais_core::{
    inbox::{InboxFate, InboxRow, InboxSettlement},
    lane::{Fence, LaneRelease, LaneRequest, LeaseRenewal, OwnedLane, Scope, ScopeAnnouncement},
    outbox::{OutboxFate, OutboxRow, OutboxSettlement},
    process::Change,
    quarantine::{HOLD_AFTER, HOLD_FOR},
    store::{Fetch, Payloads, SettleOutcome, StoreDriver},
};

use crate::{build::problem, fixture::Fixture};

/// Long enough that no lease runs out by itself in a test.
pub(super) const LEASE: Duration = Duration::from_secs(600);
/// More rows than any of the small checks has.
pub(super) const MANY: usize = 5_000;

/// Payloads of any size.
pub(super) const EVERY: Payloads = Payloads::UpTo(usize::MAX);

/// The lanes of a worker, as of its last heartbeat.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) store: Arc<dyn StoreDriver>,
    pub(super) fence: Fence,
    pub(super) lanes: Vec<OwnedLane>,
    pub(super) surplus: usize,
    pub(super) term: i64,
    pub(super) unsettled: bool,
}

impl Worker {
    /// A worker of the first node for one destination, after its first heartbeat.
    pub(super) async fn outbox(f: &dyn Fixture, destination: &str, name: &str) -> Self {
        Self::start(f.store(), Scope::Outbox(destination.to_owned()), name).await
    }

    /// A worker of the first node for the inbox, after its first heartbeat.
    pub(super) async fn inbox(f: &dyn Fixture, name: &str) -> Self {
        Self::start(f.store(), Scope::Inbox, name).await
    }

    pub(super) async fn start(store: Arc<dyn StoreDriver>, scope: Scope, name: &str) -> Self {
        let fence = Fence { scope, worker: name.to_owned() };
        let (lanes, surplus, term, unsettled) = (Vec::new(), 0, 0, false);
        let mut worker = Self { store, fence, lanes, surplus, term, unsettled };
        worker.heartbeat().await;
        worker
    }

    /// Renews its lease and asks for no lanes; returns the term.
    pub(super) async fn renew(&self) -> i64 {
        self.announce(Vec::new()).await
    }

    /// Renews its lease and announces scopes; returns the term.
    pub(super) async fn announce(&self, announce: Vec<ScopeAnnouncement>) -> i64 {
        let renewal = LeaseRenewal { worker: self.fence.worker.clone(), lease: LEASE, announce };
        self.store.renew_lease(renewal).await.expect("renew the lease")
    }

    pub(super) async fn heartbeat(&mut self) {
        let request = LaneRequest::new(self.fence.clone(), LEASE);
        let grant = self.store.lease_lanes(request).await.expect("lease lanes");
        self.lanes = grant.lanes;
        self.surplus = grant.surplus;
        (self.term, self.unsettled) = (grant.term, grant.unsettled);
    }

    /// Releases this many of its lanes, the last ones.
    pub(super) async fn release(&mut self, count: usize) {
        let kept = self.lanes.len().saturating_sub(count);
        let lanes = self.lanes.split_off(kept).into_iter().map(|l| l.lane).collect();
        self.store
            .release_lanes(self.fence.clone(), LaneRelease::Lanes(lanes))
            .await
            .expect("release");
    }

    /// Gives everything back and leaves the scope.
    pub(super) async fn leave(&mut self) {
        self.lanes.clear();
        self.store.release_lanes(self.fence.clone(), LaneRelease::All).await.expect("leave");
    }

    pub(super) fn fetch(&self, limit: usize) -> Fetch {
        Fetch::new(self.fence.scope.clone(), self.lanes.clone(), limit)
    }

    /// Outbox rows this worker may work on now.
    pub(super) async fn pending(&self, limit: usize) -> Vec<OutboxRow> {
        self.store.fetch_outbox(self.fetch(limit)).await.expect("fetch outbox")
    }

    /// Inbox rows this worker may work on now.
    pub(super) async fn received(&self, limit: usize) -> Vec<InboxRow> {
        self.store.fetch_inbox(self.fetch(limit)).await.expect("fetch inbox")
    }

    /// The same without the rows of these keys.
    pub(super) async fn pending_without(&self, keys: &[&str]) -> Vec<OutboxRow> {
        let skip_keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let fetch = Fetch { skip_keys, ..self.fetch(MANY) };
        self.store.fetch_outbox(fetch).await.expect("fetch outbox")
    }

    pub(super) async fn received_without(&self, keys: &[&str]) -> Vec<InboxRow> {
        let skip_keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let fetch = Fetch { skip_keys, ..self.fetch(MANY) };
        self.store.fetch_inbox(fetch).await.expect("fetch inbox")
    }

    pub(super) async fn pending_ids(&self) -> Vec<i64> {
        self.pending(MANY).await.into_iter().map(|row| row.id).collect()
    }

    pub(super) async fn received_ids(&self) -> Vec<String> {
        self.received(MANY).await.into_iter().map(|row| row.message_id).collect()
    }

    /// The epoch this worker believes the lane has.
    pub(super) fn epoch(&self, lane: i16) -> i64 {
        self.lanes.iter().find(|l| l.lane == lane).map_or(0, |l| l.epoch)
    }

    pub(super) fn outbox_fate(&self, row: &OutboxRow, fate: OutboxFate) -> OutboxSettlement {
        OutboxSettlement { id: row.id, lane: row.lane, epoch: self.epoch(row.lane), fate }
    }

    pub(super) fn inbox_fate(&self, row: &InboxRow, fate: InboxFate) -> InboxSettlement {
        InboxSettlement { id: row.id, lane: row.lane, epoch: self.epoch(row.lane), fate }
    }

    pub(super) async fn settle(&self, row: &OutboxRow, fate: OutboxFate) -> SettleOutcome {
        self.settle_all(vec![self.outbox_fate(row, fate)]).await
    }

    pub(super) async fn settle_all(&self, rows: Vec<OutboxSettlement>) -> SettleOutcome {
        self.store.settle_outbox(self.fence.clone(), rows).await.expect("settle outbox")
    }

    pub(super) async fn settle_inbox(&self, row: &InboxRow, fate: InboxFate) -> SettleOutcome {
        self.settle_inbox_all(vec![self.inbox_fate(row, fate)]).await
    }

    pub(super) async fn settle_inbox_all(&self, rows: Vec<InboxSettlement>) -> SettleOutcome {
        self.store.settle_inbox(self.fence.clone(), rows).await.expect("settle inbox")
    }

    /// The lane of a row, as this worker holds it.
    pub(super) fn holding(&self, lane: i16) -> OwnedLane {
        OwnedLane { lane, epoch: self.epoch(lane), unclean: false }
    }
}

/// Asserts that all rows were settled.
pub(super) fn all(rows: u64) -> SettleOutcome {
    SettleOutcome { settled: rows, ..SettleOutcome::default() }
}

/// Asserts that no row was settled.
pub(super) fn none(rows: u64) -> SettleOutcome {
    SettleOutcome { refused: rows, ..SettleOutcome::default() }
}

pub(super) fn retry_later() -> OutboxFate {
    OutboxFate::Retry { attempts: 1, pause: Duration::from_secs(3_600), problem: problem() }
}

/// Waits without a used attempt.
pub(super) fn wait_uncounted() -> OutboxFate {
    OutboxFate::Wait { pause: Duration::from_secs(3_600), problem: problem(), lost_workers: 0 }
}

/// In quarantine after the loss of several workers.
pub(super) fn quarantined() -> OutboxFate {
    OutboxFate::Wait { pause: HOLD_FOR, problem: problem(), lost_workers: HOLD_AFTER }
}

/// Returns a retry without a pause, with this many lost workers.
pub(super) fn suspect(lost_workers: u32) -> OutboxFate {
    OutboxFate::Wait { pause: Duration::ZERO, problem: problem(), lost_workers }
}

pub(super) fn dead_and_parked() -> OutboxFate {
    OutboxFate::Dead { attempts: 5, problem: problem(), park: true }
}

pub(super) fn processed() -> InboxFate {
    processed_with(Vec::new())
}

pub(super) fn processed_with(changes: Vec<Change>) -> InboxFate {
    InboxFate::Processed { messages: Vec::new(), changes, copies: Vec::new() }
}

pub(super) fn handle_later() -> InboxFate {
    InboxFate::Retry { attempts: 1, pause: Duration::from_secs(3_600), problem: problem() }
}

/// In quarantine after the loss of several workers.
pub(super) fn quarantined_message() -> InboxFate {
    let pause = Duration::from_secs(3_600);
    InboxFate::Wait { pause, problem: problem(), lost_workers: HOLD_AFTER }
}

pub(super) fn dead_message() -> InboxFate {
    InboxFate::Dead { attempts: 5, problem: problem(), park: true }
}

/// Makes every waiting row of a table due.
pub(super) async fn make_due(f: &dyn Fixture, table: &str) {
    let past = f.past();
    f.run(&format!(
        "UPDATE {table} SET next_attempt_at = {past} WHERE next_attempt_at IS NOT NULL"
    ))
    .await;
    if table == "relais_outbox" {
        f.run(&format!("UPDATE relais_waiting SET due_at = {past} WHERE due_at IS NOT NULL")).await;
    }
}

/// Lets every lease run out, as if all workers had died.
pub(super) async fn expire_all(f: &dyn Fixture) {
    let past = f.past();
    f.run(&format!("UPDATE relais_lease SET lease_until = {past}")).await;
}
