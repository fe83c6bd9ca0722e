//! The store at a glance.

use relais_core::{
    inbox::InboxStatus,
    outbox::OutboxStatus,
    process::ProcessStatus,
    query::{
        Backlog, Count, EXACT_COUNT_MAX, FAILING_READ_MAX, FailingRow, Overview, PAGE_MAX,
        WorkerRow,
    },
    store::StoreError,
};
use rusqlite::{Connection, Params};

use crate::sqlite::{
    error,
    row::{all, first, limit},
};

/// Tables are counted row by row up to here; beyond, the span of their ids serves.
const EXACT_MAX: i64 = EXACT_COUNT_MAX as i64;

/// Most open rows of each kind that are read to find those behind parked keys or without a worker.
const PARKED_LOOK_MAX: i64 = 100_000;

/// Reads everything in one snapshot.
pub(super) fn overview(db: &Connection) -> Result<Overview, StoreError> {
    let snapshot = db.unchecked_transaction().map_err(|e| error::store(&e))?;
    let mut overview =
        first(&snapshot, include_str!("../sql/overview.sql"), [PARKED_LOOK_MAX], |c| Overview {
            now: c.some_time("now"),
            schema_version: c.integer("schema_version"),
            dead_letters_open: c.count("dead_letters_open"),
            parked_keys: c.count("parked_keys"),
            timers_due: c.count("timers_due"),
            inbox_oldest: c.time("inbox_oldest"),
            inbox_parked: c.count("inbox_parked"),
            processes_need_operator: c.count("processes_need_operator"),
            inbox: Vec::new(),
            outbox: Vec::new(),
            backlogs: Vec::new(),
            processes: Vec::new(),
            unknown_types: Vec::new(),
            unserved_inboxes: Vec::new(),
            workers: Vec::new(),
        })?
        .expect("a SELECT without FROM gives one row");
    let inbox = counts(&snapshot, include_str!("../sql/count_inbox.sql"), [EXACT_MAX])?;
    overview.inbox = InboxStatus::ALL.map(|s| count_of(s.as_str(), &inbox)).to_vec();
    overview.backlogs = backlogs(&snapshot)?;
    let pending: u64 = overview.backlogs.iter().map(|backlog| backlog.pending).sum();
    let params = (EXACT_MAX, i64::try_from(pending).unwrap_or(i64::MAX));
    let outbox = counts(&snapshot, include_str!("../sql/count_outbox.sql"), params)?;
    overview.outbox = OutboxStatus::ALL.map(|s| count_of(s.as_str(), &outbox)).to_vec();
    let processes = counts(&snapshot, include_str!("../sql/count_processes.sql"), [EXACT_MAX])?;
    overview.processes = ProcessStatus::ALL.map(|s| count_of(s.as_str(), &processes)).to_vec();
    let unknown = include_str!("../sql/unknown_types.sql");
    overview.unknown_types = all(&snapshot, unknown, [limit(PAGE_MAX)], |c| Count {
        name: c.string(0),
        rows: c.count(1),
    })?;
    let unserved = include_str!("../sql/unserved_inboxes.sql");
    overview.unserved_inboxes = all(&snapshot, unserved, [PARKED_LOOK_MAX], |c| Count {
        name: c.string(0),
        rows: c.count(1),
    })?;
    overview.workers = all(&snapshot, include_str!("../sql/workers.sql"), [], |c| WorkerRow {
        scope: c.string("scope"),
        worker: c.string("worker"),
        lanes: c.count("lanes"),
        alive: c.flag("alive"),
    })?;
    Ok(overview)
}

fn backlogs(db: &Connection) -> Result<Vec<Backlog>, StoreError> {
    let positions =
        all(db, include_str!("../sql/backlogs.sql"), [], |c| (c.string(0), c.integer(1)))?;
    let mut backlogs = Vec::new();
    for (destination, position) in positions {
        let params = (&destination, position, PARKED_LOOK_MAX);
        let backlog = first(db, include_str!("../sql/backlog.sql"), params, |c| Backlog {
            destination: destination.clone(),
            pending: c.count("pending"),
            oldest: c.time("oldest"),
            parked: c.count("parked"),
            ..Backlog::default()
        })?;
        let Some(mut backlog) = backlog.filter(|backlog| backlog.pending > 0) else { continue };
        add_failing(db, &mut backlog)?;
        backlogs.push(backlog);
    }
    Ok(backlogs)
}

fn add_failing(db: &Connection, backlog: &mut Backlog) -> Result<(), StoreError> {
    let params = (&backlog.destination, limit(FAILING_READ_MAX));
    let found = first(db, include_str!("../sql/failing_keys.sql"), params, |c| {
        let row = FailingRow {
            id: c.integer("id"),
            msg_key: c.string("msg_key"),
            since: c.some_time("since"),
            attempts: c.attempts("attempts"),
            next_attempt_at: c.time("next_attempt_at"),
            error_code: c.text("error_code"),
            error_message: c.text("error_message"),
        };
        (c.count("keys"), row)
    })?;
    if let Some((keys, row)) = found {
        (backlog.failing_keys, backlog.failing) = (keys, Some(row));
    }
    Ok(())
}

fn counts(db: &Connection, sql: &str, params: impl Params) -> Result<Vec<Count>, StoreError> {
    all(db, sql, params, |c| Count { name: c.string(0), rows: c.count(1) })
}

fn count_of(name: &str, found: &[Count]) -> Count {
    let rows = found.iter().find(|count| count.name == name).map_or(0, |count| count.rows);
    Count { name: name.to_owned(), rows }
}
