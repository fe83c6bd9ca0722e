//! Rows that concern processes: read together, decided one by one, settled together.
//!
//! Invariant: a row waits here with its key held until it is settled, so that no later row of its key
//! is decided before it; in one settlement each process is changed at most once.

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
    store::{Settled, StoreError},
};

use super::InboxWorker;
use crate::{
    control::PausedTypes,
    flight::Job,
    observe::ProcessCounters,
    process::{
        decide::{Asked, Found, Try, ask, decide, touches},
        registry::Registry,
        timers::Alarm,
    },
    relay::random,
};

/// Settlements in one go; rows of one process need one each.
const ROUNDS_MAX: usize = 16;
/// Most processes read at once, …
const READ_MAX: usize = 1_000;
/// … of those whose size is not known yet, …
const READ_FIRST: usize = 100;
/// … and most bytes of their data, by the average of the last ones read.
const READ_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Decisions in vain before a row is laid aside for a moment, at no cost of an attempt.
const STALE_MAX: u32 = 10;
/// That moment.
const STALE_PAUSE: Duration = Duration::from_millis(50);

/// How long a row of a paused process type waits, unless a resume ends it.
const PAUSED_WAIT: Duration = Duration::from_secs(120);

/// What the inbox worker knows of processes, and the rows that concern them.
pub(crate) struct ProcessWork {
    registry: Arc<Registry>,
    alarm: Arc<Alarm>,
    counters: Arc<ProcessCounters>,
    paused: Arc<PausedTypes>,
    waiting: Vec<Waiting>,
    /// Decided, and in the next settlement.
    decided: Vec<Decision>,
    /// Processes to read at once.
    read_max: usize,
}

impl Default for ProcessWork {
    fn default() -> Self {
        Self::new(Arc::default(), Arc::default(), Arc::default(), Arc::default())
    }
}

/// A row that waits for its processes to be read.
struct Waiting {
    job: Job<InboxRow>,
    /// Decisions in vain.
    stale: u32,
}

struct Decision {
    row: Waiting,
    /// The status of each process it changes, before.
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

    pub(super) fn await_round(&mut self, job: Job<InboxRow>) {
        self.waiting.push(Waiting { job, stale: 0 });
    }

    /// The settlement came to nothing, or may have: its rows wait again. Their ids.
    pub(super) fn decide_again(&mut self) -> HashSet<i64> {
        let ids = self.decided.iter().map(|decision| decision.row.job.row.id).collect();
        self.waiting.extend(self.decided.drain(..).map(|decision| decision.row));
        ids
    }

    /// The first of the rows that wait, with what they ask for: as many as may be read at once.
    fn ask(&self) -> Vec<Result<Asked, Problem>> {
        let mut wanted = 0;
        let asked = self.waiting.iter().map(|row| {
            let at = if row.stale == 0 { Try::First } else { Try::Again };
            ask(&self.registry, &row.job.row, at)
        });
        let room = |asked: &Result<Asked, Problem>| {
            let fits = wanted < self.read_max;
            wanted += asked.as_ref().map_or(0, |asked| asked.wanted.len());
            fits
        };
        asked.take_while(room).collect()
    }

    fn learn_sizes(&mut self, found: &Found) {
        let bytes: usize = found.values().map(|process| process.data.len()).sum();
        if let Some(average) = bytes.checked_div(found.len()) {
            self.read_max = (READ_BYTES_MAX / average.max(1)).clamp(1, READ_MAX);
        }
    }
}

impl InboxWorker {
    /// Decides about the rows that wait; how many were settled. Those that must wait for others of
    /// their process get another round at once.
    pub(super) async fn advance(&mut self) -> Result<usize, StoreError> {
        let mut done = 0;
        for _ in 0..ROUNDS_MAX {
            if self.processes.waiting.is_empty() {
                break;
            }
            if self.size.is_full() {
                done += self.settle().await?;
            }
            let asked = self.processes.ask();
            let found = self.read(&asked).await?;
            self.processes.learn_sizes(&found);
            self.decide(asked, &found);
            done += self.settle().await?;
        }
        Ok(done)
    }

    async fn read(&self, asked: &[Result<Asked, Problem>]) -> Result<Found, StoreError> {
        let wanted = asked.iter().flatten().flat_map(|asked| asked.wanted.iter().cloned());
        let wanted: HashSet<ProcessRef> = wanted.collect();
        if wanted.is_empty() {
            return Ok(Found::new());
        }
        let wanted: Vec<_> = wanted.into_iter().collect();
        let found = self.store.load_processes(wanted.clone()).await?;
        let found = wanted.into_iter().zip(found);
        Ok(found.filter_map(|(name, process)| Some((name, process?))).collect())
    }

    fn decide(&mut self, asked: Vec<Result<Asked, Problem>>, found: &Found) {
        let mut claimed: HashSet<ProcessRef> = HashSet::new();
        let later = self.processes.waiting.split_off(asked.len());
        let rows = std::mem::replace(&mut self.processes.waiting, later);
        for (row, asked) in rows.into_iter().zip(asked) {
            if row.stale >= STALE_MAX {
                self.lay_aside(&row.job);
                continue;
            }
            let touched = asked.as_ref().map(|asked| touches(asked, found)).unwrap_or_default();
            if self.size.is_full() || !touched.is_disjoint(&claimed) {
                self.processes.waiting.push(row);
                continue;
            }
            let held = asked.as_ref().ok().and_then(|asked| {
                let mut types = asked.process_types(found);
                types.find(|name| self.processes.paused.contains(name)).map(str::to_owned)
            });
            if let Some(process_type) = held {
                self.await_resume(&row.job, &process_type);
                continue;
            }
            let registry = Arc::clone(&self.processes.registry);
            let inbox = &row.job.row;
            let read = asked.as_ref().map_or(&[][..], |asked| &asked.wanted);
            let lacks = registry.lacks(read.iter().filter_map(|name| found.get(name)));
            match asked.and_then(|asked| decide(&registry, inbox, asked, found, random())) {
                Ok(decided) => {
                    relais_store::fail_point!("inbox.after_decide");
                    claimed.extend(touched);
                    let (messages, changes) = (Vec::new(), decided.changes);
                    let copies = self.copies_of(&row.job.row);
                    self.push(&row.job, InboxFate::Processed { messages, changes, copies });
                    self.processes.decided.push(Decision { row, before: decided.before });
                }
                Err(problem) => match lacks {
                    Some(need) if problem.code == PROCESS_DEFINITION => {
                        self.pass_on(&row.job, &need, problem);
                    }
                    _ => self.finish(&row.job, Outcome::Fail { problem }),
                },
            }
        }
    }

    /// Others were faster each time: the row rests where nothing is held up but its key.
    fn lay_aside(&mut self, job: &Job<InboxRow>) {
        let problem = Problem::new(
            "PROCESS_BUSY",
            "others changed its process each time it was decided; it comes again, at no cost of an attempt",
        );
        self.set_aside(job, InboxFate::Wait { pause: STALE_PAUSE, problem, lost_workers: 0 });
    }

    /// The row waits, at no cost of an attempt, until an operator resumes the process type.
    fn await_resume(&mut self, job: &Job<InboxRow>, process_type: &str) {
        let text =
            format!("process type `{process_type}` is paused; it continues when it is resumed");
        let problem = Problem::new(PROCESS_TYPE_PAUSED, &text);
        self.set_aside(job, InboxFate::Wait { pause: PAUSED_WAIT, problem, lost_workers: 0 });
    }

    /// Lets the keys of settled rows go on, and has stale ones decided again.
    pub(super) fn settled_processes(&mut self, settled: &Settled) {
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
            decided.into_iter().partition(|decision| stale.contains(&decision.row.job.row.id));
        for decision in &done {
            let Some(InboxFate::Processed { changes, .. }) = fates.get(&decision.row.job.row.id)
            else {
                continue;
            };
            for (before, change) in decision.before.iter().zip(changes) {
                if let TimerChange::Set(timer) = &change.timer {
                    alarm.set(timer.after);
                }
                // Which rows were refused is not known; counting too few is better than too many.
                if settled.refused == 0 {
                    counters.changed(*before, change);
                }
            }
        }
        for decision in done {
            self.intake.flight.land(&[decision.row.job], &HashSet::new());
        }
        self.processes.waiting.extend(again.into_iter().map(|decision| {
            let stale = decision.row.stale + 1;
            Waiting { stale, ..decision.row }
        }));
    }

    /// A stopping worker leaves what waits to the next one.
    pub(super) fn give_back_waiting(&mut self) {
        for row in std::mem::take(&mut self.processes.waiting) {
            self.give_back(&row.job);
        }
    }
}
