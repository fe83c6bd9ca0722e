//! Reads the next rows of the destination beside its calls.

use std::sync::Arc;

use futures_util::FutureExt;
use relais_core::{
    outbox::OutboxRow,
    store::{Fetch, StoreError},
};
use tokio::task::{JoinError, JoinHandle};

use super::Relay;

type FetchedRows = Result<Vec<OutboxRow>, StoreError>;

/// The read in progress of a relay; at most one.
#[derive(Default)]
pub(super) struct RunningRead {
    running: Option<(Fetch, JoinHandle<FetchedRows>)>,
    ended: Option<(Fetch, FetchedRows)>,
    /// The database did not answer the last read.
    failed: bool,
}

impl RunningRead {
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some() || self.ended.is_some()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Resolves when the read has ended. Safe to drop.
    pub(super) async fn ended(&mut self) {
        match &mut self.running {
            Some((_, task)) => {
                let rows = task.await;
                self.end(rows);
            }
            None => std::future::pending().await,
        }
    }

    fn end(&mut self, rows: Result<FetchedRows, JoinError>) {
        let Some((fetch, _)) = self.running.take() else { return };
        match rows {
            Ok(rows) => self.ended = Some((fetch, rows)),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

impl Relay {
    /// Begins to read, if there is room and no read is in progress.
    pub(super) fn begin_read(&mut self) {
        if self.read.is_running() || self.guard.limits().is_resting() {
            return;
        }
        let Some(fetch) = self.reader.plan() else { return };
        // The database does not hold these keys back yet.
        let refused = self.refused.all();
        self.reader.queues.void(self.forgotten.values().chain(&refused));
        let (store, request) = (Arc::clone(&self.store), fetch.clone());
        let task = tokio::spawn(async move { store.fetch_outbox(request).await });
        self.read.running = Some((fetch, task));
    }

    /// Queues the rows of a read that has ended, without waiting for one; returns their number.
    pub(super) async fn end_read(&mut self) -> Result<usize, StoreError> {
        if let Some((_, task)) = &mut self.read.running
            && let Some(rows) = task.now_or_never()
        {
            self.read.end(rows);
        }
        let Some((fetch, rows)) = self.read.ended.take() else { return Ok(0) };
        self.read.failed = rows.is_err();
        self.reader.receive(&fetch, rows).await
    }

    /// Waits for the read in progress, if any, and queues its rows; returns their number.
    pub(super) async fn await_read(&mut self) -> Result<usize, StoreError> {
        if self.read.running.is_some() {
            self.read.ended().await;
        }
        self.end_read().await
    }

    /// Leaves the rows of the read in progress to a later one.
    pub(super) fn abandon_read(&mut self) {
        self.read = RunningRead::default();
        self.reader.queues.has_given_back = true;
        self.reader.request_read();
    }
}
