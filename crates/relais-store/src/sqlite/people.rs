//! What people see and decide: the overview, lists, single rows, and the end of a dead letter.

use relais_core::{
    browse::{LOOK_MAX, Listed, PREVIEW_CHARS, Reach},
    dead_letter::{DeadLetter, Origin, Resolution, STATUS_CONFLICT, Verdict},
    inbox::{InboxRow, InboxStatus},
    outbox::{OutboxRow, OutboxStatus},
    process::ProcessStatus,
    query::{Backlog, Count, Filter, Overview, PAGE_MAX, WorkerRow},
    store::{Changes, StoreError},
    text::sha256_hex,
};
use rusqlite::{Connection, Transaction};
use uuid::Uuid;

use super::{
    error,
    row::{all, change, first, limit},
};

/// Tables are counted row by row up to here; beyond, the span of their ids serves.
const EXACT_MAX: i64 = 20_000;

/// Open rows of each kind that are looked at for those behind parked keys or without a worker.
const PARKED_LOOK_MAX: i64 = 100_000;

/// Numbers that move when rows may have come, or workers came or left.
pub(super) fn changes(db: &Connection) -> Result<Changes, StoreError> {
    let changes = first(db, include_str!("sql/changes.sql"), [], |c| Changes {
        rows: u64::try_from(c.integer(0)).unwrap_or_default(),
        workers: u64::try_from(c.integer(1)).unwrap_or_default(),
        handed_over: u64::try_from(c.integer(2)).unwrap_or_default(),
    })?;
    Ok(changes.unwrap_or_default())
}

/// Everything at one moment.
pub(super) fn overview(db: &Connection) -> Result<Overview, StoreError> {
    let snapshot = db.unchecked_transaction().map_err(|e| error::store(&e))?;
    let mut overview =
        first(&snapshot, include_str!("sql/overview.sql"), [PARKED_LOOK_MAX], |c| Overview {
            now: c.some_time(0),
            schema_version: c.integer(1),
            dead_letters_open: c.count(2),
            parked_keys: c.count(3),
            timers_due: c.count(4),
            inbox_oldest: c.time(5),
            inbox_parked: c.count(6),
            processes_need_operator: c.count(7),
            inbox: Vec::new(),
            outbox: Vec::new(),
            backlogs: Vec::new(),
            processes: Vec::new(),
            unknown_types: Vec::new(),
            unserved_inboxes: Vec::new(),
            workers: Vec::new(),
        })?
        .expect("a SELECT without FROM gives one row");
    let inbox = counts(&snapshot, include_str!("sql/count_inbox.sql"))?;
    overview.inbox = InboxStatus::ALL.map(|s| count_of(s.as_str(), &inbox)).to_vec();
    let outbox = counts(&snapshot, include_str!("sql/count_outbox.sql"))?;
    overview.outbox = OutboxStatus::ALL.map(|s| count_of(s.as_str(), &outbox)).to_vec();
    let processes = counts(&snapshot, include_str!("sql/count_processes.sql"))?;
    overview.processes = ProcessStatus::ALL.map(|s| count_of(s.as_str(), &processes)).to_vec();
    overview.backlogs =
        all(&snapshot, include_str!("sql/backlogs.sql"), [PARKED_LOOK_MAX], |c| Backlog {
            destination: c.string(0),
            pending: c.count(1),
            oldest: c.time(2),
            parked: c.count(3),
        })?;
    let unknown = include_str!("sql/unknown_types.sql");
    overview.unknown_types = all(&snapshot, unknown, [limit(PAGE_MAX)], |c| Count {
        name: c.string(0),
        rows: c.count(1),
    })?;
    let unserved = include_str!("sql/unserved_inboxes.sql");
    overview.unserved_inboxes = all(&snapshot, unserved, [PARKED_LOOK_MAX], |c| Count {
        name: c.string(0),
        rows: c.count(1),
    })?;
    overview.workers = all(&snapshot, include_str!("sql/workers.sql"), [], |c| WorkerRow {
        scope: c.string(0),
        worker: c.string(1),
        lanes: c.count(2),
        alive: c.flag(3),
    })?;
    Ok(overview)
}

fn counts(db: &Connection, sql: &str) -> Result<Vec<Count>, StoreError> {
    all(db, sql, [EXACT_MAX], |c| Count { name: c.string(0), rows: c.count(1) })
}

fn count_of(name: &str, found: &[Count]) -> Count {
    let rows = found.iter().find(|count| count.name == name).map_or(0, |count| count.rows);
    Count { name: name.to_owned(), rows }
}

/// How much of each payload is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Whole,
    Preview,
}

impl Part {
    fn chars(self) -> Option<i64> {
        match self {
            Self::Whole => None,
            Self::Preview => Some(PREVIEW_CHARS),
        }
    }
}

pub(super) fn list_inbox(
    db: &Connection,
    filter: &Filter,
    part: Part,
) -> Result<Vec<Listed<InboxRow>>, StoreError> {
    let Filter { status, event_type, key, since_seconds: since, source, code, .. } = filter;
    let (before, down_to, page) = (row_id(&filter.before)?, row_id(&filter.down_to)?, page(filter));
    let chars = part.chars();
    let params =
        (status, event_type, key, since, before, page, source, code, chars, down_to, LOOK_MAX);
    all(db, include_str!("sql/list_inbox.sql"), params, |c| Listed {
        row: c.inbox(),
        payload_bytes: c.count(25),
    })
}

pub(super) fn list_outbox(
    db: &Connection,
    filter: &Filter,
    part: Part,
) -> Result<Vec<Listed<OutboxRow>>, StoreError> {
    let Filter { status, event_type, key, destination, since_seconds: since, code, .. } = filter;
    let (before, down_to, page) = (row_id(&filter.before)?, row_id(&filter.down_to)?, page(filter));
    let chars = part.chars();
    let params =
        (status, event_type, key, destination, since, before, page, code, chars, down_to, LOOK_MAX);
    all(db, include_str!("sql/list_outbox.sql"), params, |c| Listed {
        row: c.outbox(),
        payload_bytes: c.count(23),
    })
}

pub(super) fn list_dead_letters(
    db: &Connection,
    filter: &Filter,
    part: Part,
) -> Result<Vec<Listed<DeadLetter>>, StoreError> {
    let Filter { status, event_type, key, destination, source, code, .. } = filter;
    let (before, down_to) = (dead_letter_id(&filter.before)?, dead_letter_id(&filter.down_to)?);
    let (since, page, chars) = (filter.since_seconds, page(filter), part.chars());
    let params =
        (status, event_type, key, destination, since, before, page, source, code, chars, down_to);
    all(db, include_str!("sql/list_dead_letters.sql"), params, |c| Listed {
        row: c.dead_letter(),
        payload_bytes: c.count(24),
    })
}

fn page(filter: &Filter) -> i64 {
    limit(filter.limit.min(PAGE_MAX))
}

fn row_id(text: &Option<String>) -> Result<Option<i64>, StoreError> {
    let Some(text) = text else { return Ok(None) };
    let invalid =
        |_| StoreError::invalid(format!("`before` must be the id of a row, not `{text}`"));
    text.parse().map(Some).map_err(invalid)
}

fn dead_letter_id(text: &Option<String>) -> Result<Option<String>, StoreError> {
    let Some(text) = text else { return Ok(None) };
    let invalid =
        |_| StoreError::invalid(format!("`before` must be the id of a dead letter, not `{text}`"));
    Uuid::try_parse(text).map(|id| Some(id.to_string())).map_err(invalid)
}

pub(super) fn reach_inbox(db: &Connection, filter: &Filter) -> Result<Reach, StoreError> {
    let params = (&filter.status, row_id(&filter.before)?, LOOK_MAX, filter.since_seconds);
    let last = first(db, include_str!("sql/reach_inbox.sql"), params, |c| {
        reach(c.integer(0).to_string(), c.flag(1))
    })?;
    Ok(last.unwrap_or_default())
}

pub(super) fn reach_outbox(db: &Connection, filter: &Filter) -> Result<Reach, StoreError> {
    let params = (&filter.status, row_id(&filter.before)?, LOOK_MAX, filter.since_seconds);
    let last = first(db, include_str!("sql/reach_outbox.sql"), params, |c| {
        reach(c.integer(0).to_string(), c.flag(1))
    })?;
    Ok(last.unwrap_or_default())
}

pub(super) fn reach_dead_letters(db: &Connection, filter: &Filter) -> Result<Reach, StoreError> {
    let params = (&filter.status, dead_letter_id(&filter.before)?, LOOK_MAX, filter.since_seconds);
    let last = first(db, include_str!("sql/reach_dead_letters.sql"), params, |c| {
        reach(c.string(0), c.flag(1))
    })?;
    Ok(last.unwrap_or_default())
}

fn reach(last: String, more: bool) -> Reach {
    Reach { next: more.then(|| last.clone()), down_to: Some(last) }
}

pub(super) fn find_inbox(db: &Connection, id: &str) -> Result<Option<InboxRow>, StoreError> {
    first(db, include_str!("sql/find_inbox.sql"), (id.parse::<i64>().ok(), id), |c| c.inbox())
}

pub(super) fn find_outbox(db: &Connection, id: &str) -> Result<Option<OutboxRow>, StoreError> {
    let message_id = Uuid::try_parse(id).map_or_else(|_| id.to_owned(), |id| id.to_string());
    let params = (id.parse::<i64>().ok(), message_id);
    first(db, include_str!("sql/find_outbox.sql"), params, |c| c.outbox())
}

pub(super) fn find_dead_letter(
    db: &Connection,
    id: Uuid,
) -> Result<Option<DeadLetter>, StoreError> {
    first(db, include_str!("sql/find_dead_letter.sql"), [id.to_string()], |c| c.dead_letter())
}

/// What a verdict is about.
struct Resolved {
    origin: Option<Origin>,
    origin_id: i64,
    failed_status: String,
    message_id: String,
    payload: String,
}

/// Carries out a verdict, once.
pub(super) fn resolve(
    tx: &Transaction<'_>,
    dead_letter: Uuid,
    verdict: &Verdict,
) -> Result<bool, StoreError> {
    let id = dead_letter.to_string();
    let Verdict { resolution, actor, reason } = verdict;
    let sql = include_str!("sql/resolve_dead_letter.sql");
    let resolved = first(tx, sql, (&id, resolution.as_str(), actor, reason), |c| Resolved {
        origin: Origin::parse(&c.string(0)),
        origin_id: c.integer(1),
        failed_status: c.string(2),
        message_id: c.string(3),
        payload: c.string(4),
    })?;
    let Some(resolved) = resolved else { return Ok(false) };
    if *resolution == Resolution::Retried {
        retry(tx, &id, &resolved)?;
    }
    change(tx, include_str!("sql/hand_over_key.sql"), [&id])?;
    change(tx, include_str!("sql/free_key.sql"), [&id])?;
    let action = format!("dead-letter.{}", resolution.as_str());
    change(tx, include_str!("sql/audit.sql"), (actor, action, &id, reason))?;
    crate::fail_point!("resolve.before_commit");
    Ok(true)
}

fn retry(tx: &Transaction<'_>, id: &str, resolved: &Resolved) -> Result<(), StoreError> {
    match resolved.origin {
        Some(Origin::Inbox) if resolved.failed_status == STATUS_CONFLICT => {
            let digest = sha256_hex(resolved.payload.as_bytes());
            let message_id = format!("{}#{}", resolved.message_id, &digest[..8]);
            change(tx, include_str!("sql/accept_conflict.sql"), (id, message_id))?;
        }
        Some(Origin::Inbox) => {
            change(tx, include_str!("sql/reopen_inbox.sql"), [resolved.origin_id])?;
        }
        Some(Origin::Outbox) => {
            change(tx, include_str!("sql/reopen_outbox.sql"), [resolved.origin_id])?;
        }
        Some(Origin::Process) | None => return Err(process_goes_on_by_itself(resolved)),
    }
    Ok(())
}

fn process_goes_on_by_itself(resolved: &Resolved) -> StoreError {
    let Resolved { message_id, failed_status, .. } = resolved;
    let action = if failed_status == "PAUSED" { "resume" } else { "retry" };
    StoreError::invalid(format!(
        "this dead letter is about a process; set it going with `relais process {action} {message_id}`"
    ))
}
