//! Rows that concern processes: their processes are read together, decided one by one, settled together.
//!
//! Invariant: a row that waits here keeps its key in flight until it is settled, so that no later row of
//! its key is decided before it. One settlement changes each process at most once.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use relais_core::{
    control::PROCESS_TYPE_PAUSED,
    delivery::Problem,
    handler::Outcome,
    inbox::{InboxFate, InboxRow},
    process::{PROCESS_DEFINITION, ProcessRef, ProcessStatus, TimerChange},
    store::{SettleOutcome, StoreError},
};

use super::InboxWorker;
use crate::{
    control::PausedTypes,
    key_queues::RowInFlight,
    observe::ProcessCounters,
    process::{
        decide::{DecisionAttempt, LoadedProcesses, ProcessLookup, decide, look_up, touches},
        registry::Registry,
        timers::Alarm,
    },
    random::random,
};

/// Maximum settlements in one pass; each row of one process needs its own.
const ROUNDS_MAX: usize = 16;
/// Maximum number of processes in one read, …
const READ_MAX: usize = 1_000;
/// … while their size is not known yet, …
const READ_FIRST: usize = 100;
/// … and maximum bytes of their data, by the average of the last read.
const READ_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Stale decisions before a row waits for [`STALE_PAUSE`], without using an attempt.
const STALE_MAX: u32 = 10;
const STALE_PAUSE: Duration = Duration::from_millis(50);

/// Time that a row of a paused process type waits, unless a resume ends it.
const PAUSED_WAIT: Duration = Duration::from_secs(120);

/// The processes of an inbox worker, and the rows that concern them.
pub(crate) struct ProcessWork {
    registry: Arc<Registry>,
    alarm: Arc<Alarm>,
    counters: Arc<ProcessCounters>,
    paused: Arc<PausedTypes>,
    waiting: Vec<WaitingRow>,
    /// Rows that are decided and part of the next settlement.
    decided: Vec<UncommittedDecision>,
    /// Maximum number of processes in the next read.
    read_max: usize,
}

impl Default for ProcessWork {
    fn default() -> Self {
        Self::new(Arc::default(), Arc::default(), Arc::default(), Arc::default())
    }
}

/// A row that waits for its processes to be read.
struct WaitingRow {
    entry: RowInFlight<InboxRow>,
    /// Decisions that were stale when they were committed.
    stale: u32,
}

struct UncommittedDecision {
    row: WaitingRow,
    /// The status of each changed process before the change.
    before: Vec<Option<ProcessStatus>>,
}

impl ProcessWork {
    pub(crate) fn new(
        registry: Arc<Registry>,
        alarm: Arc<Alarm>,
        counters: Arc<ProcessCounters>,
        paused: Arc<PausedTypes>,
    ) -> Self {
        let (waiting, decided) = (Vec::new(), Vec::new());
        Self { registry, alarm, counters, paused, waiting, decided, read_max: READ_FIRST }
    }

    /// Returns whether rows may be decided: without processes always, else once the controls were read.
    pub(super) fn is_ready(&self) -> bool {
        self.registry.is_empty() || self.paused.is_read()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn await_round(&mut self, entry: RowInFlight<InboxRow>) {
        self.waiting.push(WaitingRow { entry, stale: 0 });
    }

    /// Makes the decided rows wait again, because their settlement failed or may have failed; returns their
    /// ids.
    pub(super) fn decide_again(&mut self) -> HashSet<i64> {
        let ids = self.decided.iter().map(|decision| decision.row.entry.row.id).collect();
        self.waiting.extend(self.decided.drain(..).map(|decision| decision.row));
        ids
    }

    /// Returns the lookups of the first waiting rows, as many as may be read at once.
    fn lookups(&self) -> Vec<Result<ProcessLookup, Problem>> {
        let mut wanted = 0;
        let lookups = self.waiting.iter().map(|row| {
            let at = if row.stale == 0 { DecisionAttempt::First } else { DecisionAttempt::Again };
            look_up(&self.registry, &row.entry.row, at)
        });
        let room = |lookup: &Result<ProcessLookup, Problem>| {
            let fits = wanted < self.read_max;
            wanted += lookup.as_ref().map_or(0, |lookup| lookup.wanted.len());
            fits
        };
        lookups.take_while(room).collect()
    }

    fn learn_sizes(&mut self, found: &LoadedProcesses) {
        let bytes: usize = found.values().map(|process| process.data.len()).sum();
        if let Some(average) = bytes.checked_div(found.len()) {
            self.read_max = (READ_BYTES_MAX / average.max(1)).clamp(1, READ_MAX);
        }
    }
}

impl InboxWorker {
    /// Decides waiting rows; returns the number of settled ones. Rows that wait for others of their process
    /// get another round at once.
    pub(super) async fn advance(&mut self) -> Result<usize, StoreError> {
        let mut done = 0;
        for _ in 0..ROUNDS_MAX {
            if self.processes.waiting.is_empty() {
                break;
            }
            if self.size.is_full() {
                done += self.settle().await?;
            }
            let lookups = self.processes.lookups();
            let found = self.read(&lookups).await?;
            self.processes.learn_sizes(&found);
            self.decide(lookups, &found);
            done += self.settle().await?;
        }
        Ok(done)
    }

    async fn read(
        &self,
        lookups: &[Result<ProcessLookup, Problem>],
    ) -> Result<LoadedProcesses, StoreError> {
        let wanted = lookups.iter().flatten().flat_map(|lookup| lookup.wanted.iter().cloned());
        let wanted: HashSet<ProcessRef> = wanted.collect();
        if wanted.is_empty() {
            return Ok(LoadedProcesses::new());
        }
        let wanted: Vec<_> = wanted.into_iter().collect();
        let found = self.store.load_processes(wanted.clone()).await?;
        let found = wanted.into_iter().zip(found);
        Ok(found.filter_map(|(name, process)| Some((name, process?))).collect())
    }

    fn decide(&mut self, lookups: Vec<Result<ProcessLookup, Problem>>, found: &LoadedProcesses) {
        let mut claimed: HashSet<ProcessRef> = HashSet::new();
        let later = self.processes.waiting.split_off(lookups.len());
        let rows = std::mem::replace(&mut self.processes.waiting, later);
        for (row, lookup) in rows.into_iter().zip(lookups) {
            if row.stale >= STALE_MAX {
                self.postpone(&row.entry);
                continue;
            }
            let touched = lookup.as_ref().map(|lookup| touches(lookup, found)).unwrap_or_default();
            if self.size.is_full() || !touched.is_disjoint(&claimed) {
                self.processes.waiting.push(row);
                continue;
            }
            let paused = lookup.as_ref().ok().and_then(|lookup| {
                let mut types = lookup.process_types(found);
                types.find(|name| self.processes.paused.contains(name)).map(str::to_owned)
            });
            if let Some(process_type) = paused {
                self.await_resume(&row.entry, &process_type);
                continue;
            }
            let registry = Arc::clone(&self.processes.registry);
            let inbox = &row.entry.row;
            let read = lookup.as_ref().map_or(&[][..], |lookup| &lookup.wanted);
            let lacks = registry.lacks(read.iter().filter_map(|name| found.get(name)));
            match lookup.and_then(|lookup| decide(&registry, inbox, lookup, found, random())) {
                Ok(decided) => {
                    crate::fail_point!("inbox.after_decide");
                    claimed.extend(touched);
                    let (messages, changes) = (Vec::new(), decided.changes);
                    let copies = self.copies_of(&row.entry.row);
                    self.push(&row.entry, InboxFate::Processed { messages, changes, copies });
                    self.processes
                        .decided
                        .push(UncommittedDecision { row, before: decided.before });
                }
                Err(problem) => match lacks {
                    Some(need) if problem.code == PROCESS_DEFINITION => {
                        self.pass_on(&row.entry, &need, problem);
                    }
                    _ => self.finish(&row.entry, Outcome::Fail { problem }),
                },
            }
        }
    }

    /// Makes a row wait whose decision was stale each time: only its key waits with it.
    fn postpone(&mut self, entry: &RowInFlight<InboxRow>) {
        let problem = Problem::new(
            "PROCESS_BUSY",
            "its process was changed by other messages each time it was decided; decided again, without using an \
             attempt",
        );
        self.set_aside(entry, InboxFate::Wait { pause: STALE_PAUSE, problem, lost_workers: 0 });
    }

    /// Makes a row wait, without using an attempt, until an operator resumes the process type.
    fn await_resume(&mut self, entry: &RowInFlight<InboxRow>, process_type: &str) {
        let text =
            format!("process type `{process_type}` is paused; it continues when it is resumed");
        let problem = Problem::new(PROCESS_TYPE_PAUSED, &text);
        self.set_aside(entry, InboxFate::Wait { pause: PAUSED_WAIT, problem, lost_workers: 0 });
    }

    /// Lets the keys of settled rows continue; stale rows are decided again.
    pub(super) fn settled_processes(&mut self, settled: &SettleOutcome) {
        let decided = std::mem::take(&mut self.processes.decided);
        if decided.is_empty() {
            return;
        }
        let fates = self.settlements.iter().map(|s| (s.id, &s.fate));
        let fates: HashMap<i64, &InboxFate> = fates.collect();
        let ProcessWork { counters, alarm, .. } = &self.processes;
        counters.stale(settled.stale.len() as u64);
        let stale: HashSet<i64> = settled.stale.iter().copied().collect();
        let (again, done): (Vec<_>, Vec<_>) =
            decided.into_iter().partition(|decision| stale.contains(&decision.row.entry.row.id));
        for decision in &done {
            let Some(InboxFate::Processed { changes, .. }) = fates.get(&decision.row.entry.row.id)
            else {
                continue;
            };
            for (before, change) in decision.before.iter().zip(changes) {
                if let TimerChange::Set(timer) = &change.timer {
                    alarm.set(timer.after);
                }
                // It is unknown which rows were refused; counting too few is better than too many.
                if settled.refused == 0 {
                    counters.changed(*before, change);
                }
            }
        }
        for decision in done {
            self.reader.queues.complete(&[decision.row.entry], &HashSet::new());
        }
        self.processes.waiting.extend(again.into_iter().map(|decision| {
            let stale = decision.row.stale + 1;
            WaitingRow { stale, ..decision.row }
        }));
    }

    /// Leaves waiting rows to the next worker, at stop.
    pub(super) fn give_back_waiting(&mut self) {
        for row in std::mem::take(&mut self.processes.waiting) {
            self.give_back(&row.entry);
        }
    }
}
