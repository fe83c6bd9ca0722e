//! Starts calls within the limits of the guard. Quarantined rows are settled instead.

use std::{
    collections::{HashSet, VecDeque},
    time::{Duration, Instant},
};

use relais_core::{
    fault::Outlook,
    outbox::{OutboxFate, OutboxRow},
    store::StoreError,
};

use super::{FinishedCall, Relay, observation::CallObservation};
use crate::{
    key_queues::RowInFlight,
    lane_reader::UNSETTLED_MAX,
    permit::Permit,
    quarantine::outbox_fate,
    timing::{REST_MAX, WOKEN_REST_MAX},
};

impl Relay {
    /// Starts as many calls as the guard permits; returns the number of rows, and the rest if there are none.
    pub(super) async fn launch(&mut self) -> Result<(usize, Duration), StoreError> {
        let (mut started, mut rest) = (0, WOKEN_REST_MAX);
        let batching = self.guard.batching();
        self.reader.queues.fit(batching);
        // The results of one call may wait while the next one runs.
        if self.unsettled.len() >= UNSETTLED_MAX.max(batching.max() + 1) {
            return Ok((started, rest));
        }
        let mut batches = Vec::new();
        let (mut doubtful, doubtful_max) = (self.doubtful, self.guard.limits().doubtful_max());
        let mut deferred = None;
        // Once for all calls of a pass, which takes microseconds.
        self.reader.drop_lost_lanes();
        loop {
            if deferred.is_none() && doubtful >= doubtful_max {
                deferred = Some(self.defer_failing_keys());
            }
            if !self.reader.queues.has_ready() {
                break;
            }
            match self.guard.permit(batches.len()) {
                Permit::Go => {}
                Permit::Wait(wait) => {
                    rest = wait.min(REST_MAX);
                    break;
                }
                Permit::Full => break,
            }
            self.probed.choose(self.guard.limits(), &mut self.reader.queues);
            let entries = self.reader.queues.take(batching);
            let Some(first) = entries.first() else { break };
            started += entries.len();
            match outbox_fate(first.treatment, &first.row, self.settings.on_dead_letter) {
                Some(fate) => self.set_aside(first, fate),
                None => {
                    doubtful += usize::from(self.is_doubtful(&entries));
                    batches.push(entries);
                }
            }
        }
        if let Some(keys) = deferred {
            self.reader.queues.readmit_keys(keys);
        }
        self.start_all(batches).await?;
        Ok((started, rest))
    }

    /// Returns whether the last call of the row's key failed. A call of several rows is never doubtful: it
    /// is halved if it fails.
    fn is_doubtful(&self, entries: &[RowInFlight<OutboxRow>]) -> bool {
        let limits = self.guard.limits();
        matches!(entries, [entry] if limits.outlook(&entry.row.msg_key) == Outlook::Bad)
    }

    /// Defers failing keys: slow calls of theirs must not delay all other keys.
    fn defer_failing_keys(&mut self) -> VecDeque<String> {
        let limits = self.guard.limits();
        self.reader.queues.defer_keys(|key| limits.outlook(key) == Outlook::Bad)
    }

    /// Settles a suspect without a call: it is no evidence about the target.
    fn set_aside(&mut self, suspect: &RowInFlight<OutboxRow>, fate: OutboxFate) {
        let mut forget = HashSet::new();
        self.settle_as(suspect, fate, &mut forget);
        self.reader.queues.complete(std::slice::from_ref(suspect), &forget);
    }

    /// Starts the calls, after losses are noted on suspects.
    async fn start_all(
        &mut self,
        batches: Vec<Vec<RowInFlight<OutboxRow>>>,
    ) -> Result<(), StoreError> {
        let noted = self.reader.note_losses(batches.iter().flatten()).await;
        let may_start = matches!(noted, Ok(true));
        for entries in batches {
            if may_start || !entries.iter().any(RowInFlight::is_noted) {
                self.start(entries);
            } else {
                let keys = entries.iter().map(|entry| entry.row.msg_key.clone()).collect();
                self.reader.queues.complete(&entries, &keys);
                self.reader.queues.give_back(entries.iter().map(|entry| entry.row.id));
            }
        }
        noted.map(drop)
    }

    fn start(&mut self, entries: Vec<RowInFlight<OutboxRow>>) {
        let doubtful = self.is_doubtful(&entries);
        self.doubtful += usize::from(doubtful);
        let (lanes, mut rows): (Vec<_>, Vec<_>) =
            entries.into_iter().map(|entry| ((entry.lane, entry.treatment), entry.row)).unzip();
        let observation = CallObservation::begin(&self.counters, &mut rows);
        let call = self.guard.call(rows);
        let began = Instant::now();
        self.calls.spawn(async move {
            crate::fail_point!("relay.before_publish");
            let (mut rows, deliveries) = call.await;
            crate::fail_point!("relay.after_publish");
            observation.end(&mut rows, &deliveries);
            let entries = rows.into_iter().zip(lanes);
            let entries =
                entries.map(|(row, (lane, treatment))| RowInFlight { row, lane, treatment });
            FinishedCall { entries: entries.collect(), deliveries, began, doubtful }
        });
    }
}
