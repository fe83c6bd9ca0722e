//! Processes, their logs and their timers.
//!
//! Invariant: a change is carried out whole, and only on a process that is as the change found it: the
//! check and the writes are under one write lock.

use std::time::Duration;

use relais_core::{
    inbox::{Content, NewInbox, in_inbox},
    message::Headers,
    process::{
        ActionRecord, Change, ChangeOutcome, DeadLetterChange, FiredTimers, Process, ProcessRef,
        SOURCE_SYSTEM, TIMER_FIRED, TimerChange, TimerFired, TimerOwner,
    },
    store::StoreError,
    time::Timestamp,
};
use rusqlite::{Connection, Transaction};
use uuid::Uuid;

use super::{
    SqliteStore, error, inbox,
    row::{all, change, first, json_array, limit, millis},
};

/// A change without an inbox row.
pub(super) fn change_one(
    tx: &Transaction<'_>,
    change: &Change,
) -> Result<ChangeOutcome, StoreError> {
    if !is_current(tx, change)? {
        return Ok(ChangeOutcome::Stale);
    }
    apply(tx, change, SOURCE_SYSTEM)?;
    crate::fail_point!("change_process.before_commit");
    Ok(ChangeOutcome::Done)
}

/// Polled often and seldom with something to do: only then the write lock is taken.
pub(super) async fn fire_timers(
    store: &SqliteStore,
    owner: TimerOwner,
    timers: usize,
) -> Result<FiredTimers, StoreError> {
    let types = owner.process_types.as_ref().map(|types| json_array(types));
    let polled = types.clone();
    match store.readers().read(move |db| next_timer(db, polled.as_deref())).await? {
        Some(Duration::ZERO) => {
            let fire = move |tx: &Transaction<'_>| fire(tx, &owner.inbox, types.as_deref(), timers);
            store.writer().run(fire).await
        }
        next => Ok(FiredTimers { fired: 0, next }),
    }
}

pub(super) fn load(
    db: &Connection,
    wanted: &[ProcessRef],
) -> Result<Vec<Option<Process>>, StoreError> {
    let snapshot = db.unchecked_transaction().map_err(|e| error::store(&e))?;
    let sql = include_str!("sql/load_processes.sql");
    let one = |wanted: &ProcessRef| {
        let params = match wanted {
            ProcessRef::Id(id) => (Some(id.to_string()), None, None),
            ProcessRef::Key { process_type, business_key } => {
                (None, Some(process_type), Some(business_key))
            }
        };
        first(&snapshot, sql, params, |c| c.process())
    };
    wanted.iter().map(one).collect()
}

/// Returns whether the process is as the change found it.
pub(super) fn is_current(tx: &Transaction<'_>, change: &Change) -> Result<bool, StoreError> {
    let Process { process_id, process_type, business_key, .. } = &change.process;
    let params = (process_id.to_string(), process_type, business_key, change.from);
    Ok(first(tx, include_str!("sql/lock_processes.sql"), params, |_| ())?.is_some())
}

/// Writes everything a change consists of; [`is_current`] has said yes.
pub(super) fn apply(tx: &Transaction<'_>, change: &Change, worker: &str) -> Result<(), StoreError> {
    let process_id = change.process.process_id.to_string();
    write_process(tx, change, &process_id)?;
    write_log(tx, change, &process_id)?;
    write_timer(tx, &change.timer, &process_id)?;
    write_dead_letter(tx, change, &process_id, worker)?;
    write_audit(tx, change, &process_id)?;
    inbox::send(tx, &change.messages).map(drop)
}

fn write_process(tx: &Transaction<'_>, new: &Change, process_id: &str) -> Result<(), StoreError> {
    let Process { status, current_step, data, retries, progress, version, key_hold, .. } =
        &new.process;
    let (status, key_hold) = (status.as_str(), key_hold.as_str());
    let written = if new.from == 0 {
        let Process { process_type, definition, business_key, .. } = &new.process;
        let params = rusqlite::params![
            process_id,
            process_type,
            definition,
            business_key,
            status,
            current_step,
            data,
            retries,
            progress,
            version,
            key_hold,
        ];
        change(tx, include_str!("sql/insert_processes.sql"), params)?
    } else {
        let params = rusqlite::params![
            process_id,
            new.from,
            status,
            current_step,
            data,
            retries,
            progress,
            version,
            key_hold,
        ];
        change(tx, include_str!("sql/update_processes.sql"), params)?
    };
    if written == 1 { Ok(()) } else { Err(changed_twice()) }
}

fn changed_twice() -> StoreError {
    StoreError::invalid("a process is changed twice by one row; join the two changes")
}

fn write_log(tx: &Transaction<'_>, new: &Change, process_id: &str) -> Result<(), StoreError> {
    for (seq, entry) in (new.from + 1..).zip(&new.log) {
        let event = serde_json::to_string(entry).expect("an entry is plain JSON");
        let params = (process_id, seq, entry.event.name(), event, &new.message_id);
        change(tx, include_str!("sql/log_processes.sql"), params)?;
    }
    Ok(())
}

fn write_timer(
    tx: &Transaction<'_>,
    timer: &TimerChange,
    process_id: &str,
) -> Result<(), StoreError> {
    match timer {
        TimerChange::Keep => {}
        TimerChange::Clear => {
            change(tx, include_str!("sql/clear_timers.sql"), [process_id])?;
        }
        TimerChange::Set(timer) => {
            let params =
                (process_id, &timer.step, timer.command_id.to_string(), millis(timer.after));
            change(tx, include_str!("sql/set_timers.sql"), params)?;
        }
    }
    Ok(())
}

fn write_dead_letter(
    tx: &Transaction<'_>,
    new: &Change,
    process_id: &str,
    worker: &str,
) -> Result<(), StoreError> {
    let Process { process_type, business_key, data, .. } = &new.process;
    match &new.dead_letter {
        DeadLetterChange::Keep => {}
        DeadLetterChange::Open { failed_status, problem, attempts } => {
            let params = rusqlite::params![
                Uuid::new_v4().to_string(),
                process_id,
                process_type,
                business_key,
                data,
                failed_status,
                problem.code,
                problem.message,
                attempts,
                worker,
            ];
            change(tx, include_str!("sql/open_process_dead_letters.sql"), params)?;
        }
        DeadLetterChange::Close { closure, actor, reason } => {
            let sql = include_str!("sql/close_process_dead_letters.sql");
            let closure = closure.as_str();
            let params = (process_id, actor, reason, closure);
            if let Some(id) = first(tx, sql, params, |c| c.string(0))? {
                let record = (actor, format!("dead-letter.{closure}"), id, reason);
                change(tx, include_str!("sql/audit.sql"), record)?;
            }
        }
    }
    Ok(())
}

fn write_audit(tx: &Transaction<'_>, new: &Change, process_id: &str) -> Result<(), StoreError> {
    if let Some(ActionRecord { action, actor, reason }) = &new.audit {
        change(tx, include_str!("sql/audit.sql"), (actor, action, process_id, reason))?;
    }
    Ok(())
}

fn fire(
    tx: &Transaction<'_>,
    inbox: &str,
    types: Option<&str>,
    timers: usize,
) -> Result<FiredTimers, StoreError> {
    change(tx, include_str!("sql/postpone_timers.sql"), (limit(timers), types))?;
    let sql = include_str!("sql/fire_timers.sql");
    let due = all(tx, sql, (limit(timers), types), |c| {
        let fired = TimerFired { process_id: c.uuid(0), step: c.string(1), command_id: c.uuid(2) };
        (fired, c.some_time(3))
    })?;
    for (timer, due_at) in &due {
        receive_timer(tx, inbox, timer, *due_at)?;
    }
    crate::fail_point!("fire_timers.before_commit");
    Ok(FiredTimers { fired: due.len() as u64, next: next_timer(tx, types)? })
}

/// One inbox row for a timer. A process that was removed and started again may have had one of its id.
fn receive_timer(
    tx: &Transaction<'_>,
    inbox: &str,
    timer: &TimerFired,
    due_at: Timestamp,
) -> Result<(), StoreError> {
    let key = timer.process_id.to_string();
    let mut message = NewInbox {
        source_system: in_inbox(inbox, SOURCE_SYSTEM),
        message_id: format!("timer:{}", timer.command_id),
        topic: String::new(),
        partition_num: 0,
        offset_num: 0,
        key_str: None,
        msg_key: key.clone(),
        aggregate_id: Some(key),
        event_type: Some(TIMER_FIRED.to_owned()),
        content: Content::Json(serde_json::to_string(timer).expect("a timer is plain JSON")),
        headers: Headers::default(),
        event_ts: Some(due_at),
    };
    if inbox::store(tx, &message)? == 0 {
        message.message_id = format!("{}:{}", message.message_id, Uuid::new_v4());
        inbox::store(tx, &message)?;
    }
    Ok(())
}

/// Until the first timer is due.
fn next_timer(db: &Connection, types: Option<&str>) -> Result<Option<Duration>, StoreError> {
    first(db, include_str!("sql/next_timer.sql"), [types], |c| {
        let micros = c.some_time(0).0 - c.some_time(1).0;
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    })
}
