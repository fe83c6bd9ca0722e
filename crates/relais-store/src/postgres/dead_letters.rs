//! Decisions of operators, each carried out and recorded in the audit log in one transaction.
//!
//! Invariant: the rows are written before the audit's id is drawn: see [`super::low_water_mark`].

use deadpool_postgres::Transaction;
use relais_core::{
    async_trait,
    control::ControlOrder,
    dead_letter::{
        CODE_OPERATOR_FAILED, DeadLetterStore, DecisionAction, DecisionResult, OperatorDecision,
        Origin, Resolution, STATUS_CONFLICT, retried_conflict_id,
    },
    delivery::Problem,
    inbox::InboxStatus,
    json,
    outbox::OnDeadLetter,
    process::{Change, ChangeOutcome},
    quarantine::HOLD_AFTER,
    query::SerdeErrors,
    repair::{Mode, Repair, ReprocessOutcome},
    store::{StoreError, StoreResult},
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{
    PostgresStore,
    adopt::{self, PostgresAdoptions},
    control,
    error::Failure,
    outbox, process, repair, row,
    session::Client,
};
use crate::{adopt::SettledCopies, release::RELEASED_ROWS};

#[async_trait]
impl DeadLetterStore for PostgresStore {
    async fn decide(&self, decision: OperatorDecision) -> StoreResult<DecisionResult> {
        self.others()
            .run(decision, |client, shared, decision| {
                Box::pin(decide(client, &shared.adopted, decision))
            })
            .await
    }

    async fn undecodable_rows(&self, filter: SerdeErrors) -> StoreResult<Vec<i64>> {
        self.others()
            .run(filter, |client, _, filter| Box::pin(repair::serde_errors(client, filter)))
            .await
    }

    async fn reprocess(
        &self,
        row: i64,
        repair: Repair,
        mode: Mode,
    ) -> StoreResult<ReprocessOutcome> {
        self.others()
            .run(repair, move |client, _, repair| {
                Box::pin(repair::repair(client, row, repair, mode))
            })
            .await
    }

    async fn change_process(&self, change: Change) -> StoreResult<ChangeOutcome> {
        self.engine()
            .run(change, |client, _, change| Box::pin(process::change(client, change)))
            .await
    }

    async fn control(&self, order: ControlOrder) -> StoreResult<bool> {
        self.others()
            .run(order, |client, _, order| Box::pin(control::carry_out(client, order)))
            .await
    }
}

/// The operator and the reason, for the audit log.
type Signature<'a> = (&'a str, &'a str);

async fn decide(
    client: &mut Client<'_>,
    adopted: &PostgresAdoptions,
    decision: &OperatorDecision,
) -> Result<DecisionResult, Failure> {
    let by = (decision.actor.as_str(), decision.reason.as_str());
    match &decision.action {
        DecisionAction::Resolve { dead_letter, resolution } => {
            resolve(client, adopted, *dead_letter, *resolution, by).await
        }
        DecisionAction::Edit { dead_letter, payload } => {
            edit(client, *dead_letter, payload, by).await
        }
        DecisionAction::DiscardUndecodable { row } => {
            discard_undecodable(client, adopted, *row, by).await
        }
        DecisionAction::FailPending { row, on_dead_letter } => {
            fail_pending(client, adopted, *row, *on_dead_letter, by).await
        }
        DecisionAction::SendNow { row } => send_now(client, *row, by).await,
    }
}

pub(super) async fn audit(
    transaction: &Transaction<'_>,
    (actor, reason): Signature<'_>,
    action: &str,
    target: &str,
) -> Result<(), Failure> {
    transaction.execute(sql!("audit"), &[&actor, &action, &target, &reason]).await?;
    Ok(())
}

/// Returns why a decision about an open dead letter found none.
async fn not_open(transaction: &Transaction<'_>, id: Uuid) -> Result<DecisionResult, Failure> {
    let found = transaction.query_opt(sql!("find_dead_letter"), &[&id]).await?;
    Ok(found.map_or(DecisionResult::NotFound, |_| DecisionResult::ResolvedBefore))
}

async fn resolve(
    client: &mut Client<'_>,
    adopted: &PostgresAdoptions,
    id: Uuid,
    resolution: Resolution,
    by: Signature<'_>,
) -> Result<DecisionResult, Failure> {
    let mut transaction = client.transaction().await?;
    let Some(letter) = resolve_in(&transaction, id, resolution, by).await? else {
        return not_open(&transaction, id).await;
    };
    let copies = match letter.origin {
        Origin::Outbox => Some(SettledCopies::Outbox(None)),
        Origin::Inbox if !letter.conflict => Some(SettledCopies::Inbox),
        Origin::Inbox | Origin::Process => None,
    };
    if let Some(copies) = copies {
        let ids: Vec<i64> = letter.origin_id.into_iter().collect();
        adopt::write_back(&mut transaction, &adopted.all(), copies, &ids).await?;
    }
    crate::fail_point!("resolve.before_commit");
    transaction.commit().await?;
    Ok(DecisionResult::Done)
}

/// Resolves an open dead letter; `None` if there is none of this id.
pub(super) async fn resolve_in(
    transaction: &Transaction<'_>,
    id: Uuid,
    resolution: Resolution,
    by: Signature<'_>,
) -> Result<Option<ResolvedLetter>, Failure> {
    let values: [&(dyn ToSql + Sync); 4] = [&id, &resolution.as_str(), &by.0, &by.1];
    let Some(found) = transaction.query_opt(sql!("resolve_dead_letter"), &values).await? else {
        return Ok(None);
    };
    let letter = ResolvedLetter {
        id,
        origin: row::known(&found, 0)?,
        origin_id: found.get(1),
        message_id: found.get(2),
        destination: found.get::<_, Option<_>>(3).unwrap_or_default(),
        msg_key: found.get(4),
        payload: found.get::<_, Option<_>>(5).unwrap_or_default(),
        conflict: found.get::<_, &str>(6) == STATUS_CONFLICT,
    };
    if resolution == Resolution::Retried {
        letter.reopen(transaction).await?;
    }
    if letter.origin != Origin::Process {
        letter.free_key(transaction).await?;
    }
    audit(transaction, by, &format!("dead-letter.{}", resolution.as_str()), &id.to_string())
        .await?;
    Ok(Some(letter))
}

/// The columns of a dead letter that a decision needs.
pub(super) struct ResolvedLetter {
    id: Uuid,
    origin: Origin,
    origin_id: Option<i64>,
    message_id: String,
    destination: String,
    msg_key: String,
    payload: String,
    conflict: bool,
}

impl ResolvedLetter {
    /// Makes the row due again, first in its key.
    async fn reopen(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        if self.conflict {
            let message_id = retried_conflict_id(&self.message_id, &self.payload);
            transaction.execute(sql!("accept_conflict"), &[&self.id, &message_id]).await?;
            return Ok(());
        }
        let statement = match self.origin {
            Origin::Inbox => sql!("reopen_inbox"),
            Origin::Outbox => sql!("reopen_outbox"),
            // An early return rolls back.
            Origin::Process => return Err(not_by_itself(&self.message_id).into()),
        };
        transaction.execute(statement, &[&self.origin_id]).await?;
        Ok(())
    }

    /// Frees the key, or parks it behind its next open dead letter. Locks the key first, so that the next
    /// statement sees a dead letter of this key that is being written now. For the inbox it locks the table too,
    /// before the audit: the mark may have passed the key's rows (see [`super::low_water_mark`]). In the outbox
    /// rows behind the key become due.
    async fn free_key(&self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        if self.origin != Origin::Outbox {
            transaction.execute(sql!("lock_inbox"), &[]).await?;
        }
        let origin = self.origin.as_str();
        let key: [&(dyn ToSql + Sync); 3] = [&origin, &self.destination, &self.msg_key];
        transaction.execute(sql!("lock_key"), &key).await?;
        if transaction.execute(sql!("hand_over_key"), &key).await? == 0 {
            transaction.execute(sql!("free_key"), &key).await?;
        }
        if self.origin == Origin::Outbox {
            let keys = std::slice::from_ref(&self.msg_key);
            outbox::release(transaction, &self.destination, keys, RELEASED_ROWS).await?;
        }
        Ok(())
    }
}

fn not_by_itself(process_id: &str) -> StoreError {
    StoreError::invalid(format!(
        "cannot retry the dead letter of a process by itself; retry the step of process {process_id}, \
         or resume it"
    ))
}

async fn edit(
    client: &mut Client<'_>,
    id: Uuid,
    payload: &str,
    by: Signature<'_>,
) -> Result<DecisionResult, Failure> {
    json::check(payload.as_bytes()).map_err(|error| StoreError::invalid(error.to_string()))?;
    let transaction = client.transaction().await?;
    let values: [&(dyn ToSql + Sync); 3] = [&id, &payload, &by.0];
    let Some(found) = transaction.query_opt(sql!("edit_dead_letter"), &values).await? else {
        return not_open(&transaction, id).await;
    };
    let (origin_id, failed_status): (Option<i64>, &str) = (found.get(1), found.get(2));
    let row = match row::known(&found, 0)? {
        // Another message under the id of that row: only the dead letter has its payload.
        Origin::Inbox if failed_status == STATUS_CONFLICT => None,
        Origin::Inbox => Some(sql!("edit_inbox")),
        Origin::Outbox => Some(sql!("edit_outbox")),
        Origin::Process => return Err(not_editable().into()),
    };
    if let Some(row) = row {
        transaction.execute(row, &[&origin_id, &payload]).await?;
    }
    audit(&transaction, by, "dead-letter.edited", &id.to_string()).await?;
    crate::fail_point!("edit.before_commit");
    transaction.commit().await?;
    Ok(DecisionResult::Done)
}

fn not_editable() -> StoreError {
    StoreError::invalid(
        "cannot edit the data of a process; retry, skip or compensate its step instead",
    )
}

async fn discard_undecodable(
    client: &mut Client<'_>,
    adopted: &PostgresAdoptions,
    id: i64,
    by: Signature<'_>,
) -> Result<DecisionResult, Failure> {
    let mut transaction = client.transaction().await?;
    let Some(found) = transaction.query_opt(sql!("inbox_to_repair"), &[&id]).await? else {
        return Ok(DecisionResult::NotFound);
    };
    if InboxStatus::parse(found.get(0)) != Some(InboxStatus::SerdeError) {
        return Ok(DecisionResult::ResolvedBefore);
    }
    transaction.execute(sql!("discard_serde_error"), &[&id, &by.0, &by.1]).await?;
    audit(&transaction, by, "inbox.discarded", &id.to_string()).await?;
    adopt::write_back(&mut transaction, &adopted.all(), SettledCopies::Inbox, &[id]).await?;
    crate::fail_point!("discard.before_commit");
    transaction.commit().await?;
    Ok(DecisionResult::Done)
}

async fn fail_pending(
    client: &mut Client<'_>,
    adopted: &PostgresAdoptions,
    id: i64,
    on_dead_letter: OnDeadLetter,
    by: Signature<'_>,
) -> Result<DecisionResult, Failure> {
    let mut transaction = client.transaction().await?;
    if !fail_pending_in(&transaction, id, on_dead_letter, by).await? {
        return not_as_required(&transaction, id).await;
    }
    adopt::write_back(&mut transaction, &adopted.all(), SettledCopies::Outbox(None), &[id]).await?;
    crate::fail_point!("fail_row.before_commit");
    transaction.commit().await?;
    Ok(DecisionResult::Done)
}

/// Returns why a decision about an outbox row found none in the state that it requires.
async fn not_as_required(
    transaction: &Transaction<'_>,
    id: i64,
) -> Result<DecisionResult, Failure> {
    let found = transaction.query_opt(sql!("find_outbox"), &[&Some(id), &None::<Uuid>]).await?;
    Ok(found.map_or(DecisionResult::NotFound, |_| DecisionResult::ResolvedBefore))
}

async fn send_now(
    client: &mut Client<'_>,
    id: i64,
    by: Signature<'_>,
) -> Result<DecisionResult, Failure> {
    let transaction = client.transaction().await?;
    let held = i16::try_from(HOLD_AFTER).unwrap_or(i16::MAX);
    if transaction.execute(sql!("send_now"), &[&id, &held]).await? == 0 {
        return not_as_required(&transaction, id).await;
    }
    audit(&transaction, by, "outbox.sent-now", &id.to_string()).await?;
    transaction.commit().await?;
    Ok(DecisionResult::Done)
}

/// Makes a pending row a dead letter; returns whether it was pending.
pub(super) async fn fail_pending_in(
    transaction: &Transaction<'_>,
    id: i64,
    on_dead_letter: OnDeadLetter,
    by: Signature<'_>,
) -> Result<bool, Failure> {
    let park = on_dead_letter.parks();
    let Problem { code, message } = Problem::new(CODE_OPERATOR_FAILED, by.1).fitted();
    let failed = transaction.query(sql!("fail_pending"), &[&id, &code, &message, &park]).await?;
    if failed.is_empty() {
        return Ok(false);
    }
    let bury = transaction.prepare_cached(sql!("bury_outbox")).await?;
    outbox::bury(transaction, &bury, &failed, by.0).await?;
    outbox::release(transaction, failed[0].get(4), &[failed[0].get(2)], RELEASED_ROWS).await?;
    // A job ends with its last row.
    if let Some(job_id) = failed[0].get::<_, Option<String>>(3)
        && let Ok(job) = Uuid::try_parse(&job_id)
        && transaction.execute(sql!("finish_bulk"), &[&job, &job_id]).await? > 0
    {
        transaction.execute(sql!("announce_bulk"), &[&job]).await?;
    }
    audit(transaction, by, "outbox.failed", &id.to_string()).await?;
    Ok(true)
}
