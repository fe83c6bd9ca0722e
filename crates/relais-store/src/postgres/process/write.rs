//! Carrying changes out: one statement for each kind of row, all in one round trip.
//!
//! Invariant: the processes are locked and as the changes found them. Where that fails all the same,
//! because another transaction began the same process or took its business key at this moment, nothing
//! is committed and the whole transaction runs again. No statement needs the rows of another one, so
//! their order does not matter.

use deadpool_postgres::Transaction;
use futures_util::future::{try_join, try_join3, try_join4};
use relais_core::{
    delivery::Problem,
    process::{ActionRecord, Change, Closure, DeadLetterChange, Process, Timer, TimerChange},
    store::StoreError,
};
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use crate::postgres::{error::Failure, fence::Value, row};

/// Changes, sorted by what they write.
#[derive(Debug, Default)]
pub(in crate::postgres) struct SortedChanges<'a> {
    all: Vec<&'a Change>,
    begun: Vec<&'a Change>,
    moved: Vec<&'a Change>,
    timers_set: Vec<(Uuid, &'a Timer)>,
    timers_cleared: Vec<Uuid>,
    dead_letters_opened: Vec<OpenedDeadLetter<'a>>,
    dead_letters_closed: Vec<ClosedDeadLetter<'a>>,
}

#[derive(Debug)]
struct OpenedDeadLetter<'a> {
    process: &'a Process,
    failed_status: &'static str,
    problem: &'a Problem,
    attempts: u32,
}

#[derive(Debug)]
struct ClosedDeadLetter<'a> {
    process_id: Uuid,
    closure: Closure,
    actor: &'a str,
    reason: &'a str,
}

impl<'a> SortedChanges<'a> {
    pub(in crate::postgres) fn of(all: Vec<&'a Change>) -> Self {
        let mut changes = Self::default();
        for change in &all {
            changes.sort(change);
        }
        changes.all = all;
        changes
    }

    fn sort(&mut self, change: &'a Change) {
        let process = &change.process;
        match change.from {
            0 => self.begun.push(change),
            _ => self.moved.push(change),
        }
        match &change.timer {
            TimerChange::Keep => {}
            TimerChange::Clear => self.timers_cleared.push(process.process_id),
            TimerChange::Set(timer) => self.timers_set.push((process.process_id, timer)),
        }
        match &change.dead_letter {
            DeadLetterChange::Keep => {}
            DeadLetterChange::Open { failed_status, problem, attempts } => {
                let attempts = *attempts;
                self.dead_letters_opened.push(OpenedDeadLetter {
                    process,
                    failed_status,
                    problem,
                    attempts,
                });
            }
            DeadLetterChange::Close { closure, actor, reason } => {
                let (process_id, closure) = (process.process_id, *closure);
                self.dead_letters_closed.push(ClosedDeadLetter {
                    process_id,
                    closure,
                    actor,
                    reason,
                });
            }
        }
    }

    /// Everything but the messages. `worker` is who gives up, where a dead letter is opened.
    pub(in crate::postgres) async fn write(
        &self,
        transaction: &Transaction<'_>,
        worker: &str,
    ) -> Result<(), Failure> {
        let processes =
            try_join3(self.begin(transaction), self.move_on(transaction), self.log(transaction));
        let others = try_join4(
            self.set_timers(transaction),
            self.clear_timers(transaction),
            self.open_dead_letters(transaction, worker),
            self.close_dead_letters(transaction),
        );
        try_join(processes, others).await?;
        self.audit(transaction).await
    }

    /// Only operators' actions are in the audit, and they come one at a time.
    async fn audit(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        for change in &self.all {
            if let Some(ActionRecord { action, actor, reason }) = &change.audit {
                let target = change.process.process_id.to_string();
                transaction.execute(sql!("audit"), &[actor, action, &target, reason]).await?;
            }
        }
        Ok(())
    }

    async fn begin(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        let begun = &self.begun;
        let values: [Value<'_>; 11] = [
            &column(begun, |change| change.process.process_id),
            &column(begun, |change| &change.process.process_type),
            &column(begun, |change| change.process.definition),
            &column(begun, |change| &change.process.business_key),
            &column(begun, |change| change.process.status.as_str()),
            &column(begun, |change| &change.process.current_step),
            &column(begun, |change| &change.process.data),
            &column(begun, |change| row::attempts(change.process.retries)),
            &column(begun, |change| &change.process.progress),
            &column(begun, |change| version(change)),
            &column(begun, |change| change.process.key_hold.as_str()),
        ];
        run(transaction, sql!("insert_processes"), begun.len(), &values).await
    }

    async fn move_on(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        let moved = &self.moved;
        let values: [Value<'_>; 9] = [
            &column(moved, |change| change.process.process_id),
            &column(moved, |change| change.from),
            &column(moved, |change| change.process.status.as_str()),
            &column(moved, |change| &change.process.current_step),
            &column(moved, |change| &change.process.data),
            &column(moved, |change| row::attempts(change.process.retries)),
            &column(moved, |change| &change.process.progress),
            &column(moved, |change| version(change)),
            &column(moved, |change| change.process.key_hold.as_str()),
        ];
        run(transaction, sql!("update_processes"), moved.len(), &values).await
    }

    async fn log(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        let numbered = |change: &&'a Change| {
            let change = *change;
            (change.from + 1..).zip(&change.log).map(move |(seq, entry)| (change, seq, entry))
        };
        let entries: Vec<_> = self.all.iter().flat_map(numbered).collect();
        let json = |entry| serde_json::to_string(entry).expect("an entry is plain JSON");
        let values: [Value<'_>; 5] = [
            &column(&entries, |(change, ..)| change.process.process_id),
            &column(&entries, |(_, seq, _)| *seq),
            &column(&entries, |(.., entry)| entry.event.name()),
            &column(&entries, |(.., entry)| json(entry)),
            &column(&entries, |(change, ..)| &change.message_id),
        ];
        run(transaction, sql!("log_processes"), entries.len(), &values).await
    }

    async fn set_timers(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        let timers = &self.timers_set;
        let values: [Value<'_>; 4] = [
            &column(timers, |(process_id, _)| *process_id),
            &column(timers, |(_, timer)| &timer.step),
            &column(timers, |(_, timer)| timer.command_id),
            &column(timers, |(_, timer)| row::millis(timer.after)),
        ];
        run(transaction, sql!("set_timers"), timers.len(), &values).await
    }

    async fn clear_timers(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        let values: [Value<'_>; 1] = [&self.timers_cleared];
        let gone = self.timers_cleared.len();
        run_any(transaction, sql!("clear_timers"), gone, &values).await.map(drop)
    }

    async fn open_dead_letters(
        &self,
        transaction: &Transaction<'_>,
        worker: &str,
    ) -> Result<(), Failure> {
        let opened = &self.dead_letters_opened;
        let values: [Value<'_>; 9] = [
            &column(opened, |dead| dead.process.process_id),
            &column(opened, |dead| &dead.process.process_type),
            &column(opened, |dead| &dead.process.business_key),
            &column(opened, |dead| &dead.process.data),
            &column(opened, |dead| dead.failed_status),
            &column(opened, |dead| &dead.problem.code),
            &column(opened, |dead| &dead.problem.message),
            &column(opened, |dead| row::attempts(dead.attempts)),
            &worker,
        ];
        run(transaction, sql!("open_process_dead_letters"), opened.len(), &values).await
    }

    async fn close_dead_letters(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        let closed = &self.dead_letters_closed;
        let values: [Value<'_>; 4] = [
            &column(closed, |closed| closed.process_id),
            &column(closed, |closed| closed.actor),
            &column(closed, |closed| closed.reason),
            &column(closed, |closed| closed.closure.as_str()),
        ];
        let sql = sql!("close_process_dead_letters");
        run_any(transaction, sql, closed.len(), &values).await.map(drop)
    }
}

fn column<'v, T, C>(rows: &'v [T], pick: impl Fn(&'v T) -> C) -> Vec<C> {
    rows.iter().map(pick).collect()
}

/// By its definition: the number of the last log entry.
fn version(change: &Change) -> i64 {
    change.from + row::count(change.log.len())
}

/// Runs a statement that touches every one of its rows.
async fn run(
    transaction: &Transaction<'_>,
    statement: &str,
    rows: usize,
    values: &[Value<'_>],
) -> Result<(), Failure> {
    match run_any(transaction, statement, rows, values).await? {
        touched if touched == rows as u64 => Ok(()),
        _ => Err(moved_on()),
    }
}

/// Runs a statement, if there is anything for it; how many rows it touched.
async fn run_any(
    transaction: &Transaction<'_>,
    statement: &str,
    rows: usize,
    values: &[Value<'_>],
) -> Result<u64, Failure> {
    if rows == 0 {
        return Ok(0);
    }
    let statement = transaction.prepare_cached(statement).await?;
    transaction.execute(&statement, values).await.map_err(|error| {
        if error.code() == Some(&SqlState::UNIQUE_VIOLATION) { moved_on() } else { error.into() }
    })
}

fn moved_on() -> Failure {
    let text = "a process was begun or moved on at the same moment; try again";
    Failure::Again(StoreError::unavailable(text))
}
