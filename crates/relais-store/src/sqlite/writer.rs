//! The one thread that writes.
//!
//! Invariant: a job is run whole, inside `BEGIN IMMEDIATE ... COMMIT`, or not at all, whatever
//! becomes of the future that asked for it; its answer leaves only after the commit. Jobs that wait
//! at the same time share one commit (one sync of the disk), each behind a savepoint of its own, so
//! that one that fails takes nothing of the others along. A job without others behind it goes without
//! a savepoint, which costs a copy of every page it changes. A transaction that takes long keeps every worker
//! from its heartbeat, so it extends the leases that it held up.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::{Duration, Instant},
};

use relais_core::store::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::{error, row};

/// Jobs that may wait for the writer; callers beyond it wait to hand theirs in.
const QUEUE_MAX: usize = 256;
/// Jobs that may share one commit.
const GROUP_MAX: usize = 64;
/// The time in which a group takes more jobs: bounds the wait of other programs for the write lock.
const GROUP_TIME: Duration = Duration::from_millis(20);
/// A transaction that takes longer, such as that of a slow handler, extends the leases.
pub(super) const HEARTBEAT_DELAY_MAX: Duration = Duration::from_millis(100);
/// The statements that extend leases, with the milliseconds for which the write lock was held.
pub(super) const EXTEND_LEASES: [&str; 2] =
    [include_str!("sql/extend_leases.sql"), include_str!("sql/extend_bulk.sql")];

/// The decision of a job about its writes.
pub(super) enum Ending<T> {
    Keep(T),
    Undo(T),
}

/// Sends the answer, once it is known whether the commit held.
type Answer = Box<dyn FnOnce(Result<(), StoreError>)>;
/// Runs in the transaction, or learns why there is none.
type Job = Box<dyn FnOnce(Result<&Transaction<'_>, StoreError>) -> Ending<Answer> + Send>;

/// Hands jobs to the writer thread. The thread ends when the last handle is dropped and every job that
/// was handed in is done.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
}

impl Writer {
    pub(super) fn start(db: Connection) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel(QUEUE_MAX);
        thread::Builder::new()
            .name("relais-sqlite-writer".into())
            .spawn(move || serve(&db, queue))
            .map_err(|e| StoreError::unavailable(format!("no thread for the writer: {e}")))?;
        Ok(Self { jobs })
    }

    /// Runs `work` in a transaction: kept if it is `Ok`, undone if it is an error.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.run_to_end(move |tx| work(tx).map(Ending::Keep)).await
    }

    /// The same for work that may want its changes undone and still give an answer.
    pub(super) async fn run_to_end<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<Ending<T>, StoreError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |tx| {
            // The caller was dropped and does not need the answer; the job is done all the same.
            let send = move |result: Result<T, StoreError>| drop(answer.send(result));
            let ending = tx.and_then(|tx| {
                catch_unwind(AssertUnwindSafe(|| work(tx))).unwrap_or_else(|_| Err(panicked()))
            });
            match ending {
                Ok(Ending::Keep(value)) => {
                    Ending::Keep(Box::new(move |commit| send(commit.map(|()| value))))
                }
                Ok(Ending::Undo(value)) => Ending::Undo(Box::new(move |_| send(Ok(value)))),
                Err(error) => Ending::Undo(Box::new(move |_| send(Err(error)))),
            }
        });
        self.jobs.send(job).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

fn panicked() -> StoreError {
    StoreError::invalid("a statement of the store panicked; nothing was written")
}

fn stopped() -> StoreError {
    StoreError::unavailable("the writer thread has stopped; open the store again")
}

/// The size of the next group, decided by the last commit.
#[derive(Clone, Copy)]
enum Company {
    /// Up to [`GROUP_MAX`] jobs share a commit.
    Shared,
    /// The number of jobs that are committed one by one, to find the content that the database refused.
    Alone(usize),
}

impl Company {
    fn after_commit(self) -> Self {
        match self {
            Self::Shared | Self::Alone(0) => Self::Shared,
            Self::Alone(jobs) => Self::Alone(jobs - 1),
        }
    }
}

fn serve(db: &Connection, mut queue: mpsc::Receiver<Job>) {
    let mut company = Company::Shared;
    while let Some(job) = queue.blocking_recv() {
        company = match begin(db) {
            Err(error) => {
                finish(job(Err(error::store(&error))), Err(error::store(&error)));
                company
            }
            Ok(tx) if queue.is_empty() => serve_one(db, tx, job, company),
            Ok(tx) => match company {
                Company::Alone(_) => serve_one(db, tx, job, company),
                Company::Shared => serve_group(tx, job, &mut queue),
            },
        };
    }
}

fn begin(db: &Connection) -> rusqlite::Result<Transaction<'_>> {
    if !db.is_autocommit() {
        // A rollback that failed, on a disk that did: no caller was promised anything.
        db.execute_batch("ROLLBACK")?;
    }
    Transaction::new_unchecked(db, TransactionBehavior::Immediate)
}

/// One job, one commit.
fn serve_one(db: &Connection, tx: Transaction<'_>, job: Job, company: Company) -> Company {
    let begun = Instant::now();
    match job(Ok(&tx)) {
        Ending::Undo(answer) => {
            drop(tx);
            if begun.elapsed() > HEARTBEAT_DELAY_MAX
                && let Ok(tx) = begin(db)
            {
                extend_leases(&tx, begun.elapsed());
                // Without it the leases expire, as they would have.
                drop(tx.commit());
            }
            answer(Ok(()));
        }
        Ending::Keep(answer) if tx.is_autocommit() => answer(Err(rolled_back())),
        Ending::Keep(answer) => {
            extend_leases(&tx, begun.elapsed());
            answer(tx.commit().map_err(|e| error::store(&e)));
        }
    }
    company.after_commit()
}

/// Extends each lease that was live when the transaction began, by the time for which it kept its worker from
/// renewing it. A file whose tables are not migrated yet has no leases.
fn extend_leases(tx: &Transaction<'_>, held: Duration) {
    if held <= HEARTBEAT_DELAY_MAX {
        return;
    }
    for extend in EXTEND_LEASES {
        drop(row::change(tx, extend, [row::millis(held)]));
    }
}

/// One commit for `first` and what waits behind it.
fn serve_group(tx: Transaction<'_>, first: Job, queue: &mut mpsc::Receiver<Job>) -> Company {
    let begun = Instant::now();
    let mut answers = Vec::new();
    let mut next = Some(first);
    while let Some(job) = next.take() {
        match run_job(&tx, job) {
            Ok(answer) => answers.push(answer),
            Err(answer) => {
                answers.push(answer);
                answers.into_iter().for_each(|answer| answer(Err(rolled_back())));
                return Company::Shared;
            }
        }
        if answers.len() < GROUP_MAX && begun.elapsed() < GROUP_TIME {
            next = queue.try_recv().ok();
        }
    }
    extend_leases(&tx, begun.elapsed());
    commit_group(tx, answers)
}

/// Runs one job behind its savepoint. `Err` when the whole transaction is lost: SQLite rolls it back
/// by itself when the disk is full or fails.
fn run_job(tx: &Transaction<'_>, job: Job) -> Result<Answer, Answer> {
    if let Err(error) = control(tx, "SAVEPOINT relais_job") {
        let (Ending::Keep(answer) | Ending::Undo(answer)) = job(Err(error::store(&error)));
        return Err(answer);
    }
    let (answer, closed) = match job(Ok(tx)) {
        Ending::Keep(answer) => (answer, Ok(())),
        Ending::Undo(answer) => (answer, control(tx, "ROLLBACK TO relais_job")),
    };
    match closed.and_then(|()| control(tx, "RELEASE relais_job")) {
        Ok(()) => Ok(answer),
        Err(_) => Err(answer),
    }
}

fn control(tx: &Transaction<'_>, statement: &str) -> rusqlite::Result<()> {
    tx.prepare_cached(statement)?.execute([]).map(drop)
}

fn commit_group(tx: Transaction<'_>, answers: Vec<Answer>) -> Company {
    let Err(error) = tx.commit() else {
        answers.into_iter().for_each(|answer| answer(Ok(())));
        return Company::Shared;
    };
    // A deferred foreign key of the user's tables shows only now, and not whose it is.
    let suspect = answers.len() > 1 && error::is_refusal(&error);
    for answer in answers {
        answer(Err(if suspect { rolled_back() } else { error::store(&error) }));
    }
    if suspect { Company::Alone(QUEUE_MAX) } else { Company::Shared }
}

fn finish(ending: Ending<Answer>, result: Result<(), StoreError>) {
    let (Ending::Keep(answer) | Ending::Undo(answer)) = ending;
    answer(result);
}

fn rolled_back() -> StoreError {
    StoreError::unavailable(
        "the transaction was rolled back together with others; try again, and check for a full disk",
    )
}
