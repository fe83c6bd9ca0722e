//! Advances jobs: over time, or by ticks.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    csv::CsvFile,
    job::JobState,
    plan::ColumnPlan,
    run::{self, JobRun, Locks, RunContext, RunProgress},
};
use crate::{
    id::Id,
    org::{OrgState, SimulatedOrg},
};

/// Longest pause of a job: a month, longer than any test.
const PAUSE_MAX: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// Returns the time after this pause.
pub(super) fn after_ms(pause_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(pause_ms).min(PAUSE_MAX)
}

/// The time of the next round.
enum NextRound {
    Now,
    At(Instant),
    /// No work until a call changes something.
    Idle,
}

/// The jobs that a round advances.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RoundTrigger {
    Due,
    Tick,
}

/// Advances jobs until it is dropped.
pub(crate) async fn run(sim: Arc<SimulatedOrg>) -> Infallible {
    loop {
        let manual = sim.org().faults.faults().bulk.manual;
        match if manual { NextRound::Idle } else { round(&sim, RoundTrigger::Due) } {
            NextRound::Now => tokio::task::yield_now().await,
            NextRound::At(time) => {
                tokio::select! {
                    () = tokio::time::sleep_until(time) => {}
                    () = sim.wake.notified() => {}
                }
            }
            NextRound::Idle => sim.wake.notified().await,
        }
    }
}

/// Runs one round for every job, due or not.
pub(crate) fn tick(sim: &SimulatedOrg) {
    round(sim, RoundTrigger::Tick);
    super::query::tick(&mut sim.org());
}

/// Starts closed jobs; jobs in progress save one chunk of each batch.
fn round(sim: &SimulatedOrg, when: RoundTrigger) -> NextRound {
    let now = Instant::now();
    let is_due = |due: Instant| when == RoundTrigger::Tick || due <= now;
    let (starting, running) = {
        let mut org = sim.org();
        org.sweep();
        let ready = |state| {
            let jobs = org.jobs.iter().filter(|job| job.state == state && !job.is_stuck);
            jobs.filter(|job| is_due(job.due)).map(|job| job.id).collect::<Vec<Id>>()
        };
        (ready(JobState::UploadComplete), ready(JobState::InProgress))
    };
    for id in &starting {
        start(sim, *id);
    }
    let mut org = sim.org();
    let mut locks = Locks::new();
    for id in running {
        org.continue_run(id, &mut locks);
    }
    let waiting = org.jobs.iter().filter(|job| {
        matches!(job.state, JobState::UploadComplete | JobState::InProgress) && !job.is_stuck
    });
    match waiting.map(|job| job.due).min() {
        Some(due) if due <= Instant::now() => NextRound::Now,
        Some(due) => NextRound::At(due),
        None => NextRound::Idle,
    }
}

/// Parses the file of a job without holding the lock, because it may be large.
fn start(sim: &SimulatedOrg, id: Id) {
    let (bytes, format) = {
        let org = &mut *sim.org();
        let now = org.clock.now();
        let Some(job) = org.jobs.get_mut(id) else { return };
        job.enter(JobState::InProgress, now);
        job.started = Some(now);
        job.fault = org.faults.job(&job.spec.object.name).unwrap_or_default();
        (job.upload.take().unwrap_or_default(), job.spec.format)
    };
    let scanned = CsvFile::scan(Bytes::clone(&bytes), format);
    let mut org = sim.org();
    match scanned {
        Ok(file) => org.begin_run(id, file),
        Err(why) => org.refuse_run(id, CsvFile::unread(bytes, format), why),
    }
}

impl OrgState {
    fn begin_run(&mut self, id: Id, file: CsvFile) {
        let now = self.now();
        let settings = self.faults.faults().clone();
        let left = self.limits.batches_left(&settings.limits, now);
        let Some(job) = self.jobs.get_mut(id) else { return };
        let spec = &job.spec;
        // A file without a header has no columns and no rows.
        let plan = if file.raw_header().is_empty() {
            None
        } else {
            match ColumnPlan::new(&self.tables.schema, &spec.object, spec.operation, &file) {
                Ok(plan) => Some(plan),
                Err(why) => return self.refuse_run(id, file, why),
            }
        };
        if job.fault.poison.as_ref().is_some_and(|poison| file.has(poison)) {
            let why = "InternalServerError : A row failed the whole job".to_owned();
            let why = job.fault.message.clone().unwrap_or(why);
            return self.refuse_run(id, file, why);
        }
        let rows = file.len() as u64;
        let run = match plan {
            Some(plan) => JobRun::new(file, plan, &settings.bulk, job.fault.timeouts, left),
            None => JobRun::refused(file),
        };
        self.limits.bulk_batches.add(now, run.batches.len() as u64);
        self.limits.bulk_records.add(now, rows);
        job.is_stuck = job.fault.stuck;
        job.due = after_ms(settings.bulk.round_ms);
        job.run = Some(Arc::new(run));
    }

    fn refuse_run(&mut self, id: Id, file: CsvFile, why: String) {
        let now = self.now();
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.run = Some(Arc::new(JobRun::refused(file)));
        if job.state == JobState::InProgress {
            job.error = Some(why);
            job.enter(JobState::Failed, now);
        }
    }

    fn continue_run(&mut self, id: Id, locks: &mut Locks) {
        let now = self.now();
        let round_ms = self.faults.faults().bulk.round_ms;
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.state != JobState::InProgress || job.run.is_none() {
            return;
        }
        let mut world = RunContext {
            tables: &mut self.tables,
            faults: &mut self.faults,
            ledger: &mut self.ledger,
            now,
        };
        match run::round(job, &mut world, locks) {
            RunProgress::More => {
                job.due = after_ms(round_ms);
                job.modified = now;
            }
            RunProgress::Complete => job.enter(JobState::JobComplete, now),
            RunProgress::Failed(why) => {
                job.error = Some(why);
                job.enter(JobState::Failed, now);
            }
        }
    }
}
