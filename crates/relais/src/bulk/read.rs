//! Reads waiting rows for the next job, without their payloads.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use relais_core::{
    lane::OwnedLane,
    outbox::OutboxRow,
    store::{Fetch, Payloads, StoreError},
};

use super::{BulkRelay, JOB_ROWS_MAX, RowReader, choose::choose};

/// Most reads for one job. Each brings rows of other keys: a job has one row of each key.
const PLAN_READS_MAX: usize = 8;
/// The minimum time between two counts of waiting rows, which choose between a job and single calls.
const COUNT_EVERY: Duration = Duration::from_millis(100);

impl BulkRelay {
    /// Counts waiting rows, if there is a relay for few rows, and records whether there are too many for it.
    pub(super) async fn count(&mut self) -> Result<(), StoreError> {
        let RowReader::Auto(relay) = &mut self.rows else { return Ok(()) };
        // Rows after a quiet time are counted before the relay begins with them.
        if Instant::now() < self.count_at && !relay.reader().queues.is_empty() {
            return Ok(());
        }
        let limit = self.settings.threshold.clamp(1, JOB_ROWS_MAX as usize);
        self.many =
            self.fetch(limit, Vec::new()).await?.is_some_and(|(_, rows)| rows.len() >= limit);
        self.count_at = Instant::now() + COUNT_EVERY;
        Ok(())
    }

    /// Reads more rows while those at hand have fewer keys than a job may have rows.
    pub(super) async fn fill(
        &mut self,
        lanes: &[OwnedLane],
        rows: &mut Vec<OutboxRow>,
        limit: usize,
    ) -> Result<(), StoreError> {
        for read in 1..PLAN_READS_MAX {
            if rows.len() < read * limit || choose(rows, lanes, limit).len() >= limit {
                return Ok(());
            }
            let keys: HashSet<&String> = rows.iter().map(|row| &row.msg_key).collect();
            let keys = keys.into_iter().cloned().collect();
            let Some((_, more)) = self.fetch(limit, keys).await? else { return Ok(()) };
            rows.extend(more);
        }
        Ok(())
    }

    /// Reads rows of the owned lanes without their payloads, except those of some keys, and holds none.
    pub(crate) async fn fetch(
        &mut self,
        limit: usize,
        mut skip_keys: Vec<String>,
    ) -> Result<Option<(Vec<OwnedLane>, Vec<OutboxRow>)>, StoreError> {
        let keeper = self.reader().keeper();
        let lanes = keeper.usable();
        if lanes.is_empty() {
            return Ok(None);
        }
        let scope = keeper.fence().scope.clone();
        let payloads = Payloads::Omitted;
        skip_keys.extend(self.refused.all());
        let fetch = Fetch { payloads, skip_keys, ..Fetch::new(scope, lanes.clone(), limit) };
        Ok(Some((lanes, self.store.fetch_outbox(fetch).await?)))
    }

    /// Returns how long a job should still wait for more rows.
    pub(super) fn linger(&mut self, rows: usize, max: usize) -> Option<Duration> {
        if rows == 0 || rows >= max || matches!(self.rows, RowReader::Auto(_)) {
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
}
