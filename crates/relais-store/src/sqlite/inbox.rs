//! Received messages: stored once, fetched in order, settled under the fence.

use base64::{Engine, engine::general_purpose::STANDARD};
use relais_core::{
    delivery::Problem,
    inbox::{
        AcceptOutcome, Content, InboxFate, InboxRow, InboxSettlement, InboxStatus, NewInbox,
        STAGE_SERDE, SourcePosition,
    },
    lane::Fence,
    message::NewMessage,
    store::{Fetch, OutOfOrder, SettleOutcome, StoreError},
};
use rusqlite::{Connection, Transaction};
use uuid::Uuid;

use super::{
    adopt::{self, SqliteAdoptions},
    attempt,
    lanes::tally,
    low_water_mark::{Marks, Place},
    process,
    row::{Cells, all, change, first, json_array, lane_bits, limit, millis, time_text},
    transaction,
};
use crate::adopt::{SettledCopies, leaves_the_result_to_its_copy};

/// Stores what is new, and keeps what contradicts a message stored before.
pub(super) fn accept(
    tx: &Transaction<'_>,
    messages: &[NewInbox],
    positions: &[SourcePosition],
) -> Result<Vec<AcceptOutcome>, StoreError> {
    let accepted = messages.iter().map(|message| accept_one(tx, message)).collect();
    for SourcePosition { source, partition, position } in positions {
        change(tx, include_str!("sql/set_position.sql"), (source, partition, position))?;
    }
    crate::fail_point!("accept.before_commit");
    accepted
}

/// The columns that differ between decoded and undecodable content.
struct StoredContent<'a> {
    status: InboxStatus,
    payload: Option<&'a str>,
    raw: Option<String>,
    problem: Option<&'a Problem>,
}

impl<'a> StoredContent<'a> {
    fn new(content: &'a Content) -> Self {
        match content {
            Content::Json(json) => Self {
                status: InboxStatus::Received,
                payload: Some(json),
                raw: None,
                problem: None,
            },
            Content::Undecodable { bytes, problem } => Self {
                status: InboxStatus::SerdeError,
                payload: None,
                raw: Some(STANDARD.encode(bytes)),
                problem: Some(problem),
            },
        }
    }
}

fn accept_one(tx: &Transaction<'_>, message: &NewInbox) -> Result<AcceptOutcome, StoreError> {
    if store(tx, message)? == 1 {
        return Ok(AcceptOutcome::Stored);
    }
    let stored = StoredContent::new(&message.content);
    let compare = include_str!("sql/compare_inbox.sql");
    let before = (&message.source_system, &message.message_id, stored.payload, &stored.raw);
    match first(tx, compare, before, |c| (c.integer(0), c.flag(1)))? {
        Some((_, true)) => Ok(AcceptOutcome::Duplicate),
        Some((id, false)) => keep_conflict(tx, message, &stored, id),
        None => Err(StoreError::unavailable("a message was neither stored nor found; try again")),
    }
}

/// One row, or none if its message is there already.
pub(super) fn store(tx: &Transaction<'_>, message: &NewInbox) -> Result<u64, StoreError> {
    let stored = StoredContent::new(&message.content);
    let params = rusqlite::params![
        message.message_id,
        message.source_system,
        message.topic,
        message.partition_num,
        message.offset_num,
        message.key_str,
        message.msg_key,
        message.aggregate_id,
        message.event_type,
        stored.payload,
        message.headers.to_json(),
        stored.raw,
        message.event_ts.map(time_text),
        stored.status.as_str(),
        stored.problem.map(|_| STAGE_SERDE),
        stored.problem.map(|problem| &problem.code),
        stored.problem.map(|problem| &problem.message),
    ];
    change(tx, include_str!("sql/accept_inbox.sql"), params)
}

fn keep_conflict(
    tx: &Transaction<'_>,
    message: &NewInbox,
    stored: &StoredContent<'_>,
    before: i64,
) -> Result<AcceptOutcome, StoreError> {
    let raw = stored.raw.as_ref().map(|raw| serde_json::json!(raw).to_string());
    let params = rusqlite::params![
        Uuid::new_v4().to_string(),
        before,
        message.message_id,
        message.source_system,
        message.event_type,
        message.msg_key,
        stored.payload.or(raw.as_deref()),
        message.headers.to_json(),
    ];
    change(tx, include_str!("sql/keep_conflict.sql"), params)?;
    Ok(AcceptOutcome::Conflict)
}

pub(super) fn positions(db: &Connection, source: &str) -> Result<Vec<SourcePosition>, StoreError> {
    all(db, include_str!("sql/positions.sql"), [source], |c| SourcePosition {
        source: c.string(0),
        partition: c.string(1),
        position: c.integer(2),
    })
}

pub(super) fn fetch(
    db: &Connection,
    marks: &Marks,
    fetch: &Fetch,
) -> Result<Vec<InboxRow>, StoreError> {
    let (skip_keys, skip_ids) = (json_array(&fetch.skip_keys), json_array(&fetch.skip_ids));
    let (inbox, bytes) = (fetch.scope.inbox().unwrap_or_default(), limit(fetch.inbox_bytes()?));
    let advance = include_str!("sql/advance_inbox_mark.sql");
    marks.fetch(db, fetch, Place { origin: "inbox", destination: inbox, advance }, |from| {
        let (lanes, rows) = (lane_bits(&fetch.lanes), limit(fetch.limit));
        let params = (lanes, rows, skip_keys, skip_ids, inbox, bytes, from);
        all(db, include_str!("sql/fetch_inbox.sql"), params, |c| c.inbox())
    })
}

/// Settles the rows whose lane is still ours; what follows from a refused or stale row is not written.
pub(super) fn settle(
    tx: &Transaction<'_>,
    adopted: &SqliteAdoptions,
    fence: &Fence,
    rows: &[InboxSettlement],
) -> Result<SettleOutcome, StoreError> {
    let scope = fence.scope.to_string();
    let mut settled = SettleOutcome::default();
    let mut settled_copies = Vec::new();
    for row in rows {
        if is_stale(tx, &row.fate)? {
            settled.stale.push(row.id);
            continue;
        }
        let (reached, ignored) = settle_one(tx, &scope, &fence.worker, row, &mut settled_copies)?;
        if let Some(OutOfOrder { id, problem, .. }) = &ignored {
            attempt::record_ignored(tx, *id, problem, &fence.worker)?;
        }
        settled.ignored.extend(ignored);
        if reached == 1 {
            attempt::record_inbox(tx, row.id, &row.fate, &fence.worker)?;
        }
        tally(&mut settled, reached);
    }
    if adopted.concern(SettledCopies::Inbox) {
        let own = rows.iter().filter(|row| !leaves_the_result_to_its_copy(&row.fate));
        let ids: Vec<i64> = own.map(|row| row.id).chain(settled_copies).collect();
        adopt::write_back(tx, &adopted.all(), SettledCopies::Inbox, &ids)?;
    }
    crate::fail_point!("settle_inbox.before_commit");
    Ok(settled)
}

/// Returns whether a process of the row has changed. Read before anything is written: there is no half
/// of a row to take back.
fn is_stale(tx: &Transaction<'_>, fate: &InboxFate) -> Result<bool, StoreError> {
    let InboxFate::Processed { changes, .. } = fate else { return Ok(false) };
    for change in changes {
        if !process::is_current(tx, change)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `settled_copies` gets the copies that were there already and have a result, which rows of adopted tables get.
fn settle_one(
    tx: &Transaction<'_>,
    scope: &str,
    worker: &str,
    row: &InboxSettlement,
    settled_copies: &mut Vec<i64>,
) -> Result<(u64, Option<OutOfOrder>), StoreError> {
    let InboxSettlement { id, epoch, fate, .. } = row;
    let reached = match fate {
        InboxFate::Processed { messages, changes, copies } => {
            let marked = mark_processed(tx, *id, scope, worker, *epoch)?;
            crate::fail_point!("settle_inbox.after_mark");
            if marked == 0 {
                return Ok((0, None));
            }
            let older = send(tx, messages)?;
            changes.iter().try_for_each(|change| process::apply(tx, change, worker))?;
            for inbox in copies {
                let params = (id, inbox, leaves_the_result_to_its_copy(fate));
                let found = |c: &Cells<'_, '_>| (c.integer(0), c.flag(1));
                let copy = first(tx, include_str!("sql/copy_inbox.sql"), params, found)?;
                settled_copies.extend(copy.filter(|(_, is_settled)| *is_settled).map(|(id, _)| id));
            }
            return Ok((marked, (!older.is_empty()).then(|| OutOfOrder::new(*id, &older))));
        }
        InboxFate::Ignored { .. } => mark_processed(tx, *id, scope, worker, *epoch)?,
        InboxFate::Retry { attempts, pause, problem } => {
            let Problem { code, message } = problem;
            let params = (id, scope, worker, epoch, attempts, millis(*pause), code, message, 0);
            change(tx, include_str!("sql/retry_inbox.sql"), params)?
        }
        InboxFate::Wait { pause, problem, lost_workers } => {
            let (none, Problem { code, message }) = (None::<u32>, problem);
            let pause = millis(*pause);
            let params = (id, scope, worker, epoch, none, pause, code, message, lost_workers);
            change(tx, include_str!("sql/retry_inbox.sql"), params)?
        }
        InboxFate::Dead { attempts, problem, park } => {
            let Problem { code, message } = problem;
            let params = (id, scope, worker, epoch, attempts, code, message);
            let failed = change(tx, include_str!("sql/fail_inbox.sql"), params)?;
            if failed == 1 {
                bury(tx, include_str!("sql/bury_inbox.sql"), *id, worker, *park)?;
            }
            failed
        }
    };
    Ok((reached, None))
}

/// The row becomes `PROCESSED` if it is open and the lane is ours: one row changed, or none.
pub(super) fn mark_processed(
    tx: &Transaction<'_>,
    id: i64,
    scope: &str,
    worker: &str,
    epoch: i64,
) -> Result<u64, StoreError> {
    change(tx, include_str!("sql/mark_processed.sql"), (id, scope, worker, epoch))
}

/// Writes the messages, but none that is older than what was seen of its aggregate: those come back.
pub(super) fn send<'a>(
    tx: &Transaction<'_>,
    messages: &'a [NewMessage],
) -> Result<Vec<&'a NewMessage>, StoreError> {
    let mut older = Vec::new();
    let see = include_str!("sql/see_version.sql");
    for message in messages {
        let current = match message.as_of_version {
            None => true,
            Some(version) => {
                change(tx, see, (&message.aggregate_type, &message.aggregate_id, version))? == 1
            }
        };
        if current {
            transaction::enqueue(tx, std::slice::from_ref(message))?;
        } else {
            older.push(message);
        }
    }
    Ok(older)
}

/// Makes the dead letter of a row that just failed, and holds its key back if asked to.
pub(super) fn bury(
    tx: &Transaction<'_>,
    sql: &str,
    id: i64,
    worker: &str,
    park: bool,
) -> Result<(), StoreError> {
    crate::fail_point!("bury.before_letter");
    let dead_letter = Uuid::new_v4().to_string();
    change(tx, sql, (&dead_letter, id, worker))?;
    if park {
        change(tx, include_str!("sql/parks_key.sql"), [&dead_letter])?;
        change(tx, include_str!("sql/park_key.sql"), [&dead_letter])?;
    }
    Ok(())
}
