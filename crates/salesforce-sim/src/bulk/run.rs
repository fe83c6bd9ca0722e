//! The processing of one job: rows in batches, batches in chunks, one outcome per row.
//!
//! Batches run in parallel, one chunk of each per round, so that rows of different batches are
//! interleaved. There is no serial mode.

use std::{collections::HashMap, ops::Range, sync::Arc};

use super::{csv::CsvFile, job::IngestJob, plan::ColumnPlan};
use crate::{
    faults::{BulkJobSettings, FaultState},
    id::Id,
    ledger::EffectLedger,
    row_error::RowError,
    store::{
        AppliedWrite, OrgTables, RefusedWrite, change::RowChange, repeated::repeated,
        transaction::OrgTransaction,
    },
};

/// The outcome of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowOutcome {
    /// Not tried yet, or never: an unprocessed record.
    Pending,
    Done {
        id: Id,
        created: bool,
    },
    Failed {
        id: Option<Id>,
        error: Box<str>,
    },
    /// In none of the results.
    Missing,
}

#[derive(Debug)]
pub(crate) struct JobRun {
    pub(super) file: CsvFile,
    /// `None` if the header was invalid.
    pub(super) plan: Option<ColumnPlan>,
    pub(crate) outcomes: Vec<RowOutcome>,
    pub(crate) processed: u64,
    pub(crate) failed: u64,
    pub(super) batches: Vec<JobBatch>,
    /// The error with which the job ends after all batches.
    pub(super) final_error: Option<String>,
}

#[derive(Debug)]
pub(super) struct JobBatch {
    rows: Range<usize>,
    next: usize,
    lock_failures: u32,
    lock_retries: u32,
    timeouts_left: u32,
    timeouts: u32,
}

/// The owner of each locked record in this round.
pub(super) type Locks = HashMap<String, (Id, usize)>;

/// The state that a job writes to.
pub(super) struct RunContext<'a> {
    pub(super) tables: &'a mut OrgTables,
    pub(super) faults: &'a mut FaultState,
    pub(super) ledger: &'a mut EffectLedger,
    pub(super) now: jiff::Timestamp,
}

/// The result of one round of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RunProgress {
    More,
    Complete,
    Failed(String),
}

impl JobRun {
    /// Creates a run whose file cannot be processed.
    pub(super) fn refused(file: CsvFile) -> Self {
        let outcomes = vec![RowOutcome::Pending; file.len()];
        let batches = Vec::new();
        Self { file, plan: None, outcomes, processed: 0, failed: 0, batches, final_error: None }
    }

    /// Splits the file into batches. Those beyond the quota are neither processed nor recorded.
    pub(super) fn new(
        file: CsvFile,
        plan: ColumnPlan,
        settings: &BulkJobSettings,
        timeouts: u32,
        batches_max: u64,
    ) -> Self {
        let mut run = Self::refused(file);
        run.plan = Some(plan);
        let size = settings.batch_rows.max(1);
        let total = run.file.len();
        for (number, start) in (0..total).step_by(size).enumerate() {
            let rows = start..total.min(start.saturating_add(size));
            if number as u64 >= batches_max {
                run.outcomes[rows].fill(RowOutcome::Missing);
                run.final_error = Some("ExceededQuota : the daily limit of batches".to_owned());
                continue;
            }
            let next = start;
            let (lock_failures, lock_retries, timeouts_left) = (0, 0, timeouts);
            let batch =
                JobBatch { rows, next, lock_failures, lock_retries, timeouts_left, timeouts: 0 };
            run.batches.push(batch);
        }
        run
    }

    fn settle(&mut self, row: usize, outcome: RowOutcome) {
        self.processed += u64::from(outcome != RowOutcome::Missing);
        self.failed += u64::from(matches!(outcome, RowOutcome::Failed { .. }));
        self.outcomes[row] = outcome;
    }
}

/// Processes one chunk of each batch.
pub(super) fn round(
    job: &mut IngestJob,
    world: &mut RunContext<'_>,
    locks: &mut Locks,
) -> RunProgress {
    let settings = world.faults.faults().bulk.clone();
    let shared = job.run.take().expect("a job in progress has its run");
    let mut run = Arc::into_inner(shared).expect("only ended runs are shared");
    let mut progress = RunProgress::More;
    // A job that must fail half-way runs its batches one after the other, so that the processed
    // half is known.
    let at_once = if job.fault.fail_after_rows.is_some() { 1 } else { usize::MAX };
    let running: Vec<usize> = (0..run.batches.len())
        .filter(|index| run.batches[*index].next < run.batches[*index].rows.end)
        .take(at_once)
        .collect();
    for index in &running {
        if let Err(why) = step(job, &mut run, *index, world, locks, &settings) {
            progress = RunProgress::Failed(why);
            break;
        }
    }
    let is_done = run.batches.iter().all(|batch| batch.next >= batch.rows.end);
    if progress == RunProgress::More && is_done {
        progress = run.final_error.clone().map_or(RunProgress::Complete, RunProgress::Failed);
    }
    job.run = Some(Arc::new(run));
    progress
}

/// Processes the next chunk of one batch; an error ends the job.
fn step(
    job: &mut IngestJob,
    run: &mut JobRun,
    index: usize,
    world: &mut RunContext<'_>,
    locks: &mut Locks,
    settings: &BulkJobSettings,
) -> Result<(), String> {
    let batch = &mut run.batches[index];
    if batch.timeouts_left > 0 {
        batch.timeouts_left -= 1;
        batch.timeouts += 1;
        job.retries += 1;
        if batch.timeouts > settings.timeout_retries_max {
            return Err("Timeout : The batch took too long too often".to_owned());
        }
        return Ok(());
    }
    let mut rows =
        batch.next..batch.rows.end.min(batch.next.saturating_add(settings.chunk_rows.max(1)));
    if let Some(limit) = job.fault.fail_after_rows {
        let left = limit.saturating_sub(run.processed);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        rows.end = rows.end.min(rows.start.saturating_add(left));
    }
    batch.next = rows.end;
    let locked = chunk(job, run, rows, index, world, locks, settings);
    if job.fault.fail_after_rows.is_some_and(|limit| run.processed >= limit) {
        let why = "InternalServerError : The job failed because of a fault".to_owned();
        return Err(job.fault.message.clone().unwrap_or(why));
    }
    let batch = &mut run.batches[index];
    batch.lock_failures += locked;
    if batch.lock_failures > settings.lock_failures_max && batch.next < batch.rows.end {
        batch.lock_failures = 0;
        batch.lock_retries += 1;
        job.retries += 1;
        if batch.lock_retries > settings.lock_retries_max {
            return Err("TooManyLockFailure : Too many rows of the batch were locked".to_owned());
        }
    }
    Ok(())
}

/// Writes the rows of a chunk in one transaction. Returns the number of locked rows.
fn chunk(
    job: &IngestJob,
    run: &mut JobRun,
    rows: Range<usize>,
    index: usize,
    world: &mut RunContext<'_>,
    locks: &mut Locks,
    settings: &BulkJobSettings,
) -> u32 {
    let (object, operation) = (Arc::clone(&job.spec.object), job.spec.operation);
    let plan = run.plan.take().expect("a job with batches has a plan");
    let read = |row| plan.change(&object, operation, settings.id_on_upsert, &run.file, row);
    let changes: Vec<RowChange> = rows.clone().map(read).collect();
    let twice = repeated(changes.iter().map(|change| Some((&*object, operation, change))));
    let missing = job.fault.missing.as_ref();
    let mut transaction = OrgTransaction::begin(world.tables, world.faults, world.now);
    let mut locked = 0;
    for ((row, change), twice) in rows.zip(changes).zip(twice) {
        let is_missing = missing.is_some_and(|pattern| pattern.fits(&plan.key_of(&run.file, row)));
        if is_missing && !job.fault.missing_applied {
            run.settle(row, RowOutcome::Missing);
            continue;
        }
        let held = settings.contention.then(|| held(&plan, run, row, &change, job, index, locks));
        let result = match (twice, held.flatten()) {
            (Some(error), _) | (None, Some(error)) => Err(RefusedWrite::from(error)),
            (None, None) => transaction.write(&object, operation, change),
        };
        let is_locked = |refused: &RefusedWrite| refused.error.code == "UNABLE_TO_LOCK_ROW";
        locked += u32::from(result.as_ref().is_err_and(is_locked));
        run.settle(row, if is_missing { RowOutcome::Missing } else { outcome(result) });
    }
    transaction.commit(world.ledger);
    run.plan = Some(plan);
    locked
}

fn outcome(result: Result<AppliedWrite, RefusedWrite>) -> RowOutcome {
    match result {
        Ok(AppliedWrite { id, created }) => RowOutcome::Done { id, created },
        Err(RefusedWrite { id, error }) => RowOutcome::Failed { id, error: error.in_bulk().into() },
    }
}

/// Takes the locks of a row for its batch, or returns an error if another batch has one of them.
fn held(
    plan: &ColumnPlan,
    run: &JobRun,
    row: usize,
    change: &RowChange,
    job: &IngestJob,
    batch: usize,
    locks: &mut Locks,
) -> Option<RowError> {
    let object = &job.spec.object;
    let parents =
        change.parents.iter().map(|it| format!("{}:{}", object.fields[it.lookup].name, it.key));
    let lookups = change.values.iter().filter_map(|(field, value)| {
        object.fields[*field].lookup.as_ref()?;
        Some(format!("{}:{}", object.fields[*field].name, value.as_ref()?.to_cell()))
    });
    let itself = format!("{}:{}", object.name, plan.key_of(&run.file, row));
    for name in parents.chain(lookups).chain([itself]) {
        let owner = *locks.entry(name.clone()).or_insert((job.id, batch));
        if owner != (job.id, batch) {
            return Some(crate::faults::locked_row(&name));
        }
    }
    None
}
