//! Counters of processes, by type.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use relais_core::process::{Change, ProcessStatus};
use serde::Serialize;

use crate::lock::lock;

/// Counters of processes.
#[derive(Debug, Default)]
pub(crate) struct ProcessCounters {
    /// By process type.
    types: Mutex<BTreeMap<String, ProcessTypeSnapshot>>,
    timers: AtomicU64,
    stale: AtomicU64,
}

/// The counters of processes at one moment. Actions of operators are not counted.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessesSnapshot {
    /// The process types, by name.
    pub types: BTreeMap<String, ProcessTypeSnapshot>,
    /// Timers turned into inbox rows.
    pub timers: u64,
    /// Decisions made again, because the process had changed meanwhile.
    pub stale: u64,
}

/// The counters of one process type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessTypeSnapshot {
    /// Started processes.
    pub started: u64,
    /// Commands sent: each attempt of a step or of a compensation is one.
    pub steps: u64,
    /// Processes that succeeded.
    pub succeeded: u64,
    /// Processes that failed.
    pub failed: u64,
    /// Processes that were compensated.
    pub compensated: u64,
}

impl ProcessCounters {
    /// Counts a committed change; `before` is the status before it.
    pub(crate) fn changed(&self, before: Option<ProcessStatus>, change: &Change) {
        let mut types = lock(&self.types);
        let counts = types.entry(change.process.process_type.clone()).or_default();
        counts.started += u64::from(before.is_none());
        counts.steps += change.messages.len() as u64;
        let after = change.process.status;
        if before == Some(after) {
            return;
        }
        match after {
            ProcessStatus::Succeeded => counts.succeeded += 1,
            ProcessStatus::Failed => counts.failed += 1,
            ProcessStatus::Compensated => counts.compensated += 1,
            _ => {}
        }
    }

    pub(crate) fn timers(&self, fired: u64) {
        self.timers.fetch_add(fired, Relaxed);
    }

    pub(crate) fn stale(&self, rows: u64) {
        self.stale.fetch_add(rows, Relaxed);
    }

    pub(super) fn snapshot(&self) -> ProcessesSnapshot {
        ProcessesSnapshot {
            types: lock(&self.types).clone(),
            timers: self.timers.load(Relaxed),
            stale: self.stale.load(Relaxed),
        }
    }
}
