//! Decisions of operators, each carried out and recorded in the audit log in one transaction.

use std::sync::Arc;

use relais_core::{
    async_trait,
    control::ControlOrder,
    dead_letter::{
        CODE_OPERATOR_FAILED, DeadLetterStore, DecisionAction, DecisionResult, OperatorDecision,
        Origin, Resolution, STATUS_CONFLICT, retried_conflict_id,
    },
    delivery::Problem,
    json,
    outbox::{OnDeadLetter, OutboxFate},
    process::{Change, ChangeOutcome},
    quarantine::HOLD_AFTER,
    query::SerdeErrors,
    repair::{Mode, Repair, ReprocessOutcome},
    store::{StoreError, StoreResult},
};
use rusqlite::Transaction;
use uuid::Uuid;

use super::{
    SqliteStore,
    adopt::{self, SqliteAdoptions},
    attempt, control,
    inbox::bury,
    inspect, process, repair,
    row::{change, first},
    waiting::{self, LeftKeys},
};
use crate::{adopt::SettledCopies, release::RELEASED_ROWS};

#[async_trait]
impl DeadLetterStore for SqliteStore {
    async fn decide(&self, decision: OperatorDecision) -> StoreResult<DecisionResult> {
        let adopted = Arc::clone(&self.inner.adopted);
        self.writer().run(move |tx| decide(tx, &adopted, &decision)).await
    }

    async fn undecodable_rows(&self, filter: SerdeErrors) -> StoreResult<Vec<i64>> {
        self.readers().read(move |db| repair::serde_errors(db, &filter)).await
    }

    async fn reprocess(
        &self,
        row: i64,
        repair: Repair,
        mode: Mode,
    ) -> StoreResult<ReprocessOutcome> {
        self.writer().run(move |tx| repair::repair(tx, row, &repair, mode)).await
    }

    async fn change_process(&self, change: Change) -> StoreResult<ChangeOutcome> {
        self.writer().run(move |tx| process::change_one(tx, &change)).await
    }

    async fn control(&self, order: ControlOrder) -> StoreResult<bool> {
        self.writer().run(move |tx| control::carry_out(tx, &order)).await
    }
}

/// The operator and the reason, for the audit log.
type Signature<'a> = (&'a str, &'a str);

fn decide(
    tx: &Transaction<'_>,
    adopted: &SqliteAdoptions,
    decision: &OperatorDecision,
) -> Result<DecisionResult, StoreError> {
    let tables = adopted.all();
    let by = (decision.actor.as_str(), decision.reason.as_str());
    match &decision.action {
        DecisionAction::Resolve { dead_letter, resolution } => {
            let result = resolve(tx, *dead_letter, *resolution, by)?;
            if let Some((copies, id)) = adopted_copy(tx, *dead_letter)? {
                adopt::write_back(tx, &tables, copies, &[id])?;
            }
            Ok(result)
        }
        DecisionAction::Edit { dead_letter, payload } => edit(tx, *dead_letter, payload, by),
        DecisionAction::DiscardUndecodable { row } => {
            let result = discard_undecodable(tx, *row, by)?;
            adopt::write_back(tx, &tables, SettledCopies::Inbox, &[*row])?;
            Ok(result)
        }
        DecisionAction::FailPending { row, on_dead_letter } => {
            let result = fail_pending(tx, *row, *on_dead_letter, by)?;
            adopt::write_back(tx, &tables, SettledCopies::Outbox(None), &[*row])?;
            Ok(result)
        }
        DecisionAction::SendNow { row } => send_now(tx, *row, by),
    }
}

/// Returns the row of a dead letter, whose result an adopted table may show.
fn adopted_copy(
    tx: &Transaction<'_>,
    dead_letter: Uuid,
) -> Result<Option<(SettledCopies<'static>, i64)>, StoreError> {
    let Some(letter) = inspect::find_dead_letter(tx, dead_letter)? else { return Ok(None) };
    let copies = match letter.origin {
        Origin::Outbox => SettledCopies::Outbox(None),
        Origin::Inbox if letter.failed_status != STATUS_CONFLICT => SettledCopies::Inbox,
        Origin::Inbox | Origin::Process => return Ok(None),
    };
    Ok(letter.origin_id.map(|id| (copies, id)))
}

pub(super) fn audit(
    tx: &Transaction<'_>,
    (actor, reason): Signature<'_>,
    action: &str,
    target: &str,
) -> Result<(), StoreError> {
    change(tx, include_str!("sql/audit.sql"), (actor, action, target, reason)).map(drop)
}

/// Returns why a decision about an open dead letter found none.
fn not_open(tx: &Transaction<'_>, id: Uuid) -> Result<DecisionResult, StoreError> {
    let found = inspect::find_dead_letter(tx, id)?;
    Ok(found.map_or(DecisionResult::NotFound, |_| DecisionResult::ResolvedBefore))
}

/// The columns of a dead letter that a decision needs.
struct ResolvedLetter {
    origin: Option<Origin>,
    origin_id: i64,
    failed_status: String,
    message_id: String,
    payload: String,
}

pub(super) fn resolve(
    tx: &Transaction<'_>,
    dead_letter: Uuid,
    resolution: Resolution,
    by: Signature<'_>,
) -> Result<DecisionResult, StoreError> {
    let id = dead_letter.to_string();
    let sql = include_str!("sql/resolve_dead_letter.sql");
    let letter = first(tx, sql, (&id, resolution.as_str(), by.0, by.1), |c| ResolvedLetter {
        origin: Origin::parse(&c.string(0)),
        origin_id: c.integer(1),
        failed_status: c.string(2),
        message_id: c.string(3),
        payload: c.string(4),
    })?;
    let Some(letter) = letter else { return not_open(tx, dead_letter) };
    if resolution == Resolution::Retried {
        reopen(tx, &id, &letter)?;
    }
    change(tx, include_str!("sql/hand_over_key.sql"), [&id])?;
    free_key(tx, &id)?;
    audit(tx, by, &format!("dead-letter.{}", resolution.as_str()), &id)?;
    crate::fail_point!("resolve.before_commit");
    Ok(DecisionResult::Done)
}

/// Frees the key of a dead letter, unless another one parks it now.
fn free_key(tx: &Transaction<'_>, id: &str) -> Result<(), StoreError> {
    let freed = first(tx, include_str!("sql/free_key.sql"), [id], |c| {
        (Origin::parse(&c.string(0)), c.string(1), c.string(2))
    })?;
    match freed {
        Some((Some(Origin::Outbox), destination, key)) => {
            waiting::release(tx, &destination, &key, RELEASED_ROWS)
        }
        _ => Ok(()),
    }
}

/// Makes the row due again, first in its key.
fn reopen(tx: &Transaction<'_>, id: &str, letter: &ResolvedLetter) -> Result<(), StoreError> {
    match letter.origin {
        Some(Origin::Inbox) if letter.failed_status == STATUS_CONFLICT => {
            let message_id = retried_conflict_id(&letter.message_id, &letter.payload);
            change(tx, include_str!("sql/accept_conflict.sql"), (id, message_id))?;
        }
        Some(Origin::Inbox) => {
            change(tx, include_str!("sql/reopen_inbox.sql"), [letter.origin_id])?;
        }
        Some(Origin::Outbox) => {
            change(tx, include_str!("sql/reopen_outbox.sql"), [letter.origin_id])?;
            waiting::enter(tx, letter.origin_id)?;
        }
        Some(Origin::Process) | None => return Err(retried_with_process(letter)),
    }
    Ok(())
}

fn retried_with_process(letter: &ResolvedLetter) -> StoreError {
    let ResolvedLetter { message_id, failed_status, .. } = letter;
    let action = if failed_status == "PAUSED" { "resume" } else { "retry" };
    StoreError::invalid(format!(
        "cannot retry the dead letter of a process by itself; use `relais process {action} {message_id}`"
    ))
}

fn edit(
    tx: &Transaction<'_>,
    id: Uuid,
    payload: &str,
    by: Signature<'_>,
) -> Result<DecisionResult, StoreError> {
    json::check(payload.as_bytes()).map_err(|e| StoreError::invalid(e.to_string()))?;
    let dead_letter = id.to_string();
    let sql = include_str!("sql/edit_dead_letter.sql");
    let edited = first(tx, sql, (&dead_letter, payload, by.0), |c| {
        (Origin::parse(&c.string(0)), c.integer(1), c.string(2))
    })?;
    let Some((origin, origin_id, failed_status)) = edited else { return not_open(tx, id) };
    match origin {
        // Its row is the message that came first; only the dead letter has the other content.
        Some(Origin::Inbox) if failed_status == STATUS_CONFLICT => {}
        Some(Origin::Inbox) => {
            change(tx, include_str!("sql/edit_inbox.sql"), (origin_id, payload))?;
        }
        Some(Origin::Outbox) => {
            change(tx, include_str!("sql/edit_outbox.sql"), (origin_id, payload))?;
        }
        Some(Origin::Process) | None => return Err(not_editable()),
    }
    audit(tx, by, "dead-letter.edited", &dead_letter)?;
    crate::fail_point!("edit.before_commit");
    Ok(DecisionResult::Done)
}

fn not_editable() -> StoreError {
    StoreError::invalid(
        "cannot edit the data of a process; retry, skip or compensate its step instead",
    )
}

pub(super) fn fail_pending(
    tx: &Transaction<'_>,
    id: i64,
    on_dead_letter: OnDeadLetter,
    by: Signature<'_>,
) -> Result<DecisionResult, StoreError> {
    let problem = Problem::new(CODE_OPERATOR_FAILED, by.1).fitted();
    let Some(row) = inspect::find_outbox(tx, &id.to_string())? else {
        return Ok(DecisionResult::NotFound);
    };
    let params = (id, &problem.code, &problem.message);
    if change(tx, include_str!("sql/fail_pending.sql"), params)? == 0 {
        return Ok(DecisionResult::ResolvedBefore);
    }
    let park = on_dead_letter.parks();
    let fate = OutboxFate::Dead { attempts: row.attempts, problem, park };
    attempt::record_outbox(tx, id, &fate, by.0)?;
    bury(tx, include_str!("sql/bury_outbox.sql"), id, by.0, park)?;
    let mut left = LeftKeys::default();
    left.leave(tx, id)?;
    left.release(tx, RELEASED_ROWS)?;
    // A job ends with its last row.
    if let Some(job_id) = &row.job_id
        && change(tx, include_str!("sql/finish_bulk.sql"), [job_id])? == 1
    {
        change(tx, include_str!("sql/announce_bulk.sql"), [job_id])?;
    }
    audit(tx, by, "outbox.failed", &id.to_string())?;
    crate::fail_point!("fail_row.before_commit");
    Ok(DecisionResult::Done)
}

fn send_now(
    tx: &Transaction<'_>,
    id: i64,
    by: Signature<'_>,
) -> Result<DecisionResult, StoreError> {
    if change(tx, include_str!("sql/send_now.sql"), (id, HOLD_AFTER))? == 0 {
        let found = inspect::find_outbox(tx, &id.to_string())?;
        return Ok(found.map_or(DecisionResult::NotFound, |_| DecisionResult::ResolvedBefore));
    }
    waiting::enter(tx, id)?;
    audit(tx, by, "outbox.sent-now", &id.to_string())?;
    Ok(DecisionResult::Done)
}

fn discard_undecodable(
    tx: &Transaction<'_>,
    id: i64,
    by: Signature<'_>,
) -> Result<DecisionResult, StoreError> {
    if change(tx, include_str!("sql/discard_serde_error.sql"), [id])? == 0 {
        let there = first(tx, include_str!("sql/inbox_to_repair.sql"), [id], |_| ())?.is_some();
        return Ok(if there { DecisionResult::ResolvedBefore } else { DecisionResult::NotFound });
    }
    let dead_letter = Uuid::new_v4().to_string();
    change(tx, include_str!("sql/bury_inbox.sql"), (&dead_letter, id, by.0))?;
    let resolve = include_str!("sql/resolve_dead_letter.sql");
    let resolution = Resolution::Discarded.as_str();
    first(tx, resolve, (&dead_letter, resolution, by.0, by.1), |_| ())?;
    audit(tx, by, "inbox.discarded", &id.to_string())?;
    crate::fail_point!("discard.before_commit");
    Ok(DecisionResult::Done)
}
