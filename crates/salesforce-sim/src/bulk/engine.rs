//! What moves jobs forward: in time, or by ticks.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    csv::CsvFile,
    job::State,
    plan::Plan,
    run::{self, Locks, Progress, Run, World},
};
use crate::{
    id::Id,
    sim::{Org, Sim},
};

/// The longest pause of a job: a month, which no test waits for.
const PAUSE_MAX: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// When so much time is over.
pub(super) fn after_ms(pause_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(pause_ms).min(PAUSE_MAX)
}

/// When there is something to do again.
enum Next {
    Now,
    At(Instant),
    /// Nothing until a call changes something.
    Idle,
}

/// Whether the time of a job must have come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Due,
    Anyhow,
}

/// Runs jobs until it is dropped.
pub(crate) async fn run(sim: Arc<Sim>) -> Infallible {
    loop {
        let manual = sim.org().faults.faults().bulk.manual;
        match if manual { Next::Idle } else { round(&sim, When::Due) } {
            Next::Now => tokio::task::yield_now().await,
            Next::At(time) => {
                tokio::select! {
                    () = tokio::time::sleep_until(time) => {}
                    () = sim.wake.notified() => {}
                }
            }
            Next::Idle => sim.wake.notified().await,
        }
    }
}

/// One round for every job, whether its time has come or not.
pub(crate) fn tick(sim: &Sim) {
    round(sim, When::Anyhow);
    super::query::tick(&mut sim.org());
}

/// Closed jobs begin; those in progress save one chunk of each batch.
fn round(sim: &Sim, when: When) -> Next {
    let now = Instant::now();
    let is_due = |due: Instant| when == When::Anyhow || due <= now;
    let (begin, go_on) = {
        let mut org = sim.org();
        org.sweep();
        let ready = |state| {
            let jobs = org.jobs.iter().filter(|job| job.state == state && !job.is_stuck);
            jobs.filter(|job| is_due(job.due)).map(|job| job.id).collect::<Vec<Id>>()
        };
        (ready(State::UploadComplete), ready(State::InProgress))
    };
    for id in &begin {
        start(sim, *id);
    }
    let mut org = sim.org();
    let mut locks = Locks::new();
    for id in go_on {
        org.go_on(id, &mut locks);
    }
    let waiting = org.jobs.iter().filter(|job| {
        matches!(job.state, State::UploadComplete | State::InProgress) && !job.is_stuck
    });
    match waiting.map(|job| job.due).min() {
        Some(due) if due <= Instant::now() => Next::Now,
        Some(due) => Next::At(due),
        None => Next::Idle,
    }
}

/// Reads the file of a job, without the lock: it may be large.
fn start(sim: &Sim, id: Id) {
    let (bytes, format) = {
        let org = &mut *sim.org();
        let now = org.clock.now();
        let Some(job) = org.jobs.get_mut(id) else { return };
        job.enter(State::InProgress, now);
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

impl Org {
    fn begin_run(&mut self, id: Id, file: CsvFile) {
        let now = self.now();
        let settings = self.faults.faults().clone();
        let left = self.limits.batches_left(&settings.limits, now);
        let Some(job) = self.jobs.get_mut(id) else { return };
        let spec = &job.spec;
        // A file without a header has nothing to understand; there is no row either.
        let plan = if file.raw_header().is_empty() {
            None
        } else {
            match Plan::new(&self.tables.schema, &spec.object, spec.operation, &file) {
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
            Some(plan) => Run::new(file, plan, &settings.bulk, job.fault.timeouts, left),
            None => Run::refused(file),
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
        job.run = Some(Arc::new(Run::refused(file)));
        if job.state == State::InProgress {
            job.error = Some(why);
            job.enter(State::Failed, now);
        }
    }

    fn go_on(&mut self, id: Id, locks: &mut Locks) {
        let now = self.now();
        let round_ms = self.faults.faults().bulk.round_ms;
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.state != State::InProgress || job.run.is_none() {
            return;
        }
        let mut world = World {
            tables: &mut self.tables,
            faults: &mut self.faults,
            ledger: &mut self.ledger,
            now,
        };
        match run::round(job, &mut world, locks) {
            Progress::More => {
                job.due = after_ms(round_ms);
                job.modified = now;
            }
            Progress::Complete => job.enter(State::JobComplete, now),
            Progress::Failed(why) => {
                job.error = Some(why);
                job.enter(State::Failed, now);
            }
        }
    }
}
