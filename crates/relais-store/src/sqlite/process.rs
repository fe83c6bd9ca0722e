//! Processes, their logs and their timers.

use relais_core::{
    process::{Applied, Change, Fired, LogEntry, Process, ProcessFilter, ProcessRef, Processes},
    store::{StoreError, StoreFuture},
};
use uuid::Uuid;

use super::SqliteStore;

fn later<'a, T: Send + 'a>() -> StoreFuture<'a, T> {
    Box::pin(async { Err(StoreError::Invalid("not built yet".into())) })
}

impl Processes for SqliteStore {
    fn load_processes(&self, _wanted: Vec<ProcessRef>) -> StoreFuture<'_, Vec<Option<Process>>> {
        later()
    }

    fn list_processes(&self, _filter: ProcessFilter) -> StoreFuture<'_, Vec<Process>> {
        later()
    }

    fn process_log(
        &self,
        _process_id: Uuid,
        _before: Option<i64>,
        _limit: usize,
    ) -> StoreFuture<'_, Vec<LogEntry>> {
        later()
    }

    fn process_log_of(&self, _message_id: String) -> StoreFuture<'_, Vec<LogEntry>> {
        later()
    }

    fn change_process(&self, _change: Change) -> StoreFuture<'_, Applied> {
        later()
    }

    fn fire_timers(&self, _limit: usize) -> StoreFuture<'_, Fired> {
        later()
    }
}
